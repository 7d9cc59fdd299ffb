"""What an accuracy cost: figures of the first evaluation that has it, by run and over seeds."""

from __future__ import annotations

import re
import sys
from dataclasses import replace

import pandas as pd
import pytest
from reported_runs import SCENARIO, train

from edgesim.cli import main
from edgesim.report.reaching import _levels, reaching_tables
from edgesim.report.report import report_page
from edgesim.report.reported_run import ReportedRun
from edgesim.report.runs import load_runs
from edgesim.results.run import Run

PLAIN = SCENARIO | {
    "fleet": {"devices": 3},
    "network": {},
    "training": {"rounds": 4, "optimizer": {"lr": 0.05}},
    "evaluation": {"every_rounds": 2, "samples": 50},
}


def run_with(averaged, devices=(), *, clock=True):
    """A run of two devices that was evaluated after each of its epochs of ten rounds."""
    rows = []
    for number, accuracy in enumerate(averaged, 1):
        spent = {"round": 10 * number, "epoch": float(number), "total_sent_bytes": 1000 * number}
        if clock:
            spent |= {"virtual_time_s": 2.0 * number, "total_energy_j": 3.0 * number}
        rows.append({"model": "consensus", "device": -1, "accuracy": accuracy, **spent})
        for device, own in enumerate(devices[number - 1] if devices else ()):
            rows.append({"model": "device", "device": device, "accuracy": own, **spent})
    empty = pd.DataFrame()
    return Run("place", empty, empty, pd.DataFrame(rows), empty, {})


def reported(run, label, group=None, *, pace="lockstep", evaluation=None):
    return ReportedRun(
        run=run,
        settings={"seed": label, "fleet": {"pace": pace}, "evaluation": evaluation or {}},
        environment={},
        scenario=None,
        label=label,
        group=group or label,
        missing=(),
    )


@pytest.mark.parametrize(
    ("accuracy", "said"),
    [
        (85, "accuracy is 85; must be above 0 and at most 1: 0.85?"),
        (101, "accuracy is 101; must be above 0 and at most 1"),
        (0, "accuracy is 0; must be"),
        (-0.5, "accuracy is -0.5; must be"),
        (float("nan"), "accuracy is nan; must be"),
    ],
)
def test_an_accuracy_in_percent_is_refused(accuracy, said):
    with pytest.raises(ValueError, match=re.escape(said)):
        run_with([0.9]).reaching(accuracy)


def test_a_model_that_there_is_not_is_refused():
    with pytest.raises(ValueError, match="model is 'devices'; must be consensus or device"):
        run_with([0.9]).reaching(0.5, "devices")


def test_a_run_reaches_an_accuracy_at_the_first_evaluation_with_it():
    run = run_with([0.3, 0.7, 0.6, 0.8], [(0.1, 0.3), (0.4, 0.6), (0.7, 0.9), (0.5, 0.7)])
    assert run.reaching(0.6)["epoch"] == 2
    assert run.reaching(0.7)["total_energy_j"] == 6
    assert run.reaching(0.8)["round"] == 40
    assert run.reaching(0.81) is None
    # The mean of the devices is 0.2, 0.5, 0.8, 0.6; what was spent is that of the fleet.
    assert run.reaching(0.8, "device")["total_sent_bytes"] == 3000
    assert run.reaching(0.8, "device")["model"] == "consensus"


def test_evaluations_without_the_devices_own_models_do_not_count_for_them():
    run = run_with([0.3, 0.7, 0.8], [(), (), (0.5, 0.7)])
    assert list(run.accuracies("device").index) == [2]
    assert run.reaching(0.5, "device")["epoch"] == 3
    assert len(reaching_tables([reported(run, "one")])) == 1  # of the averaged model alone


def test_runs_that_do_not_come_to_it_say_their_best():
    runs = [reported(run_with([0.5, 0.9]), "fast"), reported(run_with([0.2, 0.4]), "slow")]
    (table,) = reaching_tables(runs, [50])
    assert table.columns == ("", "reached by", "epochs", "rounds", "virtual time", "sent", "energy")
    assert table.rows[0][0] == "50 %"
    assert table.rows[1] == ("fast", "", "1", "10", "2 s", "1 kB", "3 J")
    assert table.rows[2] == ("slow", "none; best 40 %", "", "", "", "", "")


def test_a_best_accuracy_is_not_rounded_up_to_one_that_was_not_reached():
    """And an accuracy that is named twice has one row."""
    (table,) = reaching_tables([reported(run_with([0.1, 0.7996]), "one")], [80, 80])
    assert [row[:2] for row in table.rows] == [("80 %", "none; best 79.9 %")]


def test_a_run_that_was_evaluated_once_does_not_say_what_an_accuracy_cost():
    runs = [reported(run_with([0.5, 0.9]), "often"), reported(run_with([0.95]), "once")]
    (table,) = reaching_tables(runs, [50])
    assert [row[:2] for row in table.rows[1:]] == [("often", ""), ("once", "evaluated once")]


def test_runs_that_differ_in_the_seed_share_a_row():
    """One comes to 50 % after one epoch, one after three; the third does not."""
    accuracies = {"seed 1": [0.5, 0.6, 0.6], "seed 2": [0.1, 0.4, 0.5], "seed 3": [0.1, 0.2, 0.3]}
    runs = [reported(run_with(found), label, "all") for label, found in accuracies.items()]
    (table,) = reaching_tables(runs, [50])
    heads = dict(zip(table.columns, table.rows[0], strict=True))
    assert heads["reached by"] == "2 of 3"
    assert heads["epochs"] == "2 +- 1.41"
    assert heads["energy"] == "6 J +- 4.24 J"


def test_runs_without_an_evaluation_count_among_those_that_did_not_come_to_it():
    """One ended before its first evaluation; another is still at 40 %."""
    going_on = replace(run_with([0.1, 0.4]), missing=("summary",))
    none = run_with([float("nan")])
    runs = {"seed 1": run_with([0.5, 0.6]), "seed 2": none, "seed 3": going_on}
    (table,) = reaching_tables([reported(run, label, "all") for label, run in runs.items()], [50])
    assert table.rows[0][1] == "1 of 3 (1 not finished)"
    (table,) = reaching_tables([reported(going_on, "one"), reported(none, "two")], [50])
    assert [row[1] for row in table.rows[1:]] == [
        "none; best 40 % (not finished)",
        "not evaluated",
    ]


def test_a_seed_that_is_there_twice_counts_once():
    runs = [reported(run_with([0.5, 0.6]), "seed 1", "all") for _ in range(2)]
    runs.append(reported(run_with([0.1, 0.4]), "seed 2", "all"))
    (table,) = reaching_tables(runs, [50])
    assert table.rows[0][1] == "1 of 2"


def test_without_clocks_there_is_neither_time_nor_energy():
    (table,) = reaching_tables([reported(run_with([0.5, 0.9], clock=False), "one")], [50])
    assert table.columns == ("", "epochs", "rounds", "sent")


def test_tasks_without_accuracy_and_runs_with_one_evaluation_have_no_table():
    assert reaching_tables([reported(run_with([float("nan")] * 3), "regression")]) == []
    assert reaching_tables([reported(run_with([0.5]), "short")]) == []


@pytest.mark.parametrize(
    ("best", "levels"),
    [
        ([86.0], [60, 70, 80, 86]),
        ([55.4], [30, 40, 50, 55]),
        ([8.2], [8]),
        ([0.4], [0.4]),
        ([52.1, 60.9, 79.0], [52, 60, 79]),
        ([52.1, 52.9], [52]),
        ([100 * 0.29], [10, 20, 29]),
        ([100 * 0.29, 100 * 0.57, 100 * 0.58], [29, 57, 58]),
    ],
)
def test_levels_follow_from_the_best_accuracies(best, levels):
    assert _levels(best) == levels


def test_a_rounded_level_is_reached():
    """58 % is 0.58, though 100 * 0.58 is less than 58."""
    (table,) = reaching_tables([reported(run_with([0.1, 0.58]), "one")], [58])
    assert table.rows[0][1] == "2"


def said(words, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["edgesim", "report", *words])
    with pytest.raises(SystemExit) as ended:
        main()
    found = capsys.readouterr()
    return ended.value.code or 0, found.out + found.err


def test_a_page_has_the_table_and_the_command_prints_it(tmp_path, monkeypatch, capsys):
    place = train(tmp_path, scenario=PLAIN)
    (run,) = load_runs([place])
    best = 100 * run.run.accuracies().max()
    assert "What an accuracy of the averaged model cost" in report_page([run])
    words = [str(place), "--out", str(tmp_path / "page.html"), "--accuracy"]
    status, text = said([*words, f"{best:g}"], monkeypatch, capsys)
    assert status == 0
    assert "What an accuracy of the averaged model cost" in text
    assert f"{best:g} %" in text
    status, text = said([*words, "1", "--paper"], monkeypatch, capsys)
    assert status == 2
    assert "has no section paper" in text


@pytest.mark.parametrize(
    ("pace", "evaluation", "is_told"),
    [
        ("free", {"every_epochs": 1}, True),
        ("free", {"every_virtual_s": 0.5}, False),
        ("lockstep", {"every_epochs": 1}, False),
    ],
)
def test_energies_at_free_pace_that_lack_the_last_waits_are_said_to(pace, evaluation, is_told):
    run = reported(run_with([0.1, 0.9]), "one", pace=pace, evaluation=evaluation)
    for table in reaching_tables([run], [50]):
        assert any("wait for slower ones" in note for note in table.notes) is is_told
