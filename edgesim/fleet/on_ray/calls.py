"""Independent calls on a Ray cluster, as many at once as it has CPUs."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import ray
from ray.exceptions import RayError, RayTaskError
from rich.console import Console

from edgesim.fleet.on_ray import launch

LOOK_S = 1.0  # between looks at how many CPUs there are


def calls_on_cluster(
    address: str,
    work: Callable[..., Any],
    arguments: Mapping[str, tuple[Any, ...]],
    console: Console,
    most: int | None = None,
) -> Iterator[tuple[str, str, Any]]:
    """Call a function once for each name, each call in a process of the cluster, on one CPU.

    A call whose process or node is lost is repeated there or elsewhere.

    Args:
        address: of the cluster.
        work: importable on all nodes.
        arguments: of each call, by its name.
        console: told what is shipped to the nodes.
        most: calls at once; None: as many as the cluster has CPUs.

    Yields:
        A name with `begun` and None, `done` and what the call returned, or `failed` and the error
        that it raised.

    Raises:
        AddressError: there is no cluster at the address.
        FleetError: a node lacks what the call needs.
    """
    with launch.ray_session(address, dashboard=False, console=console):
        remote = ray.remote(num_cpus=1, max_retries=-1)(work)
        waiting, running = deque(arguments), dict[Any, str]()
        while waiting or running:
            room = most or max(1, int(ray.cluster_resources().get("CPU", 1)))
            while waiting and len(running) < room:
                name = waiting.popleft()
                running[remote.remote(*arguments[name])] = name
                yield name, "begun", None
            ended, _ = ray.wait(list(running), num_returns=1, timeout=LOOK_S)
            for call in ended:
                name = running.pop(call)
                try:
                    result = ray.get(call)
                except RayTaskError as error:
                    yield name, "failed", error.cause
                except RayError as error:
                    yield name, "failed", error
                else:
                    yield name, "done", result
