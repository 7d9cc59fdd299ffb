"""What it costs to watch a run: processor time of whole runs, with and without metrics.

The same fleet of actors is run in turns in two ways, each in a process of its own with a Ray of its
own: "watched" asks the actors how far they are, tells Ray's metrics and prints progress, as
`edgesim run` does; "unwatched" asks each 10 s, to notice the end, and tells nobody. The dashboard
runs in both. Printed for each size of fleet: processor time of all processes between the
first evaluation and the last one, for each round of the fleet, and the difference as a share of a
core and of the wall time, with its standard error.

    python benchmarks/metrics_cost.py --turns 4
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from statistics import mean, stdev
from unittest.mock import patch

import psutil

import edgesim
from edgesim.fleet.recording import monitor
from edgesim.fleet.run import _Run

SIZES = {8: 250, 100: 40}  # devices: rounds
UNWATCHED_PAUSE_S = 10.0


def processor_s() -> float:
    """Processor time of this process and all below it, those that have ended included."""
    own = psutil.Process()
    total = 0.0
    for process in (own, *own.children(recursive=True)):
        try:
            times = process.cpu_times()
        except psutil.NoSuchProcess:
            continue
        total += times.user + times.system + times.children_user + times.children_system
    return total


def run(num_devices: int, rounds: int, *, watched: bool) -> dict[str, float]:
    """Train a fleet; what passed between its first evaluation and its last one."""
    marks: list[tuple[int, float, float]] = []

    def note(evaluation: edgesim.Evaluation) -> None:
        marks.append((evaluation.round, processor_s(), time.perf_counter()))

    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        if not watched:
            stack.enter_context(patch.object(_Run, "_sinks_of_ray", lambda _: []))
            stack.enter_context(patch.object(monitor, "pause_s", lambda *_: UNWATCHED_PAUSE_S))
        edgesim.run(
            "quickstart",
            out=f"{folder}/run",
            dashboard=True,
            progress=watched,
            on_evaluation=note,
            fleet__devices=num_devices,
            fleet__profile="raspberry-pi-4b",
            training={"rounds": rounds, "optimizer": {"lr": 0.01}},
            evaluation={"every_rounds": rounds // 5, "samples": 20, "device_models": "never"},
            **({"fleet__devices_per_actor": "auto"} if num_devices > 8 else {}),
        )
    (first, begin_s, since), (last, end_s, until) = marks[0], marks[-1]
    return {"rounds": last - first, "processor_s": end_s - begin_s, "wall_s": until - since}


def compare(num_devices: int, rounds: int, turns: int) -> None:
    """Run a fleet in turns in both ways, and print what watching takes."""
    shares, ratios = [], []
    for turn in range(turns):
        found = {}
        for way in ("watched", "unwatched") if turn % 2 else ("unwatched", "watched"):
            command = [sys.executable, __file__, "--one", way, str(num_devices), str(rounds)]
            said = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
            found[way] = json.loads(said.splitlines()[-1])
        each = {way: own["processor_s"] / own["rounds"] for way, own in found.items()}
        more_s = (each["watched"] - each["unwatched"]) * found["watched"]["rounds"]
        shares.append(100 * more_s / found["watched"]["wall_s"])
        ratios.append(100 * (each["watched"] / each["unwatched"] - 1))
        print(
            f"  turn {turn}: {shares[-1]:+.2f} % of a core, {ratios[-1]:+.2f} % more work {found}"
        )
    print(f"{num_devices} devices: {_said(shares)} % of a core; {_said(ratios)} % more work")


def _said(values: list[float]) -> str:
    error = stdev(values) / len(values) ** 0.5 if len(values) > 1 else float("nan")
    return f"{mean(values):+.2f} +- {error:.2f}"


def main() -> None:
    """Read the command line, and measure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=4)
    parser.add_argument("--one", nargs=3, metavar=("WAY", "DEVICES", "ROUNDS"))
    options = parser.parse_args()
    if options.one:
        way, num_devices, rounds = options.one
        print(json.dumps(run(int(num_devices), int(rounds), watched=way == "watched")))
        return
    for num_devices, rounds in SIZES.items():
        compare(num_devices, rounds, options.turns)


if __name__ == "__main__":
    main()
