"""Leaves a Ray whose head may be lost: Ray itself might wait for its answer without end."""

from __future__ import annotations

import atexit
import os
import sys
from contextlib import suppress
from threading import Thread

import ray

from edgesim.fleet.on_ray.addresses import HeadLostError
from edgesim.fleet.on_ray.placement import NodeLostError

LEAVE_TIMEOUT_S = 30.0  # for Ray to leave a cluster after an error
LOST_TIMEOUT_S = 5.0  # likewise, if its head is lost
PATIENT = {"RAY_gcs_rpc_server_reconnect_timeout_s": "600"}
"""Ray ends a driver whose head is lost, by default after a minute and without a word of ours."""


def leave(kind: type[BaseException] | None, *_: object) -> None:
    """Leave the cluster, or end one of our own."""
    if kind is None:
        ray.shutdown()
        return
    if issubclass(kind, NodeLostError):  # a word to Ray may be the last one of this process
        atexit.unregister(ray.shutdown)
        atexit.register(_end_now)
        return
    leaving = Thread(target=ray.shutdown, daemon=True)
    leaving.start()
    leaving.join(LOST_TIMEOUT_S if issubclass(kind, HeadLostError) else LEAVE_TIMEOUT_S)
    if leaving.is_alive():
        atexit.unregister(ray.shutdown)  # it would wait there again
        atexit.register(_end_at_once, leaving)


def _end_at_once(leaving: Thread) -> None:
    """End this process if Ray's threads still wait, which would crash its end."""
    if leaving.is_alive():
        _end_now()


def _end_now() -> None:
    with suppress(OSError, ValueError):  # nobody reads any more
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(1)
