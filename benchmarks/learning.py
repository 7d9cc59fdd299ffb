"""Accuracy of int8 against fp32: several seeds, equal all else (docs/results/accuracy.md).

Eight devices on a directed ring, no compression, CHOCO with averaging rate 1, messages in fp32; all
begin with the same initial values. fp32 trains with the paper's fp32 norm, EvoNorm-S0, int8 with
its 8-bit norm, Range EvoNorm; `fp32_range` is fp32 with that norm and its hard sigmoid, so that it
differs from int8 in the rounding alone (it is slow: torch operations). Runs are inline; each that
is done is kept in --out, and a repeated call goes on where the last one ended:

    python benchmarks/learning.py --out learning.json --data cifar10=PATH --only digits cifar10
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from statistics import mean, stdev
from time import perf_counter
from typing import Any

from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).parents[1]
ARMS = {
    "fp32": ("model.norm=evonorm_s0",),
    "fp32_range": ("model.norm=range_evonorm", "model.gate=hard_sigmoid"),
    "int8": ("model.precision=int8", "model.norm=range_evonorm"),
}
SKEWS = (0.0, 0.8)

COMMON = (
    "fleet.devices=8",
    "topology={kind: directed_ring}",
    "gossip={algorithm: choco, averaging_rate: 1, compressor: {kind: identity, values: fp32}}",
    "evaluation={device_models: never}",
)
# The paper's 0.1 with a first epoch at a tenth of it is for 200 epochs. A run of three to five has
# no time to mend what that shakes, least of all with Range EvoNorm, in fp32 as in int8
# (docs/results/accuracy.md).
SHORT = ("training.optimizer.lr=0.03", "training.schedule.warmup_epochs=0")
CASES = {
    "digits": ("quickstart.yaml", ()),
    "fashion_mnist": (
        "cifar10_ring8.yaml",
        (
            *SHORT,
            "data.source=fashion_mnist",
            "data.augment=none",
            "training.epochs=3",
            "training.schedule.milestones=[2]",
        ),
    ),
    "cifar10": (
        "cifar10_ring8.yaml",
        (*SHORT, "training.epochs=5", "training.schedule.milestones=[3,4]"),
    ),
}


@dataclass(frozen=True, slots=True)
class Run:
    """One cell of one seed."""

    case: str
    skew: float
    arm: str
    seed: int

    @property
    def key(self) -> str:
        """Its name in the file of results."""
        return f"{self.case} skew {self.skew} {self.arm} seed {self.seed}"

    def command(self, data: dict[str, str], out: Path) -> list[str]:
        """The command line that does it."""
        scenario, overrides = CASES[self.case]
        settings = [
            *COMMON,
            *overrides,
            f"seed={self.seed}",
            f"data.partition={{kind: label_skew, skew: {self.skew}}}",
            *ARMS[self.arm],
        ]
        if self.case in data:
            settings.append(f"data.path={data[self.case]}")
        sets = [word for setting in settings for word in ("--set", setting)]
        path = str(ROOT / "scenarios" / scenario)
        return [sys.executable, "-m", "edgesim", "run", path, "--inline", "--out", str(out), *sets]


def runs(cases: list[str], skews: list[float], arms: list[str], seeds: list[int]) -> Iterator[Run]:
    """All runs, seed by seed, so that an unfinished table has the same seeds in all its cells."""
    for case, seed, skew, arm in product(cases, seeds, skews, arms):
        yield Run(case, skew, arm, seed)


def do(run: Run, data: dict[str, str]) -> dict[str, Any]:
    """Accuracy and wall time of a run."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "run"
        start = perf_counter()
        subprocess.run(run.command(data, out), check=True, stdout=subprocess.DEVNULL)
        summary = json.loads((out / "summary.json").read_text())
    return {
        "accuracy": summary["consensus_accuracy"],
        "loss": summary["consensus_loss"],
        "wall_s": perf_counter() - start,
    }


def table(
    done: dict[str, dict[str, Any]], cases: list[str], arms: list[str], seeds: list[int]
) -> Table:
    """Means and deviations over the seeds that are done in all arms; gaps are to int8."""
    others = [arm for arm in arms if arm != "int8"]
    shown = Table("data", "skew", "seeds", *arms, *(f"gap to {arm}" for arm in others))
    for case, skew in product(cases, SKEWS):
        rows = [[done.get(Run(case, skew, arm, seed).key) for arm in arms] for seed in seeds]
        complete = [[100 * cell["accuracy"] for cell in row if cell] for row in rows if all(row)]
        if not complete:
            continue
        accuracies = dict(zip(arms, zip(*complete, strict=True), strict=True))
        cells = [_mean_and_deviation(accuracies[arm]) for arm in arms]
        for arm in others if "int8" in arms else []:
            pairs = zip(accuracies[arm], accuracies["int8"], strict=True)
            cells.append(_mean_and_deviation([theirs - ours for theirs, ours in pairs]))
        shown.add_row(case, str(skew), str(len(complete)), *cells)
    return shown


def _mean_and_deviation(values: Sequence[float]) -> str:
    return f"{mean(values):.2f}" + (f" +- {stdev(values):.2f}" if len(values) > 1 else "")


def main() -> None:
    """Do what is not done yet, then print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, help="JSON file of the runs done")
    parser.add_argument("--only", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--arms", nargs="+", choices=ARMS, default=["fp32", "int8"])
    parser.add_argument("--skews", nargs="+", type=float, choices=SKEWS, default=list(SKEWS))
    parser.add_argument("--seeds", nargs="+", type=int, default=[1, 2, 3])
    parser.add_argument("--data", nargs="*", default=[], help="where data is: cifar10=PATH ...")
    arguments = parser.parse_args()
    data = dict(place.split("=", 1) for place in arguments.data)
    done = json.loads(arguments.out.read_text()) if arguments.out.exists() else {}
    console = Console(width=120)
    for run in runs(arguments.only, arguments.skews, arguments.arms, arguments.seeds):
        if run.key in done:
            console.print(f"{run.key}: stored in {arguments.out}, not trained")
        else:
            done[run.key] = do(run, data)
            arguments.out.write_text(json.dumps(done, indent=2) + "\n")
            console.print(f"{run.key}: {done[run.key]['accuracy']:.4f}")
    console.print(table(done, arguments.only, arguments.arms, arguments.seeds))


if __name__ == "__main__":
    main()
