"""Rounds, checkpoints and models of a run, written in parts and joined."""

from __future__ import annotations

from pathlib import Path
from uuid import uuid4

import pyarrow.parquet as pq
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from run_records import evaluation, report, snapshot, table

from edgesim.results import part_merge
from edgesim.results.columns import EVALUATIONS
from edgesim.results.run_directory import RunDirectory
from edgesim.results.run_files import RunDirectoryError
from edgesim.storage import files as stored_files
from edgesim.storage.store import StorageError


class TestRounds:
    def test_are_merged_in_order_whatever_the_order_of_parts(self, directory):
        directory.write_rounds(1, [report(1, 2, receivers=(0,))])
        directory.write_rounds(0, [report(0, r, receivers=(2, 1)) for r in range(3)])
        directory.write_rounds(1, [report(1, 0), report(1, 1)])
        directory.merge_rounds()
        rounds = [(r, d) for r in range(3) for d in (0, 1)]
        messages = [(0, 0, 1), (0, 0, 2), (1, 0, 1), (1, 0, 2), (2, 0, 1), (2, 0, 2), (2, 1, 0)]
        assert table(directory, "rounds") == rounds
        assert table(directory, "messages") == messages

    def test_written_again_replace_what_was_there(self, directory):
        """An interrupted run is gone on with: its first tables and its last parts are outdated."""
        directory.write_rounds(0, [report(0, r) for r in (0, 1)])
        directory.write_rounds(0, [report(0, r) for r in (2, 3, 4)])
        directory.merge_rounds()
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
        directory.merge_rounds()
        assert table(directory, "rounds") == [(0, 0), (0, 1), (4, 0), (4, 1), (9, 0), (11, 0)]
        assert [(r, s) for r, s, _ in table(directory, "messages")] == table(directory, "rounds")

    def test_of_nobody_make_empty_tables_with_all_columns(self, directory):
        directory.merge_rounds()
        assert table(directory, "rounds") == table(directory, "messages") == []

    def test_of_a_finished_run_leave_no_parts_and_checkpoints(self, directory, store):
        directory.write_rounds(0, [report(0, 0, receivers=(1,))])
        directory.write_checkpoint(0, 1, b"state")
        directory.merge_rounds()
        assert store.names("parts/*/*")
        assert directory.checkpoint_rounds(0) == [1]
        directory.drop_recovery()
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
        directory.merge_rounds()
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
    directory.merge_rounds()
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

    def test_may_be_evaluated_and_removed_while_a_restored_device_looks_for_them(
        self, directory, store, monkeypatch
    ):
        """The monitor writes the evaluation first, and removes its models then."""
        directory.write_rounds(0, [report(0, r) for r in (0, 1)])
        directory.write_snapshot(snapshot(0, 2))
        read = store.read

        def read_too_late(name):
            if name.startswith("snapshots/") and store.exists(name):
                directory.write_table("evaluations.parquet", [evaluation(2)], EVALUATIONS)
                directory.drop_snapshots(2)
            return read(name)

        monkeypatch.setattr(store, "read", read_too_late)
        RunDirectory(store).check_records(0, 2, 2, [2])
        assert directory.num_evaluated() == 1
