"""What it costs to watch a run: processor time of whole runs, with and without metrics.

The same fleet of actors is run in turns in two ways, each in a process of its own with a Ray of its
own: "watched" asks the actors how far they are, tells Ray's metrics and prints progress, as
`edgesim run` does; "unwatched" asks each 3 s, to notice the end, and tells nobody. The dashboard
runs in both. Printed for each size of fleet: processor time of the driver and of Ray's processes,
their start and end included, and the difference as a share of a core, with its standard error. Time
of the actors is not in it, since nobody waits for the forks; each answers at most two questions a
second, some milliseconds long.

    python benchmarks/metrics_cost.py --turns 4 --sizes 8 100
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack, suppress
from statistics import mean, stdev
from unittest.mock import patch

import edgesim
from edgesim.fleet.recording import monitor
from edgesim.fleet.run import _Run

SIZES = {8: 1000, 100: 100}  # devices: rounds
UNWATCHED_PAUSE_S = 3.0
_SUBREAPER = 36  # PR_SET_CHILD_SUBREAPER of prctl: orphans below become this process's children


def run(num_devices: int, rounds: int, *, watched: bool) -> None:
    """Train a fleet."""
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        if not watched:
            stack.enter_context(patch.object(_Run, "_sinks_of_ray", lambda _: []))
            stack.enter_context(patch.object(monitor, "pause_s", lambda *_: UNWATCHED_PAUSE_S))
        edgesim.run(
            "quickstart",
            out=f"{folder}/run",
            dashboard=True,
            progress=watched,
            fleet__devices=num_devices,
            fleet__profile="raspberry-pi-4b",
            training={"rounds": rounds, "optimizer": {"lr": 0.01}},
            evaluation={"every_rounds": rounds, "samples": 20, "device_models": "never"},
            fleet__devices_per_actor="auto" if num_devices > 8 else 1,
        )


def measure(way: str, num_devices: int, rounds: int) -> dict[str, float]:
    """Processor time of the driver and of Ray, and wall time of a run, in seconds."""
    before, since = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    command = [sys.executable, __file__, "--one", way, str(num_devices), str(rounds)]
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
    wall_s = time.perf_counter() - since
    with suppress(ChildProcessError):  # none is left
        while True:
            os.waitpid(-1, 0)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    processor_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {"processor_s": round(processor_s, 2), "wall_s": round(wall_s, 2)}


def compare(num_devices: int, rounds: int, turns: int) -> None:
    """Run a fleet in turns in both ways, and print what watching takes."""
    shares = []
    for turn in range(turns):
        ways = ("watched", "unwatched") if turn % 2 else ("unwatched", "watched")
        found = {way: measure(way, num_devices, rounds) for way in ways}
        more_s = found["watched"]["processor_s"] - found["unwatched"]["processor_s"]
        shares.append(100 * more_s / found["watched"]["wall_s"])
        print(f"  turn {turn}: {shares[-1]:+.2f} % of a core {json.dumps(found)}", flush=True)
    error = stdev(shares) / len(shares) ** 0.5 if len(shares) > 1 else float("nan")
    print(f"{num_devices} devices: {mean(shares):+.2f} +- {error:.2f} % of a core", flush=True)


def main() -> None:
    """Read the command line, and measure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=4)
    parser.add_argument("--sizes", type=int, nargs="+", choices=SIZES, default=[*SIZES])
    parser.add_argument("--one", nargs=3, metavar=("WAY", "DEVICES", "ROUNDS"))
    options = parser.parse_args()
    if options.one:
        way, num_devices, rounds = options.one
        run(int(num_devices), int(rounds), watched=way == "watched")
        return
    if ctypes.CDLL(None, use_errno=True).prctl(_SUBREAPER, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "this process can't adopt orphans, whose time counts")
    for num_devices in options.sizes:
        compare(num_devices, SIZES[num_devices], options.turns)


if __name__ == "__main__":
    main()
