"""What a cluster is told or says that does not suit."""

from __future__ import annotations

import asyncio
import io
import re
import socket
import subprocess
import sys
from collections import Counter
from contextlib import ExitStack
from importlib import metadata
from itertools import repeat
from pathlib import Path
from threading import Event
from time import monotonic, sleep
from types import SimpleNamespace

import pytest
from rich.console import Console

from edgesim.fleet.on_ray import addresses, cluster, launch, shipping
from edgesim.fleet.on_ray.access import DashboardError, choose
from edgesim.fleet.on_ray.cluster import AddressError, cluster_nodes, ray_session
from edgesim.fleet.on_ray.placement import (
    FleetError,
    Need,
    NoRoomError,
)
from edgesim.scenario import load_scenario

# --- addresses


def joined(address: str) -> None:
    with ray_session(address, dashboard=False, console=Console(file=io.StringIO())):
        pass


def test_client_addresses_are_refused():
    with pytest.raises(AddressError, match=r"can't be driven through a Ray client; run edgesim on"):
        joined("ray://127.0.0.1:10001")


def test_an_address_where_nobody_listens_is_told_at_once():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound, so that nobody else is there, but not listening
        with pytest.raises(AddressError, match=r"no Ray cluster there .*refused"):
            joined(f"127.0.0.1:{taken.getsockname()[1]}")


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (
            "Token authentication is enabled but no authentication token was found. Ensure that",
            r"no authentication token was found; set RAY_AUTH_MODE=token and RAY_AUTH_TOKEN",
        ),
        (
            "Failed to connect to Ray cluster at 10.0.0.1:6379",  # as Ray 2.60 says of a wrong one
            r"does not let this user in .*if it asks for a token, set RAY_AUTH_MODE=token",
        ),
    ],
)
def test_a_missing_or_wrong_token_is_named(monkeypatch, words, expected):
    def refuse(**_: object) -> None:
        raise ConnectionError(words)

    monkeypatch.setattr("ray.init", refuse)
    monkeypatch.setattr(addresses, "ANSWER_TIMEOUT_S", 0.1)
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        with pytest.raises(AddressError, match=expected) as caught:
            joined(f"127.0.0.1:{listening.getsockname()[1]}")
    assert "\n" not in str(caught.value)


# --- what else is on a cluster


def test_a_run_waits_for_the_end_of_another_of_its_name(monkeypatch, caplog):
    seen = iter([["run-2/device-0", "run/device-0"], ["run-2/device-0"]])
    monkeypatch.setattr("ray.util.list_named_actors", lambda: next(seen))
    monkeypatch.setattr(cluster, "POLL_S", 0.0)
    cluster._wait_for_name("run")
    assert caplog.messages == [
        "actors of a run called run are on this cluster; waiting for its end"
    ]


@pytest.mark.parametrize("address", [None, "127.0.0.1:6379"])
def test_rays_connection_of_the_caller_is_left_alone(monkeypatch, address):
    """Another one would take its place, and its end would end the caller's actors."""
    ended = []
    monkeypatch.setattr("ray.is_initialized", lambda: True)
    monkeypatch.setattr("ray.shutdown", lambda: ended.append(True))
    session = ray_session(address, dashboard=False, console=Console(quiet=True))
    with pytest.raises(FleetError, match=r"connected to Ray already; ray\.shutdown"), session:
        pass
    assert not ended


def test_a_name_that_another_run_keeps_is_told(monkeypatch):
    monkeypatch.setattr("ray.util.list_named_actors", lambda: ["run/device-0"])
    monkeypatch.setattr(cluster, "NAME_TIMEOUT_S", 0.0)
    with pytest.raises(FleetError, match=r"a run called run uses this cluster already; .*another"):
        cluster._wait_for_name("run")


def test_the_dashboard_of_a_cluster_is_known_as_long_as_the_run_goes_on(monkeypatch, tmp_path):
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    with ExitStack() as stack:
        cluster._tell_dashboards(stack, "http://head:8265", "/runs/x")
        access = choose("/runs/x", [tmp_path])
        assert (access.url, access.run, access.token_path) == ("http://head:8265", "/runs/x", None)
    with pytest.raises(DashboardError):
        choose("/runs/x", [tmp_path])


def in_two_nodes(monkeypatch, answers):
    """Two nodes, of which those are dying that the next of some answers names."""
    nodes = [{"Alive": True, "NodeID": name} for name in "ab"]
    monkeypatch.setattr("ray.nodes", lambda: nodes)
    monkeypatch.setattr(shipping, "LEAVE_POLL_S", 0.0)
    monkeypatch.setattr(shipping, "_ask_nodes", lambda nodes: next(answers))


def test_a_node_that_has_just_died_is_waited_for(monkeypatch):
    here = software("here", "a")
    in_two_nodes(monkeypatch, iter([([here], ["far (10.0.0.2)"]), ([here], [])]))
    assert shipping.software_of_nodes() == [here]


def test_a_node_that_takes_no_tasks_is_named(monkeypatch):
    in_two_nodes(monkeypatch, repeat(([], ["far (10.0.0.2)"])))
    monkeypatch.setattr(shipping, "LEAVE_TIMEOUT_S", 0.0)
    with pytest.raises(FleetError, match=r"node far \(10\.0\.0\.2\) is going away; try again in a"):
        shipping.software_of_nodes()


# --- code


def test_secrets_are_not_passed_on():
    passed = shipping.variables_to_pass(
        {
            "AWS_SECRET_ACCESS_KEY": "s",
            "AWS_ACCESS_KEY_ID": "k",
            "RAY_AUTH_TOKEN": "t",
            "FSSPEC_S3_SECRET": "s",
            "FSSPEC_S3_ENDPOINT_URL": "http://store:9000",
            "AWS_REGION": "eu-west-1",
            "HOME": "/root",
        }
    )
    assert passed == {
        "FSSPEC_S3_ENDPOINT_URL": "http://store:9000",
        "AWS_REGION": "eu-west-1",
        "OMP_NUM_THREADS": "1",
    }


def software(host: str, code: str | None, **versions: str) -> shipping.Software:
    every = dict.fromkeys([*shipping.NEEDED, "python"], "1.0")
    return shipping.Software(host, code, {**every, **versions})


def test_code_is_shipped_to_all_if_one_node_lacks_it():
    here = software("here", "a")
    assert shipping.modules_to_ship(here, [software("x", "a"), software("y", "a")]) == []
    for other in (None, "b"):
        folders = shipping.modules_to_ship(here, [software("x", "a"), software("y", other)])
        assert [Path(folder).name for folder in folders] == ["edgesim", "topologies"]
        assert all((Path(folder) / "__init__.py").is_file() for folder in folders)


def test_packages_that_a_node_lacks_or_has_otherwise_are_named():
    here, other = software("here", "a"), software("far", "a", torch="2.0")
    assert shipping.version_differences(here, [here]) == []
    (line,) = shipping.version_differences(here, [here, other])
    assert line.startswith("node far has torch 2.0, this machine 1.0")
    assert shipping.missing_packages([here, other]) is None
    bare = shipping.Software("far", None, {"python": "3.11.2", "numpy": "2.0"})
    assert "node far lacks torch, numba" in (shipping.missing_packages([here, bare]) or "")


def test_actors_and_cells_import_no_package_that_nodes_are_not_asked_for():
    lines = [line for line in metadata.requires("edgesim") or [] if "extra ==" not in line]
    required = {re.split(r"[^\w-]", line)[0] for line in lines} - {"ray"}
    owned = metadata.packages_distributions().items()
    names = {name for name, owners in owned if required & {*map(str.lower, owners)}}
    others = names - {*shipping.NEEDED, "torchgen", "scipy"}  # of torch; numba looks for scipy
    source = (
        f"import sys; sys.modules.update(dict.fromkeys({sorted(others)}));"
        "import edgesim.compiled, edgesim.fleet.on_ray.actor, edgesim.sweeps.worker"
    )
    done = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True)
    assert not done.returncode, done.stderr.splitlines()[-1]


def test_software_is_told_by_a_process_that_has_no_edgesim():
    """The probe is sent by value: it may use nothing of its module."""
    source = (
        "import pickle, sys; f = pickle.loads(bytes.fromhex(sys.stdin.read()));"
        "print(f(('no_such_package',), ('json', 'no_such_package'))[1:])"
    )
    from ray import cloudpickle

    module = sys.modules[shipping.__name__]
    cloudpickle.register_pickle_by_value(module)
    data = cloudpickle.dumps(shipping.software_here)
    cloudpickle.unregister_pickle_by_value(module)
    bare = subprocess.run(
        [sys.executable, "-I", "-c", source],
        input=data.hex(),
        capture_output=True,
        text=True,
        check=True,
    )
    assert bare.stdout.startswith("(None, {'python': '")
    assert "'json': '?'" in bare.stdout


def wait_for(is_so) -> None:
    deadline_s = monotonic() + 60
    while not is_so() and monotonic() < deadline_s:
        sleep(0.1)


def test_a_head_that_never_answers_does_not_hold_up_the_end_of_a_run(monkeypatch):
    """Ray asks it again and again; `asyncio.run` waits for the threads of its executor."""
    told = Event()
    monkeypatch.setattr(cluster, "_why_absent", lambda *_: told.wait())

    async def end_meanwhile():
        await asyncio.wait_for(cluster.why_absent(1, Need(1.0)), timeout=0.05)

    try:
        with pytest.raises(TimeoutError):
            asyncio.run(end_meanwhile())
    finally:
        told.set()


def test_why_actors_are_absent_may_be_unknown(monkeypatch):
    def fail(*_):
        raise OSError("no head")

    monkeypatch.setattr(cluster, "_why_absent", fail)
    with pytest.raises(OSError, match="no head"):
        asyncio.run(cluster.why_absent(1, Need(1.0)))


@pytest.mark.ray
def test_a_cluster_of_two_nodes(monkeypatch, no_ray):
    """Nodes, room and shipped code on Ray itself, on one machine."""
    import ray
    from ray.cluster_utils import Cluster

    nodes = Cluster(
        initialize_head=True, head_node_args={"num_cpus": 2, "include_dashboard": False}
    )
    said = io.StringIO()

    def why(need: Need) -> str:
        return asyncio.run(cluster.why_absent(2, need))

    try:
        nodes.add_node(num_cpus=1)
        nodes.wait_for_nodes()
        monkeypatch.setattr(
            "edgesim.fleet.on_ray.cluster.modules_to_ship",
            lambda here, nodes: shipping.modules_to_ship(here, [software("far", None), *nodes]),
        )
        with ray_session(nodes.address, dashboard=False, console=Console(file=said)):
            assert sorted(node.num_cpus for node in cluster_nodes()) == [1.0, 2.0]
            held = ray.util.placement_group([{"CPU": 2}, {"CPU": 1}])
            ray.get(held.ready(), timeout=60)
            scenario = load_scenario(Path("scenarios/quickstart.yaml"))
            plan = SimpleNamespace(
                scenario=scenario,
                run_directory="runs/full",
                compute=SimpleNamespace(accelerator="cpu"),
            )
            monkeypatch.setattr(launch, "ROOM_TIMEOUT_S", 1.0)
            with pytest.raises(NoRoomError, match=r"room for 0 of 8 actors.*0 of 3 CPUs"):
                launch.RayFleet(plan, [None] * 8)
            assert why(Need(0.5)) == "they are being started"
            waiting = ray.remote(num_cpus=0.5)(Counter).remote()
            wait_for(lambda: why(Need(0.5)) != "they are being started")
            lacking = "1 lack room; each asks for 0.5 CPUs, and the 2 nodes have 0, 0 CPUs free"
            assert why(Need(0.5)) == lacking
            assert why(Need(0.25)) == "they are being started", "that waits for another's room"
            ray.kill(waiting)
            ray.util.remove_placement_group(held)

            def shipped() -> list[list[str]]:
                folders = [Path(p) for p in sys.path if "py_modules" in p]
                return [sorted(q.name for q in folder.iterdir()) for folder in folders]

            found = ray.get(ray.remote(num_cpus=0)(shipped).remote(), timeout=120)
    finally:
        nodes.shutdown()
    assert sorted(found) == [["edgesim"], ["topologies"]], "where Ray unpacked what was shipped"
    assert "sending them this one" in said.getvalue()
