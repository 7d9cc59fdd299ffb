"""Whatever happens to hosts and their network, a fleet ends with the bits of an undisturbed run.

`make faults` runs hundreds of schedules; here are some of each kind of fleet, and what the
simulation itself has to hold.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from faulty_fleets import KINDS, Schedule, check, draw, restored_device, run, undisturbed
from faulty_network import Faults
from memory_archive import CrashError
from simulated_loop import StuckError, run_simulated

FIRST_SEED, SCHEDULES = 1, 12


@pytest.mark.parametrize("seed", range(FIRST_SEED, FIRST_SEED + SCHEDULES))
def test_a_schedule_of_faults_does_not_change_a_bit(seed):
    _, _, different = check(seed)
    assert different == []


@pytest.mark.parametrize(
    ("kind", "seed"),
    [
        ("leaving", 1079),  # a leaver whose last checkpoint is damaged, and nobody can wait for it
        ("leaving", 1118),
        ("leaving", 1034),  # a leaver lost before it had forwarded what had come for it
        ("leaving", 1045),  # one that still asks, after a restart, though it has left
        ("leaving after local steps", 1054),
        ("leaving a matching", 1066),  # its mail of later rounds, on edges that this round lacks
        (
            "successors that leave",
            1100,
        ),  # the same, where the round of the handover has no other mail
    ],
)
def test_schedules_that_once_lost_what_a_leaver_had(kind, seed):
    _, _, different = check(seed, [kind], damage_living=0.0, crash_in_drop=frozenset())
    assert different == []


@pytest.mark.parametrize("hosts", [((0, 1, 2, 3),), ((0,), (1,), (2,), (3,)), ((2,), (0, 1, 3))])
def test_all_begin_again_but_the_one_who_left(hosts):
    """Its checkpoints are the only ones; the others repeat what it has absorbed already."""
    calm = Schedule("leaving late", 0, hosts, None, Faults())
    _, archive, end_s, _ = run(calm)
    assert [len(archive.checkpoint_rounds(device)) for device in range(4)] == [0, 0, 2, 0]
    crash = replace(calm, crashes=((0.99 * end_s, tuple(range(len(hosts)))),))
    outcome, archive, _, log = run(crash)
    assert log.crashes == len(hosts)
    assert outcome == undisturbed("leaving late").outcome


@pytest.mark.parametrize("lost", [0, 1])
def test_one_who_has_left_has_two_last_checkpoints_whenever_it_is_back(lost):
    calm = Schedule("leaving", 0, ((0, 1, 2, 3),), 1, Faults())
    _, archive, _, _ = run(calm)
    number = archive.checkpoint_rounds(2)[-2:][lost]
    written = archive.checkpoints[2][number]
    archive.checkpoints[2][number] = written[:-1]
    restored_device(calm, archive, 2)
    assert archive.checkpoints[2][number] == written


def test_who_goes_back_leaves_no_newer_checkpoint_behind():
    """It may become usable again, and was written beside records that are dropped now."""
    calm = Schedule("ring", 0, ((0, 1, 2, 3),), 1, Faults())
    _, archive, _, _ = run(calm)
    *_, before, newest = archive.checkpoint_rounds(2)
    archive.checkpoints[2][newest] = archive.checkpoints[2][newest][:-1]
    restored_device(calm, archive, 2)
    assert archive.checkpoint_rounds(2)[-1] == before


def test_newer_checkpoints_go_newest_first():
    """Without one in the middle, a later one may look as if its envelopes had been covered."""
    calm = Schedule("ring", 0, ((0, 1, 2, 3),), 1, Faults())
    _, archive, _, _ = run(calm)
    newest = archive.checkpoint_rounds(2)[-1]
    for damaged in (newest + 1, newest + 2):
        archive.checkpoints[2][damaged] = archive.checkpoints[2][newest][:-1]
    archive.crash_in_drop = {archive.num_drops + 2}
    with pytest.raises(CrashError):
        restored_device(calm, archive, 2)
    assert archive.checkpoint_rounds(2)[-2:] == [newest, newest + 1]
    restored_device(calm, archive, 2)
    assert archive.checkpoint_rounds(2)[-1] == newest


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_fleet_survives_the_loss_of_everything(kind):
    """All processes die at once, twice, on a network at its worst."""
    calm = undisturbed(kind)
    devices = sum(draw_hosts(kind), ())
    schedule = replace(
        draw(1),
        kind=kind,
        hosts=(devices[:2], devices[2:]),
        every_rounds=2,
        faults=Faults(0.1, 0.2, 0.1, 0.1, longest_delay_s=0.01),
        crashes=((0.5 * calm.end_s, (0, 1)), (1.2 * calm.end_s, (0, 1))),
        crash_before=frozenset(),
        crash_after=frozenset(),
        damage=0.0,
        damage_living=0.0,
        crash_in_drop=frozenset(),
    )
    outcome, _, _, log = run(schedule)
    assert log.crashes >= 2
    assert outcome == calm.outcome


def draw_hosts(kind):
    devices = {device for device, *_ in undisturbed(kind).outcome["rounds"]}
    return [tuple(sorted(devices))]


def test_a_seed_draws_the_same_schedule_again():
    assert draw(7) == draw(7)
    assert draw(7) != draw(8)


def test_the_simulation_notices_who_waits_for_ever():
    async def forever():
        await asyncio.Event().wait()

    with pytest.raises(StuckError):
        run_simulated(forever())


def test_the_outcome_sees_a_lost_and_an_altered_round():
    outcome, archive, _, _ = run(
        replace(
            draw(1),
            kind="ring",
            hosts=((0, 1, 2, 3),),
            crashes=(),
            crash_before=frozenset(),
            crash_after=frozenset(),
        )
    )
    assert outcome == undisturbed("ring").outcome
    place, part = archive.parts.popitem()
    assert archive.outcome()["rounds"] != outcome["rounds"]
    archive.parts[place] = part
    assert archive.outcome() == outcome
    next(iter(archive.snapshots.values())).x[0] += 1e-6
    assert archive.outcome()["models"] != outcome["models"]
