"""Which cluster an address means, and what is said before Ray would try for minutes to join it."""

from __future__ import annotations

import asyncio
import errno
import io
import json
import os
import platform
import re
import socket
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from threading import Event
from types import SimpleNamespace

import grpc
import pytest
import ray
from ray.core.generated import gcs_service_pb2, gcs_service_pb2_grpc
from rich.console import Console

from edgesim.fleet.on_ray import addresses, cluster, leaving, own_ray
from edgesim.fleet.on_ray.addresses import AddressError, HeadLostError, check_auth_mode
from edgesim.fleet.on_ray.placement import FleetError, NodeLostError

HERE = {"ray_version": ray.__version__, "python_version": platform.python_version()}


class Kept(gcs_service_pb2_grpc.InternalKVGcsServiceServicer):
    """Answers as the head of a cluster does."""

    def __init__(self, versions: dict[str, str] | None) -> None:
        self._versions = versions

    def InternalKVGet(self, request, context):
        assert (request.namespace, request.key) == (b"cluster", b"CLUSTER_METADATA")
        if self._versions is None:
            words = "InvalidAuthToken: Authentication token is missing or incorrect"
            context.abort(grpc.StatusCode.UNAUTHENTICATED, words)
        return gcs_service_pb2.InternalKVGetReply(value=json.dumps(self._versions).encode())


class Alive(gcs_service_pb2_grpc.NodeInfoGcsServiceServicer):
    def CheckAlive(self, request, context):
        return gcs_service_pb2.CheckAliveReply()


@contextmanager
def a_head(versions: dict[str, str] | None):
    """Address of what answers as a head; None asks for another token."""
    server = grpc.server(ThreadPoolExecutor(1))
    gcs_service_pb2_grpc.add_InternalKVGcsServiceServicer_to_server(Kept(versions), server)
    gcs_service_pb2_grpc.add_NodeInfoGcsServiceServicer_to_server(Alive(), server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        server.stop(None).wait()


def find(address: str) -> tuple[str, str]:
    said = io.StringIO()
    return addresses.find_cluster(address, Console(file=said, width=200)), said.getvalue()


@pytest.fixture
def machine(monkeypatch):
    """Sets which raylets are on this machine: the address of each one's head, and its folder."""
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setattr(addresses, "maybe_enable_token_auth_if_token_available", lambda **_: None)

    def has(*raylets: tuple[str, str]) -> None:
        lines = [
            ["/venv/ray/raylet", f"--temp_dir={folder}", "-x", f"--gcs-address={head}", ""]
            for head, folder in raylets
        ]
        lines += [[""], ["/bin/less", "--gcs-address=10.0.0.9:1"]]
        monkeypatch.setattr(addresses, "_command_lines", lambda: iter(lines))

    return has


# --- what auto is


def test_auto_is_the_cluster_of_this_machine_and_no_ray_of_a_run(machine):
    with a_head(HERE) as head:
        machine(("127.0.0.1:1", "/tmp/edgesim-x_1/r"), (head, "/tmp/ray"), (head, "/tmp/ray"))
        assert find("auto") == (
            head,
            f"--address auto: the Ray cluster at {head} (of this machine)\n",
        )


def test_auto_says_that_there_is_no_cluster_or_that_there_are_several(machine):
    machine(("127.0.0.1:1", "/tmp/edgesim-x_1/r"))
    with pytest.raises(AddressError, match=r"no Ray cluster on this machine; start one with `ray"):
        find("auto")
    machine(("10.0.0.2:6379", "/tmp/ray"), ("10.0.0.1:6379", "/scratch/ray"))
    with pytest.raises(AddressError, match=r"at 10\.0\.0\.1:6379, 10\.0\.0\.2:6379; name the HOST"):
        find("auto")


def test_auto_is_first_of_all_what_ray_address_says(machine, monkeypatch):
    machine(("10.0.0.2:6379", "/tmp/ray"))
    with a_head(HERE) as head:
        monkeypatch.setenv("RAY_ADDRESS", head)
        assert find("auto") == (head, f"--address auto: the Ray cluster at {head} (RAY_ADDRESS)\n")
    with pytest.raises(
        AddressError, match=rf"RAY_ADDRESS is {head}: no Ray cluster there .*refused"
    ):
        find("auto")


def test_processes_of_this_machine_are_found():
    assert any("pytest" in " ".join(words) for words in addresses._command_lines())


# --- what is no address


@pytest.mark.parametrize(
    ("address", "said"),
    [
        (
            "http://127.0.0.1:8265",
            "8265: that is a dashboard; name HOST:PORT of the cluster, such as 127.0.0.1:6379",
        ),
        ("head", "--address head: HOST:PORT is meant, such as head:6379, or auto"),
        ("head:ray", "--address head:ray: HOST:PORT is meant, or auto"),
        ("", "--address: HOST:PORT is meant, or auto"),
        ("head:65536", "--address head:65536: a port is a number from 1 to 65535"),
        ("head:0", "--address head:0: a port is a number from 1 to 65535"),
    ],
)
def test_what_is_no_address_is_told(address, said):
    with pytest.raises(AddressError, match=re.escape(said)):
        find(address)


# --- who is let in


def test_a_cluster_that_lets_this_process_in_is_taken_without_a_word():
    with a_head(HERE) as head:
        assert find(head) == (head, "")


@pytest.mark.parametrize(("is_enabled", "sent"), [(False, "none"), (True, "another one")])
def test_a_token_that_is_lacking_or_wrong_is_named(monkeypatch, is_enabled, sent):
    monkeypatch.setattr(addresses, "is_token_auth_enabled", lambda: is_enabled)
    expected = f"asks for a token, and this process sends {sent}; set RAY_AUTH_MODE=token and"
    with a_head(None) as head, pytest.raises(AddressError, match=expected):
        find(head)


def test_another_python_is_told_with_both_versions():
    here = f"this process has {platform.python_version()} and {ray.__version__}; use the same"
    expected = re.escape(f"the cluster has Python 3.9.1 and Ray 2.60.9, {here}")
    with (
        a_head({"ray_version": "2.60.9", "python_version": "3.9.1"}) as head,
        pytest.raises(AddressError, match=expected),
    ):
        find(head)


def test_what_is_no_ray_is_told_at_once():
    server = grpc.server(ThreadPoolExecutor(1))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        with pytest.raises(AddressError, match="what listens there is no Ray cluster"):
            find(f"127.0.0.1:{port}")
    finally:
        server.stop(None).wait()


@pytest.mark.parametrize("mode", ["token", "disabled", "Token", ""])
def test_modes_of_authentication_that_ray_knows(monkeypatch, mode):
    monkeypatch.setenv("RAY_AUTH_MODE", mode)
    check_auth_mode()


def test_another_mode_of_authentication_is_refused_by_its_name(monkeypatch):
    monkeypatch.setenv("RAY_AUTH_MODE", "tokn")
    with pytest.raises(FleetError, match="RAY_AUTH_MODE is 'tokn', which Ray does not know; it k"):
        check_auth_mode()


# --- a head that ends


def test_a_head_is_lost_once_it_has_failed_to_answer_some_times(monkeypatch):
    monkeypatch.setattr(addresses, "HEAD_POLL_S", 0.01)
    monkeypatch.setattr(addresses, "HEAD_TIMEOUT_S", 0.05)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound, so that nobody else is there, but not listening
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(HeadLostError, match=rf"of the cluster at {address} does not answer"):
            asyncio.run(addresses.watch_head(address))
        with pytest.raises(HeadLostError, match=r"Ray's server on this machine .*: resume the run"):
            asyncio.run(addresses.watch_head(address, is_own=True))


def test_a_head_that_answers_now_and_then_is_there(monkeypatch):
    """Hours pass with each question, as for a program that is stopped; they count as two polls."""
    answers, clock_s = iter([False] * 3 + [True] + [False] * 4), iter(range(0, 360_000, 3600))
    monkeypatch.setattr(addresses, "HEAD_POLL_S", 0.001)
    monkeypatch.setattr(addresses, "HEAD_TIMEOUT_S", 0.007)
    monkeypatch.setattr(addresses, "monotonic", lambda: next(clock_s))
    monkeypatch.setattr(addresses, "_head_answers", lambda _: next(answers))
    with pytest.raises(HeadLostError):
        asyncio.run(addresses.watch_head("head:6379"))
    assert next(answers, None) is None, "four questions after the last answer"


def test_a_living_head_answers():
    with a_head(HERE) as head:
        assert addresses._head_answers(head)


@pytest.mark.parametrize(
    ("kind", "waits"), [(HeadLostError, False), (KeyboardInterrupt, False), (None, True)]
)
def test_a_cluster_without_its_head_is_left_at_once(monkeypatch, kind, waits):
    """Ray would wait for the answer of a machine that is gone."""
    answer, left, at_end = Event(), [], []

    def leave() -> None:
        assert waits or answer.wait(60)
        left.append(True)

    monkeypatch.setattr("ray.shutdown", leave)
    for name in ("LEAVE_TIMEOUT_S", "LOST_TIMEOUT_S"):
        monkeypatch.setattr(leaving, name, 0.01)
    monkeypatch.setattr("atexit.register", lambda *call: at_end.append(call))
    leaving.leave(kind, None, None)
    assert left == [True] * waits
    answer.set()
    if waits:
        assert not at_end
        return
    ((end, thread),) = at_end
    thread.join(60)
    end(thread)  # does nothing: Ray has answered after all


def test_the_end_of_the_node_of_this_machine_is_noticed_at_once(tmp_path):
    async def end_a_node() -> None:
        path, asked = str(tmp_path / "raylet"), asyncio.Event()

        async def hold(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            asked.set()
            await ended.wait()
            writer.close()

        ended = asyncio.Event()
        node = await asyncio.start_unix_server(hold, path)
        watching = asyncio.create_task(addresses.watch_node(path))
        async with asyncio.timeout(60):
            await asked.wait()
            assert not watching.done()
            ended.set()
            node.close()
            await watching

    with pytest.raises(NodeLostError, match="resume the run in a new process, on"):
        asyncio.run(end_a_node())


def test_a_node_is_not_lost_because_this_process_has_too_many_files_open(tmp_path, monkeypatch):
    failures = iter([OSError(errno.EMFILE, "Too many open files"), BlockingIOError()])
    connect, tries = asyncio.open_unix_connection, []

    async def try_to_connect(path):
        tries.append(path)
        if (failure := next(failures, None)) is not None:
            raise failure
        return await connect(path)

    monkeypatch.setattr(addresses, "HEAD_POLL_S", 0.001)
    monkeypatch.setattr("asyncio.open_unix_connection", try_to_connect)
    with pytest.raises(NodeLostError):
        asyncio.run(addresses.watch_node(str(tmp_path / "no-raylet")))
    assert len(tries) == 3, "only where nobody is at the socket the node has ended"


def test_ray_is_not_asked_for_anything_without_its_node(monkeypatch):
    at_end = []
    monkeypatch.setattr("ray.shutdown", None)
    monkeypatch.setattr("atexit.register", at_end.append)
    leaving.leave(NodeLostError)
    assert len(at_end) == 1


@pytest.mark.parametrize("chosen", [None, "70"])
@pytest.mark.parametrize("is_own", [False, True])
def test_ray_does_not_end_a_driver_before_edgesim_has_spoken(monkeypatch, tmp_path, chosen, is_own):
    """By default it ends the process a minute after the last answer of a head."""
    name, seen = "RAY_gcs_rpc_server_reconnect_timeout_s", []
    monkeypatch.delenv(name, raising=False)
    if chosen:
        monkeypatch.setenv(name, chosen)

    def join(**_):
        seen.append(os.environ[name])
        return SimpleNamespace(dashboard_url=None)

    monkeypatch.setattr("ray.init", join)
    if is_own:
        own_ray._start(tmp_path, None, dashboard=False)
    else:
        cluster._join("head:6379", [])
    assert seen == [chosen or "600"]
    assert float(seen[0]) > addresses.HEAD_TIMEOUT_S + 2 * addresses.HEAD_POLL_S
    assert os.environ.get(name) == chosen
