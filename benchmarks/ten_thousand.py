"""Ten thousand devices on one machine beside a thousand: `python benchmarks/ten_thousand.py`.

`scenarios/ten_thousand.yaml` with as many devices, 16 samples each, runs from beginning to end in a
process of its own, sizes in turns. Printed for each size:

    launch      wall and processor seconds of each phase, from the start of the process until every
                device is built; with the load of the machine
    progress    the longest time for which nothing was told of a fleet that trains
    memory      peak of all processes' resident memory while the fleet trains (shared pages counted
                once), less that of a fleet of 10 devices and the samples, per device; beside it
                what is counted of a device, and the floor: its model, optimizer and gossip state
    a round     processor time of a device's round, of all processes, from when all devices are
                built until all have done their last; both fleets do as many rounds
    end         processor seconds after the last round: tables joined and checked, models evaluated
    tables      seconds for pandas and for `edgesim.load_run` to read the run directory; its bytes

and the processor time of a round of the largest fleet, of that of the smallest.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from statistics import mean
from typing import Any

import pandas as pd
import psutil
from rich.console import Console

import edgesim
from edgesim.assembly.preparation import prepare
from edgesim.fleet.recording.fleet_state import FleetState
from edgesim.fleet.recording.view import View
from edgesim.fleet.run import run_scenario
from edgesim.scenario import load_scenario

SCENARIO = Path(__file__).resolve().parent.parent / "scenarios" / "ten_thousand.yaml"
SAMPLES = 16  # of a device
FEW = 10  # devices of the fleet whose memory is what processes take without devices
LOOK_S = 2.0  # between two readings of memory
MB = 1e6
TABLES = ("rounds", "messages", "devices", "evaluations")
STATE = ("weights", "optimizer", "gossip_state")  # that a device holds between two rounds


def processes(root: psutil.Process) -> list[psutil.Process]:
    """A process and all below it."""
    return [root, *root.children(recursive=True)]


class Diary(View):
    """Notes when what happened to a fleet.

    Attributes:
        marks: name, wall time and processor seconds so far, in order.
        looks: wall time of each look at the fleet.
    """

    def __init__(self) -> None:
        super().__init__(Console(quiet=True))
        self.marks: list[tuple[str, float, float]] = []
        self.looks: list[float] = []
        self._spent_s: dict[psutil.Process, float] = {}
        self.marks.append(("start", psutil.Process().create_time(), 0.0))

    def spent_s(self) -> float:
        """Processor seconds of this process and of all below it that were seen, ended or not."""
        for process in processes(psutil.Process()):
            with suppress(psutil.NoSuchProcess):
                times = process.cpu_times()
                self._spent_s[process] = times.user + times.system
        return sum(self._spent_s.values())

    def mark(self, name: str) -> None:
        """Something has happened, for the first time."""
        if all(name != known for known, _, _ in self.marks):
            self.marks.append((name, time.time(), self.spent_s()))

    def stage(self, text: str) -> None:
        """Take what came before as ended."""
        self.mark("processes are there" if text.endswith("devices") else "scenario is checked")

    def update(self, fleet: FleetState) -> None:
        """A look at the fleet."""
        if len(fleet.devices) < fleet.facts.num_devices:
            return
        self.mark("devices are built")
        self.looks.append(time.time())
        if all(progress.end for progress in fleet.devices.values()):
            self.mark("training has ended")

    def evaluating(self, text: str) -> None:  # noqa: ARG002
        """Models are in memory."""
        self.mark("models are read")

    def evaluated(self, rows: Sequence[Mapping[str, Any]]) -> None:  # noqa: ARG002
        """Models are evaluated."""
        self.mark("models are evaluated")


def run_one(devices: int, rounds: int, out: str, *, inline: bool) -> None:
    """Run a fleet, and print what was noted as JSON."""
    diary = Diary()
    changes = [
        f"fleet.devices={devices}",
        f"data.options.samples={SAMPLES * devices}",
        f"training.rounds={rounds}",
    ]
    prepared = prepare(load_scenario(SCENARIO, changes))
    prepared.read_images()
    diary.mark("scenario is checked")
    run_scenario(prepared, out, inline=inline, console=diary.console, view=diary)
    diary.mark("end")
    print(json.dumps({"marks": diary.marks, "looks": diary.looks}))


def resident_bytes(root: psutil.Process) -> int:
    """Of a process and all below it; a page that several share counts once."""
    total = 0
    for process in processes(root):
        with suppress(psutil.NoSuchProcess):
            total += process.memory_full_info().pss
    return total


def measured(devices: int, rounds: int, place: str, *, inline: bool) -> dict[str, Any]:
    """Run a fleet in a process of its own and look at it."""
    words = ["--one", str(devices), "--rounds", str(rounds), "--out", place]
    command = [sys.executable, __file__, *words, *(["--inline"] if inline else [])]
    readings: list[tuple[float, int]] = []
    load = os.getloadavg()[0]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        root = psutil.Process(process.pid)
        while process.poll() is None:
            with suppress(psutil.NoSuchProcess):
                readings.append((time.time(), resident_bytes(root)))
            time.sleep(LOOK_S)
        assert process.stdout is not None
        output = process.stdout.read()
    if process.returncode:
        raise SystemExit(f"the fleet of {devices} devices ended with {process.returncode}")
    found: dict[str, Any] = json.loads(output.splitlines()[-1])
    ends = {name: at_s for name, at_s, _ in found["marks"]}
    found["peak"] = max(held for at_s, held in readings if at_s <= ends["training has ended"])
    found["peak_of_all"] = max(held for _, held in readings)
    found["load"] = load
    return found


def round_ms(found: Mapping[str, Any], device_rounds: int) -> float:
    """Processor milliseconds of one device's round; records and models are written in them."""
    spent: dict[str, float] = {name: so_far for name, _, so_far in found["marks"]}
    return 1e3 * (spent["training has ended"] - spent["devices are built"]) / device_rounds


def tables_of(place: str) -> str:
    """How long it takes to read a run directory, in words."""
    start_s = time.perf_counter()
    rows = [len(pd.read_parquet(f"{place}/{table}.parquet")) for table in TABLES]
    pandas_s = time.perf_counter() - start_s
    run = edgesim.load_run(place)
    assert [len(run.rounds), len(run.messages)] == rows[:2]
    load_s = time.perf_counter() - start_s - pandas_s
    size = sum(path.stat().st_size for path in Path(place).rglob("*") if path.is_file())
    return (
        f"pandas {pandas_s:.1f} s, load_run {load_s:.1f} s, {rows[0]:,} rounds and "
        f"{rows[1]:,} messages, {size / MB:,.0f} MB with all models"
    )


def report(devices: int, found: Mapping[str, Any], few: Mapping[str, Any], place: str) -> None:
    """Print what was found of one fleet."""
    print(f"{devices:,} devices (load of the machine at the start {found['load']:.1f})")
    for (_, before_s, spent), (name, at_s, so_far) in pairwise(found["marks"]):
        line = f"{at_s - before_s:7.1f} s wall {so_far - spent:7.1f} s of a processor"
        print(f"  {name:24} {line}")
    gaps = [after - before for before, after in pairwise(found["looks"])]
    print(f"  between two looks        {max(gaps, default=0.0):7.1f} s at most")
    counted = pd.read_parquet(f"{place}/devices.parquet").iloc[0]
    floor = sum(int(counted[f"memory_{name}_bytes"]) for name in STATE)
    samples = int(counted["shard_bytes"])
    each, with_end = (
        (found[peak] - few[peak]) / devices - samples for peak in ("peak", "peak_of_all")
    )
    print(
        f"  memory of a device       {each / MB:7.3f} MB, {with_end / MB:.3f} with the end; floor "
        f"{floor / MB:.3f}; counted, with a step of its own, {counted['memory_bytes'] / MB:.3f}"
    )
    print(f"  tables                   {tables_of(place)}")


def main() -> None:
    """Run fleets in turns and print what they take."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--devices", type=int, nargs="+", default=[1000, 10_000])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--turns", type=int, default=1)
    parser.add_argument("--inline", action="store_true", help="without Ray")
    parser.add_argument("--one", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--out", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one is not None:
        run_one(options.one, options.rounds, options.out, inline=options.inline)
        return
    spent: dict[int, list[float]] = {devices: [] for devices in options.devices}
    with tempfile.TemporaryDirectory() as parent:
        few = measured(FEW, 200, f"{parent}/few", inline=options.inline)
        for turn in range(options.turns):
            for devices in options.devices[:: -1 if turn % 2 else 1]:
                place = f"{parent}/{devices}-{turn}"
                found = measured(devices, options.rounds, place, inline=options.inline)
                report(devices, found, few, place)
                spent[devices].append(round_ms(found, devices * options.rounds))
                print(f"  a device's round         {spent[devices][-1]:7.2f} ms", flush=True)
    ratio = mean(spent[max(spent)]) / mean(spent[min(spent)])
    print(f"a round of {max(spent):,} takes {ratio:.3f} of the processor time of {min(spent):,}")


if __name__ == "__main__":
    main()
