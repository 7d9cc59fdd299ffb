"""A finished run gives its result again, if all of it is there."""

from __future__ import annotations

from io import StringIO

import pytest
from interrupted_runs import KINDS, flip, resumed
from rich.console import Console
from small_fleets import train

from edgesim.fleet.run import resume_run
from edgesim.results.run_directory import RunDirectoryError


def test_a_finished_run_says_so_and_gives_its_result_again(tmp_path):
    """Who starts a run again whenever it has ended, as a KubeRay job does, needs no error."""
    result = train(tmp_path, "run", inline=True)
    assert resumed(tmp_path) == result
    said = (tmp_path / "resume.log").read_text()
    assert said == f"{tmp_path / 'run'}: this run is finished; there is nothing to do\n"


LEFT_BY_A_RUN = (
    *("rounds", "messages", "evaluations", "devices"),
    "models/device-000003",
    "models/device-000000",
)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("finished")
    return train(folder, "run", inline=True).path


@pytest.mark.parametrize("name", LEFT_BY_A_RUN)
@pytest.mark.parametrize("loss", ["lost", "longer", "flipped", "empty"])
def test_a_finished_run_of_which_a_file_is_lost_is_not_taken_for_whole(finished, name, loss):
    """What tables could be made from again stays: it was killed before that was removed."""
    path = finished / (f"{name}.npz" if "/" in name else f"{name}.parquet")
    data, part = (
        path.read_bytes(),
        finished / "parts" / "device-000000" / "rounds-000000000.parquet",
    )
    part.parent.mkdir(parents=True, exist_ok=True)
    part.touch()
    match loss:
        case "lost":
            path.unlink()
        case "longer":
            path.write_bytes(data + b"x")
        case "flipped":
            flip(path)
        case "empty":
            path.write_bytes(b"")
    try:
        with pytest.raises(
            RunDirectoryError, match=rf"run/{path.relative_to(finished)}: "
        ) as caught:
            resume_run(finished, console=Console(file=StringIO()))
        assert "\n" not in str(caught.value)
        assert part.exists()
    finally:
        path.write_bytes(data)


@pytest.mark.parametrize("kind", ["free until", "free churn and batteries"])
def test_a_finished_run_by_virtual_time_is_whole(tmp_path, kind):
    result = train(tmp_path, "run", *KINDS[kind], inline=True)
    assert resumed(tmp_path) == result
