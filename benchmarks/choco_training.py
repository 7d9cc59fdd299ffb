"""Training with CHOCO in both of its forms on unlike boards: the second table of docs/choco.md.

Trains scenarios/study/unlike_boards.yaml in lockstep and at free pace, there in both forms; the
published form diverges. At free pace the slow boards go on alone when the quick ones have done
their 40 epochs, so the model form also trains with all boards until the same time, with the rate
of the scenario and with `averaging_rate: auto`.
Each run that is done is kept in --json; a repeated call says which runs it takes
from there, and trains the others:

    python benchmarks/choco_training.py --seeds 1 2 3 --json FILE
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path
from statistics import mean
from typing import Any

import pandas as pd
from rich.console import Console
from rich.table import Table

import edgesim
from edgesim.assembly.preparation import prepare
from edgesim.errors import EdgesimError
from edgesim.fleet.run import run_scenario
from edgesim.scenario import load_scenario

SCENARIO = Path(__file__).parents[1] / "scenarios" / "study" / "unlike_boards.yaml"
_UNTIL_16_S = (
    "training.epochs=null",
    "training.rounds=3000",
    "training.virtual_time_s=16",
    "evaluation={every_virtual_s: 1}",
)
ARMS = {
    "lockstep": ("fleet.pace=lockstep",),
    "free, model form": (),
    "free, numerator form": ("gossip.algorithm=choco_numerator",),
    "free, model form, 16 s": _UNTIL_16_S,
    "free, model form, auto, 16 s": ("gossip.averaging_rate=auto", *_UNTIL_16_S),
}
_COLUMNS = ["virtual_time_s", "device", "accuracy", "loss", "consensus_distance"]


def train(arm: str, seed: int, console: Console) -> dict[str, Any]:
    """Evaluations of a run, of which device -1 is the averaged model; and why it ended early."""
    prepared = prepare(load_scenario(SCENARIO, (f"seed={seed}", *ARMS[arm])))
    with tempfile.TemporaryDirectory() as name:
        folder, error = Path(name) / "run", None
        try:
            run_scenario(prepared, folder, inline=True, console=console)
        except EdgesimError as found:
            error = str(found)
        rows = edgesim.load_run(folder).evaluations[_COLUMNS]
    return {"error": error, "evaluations": json.loads(rows.to_json(orient="records"))}


def table(done: dict[str, dict[str, Any]], seeds: list[int]) -> Table:
    """Last evaluations: accuracies of the averaged model and of devices, distance between them."""
    shown = Table("", "averaged model", "mean of devices", "worst device", "consensus distance", "")
    for arm in ARMS:
        cells: list[list[str]] = [[], [], [], []]
        ends = set()
        for run in (done[f"{arm} seed {seed}"] for seed in seeds):
            last = pd.DataFrame(run["evaluations"]).groupby("device").last()  # by its own clock
            averaged, devices = last.loc[-1], last.loc[last.index >= 0]
            cells[0].append(f"{averaged['accuracy']:.3f}")
            found = list(devices["accuracy"])  # none of a run that diverged before its end
            cells[1].append(f"{mean(found):.3f}" if found else "")
            cells[2].append(f"{min(found):.3f}" if found else "")
            cells[3].append(f"{averaged['consensus_distance']:.3g}")
            at = f"{averaged['virtual_time_s']:.0f} s"
            ends.add(f"diverged after {at}" if run["error"] else f"done in {at}")
        shown.add_row(arm, *(", ".join(cell) for cell in cells), "; ".join(sorted(ends)))
    return shown


def main() -> None:
    """Train what has not been trained, print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", nargs="+", type=int, default=[1])
    parser.add_argument("--json", type=Path, required=True, help="all evaluations, unrounded")
    arguments = parser.parse_args()
    console = Console(width=120)
    done: dict[str, dict[str, Any]] = {}
    if arguments.json.exists():
        done = json.loads(arguments.json.read_text())
    for seed in arguments.seeds:
        for arm in ARMS:
            key = f"{arm} seed {seed}"
            if key in done:
                console.print(f"{key}: stored in {arguments.json}, not trained")
            else:
                done[key] = train(arm, seed, console)
                arguments.json.write_text(json.dumps(done, indent=1) + "\n")
    console.print(table(done, arguments.seeds))


if __name__ == "__main__":
    main()
