"""What devices did when: computing, waiting, sleeping and sending, by their virtual clocks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from math import floor, inf
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgesim.assembly.equipment import awake_times
from edgesim.errors import ScenarioError
from edgesim.hardware.awake_times import AwakeTimes
from edgesim.hardware.duty_cycle import ALWAYS_AWAKE, DutyCycle
from edgesim.report.frames import Frame
from edgesim.report.reported_run import ReportedRun

COMPUTING, WAITING, ASLEEP, ABSENT, SENDING, GONE = (
    "computing",
    "waiting",
    "asleep",
    "absent",
    "sending",
    "gone",
)
AWAY = "asleep or absent"  # where it is not told apart
_WINDOW_ROUNDS = 8  # of the slowest device, in a window of the timeline
MOST_SLEEPS = 200  # of a device in a window; shorter ones could not be seen
_ROUNDING = 1e-9  # of times that are added


def away_name(run: ReportedRun) -> str:
    """What the time of devices is called that is neither computing nor waiting."""
    fleet = run.settings["fleet"]
    groups = fleet["devices"] if isinstance(fleet["devices"], list) else []
    churn = fleet.get("churn") or {}
    may_sleep = any(part.get("duty_cycle") for part in (fleet, *groups))
    may_be_absent = any(churn.get(key) for key in ("absent", "joins", "random"))
    if may_sleep and may_be_absent:
        return AWAY
    return ABSENT if may_be_absent else ASLEEP


def round_seconds(run: ReportedRun) -> float:
    """Seconds of a contact trace that a round in lockstep stands for; 0 without a trace."""
    seconds = (run.settings.get("topology") or {}).get("seconds_per_round")
    return 0.0 if run.is_free or seconds is None else float(seconds)


def spans_of_rounds(run: ReportedRun) -> Frame:
    """Begin and end of each round by its device's clock, and how the time between was spent.

    The columns are `device`, `round`, `start_s`, `end_s`, `compute_s`, `wait_s`, `away_s` (asleep
    or absent) and, where the run has recorded it, `waited_for`.
    """
    import pandas as pd

    rounds = run.by_device
    end_s = rounds["virtual_time_s"]
    start_s = end_s.groupby(rounds["device"]).shift(1).fillna(0.0)
    table = pd.DataFrame(
        {
            "device": rounds["device"],
            "round": rounds["round"],
            "start_s": start_s,
            "end_s": end_s,
            "compute_s": rounds["virtual_compute_s"],
            "wait_s": rounds["virtual_wait_s"],
        }
    )
    away_s = table["end_s"] - table["start_s"] - table["compute_s"] - table["wait_s"]
    table["away_s"] = away_s.where(away_s > _ROUNDING * table["end_s"], 0.0)
    if "waited_for" in rounds:
        table["waited_for"] = rounds["waited_for"]
    return table


def radio_seconds(run: ReportedRun) -> Frame | None:
    """Awake seconds for which each device's radio sends; None without clocks."""
    messages = run.messages
    if "sent_time_s" not in messages:
        return None
    seconds = messages["sent_time_s"] - messages["departure_time_s"]
    for device, times in enumerate(awake_times(run.scenario) if run.scenario else ()):
        if times.is_sleepless:
            continue
        own = messages[messages["device"] == device]
        seconds[own.index] = [
            times.awake_between(from_s, until_s)
            for from_s, until_s in zip(own["departure_time_s"], own["sent_time_s"], strict=True)
        ]
    return seconds.groupby(messages["device"]).sum()


def shares_over_time(run: ReportedRun, spans: Frame, num_bins: int) -> Frame:
    """How the fleet's time is shared out, in equal bins of virtual time.

    An activity of a round is taken to be spread evenly over the time of it in which the device is
    awake. After its last round a device is gone.

    Returns:
        `time_s` (middle of the bin), `activity`, and `share` of the devices' time in it.
    """
    import pandas as pd

    edges = np.linspace(0.0, float(spans["end_s"].max()), num_bins + 1)
    activities = (COMPUTING, WAITING, away_name(run))
    totals = {activity: np.zeros(num_bins) for activity in activities}
    times = awake_times(run.scenario) if run.scenario else ()
    for device, own in spans.groupby("device"):
        ends = np.concatenate([[0.0], own["end_s"]])
        moments, asleep_s = edges, np.zeros(num_bins)
        away_s = own["away_s"].to_numpy()
        if times and not times[device].is_sleepless:
            # By the clock of its awake time: steps and waits do not go on while it sleeps.
            within = np.minimum(edges, ends[-1])
            moments, awake_ends = (_awake_until(times[device], each) for each in (within, ends))
            asleep_s = np.diff(within) - np.diff(moments)
            away_s = np.maximum(away_s - (np.diff(ends) - np.diff(awake_ends)), 0.0)
            ends = awake_ends
        spent = {COMPUTING: own["compute_s"], WAITING: own["wait_s"], away_name(run): away_s}
        for activity, seconds in spent.items():
            until = np.concatenate([[0.0], np.cumsum(seconds)])
            totals[activity] += np.diff(np.interp(moments, ends, until))
        totals[away_name(run)] += asleep_s
    whole = np.diff(edges) * run.num_devices
    rest = whole - sum(totals.values())
    totals[GONE] = np.where(rest > _ROUNDING * whole, rest, 0.0)
    middles = (edges[:-1] + edges[1:]) / 2
    parts = [
        pd.DataFrame({"time_s": middles, "activity": activity, "share": seconds / whole})
        for activity, seconds in totals.items()
        if seconds.any()
    ]
    return pd.concat(parts, ignore_index=True)


def _awake_until(times: DutyCycle | AwakeTimes, moments_s: NDArray[Any]) -> NDArray[Any]:
    """Seconds that a device has been awake until each of some increasing moments."""
    steps = [
        times.awake_between(before_s, now_s)
        for before_s, now_s in pairwise([0.0, *moments_s.tolist()])
    ]
    return np.cumsum(steps)


def windows(
    spans: Frame, devices: Sequence[int], longest_s: float
) -> dict[str, tuple[float, float]]:
    """Parts of a run whose spans are drawn: some rounds at its begin, in its middle and at its end.

    Args:
        spans: of `spans_of_rounds`.
        devices: that are drawn.
        longest_s: the most that a part may last.
    """
    shown = spans[spans["device"].isin(devices)]
    end_s = float(shown["end_s"].max())
    length_s = float((shown["end_s"] - shown["start_s"]).quantile(0.9)) * _WINDOW_ROUNDS
    if length_s * 3 >= end_s and end_s <= longest_s:
        return {"all of it": (0.0, end_s)}
    length_s = min(length_s, longest_s, end_s / 3)
    middle_s = (end_s - length_s) / 2
    return {
        "begin": (0.0, length_s),
        "middle": (middle_s, middle_s + length_s),
        "end": (end_s - length_s, end_s),
    }


def longest_window_s(run: ReportedRun, devices: Sequence[int]) -> float:
    """Time in which some devices sleep so seldom that it can be seen; infinite if they don't.

    Random absences at free pace are as many in the mean.
    """
    if run.scenario is None:
        return inf
    times = awake_times(run.scenario)
    periods_s = [sleep_period_s(times[device]) for device in devices]
    churn = run.scenario.fleet.churn
    if churn and churn.random and churn.random.mean_absence_s is not None:
        periods_s.append(churn.random.mean_absence_s / churn.random.absence_probability)
    return MOST_SLEEPS * min(periods_s)


def sleep_period_s(times: DutyCycle | AwakeTimes) -> float:
    """Time from one sleep of a device to the next; infinite if its duty cycle has none."""
    cycle = times.cycle if isinstance(times, AwakeTimes) else times
    return inf if cycle.is_sleepless else cycle.period_s


def segments(
    run: ReportedRun, spans: Frame, window_s: tuple[float, float], devices: list[int]
) -> Frame:
    """What devices did in a window of time, span by span.

    Returns:
        `device`, `activity`, `start_s`, `end_s`, `round`, and `peer`: the device that it waited for
        or sent to.
    """
    import pandas as pd

    low_s, high_s = window_s
    inside = spans[
        spans["device"].isin(devices) & (spans["end_s"] > low_s) & (spans["start_s"] < high_s)
    ]
    times = awake_times(run.scenario) if run.scenario else (ALWAYS_AWAKE,) * run.num_devices
    away = {device: away_between(times[device], low_s, high_s) for device in devices}
    rows: list[tuple[int, str, float, float, int, str]] = []
    # In lockstep absences are counted in rounds: no clock says from when to when.
    name, round_s = away_name(run), round_seconds(run)
    absence = None if run.is_free or name == ASLEEP else name
    for span in inside.itertuples(index=False):
        cause = getattr(span, "waited_for", -1)
        peer = run.labels[cause] if cause >= 0 else ""
        rows += [
            (span.device, kind, *part_s, span.round, peer if kind == WAITING else "")
            for kind, from_s, until_s in _parts_of_round(
                span, times[span.device], absence, span.round * round_s
            )
            for part_s in _awake_parts(away[span.device], max(from_s, low_s), min(until_s, high_s))
        ]
    for device, own in away.items():
        rows += [(device, kind, start_s, end_s, -1, "") for kind, start_s, end_s in own]
    messages = run.exchanges
    if "sent_time_s" in messages:
        sent = messages[
            messages["device"].isin(devices)
            & (messages["sent_time_s"] > low_s)
            & (messages["departure_time_s"] < high_s)
        ]
        for m in sent.itertuples(index=False):
            span_s = max(m.departure_time_s, low_s), min(m.sent_time_s, high_s)
            rows += [
                (m.device, SENDING, *part_s, m.round, run.labels[m.receiver])
                for part_s in _awake_parts(away[m.device], *span_s)
            ]
    columns = ["device", "activity", "start_s", "end_s", "round", "peer"]
    table = pd.DataFrame(rows, columns=columns)
    table[["start_s", "end_s"]] = table[["start_s", "end_s"]].clip(low_s, high_s)
    return table[table["end_s"] > table["start_s"]].reset_index(drop=True)


_Spans = list[tuple[str, float, float]]


def _parts_of_round(
    span: Any,  # noqa: ANN401 (a row)
    times: DutyCycle | AwakeTimes,
    absence: str | None,
    back_s: float = 0.0,
) -> _Spans:
    """A round in parts: the step, then an absence before the first message, then the wait.

    On a contact trace the absence comes first: until the seconds of the round begin.

    Args:
        span: row of `spans_of_rounds`.
        times: when the device is awake and there, as far as a clock has it.
        absence: what the rest of its time away is called; None where there is none.
        back_s: moment of a contact trace at which the round begins; 0 without a trace.
    """
    begin_s = max(span.start_s, back_s)
    step_end_s = min(times.after(begin_s, span.compute_s), span.end_s)
    known_s = span.end_s - span.start_s - times.awake_between(span.start_s, span.end_s)
    parts = []
    if absence and not back_s and span.away_s - known_s > _ROUNDING * span.end_s:
        parts.append((absence, span.away_s - known_s))
    if span.wait_s > _ROUNDING * span.end_s:
        parts.append((WAITING, span.wait_s))
    found = [(absence, span.start_s, begin_s)] if absence and begin_s > span.start_s else []
    found.append((COMPUTING, begin_s, step_end_s if parts else span.end_s))
    for place, (kind, seconds) in enumerate(parts, 1):
        start_s = found[-1][2]
        end_s = span.end_s if place == len(parts) else times.after(start_s, seconds)
        found.append((kind, start_s, min(end_s, span.end_s)))
    return found


def away_between(times: DutyCycle | AwakeTimes, low_s: float, high_s: float) -> _Spans:
    """Spans of a window in which a device sleeps or is absent, in order: kind, begin and end.

    While it is absent it does not sleep.
    """
    found: _Spans = []
    cycle = times
    if isinstance(times, AwakeTimes):
        cycle, now_s = times.cycle, low_s
        while now_s < high_s:
            try:
                from_s, until_s = times.next_absence(now_s)
            except ScenarioError:  # of more absences than can be drawn
                break
            if from_s >= high_s or until_s == inf:
                break
            # It may begin within the one before.
            found.append((ABSENT, max(from_s, low_s, now_s), min(until_s, high_s)))
            now_s = until_s
    assert isinstance(cycle, DutyCycle), "absences go by a cycle"
    absences = list(found)
    if not cycle.is_sleepless:
        first = floor((low_s - cycle.offset_s) / cycle.period_s)
        last = floor((high_s - cycle.offset_s) / cycle.period_s)
        for period in range(first, last + 1):
            begin_s = cycle.offset_s + period * cycle.period_s
            sleep_s, wake_s = begin_s + cycle.awake_s, begin_s + cycle.period_s
            if wake_s > low_s and sleep_s < high_s:
                span = max(sleep_s, low_s), min(wake_s, high_s)
                found += [(ASLEEP, *part) for part in _awake_parts(absences, *span)]
    return sorted(found, key=lambda span: span[1])


def _awake_parts(away: _Spans, start_s: float, end_s: float) -> Iterator[tuple[float, float]]:
    """Parts of a span outside of others, which are in order; a radio stops for a sleep."""
    for _, from_s, until_s in away:
        if until_s > start_s and from_s < end_s:
            if from_s > start_s:
                yield start_s, from_s
            start_s = until_s
    if end_s > start_s:
        yield start_s, end_s
