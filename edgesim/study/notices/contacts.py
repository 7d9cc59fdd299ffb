"""Contact traces that the messages of a scenario do not fit: late rounds, and short contacts."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from edgesim.assembly.equipment import device_hardware
from edgesim.assembly.message_costs import NoiseMessages
from edgesim.assembly.parts.own_errors import own_code
from edgesim.assembly.studied_scenario import StudiedScenario
from edgesim.hardware.timeline import Hardware
from edgesim.study.rounds.mean_rounds import Works
from edgesim.study.rounds.critical_path import LimitKind, seconds_by_kind
from edgesim.study.rounds.steady_state import (
    FEW_EVENTS,
    BytesBetween,
    edges_of_exchange,
    find_steady_state,
)
from topologies import ContactTrace, Schedule

_LEAST_LATE = 0.05  # of the seconds that a round stands for; less, as by handovers, is not told
_REMEDIES: dict[LimitKind, str] = {
    "sending": "sending takes most of the time: send less (gossip.compressor) or over faster links",
    "latency": "latency takes most of the time: choose links with less of it (network.latency_ms)",
    "computing": "computing takes most of the time: choose faster boards (fleet) or smaller steps",
    "sleep": "sleep takes most of the time: let devices be awake for longer (fleet.duty_cycle)",
}


@own_code("while the bytes of a message are counted")
def contact_notices(studied: StudiedScenario, num_rounds: int) -> list[str]:
    """Rounds that take longer than they stand for, and contacts too short for a message.

    Args:
        studied: the scenario, as objects.
        num_rounds: largest number of rounds of a device.
    """
    if studied.schedule.seconds_per_round is None:
        return []
    hardware = device_hardware(studied.scenario, studied.schedule)
    if not hardware:
        return []
    bytes_between = NoiseMessages().bytes_between(studied.algorithm)
    return [
        *_late_rounds(studied, num_rounds, hardware, bytes_between),
        *_short_contacts(studied.schedule, hardware, bytes_between),
    ]


def _late_rounds(
    studied: StudiedScenario,
    num_rounds: int,
    hardware: Sequence[Hardware],
    bytes_between: BytesBetween,
) -> list[str]:
    """Rounds in lockstep that end after their seconds of the trace, in the first ones at least."""
    schedule, seconds = studied.schedule, studied.schedule.seconds_per_round
    if seconds is None or not studied.scenario.fleet.rules.waits_for_all:
        return []
    rounds = max(1, min(int(FEW_EVENTS / _events_of_round(schedule)), num_rounds))
    work, seed = Works(studied).in_round, studied.scenario.seed
    state = find_steady_state(hardware, schedule, work, bytes_between, seed, num_rounds=rounds)
    late_s = max(device.most_late_s for device in state.devices)
    if late_s < _LEAST_LATE * seconds:
        return []
    which = "rounds" if rounds == num_rounds else f"of the first {rounds:,} rounds some"
    causes = (kind for kind in seconds_by_kind(state.late_limits) if kind != "trace")
    cause = next(causes, "sleep")  # without an event it slept on where its step ended
    said = (
        f"topology: {which} end up to {late_s:,.4g} s after the {seconds:g} s of the contact trace "
        f"that each stands for, so devices meet later than the trace says; {_REMEDIES[cause]}, "
        "or choose fleet.pace: free"
    )
    return [said]


def _short_contacts(
    schedule: Schedule, hardware: Sequence[Hardware], bytes_between: BytesBetween
) -> list[str]:
    """Contacts that end before a message would have been sent; both ways of one count once."""
    trace = _trace(schedule)
    if trace is None:
        return []
    num_short = num_contacts = 0
    needed_s: list[float] = []
    for (sender, receiver), lengths_s in trace.lengths_s.items():
        if sender > receiver and trace.lengths_s.get((receiver, sender)) == lengths_s:
            continue
        bits = 8 * bytes_between(sender, receiver)
        message_s = bits / hardware[sender].links[receiver].bandwidth_bps
        num_here = int(np.count_nonzero(np.asarray(lengths_s) < message_s))
        num_short, num_contacts = num_short + num_here, num_contacts + len(lengths_s)
        needed_s += [message_s] if num_here else []
    if not num_short:
        return []
    least, most = (f"{limit(needed_s):,.3g}" for limit in (min, max))
    needs = f"{least} s" if least == most else f"{least} to {most} s"
    last = "lasts" if num_short == 1 else "last"
    said = (
        f"topology: {num_short:,} of {num_contacts:,} contacts {last} less than a message needs on "
        f"its link ({needs}), and carry it all the same; send less (gossip.compressor), or leave "
        "such contacts out of the trace"
    )
    return [said]


def _events_of_round(schedule: Schedule) -> float:
    """Steps and messages of the first round, or of a mean one of the trace if they are more."""
    edges, trace = float(edges_of_exchange(schedule)), _trace(schedule)
    if trace is not None:
        spans = (np.asarray(changes).reshape(-1, 2) for changes in trace.contacts.values())
        edges = max(edges, sum(int(np.diff(span).sum()) for span in spans) / trace.num_rounds)
    return schedule.num_devices + edges


def _trace(schedule: Schedule) -> ContactTrace | None:
    """The contact trace that a schedule has its graphs from, if it is one."""
    while (inner := getattr(schedule, "schedule", None)) is not None:  # presence
        schedule = inner
    return schedule if isinstance(schedule, ContactTrace) else None
