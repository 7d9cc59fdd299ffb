"""Rows that are missing or stand twice are found, wherever they are."""

from __future__ import annotations

from io import StringIO
from pathlib import Path
from typing import cast

import pyarrow as pa
import pytest
import torch
from rich.console import Console
from small_fleets import assert_same_bits, train

from edgesim.fleet import run as run_module
from edgesim.fleet.recovery.completeness import check_evaluations, check_finished, check_rounds
from edgesim.fleet.run import resume_run
from edgesim.results.columns import DEVICES, EVALUATIONS
from edgesim.results.regularity import first_irregularity, first_miscount
from edgesim.results.run_directory import RunDirectory, RunDirectoryError
from edgesim.results.snapshot import Snapshot
from topologies import EVERYONE, Absence, Churn


def rows(**rounds):
    """Of devices d0, d1, ..., one after the other."""
    pairs = [(int(name[1:]), r) for name, own in rounds.items() for r in own]
    return pa.table({"device": [d for d, _ in pairs], "round": [r for _, r in pairs]})


@pytest.mark.parametrize(
    ("own", "said"),
    [
        ([0, 1, 2, 3], None),
        ([3, 1, 0, 2], None),
        ([1, 2, 3], "lacks round 0 of device 1"),
        ([0, 1, 3], "lacks round 2 of device 1"),
        ([0, 1, 2], "lacks round 3 of device 1"),
        ([], "lacks round 0 of device 1"),
        ([0, 1, 1, 2, 3], "has round 1 of device 1 twice"),
        ([0, 0, 1, 2, 3], "has round 0 of device 1 twice"),
        ([0, 1, 2, 3, 3], "has round 3 of device 1 twice"),
    ],
)
def test_each_round_must_be_there_once(own, said):
    table = rows(d2=range(7), d1=own, d0=range(4))
    assert first_irregularity(table, {0: 4, 1: 4, 2: 7}, EVERYONE) == said


def test_a_device_without_any_row_is_not_forgotten():
    said = first_irregularity(rows(d0=range(5)), {0: 5, 1: 1}, EVERYONE)
    assert said == "lacks round 0 of device 1"


@pytest.mark.parametrize(
    ("own", "said"),
    [
        ([0, 1, 4, 5], None),
        ([0, 1, 2, 4, 5], None),  # who had mail of a leaver was not quite away
        ([0, 4, 5], "lacks round 1 of device 1"),
        ([0, 1, 5], "lacks round 4 of device 1"),
        ([0, 1, 4], "lacks round 5 of device 1"),
    ],
)
def test_rounds_in_which_a_device_was_away_may_be_missing(own, said):
    away = (Absence(1, from_round=2, until_round=4), Absence(1, from_round=6))
    presence = Churn(2, absences=away)
    assert first_irregularity(rows(d1=own), {1: 8}, presence) == said


@pytest.mark.parametrize(
    ("senders", "said"),
    [
        ([(0, 0), (0, 0), (0, 2), (1, 1)], None),
        ([(0, 0), (0, 2), (1, 1)], "has 1 messages missing of round 0 of device 0"),
        ([(0, 0), (0, 0), (0, 2)], "has 1 messages missing of round 1 of device 1"),
        ([(0, 0), (0, 0), (0, 2), (1, 1), (1, 1)], "has 1 messages too many of round 1 of"),
        ([(0, 0), (0, 0), (0, 2), (1, 1), (1, 5)], "has 1 messages too many of round 5 of"),
        ([(0, 0), (0, 0), (1, 1), (1, 0)], "has 1 messages missing of round 2 of device 0"),
        ([], "has 2 messages missing of round 0 of device 0"),
    ],
)
def test_each_message_must_be_there_once(senders, said):
    rounds = pa.table(
        {"device": [0, 0, 0, 1, 1], "round": [0, 1, 2, 0, 1], "messages_sent": [2, 0, 1, 0, 1]}
    )
    columns = {"device": [d for d, _ in senders], "round": [r for _, r in senders]}
    messages = pa.table(columns, pa.schema([("device", pa.int64()), ("round", pa.int64())]))
    found = first_miscount(rounds, messages)
    assert found == said or (found and said and found.startswith(said))


class Tables:
    """A run directory of two devices that have done two rounds each, with a message in each."""

    place = "run"

    def __init__(self, without_row=None, table=None, num_evaluated=3):
        both = {"device": [0, 1, 0, 1], "round": [0, 0, 1, 1], "messages_sent": [1, 1, 1, 1]}
        self.tables = {name: pa.table(both) for name in ("rounds.parquet", "messages.parquet")}
        self.num_evaluated = lambda: num_evaluated
        if table:
            kept = [row for row in range(4) if row != without_row]
            self.tables[table] = self.tables[table].take(kept)

    def read_table(self, name, columns):
        return self.tables[name].select(columns)

    def rounds_of_final_model(self, evaluation, device):
        assert evaluation == 2, "the last of them"
        return {0: 2, 1: 2}[device]


def check_rounds_of_two(tables):
    directory = cast("RunDirectory", tables)
    check_rounds(directory, num_devices=2, num_rounds=2, presence=EVERYONE)


WHAT_TO_DO = (
    ": either files of the run were lost, or this is an error in edgesim, please report it; what "
    "was recorded is kept"
)


@pytest.mark.parametrize(
    ("row", "table", "said"),
    [
        (2, "rounds.parquet", "lacks round 1 of device 0"),
        (3, "rounds.parquet", "lacks round 1 of device 1"),
        (1, "messages.parquet", "has 1 messages missing of round 0 of device 1"),
    ],
)
def test_the_table_that_lacks_something_is_named(row, table, said):
    check_rounds_of_two(Tables())
    with pytest.raises(RunDirectoryError) as caught:
        check_rounds_of_two(Tables(row, table))
    assert str(caught.value) == f"run/{table} {said}{WHAT_TO_DO}"


@pytest.mark.parametrize("num_evaluated", [2, 4])
def test_each_evaluation_must_be_there_once(num_evaluated):
    check_evaluations(cast("RunDirectory", Tables()), 3)
    with pytest.raises(RunDirectoryError) as caught:
        check_evaluations(cast("RunDirectory", Tables(num_evaluated=num_evaluated)), 3)
    said = f"run/evaluations.parquet has {num_evaluated} evaluations instead of 3"
    assert str(caught.value) == said + WHAT_TO_DO


@pytest.fixture
def finished(tmp_path):
    """What a run of two devices leaves, without rows."""
    directory = RunDirectory.create(tmp_path / "run", "digest")
    directory.write_text("scenario.yaml", "name: small\n")
    directory.write_json("environment.json", {"mode": "inline"})
    directory.merge_rounds()
    directory.write_table("evaluations.parquet", [], EVALUATIONS)
    directory.write_table("devices.parquet", [], DEVICES)
    for device in range(2):
        vector = torch.zeros(2)
        directory.write_snapshot(Snapshot(device, 1, 1, vector, 1.0, vector, None))
    directory.keep_final_models(1)
    check_finished(directory, {"devices": 2})
    return directory


def _shorten(path):
    path.write_bytes(path.read_bytes()[:-9])


@pytest.mark.parametrize("harm", [Path.unlink, _shorten])
@pytest.mark.parametrize(
    "name",
    [
        "scenario.yaml",
        "environment.json",
        "rounds.parquet",
        "messages.parquet",
        "evaluations.parquet",
        "devices.parquet",
        "models/device-000000.npz",
        "models/device-000001.npz",
    ],
)
def test_what_a_finished_run_lacks_or_has_damaged_is_named(finished, name, harm):
    harm(finished.path / name)
    said = "missing; " if harm == Path.unlink else "damaged"
    with pytest.raises(RunDirectoryError, match=f"^{finished.place}/{name}: {said}"):
        check_finished(finished, {"devices": 2})


@pytest.mark.parametrize("loss", [Path.unlink, lambda path: path.write_bytes(b"")])
def test_a_run_that_lost_messages_does_not_end_as_if_nothing_was(tmp_path, monkeypatch, loss):
    merge = RunDirectory.merge_rounds

    def lose_a_part(directory, *names, **options):
        loss(directory.path / "parts" / "device-000002" / "messages-000000000.parquet")
        merge(directory, *names, **options)

    with monkeypatch.context() as patched:
        patched.setattr(RunDirectory, "merge_rounds", lose_a_part)
        with pytest.raises(
            RunDirectoryError, match=r"of device 2|device-000002/messages"
        ) as caught:
            train(tmp_path, "run", inline=True)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "run" / "summary.json").exists()


def test_a_run_that_lost_a_part_does_not_end_as_if_nothing_was(tmp_path, monkeypatch):
    merge = RunDirectory.merge_rounds

    def lose_a_part(directory, *names, **options):
        (directory.path / "parts" / "device-000002" / "rounds-000000000.parquet").unlink()
        merge(directory, *names, **options)

    with monkeypatch.context() as patched:
        patched.setattr(RunDirectory, "merge_rounds", lose_a_part)
        with pytest.raises(RunDirectoryError, match="lacks round 0 of device 2"):
            train(tmp_path, "run", inline=True)
    assert not (tmp_path / "run" / "summary.json").exists()
    assert (tmp_path / "run" / "checkpoints").exists()


def test_a_run_that_is_killed_once_its_models_are_kept_is_gone_on_with(tmp_path, monkeypatch):
    """A device that has left leaves its final model once."""
    settings = ["fleet.churn={leaves: [{device: 1, round: 5}]}", "training.rounds=8"]
    with monkeypatch.context() as patched:
        patched.setattr(run_module, "summarise", _die)
        with pytest.raises(KeyboardInterrupt):
            train(tmp_path, "killed", *settings, inline=True)
    assert not (tmp_path / "killed" / "snapshots").exists()
    resumed = resume_run(tmp_path / "killed", console=Console(file=StringIO()))
    assert_same_bits(resumed, train(tmp_path, "whole", *settings, inline=True))


def _die(*_):
    raise KeyboardInterrupt
