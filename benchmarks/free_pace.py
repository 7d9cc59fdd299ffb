"""Virtual time to an accuracy with one slow device: lockstep against free pace.

The table of docs/results/studies.md.

All train scenarios/study/one_slow_device.yaml: at free pace with CHOCO in both of its forms, and in
lockstep for as many rounds as the slow device has time for. Each run that is done is kept in
--json, and a repeated call goes on where the last one ended:

    python benchmarks/free_pace.py --seeds 1 2 3 --json docs/measured/free_pace.json \
        --figure docs/figures/free_pace.svg
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Mapping
from pathlib import Path
from statistics import mean

import matplotlib as mpl
import pandas as pd
from rich.console import Console
from rich.table import Table

from edgesim.assembly.preparation import prepare
from edgesim.fleet.run import run_scenario
from edgesim.scenario import load_scenario

mpl.use("svg")
from matplotlib import pyplot as plt

SCENARIO = Path(__file__).parents[1] / "scenarios" / "study" / "one_slow_device.yaml"
LEVELS = (0.80, 0.90, 0.95)  # accuracies whose first crossing is reported
EVALUATIONS = 30  # of a lockstep run
IN_STEP = ("fleet.pace=lockstep", "training.virtual_time_s=null")
ARMS = {"lockstep": "#4c72b0", "model": "#55a868", "numerator": "#dd8452"}
FREE = {
    "model": ("gossip.algorithm=choco",),
    "numerator": ("gossip.algorithm=choco_numerator",),
}

Curve = list[dict[str, float]]

COLUMNS = ("virtual_time_s", "accuracy", "loss", "consensus_distance")


def train(settings: tuple[str, ...], console: Console) -> Curve:
    """Evaluations of the averaged model."""
    prepared = prepare(load_scenario(SCENARIO, settings))
    with tempfile.TemporaryDirectory() as folder:
        run = run_scenario(prepared, Path(folder) / "run", inline=True, console=console)
        rows = pd.read_parquet(run.path / "evaluations.parquet")
    averaged = rows[rows["device"] == -1]
    return [{name: float(row[name]) for name in COLUMNS} for _, row in averaged.iterrows()]


def curve_of(arm: str, seed: int, console: Console) -> Curve:
    """Evaluations of one run."""
    if arm in FREE:
        return train((f"seed={seed}", *FREE[arm]), console)
    horizon_s = load_scenario(SCENARIO).training.virtual_time_s
    assert horizon_s is not None, "the scenario names its length in virtual time"
    settings = (f"seed={seed}", *IN_STEP)
    trial_settings = ("training.rounds=10", "evaluation={every_rounds: 5, samples: 100}")
    trial = train((*settings, *trial_settings), console)
    round_s = (trial[-1]["virtual_time_s"] - trial[0]["virtual_time_s"]) / 5
    rounds = max(EVALUATIONS, int(horizon_s / round_s))
    every = f"evaluation={{every_rounds: {rounds // EVALUATIONS}, device_models: never}}"
    return train((*settings, f"training.rounds={rounds}", every), console)


def time_to(curve: Curve, level: float) -> float | None:
    """Virtual seconds until the first evaluation at or above an accuracy."""
    return next((row["virtual_time_s"] for row in curve if row["accuracy"] >= level), None)


def table(curves: Mapping[str, list[Curve]]) -> Table:
    """Means over the seeds; a level that a seed does not reach has no mean."""
    shown = Table("accuracy", *(f"{arm} (s)" for arm in curves), *(f"{a} / lockstep" for a in FREE))
    for level in LEVELS:
        times = {arm: [time_to(curve, level) for curve in of] for arm, of in curves.items()}
        means = {arm: None if None in ts else mean(t for t in ts if t) for arm, ts in times.items()}
        in_step = means["lockstep"]
        cells = []
        for arm, value in means.items():
            reached = [f"{t:.1f}" for t in times[arm] if t is not None]
            few = f"{len(reached)} of {len(times[arm])} seeds: {', '.join(reached)}"
            cells.append(f"{value:.1f}" if value else few)
        ratios = [f"{m / in_step:.2f}" if in_step and (m := means[a]) else "-" for a in FREE]
        shown.add_row(f"{level:g}", *cells, *ratios)
    ends = {arm: mean(curve[-1]["accuracy"] for curve in of) for arm, of in curves.items()}
    shown.add_row("at the end", *(f"{end:.4f}" for end in ends.values()), "", "")
    apart = {a: mean(curve[-1]["consensus_distance"] for curve in of) for a, of in curves.items()}
    shown.add_row("consensus distance then", *(f"{far:.3g}" for far in apart.values()), "", "")
    return shown


def draw(curves: Mapping[str, list[Curve]], path: Path) -> None:
    """Accuracy against virtual time, a line for each seed and arm."""
    figure, axes = plt.subplots(figsize=(6.4, 3.6), layout="constrained")
    for arm, color in ARMS.items():
        for number, curve in enumerate(curves[arm]):
            label = (arm if arm not in FREE else f"free, {arm} form") if number == 0 else None
            points = pd.DataFrame(curve)
            axes.plot(points["virtual_time_s"], points["accuracy"], color=color, label=label)
    axes.set(xlabel="virtual time (s)", ylabel="accuracy of the averaged model", ylim=(0, 1))
    axes.grid(alpha=0.3)
    axes.legend(loc="lower right")
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)


def main() -> None:
    """Train what has not been trained, print the table, draw the figure."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", nargs="+", type=int, default=[1])
    parser.add_argument("--json", type=Path, required=True, help="all evaluations, unrounded")
    parser.add_argument("--figure", type=Path, help="SVG of the curves")
    arguments = parser.parse_args()
    console = Console(width=100)
    done: dict[str, Curve] = {}
    if arguments.json.exists():
        done = json.loads(arguments.json.read_text())
    for seed in arguments.seeds:
        for arm in ARMS:
            key = f"{arm} seed {seed}"
            if key not in done:
                done[key] = curve_of(arm, seed, console)
                arguments.json.write_text(json.dumps(done, indent=1) + "\n")
    curves = {arm: [done[f"{arm} seed {seed}"] for seed in arguments.seeds] for arm in ARMS}
    console.print(table(curves))
    if arguments.figure:
        draw(curves, arguments.figure)


if __name__ == "__main__":
    main()
