"""Kills real processes of real runs, and says whether the results are those of a quiet run.

    python benchmarks/real_faults.py --set data.path=/where/cifar10/is

Three runs of one scenario: inline and undisturbed; with one actor per device, `kill -9` of random
actor processes, the driver killed half-way and the run resumed; and on a cluster of three nodes on
this machine, one of them removed half-way. All must end with the same weights and rounds.parquet,
wall columns aside. Kills are spread over the rounds, so that each hits a fleet that trains.
"""

from __future__ import annotations

import argparse
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from threading import Thread

import numpy as np
import pandas as pd
import psutil
from ray.cluster_utils import Cluster

from edgesim.assembly.preparation import prepare
from edgesim.results.columns import WALL_COLUMNS
from edgesim.scenario import load_scenario

POLL_S = 0.05
ACTOR = "ray::DeviceActor"  # how Ray names the process of an actor
EDGESIM = (sys.executable, "-m", "edgesim")
Difference = str


def compare(first: Path, second: Path) -> list[Difference]:
    """What differs between two run directories that should not."""
    found = []
    for table in ("rounds", "evaluations", "messages"):
        tables = [pd.read_parquet(run / f"{table}.parquet") for run in (first, second)]
        tables = [rows.drop(columns=[*WALL_COLUMNS], errors="ignore") for rows in tables]
        if not tables[0].equals(tables[1]):
            found.append(f"{table}.parquet ({len(tables[0])} and {len(tables[1])} rows)")
    names = [sorted(p.name for p in (run / "models").iterdir()) for run in (first, second)]
    if names[0] != names[1]:
        return [*found, "names of models"]
    for name in names[0]:
        with np.load(first / "models" / name) as a, np.load(second / "models" / name) as b:
            found += [f"{name}: {key}" for key in a if a[key].tobytes() != b[key].tobytes()]
    return found


def newest_round(run: Path, num_devices: int) -> int:
    """Rounds that all devices have behind them, by their checkpoints."""
    rounds = [
        max((int(p.stem.rpartition("-")[2]) for p in folder.glob("*.ckpt")), default=0)
        for folder in (run / "checkpoints").glob("device-*")
    ]
    return min(rounds) if len(rounds) == num_devices else 0


def actors_below(process: psutil.Process) -> list[psutil.Process]:
    """Actor processes that a driver or a test cluster has started."""
    found = []
    for child in process.children(recursive=True):
        try:
            if child.cmdline()[:1] and child.cmdline()[0].startswith(ACTOR):
                found.append(child)
        except psutil.NoSuchProcess:
            continue
    return found


def kill_actors(
    driver: subprocess.Popen[bytes], run: Path, at_rounds: Sequence[int], num_devices: int
) -> int:
    """Kill a random actor process when all devices have done so many rounds; returns how often."""
    rng, killed = random.Random(1), 0  # noqa: S311 (no secret)
    for at_round in at_rounds:
        while driver.poll() is None and newest_round(run, num_devices) < at_round:
            time.sleep(POLL_S)
        while driver.poll() is None:
            if actors := actors_below(psutil.Process(driver.pid)):
                victim = rng.choice(actors)
                victim.kill()
                killed += 1
                break
            time.sleep(POLL_S)
    return killed


def disturbed_run(
    options: list[str], run: Path, kills: int, num_rounds: int, num_devices: int
) -> None:
    """Kill actors, half-way the driver, resume, and kill actors again."""
    rounds = [num_rounds * (k + 1) // (kills + 2) for k in range(kills)]
    half = kills // 2
    ray_options = ["--no-dashboard"]
    driver = subprocess.Popen([*EDGESIM, "run", *options, "--out", str(run), *ray_options])
    killed = kill_actors(driver, run, rounds[:half], num_devices)
    descendants = psutil.Process(driver.pid).children(recursive=True)
    driver.kill()
    driver.wait()
    print(f"--- {killed} actors killed; the driver killed; resuming at once", flush=True)
    driver = subprocess.Popen([*EDGESIM, "resume", str(run), *ray_options])
    _, left = psutil.wait_procs(descendants, timeout=30)
    print(f"--- {len(left)} of {len(descendants)} processes of the killed driver are left")
    killed += kill_actors(driver, run, rounds[half:], num_devices)
    if driver.wait():
        sys.exit(f"FAIL: `edgesim resume` ended with {driver.returncode}")
    if killed < kills:
        sys.exit(f"FAIL: only {killed} of {kills} kills hit a running fleet; use more rounds")
    print(f"--- {killed} actors killed in all", flush=True)


def run_with_a_lost_node(
    options: list[str], run: Path, num_rounds: int, num_devices: int, cpus: int
) -> None:
    """Run on three nodes, and remove one of them half-way."""
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": cpus})
    try:
        nodes = [cluster.add_node(num_cpus=cpus) for _ in range(2)]
        cluster.wait_for_nodes()
        command = [*EDGESIM, "run", *options, "--out", str(run), "--address", cluster.address]
        driver = subprocess.Popen(command)

        def remove_one() -> None:
            while driver.poll() is None and newest_round(run, num_devices) < num_rounds // 2:
                time.sleep(POLL_S)
            print("--- removing a node", flush=True)
            cluster.remove_node(nodes[1], allow_graceful=False)

        remover = Thread(target=remove_one)
        remover.start()
        remover.join()
        if driver.wait():
            sys.exit(f"FAIL: `edgesim run` on three nodes ended with {driver.returncode}")
    finally:
        cluster.shutdown()


def main() -> None:
    """Do it, and print a verdict for each run."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--scenario", default="scenarios/cifar10_ring8.yaml")
    parser.add_argument("--set", dest="overrides", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--kills", type=int, default=20, help="of actors, in all")
    parser.add_argument("--node-cpus", type=int, default=2, help="of each of the three nodes")
    parser.add_argument("--checkpoint-rounds", type=int, default=1, help="between checkpoints")
    parser.add_argument("--keep", type=Path, help="folder for the run directories")
    arguments = parser.parse_args()
    overrides = [
        *arguments.overrides,
        f"recovery.checkpoint_every_rounds={arguments.checkpoint_rounds}",
    ]
    prepared = prepare(load_scenario(Path(arguments.scenario), overrides))
    num_rounds, num_devices = prepared.training.num_rounds, prepared.scenario.fleet.num_devices
    if num_rounds < arguments.checkpoint_rounds * (arguments.kills + 2):
        parser.error(f"{num_rounds} rounds are too few to spread {arguments.kills} kills over")
    options = [arguments.scenario, *(word for each in overrides for word in ("--set", each))]
    folder = arguments.keep or Path(tempfile.mkdtemp(prefix="edgesim-faults-"))
    start = time.perf_counter()
    quiet, killed, lost_node = (folder / name for name in ("quiet", "killed", "lost-node"))
    subprocess.run([*EDGESIM, "run", *options, "--out", str(quiet), "--inline"], check=True)
    disturbed_run(options, killed, arguments.kills, num_rounds, num_devices)
    run_with_a_lost_node(options, lost_node, num_rounds, num_devices, arguments.node_cpus)
    failed = False
    for name, run in (
        (f"{arguments.kills} actors killed, the driver killed and resumed", killed),
        ("one of three nodes removed", lost_node),
    ):
        differences = compare(quiet, run)
        failed = failed or bool(differences)
        verdict = f"FAIL, differ: {', '.join(differences)}" if differences else "PASS, identical"
        print(f"{name}: {verdict}")
    print(f"{num_devices} devices, {num_rounds} rounds, {time.perf_counter() - start:.0f} s")
    sys.exit(failed)


if __name__ == "__main__":
    main()
