"""Where a Ray cluster is, and whether it lets this process in.

Ray itself tries for a minute and more before it gives up, and tells the cause in lines of its own.
So the head is asked one thing beforehand, which takes some milliseconds.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import platform
import socket
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from time import monotonic
from urllib.parse import urlsplit

import grpc
import psutil  # Ray's own copy, where there is no other
import ray
from ray._private.authentication.authentication_token_setup import (
    maybe_enable_token_auth_if_token_available,
)
from ray._private.authentication.authentication_utils import is_token_auth_enabled
from ray._private.grpc_utils import init_grpc_channel
from ray._private.utils import check_version_info
from ray.core.generated.gcs_service_pb2 import (  # type: ignore[attr-defined]  # made at run time
    CheckAliveRequest,
    InternalKVGetRequest,
)
from ray.core.generated.gcs_service_pb2_grpc import InternalKVGcsServiceStub, NodeInfoGcsServiceStub
from ray.exceptions import AuthenticationError
from rich.console import Console

from edgesim.fleet.on_ray.placement import FleetError, NodeLostError
from edgesim.fleet.on_ray.private_folder import PREFIX

CONNECT_TIMEOUT_S = 10.0
ANSWER_TIMEOUT_S = 10.0  # of a head that is asked before joining
HEAD_POLL_S = 4.0  # between questions to a head during a run, and the time for an answer
HEAD_TIMEOUT_S = 45.0
MAX_PORT = 65535
AUTH_MODES = ("token", "disabled")
TOKEN_LOGGER = "ray._private.authentication.authentication_token_setup"  # noqa: S105 (a logger)
REMEDY_OF_TOKENS = (
    "set RAY_AUTH_MODE=token and RAY_AUTH_TOKEN (or RAY_AUTH_TOKEN_PATH) to the cluster's, which "
    "`ray get-auth-token` shows on its nodes"
)
_NO_ANSWER = {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED}
_NO_PROXY = [("grpc.enable_http_proxy", 0)]  # as Ray's own calls


class AddressError(FleetError, ValueError):
    """There is no Ray cluster at the given address, or it refuses this user."""


class HeadLostError(FleetError):
    """The head of the cluster has ended, and with it the cluster."""


def check_auth_mode() -> None:
    """Refuse a mode that Ray does not know: it would take it for no authentication at all.

    Raises:
        FleetError: there is such a mode.
    """
    mode = os.environ.get("RAY_AUTH_MODE", "")
    if mode and mode.lower() not in AUTH_MODES:
        known = " and ".join(AUTH_MODES)
        raise FleetError(f"RAY_AUTH_MODE is {mode!r}, which Ray does not know; it knows {known}")


def find_cluster(address: str, console: Console) -> str:
    """HOST:PORT of the cluster that is meant; it answers, and lets this process in.

    Args:
        address: as a user gives it; "auto" is RAY_ADDRESS, or the one cluster of this machine.
        console: told which cluster "auto" is.

    Raises:
        AddressError: there is no such cluster, or it would refuse this process.
    """
    if address != "auto":
        _check(address, f"--address {address}")
        return address
    if (found := os.environ.get("RAY_ADDRESS", "")) not in ("", "auto"):
        said, source = f"--address auto: RAY_ADDRESS is {found}", "RAY_ADDRESS"
    else:
        found, source = _only_cluster_here(), "of this machine"
        said = f"--address auto: {found}"
        logging.getLogger(TOKEN_LOGGER).setLevel(logging.ERROR)
        # As Ray does for a cluster that it has found itself, and for no other.
        maybe_enable_token_auth_if_token_available(warn_if_disabled=False)
    _check(found, said)
    line = f"--address auto: the Ray cluster at {found} ({source})"
    console.print(line, soft_wrap=True, markup=False, highlight=False)
    return found


def _only_cluster_here() -> str:
    clusters = _clusters_here()
    if not clusters:
        raise AddressError(
            "--address auto: no Ray cluster on this machine; start one with `ray start --head`, or "
            "name HOST:PORT"
        )
    if len(clusters) > 1:
        raise AddressError(
            f"--address auto: nodes of several Ray clusters are on this machine, those at "
            f"{', '.join(clusters)}; name the HOST:PORT that is meant"
        )
    return clusters[0]


def _clusters_here() -> list[str]:
    """Addresses of clusters that have a node here; Rays of edgesim's own runs are left out."""
    found = set()
    for words in _command_lines():
        if Path(words[0]).name != "raylet":
            continue
        flags = dict(word[2:].split("=", 1) for word in words[1:] if "=" in word)
        is_own = Path(flags.get("temp_dir", "")).parent.name.startswith(PREFIX)
        if not is_own and (address := flags.get("gcs-address")):
            found.add(address)
    return sorted(found)


def _command_lines() -> Iterator[list[str]]:
    """Command lines of the processes of this machine, in words."""
    for process in psutil.process_iter(["cmdline"]):
        if words := process.info["cmdline"]:  # None where it is hidden
            yield words


def _check(address: str, said: str) -> None:
    """Refuse an address that is none, where nobody listens, or whose cluster would refuse us."""
    host, port = _host_and_port(address, said)
    try:
        socket.create_connection((host, port), timeout=CONNECT_TIMEOUT_S).close()
    except (OSError, UnicodeError) as error:
        raise AddressError(
            f"{said}: no Ray cluster there ({error}); start one with `ray start --head`, or leave "
            "--address away"
        ) from error
    _ask(address, said)


def _host_and_port(address: str, said: str) -> tuple[str, int]:
    if address.startswith("ray://"):
        raise AddressError(
            f"{said}: a fleet can't be driven through a Ray client; run edgesim on a machine of "
            "the cluster with --address HOST:6379 or auto, or submit it as a Ray job"
        )
    if address.startswith(("http://", "https://")):
        host = urlsplit(address).hostname
        raise AddressError(
            f"{said}: that is a dashboard; name HOST:PORT of the cluster, such as {host}:6379"
        )
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal():
        example = f", such as {address}:6379" if address and ":" not in address else ""
        raise AddressError(f"{said.rstrip()}: HOST:PORT is meant{example}, or auto")
    if not 0 < int(port) <= MAX_PORT:
        raise AddressError(f"{said}: a port is a number from 1 to {MAX_PORT}")
    return host.strip("[]"), int(port)


def _ask(address: str, said: str) -> None:
    """Ask the head for its versions, which it tells to whom it lets in."""
    request = InternalKVGetRequest(key=b"CLUSTER_METADATA", namespace=b"cluster")
    try:
        with init_grpc_channel(address, _NO_PROXY) as channel:
            kept = InternalKVGcsServiceStub(channel)
            answer = kept.InternalKVGet(request, timeout=ANSWER_TIMEOUT_S)
    except AuthenticationError as error:  # RAY_AUTH_MODE is token
        raise AddressError(
            f"{said}: RAY_AUTH_MODE is token, and no authentication token was found; "
            f"{REMEDY_OF_TOKENS}"
        ) from error
    except (RuntimeError, OSError) as error:  # files of TLS
        raise AddressError(f"{said}: {error}; see RAY_USE_TLS in docs/deploy.md") from error
    except grpc.RpcError as error:
        if error.code() is grpc.StatusCode.UNAUTHENTICATED:
            sent = "another one" if is_token_auth_enabled() else "none"
            raise AddressError(
                f"{said}: the cluster asks for a token, and this process sends {sent}; "
                f"{REMEDY_OF_TOKENS}"
            ) from error
        if error.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
            return  # it may be busy: Ray has more patience
        reason = error.details().partition(";")[0]
        raise AddressError(
            f"{said}: what listens there is no Ray cluster, or one with TLS, which this process "
            f"must use as well: RAY_USE_TLS and its files ({reason})"
        ) from error
    if answer.value:
        _check_versions(json.loads(answer.value), said)


def _check_versions(versions: dict[str, str], said: str) -> None:
    try:
        check_version_info(versions, "this machine")
    except RuntimeError as error:
        raise AddressError(
            f"{said}: the cluster has Python {versions['python_version']} and Ray "
            f"{versions['ray_version']}, this process has {platform.python_version()} and "
            f"{ray.__version__}; use the same"
        ) from error


async def watch_head(address: str, *, is_own: bool = False) -> None:
    """Ask the head of a cluster again and again whether it is there.

    Args:
        address: of the head.
        is_own: the cluster is one of our own on this machine, which ends with the run.

    Raises:
        HeadLostError: it does not answer any more.
    """
    unanswered_s = 0.0
    while unanswered_s < HEAD_TIMEOUT_S:
        since_s = monotonic()
        await asyncio.sleep(HEAD_POLL_S)
        if await asyncio.to_thread(_head_answers, address):
            unanswered_s = 0.0
        else:  # time for which this program was stopped does not count
            unanswered_s += min(monotonic() - since_s, 2 * HEAD_POLL_S)
    if is_own:
        raise HeadLostError(
            "Ray's server on this machine (gcs_server) does not answer any more; most likely it was"
            " killed, or the machine lacks memory: resume the run"
        )
    raise HeadLostError(
        f"the head of the cluster at {address} does not answer any more, and the cluster ends with "
        "it: start a cluster, then resume the run there"
    )


async def watch_node(socket_path: str) -> None:
    """Wait for the end of Ray's node process on this machine, without which Ray ends its drivers.

    Args:
        socket_path: of its socket. It says nothing to who asks nothing.

    Raises:
        NodeLostError: it has ended.
    """
    while True:
        try:
            reader, writer = await asyncio.open_unix_connection(socket_path)
        except (ConnectionRefusedError, FileNotFoundError):
            break
        except OSError:  # of this process, such as too many open files, or of a long queue
            await asyncio.sleep(HEAD_POLL_S)
            continue
        try:
            with suppress(ConnectionError):
                await reader.read()
        finally:
            writer.close()
        break
    raise NodeLostError(
        "Ray's node on this machine (raylet) has ended, and with it what this process needs of Ray:"
        " resume the run in a new process, on a cluster when the node is there again"
    )


def _head_answers(address: str) -> bool:
    try:
        with init_grpc_channel(address, _NO_PROXY) as channel:
            NodeInfoGcsServiceStub(channel).CheckAlive(CheckAliveRequest(), timeout=HEAD_POLL_S)
    except grpc.RpcError as error:
        return error.code() not in _NO_ANSWER
    return True
