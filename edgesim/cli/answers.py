"""Closing table of `run`: what a run has found."""

from __future__ import annotations

from collections.abc import Sequence
from shlex import quote
from typing import Any

from edgesim.errors import device_label
from edgesim.program import program
from edgesim.study.tables.table import Table

_SENTENCES = frozenset({"left", "died", "warning"})
NAMED_DEVICES = 3  # devices named in a row of the closing table; summary.json names all


def _sent_again(summary: dict[str, Any]) -> list[tuple[str, str]]:
    """Bytes of lost packets, which come on top of those sent."""
    again = summary.get("retransmitted_bytes", 0)
    if not again:
        return []
    share = 100 * again / summary["sent_bytes"]
    return [("  and sent again", f"{again:,} ({share:.3g} % more)")]


def _losses(summary: dict[str, Any]) -> list[tuple[str, str]]:
    """Rows about devices that left or died, restarts of actors and resumes of the run.

    `edgesim.fleet.recording.departures` describes the end of each dead device before the table.

    Args:
        summary: content of summary.json; runs of earlier versions lack some keys.
    """
    reasons = summary.get("left_because", {})
    because = {"battery": "as its battery would not last to its next turn", "plan": "by plan"}
    left = [
        f"{_label(summary, device)} after {last + 1:,} round{'s' if last else ''}"
        + (f", {because[reasons[device]]}" if device in reasons else "")
        for device, last in summary.get("left_after_round", {}).items()
    ]
    died = [_label(summary, device) for device in summary.get("dead_devices", {})]
    rows = [(name, _some(ends)) for name, ends in (("left", left), ("died", died)) if ends]
    for label, key in (("restarts of actors", "actor_restarts"), ("times resumed", "resumes")):
        if summary.get(key):
            rows.append((label, f"{summary[key]:,}"))
    return rows


def _label(summary: dict[str, Any], device: str) -> str:
    return device_label(int(device), summary.get("device_names", ()))


def _some(names: Sequence[str]) -> str:
    """The first names, and the number of further ones."""
    more = len(names) - NAMED_DEVICES
    return "; ".join(names[:NAMED_DEVICES]) + (f"; and {more:,} more" if more > 0 else "")


def _whose_accuracy(summary: dict[str, Any]) -> str:
    """The devices whose own models were in the last evaluation, as text."""
    devices = summary["devices"]
    evaluated = summary.get("device_models_evaluated", devices)
    missing = {
        "died": len(summary.get("dead_devices", {})),
        "left the fleet": len(summary.get("left_after_round", {})),
        "without a model": len(summary.get("without_model", ())),
    }
    there = devices - sum(missing.values())
    if evaluated == devices:
        return "single devices"
    if there == devices or there <= 0:  # if all died, the models are those at their deaths
        return f"{evaluated:,} of {devices:,} devices"
    why = ", ".join(f"{number:,} {what}" for what, number in missing.items() if number)
    of = "" if evaluated == there else f"{evaluated:,} of "
    return f"{of}the {there:,} {'device' if there == 1 else 'devices'} still there ({why})"


def number(value: float) -> str:
    """A time or an energy: one decimal place, and of small ones four digits."""
    return f"{value:,.1f}" if value >= 100 else f"{value:.4g}"


def _own_samples_rows(summary: dict[str, Any]) -> list[tuple[str, str]]:
    """Rows about models on devices' own held-out samples."""
    if "consensus_own_loss" not in summary:
        return []
    name = "loss" if summary["consensus_own_accuracy"] is None else "accuracy"
    key = f"own_{name}"
    rows = [(f"{name} on devices' own samples", "")]
    rows.append(("  averaged model, mean", f"{summary[f'consensus_{key}']:.4f}"))
    if summary[f"device_{key}_min"] is not None:
        least, most = summary[f"device_{key}_min"], summary[f"device_{key}_max"]
        mean = summary[f"device_{key}_mean"]
        rows.append(("  each its own model", f"{least:.4f} to {most:.4f}, mean {mean:.4f}"))
    return rows


def _after_gossip(summary: dict[str, Any]) -> list[tuple[str, str]]:
    """Row about devices' models after further gossip, on the common test samples."""
    accuracy, loss = (summary.get(f"after_gossip_{name}") for name in ("accuracy", "loss"))
    if accuracy is None and loss is None:
        return []
    rounds = summary["after_gossip_rounds"]
    after = f"after {rounds:,} round{'' if rounds == 1 else 's'} of gossip"
    if accuracy is None:  # in a task without; there is no row of single devices above
        return [(f"loss of devices {after}, mean", f"{loss:.4g}")]
    return [(f"  mean {after}", f"{accuracy:.4f}")]


def _rounds(summary: dict[str, Any]) -> str:
    """Rounds of the fleet; where devices have a pace of their own, the mean and the range."""
    text = f"{summary['rounds']:,} ({summary['epochs']:.4g} epochs)"
    fewest, most = summary.get("device_rounds_min"), summary.get("device_rounds_max")
    if fewest is None or most is None or fewest == most:
        return text
    return f"{text} in the mean of the devices at the end, {fewest:,} to {most:,} of single ones"


def _influence(summary: dict[str, Any]) -> list[tuple[str, str]]:
    """Row about how much single devices counted; none in lockstep."""
    least, most = summary.get("device_influence_min"), summary.get("device_influence_max")
    if least is None or most is None:
        return []
    return [("influence of a device", f"{least:.2f} to {most:.2f} times the mean")]


def result_table(summary: dict[str, Any], place: str) -> Table:
    """Table of the results of a run.

    Args:
        summary: content of summary.json.
        place: path or URI of the run directory.
    """
    rate = summary.get("averaging_rate")
    averaging = [] if rate is None else [("averaging rate", f"{rate:g}")]
    accuracy = summary["consensus_accuracy"]
    if accuracy is None:  # in a task without
        rows = [("loss of the averaged model", f"{summary['consensus_loss']:.4g}")]
    else:
        rows = [("accuracy of the averaged model", f"{accuracy:.4f}")]
    rows += [
        (f"  {name.replace('_', ' ')}", "no number" if value is None else f"{value:.4g}")
        for name in summary.get("measures", ())
        for value in [summary[f"consensus_{name}"]]
    ]
    if summary["device_accuracy_min"] is not None:
        rows += [
            (
                f"accuracy of {_whose_accuracy(summary)}",
                f"{summary['device_accuracy_min']:.4f} to {summary['device_accuracy_max']:.4f}",
            ),
            ("  mean", f"{summary['device_accuracy_mean']:.4f}"),
        ]
    rows += _after_gossip(summary)
    rows += _own_samples_rows(summary)
    rows += [
        ("consensus distance", f"{summary['consensus_distance']:.4g}"),
        *averaging,
        ("bytes sent", f"{summary['sent_bytes']:,} in {summary['messages_sent']:,} messages"),
        ("  values", f"{summary['sent_value_bytes']:,}"),
        ("  indices", f"{summary['sent_index_bytes']:,}"),
        ("  scales and headers", f"{summary['sent_overhead_bytes']:,}"),
        *_sent_again(summary),
        ("rounds", _rounds(summary)),
        *_influence(summary),
    ]
    if "virtual_time_s" in summary:
        rows += [
            ("virtual time", f"{number(summary['virtual_time_s'])} s"),
            ("energy", f"{number(summary['energy_j'])} J"),
            *(
                (f"  {name}", f"{number(summary[f'energy_{key}_j'])} J")
                for name, key in (
                    ("computing", "compute"),
                    ("memory", "memory"),
                    ("radio", "radio"),
                    ("waiting", "idle"),
                )
                # By a board's powers its active power has that of its memory.
                if key != "memory" or summary["energy_memory_j"]
            ),
        ]
    rows += _losses(summary)
    since = " since it was resumed" if summary.get("resumes") else ""
    rows += [("wall time", f"{summary['wall_s']:.1f} s{since}"), ("files", place)]
    rows.append(("as a page", f"{program()} report {quote(place)}"))
    rows += [("warning", text) for text in summary.get("warnings", [])]
    return Table(
        f"{summary['name']} (seed {summary['seed']})", ("", ""), tuple(rows), prose=_SENTENCES
    )
