"""Counts losses of actors, and tells of them; one line has all that a node loses at once."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping

from ray.exceptions import ActorUnavailableError, RayActorError

from edgesim.fleet.on_ray.actor import ActorLostError
from edgesim.fleet.on_ray.own_ray import first_line

TELL_AFTER_S = 1.0  # in which the losses of one node come together
MAX_FRUITLESS_LOSSES = 20  # of one actor, without a round between them
_UNAVAILABLE = "its process or its node ended"  # Ray takes a node for lost some seconds later
_PLURAL = {
    _UNAVAILABLE: "their processes or the node ended",
    "its node is gone": "the node is gone",
}

_log = logging.getLogger(__name__)


class Losses:
    """Losses of the actors of a fleet, each known by its devices.

    Args:
        labels: actors in words.
    """

    def __init__(self, labels: Callable[[Iterable[range]], str]) -> None:
        self._labels = labels
        self._counts: dict[range, tuple[int, int]] = {}
        self._first_restarts: dict[range, int] = {}
        self._untold: dict[tuple[str, str], list[range]] = {}
        self._telling: asyncio.Task[None] | None = None

    def note(self, actor: range, host: str, rounds_done: int, error: RayActorError) -> None:
        """Take note of a loss, and tell of it soon.

        Args:
            actor: that is lost.
            host: name of the machine where it was.
            rounds_done: by its devices, as far as is known.
            error: of Ray's.

        Raises:
            ActorLostError: the actor is lost again and again.
        """
        reason = _reason(error)
        most_rounds, number = self._counts.get(actor, (-1, 0))
        number = number + 1 if rounds_done <= most_rounds else 1
        if number == MAX_FRUITLESS_LOSSES:
            raise ActorLostError(
                f"the actor {self._labels([actor])} was lost {number} times without a round between"
                f" them ({reason}): see its log in Ray's session folder, and whether its machine "
                "lacks memory"
            )
        self._counts[actor] = max(rounds_done, most_rounds), number
        self._untold.setdefault((host, reason), []).append(actor)
        if self._telling is None or self._telling.done():
            self._telling = asyncio.create_task(self._tell_soon())

    def note_restarts(self, absent: Mapping[range, int]) -> None:
        """Take note of how often actors were started again that have no devices yet.

        Args:
            absent: restarts of each such actor so far.

        Raises:
            ActorLostError: an actor ends at each start.
        """
        self._first_restarts = {
            actor: self._first_restarts.get(actor, number) for actor, number in absent.items()
        }
        for actor, number in absent.items():
            if (lost := number - self._first_restarts[actor]) >= MAX_FRUITLESS_LOSSES:
                raise ActorLostError(
                    f"the actor {self._labels([actor])} was lost {lost} times before it had built "
                    "its devices: see its log in Ray's session folder, and whether its machine "
                    "lacks memory or a package"
                )

    def note_built(self, actor: range) -> None:
        """Take note that an actor has built its devices: what it lost before counts no more."""
        self._first_restarts.pop(actor, None)

    async def _tell_soon(self) -> None:
        try:
            await asyncio.sleep(TELL_AFTER_S)
        finally:  # also where the run ends before
            self._tell()

    def _tell(self) -> None:
        for (host, reason), actors in self._untold.items():
            if len(actors) == 1:
                one = f"the actor {self._labels(actors)} on {host}"
                line = f"{one} was lost ({reason}); it goes on from its"
            else:
                line = (
                    f"{len(actors)} actors on {host} were lost ({_PLURAL.get(reason, reason)}): "
                    f"{self._labels(actors)}; they go on from their"
                )
            _log.warning("%s checkpoints", line)
        self._untold = {}


def _reason(error: RayActorError) -> str:
    """Ray's reason for the loss of an actor, without its general remarks."""
    if "node" in (line := first_line(error).strip()) and "died" in line:
        return "its node is gone"
    return _UNAVAILABLE if isinstance(error, ActorUnavailableError) else line
