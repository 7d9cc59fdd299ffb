"""Runs seeded schedules of faults and says which fleets did not end with the undisturbed bits.

    make faults SCHEDULES=500 SEED=1

A seed that fails is printed with what was done to its fleet; it fails again alone:

    make faults SCHEDULES=1 SEED=<seed>
"""

from __future__ import annotations

import argparse
import logging
import multiprocessing
import os
import sys
import traceback
from collections import Counter
from concurrent.futures import ProcessPoolExecutor, as_completed

from faulty_fleets import KINDS, check, draw
from rich.console import Console
from rich.progress import track

LONGEST_REASON = 2000  # characters of a traceback


def judge(seed):
    """Kind of fleet, crashes and damaged checkpoints, and what is wrong or None."""
    logging.disable(logging.CRITICAL)  # what hosts say of the faults they are given
    try:
        schedule, log, different = check(seed)
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            raise
        reason = "".join(traceback.format_exception(error))[-LONGEST_REASON:]
        return seed, draw(seed).kind, 0, 0, reason
    wrong = f"other {', '.join(different)} than undisturbed" if different else None
    return seed, schedule.kind, log.crashes, log.damaged, wrong


def main():
    """Exit status 1 if a schedule failed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--schedules", type=int, default=500, help="how many")
    parser.add_argument("--seed", type=int, default=1, help="of the first; then the next ones")
    arguments = parser.parse_args()
    console = Console()
    seeds = range(arguments.seed, arguments.seed + arguments.schedules)
    kinds, crashes, damaged, failed = Counter(), 0, 0, []
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(len(os.sched_getaffinity(0)), context) as pool:
        verdicts = as_completed([pool.submit(judge, seed) for seed in seeds])
        for verdict in track(verdicts, "schedules", len(seeds), console=console):
            seed, kind, its_crashes, its_damaged, wrong = verdict.result()
            kinds[kind] += 1
            crashes += its_crashes
            damaged += its_damaged
            if wrong:
                failed.append(seed)
                console.print(f"seed {seed} ({kind}): {wrong}", markup=False, highlight=False)
                console.print(f"    again: make faults SCHEDULES=1 SEED={seed}", highlight=False)
    console.print(
        f"{len(kinds)} of {len(KINDS)} kinds of fleets, {crashes} crashes of processes, "
        f"{damaged} checkpoints damaged",
        highlight=False,
    )
    console.print(f"{len(seeds) - len(failed)} passed, {len(failed)} failed", highlight=False)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
