"""Real processes killed in the middle of real runs, which end with the bits of a quiet one."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from threading import Thread
from types import SimpleNamespace

import psutil
import pytest
from small_fleets import assert_same_bits, prepared, train

from edgesim.cli.answers import result_table
from edgesim.fleet.on_ray.actor import RunDirectoryUnreachableError, _check_run_directory
from edgesim.fleet.run import RunResult
from edgesim.results.run_directory import RunDirectory

ROUNDS = 36
OVERRIDES = (
    f"training.rounds={ROUNDS}",
    "recovery.checkpoint_every_rounds=2",
    "fleet.placement=by_node",  # one actor on each node
)


@pytest.fixture(scope="module")
def quiet_run(tmp_path_factory):
    return train(tmp_path_factory.mktemp("quiet"), "run", *OVERRIDES, inline=True)


def newest_round(run: Path) -> int:
    """Rounds that all four devices have behind them, by their checkpoints."""
    rounds = [
        max((int(path.stem.rpartition("-")[2]) for path in folder.glob("*.ckpt")), default=0)
        for folder in (run / "checkpoints").glob("device-*")
    ]
    return min(rounds) if len(rounds) == 4 else 0


def wait_until_round(run: Path, round_index: int) -> None:
    while newest_round(run) < round_index:
        time.sleep(0.02)


def actors_below(process: psutil.Process) -> list[psutil.Process]:
    found = []
    for child in process.children(recursive=True):
        try:
            if "".join(child.cmdline()[:1]).startswith("ray::DeviceActor"):
                found.append(child)
        except psutil.NoSuchProcess:
            continue
    return found


def is_agent(process: psutil.Process) -> bool:
    try:
        return process.name().endswith("Agent")
    except psutil.NoSuchProcess:
        return False


@pytest.mark.ray
def test_killed_actors_and_a_lost_node_change_no_bit(tmp_path, quiet_run, caplog, no_ray):
    """Whoever misses one waits for it, so that the run can't end before all faults happened.

    A node that loses its power takes its actors with it; those of this one would live on for as
    long as it takes them to notice, and might do the few rounds that are left.
    """
    from ray._private import ray_constants
    from ray.cluster_utils import Cluster

    cluster = Cluster(
        initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False}
    )
    done = []

    def disturb() -> None:
        rng = random.Random(1)
        for round_index in (4, 12):
            wait_until_round(tmp_path / "run", round_index)
            actors = actors_below(psutil.Process())
            hosts = {actor.parent().pid for actor in actors}
            assert len(actors) == len(hosts) == 2, "one on each node"
            rng.choice(actors).kill()
            done.append("kill")
        wait_until_round(tmp_path / "run", 20)
        raylet = nodes[1].all_processes[ray_constants.PROCESS_TYPE_RAYLET][0].process.pid
        lost = actors_below(psutil.Process(raylet))
        assert len(lost) == 1
        lost[0].suspend()
        cluster.remove_node(nodes[1], allow_graceful=False)
        with suppress(psutil.NoSuchProcess):  # it may have gone with its raylet
            lost[0].kill()
        done.append("remove")

    try:
        nodes = [cluster.add_node(num_cpus=1) for _ in range(2)]
        cluster.wait_for_nodes()
        disturber = Thread(target=disturb, daemon=True)
        disturber.start()
        disturbed = train(tmp_path, "run", *OVERRIDES, address=cluster.address)
    finally:
        cluster.shutdown()
    assert done == ["kill", "kill", "remove"]
    losses = [r.getMessage() for r in caplog.records if "was lost" in r.getMessage()]
    assert len(losses) == 3, "two killed, and one on the lost node"
    assert all(line.endswith("it goes on from its checkpoints") for line in losses)
    assert all("\n" not in line for line in losses)
    assert disturbed.summary["actor_restarts"] == 3
    assert dict(result_table(disturbed.summary, "").rows)["restarts of actors"] == "3"
    assert_same_bits(quiet_run, disturbed)


@pytest.mark.ray
def test_a_run_goes_on_after_its_driver_was_killed(tmp_path, quiet_run):
    """With nothing left of the old one: its actors end with it."""
    prepared(tmp_path)
    run, edgesim = tmp_path / "run", [sys.executable, "-m", "edgesim"]
    options = [word for override in OVERRIDES for word in ("--set", override)]
    scenario = str(tmp_path / "scenario.yaml")
    with (tmp_path / "driver.log").open("w") as log:
        driver = subprocess.Popen(
            [*edgesim, "run", scenario, *options, "--out", str(run), "--no-dashboard"],
            stdout=log,
            stderr=log,
        )
        while driver.poll() is None and newest_round(run) < 6:
            time.sleep(0.02)
        assert driver.poll() is None, (tmp_path / "driver.log").read_text()
        descendants = psutil.Process(driver.pid).children(recursive=True)
        driver.kill()
        driver.wait()
        assert not (run / "summary.json").exists()
        resumed = subprocess.run(
            [*edgesim, "resume", str(run), "--no-dashboard"],
            stdout=log,
            stderr=log,
            timeout=240,
            check=False,
        )
    assert resumed.returncode == 0, (tmp_path / "driver.log").read_text()
    # Ray's own agents outlive a driver that was killed, now and then for minutes; devices don't.
    _, left = psutil.wait_procs([p for p in descendants if not is_agent(p)], timeout=60)
    assert [p for p in left if p.status() != psutil.STATUS_ZOMBIE] == []
    assert_same_bits(quiet_run, RunResult(str(run), {}))
    summary = json.loads((run / "summary.json").read_text())
    assert (summary["resumes"], summary["actor_restarts"]) == (1, 0)
    assert dict(result_table(summary, "").rows)["times resumed"] == "1"


def test_an_actor_that_finds_no_run_directory_does_not_start_anew(tmp_path):
    plan = SimpleNamespace(run_directory=str(tmp_path / "run"), run_digest="ours")
    with pytest.raises(RunDirectoryUnreachableError, match=r"is not there on node .*s3://"):
        _check_run_directory(plan)
    RunDirectory.create(tmp_path / "run", "another")
    with pytest.raises(RunDirectoryUnreachableError, match="is another run's on node"):
        _check_run_directory(plan)
    plan.run_digest = "another"
    _check_run_directory(plan)
