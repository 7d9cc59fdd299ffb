"""The results of a run in one small mapping, and the tables that are written at its end."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from math import isfinite, nan
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from edgesim.assembly.budget import memory_of_devices
from edgesim.assembly.build import make_task
from edgesim.assembly.equipment import device_profiles
from edgesim.assembly.gossip import (
    averaging_rate,
    make_algorithm,
    moves_mass,
)
from edgesim.assembly.prepared_run import PreparedRun
from edgesim.data.shape import DataShape
from edgesim.device.trainer import DivergedError
from edgesim.fleet.recording.closing_warnings import (
    chance_warning,
    late_rounds_warning,
    mass_warning_of,
    overdraft_warning,
    silence_warning_of,
)
from edgesim.fleet.recording.departures import (
    departures,
    stay_warning,
    without_model,
)
from edgesim.fleet.recording.divergence import divergence_warning
from edgesim.fleet.recording.influence import influence_of_devices
from edgesim.fleet.recording.resumes import warnings_of_resumes
from edgesim.gossip.optional_members import message_layouts
from edgesim.results.arrow_table import numbers_of, scalar_of
from edgesim.results.columns import (
    BATTERY_DEVICES,
    CONSENSUS,
    DEVICES,
    FREE_DEVICES,
    OWN_DEVICES,
    VIRTUAL_DEVICES,
    columns_that_hold,
)
from edgesim.results.run_directory import RunDirectory
from edgesim.results.snapshot import Snapshot
from edgesim.scenario.schema import Scenario

_SUMMED = (
    "sent_bytes",
    "sent_value_bytes",
    "sent_index_bytes",
    "sent_overhead_bytes",
    "received_bytes",
    "messages_sent",
    "macs_int8",
    "macs_16bit",
    "macs_fp32",
    "elementwise_ops",
    "traffic_bytes",
    "retransmissions",
    "retransmitted_bytes",
    "energy_j",
    "energy_compute_j",
    "energy_memory_j",
    "energy_radio_j",
    "energy_idle_j",
    "virtual_compute_s",
    "virtual_wait_s",
    "compute_wall_s",
    "compute_cpu_s",
    "wait_wall_s",
)


def write_devices(prepared: PreparedRun, directory: RunDirectory) -> None:
    """Write devices.parquet: samples, labels and predicted memory of each device."""
    dataset, data = prepared.dataset, prepared.data
    labels = dataset.train.labels
    rows: list[dict[str, Any]] = [
        {
            "device": device,
            "samples": len(indices),
            "label_counts": _label_counts(labels[indices], data.num_classes),
            "parameters": prepared.layout.numel,
            "shard_bytes": shard_bytes,
        }
        for device, (indices, shard_bytes) in enumerate(
            zip(prepared.indices, prepared.shard_bytes(), strict=True)
        )
    ]
    profiles = device_profiles(prepared.scenario)
    # From the known shape of the data: a finished run must not fail because files have moved.
    shape = DataShape.of(dataset)
    for row, memory in zip(rows, memory_of_devices(prepared.scenario, shape), strict=True):
        row |= {f"memory_{name}_bytes": size for name, size in memory.by_component.items()}
        row["memory_bytes"] = memory.total
        row["profile"] = profiles[int(row["device"])].name if profiles else None
        own = prepared.held_out
        row["held_out_samples"] = len(own[int(row["device"])]) if own else None
    rounds = directory.read_table("rounds.parquet")
    charges, influence = _charges_left(rounds), _influence(prepared.scenario, rounds)
    for row in rows:
        row["charge_left_j"] = None
        if charges:
            full_j = profiles[row["device"]].battery_j  # of one that was never there
            row["charge_left_j"] = charges.get(row["device"], nan if full_j is None else full_j)
        row["influence"] = influence[row["device"]] if influence else None
    optional = OWN_DEVICES + VIRTUAL_DEVICES + BATTERY_DEVICES + FREE_DEVICES
    columns = columns_that_hold(DEVICES, optional, rows[0])
    directory.write_table("devices.parquet", rows, columns, names=prepared.scenario.fleet.names)


def _label_counts(labels: NDArray[Any], num_classes: int) -> list[int]:
    """Samples of each class; empty if targets are not one class per sample."""
    if labels.dtype != np.int64 or labels.ndim != 1:
        return []
    counts: list[int] = np.bincount(labels, minlength=num_classes).tolist()
    return counts


def _influence(scenario: Scenario, rounds: pa.Table) -> list[float]:
    """How much each device counted in the average; empty in lockstep, and where that is unknown."""
    if scenario.fleet.rules.waits_for_all or not moves_mass(scenario):
        return []
    on_model = scenario.steps_on_model
    influence = influence_of_devices(rounds, scenario.fleet.num_devices, steps_on_model=on_model)
    numbers: list[float] = influence.tolist()
    return numbers


def _charges_left(rounds: pa.Table) -> dict[int, float]:
    """What is left in each device's battery after its last round; empty without batteries."""
    if "charge_left_j" not in rounds.column_names:
        return {}
    columns = rounds.select(["device", "round", "charge_left_j"]).sort_by(
        [("device", "ascending"), ("round", "ascending")]
    )
    devices, charges = (columns[name].to_pylist() for name in ("device", "charge_left_j"))
    return dict(zip(devices, charges, strict=True))  # of each device the last one stays


def summarise(
    prepared: PreparedRun,
    directory: RunDirectory,
    evaluations: Sequence[dict[str, Any]],
    wall_s: float,
) -> dict[str, Any]:
    """Summary of a finished run: final quality, totals over rounds.parquet, byte conventions.

    Args:
        prepared: what was run.
        directory: with rounds.parquet.
        evaluations: rows of evaluations.parquet.
        wall_s: from launch to the last evaluation, without the compilation of kernels.
    """
    scenario, training = prepared.scenario, prepared.training
    in_step = scenario.fleet.rules.waits_for_all  # at free pace devices end in rounds of their own
    last = max(place for place, row in enumerate(evaluations) if row["device"] == CONSENSUS)
    consensus, *of_devices = evaluations[last:]
    if not isfinite(consensus["loss"]):
        raise DivergedError(
            f"the averaged model ended with a loss of {consensus['loss']}; "
            "lower training.optimizer.lr or gossip.averaging_rate"
        )
    accuracies = [row["accuracy"] for row in of_devices if row["accuracy"] is not None]
    rounds = directory.read_table("rounds.parquet")
    totals = {
        column: pc.sum(rounds[column]).as_py()
        for column in _SUMMED
        if column in rounds.column_names
    }
    if "virtual_time_s" in rounds.column_names:
        totals["virtual_time_s"] = pc.max(rounds["virtual_time_s"]).as_py()
    messages = directory.read_table("messages.parquet")
    environment = directory.read_json("environment.json")
    left = _left_after_round(rounds, messages, training.num_rounds, in_step=in_step)
    ends = [] if in_step else _final_models(prepared, directory)
    gone = _departures(prepared, ends, rounds, messages, left)
    warnings = [
        divergence_warning(evaluations, prepared) or chance_warning(consensus, prepared),
        None if in_step else silence_warning_of(prepared, rounds, gone["dead_devices"]),
        late_rounds_warning(rounds, prepared.schedule.seconds_per_round, left) if in_step else None,
        overdraft_warning(rounds, scenario.fleet.names),
        _measure_warning(scenario, consensus),
        *warnings_of_resumes(environment),
        stay_warning(scenario, prepared.schedule.presence, left, training.num_rounds)
        if in_step
        else None,
        mass_warning_of(prepared, rounds, ends, {"left_after_round": left} | gone),
        *prepared.own_notices,
    ]
    num_shares = pc.sum(_are(messages, "share")).as_py() or 0
    algorithm = make_algorithm(scenario, prepared.layout, prepared.schedule)
    compressor, layout = algorithm.compressor, message_layouts(algorithm)[0]
    return {
        "name": scenario.name,
        "seed": scenario.seed,
        "devices": scenario.fleet.num_devices,
        **({"device_names": list(scenario.fleet.names)} if scenario.fleet.names else {}),
        "rounds": consensus["round"],
        "epochs": consensus["epoch"],
        "parameters": prepared.layout.numel,
        "consensus_accuracy": consensus["accuracy"],
        "consensus_loss": consensus["loss"],
        **_measures(scenario, consensus),
        **_on_own_samples(consensus, of_devices),
        **_after_gossip(scenario, consensus),
        "consensus_distance": consensus["consensus_distance"],
        "averaging_rate": averaging_rate(scenario),
        "warnings": [said for said in warnings if said],
        **({"own_notices": list(prepared.own_notices)} if prepared.own_notices else {}),
        "device_models_evaluated": len(of_devices),
        "device_accuracy_min": min(accuracies, default=None),
        "device_accuracy_mean": sum(accuracies) / len(accuracies) if accuracies else None,
        "device_accuracy_max": max(accuracies, default=None),
        **totals,
        "message_bytes_by_convention": dict(compressor.conventions(layout)),
        # What no index code can beat on average: of a message sum of log2 C(n, k) / 8.
        "index_entropy_bytes": num_shares * compressor.form(layout).index_entropy_bytes,
        "left_after_round": left,
        "left_because": _left_because(prepared, left),
        **({} if in_step else _rounds_of_devices(rounds)),
        **_range_of_influence(directory),
        **gone,
        "actor_restarts": environment.get("actor_restarts", 0),
        "resumes": len(environment.get("resumed", [])),
        "wall_s": wall_s,
    }


def _measures(scenario: Scenario, consensus: Mapping[str, Any]) -> dict[str, Any]:
    """What a task measures beside accuracy and loss; empty for one that measures nothing else."""
    names = list(make_task(scenario).metrics)
    found = {f"consensus_{name}": _or_null(consensus[name]) for name in names}
    return {"measures": names, **found} if names else {}


def _measure_warning(scenario: Scenario, consensus: Mapping[str, Any]) -> str | None:
    """That a measure of the task is no number at the end, such as a share of no samples."""
    values = {name: consensus[name] for name in make_task(scenario).metrics}
    wrong = [f"{name} {value}" for name, value in values.items() if not isfinite(value)]
    if not wrong:
        return None
    return (
        f"the averaged model ends with {', '.join(wrong)}, null in summary.json; look at what "
        "training.task divides by"
    )


def _or_null(value: float | None) -> float | None:
    """A value that JSON can hold."""
    return value if value is None or isfinite(value) else None


def _on_own_samples(
    consensus: Mapping[str, Any], of_devices: Sequence[Mapping[str, Any]]
) -> dict[str, float | None]:
    """The last evaluation on devices' own held-out samples; empty where there are none."""
    found: dict[str, float | None] = {}
    for name in (name for name in consensus if name.startswith("own_")):
        values = [row[name] for row in of_devices if _or_null(row[name]) is not None]
        found |= {
            f"consensus_{name}": _or_null(consensus[name]),
            f"device_{name}_min": min(values, default=None),
            f"device_{name}_mean": sum(values) / len(values) if values else None,
            f"device_{name}_max": max(values, default=None),
        }
    return found


def _after_gossip(scenario: Scenario, consensus: Mapping[str, Any]) -> dict[str, Any]:
    """Means over devices' models after further rounds of gossip; empty without such rounds."""
    if not (rounds := scenario.evaluation.gossip_rounds):
        return {}
    kept = ("accuracy", "loss", "consensus_distance")
    figures = {f"after_gossip_{name}": consensus[f"after_gossip_{name}"] for name in kept}
    return {"after_gossip_rounds": rounds, **figures}


def _rounds_of_devices(rounds: pa.Table) -> dict[str, int]:
    """Fewest and most rounds of a device at free pace, where each has a pace of its own."""
    counts = np.bincount(numbers_of(rounds["device"]))
    done = counts[counts > 0]  # who dies before its first round has none
    return {"device_rounds_min": int(done.min()), "device_rounds_max": int(done.max())}


def _range_of_influence(directory: RunDirectory) -> dict[str, float]:
    """Least and most influence of a device, where devices.parquet has it; 1 is the mean."""
    devices = directory.read_table("devices.parquet")
    if "influence" not in devices.column_names:
        return {}
    span = pc.min_max(devices["influence"]).as_py()
    return {"device_influence_min": span["min"], "device_influence_max": span["max"]}


def _final_models(prepared: PreparedRun, directory: RunDirectory) -> list[Snapshot]:
    """What each device ended with, in the order of devices."""
    last_evaluation, num_devices = prepared.training.num_rounds, prepared.scenario.fleet.num_devices
    return [directory.read_final_model(last_evaluation, device) for device in range(num_devices)]


def _departures(
    prepared: PreparedRun,
    ends: Sequence[Snapshot],
    rounds: pa.Table,
    messages: pa.Table,
    left: Collection[str],
) -> dict[str, Any]:
    """Devices that were not present at the end, at free pace; in lockstep those without a model.

    Args:
        prepared: what was run.
        ends: what each device ended with, at free pace.
        rounds: rows of rounds.parquet.
        messages: rows of messages.parquet.
        left: devices that left in lockstep.
    """
    if prepared.scenario.fleet.rules.waits_for_all:
        return {"without_model": without_model(rounds, left, prepared.schedule.presence)}
    absorbed = pc.sum(rounds["messages_absorbed"]).as_py()
    return departures(prepared.scenario, ends, len(messages), absorbed)


def _left_after_round(
    rounds: pa.Table, messages: pa.Table, num_rounds: int, *, in_step: bool
) -> dict[str, int]:
    """Last round of each device that left before the end, by device.

    Devices that handed over; if all except one did, also that one.
    """
    if not in_step:
        return {}
    handovers = messages.filter(_are(messages, "handover"))["device"].to_pylist()
    left = set(handovers)
    devices, places = np.unique(numbers_of(rounds["device"]), return_inverse=True)
    ends = np.zeros(len(devices), np.int64)
    np.maximum.at(ends, places, numbers_of(rounds["round"]))
    pairs = list(zip(devices.tolist(), ends.tolist(), strict=True))
    everybody = {device for device, _ in pairs}
    if len(everybody - left) == 1:
        left = everybody
    return {str(d): end for d, end in pairs if d in left and end < num_rounds - 1}


def _are(messages: pa.Table, kind: str) -> pa.ChunkedArray:
    """Which messages are of a kind."""
    return pc.equal(messages["kind"], scalar_of(kind, pa.string()))


def _left_because(prepared: PreparedRun, left: Mapping[str, int]) -> dict[str, str]:
    """Why each device left: `plan`, if its stay was over, or else `battery`.

    Args:
        prepared: what was run.
        left: last round by device.
    """
    leave_round = prepared.schedule.presence.leave_round
    ends = {device: leave_round(int(device)) for device in left}
    return {
        device: "plan" if (end := ends[device]) is not None and last + 1 >= end else "battery"
        for device, last in left.items()
    }
