"""The watchdog ends a fleet that stands still, and no other."""

from __future__ import annotations

import asyncio

import pytest

from edgesim.fleet.recording import watchdog
from edgesim.fleet.recording.watchdog import POLLS_PER_TIMEOUT, StalledError, describe, watch
from edgesim.fleet.transport.progress import DeviceProgress, Progress, Waiting

TIMEOUT_S = 60.0


class Fleet:
    """Has done as many rounds as it is told by the time that it is asked."""

    def __init__(self, rounds):
        self.rounds = iter(rounds)
        self.asked = 0

    async def progress(self):
        self.asked += 1
        assert self.asked < 5000, "the watchdog sleeps"
        done = next(self.rounds, 0)
        return [Progress(10**6, (DeviceProgress(device=0, rounds_done=done),))]

    async def waiting(self):
        return [Waiting(1, 4, ((0, 1),))]

    def absent(self):
        return ""


@pytest.fixture
def clock(monkeypatch):
    """Virtual time, that passes while somebody sleeps; later as much longer as `longer` says."""

    class Clock:
        now_s = 0.0
        sleeps = 0

    clock = Clock()
    clock.longer = {}

    async def sleep(seconds):
        clock.sleeps += 1
        clock.now_s += seconds + clock.longer.get(clock.sleeps, 0.0)

    monkeypatch.setattr(watchdog, "monotonic", lambda: clock.now_s)
    monkeypatch.setattr(watchdog.asyncio, "sleep", sleep)
    return clock


def test_a_fleet_that_stands_still_is_ended_with_the_word_who_waits_for_whom(clock):
    fleet = Fleet([3] * 1000)
    with pytest.raises(StalledError, match="device 1 in round 4 waits for device 0"):
        asyncio.run(watch(fleet, TIMEOUT_S))
    assert fleet.asked == 1 + POLLS_PER_TIMEOUT + 1  # rounds are seen once; then more than the time


def test_the_loss_of_a_device_that_had_ended_hides_no_progress_of_others(clock):
    """It counts with all its rounds, which it does again; at free pace these are a mere bound."""

    class Lossy(Fleet):
        async def progress(self):
            (part,) = await super().progress()
            lost = DeviceProgress(1, rounds_done=5, end=None if self.asked > 1 else "finished")
            return [part, Progress(10**6, (lost,))]

    num_polls = 4 * POLLS_PER_TIMEOUT
    fleet = Lossy([*range(num_polls), *[num_polls] * 1000])
    with pytest.raises(StalledError):
        asyncio.run(watch(fleet, TIMEOUT_S))
    assert fleet.asked > num_polls


def test_those_who_are_waited_for_and_wait_for_nobody_are_named_first():
    waiting = [Waiting(2, 5, ((0, 2), (3, 2))), Waiting(1, 4, ((2, 1),))]
    assert describe(waiting, 60.0) == (
        "no device has ended a round for 60 s (recovery.stall_timeout_s): "
        "device 0, 3: computing, or away, and waited for; "
        "device 1 in round 4 waits for device 2 (edge 2 -> 1); "
        "device 2 in round 5 waits for device 0 (edge 0 -> 2), device 3 (edge 3 -> 2); "
        "what was recorded is kept, `edgesim resume` goes on"
    )


def test_devices_that_have_names_are_told_by_them():
    said = describe([Waiting(1, 4, ((2, 1),))], 60.0, ["north", "east", "south"])
    assert (
        "device 2 (south): computing, or away, and waited for; device 1 (east) in round 4 waits "
        "for device 2 (south) (edge 2 -> 1); what"
    ) in said


@pytest.mark.parametrize(
    ("num_lines", "more"), [(8, ""), (9, "; and 1 more"), (30, "; and 22 more")]
)
@pytest.mark.parametrize("is_ring", [True, False])
def test_of_many_that_wait_the_first_are_told_and_the_number_of_the_others(
    num_lines, more, is_ring
):
    """In a ring all wait for each other; otherwise one line says whom they wait for."""
    num_waiting = num_lines if is_ring else num_lines - 1
    waiting = [
        Waiting(device, 4, (((device + 1) % num_lines, device),)) for device in range(num_waiting)
    ]
    said = describe(waiting, 60.0)
    assert said.count("waits for") == (8 if is_ring else 7)
    assert f"){more}; what was recorded" in said


def test_where_nobody_waits_that_is_told():
    said = describe([Waiting(1, 4, ())], 60.0)
    assert "): no device waits for a message: all compute; what was recorded is kept" in said


def test_actors_that_were_never_built_are_named(clock):
    class Unbuilt(Fleet):
        async def progress(self):
            return []

        async def waiting(self):
            return []

        def absent(self):
            return "device-0, device-1"

    with pytest.raises(StalledError, match=r"s\): not built: device-0, device-1; what was rec"):
        asyncio.run(watch(Unbuilt([]), TIMEOUT_S))


def test_a_pause_that_takes_longer_counts_as_two_at_most(clock):
    """Two and a half pauses each: more than the time-out after eleven, not after nine of them."""
    clock.longer = dict.fromkeys(range(1, 1000), 1.5 * TIMEOUT_S / POLLS_PER_TIMEOUT)
    fleet = Fleet([3] * 1000)
    with pytest.raises(StalledError):
        asyncio.run(watch(fleet, TIMEOUT_S))
    assert fleet.asked == 1 + POLLS_PER_TIMEOUT // 2 + 1


def test_rounds_put_off_the_end(clock):
    slow = [r for r in range(10) for _ in range(POLLS_PER_TIMEOUT - 1)]
    fleet = Fleet([*slow, *[9] * 100])
    with pytest.raises(StalledError):
        asyncio.run(watch(fleet, TIMEOUT_S))
    assert fleet.asked > len(slow)


def test_rounds_that_are_lost_and_done_again_put_off_nothing(clock):
    """A device that is killed and restarted again and again gets no further than round 5."""
    fleet = Fleet([5, 3] * 1000)
    with pytest.raises(StalledError):
        asyncio.run(watch(fleet, TIMEOUT_S))
    assert clock.now_s < 1.2 * TIMEOUT_S


def test_a_process_that_was_stopped_meanwhile_has_not_seen_a_fleet_stand_still(clock):
    """As by Ctrl-Z: its clock goes on, and so would the fleet that was stopped with it."""
    clock.longer = {2: 100 * TIMEOUT_S, 5: 100 * TIMEOUT_S}
    fleet = Fleet([0] * 8 + [1] * 1000)
    with pytest.raises(StalledError):
        asyncio.run(watch(fleet, TIMEOUT_S))
    assert fleet.asked > 8
