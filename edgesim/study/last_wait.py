"""What a device at free pace still does after its last step, until its neighbours have ended.

Neighbours that train on send it messages. It awaits and absorbs them, awake and at idle power, so
that fast devices of a mixed fleet spend energy until slow ones have ended
(`edgesim.hardware.free_clock`).
"""

from __future__ import annotations

from collections.abc import Sequence

from edgesim.costs.round_work import gossip_work
from edgesim.hardware.energy import Activity
from edgesim.hardware.work import Work
from edgesim.study.iteration import DeviceCosts, IterationCosts


def last_waits(costs: IterationCosts, rounds: Sequence[float]) -> tuple[Activity, ...]:
    """Activity of each device after its last step; nothing in lockstep.

    Where the clocks have run the whole training, it is that of the clocks, and the messages are
    among those of the device's rounds. Otherwise a neighbour sends as often as in the mean of its
    rounds, and its last message arrives as it ends. A run differs from that by the time between
    two messages of an edge.

    Args:
        costs: costs of an iteration, with times.
        rounds: of each device in the whole training.
    """
    if costs.whole is not None:
        return tuple(_idle(wait_s) for wait_s in costs.whole.wait_s)
    ends_s = [_end_s(device, n) for device, n in zip(costs.devices, rounds, strict=True)]
    return tuple(_last_wait(costs, device, ends_s) for device in costs.devices)


def _end_s(device: DeviceCosts, rounds: float) -> float:
    return rounds * device.time.cycle.period_s if device.time is not None else 0.0


def _idle(wait_s: float) -> Activity:
    return Activity(work=Work(), sent_bytes=0, received_bytes=0, compute_s=0.0, wait_s=wait_s)


def _last_wait(costs: IterationCosts, device: DeviceCosts, ends_s: Sequence[float]) -> Activity:
    time, profile = device.time, device.profile
    if time is None or profile is None or not time.cycle.absorbed_from:
        return _idle(0.0)
    cycle, end_s = time.cycle, ends_s[device.device]
    later_s = {sender: max(ends_s[sender] - end_s, 0.0) for sender in cycle.absorbed_from}
    messages = sum(
        later_s[sender] / cycle.period_s * in_a_round
        for sender, in_a_round in cycle.absorbed_from.items()
    )
    own = costs.studied.algorithm
    work = gossip_work(own, own.layout.numel, 0, 1).each(lambda count: count * messages)
    awake_part = (cycle.compute_s + cycle.wait_s) / cycle.period_s
    return Activity(
        work=work,
        sent_bytes=0,
        received_bytes=round(messages * device.received_bytes / device.messages_received),
        compute_s=profile.compute_s(work),
        wait_s=max(later_s.values()) * awake_part,
    )
