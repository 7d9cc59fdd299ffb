"""Virtual time to an accuracy with one slow device: lockstep against free pace.

The table of docs/results/studies.md.

All train scenarios/study/one_slow_device.yaml: at free pace with CHOCO in both of its forms, and in
lockstep for as many rounds as the slow device has time for. Each run that is done is kept in
--json; a repeated call says which runs it takes from there, and trains the others:

    python benchmarks/free_pace.py --seeds 1 2 3 4 5 6 --json FILE --figure free_pace.svg

Accuracies rise and fall. So the table has the time of the first evaluation at or above an accuracy,
and the time from which on no evaluation is below it.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from statistics import mean, stdev

import matplotlib as mpl
import numpy as np
import pandas as pd
from rich.console import Console
from rich.table import Table

from edgesim.assembly.preparation import prepare
from edgesim.fleet.run import run_scenario
from edgesim.scenario import load_scenario

mpl.use("svg")
from matplotlib import pyplot as plt

SCENARIO = Path(__file__).parents[1] / "scenarios" / "study" / "one_slow_device.yaml"
LEVELS = (0.80, 0.90, 0.95)  # accuracies whose times are reported
EVALUATIONS = 60  # of a run
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
    horizon_s = load_scenario(SCENARIO).training.virtual_time_s
    assert horizon_s is not None, "the scenario names its length in virtual time"
    if arm in FREE:
        every = f"evaluation.every_virtual_s={horizon_s / EVALUATIONS:g}"
        return train((f"seed={seed}", every, *FREE[arm]), console)
    settings = (f"seed={seed}", *IN_STEP)
    trial_settings = ("training.rounds=10", "evaluation={every_rounds: 5, samples: 100}")
    trial = train((*settings, *trial_settings), console)
    round_s = (trial[-1]["virtual_time_s"] - trial[0]["virtual_time_s"]) / 5
    rounds = max(EVALUATIONS, int(horizon_s / round_s))
    every = f"evaluation={{every_rounds: {rounds // EVALUATIONS}, device_models: never}}"
    return train((*settings, f"training.rounds={rounds}", every), console)


def first_at(curve: Curve, level: float) -> float | None:
    """Virtual seconds until the first evaluation at or above an accuracy."""
    return next((row["virtual_time_s"] for row in curve if row["accuracy"] >= level), None)


def held_from(curve: Curve, level: float) -> float | None:
    """Virtual seconds of the first evaluation from which on none is below an accuracy."""
    below = [number for number, row in enumerate(curve) if row["accuracy"] < level]
    first = below[-1] + 1 if below else 0
    return curve[first]["virtual_time_s"] if first < len(curve) else None


def spread(values: Sequence[float]) -> str:
    """Mean and standard deviation over seeds."""
    return f"{mean(values):.3g} +- {stdev(values):.2g}" if len(values) > 1 else f"{values[0]:.3g}"


def table(curves: Mapping[str, list[Curve]]) -> Table:
    """Means and deviations over the seeds; times are of the seeds that have one."""
    shown = Table("", *curves)
    for level in LEVELS:
        for name, find in (("first at", first_at), ("held from", held_from)):
            cells = []
            for of in curves.values():
                times = [found for curve in of if (found := find(curve, level)) is not None]
                missing = "" if len(times) == len(of) else f" ({len(times)} of {len(of)})"
                cells.append((f"{spread(times)} s" if times else "never") + missing)
            shown.add_row(f"{name} {level:g}", *cells)
    end_s = min(curve[-1]["virtual_time_s"] for of in curves.values() for curve in of)
    for name, figure in (
        (f"mean accuracy to {end_s:.3g} s", partial(mean_until, end_s=end_s)),
        ("accuracy at the end", lambda curve: curve[-1]["accuracy"]),
        ("consensus distance then", lambda curve: curve[-1]["consensus_distance"]),
    ):
        shown.add_row(name, *(spread([figure(curve) for curve in of]) for of in curves.values()))
    return shown


def mean_until(curve: Curve, end_s: float) -> float:
    """Mean accuracy over virtual time, from the first evaluation to a time all curves come to."""
    points = pd.DataFrame(curve)
    times = np.linspace(points["virtual_time_s"].iloc[0], end_s, 1000)
    return float(np.interp(times, points["virtual_time_s"], points["accuracy"]).mean())


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
            if key in done:
                console.print(f"{key}: stored in {arguments.json}, not trained")
            else:
                done[key] = curve_of(arm, seed, console)
                arguments.json.write_text(json.dumps(done, indent=1) + "\n")
    curves = {arm: [done[f"{arm} seed {seed}"] for seed in arguments.seeds] for arm in ARMS}
    console.print(table(curves))
    if arguments.figure:
        draw(curves, arguments.figure)


if __name__ == "__main__":
    main()
