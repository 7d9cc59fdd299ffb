"""What went wrong in a run, as sentences for the box at the top of a report."""

from __future__ import annotations

from collections.abc import Iterator
from math import inf
from typing import Any

from edgesim.errors import ScenarioError, count
from edgesim.report.ends import join_rounds, rounds_missed
from edgesim.report.frames import Frame
from edgesim.report.reported_run import ReportedRun
from edgesim.report.units import data_size, duration, energy, listed, percent
from edgesim.results.columns import UNLIKE_INFLUENCE
from edgesim.results.run_files import STOPPED_BY
from edgesim.scenario.presence import make_timed_churn
from topologies import TimedChurn

_NAMED = 5  # devices that get a sentence of their own
_LOW_CHARGE = 0.1  # of a battery
_MANY_RETRANSMITTED = 0.05  # of the bytes sent, by the fleet or on one link
_LEAST_LOST = 20  # packets; of fewer the share of a link says little
_GROWN = 2.0  # times the least distance so far, of an unfinished run
_MOST_ABSENCES = 10_000  # of a device, that are counted


def troubles(run: ReportedRun, devices: Frame) -> list[str]:
    """What a reader should know before the figures.

    Args:
        run: the run.
        devices: its table of `device_table`.
    """
    return [
        *_unfinished(run),
        *run.run.summary.get("warnings", ()),
        *_growing_distance(run),
        *_departures(run, devices),
        *_batteries(run, devices),
        *_absences(run),
        *_unlike_influence(run),
        *_losses(run),
    ]


def _unfinished(run: ReportedRun) -> Iterator[str]:
    if not run.is_finished:
        last = run.rounds.groupby("device")["round"].max() + 1
        done = [int(last.get(device, 0)) for device in range(run.num_devices)]
        span = f"{min(done):,}" if min(done) == max(done) else f"{min(done):,} to {max(done):,}"
        stop = run.environment.get(STOPPED_BY, {"error": "", "can_go_on": True})
        said = f"The run is not finished: of each device {span} rounds are recorded."
        if stop["error"]:
            said += f" It was stopped by an error: {stop['error'].rstrip('.')}."
        if stop["can_go_on"]:
            said += f" edgesim resume {run.place} goes on with it."
        yield said
    for missing in run.missing:
        yield f"Missing here: {missing}."


def _growing_distance(run: ReportedRun) -> Iterator[str]:
    """Of an unfinished run; summary.json says it of a finished one."""
    if run.is_finished:
        return
    distances = run.consensus["consensus_distance"]
    positive = distances[distances > 0]
    if len(positive) > 2 and positive.iloc[-1] > _GROWN * positive.min():
        yield (
            f"The consensus distance is {positive.iloc[-1]:.3g}, "
            f"{positive.iloc[-1] / positive.min():.3g} times its least: the models move apart."
        )


def _departures(run: ReportedRun, devices: Frame) -> Iterator[str]:
    """Devices that died or left, with the moment."""
    summary = run.run.summary
    battery = "because its battery would not have lasted to its next turn to leave,"
    reasons = {"battery": battery, "plan": "as planned"}
    sentences: list[str] = []
    for name, end in summary.get("dead_devices", {}).items():
        sentences.append(
            f"{_named(run, int(name))} died of an empty battery"
            f"{_when(end['virtual_time_s'], end['rounds'])}."
        )
    for name in summary.get("left_after_round", {}):
        at = devices["virtual_time_s"].iloc[int(name)] if run.has_clock else None
        done = int(devices["rounds"].iloc[int(name)])
        why = reasons.get(summary.get("left_because", {}).get(name, ""), "")
        rest = _charge_left(devices, int(name)) if why == battery else ""
        place = _successor(run, int(name))
        sentences.append(f"{_named(run, int(name))} left {why}{_when(at, done)}{rest}{place}.")
    yield from sentences[:_NAMED]
    if (more := len(sentences) - _NAMED) > 0:
        yield f"So did {count(more, 'more device')}; the table of devices has them."


def _charge_left(devices: Frame, device: int) -> str:
    """The charge that a leaver went with, as text."""
    if "charge_left_j" not in devices:
        return ""
    left_j = devices["charge_left_j"].iloc[device]
    return f", with {energy(left_j)} left" if left_j >= 0 else f", overdrawn by {energy(-left_j)}"


def _successor(run: ReportedRun, device: int) -> str:
    """Who took a leaver's place, as text; its samples are lost."""
    messages = run.run.messages
    taken = messages[(messages["kind"] == "handover") & (messages["device"] == device)]
    if taken.empty:
        return ""
    return f"; {run.device(int(taken['receiver'].iloc[0]))} took its place, without its samples"


def _when(at_s: float | None, rounds: int) -> str:
    after = f" after {count(rounds, 'round')}"
    return after if at_s is None else f" at {duration(at_s)}{after}"


def _batteries(run: ReportedRun, devices: Frame) -> Iterator[str]:
    """Batteries that are nearly empty, or were overdrawn."""
    if "battery_j" not in devices:
        return
    there = devices[~devices["end"].isin(["left", "died"])]
    low = there[there["charge_left_j"] < _LOW_CHARGE * there["battery_j"]]
    if len(low):
        names = [run.device(int(device)) for device in low["device"]]
        worst = low["charge_left_j"].min()
        left = f"{energy(worst)} is left" if worst > 0 else "nothing is left"
        ended = "ended with" if run.is_finished else "came to"
        yield (
            f"{_start(listed(names))} {ended} less than {percent(_LOW_CHARGE)} of the battery; "
            f"of the emptiest {left}."
        )


def _absences(run: ReportedRun) -> Iterator[str]:
    """Who was not there for a while, or came late."""
    missed = rounds_missed(run)
    absent_s = _absent_seconds(run)
    for device, number in list(missed.items())[:_NAMED]:
        yield f"{_named(run, device)} was absent in {count(number, 'round')}."
    if more := list(missed.values())[_NAMED:]:
        span = f"{min(more):,} to {max(more):,}"
        yield f"{count(len(more), 'more device')} missed {span} rounds each."
    for device, (times, seconds) in list(absent_s.items())[:_NAMED]:
        often = "once" if times == 1 else f"{times:,} times"
        yield f"{_named(run, device)} was absent {often}, for {duration(seconds)} in all."
    if len(absent_s) > _NAMED:
        more_devices = len(absent_s) - _NAMED
        were = "was" if more_devices == 1 else "were"
        yield f"{count(more_devices, 'more device')} {were} absent at times."
    came = set(run.rounds["device"])
    if (churn := _timed_churn(run)) is not None:
        joins_s = {device: churn.join_s(device) for device in sorted(came)}
        late = [f"{run.device(d)} at {duration(at_s)}" for d, at_s in joins_s.items() if at_s > 0]
        if late:
            yield f"Joined later: {listed(late)}."
    elif not run.is_free and (joins := join_rounds(run)):
        late = [f"{run.device(d)} in round {at:,}" for d, at in joins.items() if d in came]
        if late:
            yield f"Joined later: {listed(late)}."


def _timed_churn(run: ReportedRun) -> TimedChurn | None:
    """Who comes and goes at free pace; None if nobody does."""
    if run.scenario is None or not run.is_free or run.scenario.fleet.churn is None:
        return None
    return make_timed_churn(run.scenario)


def _absent_seconds(run: ReportedRun) -> dict[int, tuple[int, float]]:
    """How often and how long devices at free pace were absent until their clocks ended.

    The time before a device joins is no absence.
    """
    if (churn := _timed_churn(run)) is None:
        return {}
    ends = run.rounds.groupby("device")["virtual_time_s"].max()
    found: dict[int, tuple[int, float]] = {}
    for device, end_s in ends.items():
        number = int(str(device))
        times, total_s, now_s = 0, 0.0, churn.join_s(number)
        while times < _MOST_ABSENCES:
            try:
                from_s, until_s = churn.next_absence(number, now_s)
            except ScenarioError:
                break
            if from_s >= end_s or until_s == inf:
                break
            begin_s = max(from_s, now_s)
            times, total_s, now_s = times + 1, total_s + until_s - begin_s, until_s
        if times:
            found[number] = times, total_s
    return found


def _unlike_influence(run: ReportedRun) -> Iterator[str]:
    """Devices at free pace that counted for more than others (docs/free-pace.md)."""
    devices = run.run.devices
    if "influence" not in devices:
        return
    influence = devices["influence"]
    least, most = (int(place) for place in (influence.argmin(), influence.argmax()))
    if influence[most] >= UNLIKE_INFLUENCE * influence[least]:
        yield (
            f"Devices counted unlike in the averaged model: {run.device(least)} "
            f"{influence[least]:.2g} times and {run.device(most)} {influence[most]:.2g} times the "
            "mean."
        )


def _losses(run: ReportedRun) -> Iterator[str]:
    """Losses of actors, of messages and of packets."""
    summary: dict[str, Any] = run.run.summary or run.environment  # type: ignore[assignment]
    if restarts := summary.get("actor_restarts", 0):
        yield (
            f"Actors were lost and restarted {count(restarts, 'time')}; the result is that of an "
            "undisturbed run."
        )
    resumes = summary.get("resumes", len(run.environment.get("resumed", ())))
    if resumes:
        yield f"The run was interrupted and resumed {count(resumes, 'time')}."
    if lost := summary.get("messages_lost", 0):
        yield (
            f"{count(lost, 'message')} to dead devices were lost, with a push weight of "
            f"{summary['push_weight_lost']:.3g}."
        )
    if without := summary.get("without_model"):
        names = listed([run.device(device) for device in without])
        yield f"{_start(names)} got no model: no message came before the run ended."
    if "retransmitted_bytes" in run.messages:
        yield from _lost_packets(run)


def _lost_packets(run: ReportedRun) -> Iterator[str]:
    """Where many packets were sent again: by the fleet, or on its worst link."""
    sums = ["bytes", "retransmissions", "retransmitted_bytes"]
    links = run.exchanges.groupby(["sender", "receiver"])[sums].sum()
    sent, again = run.messages["bytes"].sum(), run.messages["retransmitted_bytes"].sum()
    known = links[links["retransmissions"] >= _LEAST_LOST]
    shares = known["retransmitted_bytes"] / known["bytes"]
    # Where no link lost so many, the largest share is NaN, which is above nothing.
    if not (again > _MANY_RETRANSMITTED * sent or shares.max() > _MANY_RETRANSMITTED):
        return
    text = (
        f"Links lost packets: {data_size(again)} were sent again, {percent(again / sent)} of what "
        "was sent"
    )
    if len(shares):
        sender, receiver = shares.idxmax()
        link = f"{run.labels[sender]} -> {run.labels[receiver]}"
        text += f"; on the worst, {link}, {percent(shares.max())}"
    yield f"{text}."


def _named(run: ReportedRun, device: int) -> str:
    return _start(run.device(device))


def _start(text: str) -> str:
    """At the start of a sentence; names stay as they are."""
    return f"D{text[1:]}" if text.startswith("device ") else text
