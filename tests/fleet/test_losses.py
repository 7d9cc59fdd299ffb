"""What is told of actors that are lost."""

from __future__ import annotations

import asyncio

import pytest
from ray.exceptions import ActorUnavailableError, RayActorError

from edgesim.fleet.on_ray.actor import ActorLostError
from edgesim.fleet.on_ray.losses import MAX_FRUITLESS_LOSSES, Losses

ENDED = ActorUnavailableError("The actor is temporarily unavailable", None)


def note(*losses: tuple[int, str, int, Exception]) -> None:
    """Note losses, each of a device with its machine and how many rounds it has done."""

    async def note_all() -> None:
        noted = Losses(lambda actors: ", ".join(f"device-{actor[0]}" for actor in actors))
        for device, host, rounds_done, error in losses:
            noted.note(range(device, device + 1), host, rounds_done, error)
        await asyncio.sleep(0)

    asyncio.run(note_all())


def test_actors_that_a_node_loses_at_once_are_told_in_one_line(caplog):
    dead = RayActorError(None, "The actor died because its node has died. Node Id: 12\nits IP: 3")
    note((0, "near", 1, ENDED), (1, "far", 1, ENDED), (2, "far", 1, ENDED), (3, "far", 1, dead))
    one, several = "its process or its node ended", "their processes or the node ended"
    assert caplog.messages == [
        f"{line} checkpoints"
        for line in (
            f"the actor device-0 on near was lost ({one}); it goes on from its",
            f"2 actors on far were lost ({several}): device-1, device-2; they go on from their",
            "the actor device-3 on far was lost (its node is gone); it goes on from its",
        )
    ]


def test_an_actor_that_ends_at_each_start_ends_the_run():
    """Ray may start it again and again without a word to the caller."""
    losses, first, most = Losses(lambda actors: f"{actors[0]}"), range(1), MAX_FRUITLESS_LOSSES
    losses.note_restarts({first: 7})
    losses.note_restarts({first: 6 + most, range(1, 2): 99})
    losses.note_restarts({range(1, 2): 98 + most})  # the first one has been built meanwhile
    losses.note_restarts({first: 7 + most})
    losses.note_built(first)  # between two looks
    losses.note_restarts({first: 7 + 2 * most})
    with pytest.raises(ActorLostError, match=r"range\(0, 1\) was lost 20 times before it had"):
        losses.note_restarts({first: 7 + 3 * most})


def test_an_actor_that_is_lost_again_and_again_ends_the_run():
    note(*[(0, "near", rounds_done, ENDED) for rounds_done in range(MAX_FRUITLESS_LOSSES + 1)])
    with pytest.raises(ActorLostError, match=r"actor device-0 was lost 20 times without a round"):
        note(*[(0, "near", 7, ENDED)] * MAX_FRUITLESS_LOSSES)
