"""What the paper reports beside what was measured, for runs whose scenarios have a target."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from edgesim.report.departures import departure_notes
from edgesim.report.errors import ReportError
from edgesim.report.evaluated import test_samples
from edgesim.report.figures.comparison import spread
from edgesim.report.provenance import unlike_code
from edgesim.report.reported_run import ReportedRun
from edgesim.report.run_settings import held_back_of, published_samples, trained_alike
from edgesim.report.seeds import by_group, one_per_seed, repeated_seeds
from edgesim.study.tables.table import Table

_HEADS = (
    *("paper's", "algorithm", "model", "skew", "left out", "paper", "as the authors"),
    *("difference", "averaged model", "runs", "epochs", "rounds"),
)
_OF_SAMPLES = ("trained on", "tested on")  # columns, where it is not all
_ALL = "all"
_CUT = "cut"
_NAMES = {"choco": "CHOCO", "deepsqueeze": "DeepSqueeze"}
_NONE = "-"


@dataclass(frozen=True, slots=True)
class _Measured:
    """The last evaluation of a finished run, in percent; None where it is not there."""

    as_authors: float | None
    averaged: float | None
    epochs: float
    rounds: int


def paper_table(runs: Sequence[ReportedRun]) -> Table | None:
    """Targets and measured accuracies; None if no scenario has a target.

    Runs that differ in the seed alone are one row: their mean, and their standard deviation.
    """
    targets = [run for run in runs if run.settings.get("paper")]
    groups = by_group(one_per_seed(targets, trained_alike), trained_alike)
    if not groups:
        return None
    pairs = [(_row(runs), runs) for runs in groups.values()]
    pairs.sort(key=lambda pair: _place_of_row(pair[0]))
    rows, members = [row for row, _ in pairs], [runs for _, runs in pairs]
    samples = [_samples(runs[0]) for runs in members]
    heads: tuple[str, ...] = _HEADS
    if any(each != (_ALL, _ALL) for each in samples):
        heads += _OF_SAMPLES
        rows = [row + each for row, each in zip(rows, samples, strict=True)]
    unfinished = sum(not run.is_finished for members in groups.values() for run in members)
    what = (
        "Accuracies in percent. As the authors: mean over the devices' models after further rounds "
        "of gossip (evaluation.gossip_rounds); the averaged model is evaluated as it is. "
        "Difference: as the authors, less the paper's, in points."
    )
    spread = (
        "Behind +-: the standard deviation over runs (n - 1). The paper gives none; the same "
        "algorithm under two names differs there by up to 3.3 points (docs/reference.md, section "
        "0.2)."
    )
    notes = [what, spread]
    if any(row[_HEADS.index("difference")] == _CUT for row in rows):
        notes.append(
            "Cut: fewer epochs than the paper's, or not all samples. Such an accuracy says nothing "
            "about the paper's."
        )
    names = [f"{', '.join(row[:2])}, skew {row[3]}, {row[4]}" for row in rows]
    notes += [*repeated_seeds(targets, trained_alike), *unlike_code(targets)]
    notes += departure_notes([(n, runs[0]) for n, runs in zip(names, members, strict=True)])
    if unfinished:
        notes.append(f"{unfinished} runs are not finished and not counted.")
    return Table("The paper and what was measured", heads, tuple(rows), tuple(notes))


def required_paper_table(runs: Sequence[ReportedRun]) -> Table:
    """The same.

    Raises:
        ReportError: no scenario has a target.
    """
    if (table := paper_table(runs)) is None:
        raise ReportError(
            f"{runs[0].place}: its scenario has no section paper, which names what the paper "
            "reports; run one of scenarios/paper, or leave out --paper"
        )
    return table


def _row(runs: Sequence[ReportedRun]) -> tuple[str, ...]:
    """A row of the table, of runs that differ in the seed alone."""
    settings = runs[0].settings
    target = settings["paper"]
    wanted = target.get("accuracy")
    found = [_measured(run) for run in runs if run.is_finished and len(run.consensus)]
    as_authors = [each.as_authors for each in found if each.as_authors is not None]
    averaged = [each.averaged for each in found if each.averaged is not None]
    difference = _NONE
    if wanted is not None and as_authors:
        difference = f"{float(np.mean(as_authors)) - wanted:+.2f}"
        if _samples(runs[0]) != (_ALL, _ALL) or _is_short(found, target.get("epochs")):
            difference = _CUT
    return (
        str(target["place"]),
        _algorithm(settings, runs[0].num_devices),
        str(settings["model"]["name"]),
        _skew(settings["data"]["partition"]),
        _left_out(settings["gossip"].get("compressor") or {}),
        _NONE if wanted is None else f"{wanted:.2f}",
        spread(as_authors, "{:.2f}".format) or _NONE,
        difference,
        spread(averaged, "{:.2f}".format) or _NONE,
        str(len(found)),
        _epochs(found, target.get("epochs")),
        _range((each.rounds for each in found), "{:,}".format) or _NONE,
    )


def _place_of_row(row: tuple[str, ...]) -> tuple[str, str, str, float, str]:
    """Order of rows: as in the paper's tables, by what messages leave out, then by skew."""
    place, algorithm, model, skew, left_out, *_ = row
    return place, model, algorithm, float(left_out.removesuffix(" %")), skew


def _measured(run: ReportedRun) -> _Measured:
    last = run.consensus.iloc[-1]
    figures = [last.get(name) for name in ("after_gossip_accuracy", "accuracy")]
    as_authors, averaged = (
        None if value is None or value != value else 100 * float(value) for value in figures
    )
    rounds = int(run.rounds["round"].max()) + 1
    return _Measured(as_authors, averaged, float(last["epoch"]), rounds)


def _samples(run: ReportedRun) -> tuple[str, str]:
    """How many samples a run was trained and tested on."""
    trained, tested = published_samples(run.settings) or (None, None)
    used = run.settings["data"].get("train_samples")
    if (held_back := held_back_of(run.settings)) is None:
        return _of_all(used, trained), _of_all(run.settings["evaluation"].get("samples"), tested)
    most = None if trained is None else trained - held_back
    return _of_all(most if used is None else used, trained), test_samples(run)


def _of_all(used: int | None, there: int | None) -> str:
    if used is None or used == there:
        return _ALL
    return f"{used:,}" if there is None else f"{used:,} of {there:,}"


def _is_short(found: Sequence[_Measured], wanted: int | None) -> bool:
    return wanted is not None and any(each.epochs < wanted for each in found)


def _algorithm(settings: Mapping[str, Any], num_devices: int) -> str:
    """The paper's name of algorithm and precision, and the norm where the scenario names one."""
    name = str(settings["gossip"]["algorithm"])
    words = _NAMES.get(name, name) if num_devices > 1 else "single device"
    model, optimizer = settings["model"], settings["training"]["optimizer"]
    if model.get("precision") == "int8":
        words = f"LP-{words}"
    if optimizer.get("momentum_kind") == "quasi_global":
        words += " + QGM"
    if model.get("norm"):
        words += f", {model['norm']}"
    if model.get("gate"):
        words += f", {model['gate']}"
    return words


def _skew(partition: Mapping[str, Any]) -> str:
    return f"{partition['skew']:g}" if "skew" in partition else _NONE


def _left_out(compressor: Mapping[str, Any]) -> str:
    """Share of the entries that messages leave out, as the paper gives it."""
    return f"{100 * (1 - compressor.get('keep', 1.0)):.4g} %"


def _epochs(found: Sequence[_Measured], wanted: int | None) -> str:
    done = _range((each.epochs for each in found), "{:.4g}".format)
    if not found or wanted is None:
        return done or _NONE
    return f"{done} of {wanted}"


def _range(values: Iterable[float], form: Callable[[float], str]) -> str:
    """The value, or the least and the largest of several."""
    several = sorted(set(values))
    return " to ".join(map(form, dict.fromkeys((several[0], several[-1])))) if several else ""
