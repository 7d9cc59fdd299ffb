"""The study as JSON: the numbers of the tables, unrounded, per device and iteration.

The keys are documented in docs/cost.md and do not change without a new `FORMAT`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from edgesim.assembly.message_costs import MessageCosts
from edgesim.costs.memory_table import MemoryTable
from edgesim.hardware.energy_tables import ENERGY_TABLES
from edgesim.study.answer import Answer
from edgesim.study.changes import Change
from edgesim.study.comparison import PrecisionComparison, Side
from edgesim.study.iteration import DeviceCosts, DeviceTime, IterationCosts
from edgesim.study.tables.ratio import Ratio
from edgesim.study.tables.side_by_side import Pair
from edgesim.study.training import Training, training_of

FORMAT = 1


def scenario_record(costs: IterationCosts) -> dict[str, Any]:
    """One scenario: its description, message, devices and fleet."""
    studied = costs.studied
    scenario, form = studied.scenario, studied.model.form
    return {
        "name": scenario.name,
        "model": form.name,
        "precision": scenario.model.precision,
        "norm": form.norm,
        "measured_layers": list(studied.model.measured_layers),
        "parameters": studied.model.num_trainable,
        "image_shape": list(form.image_shape),
        "num_classes": form.num_classes,
        "batch_size": studied.model.batch_size,
        "algorithm": studied.algorithm.name,
        "topology": str(scenario.topology.kind),
        "energy_table": costs.energy_table,
        "message": _message(costs.message),
        "devices": [_device(costs, device) for device in costs.devices],
        "fleet": _fleet(costs),
    }


def answer_record(answer: Answer) -> dict[str, Any]:
    """What is asked first: memory, time, limits, batteries, and settings that help."""
    names = answer.costs.studied.scenario.fleet.names
    training, advice = answer.training, answer.advice
    state = answer.costs.steady_state

    def called(device: int | None) -> str | None:
        return names[device] if names and device is not None else None

    return {
        "fits": answer.fits,
        "memory": [
            asdict(need) | {"free_bytes": need.free_bytes, "fits": need.fits}
            for need in answer.needs
        ],
        "round_s": state.period_s if state else None,
        "rounds_per_epoch": answer.costs.studied.rounds_per_epoch,
        "training": _training(training),
        "channel_s": answer.channel_s,
        "limit": answer.limit,
        "limits": [
            asdict(limit) | {"name": called(limit.device), "receiver_name": called(limit.receiver)}
            for limit in (state.limits if state else ())
        ],
        "batteries": [
            asdict(life) | {"name": called(life.device), "used": life.used, "lasts": life.lasts}
            for life in training.lives
        ],
        "advice": advice
        and {
            "goal": advice.goal,
            "num_tried": advice.num_tried,
            "changes": [_change(change) for change in advice.changes],
            "together": advice.together and _change(advice.together),
        },
    }


def comparison_record(comparison: PrecisionComparison, ratios: Sequence[Ratio]) -> dict[str, Any]:
    """fp32 against 8 bits of one model."""
    setting, work = comparison.setting, comparison.fp32.step_work
    return {
        "model": setting.name,
        "image_shape": list(setting.image_shape),
        "batch_size": setting.batch_size,
        "parameters": comparison.fp32.num_trainable,
        "forward_macs_per_sample": comparison.fp32.forward_macs_per_sample,
        "macs": {
            "forward": work.forward.macs,
            "input_gradient": work.input_gradient.macs,
            "weight_gradient": work.weight_gradient.macs,
            "total": work.total.macs,
        },
        "messages_sent": setting.out_degree,
        "messages_received": setting.in_degree,
        "paper_memory": {
            "fp32": _memory(comparison.fp32_memory),
            "int8": _memory(comparison.int8_memory),
        },
        "ratios": [asdict(ratio) for ratio in ratios],
        "by_algorithm": [
            {
                "algorithm": row.algorithm,
                "compression": row.compression,
                "fp32": _side(row.fp32),
                "int8": _side(row.int8),
            }
            for row in comparison.rows
        ],
    }


def side_by_side_record(pairs: Sequence[Pair]) -> list[dict[str, Any]]:
    """Two scenarios, quantity by quantity."""
    return [asdict(pair) | {"ratio": pair.ratio} for pair in pairs]


def price_records() -> list[dict[str, Any]]:
    """The energy tables with their sources."""
    return [asdict(table) for table in ENERGY_TABLES.values()]


def _training(training: Training) -> dict[str, Any]:
    return {
        "seconds": training.seconds,
        "epoch_s": training.epoch_s,
        "rounds": list(training.rounds),
        "sent_bytes": list(training.sent_bytes),
        "energy_j": list(training.energy_j),
        "last_wait_s": list(training.last_wait_s),
        "last_wait_j": list(training.last_wait_j),
    }


def _change(change: Change) -> dict[str, Any]:
    """A changed scenario: what is changed, and what is asked of it first."""
    costs = change.costs
    return {
        "settings": list(change.candidate.settings),
        "devices": list(change.candidate.whom),
        "wider_link": change.candidate.wider,
        "fits": change.fits,
        "round_s": costs.steady_state.period_s if costs.steady_state else None,
        "needed_bytes": costs.heaviest.faithful_memory.total,
        "training": _training(change.training),
        "battery_used": [life.used for life in change.training.lives],
    }


def _device(costs: IterationCosts, device: DeviceCosts) -> dict[str, Any]:
    parts = {**device.work.by_part, "total": device.work.total}
    names = costs.studied.scenario.fleet.names
    profile = device.profile
    return {
        "device": device.device,
        "name": names[device.device] if names else None,
        "profile": profile.name if profile else None,
        "messages_sent": device.messages_sent,
        "messages_received": device.messages_received,
        "sent_bytes": device.sent_bytes,
        "received_bytes": device.received_bytes,
        "work": {name: work.counts for name, work in parts.items()},
        "memory": {
            "faithful": _memory(device.faithful_memory),
            "paper": _memory(device.paper_memory),
            "available_bytes": profile.memory_bytes if profile else None,
            "fits": device.fits,
        },
        "energy": [asdict(entry) | {"total_j": entry.total_j} for entry in device.energy],
        "time": _time(device.time) if device.time else None,
    }


def _time(time: DeviceTime) -> dict[str, Any]:
    cycle = time.cycle
    return {
        "int8_s": time.int8_s,
        "bits16_s": time.bits16_s,
        "fp32_s": time.fp32_s,
        "arithmetic_s": time.arithmetic_s,
        "memory_s": time.memory_s,
        "roofline_s": time.roofline_s,
        **asdict(cycle),
        "sleep_s": cycle.sleep_s,
        "utilisation": cycle.utilisation,
    }


def _fleet(costs: IterationCosts) -> dict[str, Any]:
    steady_state, training = costs.steady_state, training_of(costs)
    timed = None
    if steady_state is not None:
        timed = {
            "period_s": steady_state.period_s,
            "is_settled": steady_state.is_settled,
            "sets_the_pace": steady_state.busiest,
            "warm_up_rounds": steady_state.warm_up_rounds,
            "num_rounds": steady_state.num_rounds,
        }
    return {
        "sent_bytes": costs.sent_bytes,
        "energy_j": costs.energy_j,
        "rhythm": timed,  # format 1 has this name
        "training": {
            "rounds": max(training.rounds),
            "sent_bytes": sum(training.sent_bytes),
            "energy_j": sum(training.energy_j),
            "virtual_time_s": training.seconds,
        },
    }


def _message(message: MessageCosts) -> dict[str, Any]:
    return {
        "compressor": message.compressor,
        "num_entries": message.num_entries,
        "num_kept": message.num_kept,
        "encoded": asdict(message.encoded) | {"total": message.encoded.total},
        "is_exact": message.is_exact,
        "index_entropy_bytes": message.index_entropy_bytes,
        "by_convention": dict(message.by_convention),
    }


def _memory(table: MemoryTable) -> dict[str, int]:
    return {**table.by_component, "total": table.total}


def _side(side: Side) -> dict[str, Any]:
    return {
        "message": _message(side.message),
        "work": side.work.counts,
        "gossip_work": side.gossip.counts,
        "memory": _memory(side.memory),
        "energy": {
            name: asdict(energy) | {"total_j": energy.total_j}
            for name, energy in side.energy.items()
        },
    }
