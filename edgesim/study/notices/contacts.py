"""Contact traces that the messages of a scenario do not fit: late rounds, and short contacts."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

import numpy as np

from edgesim.assembly.equipment import device_hardware
from edgesim.assembly.message_costs import NoiseMessages
from edgesim.assembly.parts.own_errors import own_code
from edgesim.assembly.studied_scenario import StudiedScenario
from edgesim.hardware.timeline import Hardware
from edgesim.study.rounds.critical_path import LimitKind, seconds_by_kind
from edgesim.study.rounds.mean_rounds import Works
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
    end_s = num_rounds * studied.schedule.seconds_per_round
    if not studied.scenario.fleet.rules.waits_for_all:
        end_s = studied.scenario.training.virtual_time_s or inf
    return [
        *_late_rounds(studied, num_rounds, hardware, bytes_between),
        *_short_contacts(studied.schedule, hardware, bytes_between, end_s),
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
    # Without an event it slept on where its step ended.
    cause: LimitKind = next(causes, "sleep")
    late = f"{late_s:,.4g}" if late_s < 1e4 else f"{late_s:,.0f}"
    said = (
        f"topology: {which} end up to {late} s after the {seconds:g} s of the contact trace "
        f"that each stands for, so devices meet later than the trace says; {_REMEDIES[cause]}, "
        "or choose fleet.pace: free"
    )
    return [said]


def _short_contacts(
    schedule: Schedule, hardware: Sequence[Hardware], bytes_between: BytesBetween, end_s: float
) -> list[str]:
    """Contacts that end before a message would have been sent; both ways of one count once.

    Contacts that begin after the end of the training don't count.
    """
    trace = _trace(schedule)
    if trace is None or not trace.spans_s:
        return []
    edges = [edge for edge, own in trace.spans_s.items() if not _is_way_back(trace, edge, own)]
    spans_s = np.concatenate([np.asarray(trace.spans_s[edge]) for edge in edges])
    begins_s, lengths_s = spans_s.reshape(-1, 2).T
    message_s = np.repeat(
        _message_seconds(trace, edges, hardware, bytes_between),
        [len(trace.spans_s[edge]) // 2 for edge in edges],
    )
    is_there = begins_s < end_s
    needed_s = message_s[is_there & (lengths_s < message_s)]
    num_short, num_contacts = len(needed_s), int(np.count_nonzero(is_there))
    if not num_short:
        return []
    least, most = f"{needed_s.min():,.3g}", f"{needed_s.max():,.3g}"
    needs = f"{least} s" if least == most else f"{least} to {most} s"
    last = "lasts" if num_short == 1 else "last"
    said = (
        f"topology: {num_short:,} of {num_contacts:,} contacts {last} less than a message needs on "
        f"its link ({needs}), and carry it all the same; send less (gossip.compressor), or leave "
        "such contacts out of the trace"
    )
    return [said]


def _is_way_back(trace: ContactTrace, edge: tuple[int, int], own_s: Sequence[float]) -> bool:
    sender, receiver = edge
    return sender > receiver and trace.spans_s.get((receiver, sender)) == own_s


def _message_seconds(
    trace: ContactTrace,
    edges: Sequence[tuple[int, int]],
    hardware: Sequence[Hardware],
    bytes_between: BytesBetween,
) -> list[float]:
    """Seconds of a message on each edge; links of the same figures are made once."""
    rates_bps: dict[tuple[float, float, float | None], float] = {}
    found = []
    for edge in edges:
        sender, receiver = edge
        ends_bps = (hardware[end].profile.radio.bandwidth_bps for end in edge)
        own_mbps = trace.link_figures.get(edge, {}).get("bandwidth_mbps")
        key = next(ends_bps), next(ends_bps), own_mbps
        if key not in rates_bps:
            rates_bps[key] = hardware[sender].links[receiver].bandwidth_bps
        found.append(8 * bytes_between(sender, receiver) / rates_bps[key])
    return found


def _events_of_round(schedule: Schedule) -> float:
    """Steps and messages of the first round, or of a mean one of the trace if they are more."""
    edges, trace = float(edges_of_exchange(schedule)), _trace(schedule)
    if trace is not None:
        changes = np.concatenate([np.asarray(own) for own in trace.contacts.values()])
        edges = max(edges, int(np.diff(changes.reshape(-1, 2)).sum()) / trace.num_rounds)
    return schedule.num_devices + edges


def _trace(schedule: Schedule) -> ContactTrace | None:
    """The contact trace that a schedule has its graphs from, if it is one."""
    while (inner := getattr(schedule, "schedule", None)) is not None:  # presence
        schedule = inner
    return schedule if isinstance(schedule, ContactTrace) else None
