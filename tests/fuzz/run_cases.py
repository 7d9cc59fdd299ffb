"""Runs seeded cases of the fuzzers in this folder and says which failed.

    make fuzz CASES=10000 SEED=1              # every fuzzer, so many cases each
    make fuzz CASES=300000 KIND=messages      # one of them

A fuzzer is a module `fuzz_<kind>.py` here with

    check(seed)      # one case; raises if it fails; leaves nothing behind
    NUM_IN_TESTS     # how many cases `make test` runs

A case that fails is printed with its seed; it fails again alone:

    make fuzz CASES=1 SEED=<seed> KIND=<kind>
"""

from __future__ import annotations

import argparse
import importlib
import logging
import multiprocessing
import os
import sys
import traceback
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path

from rich.console import Console
from rich.progress import Progress

sys.path.append(str(Path(__file__).parents[1] / "shared"))  # as pytest does

BATCH = 50  # cases that a process does at a time
LONGEST_REASON = 2000  # characters of a traceback


def kinds():
    """Names of the fuzzers in this folder."""
    return sorted(path.stem.removeprefix("fuzz_") for path in Path(__file__).parent.glob("fuzz_*"))


def fuzzer(kind):
    """The module of a kind."""
    return importlib.import_module(f"fuzz_{kind}")


def run_batch(kind, seeds):
    """Seeds that failed, each with the reason."""
    logging.disable(logging.CRITICAL)  # what the program says of damaged input
    failed = []
    for seed in seeds:
        try:
            fuzzer(kind).check(seed)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # noqa: BLE001 (whatever it is, the seed failed)
            reason = "".join(traceback.format_exception(error))[-LONGEST_REASON:]
            failed.append((seed, reason))
    return failed


def main():
    """Exit status 1 if a case failed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cases", type=int, default=1000, help="of each kind")
    parser.add_argument("--seed", type=int, default=1, help="of the first; then the next ones")
    parser.add_argument("--kind", choices=kinds(), help="one fuzzer; by default all")
    arguments = parser.parse_args()
    console = Console()
    chosen = [arguments.kind] if arguments.kind else kinds()
    end = arguments.seed + arguments.cases
    batches = [
        (kind, range(first, min(first + BATCH, end)))
        for kind in chosen
        for first in range(arguments.seed, end, BATCH)
    ]
    num_failed = 0
    context = multiprocessing.get_context("spawn")
    with (
        ProcessPoolExecutor(len(os.sched_getaffinity(0)), context) as pool,
        Progress(console=console) as progress,
    ):
        task = progress.add_task("cases", total=len(chosen) * arguments.cases)
        running = {pool.submit(run_batch, kind, seeds): (kind, seeds) for kind, seeds in batches}
        for ended in as_completed(running):
            kind, seeds = running[ended]
            for seed, reason in ended.result():
                num_failed += 1
                console.print(f"{kind}, seed {seed}: {reason}", markup=False, highlight=False)
                console.print(
                    f"    again: make fuzz CASES=1 SEED={seed} KIND={kind}", highlight=False
                )
            progress.advance(task, len(seeds))
    total = len(chosen) * arguments.cases
    console.print(f"{total - num_failed} passed, {num_failed} failed", highlight=False)
    sys.exit(1 if num_failed else 0)


if __name__ == "__main__":
    main()
