"""Prints the paper's rows as far as they have run, and what each change costs, as Markdown.

    python benchmarks/paper_table.py
    python benchmarks/paper_table.py --write    # into the pages

It reads docs/measured, and the paper's figures in its scenarios. Two tables are in docs/results.md:
CHOCO's rows of Table 2a, and rows of other tables. The others, of points that a change costs, are
in docs/results/claims.md. A column has one length of training.
Figures are of the averaged model, in brackets those of the authors' evaluation where they differ by
more than LIKE points. With several seeds they are means with sample deviations, prices seed by
seed.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import ROUND_HALF_UP, Decimal
from functools import cache
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from edgesim.scenario.schema import Scenario
from edgesim.scenario.shipped import scenario_file
from edgesim.scenario.sweep import Sweep
from edgesim.sweeps.run import read_sweep

DOCS = Path(__file__).resolve().parents[1] / "docs"
MEASURED = DOCS / "measured"
FILES = ("table2a_full", "table2a_quarter", "table2a_norms")  # cells of the sweep table2a_norms
PLAIN = "plain_choco"  # fleets of a program in plain torch
OTHER_ROWS = "paper_rows"
FULL = 200  # epochs
LENGTHS = (FULL, 50, 20)
OTHER_LENGTHS = (50, 20, 10)
EVONORM, RANGE = "EvoNorm-S0", "Range EvoNorm"
NORMS = {"evonorm_s0": EVONORM, "range_evonorm": RANGE}
BEFORE_GATE = (  # name of a cell with a sigmoid, which the sweep names otherwise by now
    "seed=1,skew=0.0,averaging_rate=1.0,compressor=kind-identity-values-fp32,precision=fp32,"
    "norm=range_evonorm"
)
LIKE = 0.15  # points between two evaluations that the tables do not tell apart


@dataclass(frozen=True, order=True)
class Row:
    """A row of the table.

    Attributes:
        left_out: percent of the entries of a message.
        skew: of the partition.
        is_int8: whether the model is in 8 bits.
        norm: of the model, as the table names it.
    """

    left_out: int
    skew: float
    is_int8: bool
    norm: str

    @property
    def model(self) -> str:
        """The model, as the table names it."""
        return f"{'8 bits' if self.is_int8 else 'fp32'}, {self.norm}"

    @property
    def place(self) -> str:
        """What is left out, and the skew."""
        return f"{self.left_out} %, skew {self.skew:g}"


@dataclass(frozen=True)
class Accuracies:
    """Of the averaged model, and as the authors evaluate; in percent, or points."""

    averaged: float
    as_the_authors: float

    def __sub__(self, other: Accuracies) -> Accuracies:
        return Accuracies(
            self.averaged - other.averaged, self.as_the_authors - other.as_the_authors
        )


FP32 = Row(0, 0, is_int8=False, norm=EVONORM)
RANGE_FP32 = Row(0, 0, is_int8=False, norm=RANGE)
INT8 = Row(0, 0, is_int8=True, norm=RANGE)
MODELS = (FP32, RANGE_FP32, INT8)

Ends = Mapping[tuple[Row, int], Mapping[int, Accuracies]]
"""By row and epochs: by seed, how the training ended."""


def row_of(scenario: Scenario) -> Row | None:
    """The row of a cell; None of fp32 models that differ from the paper's in the norm alone."""
    model, skew = scenario.model, getattr(scenario.data.partition, "skew", 0.0)
    if model.gate_used == "sigmoid":
        return None
    left_out = 0 if scenario.gossip.compressor.kind == "identity" else 99
    return Row(left_out, skew, model.precision == "int8", NORMS[model.norm_used])


def ends() -> Ends:
    """All trainings that have ended."""
    found: dict[tuple[Row, int], dict[int, Accuracies]] = {}
    for row, epochs, seed, accuracies in _trainings():
        by_seed = found.setdefault((row, epochs), {})
        assert seed not in by_seed, f"{row} has two trainings of seed {seed}"
        by_seed[seed] = accuracies
    return found


def _trainings() -> Iterator[tuple[Row, int, int, Accuracies]]:
    cells = {cell.name: cell.scenario for cell in _sweep().cells}
    for file in FILES:
        for cell in _read(file)["cells"]:
            if cell["cell"] == BEFORE_GATE:
                continue
            scenario = cells[cell["cell"]]
            row = row_of(scenario)
            if row is None or not cell["finished"]:
                continue
            last = cell["evaluations"][-1]
            accuracies = Accuracies(100 * last["averaged"], 100 * last["as_the_authors"])
            yield row, round(last["epoch"]), scenario.seed, accuracies
    for run in _read(PLAIN)["runs"]:
        if "/" not in run["fleet"]:
            continue  # one node
        left_out, skew = run["fleet"].split("/")
        row = Row(int(left_out), float(skew), is_int8=False, norm=EVONORM)
        accuracies = Accuracies(run["evaluations"][-1]["averaged"], fmean(run["as_the_authors"]))
        yield row, run["epochs"], run["seed"], accuracies


def targets() -> dict[Row, float]:
    """Figures of the paper, after 200 epochs."""
    rows = ((row_of(cell.scenario), cell.scenario.paper) for cell in _sweep().cells)
    return {row: paper.accuracy for row, paper in rows if row and paper and paper.accuracy}


def rows_table() -> str:
    """A line for each row that has a training, or a figure in the paper."""
    measured, paper = ends(), targets()
    heads = ["left out", "skew", "model", "paper", *_lengths()]
    heads.insert(heads.index(_length(FULL)) + 1, "off the paper")
    lines = []
    for row in sorted({row for row, _ in measured} | set(paper)):
        by_length = [_written(measured.get((row, epochs), {}).values(), 2) for epochs in LENGTHS]
        target = f"{paper[row]:.2f}" if row in paper else ""
        off = ""
        if row in paper:
            there = Accuracies(paper[row], paper[row])
            by_seed = measured.get((row, FULL), {}).values()
            off = _written([one - there for one in by_seed], 1)
        full, *shorter = by_length
        place = (f"{row.left_out} %", f"{row.skew:g}", row.model)
        lines.append([*place, target, full, off, *shorter])
    return _markdown(heads, lines)


def other_rows_table() -> str:
    """A line for each row of other tables, or of another algorithm, that has a training."""
    found: dict[str, dict[int, dict[int, Accuracies]]] = {}  # by row, epochs and seed
    targets: dict[str, str] = {}
    for cell in _read(OTHER_ROWS)["cells"]:
        row, last = cell["row"], cell["evaluations"][-1]
        epochs = round(last["epoch"])
        assert cell["finished"], row
        assert epochs in OTHER_LENGTHS, row
        averaged, authors = 100 * last["averaged"], 100 * last["as_the_authors"]
        words = cell["command"].split()
        (seed,) = (int(word.removeprefix("seed=")) for word in words if word.startswith("seed="))
        by_seed = found.setdefault(row, {}).setdefault(epochs, {})
        assert seed not in by_seed, f"{row} has two trainings of seed {seed}"
        by_seed[seed] = Accuracies(averaged, authors)
        (target,) = (
            one.scenario.paper.accuracy
            for one in _sweep(words[2]).cells
            if one.name == cell["cell"] and one.scenario.paper is not None
        )
        targets[row] = f"{target:.2f}"
    lines = []
    for row, by_epochs in sorted(found.items()):
        ended = [by_epochs.get(epochs, {}).values() for epochs in OTHER_LENGTHS]
        lines.append([row, targets[row], *(_written(one, 2) for one in ended)])
    return _markdown(["row", "paper", *(_length(epochs) for epochs in OTHER_LENGTHS)], lines)


def price_tables() -> dict[str, str]:
    """By change, a table with a line for each place where both sides have been trained."""
    measured, paper = ends(), targets()
    lines: dict[str, list[list[str]]] = {}
    for change, place, before, after in _changes():
        by_length = []
        for epochs in LENGTHS:
            first, second = (measured.get((row, epochs), {}) for row in (before, after))
            both = sorted(first.keys() & second.keys())
            by_length.append(_written([first[seed] - second[seed] for seed in both], 1))
        if any(by_length):
            is_known = before in paper and after in paper
            target = f"{paper[before] - paper[after]:.1f}" if is_known else ""
            lines.setdefault(change, []).append([place, target, *by_length])
    heads = ["paper", *_lengths()]
    return {change: _markdown([change, *heads], rows) for change, rows in lines.items()}


def _changes() -> Iterator[tuple[str, str, Row, Row]]:
    """Changes by name: where, and the rows before and after."""
    for name, before, after in (
        ("8 bits, with norm, gate and initial values", FP32, INT8),
        ("8 bits alone", RANGE_FP32, INT8),
        ("norm, gate and initial values alone", FP32, RANGE_FP32),
    ):
        for left_out in (0, 99):
            for skew in (0, 0.8):
                row = replace(before, left_out=left_out, skew=skew)
                yield name, row.place, row, replace(after, left_out=left_out, skew=skew)
    for skew in (0, 0.8):
        for model in MODELS:
            row = replace(model, skew=skew)
            yield "leaving out 99 %", f"skew {skew:g}; {row.model}", row, replace(row, left_out=99)
    for left_out in (0, 99):
        for model in MODELS:
            row = replace(model, left_out=left_out)
            yield "skew 0.8", f"{left_out} %; {row.model}", row, replace(row, skew=0.8)
    for model in MODELS:
        yield "99 % and skew 0.8", model.model, model, replace(model, left_out=99, skew=0.8)


def _lengths() -> list[str]:
    return [_length(epochs) for epochs in LENGTHS]


def _length(epochs: int) -> str:
    return f"{epochs} epochs"


def _written(found: Collection[Accuracies], digits: int) -> str:
    """Trainings that differ in the seed alone."""
    if not found:
        return ""
    averaged, authors = (
        [getattr(one, name) for one in found] for name in ("averaged", "as_the_authors")
    )
    both = _mean(averaged, digits), _mean(authors, digits)
    return both[0] if abs(fmean(averaged) - fmean(authors)) < LIKE else f"{both[0]} ({both[1]})"


def _mean(values: Sequence[float], digits: int) -> str:
    if len(values) == 1:
        return _rounded(values[0], digits)
    return f"{_rounded(fmean(values), 1)} +- {_rounded(stdev(values), 1)}"


def _rounded(value: float, digits: int) -> str:
    """A half is rounded up: floats have it a little too low or too high."""
    step = Decimal(1).scaleb(-digits)
    return str(Decimal(f"{value:.6f}").quantize(step, ROUND_HALF_UP))


def _markdown(heads: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    rows = [heads, ["---"] * len(heads), *lines]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


@cache
def _sweep(name: str = "paper/table2a_norms") -> Sweep:
    return read_sweep(scenario_file(name))


def _read(name: str) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((MEASURED / f"{name}.json").read_text())
    return content


def pages() -> dict[Path, list[str]]:
    """The tables of each page of the docs."""
    return {
        DOCS / "results.md": [rows_table(), other_rows_table()],
        DOCS / "results" / "claims.md": [*price_tables().values()],
    }


def with_tables(text: str, tables: Sequence[str]) -> str:
    """A page with its tables, known by their heads, as they are now."""
    for table in tables:
        head = table.partition("\n")[0]
        before, found, after = text.partition(head)
        if not found:
            raise SystemExit(f"no page has the table {head}")
        rest = after.split("\n")
        last = next(number for number, line in enumerate(rest) if number and line[:1] != "|")
        text = before + table + "\n" + "\n".join(rest[last:])
    return text


def main() -> None:
    """Print the tables, or write them."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--write", action="store_true", help="replace them in the pages")
    writes = parser.parse_args().write
    for page, tables in pages().items():
        if writes:
            page.write_text(with_tables(page.read_text(), tables))
        else:
            print("\n\n".join(tables), end="\n\n")


if __name__ == "__main__":
    main()
