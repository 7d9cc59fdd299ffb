"""Whether devices in lockstep can leave when they are to: each has its turns (docs/gossip.md)."""

from __future__ import annotations

from bisect import bisect_left

from edgesim.device.membership import turns_to_leave
from edgesim.errors import ScenarioError
from edgesim.scenario.fleet import FleetSection
from topologies import Schedule


def check_leaves(fleet: FleetSection, schedule: Schedule, num_rounds: int) -> None:
    """Check that each planned leave gets its turn before the end of the run.

    Raises:
        ScenarioError: one does not.
    """
    n, presence = schedule.num_devices, schedule.presence
    for device in range(n):
        leave_round = presence.leave_round(device)
        if leave_round is None:
            continue
        last = _last_turn(schedule, device, num_rounds)
        if last < leave_round:
            remedy = f"let it leave in round {last} or before, or " if last > 0 else ""
            raise ScenarioError(
                f"fleet.churn.leaves: {fleet.label(device)} can't leave in round {leave_round} or "
                f"later: a device leaves in its turn, one exchange in {n}, if a neighbour is there "
                f"then, and no such turn comes up to the last round, {num_rounds - 1}; {remedy}"
                "train for more rounds"
            )


def _last_turn(schedule: Schedule, device: int, num_rounds: int) -> int:
    """The last round in which a device may leave; -1 if there is none."""
    turns = turns_to_leave(schedule, device, num_rounds)
    for start, end in reversed(schedule.presence.spans(device)):
        # A device can leave in round r only if it was present in round r - 1.
        first_place = bisect_left(turns, start + 1)
        for r in reversed(turns[first_place : bisect_left(turns, end + 1)]):
            was_there = schedule.presence.is_present(device, r - 1)  # it may be absent at random
            if was_there and (schedule.out_edges(device, r) or schedule.num_devices == 1):
                return r
    return -1
