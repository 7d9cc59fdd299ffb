"""A run directory keeps what it is given, in any store, and knows its own."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import yaml
from run_records import begun, evaluation, finished, report, snapshot, table

from edgesim.results.columns import EVALUATIONS
from edgesim.results.run_directory import RunDirectory
from edgesim.results.run_files import FORMAT_VERSION, RunDirectoryError
from edgesim.storage.store import StorageError


def test_a_lock_whose_file_was_removed_meanwhile_holds_nothing(tmp_path, monkeypatch):
    """The last holder removes its file when it ends: who had opened it before locks no run."""
    directory = RunDirectory.create(tmp_path / "run")
    path, opened, open_ = directory.path / "run.lock", [], os.open

    def open_and_lose(name, *given, **more):
        descriptor = open_(name, *given, **more)
        if Path(name) == path and not opened:
            opened.append(descriptor)
            path.unlink()
        return descriptor

    monkeypatch.setattr(os, "open", open_and_lose)
    with directory.held():
        assert opened
        assert path.exists()
        with pytest.raises(RunDirectoryError, match="still going on"), directory.held():
            pass
    assert not path.exists()


def test_a_run_is_found_again_with_what_it_was_created_for(directory):
    again = RunDirectory.open_existing(begun(directory).place)
    about = again.read_json("run.json")
    assert about == {"format": FORMAT_VERSION, "edgesim": about["edgesim"], "run_digest": "digest"}
    assert again.run_digest == "digest"
    assert again.read_text("scenario.yaml") == "name: small\n"
    assert again.has("scenario.yaml")
    assert not again.has("summary.json")


def test_a_place_in_use_is_refused_and_left_alone(directory):
    begun(directory)
    with pytest.raises(RunDirectoryError, match=r"holds a run already; .* another --out begins"):
        RunDirectory.create(directory.place)
    assert directory.read_json("run.json")["run_digest"] == "digest"


@pytest.mark.parametrize("name", ["scenario.yaml", "environment.json"])
def test_a_start_that_failed_is_told_apart_from_a_run_and_from_a_loss(directory, store, name):
    """Neither can be resumed; only the second may hold what somebody wants to keep."""
    run = begun(directory)
    store.delete([name])
    with pytest.raises(RunDirectoryError) as refused:
        RunDirectory.check_free(store)
    assert str(refused.value) == (
        f"{run.place}: holds a run whose start failed; remove the folder, or choose another --out"
    )
    run.write_rounds(0, [report(0, 0)])
    with pytest.raises(RunDirectoryError) as refused:
        RunDirectory.check_free(store)
    assert str(refused.value) == (
        f"{run.place}: holds a run that lacks {name}; choose another --out"
    )


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
        assert "there is nothing" in self.refusal(RunDirectory(tmp_path / "nowhere"))
        assert not (tmp_path / "nowhere").exists()

    def test_a_newer_format(self, run):
        about = {**run.read_json("run.json"), "format": FORMAT_VERSION + 1, "edgesim": "7.0"}
        run.write_json("run.json", about)
        formats = f"format {FORMAT_VERSION + 1}; this one reads {FORMAT_VERSION}"
        said = f"written by a newer edgesim (7.0, {formats}); use the one"
        assert said in self.refusal(run)

    def test_an_older_format(self, run):
        about = {"format": 1, "edgesim": "0.0.9", "run_digest": "digest"}
        (run.path / "run.json").write_text(json.dumps(about))
        assert "written by an older edgesim (0.0.9, format 1; this one" in self.refusal(run)

    @pytest.mark.parametrize("text", ['{"format": 1', "[]", '{"other": 1}', '{"format": "1"}'])
    def test_a_description_that_is_damaged_or_of_something_else(self, run, text):
        (run.path / "run.json").write_text(text)
        said = self.refusal(run)
        assert "damaged" in said or "run.json is of another program" in said

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
