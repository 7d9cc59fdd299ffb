"""What a run needs of its process while it goes on: threads, memory, maybe Ray."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from edgesim.errors import ScenarioError
from edgesim.fleet.environment import quiet_ray
from edgesim.fleet.on_ray.access import place_of
from edgesim.fleet.on_ray.workers import Workers
from edgesim.fleet.recording.view import View
from edgesim.learning.allocator import keep_freed_memory
from edgesim.learning.threads import one_thread


@contextmanager
def session(
    address: str | None,
    run: Path | str,
    *,
    inline: bool,
    dashboard: bool,
    view: View,
    workers: Workers | None = None,
) -> Iterator[str]:
    """Context of a run, with Ray or inline; yields its mode.

    Raises:
        ScenarioError: an address is given for a run inline.
    """
    if inline and address is not None:
        raise ScenarioError(
            f"--address is {address}, a cluster of Ray, which a run with --inline does without: "
            "give one of both"
        )
    keep_freed_memory()
    with one_thread():  # results must not depend on how many threads share a sum
        if inline:
            yield "inline"
            return
        where = "starting Ray on this machine" if address is None else f"joining Ray at {address}"
        view.stage(where)
        quiet_ray()
        from edgesim.fleet.on_ray import launch  # loads Ray, which inline runs do without

        place, console = place_of(run), view.console
        with launch.ray_session(
            address, dashboard=dashboard, console=console, run=place, workers=workers
        ):
            yield "ray"
