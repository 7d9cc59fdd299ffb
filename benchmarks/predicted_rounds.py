"""What the virtual clock says of a fleet in lockstep: length of rounds, arrivals of messages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from pathlib import Path
from typing import TypeAlias

import edgesim
from edgesim.assembly.equipment import device_hardware
from edgesim.assembly.message_costs import NoiseMessages
from edgesim.assembly.studied_scenario import StudiedScenario
from edgesim.hardware.profiles import DeviceProfile, LayerTime
from edgesim.hardware.timeline import Hardware, Stamp, Timeline
from edgesim.study.rounds.mean_rounds import Works
from edgesim.study.rounds.steady_state import find_steady_state

Edge: TypeAlias = tuple[int, int]
Arrivals: TypeAlias = Mapping[Edge, Sequence[float]]
"""Times of the messages of each edge, one a round."""


@dataclass(frozen=True, slots=True)
class Prediction:
    """Of the settled fleet.

    Attributes:
        round_s: from one round to the next.
        compute_s: of each device's step, with its gossip.
        message_bytes: of an encoded message.
        arrivals: for some rounds.
    """

    round_s: float
    compute_s: tuple[float, ...]
    message_bytes: int
    arrivals: Arrivals


def predict(
    path: Path,
    num_rounds: int,
    compute_s: Sequence[float] | None = None,
    *,
    piece_bytes: float = inf,
) -> Prediction:
    """What the clocks of a scenario say.

    Args:
        path: of the scenario.
        num_rounds: whose arrivals are returned, once the fleet has settled.
        compute_s: seconds of each device's step; None: as its profile has it.
        piece_bytes: of the messages of a step, pieces of this length leave in turn; inf: one
            message after the other, as the clock has it. Of arrivals alone.
    """
    costs = edgesim.cost(path, advice=False).study.costs
    studied, works = costs.studied, Works(costs.studied)
    hardware = device_hardware(studied.scenario, studied.schedule)
    steady = costs.steady_state
    assert steady is not None, "its devices have profiles"
    own_s = tuple(own.profile.compute_s(works.in_round(i, 0)) for i, own in enumerate(hardware))
    bytes_between = NoiseMessages().bytes_between(studied.algorithm)
    if compute_s is not None:
        hardware = tuple(
            replace(own, profile=slowed(own.profile, wanted_s / has_s))
            for own, wanted_s, has_s in zip(hardware, compute_s, own_s, strict=True)
        )
        own_s = tuple(compute_s)
        steady = find_steady_state(
            hardware, studied.schedule, works.in_round, bytes_between, studied.scenario.seed
        )
    arrivals = _arrivals(studied, hardware, steady.warm_up_rounds, num_rounds, piece_bytes)
    return Prediction(steady.period_s, own_s, costs.message.encoded.total, arrivals)


def slowed(profile: DeviceProfile, factor: float) -> DeviceProfile:
    """A processor whose every time is longer by a factor."""
    return replace(
        profile,
        int8_macs_per_s=profile.int8_macs_per_s / factor,
        bits16_macs_per_s=profile.bits16_macs_per_s / factor,
        fp32_macs_per_s=profile.fp32_macs_per_s / factor,
        memory_bandwidth=profile.memory_bandwidth / factor,
        elementwise_ops_per_s=None
        if profile.elementwise_ops_per_s is None
        else profile.elementwise_ops_per_s / factor,
        layer_times=tuple(
            LayerTime(
                kind=time.kind,
                call_s=time.call_s * factor,
                s_per_mac=time.s_per_mac * factor,
                s_per_entry=time.s_per_entry * factor,
                s_per_far_entry=time.s_per_far_entry * factor,
                s_per_weight=time.s_per_weight * factor,
            )
            for time in profile.layer_times
        ),
    )


def ends_in_turn(lengths: Sequence[int], piece_bytes: float) -> list[float]:
    """Bytes that an uplink has carried when each message ends, if pieces of all leave in turn."""
    left, ends, carried = [float(length) for length in lengths], [0.0] * len(lengths), 0.0
    while any(left):
        for place, rest in enumerate(left):
            piece = min(rest, piece_bytes)
            carried, left[place] = carried + piece, rest - piece
            if piece and not left[place]:
                ends[place] = carried
    return ends


def _arrivals(
    studied: StudiedScenario,
    hardware: Sequence[Hardware],
    warm_up: int,
    num_rounds: int,
    piece_bytes: float,
) -> Arrivals:
    """Arrivals of a run of the clocks, after rounds of warm-up."""
    seed, schedule, works = studied.scenario.seed, studied.schedule, Works(studied)
    bytes_between = NoiseMessages().bytes_between(studied.algorithm)
    clocks = [Timeline(own, seed, device) for device, own in enumerate(hardware)]
    arrivals: dict[Edge, list[float]] = {}
    for r in range(warm_up + num_rounds):
        inboxes: list[list[tuple[int, Stamp]]] = [[] for _ in clocks]
        for device, clock in enumerate(clocks):
            clock.step(works.in_round(device, r), r)
            receivers = [receiver for receiver, _ in schedule.out_edges(device, r)]
            lengths = [bytes_between(device, receiver) for receiver in receivers]
            stamps = [
                clock.send((device, receiver), num_bytes, r)
                for receiver, num_bytes in zip(receivers, lengths, strict=True)
            ]
            for place, (receiver, sent) in enumerate(zip(receivers, stamps, strict=True)):
                whole_s = stamps[-1].sent_s - stamps[0].start_s
                part = ends_in_turn(lengths, piece_bytes)[place] / sum(lengths)
                stamp = replace(sent, arrival_s=stamps[0].start_s + part * whole_s)
                inboxes[receiver].append((device, stamp))
                if r >= warm_up:
                    arrivals.setdefault((device, receiver), []).append(stamp.arrival_s)
        for clock, inbox in zip(clocks, inboxes, strict=True):
            clock.end_round(inbox)
    return arrivals
