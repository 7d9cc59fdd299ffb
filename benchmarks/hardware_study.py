"""Accuracy against virtual time, bytes and energy on eight Raspberry Pis (docs/results/studies.md).

{fp32, int8} x {0 %, 99 %} x {CHOCO, DeepSqueeze} of scenarios/study/cifar10_pi4_10mbit.yaml,
inline. In lockstep hardware changes no learning, so the fleet with one slow device is not trained
again: its clocks run from the recorded work and messages. A run that is done is kept, and a
repeated call goes on where the last one ended:

    python benchmarks/hardware_study.py --out study --data CIFAR10 --figures docs/figures
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path

import matplotlib as mpl
import pandas as pd
from clocked_again import spent_by_rounds
from rich.console import Console
from rich.table import Table

import edgesim
from edgesim.assembly.build import make_schedule
from edgesim.assembly.equipment import device_hardware
from edgesim.hardware.timeline import Hardware
from edgesim.results.run import Run
from edgesim.scenario import load_scenario

mpl.use("svg")
from matplotlib import pyplot as plt

ROOT = Path(__file__).parents[1]
SCENARIO = ROOT / "scenarios" / "study" / "cifar10_pi4_10mbit.yaml"
SLOWDOWN = 10.0
LEVELS = (0.25, 0.30, 0.35, 0.40)  # accuracies whose first crossing is reported


@dataclass(frozen=True, slots=True)
class Variant:
    """One training run of the study."""

    precision: str
    compression: int
    algorithm: str

    @property
    def name(self) -> str:
        """Of its folder and of its line in the figures."""
        return f"{self.algorithm}-{self.precision}-{self.compression}"

    def settings(self) -> list[str]:
        """Overrides of the scenario; averaging rates of reference.md, section 3.7."""
        if self.compression:
            gossip = f"averaging_rate: 0.01, compressor: {{kind: top_k, keep: {0.01}}}"
        else:
            compressor = f"{{kind: identity, values: {self.precision}}}"
            gossip = f"averaging_rate: 1, compressor: {compressor}"
        return [
            f"model.precision={self.precision}",
            f"gossip={{algorithm: {self.algorithm}, {gossip}}}",
        ]


VARIANTS = [
    Variant(precision, compression, algorithm)
    for algorithm, compression, precision in product(
        ("choco", "deepsqueeze"), (0, 99), ("fp32", "int8")
    )
]


def train(variant: Variant, out: Path, data: str, extra: list[str]) -> None:
    """Do one run; an unfinished folder is begun anew under another name."""
    folder = out / variant.name
    settings = [f"data.path={data}", *variant.settings(), *extra]
    sets = [word for setting in settings for word in ("--set", setting)]
    command = [sys.executable, "-m", "edgesim", "run", str(SCENARIO), "--inline"]
    unfinished = out / f".{variant.name}"
    shutil.rmtree(unfinished, ignore_errors=True)
    subprocess.run(
        [*command, "--out", str(unfinished), *sets], check=True, stdout=subprocess.DEVNULL
    )
    unfinished.rename(folder)


def curve(run: Run) -> pd.DataFrame:
    """Accuracy of the averaged model with what the fleet had spent until then."""
    done = run.evaluations[run.evaluations["model"] == "consensus"].set_index("round")
    sums = run.rounds.groupby("round")[["sent_bytes", "energy_j"]].sum().cumsum()
    sums.index += 1  # rounds completed
    joined = done[["accuracy", "virtual_time_s"]].join(sums)
    start = pd.DataFrame(
        {"accuracy": [0.1], "virtual_time_s": [0.0], "sent_bytes": [0], "energy_j": [0.0]},
        index=[0],
    )
    return pd.concat([start, joined])


def ends_with_slow_device(run: Run, hardware: tuple[Hardware, ...]) -> list[float]:
    """Ends of the rounds of a fleet whose first device computes ten times slower, in seconds."""
    first = hardware[0].profile
    slow = replace(
        first,
        int8_macs_per_s=first.int8_macs_per_s / SLOWDOWN,
        bits16_macs_per_s=first.bits16_macs_per_s / SLOWDOWN,
        fp32_macs_per_s=first.fp32_macs_per_s / SLOWDOWN,
        memory_bandwidth=first.memory_bandwidth / SLOWDOWN,
    )
    parts = (replace(hardware[0], profile=slow), *hardware[1:])
    return [spent.virtual_time_s for spent in spent_by_rounds(run, parts, run.summary["seed"])]


def at_ends(points: pd.DataFrame, ends_s: list[float]) -> pd.DataFrame:
    """A curve whose rounds end at other times."""
    slow = points.copy()
    slow["virtual_time_s"] = [ends_s[int(r) - 1] if r else 0.0 for r in points.index]
    return slow


def draw(
    curves: dict[str, pd.DataFrame], slow_curves: dict[str, pd.DataFrame], folder: Path
) -> None:
    """Four figures: accuracy against time, without and with a slow device, bytes and energy."""
    mpl.rcParams["svg.hashsalt"] = "edgesim"
    figures = {
        "time": (curves, "virtual_time_s", 60.0, "virtual time, minutes"),
        "slow": (slow_curves, "virtual_time_s", 60.0, "virtual time, minutes, one device slow"),
        "bytes": (curves, "sent_bytes", 1e9, "sent by the fleet, GB"),
        "energy": (curves, "energy_j", 1e3, "energy of the fleet, kJ"),
    }
    for name, (shown, column, unit, label) in figures.items():
        figure, axes = plt.subplots(figsize=(8.4, 4.0), layout="constrained")
        for variant in VARIANTS:
            points = shown[variant.name].iloc[1:]  # the start is nowhere on a logarithmic axis
            axes.plot(
                points[column] / unit,
                100 * points["accuracy"],
                label=f"{variant.algorithm}, {variant.precision}, {variant.compression} %",
                color="C0" if variant.algorithm == "choco" else "C1",
                linestyle="-" if variant.precision == "fp32" else "--",
                marker="^" if variant.compression else "o",
            )
        axes.set(xlabel=label, ylabel="test accuracy of the averaged model, %", xscale="log")
        axes.xaxis.set_major_formatter("{x:g}")
        axes.grid(alpha=0.3, which="both")
        figure.legend(loc="outside right center", fontsize="small")
        figure.savefig(folder / f"study-{name}.svg", metadata={"Date": None})
        plt.close(figure)


def table(curves: dict[str, pd.DataFrame], slow_curves: dict[str, pd.DataFrame]) -> Table:
    """Where each run ended, and what it took to come to an accuracy."""
    columns = ("accuracy", "minutes", "one slow", "GB", "kJ", *(f"min to {a:.0%}" for a in LEVELS))
    shown = Table("run", *columns)
    for name, points in curves.items():
        last = points.iloc[-1]
        reached = [points[points["accuracy"] >= level] for level in LEVELS]
        shown.add_row(
            name,
            f"{last['accuracy']:.4f}",
            f"{last['virtual_time_s'] / 60:.2f}",
            f"{slow_curves[name]['virtual_time_s'].iloc[-1] / 60:.2f}",
            f"{last['sent_bytes'] / 1e9:.4f}",
            f"{last['energy_j'] / 1e3:.2f}",
            *(f"{r['virtual_time_s'].iloc[0] / 60:.2f}" if len(r) else "-" for r in reached),
        )
    return shown


def main() -> None:
    """Train what is not done yet, then draw and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, help="folder of the runs")
    parser.add_argument("--data", required=True, help="where CIFAR-10 is")
    parser.add_argument("--figures", type=Path, help="folder for the figures")
    parser.add_argument("--set", action="append", default=[], help="of every run, for trials")
    parser.add_argument("--json", type=Path, help="write the curves to this file")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    console = Console(width=130)
    curves, slow_curves = {}, {}
    for variant in VARIANTS:
        folder = arguments.out / variant.name
        if not folder.exists():
            train(variant, arguments.out, arguments.data, arguments.set)
        run = edgesim.load_run(folder)
        scenario = load_scenario(folder / "scenario.yaml")
        hardware = device_hardware(scenario, make_schedule(scenario))
        points = curves[variant.name] = curve(run)
        slow_curves[variant.name] = at_ends(points, ends_with_slow_device(run, hardware))
        console.print(f"{variant.name}: {run.summary['consensus_accuracy']:.4f}")
    console.print(table(curves, slow_curves))
    if arguments.json:
        content = {
            name: {
                "rounds": points.index.to_list(),
                **points.to_dict("list"),
                "virtual_time_one_slow_s": slow_curves[name]["virtual_time_s"].to_list(),
            }
            for name, points in curves.items()
        }
        arguments.json.write_text(json.dumps(content, indent=2) + "\n")
    if arguments.figures:
        draw(curves, slow_curves, arguments.figures)


if __name__ == "__main__":
    main()
