"""Who waited for whom in lockstep, and what set the pace of a run: its critical path.

A round ends with the device's own step or with the message that it waited for. From the end of the
last round these causes lead back to the start without a gap, so that their times add up to the
virtual time of the run. Only what lies on that path could have made the run shorter.
"""

from __future__ import annotations

from collections import defaultdict
from math import inf
from typing import TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from edgesim.report.frames import Frame
from edgesim.report.reported_run import ReportedRun

_Whole = TypeVar("_Whole", int, NDArray[np.int64])

Link: TypeAlias = tuple[int, int]
"""Sender and receiver; a device alone has itself in both places."""


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
    rounds, messages = run.rounds, run.messages
    if "waited_for" not in rounds:
        return None
    waiting = rounds[rounds["waited_for"] >= 0]
    taken_over = messages[messages["device"] != messages["sender"]]
    if len(taken_over):
        in_place = taken_over.drop_duplicates(["round", "sender"]).set_index(["round", "sender"])
        keys = waiting.set_index(["round", "waited_for"]).index
        found = in_place["device"].reindex(keys).to_numpy()
        by = np.where(np.isnan(found), waiting["waited_for"], found).astype("int64")
        waiting = waiting.assign(waited_for=by)
    return waiting


def pace_setters(run: ReportedRun) -> dict[Link, float]:
    """Seconds of the critical path by what took them, the longest first.

    The time of a link is that from the end of a step to the reception: until radios are free, on
    the air, latency, and sleep of both ends. The step is the sender's, or the receiver's if the
    message was there before that ended and waited for a busy radio. A device's time is that of its
    steps, and of its sleep or absence where nobody's message was the cause. Empty at free pace and
    without clocks.
    """
    waiting = None if run.is_free else _waiting_rounds(run)
    if waiting is None or not len(run.rounds):
        return {}
    keys = zip(waiting["device"], waiting["round"], strict=True)
    causes = dict(zip(keys, waiting["waited_for"].tolist(), strict=True))
    rounds, arrivals = _Rounds(run), _Arrivals(run)
    seconds: dict[Link, float] = defaultdict(float)
    place = int(rounds.ends_s.argmax())
    while True:
        end_s, device, index = (
            float(rounds.ends_s[place]),
            int(rounds.devices[place]),
            int(rounds.rounds[place]),
        )
        cause = causes.get((device, index), device)
        step = rounds.places.get((cause, index))
        if step is None:  # the sender left, and what was awaited is all that it held
            left = rounds.last_places.get(cause)  # None if an unfinished run has not written it yet
            if left is not None and rounds.ends_s[left] < end_s:
                seconds[cause, device] += end_s - float(rounds.ends_s[left])
                place = left
                continue
            step = place
        elif arrivals.at_s(index, cause, device) <= rounds.step_end_s(place):
            step = place
        start_s = rounds.start_s(step)
        step_end_s = min(rounds.step_end_s(step), end_s)
        worker = int(rounds.devices[step])
        seconds[worker, worker] += step_end_s - start_s
        seconds[cause, device] += end_s - step_end_s
        if start_s == 0.0:
            break
        place = step - 1
    longest_first = sorted(seconds.items(), key=lambda part: -part[1])
    return {link: found for link, found in longest_first if found > 0}


class _Rounds:
    """Rounds in the order of device and round, and their places in it."""

    def __init__(self, run: ReportedRun) -> None:
        table = run.by_device
        self.devices = table["device"].to_numpy()
        self.rounds = table["round"].to_numpy()
        self.ends_s = table["virtual_time_s"].to_numpy()
        self._computes_s = table["virtual_compute_s"].to_numpy()
        self.places = {
            key: place for place, key in enumerate(zip(self.devices, self.rounds, strict=True))
        }
        self.last_places = {device: place for place, device in enumerate(self.devices)}

    def start_s(self, place: int) -> float:
        """Virtual time at which a round began: the end of the device's round before, or 0."""
        is_first = place == 0 or self.devices[place - 1] != self.devices[place]
        return 0.0 if is_first else float(self.ends_s[place - 1])

    def step_end_s(self, place: int) -> float:
        """Virtual time at which the step of a round ended, if the device did not sleep in it."""
        return self.start_s(place) + float(self._computes_s[place])


class _Arrivals:
    """When the first message of a round from a device to another reached a free radio."""

    def __init__(self, run: ReportedRun) -> None:
        messages, self._num_devices = run.messages, run.num_devices
        columns = ("round", "device", "receiver")
        index, sender, receiver = (messages[column].to_numpy(np.int64) for column in columns)
        keys: NDArray[np.int64] = self._key(index, sender, receiver)
        order = keys.argsort(kind="stable")
        self._keys, self._times_s = keys[order], messages["arrival_time_s"].to_numpy()[order]

    def at_s(self, index: int, sender: int, receiver: int) -> float:
        """Virtual time of the arrival; infinity where there is no such message."""
        key = self._key(index, sender, receiver)
        place = int(self._keys.searchsorted(key))
        if place == len(self._keys) or self._keys[place] != key:
            return inf
        return float(self._times_s[place])

    def _key(self, index: _Whole, sender: _Whole, receiver: _Whole) -> _Whole:
        return (index * self._num_devices + sender) * self._num_devices + receiver
