"""Bytes, messages and energy up to each evaluation, against sums made one by one."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import edgesim
from edgesim.results.columns import EVALUATIONS, TOTALS
from edgesim.results.totals import with_totals


def rounds_of(*devices):
    """One row per device and round: (clocks after the rounds) of each device."""
    rows = [
        {
            "device": device,
            "round": r,
            "virtual_time_s": clock,
            "sent_bytes": 10**device * (r + 1),
            "messages_sent": 2,
            "energy_j": 0.5,
        }
        for device, clocks in enumerate(devices)
        for r, clock in enumerate(clocks)
    ]
    return pd.DataFrame(rows).sort_values(["round", "device"], ignore_index=True)


def evaluations_of(*rows):
    """Pairs of a round and a device, -1 for the consensus model; two rounds are an epoch."""
    return pd.DataFrame([{"round": r, "epoch": r / 2, "device": device} for r, device in rows])


ROUNDS = rounds_of([1.0, 2.0, 3.0, 4.0], [1.5, 3.0, 4.5])


def totals(evaluations, scenario, *, is_finished, rounds=ROUNDS):
    found = with_totals(evaluations, rounds, scenario, is_finished=is_finished)
    messages = found.pop("total_messages_sent")  # two for each half of a joule
    np.testing.assert_array_equal(messages.isna(), found["total_energy_j"].isna())
    assert (messages.dropna() == 4 * found["total_energy_j"].dropna()).all()
    names = [column.name for column in TOTALS if column.name in found]
    return found[names].to_numpy(object).tolist()


def test_evaluations_by_rounds_sum_the_rounds_before_them():
    evaluations = evaluations_of((2, -1), (2, 1), (4, -1), (4, 0))
    for section in ({"every_rounds": 2}, {"every_epochs": 1}):
        scenario = {"evaluation": section, "fleet": {"devices": 2}}
        found = totals(evaluations, scenario, is_finished=True)
        assert found == [[3 + 30, 2.0], [30, 1.0], [10 + 60, 3.5], [10, 2.0]]


def test_evaluations_by_virtual_time_sum_the_rounds_that_ended_before():
    """A device whose round ends at the very moment is evaluated as of the round before."""
    evaluations = evaluations_of((2, -1), (1, 0), (3, -1))
    scenario = {"evaluation": {"every_virtual_s": 2.0}, "fleet": {"devices": 2}}
    found = totals(evaluations, scenario, is_finished=True)
    assert found == [[1 + 10, 1.0], [1, 0.5], [10 + 60, 3.5]]


def test_by_virtual_time_the_passed_part_of_a_wait_counts():
    """Device 1 has done its steps at 1.5 s and waits until 11.5 s, for 10 J and 0.5 J of more."""
    rounds = rounds_of([1.0, 2.0, 12.0], [1.5, 11.5])
    rounds["virtual_compute_s"], rounds["energy_idle_j"] = 0.5, 0.0
    waits = (rounds["device"] == 1) & (rounds["round"] == 1)
    rounds.loc[waits, ["virtual_compute_s", "energy_idle_j", "energy_j"]] = 0.0, 10.0, 10.5
    evaluations = evaluations_of((1, -1), (1, 1), (2, -1), (2, 0), (2, 1), (3, -1), (4, -1))
    scenario = {"evaluation": {"every_virtual_s": 4.0}, "fleet": {"devices": 2}}
    found = with_totals(evaluations, rounds, scenario, is_finished=True)["total_energy_j"]
    both, own, all_of_1 = 1.0 + 0.5, 0.5, 0.5 + 10.5
    first, second = 4 - 1.5, 8 - 1.5
    assert found.tolist() == pytest.approx(
        [
            *(both + first, own + first),
            *(both + second, 1.0, own + second),
            *(1.0 + all_of_1, 1.5 + all_of_1),
        ]
    )


def test_of_an_unfinished_run_what_is_not_written_yet_is_null():
    evaluations = evaluations_of((3, -1), (3, 0), (4, -1), (4, 1), (4, 0))
    scenario = {"evaluation": {"every_rounds": 3}, "fleet": {"devices": 2}}
    found = totals(evaluations, scenario, is_finished=False)
    assert found[:2] == [[6 + 60, 3.0], [6, 1.5]]
    assert pd.isna(np.array(found[2:4], object)).all(), "the second one is of round 6"
    later = {**scenario, "fleet": {"devices": [{"count": 3}]}}
    assert pd.isna(totals(evaluations, later, is_finished=False)[0]).all(), "one is not there yet"


def test_without_a_written_round_all_is_null():
    none = ROUNDS.iloc[:0].drop(columns="virtual_time_s")
    for section in ({"every_virtual_s": 2.0}, {"every_rounds": 1}):
        scenario = {"evaluation": section, "fleet": {"devices": 2}}
        found = totals(evaluations_of((1, -1)), scenario, is_finished=False, rounds=none)
        assert pd.isna(found[0]).all()


def test_no_evaluations_have_no_totals():
    empty = pd.DataFrame({column.name: [] for column in EVALUATIONS})
    for is_finished in (False, True):
        assert with_totals(empty, ROUNDS, {}, is_finished=is_finished).empty


BOARDS = {
    "free pace, some ready early": {
        "fleet": {
            "devices": [
                {"profile": "raspberry-pi-4b", "count": 3},
                {"profile": "arduino-portenta-h7"},
            ],
            "pace": "free",
        },
        "training": {"epochs": 4, "virtual_time_s": 0.6, "optimizer": {"lr": 0.05}},
        "evaluation": {"every_virtual_s": 0.05, "samples": 40, "device_models": "every"},
    },
    "free pace": {
        "fleet": {"devices": 4, "profile": "arduino-portenta-h7", "pace": "free"},
        "training": {"rounds": 200, "virtual_time_s": 0.8, "optimizer": {"lr": 0.05}},
        "evaluation": {"every_virtual_s": 0.2, "samples": 40, "device_models": "every"},
    },
    "lockstep": {
        "fleet": {"devices": 4, "profile": "arduino-portenta-h7"},
        "training": {"rounds": 6, "optimizer": {"lr": 0.05}},
        "evaluation": {"every_rounds": 2, "samples": 40},
    },
}


@pytest.mark.filterwarnings("ignore::edgesim.ScenarioWarning")  # of those ready early
@pytest.mark.parametrize("how", BOARDS.values(), ids=BOARDS)
def test_a_real_run_of_boards_adds_up(tmp_path, how):
    live = []
    run = edgesim.run(
        "quickstart",
        out=tmp_path / "run",
        inline=True,
        data__train_samples=320,
        on_evaluation=live.append,
        **how,
    )
    consensus = run.consensus
    assert (consensus["total_sent_bytes"].diff().dropna() >= 0).all()
    assert consensus["total_sent_bytes"].iloc[-1] == run.rounds["sent_bytes"].sum()
    assert consensus["total_energy_j"].iloc[-1] == pytest.approx(run.summary["energy_j"], rel=1e-12)
    assert len(consensus) >= 3
    while_it_ran = [evaluation.total_energy_j for evaluation in live]
    assert consensus["total_energy_j"].tolist() == pytest.approx(while_it_ran, rel=1e-12)
    own = run.evaluations[run.evaluations["device"] >= 0].groupby("device").last()
    for device, row in own.iterrows():
        mine = run.rounds[run.rounds["device"] == device]
        assert row["total_energy_j"] == pytest.approx(mine["energy_j"].sum(), rel=1e-12)


@pytest.mark.filterwarnings("ignore::edgesim.ScenarioWarning")
def test_a_board_that_sleeps_while_it_waits_spends_evenly(tmp_path):
    """It is awake for a fifth of the time: the wait takes five times its awake seconds."""
    boards = [{"profile": "raspberry-pi-4b", "count": 3}, {"profile": "arduino-portenta-h7"}]
    run = edgesim.run(
        "quickstart",
        out=tmp_path / "run",
        inline=True,
        data__train_samples=320,
        topology={"kind": "ring"},
        fleet={
            "devices": boards,
            "pace": "free",
            "duty_cycle": {"period_s": 0.2, "awake_s": 0.04},
        },
        training={"epochs": 4, "virtual_time_s": 6, "optimizer": {"lr": 0.05}},
        evaluation={"every_virtual_s": 0.4, "samples": 40, "device_models": "every"},
    )
    own = run.evaluations[run.evaluations["device"] == 0]
    wait = run.rounds[run.rounds["device"] == 0].iloc[-1]
    assert wait["virtual_wait_s"] > 0.2, "it has done its steps long before the others"
    spent_j = own["total_energy_j"].to_numpy()[: int(wait["virtual_time_s"] / 0.4)]
    assert len(spent_j) >= 3
    by_hand = wait["energy_idle_j"] * 0.4 / (5 * wait["virtual_wait_s"])
    np.testing.assert_allclose(np.diff(spent_j), by_hand, rtol=0.1)
