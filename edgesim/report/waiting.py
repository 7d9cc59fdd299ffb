"""Who waited for whom in lockstep, and what set the pace of a run: its critical path.

A round ends with the device's own step or with the message that it waited for. From the end of the
last round these causes lead back to the start without a gap, so that their times add up to the
virtual time of the run. Only what lies on that path could have made the run shorter. A round that
ends when its seconds of a contact trace are over has no other cause: all time until then is the
trace's.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from math import inf
from typing import TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from edgesim.assembly.equipment import awake_times
from edgesim.report.activity import MOST_SLEEPS, away_between, round_seconds, sleep_period_s
from edgesim.report.frames import Frame
from edgesim.report.reported_run import ReportedRun

_Whole = TypeVar("_Whole", int, NDArray[np.int64])

Link: TypeAlias = tuple[int, int]
"""Sender and receiver; a device alone has itself in both places."""

_ROUNDING = 1e-9  # of times that are added


def waits(run: ReportedRun) -> Frame | None:
    """Seconds that each device waited for each sender; None where the run did not record it.

    A wait for the message of a device that had left counts for the device in its place.
    """
    waiting = _waiting_rounds(run)
    if waiting is None:
        return None
    sums = waiting.groupby(["device", "waited_for"])["virtual_wait_s"]
    table = sums.agg(["sum", "count"]).reset_index()
    return table.set_axis(["device", "waited_for", "waited_s", "times"], axis=1)


def _waiting_rounds(run: ReportedRun) -> Frame | None:
    """Rounds with a wait, and for which device."""
    rounds = run.by_device
    return rounds[rounds["waited_for"] >= 0] if "waited_for" in rounds else None


@dataclass(frozen=True, slots=True)
class PaceSetters:
    """What the seconds of the critical path went into.

    Attributes:
        links: seconds of steps and messages, the longest first. The time of a link is that from the
            end of a step to the reception: until radios are free, on the air, latency. The step is
            the sender's, or the receiver's if the message was there before that ended and waited
            for a busy radio. A device's time is that of its steps.
        away_s: seconds in which the device or an end of the link slept or was absent.
        trace_s: seconds until the last moment of a contact trace that a device waited for.
    """

    links: dict[Link, float]
    away_s: float
    trace_s: float = 0.0

    @property
    def whole_s(self) -> float:
        """The whole path."""
        return sum(self.links.values()) + self.away_s + self.trace_s


def pace_setters(run: ReportedRun) -> PaceSetters:
    """The critical path of a run; it is empty at free pace and without clocks."""
    waiting = None if run.is_free else _waiting_rounds(run)
    if waiting is None or not len(run.rounds):
        return PaceSetters({}, 0.0)
    keys = zip(waiting["device"], waiting["round"], strict=True)
    causes = dict(zip(keys, waiting["waited_for"].tolist(), strict=True))
    rounds, arrivals = _Rounds(run, round_s := round_seconds(run)), _Arrivals(run)
    sleeps = _Sleeps(run)
    handovers = run.messages[run.messages["kind"] == "handover"]
    successors = dict(zip(handovers["device"], handovers["receiver"], strict=True))
    seconds: dict[Link, float] = defaultdict(float)
    away_s = trace_s = 0.0
    place = int(rounds.ends_s.argmax())
    while True:
        end_s, device, index = (
            float(rounds.ends_s[place]),
            int(rounds.devices[place]),
            int(rounds.rounds[place]),
        )
        cause = causes.get((device, index), device)
        # A leaver waits for no message either, until its last ones are sent.
        is_last_of_leaver = device in successors and rounds.last_places[device] == place
        waits_for_nobody = (device, index) not in causes and rounds.waits(place)
        if round_s and waits_for_nobody and not is_last_of_leaver:
            trace_s = end_s
            break
        step = rounds.places.get((cause, index))
        if step is None:  # the sender left, and what was awaited is all that it held
            left = rounds.last_places.get(cause)  # None if an unfinished run has not written it yet
            if left is not None and rounds.ends_s[left] < end_s:
                since_s = float(rounds.ends_s[left])
                asleep_s = sleeps.seconds(since_s, end_s, cause, device)
                seconds[cause, device] += end_s - since_s - asleep_s
                away_s += asleep_s
                place = left
                continue
            step = place
        elif arrivals.at_s(index, cause, device) <= rounds.step_end_s(place):
            step = place
        start_s, worker = rounds.start_s(step), int(rounds.devices[step])
        compute_s = min(rounds.step_end_s(step), end_s) - start_s
        step_end_s = min(sleeps.after(worker, start_s, compute_s), end_s)
        rest_s = end_s - step_end_s
        if cause != device:
            link, asleep_s = (cause, device), sleeps.seconds(step_end_s, end_s, cause, device)
        else:  # it waits for nobody, but a leaver waits until its last messages are sent
            link = device, successors.get(device, device)
            asleep_s = max(rest_s - rounds.wait_s(place), 0.0)
        seconds[worker, worker] += compute_s
        seconds[link] += rest_s - asleep_s
        away_s += step_end_s - start_s - compute_s + asleep_s
        if start_s <= index * round_s:  # a moment of a trace, or the start
            trace_s = start_s
            break
        place = step - 1
    longest_first = sorted(seconds.items(), key=lambda part: -part[1])
    whole_s = float(rounds.ends_s.max())
    links = {link: found for link, found in longest_first if found > 0}
    return PaceSetters(links, away_s if away_s > _ROUNDING * whole_s else 0.0, trace_s)


class _Sleeps:
    """When devices sleep, by their duty cycles; nobody does where the scenario is not known."""

    def __init__(self, run: ReportedRun) -> None:
        self._times = awake_times(run.scenario) if run.scenario else ()

    def after(self, device: int, start_s: float, awake_s: float) -> float:
        """Time at which a device has been awake for so long."""
        return self._times[device].after(start_s, awake_s) if self._times else start_s + awake_s

    def seconds(self, from_s: float, until_s: float, one: int, other: int) -> float:
        """Seconds of a span in which one of two devices sleeps."""
        if not self._times or until_s <= from_s:
            return 0.0
        both = [self._times[one], self._times[other]]
        asleep_s = [until_s - from_s - each.awake_between(from_s, until_s) for each in both]
        are_many = until_s - from_s > MOST_SLEEPS * min(map(sleep_period_s, both))
        if both[0] == both[1] or min(asleep_s) <= 0 or are_many:
            return max(asleep_s)
        spans = sorted(
            (max(begin_s, from_s), min(end_s, until_s))
            for each in both
            for _, begin_s, end_s in away_between(each, from_s, until_s)
        )
        total_s, reached_s = 0.0, from_s
        for begin_s, end_s in spans:
            total_s += max(end_s - max(begin_s, reached_s), 0.0)
            reached_s = max(reached_s, end_s)
        return max(total_s, *asleep_s)


class _Rounds:
    """Rounds in the order of device and round, and their places in it."""

    def __init__(self, run: ReportedRun, round_s: float) -> None:
        table, self._round_s = run.by_device, round_s
        self.devices = table["device"].to_numpy()
        self.rounds = table["round"].to_numpy()
        self.ends_s = table["virtual_time_s"].to_numpy()
        self._computes_s = table["virtual_compute_s"].to_numpy()
        self._waits_s = table["virtual_wait_s"].to_numpy()
        self.places = {
            key: place for place, key in enumerate(zip(self.devices, self.rounds, strict=True))
        }
        self.last_places = {device: place for place, device in enumerate(self.devices)}

    def start_s(self, place: int) -> float:
        """Virtual time at which a round began: the end of the device's round before, or 0.

        On a contact trace a device that was away is back when the seconds of its round begin.
        """
        is_first = place == 0 or self.devices[place - 1] != self.devices[place]
        before_s = 0.0 if is_first else float(self.ends_s[place - 1])
        return max(before_s, int(self.rounds[place]) * self._round_s)

    def wait_s(self, place: int) -> float:
        """Virtual time for which the device waited in a round."""
        return float(self._waits_s[place])

    def waits(self, place: int) -> bool:
        """Whether the device waited in a round for more than a rounding error."""
        return self.wait_s(place) > _ROUNDING * float(self.ends_s[place])

    def step_end_s(self, place: int) -> float:
        """Virtual time at which the step of a round ended, if the device did not sleep in it."""
        return self.start_s(place) + float(self._computes_s[place])


class _Arrivals:
    """When the first message of a round from a device to another reached a free radio."""

    def __init__(self, run: ReportedRun) -> None:
        messages, self._num_devices = run.exchanges, run.num_devices
        columns = ("round", "sender", "receiver")
        index, sender, receiver = (messages[column].to_numpy(np.int64) for column in columns)
        keys: NDArray[np.int64] = self._key(index, sender, receiver)
        # A run without messages has no columns of their times.
        times_s = np.array(messages.get("arrival_time_s", []), float)
        order = np.lexsort((times_s, keys))  # of several messages the first one that arrived
        self._keys, self._times_s = keys[order], times_s[order]

    def at_s(self, index: int, sender: int, receiver: int) -> float:
        """Virtual time of the arrival; infinity where there is no such message."""
        key = self._key(index, sender, receiver)
        place = int(self._keys.searchsorted(key))
        if place == len(self._keys) or self._keys[place] != key:
            return inf
        return float(self._times_s[place])

    def _key(self, index: _Whole, sender: _Whole, receiver: _Whole) -> _Whole:
        return (index * self._num_devices + sender) * self._num_devices + receiver
