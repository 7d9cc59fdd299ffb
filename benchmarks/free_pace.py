"""Virtual time to an accuracy with one slow device: lockstep against free pace (docs/results.md).

Both train scenarios/study/one_slow_device.yaml, one with `pace: free`, the other in lockstep for
as many rounds as the slow device has time for:

    python benchmarks/free_pace.py --seeds 1 2 3 --figure docs/figures/free_pace.svg
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path
from statistics import mean

import matplotlib as mpl
import pandas as pd
from rich.console import Console
from rich.table import Table

from edgesim.fleet.run import run_scenario
from edgesim.preparation import prepare
from edgesim.scenario import load_scenario

mpl.use("svg")
from matplotlib import pyplot as plt

SCENARIO = Path(__file__).parents[1] / "scenarios" / "study" / "one_slow_device.yaml"
LEVELS = (0.80, 0.90, 0.95)  # accuracies whose first crossing is reported
EVALUATIONS = 30  # of a lockstep run
PACES = ("lockstep", "free")


def train(settings: list[str], folder: Path, console: Console) -> pd.DataFrame:
    """Evaluations of the averaged model."""
    prepared = prepare(load_scenario(SCENARIO, settings))
    run = run_scenario(prepared, folder / "run", inline=True, console=console)
    evaluations = pd.read_parquet(run.path / "evaluations.parquet")
    return evaluations[evaluations["device"] == -1].reset_index(drop=True)


def curves(seed: int, console: Console) -> dict[str, pd.DataFrame]:
    """Evaluations by pace."""
    horizon_s = load_scenario(SCENARIO).training.virtual_time_s
    assert horizon_s is not None, "the scenario names its length in virtual time"
    in_step = [f"seed={seed}", "fleet.pace=lockstep", "training.virtual_time_s=null"]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "trial").mkdir()
        trial_settings = ["training.rounds=10", "evaluation={every_rounds: 5, samples: 100}"]
        trial = train([*in_step, *trial_settings], folder / "trial", console)
        round_s = (trial["virtual_time_s"].iloc[-1] - trial["virtual_time_s"].iloc[0]) / 5
        rounds = max(EVALUATIONS, int(horizon_s / round_s))
        lockstep_settings = [
            f"training.rounds={rounds}",
            f"evaluation={{every_rounds: {rounds // EVALUATIONS}, device_models: never}}",
        ]
        (folder / "lockstep").mkdir()
        (folder / "free").mkdir()
        return {
            "lockstep": train([*in_step, *lockstep_settings], folder / "lockstep", console),
            "free": train([f"seed={seed}"], folder / "free", console),
        }


def time_to(curve: pd.DataFrame, level: float) -> float | None:
    """Virtual seconds until the first evaluation at or above an accuracy."""
    reached = curve[curve["accuracy"] >= level]
    return None if reached.empty else float(reached["virtual_time_s"].iloc[0])


def draw(by_seed: dict[int, dict[str, pd.DataFrame]], path: Path) -> None:
    """Accuracy against virtual time, a line for each seed and pace."""
    figure, axes = plt.subplots(figsize=(6.4, 3.6), layout="constrained")
    for pace, color in zip(PACES, ("#4c72b0", "#dd8452"), strict=True):
        for number, by_pace in enumerate(by_seed.values()):
            curve = by_pace[pace]
            label = pace if number == 0 else None
            axes.plot(curve["virtual_time_s"], curve["accuracy"], color=color, label=label)
    axes.set(xlabel="virtual time (s)", ylabel="accuracy of the averaged model", ylim=(0, 1))
    axes.grid(alpha=0.3)
    axes.legend(loc="lower right")
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)


def main() -> None:
    """Train, print the table, draw the figure."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", nargs="+", type=int, default=[1])
    parser.add_argument("--figure", type=Path, help="SVG of the curves")
    parser.add_argument("--json", type=Path, help="times and final accuracies, unrounded")
    arguments = parser.parse_args()
    console = Console(width=100)
    by_seed = {seed: curves(seed, console) for seed in arguments.seeds}
    times = {
        f"{level:g}": {
            pace: [time_to(by_pace[pace], level) for by_pace in by_seed.values()] for pace in PACES
        }
        for level in LEVELS
    }
    table = Table("accuracy", "lockstep (s)", "free (s)", "free / lockstep")
    for level, of_pace in times.items():
        shown = {
            pace: mean(t for t in of_pace[pace] if t is not None)
            if None not in of_pace[pace]
            else None
            for pace in PACES
        }
        slow, quick = shown["lockstep"], shown["free"]
        ratio = f"{quick / slow:.2f}" if slow and quick else "-"
        table.add_row(level, *(f"{t:.1f}" if t else "not reached" for t in shown.values()), ratio)
    final = {
        pace: [float(by_pace[pace]["accuracy"].iloc[-1]) for by_pace in by_seed.values()]
        for pace in PACES
    }
    table.add_row("at the end", *(f"{mean(final[pace]):.4f}" for pace in PACES), "")
    console.print(table)
    if arguments.figure:
        draw(by_seed, arguments.figure)
    if arguments.json:
        arguments.json.write_text(json.dumps({"times_s": times, "final": final}, indent=2) + "\n")


if __name__ == "__main__":
    main()
