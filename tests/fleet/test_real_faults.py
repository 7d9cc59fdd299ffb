"""Real processes killed in the middle of real runs, which end with the bits of a quiet one."""

from __future__ import annotations

from contextlib import suppress
from threading import Thread
from types import SimpleNamespace

import psutil
import pytest
from process_trees import actors_below, wait_until_round
from small_fleets import assert_same_bits, train
from thorough import thorough_only

from edgesim.cli.answers import result_table
from edgesim.fleet.on_ray.actor import RunDirectoryUnreachableError, _check_run_directory
from edgesim.results.run_directory import RunDirectory

OVERRIDES = ("training.rounds=24", "recovery.checkpoint_every_rounds=2")

# Ray takes a node for lost once this many checks in a row have failed: after 15 s unless told.
NOTICES_QUICKLY = {
    "health_check_initial_delay_ms": 0,
    "health_check_period_ms": 500,
    "health_check_failure_threshold": 3,
}


def check_restarts(disturbed, caplog, number):
    """So many actors were lost and started again; the log and the summary say so."""
    losses = [r.getMessage() for r in caplog.records if "was lost" in r.getMessage()]
    assert len(losses) == number
    assert all(line.endswith("it goes on from its checkpoints") for line in losses)
    assert all("\n" not in line for line in losses)
    assert disturbed.summary["actor_restarts"] == number
    assert dict(result_table(disturbed.summary, "").rows)["restarts of actors"] == str(number)


@pytest.mark.ray
def test_a_killed_actor_changes_no_bit(tmp_path, caplog, started_ray):
    """Devices that miss one wait for it, so that the run can't end before."""
    quiet = train(tmp_path, "quiet", *OVERRIDES, inline=True)
    done = []

    def disturb() -> None:
        wait_until_round(tmp_path / "run", 4)
        actors = actors_below(psutil.Process())
        assert len(actors) == 2
        actors[0].kill()
        done.append("kill")

    disturber = Thread(target=disturb, daemon=True)
    disturber.start()
    disturbed = train(tmp_path, "run", *OVERRIDES, "fleet.devices_per_actor=2")
    disturber.join()
    assert done == ["kill"]
    check_restarts(disturbed, caplog, 1)
    assert_same_bits(quiet, disturbed)


@thorough_only
@pytest.mark.ray
def test_a_killed_actor_and_a_lost_node_change_no_bit(tmp_path, caplog, no_ray):
    """Devices that miss one wait for it, so that the run can't end before both faults happened.

    A node that loses its power takes its actors with it; those of this one would live on for as
    long as it takes them to notice, and might do the few rounds that are left.
    """
    from ray._private import ray_constants
    from ray.cluster_utils import Cluster

    quiet = train(tmp_path, "quiet", *OVERRIDES, inline=True)
    head = {"num_cpus": 1, "include_dashboard": False, "_system_config": NOTICES_QUICKLY}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    done = []

    def disturb() -> None:
        wait_until_round(tmp_path / "run", 4)
        actors = actors_below(psutil.Process())
        hosts = {actor.parent().pid for actor in actors}
        assert len(actors) == len(hosts) == 2, "one on each node"
        actors[0].kill()
        done.append("kill")
        wait_until_round(tmp_path / "run", 12)
        raylet = node.all_processes[ray_constants.PROCESS_TYPE_RAYLET][0].process.pid
        (lost,) = actors_below(psutil.Process(raylet))
        lost.suspend()
        cluster.remove_node(node, allow_graceful=False)
        with suppress(psutil.NoSuchProcess):  # it may have gone with its raylet
            lost.kill()
        done.append("remove")

    try:
        node = cluster.add_node(num_cpus=1)
        cluster.wait_for_nodes()
        disturber = Thread(target=disturb, daemon=True)
        disturber.start()
        one_each = "fleet.placement=by_node"
        disturbed = train(tmp_path, "run", *OVERRIDES, one_each, address=cluster.address)
    finally:
        cluster.shutdown()
    assert done == ["kill", "remove"]
    check_restarts(disturbed, caplog, 2)
    assert_same_bits(quiet, disturbed)


def test_an_actor_that_finds_no_run_directory_does_not_start_anew(tmp_path):
    plan = SimpleNamespace(run_directory=str(tmp_path / "run"), run_digest="ours")
    with pytest.raises(RunDirectoryUnreachableError, match=r"is not there on node .*s3://"):
        _check_run_directory(plan)
    RunDirectory.create(tmp_path / "run", "another")
    with pytest.raises(RunDirectoryUnreachableError, match="is another run's on node"):
        _check_run_directory(plan)
    plan.run_digest = "another"
    _check_run_directory(plan)
