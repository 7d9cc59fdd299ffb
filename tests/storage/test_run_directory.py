"""A run directory keeps what it is given, in any store, and knows its own."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from uuid import uuid4

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
import torch
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from run_records import report, snapshot

import edgesim
from edgesim.results import part_merge
from edgesim.results.columns import DEVICES, EVALUATIONS, MESSAGES, arrow_schema
from edgesim.results.load import ResultsError
from edgesim.results.run_directory import RunDirectory
from edgesim.results.run_files import FORMAT_VERSION, RunDirectoryError
from edgesim.storage import files as stored_files
from edgesim.storage.store import StorageError


@pytest.fixture
def directory(store):
    return RunDirectory.create(store, "digest")


def begun(directory: RunDirectory) -> RunDirectory:
    """With the files that a run writes before it trains."""
    directory.write_text("scenario.yaml", "name: small\n")
    directory.write_json("environment.json", {"mode": "inline"})
    return directory


def table(directory: RunDirectory, name: str) -> list[tuple[int, ...]]:
    keys = {"rounds": ["round", "device"], "messages": ["round", "sender", "receiver"]}[name]
    columns = directory.read_table(f"{name}.parquet").to_pydict()
    return list(zip(*(columns[key] for key in keys), strict=True))


def test_a_run_is_found_again_with_what_it_was_created_for(directory):
    again = RunDirectory.open_existing(begun(directory).place)
    about = again.read_json("run.json")
    assert about == {"format": 2, "edgesim": about["edgesim"], "run_digest": "digest"}
    assert again.run_digest == "digest"
    assert again.read_text("scenario.yaml") == "name: small\n"
    assert again.has("scenario.yaml")
    assert not again.has("summary.json")


def test_a_place_in_use_is_refused_and_left_alone(directory):
    with pytest.raises(RunDirectoryError, match="exists and is not an empty folder; choose anoth"):
        RunDirectory.create(directory.place)
    assert directory.read_json("run.json")["run_digest"] == "digest"


def test_a_directory_has_a_path_only_on_this_machine(directory, tmp_path):
    if directory.place.startswith("/"):
        assert directory.path == Path(directory.place)
    else:
        with pytest.raises(StorageError, match="is no folder of this machine"):
            _ = directory.path


class TestDirectoriesThatCannotBeGoneOnWith:
    @pytest.fixture
    def run(self, tmp_path):
        return begun(RunDirectory.create(tmp_path / "run", "digest"))

    def refusal(self, run: RunDirectory) -> str:
        before = {path: path.read_bytes() for path in run.path.rglob("*") if path.is_file()}
        with pytest.raises(RunDirectoryError) as caught:
            RunDirectory.open_existing(run.path)
        after = {path: path.read_bytes() for path in run.path.rglob("*") if path.is_file()}
        assert after == before
        assert "\n" not in str(caught.value)
        assert str(caught.value).startswith(run.place)
        return str(caught.value)

    def test_a_foreign_folder(self, tmp_path):
        (tmp_path / "mine.txt").write_text("mine")
        said = self.refusal(RunDirectory(tmp_path))
        assert said == f"{tmp_path}: no run directory; it lacks run.json"

    def test_nothing_at_all(self, tmp_path):
        assert "no run directory" in self.refusal(RunDirectory(tmp_path / "nowhere"))
        assert not (tmp_path / "nowhere").exists()

    def test_a_newer_format(self, run):
        about = {**run.read_json("run.json"), "format": FORMAT_VERSION + 1, "edgesim": "7.0"}
        run.write_json("run.json", about)
        said = "written by a newer edgesim (7.0, format 3; this one reads 2); use the one"
        assert said in self.refusal(run)

    def test_an_older_format(self, run):
        about = {"format": 1, "edgesim": "0.0.9", "run_digest": "digest"}
        (run.path / "run.json").write_text(json.dumps(about))
        assert "written by an older edgesim (0.0.9, format 1; this one" in self.refusal(run)

    @pytest.mark.parametrize("text", ['{"format": 1', "[]", '{"other": 1}', '{"format": "1"}'])
    def test_a_description_that_is_damaged_or_of_something_else(self, run, text):
        (run.path / "run.json").write_text(text)
        said = self.refusal(run)
        assert "damaged" in said or "run.json is another's" in said

    def test_a_description_that_is_no_text(self, run):
        (run.path / "run.json").write_bytes(b"\xff\xfe")
        assert "run.json: damaged: it is no JSON" in self.refusal(run)

    @pytest.mark.parametrize("name", ["scenario.yaml", "environment.json"])
    def test_a_run_that_had_not_got_going(self, run, name):
        (run.path / name).unlink()
        assert (
            f"lacks {name}: they are lost, or the run ended before it wrote them; bring"
            in self.refusal(run)
        )


class TestRounds:
    def test_are_merged_in_order_whatever_the_order_of_parts(self, directory):
        directory.write_rounds(1, [report(1, 2, receivers=(0,))])
        directory.write_rounds(0, [report(0, r, receivers=(2, 1)) for r in range(3)])
        directory.write_rounds(1, [report(1, 0), report(1, 1)])
        directory.merge_rounds(keep_parts=True)
        rounds = [(r, d) for r in range(3) for d in (0, 1)]
        messages = [(0, 0, 1), (0, 0, 2), (1, 0, 1), (1, 0, 2), (2, 0, 1), (2, 0, 2), (2, 1, 0)]
        assert table(directory, "rounds") == rounds
        assert table(directory, "messages") == messages

    def test_written_again_replace_what_was_there(self, directory):
        """An interrupted run is gone on with: its first tables and its last parts are outdated."""
        directory.write_rounds(0, [report(0, r) for r in (0, 1)])
        directory.write_rounds(0, [report(0, r) for r in (2, 3, 4)])
        directory.merge_rounds(keep_parts=True)
        assert len(table(directory, "rounds")) == 5
        directory.drop_parts_from(0, 2)
        directory.write_rounds(0, [report(0, r) for r in (2, 3)])
        directory.write_rounds(0, [report(0, r) for r in (4, 5, 6)])
        directory.merge_rounds()
        assert table(directory, "rounds") == [(r, 0) for r in range(7)]

    def test_are_dropped_from_a_round_on_of_one_device_alone(self, directory):
        for device in (0, 1, 10):
            for first in (0, 4, 9, 11):
                directory.write_rounds(device, [report(device, first, receivers=(5,))])
        directory.drop_parts_from(1, 9)
        directory.drop_parts_from(10, 0)
        directory.drop_parts_from(7, 0)
        directory.merge_rounds(keep_parts=True)
        assert table(directory, "rounds") == [(0, 0), (0, 1), (4, 0), (4, 1), (9, 0), (11, 0)]
        assert [(r, s) for r, s, _ in table(directory, "messages")] == table(directory, "rounds")

    def test_of_nobody_make_empty_tables_with_all_columns(self, directory):
        directory.merge_rounds()
        assert table(directory, "rounds") == table(directory, "messages") == []

    def test_of_a_finished_run_leave_no_parts_and_checkpoints(self, directory, store):
        directory.write_rounds(0, [report(0, 0, receivers=(1,))])
        directory.write_checkpoint(0, 1, b"state")
        directory.merge_rounds(keep_parts=True)
        assert store.names("parts/*/*")
        assert directory.checkpoint_rounds(0) == [1]
        directory.merge_rounds()
        assert store.names("*/*/*") == []
        directory.drop_recovery()

    def test_that_are_damaged_are_named(self, directory, store):
        directory.write_rounds(4, [report(4, 0)])
        (name,) = store.names("parts/*/rounds-*")
        store.write(name, b"PAR1 and nothing more")
        with pytest.raises(RunDirectoryError, match=rf"{name}: damaged: "):
            directory.merge_rounds()
        assert not directory.has("rounds.parquet")


parts_by_device = st.lists(st.lists(st.integers(1, 6), max_size=6), min_size=1, max_size=5)


@settings(max_examples=20)
@given(parts_by_device, st.integers(1, 20))
def test_merging_in_groups_is_merging_at_once(lengths, rows_per_group):
    """Parts of any lengths, in groups of any size; rounds of devices are skipped at times."""
    directory = RunDirectory.create(f"memory://{uuid4().hex}", "digest")
    expected = []
    for device, of_device in enumerate(lengths):
        first = 0
        for length in of_device:
            rounds = [r for r in range(first, first + length) if (r + device) % 4] or [first]
            directory.write_rounds(device, [report(device, r, receivers=(9,)) for r in rounds])
            expected += [(r, device) for r in rounds]
            first += length
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(part_merge, "ROWS_PER_GROUP", rows_per_group)
        directory.merge_rounds(keep_parts=True)
    assert table(directory, "rounds") == sorted(expected)
    assert table(directory, "messages") == [(r, d, 9) for r, d in sorted(expected)]


@pytest.mark.parametrize(
    ("rows_per_group", "expected"), [(20, [24] * 5), (24, [24] * 5), (25, [36, 36, 36, 12])]
)
def test_merging_holds_few_parts_at_a_time(tmp_path, monkeypatch, rows_per_group, expected):
    """Three devices, ten parts of four rounds each: at least so many, whole rounds, no more."""
    directory = RunDirectory.create(tmp_path)
    for device in range(3):
        for first in range(0, 40, 4):
            directory.write_rounds(device, [report(device, r) for r in range(first, first + 4)])
    sizes = []
    write_table = pq.ParquetWriter.write_table

    def watch(self, rows):
        sizes.append(rows.num_rows)
        write_table(self, rows)

    monkeypatch.setattr(pq.ParquetWriter, "write_table", watch)
    monkeypatch.setattr(part_merge, "ROWS_PER_GROUP", rows_per_group)
    directory.merge_rounds(keep_parts=True)
    assert sizes == [*expected, 0]  # 3 x 40 rounds; no messages
    assert table(directory, "rounds") == [(r, d) for r in range(40) for d in range(3)]


class TestCheckpoints:
    def test_are_listed_by_round_read_and_dropped(self, directory):
        for round_index in (1000, 7, 20):
            directory.write_checkpoint(3, round_index, b"%d" % round_index)
        directory.write_checkpoint(4, 1, b"other")
        assert directory.checkpoint_rounds(3) == [7, 20, 1000]
        assert directory.read_checkpoint(3, 20) == b"20"
        directory.drop_checkpoints(3, [7, 1000, 5])
        assert directory.checkpoint_rounds(3) == [20]
        assert directory.checkpoint_rounds(4) == [1]
        assert directory.checkpoint_rounds(5) == []

    def test_that_are_not_there_are_an_error(self, directory):
        with pytest.raises(
            StorageError, match=r"device-000003/round-000000007.ckpt: can't be read"
        ):
            directory.read_checkpoint(3, 7)


class TestPowerCuts:
    """What no folder was synced for is lost; a file's bytes are synced before it has its name."""

    @pytest.fixture
    def lost(self, monkeypatch):
        """Names that a power cut now would take."""
        unsynced = set()
        replace, sync = Path.replace, stored_files._sync_folder

        def note(self, target):
            unsynced.add(Path(target))
            return replace(self, target)

        def forget(folder):
            sync(folder)
            unsynced.difference_update([path for path in unsynced if path.parent == folder])

        mkdir = Path.mkdir

        def note_folder(self, *args, **kwargs):
            unsynced.add(self)
            mkdir(self, *args, **kwargs)

        monkeypatch.setattr(Path, "replace", note)
        monkeypatch.setattr(Path, "mkdir", note_folder)
        monkeypatch.setattr(stored_files, "_sync_folder", forget)
        return unsynced

    def test_take_no_record_that_is_older_than_a_checkpoint(self, tmp_path, lost):
        directory = RunDirectory.create(tmp_path / "run", "digest")
        directory.write_rounds(0, [report(0, 0, receivers=(1,))])
        directory.write_snapshot(snapshot(0, 1))
        assert {path.name for path in lost} == {
            "messages-000000000.parquet",
            "rounds-000000000.parquet",
            "round-000000001-device-000000.npz",
        }
        directory.write_checkpoint(0, 1, b"state")
        assert not lost

    def test_take_no_final_model(self, tmp_path, lost):
        directory = RunDirectory.create(tmp_path / "run", "digest")
        directory.write_snapshot(snapshot(0, 1))
        directory.keep_final_models(1)
        assert not {path for path in lost if path.parent.name == "models"}


class TestModels:
    def test_are_kept_until_all_are_there_and_read_back(self, directory):
        directory.write_snapshot(snapshot(0, 5))
        assert not directory.has_snapshots(5, 2)
        directory.write_snapshot(snapshot(1, 5))
        assert directory.has_snapshots(5, 2)
        back = directory.read_snapshot(5, 1)
        assert (back.device, back.round_index, back.rounds_done, back.u) == (1, 5, 5, 1.25)
        assert back.virtual_time_s is None
        assert torch.equal(back.x, snapshot(1, 5).x)
        directory.drop_snapshots(5)
        assert not directory.has_snapshots(5, 2)

    def test_of_the_last_round_are_kept_for_good(self, directory, store):
        for device in (0, 11):
            directory.write_snapshot(snapshot(device, 6))
        directory.write_snapshot(snapshot(0, 3))
        for _ in range(2):  # again after an interruption
            directory.keep_final_models(6)
            assert store.names("models/*") == [
                "models/device-000000.npz",
                "models/device-000011.npz",
            ]
            assert store.names("snapshots/*") == []


SUMMARY = {"name": "small", "sent_bytes": 20, "consensus_accuracy": 0.5}


def finished(directory: RunDirectory) -> None:
    begun(directory).write_rounds(0, [report(0, r, receivers=(1,)) for r in range(2)])
    directory.merge_rounds()
    directory.write_table("evaluations.parquet", [evaluation(1), evaluation(2)], EVALUATIONS)
    directory.write_table("devices.parquet", [], DEVICES)
    directory.write_json("summary.json", SUMMARY)


def test_a_finished_run_is_loaded_from_wherever_it_is(directory):
    finished(directory)
    run = edgesim.load_run(directory.place)
    assert run.is_finished
    assert run.place == directory.place
    assert run.summary == SUMMARY
    assert run.rounds["round"].tolist() == [0, 1]
    assert run.messages["receiver"].tolist() == [1, 1]
    names = [*arrow_schema(EVALUATIONS).names, "total_sent_bytes"]  # these have no energy
    assert list(run.evaluations.columns) == names


def test_a_run_on_this_machine_is_loaded_as_pandas_reads_it(tmp_path):
    directory = RunDirectory.create(tmp_path / "run")
    finished(directory)
    run = edgesim.load_run(tmp_path / "run")
    assert run.path == tmp_path / "run"
    pd.testing.assert_frame_equal(run.rounds, pd.read_parquet(run.path / "rounds.parquet"))
    assert run.summary == SUMMARY


def test_a_finished_run_that_lacks_a_table_is_refused_by_its_name(directory):
    finished(directory)
    directory._store.delete(["evaluations.parquet"])
    with pytest.raises(ResultsError, match=r"store: lacks evaluations\.parquet; bring it back"):
        edgesim.load_run(directory.place)


def test_an_unfinished_run_is_loaded_as_far_as_it_is_written(directory):
    with pytest.warns(edgesim.UnfinishedRunWarning, match="unfinished; these are the 0 rounds"):
        run = edgesim.load_run(begun(directory).place)
    assert run.rounds.empty
    assert list(run.messages.columns) == arrow_schema(MESSAGES).names
    directory.write_rounds(1, [report(1, 0)])
    directory.merge_rounds(keep_parts=True)  # it ended here once, and was gone on with
    directory.write_rounds(0, [report(0, r, receivers=(2, 1)) for r in range(3)])
    directory.write_table("evaluations.parquet", [evaluation(2)], EVALUATIONS)
    with pytest.warns(edgesim.UnfinishedRunWarning, match="unfinished; these are the 4 rounds"):
        run = edgesim.load_run(directory.place)
    assert not run.is_finished
    assert run.rounds[["round", "device"]].to_numpy().tolist() == [[0, 0], [0, 1], [1, 0], [2, 0]]
    assert run.messages["receiver"].tolist() == [1, 2] * 3
    assert run.evaluations["round"].tolist() == [2]
    assert run.devices.empty
    assert run.summary == {}


def evaluation(round_index: int) -> dict[str, object]:
    """A row of an evaluation."""
    row = {"round": round_index, "epoch": 0.5, "model": "consensus", "device": -1, "accuracy": 0.5}
    return {**row, "loss": 0.1, "consensus_distance": np.pi, "model_norm": 1.0}


def test_a_folder_that_is_no_run_is_not_loaded(tmp_path):
    with pytest.raises(RunDirectoryError, match=r"no run directory; it lacks run\.json"):
        edgesim.load_run(tmp_path)


class TestFilesThatAreNotWhatTheyShouldBe:
    """One that is damaged is named, and so is another run's, or another file of the run."""

    NAMES = (
        "rounds.parquet",
        "messages.parquet",
        "evaluations.parquet",
        "devices.parquet",
        "summary.json",
    )

    @pytest.fixture
    def run(self, tmp_path):
        directory = RunDirectory.create(tmp_path / "run", "digest")
        finished(directory)
        return directory

    @pytest.mark.parametrize("name", NAMES)
    def test_a_table_of_another_run(self, run, tmp_path, name):
        other = RunDirectory.create(tmp_path / "other", "another digest")
        finished(other)
        (run.path / name).write_bytes((other.path / name).read_bytes())
        with pytest.raises(RunDirectoryError, match=f"run/{name}: of another run; bring it back"):
            edgesim.load_run(run.place)

    @pytest.mark.parametrize("name", NAMES)
    def test_a_bit_that_flipped(self, run, name):
        data = bytearray((run.path / name).read_bytes())
        data[len(data) // 2] ^= 8
        (run.path / name).write_bytes(data)
        with pytest.raises(RunDirectoryError, match=f"run/{name}: damaged.*; bring it back"):
            edgesim.load_run(run.place)

    def test_another_table(self, run):
        (run.path / "rounds.parquet").write_bytes((run.path / "devices.parquet").read_bytes())
        with pytest.raises(RunDirectoryError, match=r"rounds.parquet: damaged, or another file's"):
            edgesim.load_run(run.place)

    @pytest.mark.parametrize(
        "do", [Path.mkdir, lambda path: path.symlink_to("nowhere")], ids=["folder", "link"]
    )
    def test_what_is_no_file(self, run, do):
        path = run.path / "messages.parquet"
        path.unlink()
        do(path)
        with pytest.raises(ResultsError, match=r"lacks messages\.parquet"):
            edgesim.load_run(run.place)

    def test_tables_of_another_moment(self, run):
        """Each is sound, as after a backup of an unfinished run was put back in part."""
        run.write_table("evaluations.parquet", [{**evaluation(1), "accuracy": 0.1}], EVALUATIONS)
        with pytest.raises(RunDirectoryError, match=r"evaluations.parquet: does not end with the"):
            edgesim.load_run(run.place)
        run.write_table("evaluations.parquet", [evaluation(1)], EVALUATIONS)
        edgesim.load_run(run.place)
        run.write_rounds(0, [report(0, 0, receivers=(1,))])
        run.merge_rounds()
        with pytest.raises(RunDirectoryError, match=r"rounds.parquet: does not add up"):
            edgesim.load_run(run.place)

    def test_messages_of_another_moment(self, run):
        messages = (run.path / "messages.parquet").read_bytes()
        run.write_rounds(0, [report(0, 0, receivers=(1, 2))])
        run.merge_rounds()
        (run.path / "messages.parquet").write_bytes(messages)
        with pytest.raises(RunDirectoryError, match=r"messages.parquet: has 1 messages missing of"):
            edgesim.load_run(run.place)

    def test_parts_whose_messages_are_lost(self, tmp_path):
        run = begun(RunDirectory.create(tmp_path / "begun", "digest"))
        run.write_rounds(0, [report(0, 0, receivers=(1, 2))])
        (run.path / "parts" / "device-000000" / "messages-000000000.parquet").unlink()
        with pytest.raises(RunDirectoryError, match=r"parts: has 2 messages missing of round 0"):
            edgesim.load_run(run.place)

    def test_a_model_of_another_device(self, run):
        for device in (0, 1):
            run.write_snapshot(snapshot(device, 5))
        folder = run.path / "snapshots"
        (folder / "round-000000005-device-000001.npz").write_bytes(
            (folder / "round-000000005-device-000000.npz").read_bytes()
        )
        assert run.read_snapshot(5, 0).device == 0
        with pytest.raises(RunDirectoryError, match=r"device-000001.npz: damaged, or another"):
            run.read_snapshot(5, 1)

    def test_a_final_model_of_another_device(self, run):
        for device in (0, 1):
            run.write_snapshot(snapshot(device, 5))
        run.keep_final_models(5)
        assert run.read_final_model(5, 1).device == 1
        (run.path / "models" / "device-000000.npz").replace(
            run.path / "models" / "device-000001.npz"
        )
        with pytest.raises(RunDirectoryError, match=r"device-000001.npz: damaged, or another"):
            run.read_final_model(5, 1)


def test_files_are_what_others_read(tmp_path):
    """The checksum is where each format has room for such things."""
    run = RunDirectory.create(tmp_path / "run", "digest")
    finished(run)
    run.write_snapshot(snapshot(1, 5))
    run.keep_final_models(5)
    assert pd.read_parquet(run.path / "rounds.parquet")["round"].tolist() == [0, 1]
    assert np.load(run.path / "models" / "device-000001.npz")["x"].tolist() == [1, 5, 0.5]
    assert yaml.safe_load((run.path / "scenario.yaml").read_text()) == {"name": "small"}
    assert json.loads((run.path / "summary.json").read_text())["name"] == "small"


def test_rows_of_a_table_are_read_back_and_none_of_none(directory):
    assert directory.read_rows("evaluations.parquet") == []
    row = evaluation(3)
    directory.write_table("evaluations.parquet", [row], EVALUATIONS)
    assert directory.read_rows("evaluations.parquet") == [row]


def test_a_full_or_read_only_disk_leaves_the_run_as_it_was(tiny_disk):
    directory = RunDirectory.create(tiny_disk / "run")
    directory.write_rounds(0, [report(0, 0)])
    directory.write_checkpoint(0, 1, b"state")
    with pytest.raises(StorageError, match=r"round-000000002.ckpt: can't be written .*make room"):
        directory.write_checkpoint(0, 2, bytes(2**20))
    subprocess.run(["mount", "-o", "remount,ro", str(tiny_disk)], check=True)
    for act in (
        lambda: directory.write_rounds(0, [report(0, 1)]),
        lambda: directory.write_checkpoint(0, 2, b"state"),
        lambda: directory.merge_rounds(),
    ):
        with pytest.raises(StorageError, match=r"can't be written .*read-only: choose another"):
            act()
    with pytest.raises(StorageError, match="read-only: choose another place"):
        RunDirectory.create(tiny_disk / "other")
    subprocess.run(["mount", "-o", "remount,rw", str(tiny_disk)], check=True)
    assert directory.checkpoint_rounds(0) == [1]
    directory.merge_rounds()
    assert table(directory, "rounds") == [(0, 0)]
