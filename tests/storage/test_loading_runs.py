"""A run is loaded from wherever it is, and not if a file is not what it should be."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest
from run_records import SUMMARY, begun, evaluation, finished, report, snapshot

import edgesim
from edgesim.results.columns import EVALUATIONS, MESSAGES, arrow_schema
from edgesim.results.load import ResultsError
from edgesim.results.run_directory import RunDirectory
from edgesim.results.run_files import RunDirectoryError


def test_a_finished_run_is_loaded_from_wherever_it_is(directory):
    finished(directory)
    run = edgesim.load_run(directory.place)
    assert run.is_finished
    assert run.place == directory.place
    assert run.summary == SUMMARY
    assert run.rounds["round"].tolist() == [0, 1]
    assert run.messages["receiver"].tolist() == [1, 1]
    totals = ("total_sent_bytes", "total_messages_sent")  # these have no energy
    names = [*arrow_schema(EVALUATIONS).names, *totals]
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


def test_a_run_that_has_ended_and_lost_its_summary_is_no_unfinished_one(directory):
    """Resuming it would train it anew, and write over its tables."""
    finished(directory)
    directory._store.delete(["summary.json"])
    said = r"store: lacks summary\.json, though it ended; bring it back"
    with pytest.raises(RunDirectoryError, match=said):
        edgesim.load_run(directory.place)
    with pytest.raises(RunDirectoryError, match=said):
        edgesim.resume(directory.place)


@pytest.mark.parametrize(
    "text", ["- a\n", "a: &a [x, x]\nb: [*a, *a]\n", "a: !!python/name:os.system\n", "a: [\n"]
)
def test_a_scenario_of_another_kind_is_damaged(directory, text):
    """Aliases of aliases grow without end; edgesim writes none."""
    begun(directory).write_text("scenario.yaml", text)
    said = r"scenario\.yaml: damaged: it is no scenario; bring it back"
    with pytest.raises(RunDirectoryError, match=said):
        edgesim.load_run(directory.place)


def test_an_unfinished_run_is_loaded_as_far_as_it_is_written(directory):
    with pytest.warns(edgesim.UnfinishedRunWarning, match="unfinished; these are the 0 rounds"):
        run = edgesim.load_run(begun(directory).place)
    assert run.rounds.empty
    assert list(run.messages.columns) == arrow_schema(MESSAGES).names
    directory.write_rounds(1, [report(1, 0)])
    directory.merge_rounds()  # it ended here once, and was gone on with
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


def test_a_folder_that_is_no_run_is_not_loaded(tmp_path):
    with pytest.raises(RunDirectoryError, match="there is nothing; name the folder of a run"):
        edgesim.load_run(tmp_path / "mistyped")
    (tmp_path / "mine.txt").write_text("mine")
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
