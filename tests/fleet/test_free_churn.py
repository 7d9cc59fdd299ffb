"""Free pace with churn and batteries is exact: it is what one sequential event loop does."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from math import inf

import numpy as np
import pytest
from free_fleets import Disorder, DisorderlyFleet, StuckError, is_drained
from free_loop import EventLoop, FreeFleet
from test_time_bounds import random_fleet

from edgesim.device.mail import LifeSign
from edgesim.fleet.transport.liveness import LifeSigns
from edgesim.hardware.awake_times import AwakeTimes


def with_churn(fleet: FreeFleet, seed: int, *, equal_times: bool, parts: str) -> FreeFleet:
    """The same devices, some of which are absent, join, leave or die."""
    rng = np.random.default_rng([seed, len(parts), 7])
    num = len(fleet.hardware)

    def some_s(least: float, most: float) -> float:
        time_s = float(rng.uniform(least, most))
        return round(4 * time_s) / 4 if equal_times else time_s

    absences, join_s, leave_s, battery_j = {}, {}, {}, {}
    for i in range(num):
        if "absent" in parts and rng.random() < 0.5:
            start_s, length_s = some_s(0, 4), some_s(0.25, 3)
            absences[i] = [(start_s, start_s + length_s)]
            if rng.random() < 0.3:
                again_s = start_s + length_s + some_s(0, 1)
                absences[i].append((again_s, again_s + some_s(0.25, 2)))
        if "joins" in parts and i > 0 and rng.random() < 0.4:
            join_s[i] = some_s(0.25, 3)
        if "leaves" in parts and i < num - 1 and rng.random() < 0.4:
            leave_s[i] = join_s.get(i, 0.0) + some_s(0.25, 4)
        if "dies" in parts and rng.random() < 0.6:
            battery_j[i] = float(rng.uniform(0, 15))

    def awake(i: int) -> AwakeTimes:
        until_joined = [(0.0, join_s[i])] if i in join_s else []
        spans = sorted(until_joined + absences.get(i, []))

        def next_absence(time_s: float) -> tuple[float, float]:
            return next((span for span in spans if span[1] > time_s), (inf, inf))

        return AwakeTimes(cycle=fleet.hardware[i].duty_cycle, next_absence=next_absence)

    hardware = tuple(
        replace(
            own,
            profile=replace(own.profile, battery_j=battery_j.get(i)),
            duty_cycle=awake(i),
            leaves_s=leave_s.get(i, inf),
            links={
                k: replace(link, leaves_s=leave_s.get(k, inf), is_mortal=k in battery_j)
                for k, link in own.links.items()
            },
        )
        for i, own in enumerate(fleet.hardware)
    )
    return replace(
        fleet,
        hardware=hardware,
        absences={i: tuple(spans) for i, spans in absences.items()},
        join_s=join_s,
        leave_s=leave_s,
        timeout_s=float(rng.choice([0.0, 0.25, 1.0, 100.0])),
        handover_bytes=int(rng.choice([10_000, 250_000])),
    )


def activity(fleet: FreeFleet, rounds_of_devices) -> Counter:
    """What there was to get wrong."""
    seen = Counter()
    for i, rounds in enumerate(rounds_of_devices):
        seen["messages"] += sum(len(r.sent) for r in rounds)
        seen["without mass"] += sum(r.compute_s == 0 and r.wait_s > 0 for r in rounds[:-1])
        seen["died"] += rounds[-1].has_died
        seen["left"] += fleet.leaves_at(i, rounds[-1].step_end_s) and not rounds[-1].has_died
        seen["handed over"] += any(
            start_s >= rounds[-1].end_s and fleet.leaves_at(i, rounds[-1].step_end_s)
            for start_s, *_ in rounds[-1].sent
        )
    absorbed = Counter(
        key[:2] for rounds in rounds_of_devices for r in rounds for key in r.absorbed
    )
    seen["lost"] += seen["messages"] - sum(absorbed.values())
    return seen


PARTS = ["absent", "joins", "leaves", "dies", "absent joins leaves dies"]


@pytest.mark.parametrize("sleeps", [False, True], ids=["awake", "sleeping"])
@pytest.mark.parametrize("equal_times", [False, True], ids=["any times", "equal times"])
@pytest.mark.parametrize("duplex", ["full", "half", "mixed"])
@pytest.mark.parametrize("parts", PARTS)
def test_churn_and_batteries_are_what_one_event_loop_makes_of_them(
    parts, duplex, equal_times, sleeps
):
    """On a network that delays, reorders and repeats, whatever the windows are."""
    seen = Counter()
    for seed in range(12):
        fleet = random_fleet(seed + 100, duplex, equal_times=equal_times, sleeps=sleeps)
        fleet = with_churn(fleet, seed, equal_times=equal_times, parts=parts)
        want = EventLoop(fleet).run()
        run = DisorderlyFleet(fleet, Disorder(seed, window=1 + seed % 3, slots=1 + seed % 2))
        assert run.run() == want, f"seed {seed}"
        seen += activity(fleet, want)
        assert all(is_drained(node.inbox) for node in run.nodes if not node.has_died)
    assert seen["messages"] > 40
    if "joins" in parts:
        assert seen["without mass"] > 10
    if "leaves" in parts:
        assert seen["handed over"] > 0
    if "dies" in parts:
        assert seen["died"] > 3
        assert seen["lost"] > 10
    else:
        assert seen["lost"] == 0, "nothing is lost but on the way to the dead"


@pytest.mark.parametrize("duplex", ["full", "half", "mixed"])
def test_devices_that_crash_come_and_go_and_die_all_the_same(duplex):
    crashes = 0
    for seed in range(40):
        equal_times = seed % 2 == 0
        fleet = random_fleet(seed + 500, duplex, equal_times=equal_times, sleeps=seed % 3 == 0)
        fleet = with_churn(fleet, seed, equal_times=equal_times, parts=PARTS[-1])
        want = EventLoop(fleet).run()
        run = DisorderlyFleet(fleet, Disorder(seed, window=1 + seed % 2, slots=1, crashes=5))
        assert run.run() == want, f"seed {seed}"
        crashes += 5 - run.crashes
    assert crashes > 50


def test_without_life_signs_a_sender_waits_for_ever():
    """The tests above can fail: a device whose receivers may be dead must be told."""
    fleet = random_fleet(3, "full", equal_times=True, sleeps=False)
    fleet = replace(with_churn(fleet, 1, equal_times=True, parts="dies"), timeout_s=0.25)
    run = DisorderlyFleet(fleet, Disorder(1))
    for node in run.nodes:
        node.life_signs.take = lambda sign: False
    with pytest.raises(StuckError, match=r"for life: .*\(\d, \d\)"):
        run.run()


def test_the_later_neighbours_presume_a_device_dead_the_more_they_send_in_vain():
    sent = Counter()
    for seed in range(12):
        fleet = random_fleet(seed + 100, "full", equal_times=False, sleeps=False)
        fleet = with_churn(fleet, seed, equal_times=False, parts="dies")
        for timeout_s in (0.0, 0.5, 1e9):
            loop = EventLoop(replace(fleet, timeout_s=timeout_s))
            loop.run()
            sent[timeout_s] += sum(
                loop.sequences.get((i, k), 0)
                for i in range(len(loop.devices))
                for k in range(len(loop.devices))
                if loop.devices[k].died_s < inf
            )
    assert sent[0.0] < sent[0.5] < sent[1e9]


def test_who_is_silent_for_the_time_out_is_presumed_dead():
    signs = LifeSigns(5, [2, 7], timeout_s=3.0)
    assert signs.unknown(2.9) == []
    assert signs.unknown(3.0) == [(2, 5)], "of equal times the lower number comes first"
    assert signs.unknown(3.1) == [(2, 5), (7, 5)]
    assert signs.take(LifeSign((2, 5), 4.0, has_died=False))
    assert not signs.take(LifeSign((2, 5), 1.0, has_died=False)), "said before"
    assert signs.take(LifeSign((7, 5), 2.0, has_died=True))
    assert not signs.take(LifeSign((7, 5), 9.0, has_died=False)), "who is dead stays dead"
    assert signs.unknown(6.9) == []
    assert (signs.presumed_dead(5.0), signs.presumed_dead(5.1)) == ([], [7])
    assert signs.take(LifeSign((2, 5), inf, has_died=False))
    assert signs.unknown(1e12) == []
    assert signs.presumed_dead(1e12) == [7]
