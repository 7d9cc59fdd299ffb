"""What a run says at its end: models at chance, silence, late rounds, batteries, lost mass."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from math import inf, isnan
from typing import Any

import numpy as np
import pyarrow as pa

from edgesim.assembly.build import make_task
from edgesim.assembly.gossip import algorithm_named
from edgesim.assembly.parts.own_calls import is_own
from edgesim.assembly.prepared_run import PreparedRun
from edgesim.errors import device_label
from edgesim.fleet.recording.departures import last_push_weights
from edgesim.gossip.optional_members import own_schedule
from edgesim.learning.tasks import Classification
from edgesim.results.arrow_table import numbers_of
from edgesim.results.snapshot import Snapshot
from edgesim.scenario.presence import make_timed_churn
from topologies import Schedule, TimedChurn

LEAST_SHARE = 0.5  # of the rounds with an exchange, in which something is sent
_LEAST_LATE = 0.05  # of the seconds that a round stands for; less, as by handovers, is not told
_NAMED = 4  # devices in a warning
_ROUNDING = 1e-6  # relative; push weights are double, and a million rounds change a sum by 1e-10


def chance_warning(consensus: Mapping[str, Any], prepared: PreparedRun) -> str | None:
    """What to say of a classification that ends at chance; None if it does not.

    Args:
        consensus: the last evaluation of the averaged model.
        prepared: what was run.
    """
    accuracy, labels = consensus["accuracy"], prepared.test_labels
    if accuracy is None or type(make_task(prepared.scenario)) is not Classification:
        return None
    most_frequent = int(np.bincount(labels).max()) / len(labels)
    if accuracy > most_frequent or most_frequent == 1:
        return None
    evaluated = prepared.scenario.data.evaluated
    return (
        "the averaged model is no better than a guess: it classifies "
        f"{100 * accuracy:.4g} % of the {evaluated} correctly, and whoever always names their "
        f"most frequent class {100 * most_frequent:.4g} %; train longer, or with another "
        "learning rate"
    )


def silence_warning(
    rounds: pa.Table, schedule: Schedule, timed_churn: TimedChurn, dead_s: Mapping[int, float]
) -> str | None:
    """What to say of a run at free pace whose devices skipped most exchanges; None if they did not.

    A device sends nothing while its radio still sends messages of an earlier round. Rounds count
    in which it had somebody to send to, and a model.

    Args:
        rounds: rows of rounds.parquet.
        schedule: of the fleet's graphs.
        timed_churn: presence of the devices by plan.
        dead_s: when devices died, by device.
    """
    numbers, sent = (numbers_of(rounds[name]) for name in ("round", "messages_sent"))
    is_silent = ((numbers + 1) % schedule.exchange_every == 0) & (sent == 0)
    silent, num_sent = rounds.filter(pa.array(is_silent)), int(np.count_nonzero(sent))
    if num_sent >= LEAST_SHARE * (num_sent + len(silent)):
        return None

    def is_there(receiver: int, time_s: float) -> bool:
        return timed_churn.is_present(receiver, time_s) and time_s < dead_s.get(receiver, inf)

    num_due = num_sent + sum(
        any(is_there(receiver, end_s) for receiver, _ in schedule.out_edges(device, place))
        for device, place, end_s in _places(silent, schedule.seconds_per_round)
    )
    if num_sent >= LEAST_SHARE * num_due:
        return None
    return (
        f"at free pace devices sent messages in {num_sent:,} of {num_due:,} rounds with an "
        "exchange, since a busy radio skips messages; so models mixed seldom: compress more, or "
        "raise gossip.local_steps or network.bandwidth_mbps"
    )


def _places(rounds: pa.Table, seconds: float | None) -> Iterator[tuple[int, int, float]]:
    """Device, round of the schedule, and end of the step of each round with a step.

    Args:
        rounds: rows of rounds.parquet.
        seconds: of a round of the schedule; None where devices' own rounds are meant.
    """
    names = ("device", "round", "loss", "virtual_time_s", "virtual_wait_s")
    rows = (numbers_of(rounds[name]).tolist() for name in names)
    for device, number, loss, time_s, wait_s in zip(*rows, strict=True):
        # What was absorbed after the step took next to no time.
        end_s = time_s - wait_s
        if not isnan(loss):
            yield device, number if seconds is None else int(end_s / seconds), end_s


def late_rounds_warning(
    rounds: pa.Table, seconds: float | None, last_rounds: Mapping[str, int]
) -> str | None:
    """What to say of rounds in lockstep that ended after their seconds of a contact trace.

    Args:
        rounds: rows of rounds.parquet.
        seconds: that a round stands for; None without a trace.
        last_rounds: of devices that left; they end when all is handed over, and meet nobody later.
    """
    if seconds is None or "virtual_time_s" not in rounds.column_names:
        return None
    names = ("device", "round", "virtual_time_s")
    devices, numbers, ends_s = (numbers_of(rounds[name]) for name in names)
    lates_s = ends_s - (numbers + 1) * seconds
    for device, last in last_rounds.items():
        lates_s[(devices == int(device)) & (numbers == last)] = 0.0
    worst = int(lates_s.argmax())
    if lates_s[worst] < _LEAST_LATE * seconds:
        return None
    return (
        f"rounds ended up to {lates_s[worst]:,.4g} s (round {numbers[worst]:,}) after the "
        f"{seconds:g} s of the contact trace that each stands for, so devices met later than the "
        "trace says: shorten what takes the time (messages, steps or sleep, as edgesim cost and "
        "the report say), or choose fleet.pace: free"
    )


def overdraft_warning(rounds: pa.Table, names: Sequence[str]) -> str | None:
    """What to say of batteries that ended below 0; None if none did.

    A device looks at its battery between two rounds. So the round under way, and at free pace the
    wait after the last step, may take more than is left.

    Args:
        rounds: rows of rounds.parquet, in the order of rounds.
        names: of the devices; empty if they have none.
    """
    if "charge_left_j" not in rounds.column_names:
        return None
    devices, left_j = (numbers_of(rounds[name]) for name in ("device", "charge_left_j"))
    last_j = np.full(devices.max() + 1, np.nan)
    last_j[devices] = left_j  # of each device the last row counts
    below = np.flatnonzero(last_j < 0)
    if not len(below):
        return None
    worst = below[np.argsort(last_j[below], kind="stable")][:_NAMED].tolist()
    said = ", ".join(
        f"{device_label(device, names)} by {-last_j[device]:,.4g} J" for device in worst
    )
    more = f", and {len(below) - _NAMED:,} more" if len(below) > _NAMED else ""
    return (
        f"{said}{more} spent more than the battery held; a real device would have ended sooner: "
        "raise battery_wh"
    )


def mass_warning(began: float, ended: float) -> str | None:
    """What to say of an algorithm that has changed the sum of push weights; None if it has not.

    Args:
        began: sum over devices at the start.
        ended: sum over the same devices at the end; all of them are still there.
    """
    if abs(ended - began) <= _ROUNDING * began:
        return None
    return (
        f"gossip.algorithm: the sum of push weights over devices was {began:g} at the start and is "
        f"{ended:.6g} at the end: exchanges change the mass of which the averaged model is made; "
        "absorb_ must add at the receiver what send_ takes from the sender, of x and of u"
    )


def mass_warning_of(
    prepared: PreparedRun, rounds: pa.Table, ends: Sequence[Snapshot], gone: Mapping[str, Any]
) -> str | None:
    """That an algorithm of one's own changes the sum of push weights; None if nothing tells.

    Args:
        prepared: what was run.
        rounds: rows of rounds.parquet.
        ends: what each device ended with, at free pace.
        gone: entries of the summary about devices that left or died. They may take mass along.
    """
    scenario = prepared.scenario
    # One that chooses who sends may choose who has mass, too.
    if not is_own(scenario.gossip.algorithm) or own_schedule(algorithm_named(scenario)) is not None:
        return None
    if any(gone.get(key) for key in ("left_after_round", "dead_devices", "messages_lost")):
        return None
    if scenario.fleet.rules.waits_for_all:
        joins: Callable[[int], float] = prepared.schedule.presence.join_round
        weights = last_push_weights(rounds)
    else:
        joins = make_timed_churn(scenario).join_s
        weights = {end.device: end.u for end in ends}
    began = {device: float(joins(device) == 0) for device in range(scenario.fleet.num_devices)}
    return mass_warning(sum(began.values()), sum((began | weights).values()))


def silence_warning_of(
    prepared: PreparedRun, rounds: pa.Table, dead: Mapping[str, Mapping[str, float]]
) -> str | None:
    """What to say of devices that seldom sent, given those that died."""
    dead_s = {int(device): end["virtual_time_s"] for device, end in dead.items()}
    return silence_warning(rounds, prepared.schedule, make_timed_churn(prepared.scenario), dead_s)
