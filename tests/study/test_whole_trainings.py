"""Short trainings are foretold by their clocks, from the first round to the last."""

from __future__ import annotations

import re
from contextlib import nullcontext

import pandas as pd
import pytest
from study_scenarios import DENSE, MIXED, as_if_long, ran, small

from edgesim.errors import ScenarioError
from edgesim.hardware.duty_cycle import ALWAYS_AWAKE, DutyCycle
from edgesim.study.answer import answer_of
from edgesim.study.churn_notices import presence_notices
from edgesim.study.iteration import iteration_costs
from edgesim.study.rounds.free_pace import trace_notices
from edgesim.study.rounds.round_ends import RoundEnds
from edgesim.study.tables.answer_text import answer_lines
from edgesim.study.tables.ratio import times
from edgesim.study.tables.scenario_tables import fleet_table, message_table
from edgesim.study.tables.side_by_side import side_by_side
from edgesim.study.training import training_of


def test_a_short_training_in_lockstep_is_foretold_whole(tmp_path):
    """With losses, jitter, and devices that sleep after some rounds: to the bit, but for energy."""
    sleeper = "{profile: raspberry-pi-4b, count: 2, duty_cycle: {period_s: 0.2, awake_s: 0.1}}"
    fleet = f"fleet.devices=[{sleeper}, {{profile: raspberry-pi-zero-2w, count: 2}}]"
    network = "network={bandwidth_mbps: 10, latency_ms: 3, jitter_ms: 2, loss: 0.1}"
    scenario = small(tmp_path, fleet, network, DENSE)
    costs = iteration_costs(scenario)
    foretold = training_of(costs)
    run = ran(tmp_path, scenario)
    found = pd.read_parquet(run.path / "rounds.parquet").groupby("device")
    assert foretold.seconds == pytest.approx(found["virtual_time_s"].max().max(), rel=1e-12)
    assert foretold.energy_j == pytest.approx(found["energy_j"].sum(), rel=1e-3)
    for device in costs.devices:
        cycle = device.time.cycle
        assert cycle.most_wait_s == found["virtual_wait_s"].max()[device.device]
        assert cycle.most_lost_bytes == found["retransmitted_bytes"].max()[device.device]
    assert dict(fleet_table(costs).rows)["clocks run for it"] == "the whole training"


def test_so_is_one_without_profiles(tmp_path):
    """Its messages are counted, not those of mean rounds."""
    steps = ("gossip.local_steps=8", "training.epochs=null", "training.rounds=15")
    scenario = small(tmp_path, DENSE, *steps)
    foretold = training_of(iteration_costs(scenario))
    assert foretold.seconds is None
    found = pd.read_parquet(ran(tmp_path, scenario).path / "rounds.parquet").groupby("device")
    assert foretold.sent_bytes == pytest.approx(found["sent_bytes"].sum(), rel=1e-12)


def test_a_training_that_ends_between_two_exchanges_is_foretold_by_its_own_rounds(tmp_path):
    """15 rounds have one exchange of every eight; the mean over whole periods would have 1.9."""
    steps = ("gossip.local_steps=8", "training.epochs=null", "training.rounds=15")
    scenario = small(tmp_path, *MIXED, DENSE, *steps)
    foretold = training_of(iteration_costs(scenario))
    run = ran(tmp_path, scenario)
    assert sum(foretold.sent_bytes) == pytest.approx(run.summary["sent_bytes"], rel=1e-9)
    assert foretold.seconds == pytest.approx(run.summary["virtual_time_s"], rel=1e-9)
    assert sum(foretold.energy_j) == pytest.approx(run.summary["energy_j"], rel=1e-3)


def test_of_a_training_with_drawn_devices_each_has_the_work_of_its_own_steps(tmp_path):
    """By a table of energies, which prices work; the draws are not the same for all devices."""
    scenario = small(
        tmp_path,
        *MIXED,
        "topology={kind: star}",
        "gossip={algorithm: fedavg, participation: 0.5, local_steps: 2}",
        "training.epochs=null",
        "training.rounds=24",
        "hardware.energy_table=horowitz_45nm",
        "data.batch_size=1",
    )
    costs = iteration_costs(scenario)
    rounds = pd.read_parquet(ran(tmp_path, scenario).path / "rounds.parquet")
    found = rounds.groupby("device")[["macs_fp32", "traffic_bytes", "energy_j"]].sum()
    assert found["macs_fp32"].nunique() > 1
    for device in costs.devices:
        own, work = found.loc[device.device], device.work.total
        assert 24 * work.macs_fp32 == pytest.approx(own["macs_fp32"], rel=1e-4)
        assert 24 * work.traffic_bytes == pytest.approx(own["traffic_bytes"], rel=1e-3)
    assert training_of(costs).energy_j == pytest.approx(found["energy_j"], rel=1e-3)


def test_a_device_that_a_short_training_never_draws_has_an_answer_too(tmp_path):
    scenario = small(
        tmp_path,
        *MIXED,
        "topology={kind: star}",
        "gossip={algorithm: fedavg, participation: 0.25}",
        "training.epochs=null",
        "training.rounds=2",
    )
    costs = iteration_costs(scenario)
    steps = [device.work.total.macs_fp32 for device in costs.devices]
    assert min(steps) == 0 < max(steps)
    told = "\n".join(answer_lines(answer_of(costs)))
    assert re.search(r"waiting +0 % \(", told)
    cycles = costs.steady_state.devices
    assert all(0 <= cycle.utilisation <= 1 and 0 <= cycle.waiting <= 1 for cycle in cycles)


@pytest.mark.parametrize("local_steps", [1, 8])
def test_a_battery_as_large_as_is_said_to_be_needed_lasts(tmp_path, local_steps):
    steps = (f"gossip.local_steps={local_steps}", "training.epochs=null", "training.rounds=96")
    network = "network={bandwidth_mbps: 10, latency_ms: 3, jitter_ms: 2, loss: 0.1}"
    board = "profile: raspberry-pi-4b"

    def fleet(battery_wh):
        small_one = f"{{{board}, battery_wh: {battery_wh:.12g}}}"
        return f"fleet.devices=[{{{board}, count: 3}}, {small_one}]"

    costs = iteration_costs(small(tmp_path, fleet(1), network, DENSE, *steps))
    (life,) = training_of(costs).lives
    round_j = costs.devices[3].energy_by("profile").total_j
    assert life.needed_j < 2.2 * 96 * round_j
    left = []
    for place, share in enumerate((1.0001, 0.8)):
        scenario = small(tmp_path, fleet(share * life.needed_j / 3600), network, DENSE, *steps)
        run = ran(tmp_path, scenario, f"run{place}")
        left.append(list(run.summary["left_after_round"]))
    assert left == [[], ["3"]]


def test_a_short_training_at_free_pace_is_foretold_whole(tmp_path):
    """The radios are free in the first rounds: these send more than the mean of later ones."""
    free = ("fleet.pace=free", "training.epochs=null", "training.rounds=25")
    scenario = small(tmp_path, *MIXED, *free, DENSE)
    costs = iteration_costs(scenario)
    foretold = training_of(costs)
    run = ran(tmp_path, scenario)
    found = pd.read_parquet(run.path / "rounds.parquet").groupby("device")
    assert foretold.seconds == found["virtual_time_s"].max().max()
    assert foretold.last_wait_s == tuple(found["virtual_wait_s"].sum())
    assert max(foretold.last_wait_s) > 0
    assert foretold.rounds == (25,) * 4
    assert foretold.sent_bytes == pytest.approx(found["sent_bytes"].sum(), rel=0.01)
    assert foretold.energy_j == pytest.approx(found["energy_j"].sum(), rel=1e-3)
    assert dict(fleet_table(costs).rows)["clocks run for it"] == "the whole training"


def test_a_training_at_free_pace_that_virtual_time_ends_is_foretold_whole(tmp_path):
    """Each device does the rounds of its own speed; the last one ends beyond the limit."""
    free = ("fleet.pace=free", "training.epochs=null", "training.rounds=500")
    limit = "training.virtual_time_s=0.5"
    scenario = small(tmp_path, *MIXED, *free, limit)
    foretold = training_of(iteration_costs(scenario))
    run = ran(tmp_path, scenario)
    found = pd.read_parquet(run.path / "rounds.parquet").groupby("device")
    assert foretold.rounds == tuple(found["round"].count())
    assert len(set(foretold.rounds)) > 1
    assert foretold.seconds == pytest.approx(found["virtual_time_s"].max().max(), rel=1e-12)
    assert foretold.energy_j == pytest.approx(found["energy_j"].sum(), rel=1e-3)


def test_a_device_that_joins_late_has_not_waited_for_the_others(tmp_path):
    """Its battery would be said to end early, by a round that costs as much as all it missed."""
    board = "fleet.devices=[{profile: raspberry-pi-4b, count: 4, battery_wh: 1}]"
    settings = (board, "topology={kind: ring}", "training.epochs=null", "training.rounds=60")
    away = "absent: [{device: 1, from_round: 9, until_round: 30}]"
    joins = f"fleet.churn={{joins: [{{device: 3, round: 25}}], {away}}}"
    with_churn = iteration_costs(small(tmp_path, *settings, joins))
    without = iteration_costs(small(tmp_path, *settings))
    assert with_churn.steady_state.is_whole
    longest = max(device.time.cycle.most_wait_s for device in without.devices)
    for device in with_churn.devices:
        assert device.time.cycle.most_wait_s < 1.5 * longest
    lives = zip(training_of(with_churn).lives, training_of(without).lives, strict=True)
    for there, always in lives:
        assert there.needed_j < 1.1 * always.needed_j


CHURN = (
    "absent: [{device: 1, from_round: 3, until_round: 20}], joins: [{device: 2, round: 7}], "
    "random: {absence_probability: 0.2, mean_absence_rounds: 2}"
)


@pytest.mark.parametrize("algorithm", ["choco", "deepsqueeze"])
def test_a_fleet_with_churn_is_foretold_with_its_absences(tmp_path, algorithm):
    churn = (f"fleet.churn={{{CHURN}}}", "topology.kind=complete")
    length = ("training.epochs=null", "training.rounds=40")
    scenario = small(tmp_path, *MIXED, DENSE, f"gossip.algorithm={algorithm}", *churn, *length)
    costs = iteration_costs(scenario)
    foretold = training_of(costs)
    run = ran(tmp_path, scenario)
    found = pd.read_parquet(run.path / "rounds.parquet").groupby("device")
    assert found.size().nunique() > 1
    assert foretold.seconds == pytest.approx(run.summary["virtual_time_s"], rel=1e-12)
    assert foretold.sent_bytes == pytest.approx(found["sent_bytes"].sum(), rel=1e-12)
    assert foretold.energy_j == pytest.approx(found["energy_j"].sum(), rel=1e-3)
    assert presence_notices(costs.studied) == []


def test_a_long_training_with_churn_is_reckoned_with_all_devices(tmp_path):
    """Few of its rounds would say nothing of the others. Mixing itself has more work with churn."""
    length = ("training.epochs=null", "training.rounds=100000", "evaluation={}")
    plain = iteration_costs(small(tmp_path, *MIXED, DENSE, *length))
    churn = "fleet.churn={joins: [{device: 2, round: 40}]}"
    costs = iteration_costs(small(tmp_path, *MIXED, DENSE, *length, churn))
    for own, other in zip(costs.devices, plain.devices, strict=True):
        assert own.sent_bytes == other.sent_bytes > 0
        assert own.time.cycle.period_s == pytest.approx(other.time.cycle.period_s, rel=1e-3)
    (said,) = presence_notices(costs.studied)
    assert said.startswith(
        "fleet.churn: device 2 is there in 99,960 of 100,000 rounds; here all devices are there"
    )


def traced(folder, *settings, duration=20):
    """Four devices that all meet at the beginning of the training, and never again."""
    edges = [(i, j) for i in range(4) for j in range(4) if i != j]
    rows = [f"0,{i},{j},{duration}" for i, j in edges]
    trace = ["time,source,target,duration", *rows]
    (folder / "contacts.csv").write_text("\n".join(trace) + "\n")
    graph = (
        f"topology={{kind: trace, path: {folder / 'contacts.csv'}, seconds_per_round: 1}}",
        "training.epochs=null",
        "evaluation={}",
    )
    return iteration_costs(small(folder, *MIXED, DENSE, *graph, *settings))


def test_of_a_trace_all_rounds_count(tmp_path):
    """20 rounds have contacts; messages of the first 32 are not those of the others."""
    sent = [
        20 * traced(tmp_path, "training.rounds=20").devices[1].sent_bytes,
        *(n * traced(tmp_path, f"training.rounds={n}").devices[1].sent_bytes for n in (4000, 8000)),
    ]
    assert sent == pytest.approx([sent[0]] * 3, rel=1e-9)


def test_a_long_training_on_a_trace_is_said_to_be_reckoned_from_a_part(tmp_path):
    costs = traced(tmp_path, "training.rounds=200000", duration=2000)
    whole = traced(tmp_path, "training.rounds=20")
    sent = 200_000 * costs.devices[1].sent_bytes
    assert sent == pytest.approx(2000 * whole.devices[1].sent_bytes, rel=0.01)
    (said,) = trace_notices(costs.studied, costs.steady_state)
    assert said.startswith("topology: times, and what follows from them, are those of rounds 20 to")
    assert trace_notices(whole.studied, whole.steady_state) == []


def test_a_file_of_a_partition_says_how_many_rounds_an_epoch_has(tmp_path):
    """It deals 64 of 1,437 samples: two batches of eight to a device."""
    rows = [f"{sample},{sample % 4}" for sample in range(64)]
    (tmp_path / "shards.csv").write_text("\n".join(["sample,device", *rows]) + "\n")
    partition = f"data.partition={{kind: file, path: {tmp_path / 'shards.csv'}}}"
    length = ("data.train_samples=null", "data.batch_size=8", "training.epochs=2")
    scenario = small(tmp_path, *MIXED, DENSE, partition, *length, "evaluation.every_epochs=1")
    costs = iteration_costs(scenario)
    assert costs.studied.num_rounds == 4
    run = ran(tmp_path, scenario)
    assert training_of(costs).seconds == pytest.approx(run.summary["virtual_time_s"], rel=1e-12)


def test_side_by_side_energies_are_of_one_table_and_rounds_those_of_the_training(tmp_path):
    free = ("fleet.pace=free", "training.epochs=null", "training.rounds=900")
    scenario = small(
        tmp_path, *MIXED, DENSE, *free, "training.virtual_time_s=0.05", "evaluation={}"
    )
    costs = iteration_costs(scenario)
    rounds = {pair.key: pair.first for pair in side_by_side(costs, costs)}["rounds"]
    assert rounds == max(training_of(costs).rounds) < 900
    table = ("hardware.energy_table=horowitz_45nm",)
    other = iteration_costs(small(tmp_path, *MIXED, DENSE, *table))
    keys = {
        pair.key for pair in side_by_side(other, iteration_costs(small(tmp_path, *MIXED, DENSE)))
    }
    assert not any(key.startswith("training_j") for key in keys)
    assert times(0.0013) == "0.0013x"
    assert times(0.5) == "0.50x"


def test_messages_of_one_kind_are_not_said_to_be_of_several(tmp_path):
    """Means over 7 rounds of which 3 have an exchange are no whole bytes."""
    gossip = "gossip={algorithm: bagua_low_precision, local_steps: 2}"
    length = ("training.epochs=null", "training.rounds=7", "evaluation={}", "topology.kind=ring")
    costs = iteration_costs(small(tmp_path, *MIXED, gossip, *length))
    assert not any("within its site" in note for note in message_table(costs).notes)


def test_a_length_that_a_run_refuses_is_refused_with_a_file_of_a_partition_too(tmp_path):
    rows = [f"{sample},{sample % 4}" for sample in range(64)]
    (tmp_path / "shards.csv").write_text("\n".join(["sample,device", *rows]) + "\n")
    partition = f"data.partition={{kind: file, path: {tmp_path / 'shards.csv'}}}"
    length = ("data.train_samples=null", "data.batch_size=8", "training.epochs=2", "evaluation={}")
    leave = "fleet.churn={leaves: [{device: 1, round: 100}]}"
    with pytest.raises(ScenarioError, match=r"fleet\.churn\.leaves"):
        iteration_costs(small(tmp_path, DENSE, partition, *length, leave))


SLEEPER = (
    "fleet.devices=[{profile: raspberry-pi-4b, count: 3}, {profile: raspberry-pi-4b, "
    "battery_wh: %s, duty_cycle: {period_s: %s, awake_s: %s}}]"
)


@pytest.mark.parametrize("is_whole", [True, False], ids=["short", "long"])
@pytest.mark.parametrize(
    ("pace", "sleep_s"), [("lockstep", (1.5, 0.5)), ("free", (0.12, 0.04))], ids=str
)
def test_a_sleepers_battery_ends_at_the_time_of_its_clock(tmp_path, pace, sleep_s, is_whole):
    """Sleep is no even part of all rounds: a battery may end before the first one."""
    pace = (f"fleet.pace={pace}", "training.epochs=null", "training.rounds=200", *MIXED[1:], DENSE)
    run = ran(tmp_path, small(tmp_path, *pace, SLEEPER % (99, *sleep_s)))
    rounds = pd.read_parquet(run.path / "rounds.parquet")
    ends_s = rounds[rounds["device"] == 3]["virtual_time_s"].tolist()
    full_wh = rounds[rounds["device"] == 3]["energy_j"].sum() / 3600
    with nullcontext() if is_whole else as_if_long():
        for share in (0.15, 0.4, 0.7):
            scenario = small(tmp_path, *pace, SLEEPER % (share * full_wh, *sleep_s))
            costs = iteration_costs(scenario, most_events=None if is_whole else 800)
            assert costs.steady_state.is_whole == is_whole
            (life,) = training_of(costs).lives
            assert 0 < life.rounds < 200
            state, its_own = costs.steady_state, ends_s[life.rounds - 1]
            if is_whole:
                assert state.end_s(3, life.rounds) == its_own
            else:
                assert state.end_s(3, life.rounds) == pytest.approx(its_own, rel=0.05)
            assert life.seconds >= state.end_s(3, life.rounds)


def test_a_leaver_has_left_when_its_last_messages_are_sent(tmp_path):
    """The vectors that it hands over take longer than many rounds, and here a sleep."""
    slow = ("network={bandwidth_mbps: 1}", "training.epochs=null", "training.rounds=60")
    scenario = small(tmp_path, *slow, SLEEPER % (0.002, 100, 20))
    (life,) = training_of(iteration_costs(scenario)).lives
    run = ran(tmp_path, scenario)
    rounds = pd.read_parquet(run.path / "rounds.parquet")
    ends_s = rounds[rounds["device"] == 3]["virtual_time_s"].tolist()
    assert life.rounds == len(ends_s) < 60
    assert ends_s[-1] - ends_s[-2] > 5 * (ends_s[-2] - ends_s[-3])
    assert life.seconds == pytest.approx(ends_s[-1], rel=0.05)


def test_a_battery_that_outlasts_the_clocks_of_a_sleeper_ends_in_its_duty_cycle():
    ends = RoundEnds((1.0, 2.0), DutyCycle(period_s=10.0, awake_s=4.0, offset_s=0.0))
    found = [ends.end_s(rounds, period_s=2.5, awake_s=1.0) for rounds in (0, 1, 2, 4, 5, 9)]
    assert found == [0.0, 1.0, 2.0, 4.0, 11.0, 21.0]
    awake = RoundEnds((1.0, 2.0), ALWAYS_AWAKE)
    assert awake.end_s(4, period_s=2.5, awake_s=1.0) == 7.0
