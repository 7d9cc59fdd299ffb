"""A report says what its runs were made with, and what repeats them."""

from __future__ import annotations

from dataclasses import replace

import pytest
from reported_runs import SCENARIO, train

from edgesim.code_version import code_version
from edgesim.report.provenance import provenance_table, unlike_processors
from edgesim.report.report import report_page
from edgesim.report.runs import load_runs
from edgesim.results.run_files import RunFiles
from edgesim.storage.store import Store
from edgesim.system import processor


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    place = train(tmp_path_factory.mktemp("made") / "run", "training.rounds=2", scenario=SCENARIO)
    (found,) = load_runs([place])
    return found


def column(*runs):
    table = provenance_table(runs)
    assert len(table.columns) == 1 + len(runs)
    return {row[0]: row[1] for row in table.rows}


def test_it_has_code_packages_machine_and_digests(run):
    found = column(run)
    assert found["code"] == str(code_version())
    assert found["began"] == run.environment["started_utc"]
    assert f"torch {run.environment['packages']['torch']}" in found["packages"]
    assert "one process" in found["computed with"]
    assert run.environment["processor"] == processor()
    assert processor() in found["computed with"]
    digest = RunFiles(Store.at(run.place)).run_digest
    assert digest.startswith(found["digest of settings and data"])
    assert run.environment["samples"]["test"].startswith(found["test samples"])
    assert not {"own code and files", "resumed"} & set(found)
    page = report_page([run])
    assert "What it was made with" in page
    assert found["code"] in page


def test_a_run_from_before_says_what_it_has_on_record(run):
    old = replace(run, environment={"packages": {"edgesim": "0.1.0"}, "mode": "ray"})
    digest = column(run)["digest of settings and data"]
    assert column(old) == {
        "code": "edgesim 0.1.0 (code not on record)",
        "computed with": "Ray",
        "digest of settings and data": digest,
    }
    assert [row[0] for row in provenance_table([old, run]).rows][:2] == ["code", "computed with"]


def test_own_files_and_resumes_are_named(run):
    more = {
        "own_parts": {"/home/me/mine.py:Net": "a" * 32},
        "files": {"/home/me/graph.csv": "b" * 32},
        "resumed": [{"started_utc": "monday"}, {"started_utc": "tuesday"}],
        "accelerator": "cuda",
        "gpu": "H100",
    }
    own = replace(run, environment={**run.environment, **more})
    assert "RUN/own_parts" not in provenance_table([run]).notes[0]
    assert "files are taken from RUN/own_parts" in provenance_table([run, own]).notes[0]
    found = column(own)
    assert found["own code and files"] == (
        f"/home/me/mine.py:Net ({'a' * 16}) and /home/me/graph.csv ({'b' * 16})"
    )
    assert found["resumed"] == "monday and tuesday"
    assert found["computed with"].startswith("H100, ")


MILAN, XEON = {"processor": "AMD EPYC 7763"}, {"processor": "Intel Xeon 8480+"}
H100 = {"accelerator": "cuda", "gpu": "H100"}


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ((MILAN, XEON, MILAN), "0 and 2 by AMD EPYC 7763; 1 by Intel Xeon 8480+."),
        ((MILAN, MILAN | H100, MILAN), "0 and 2 by AMD EPYC 7763; 1 by H100."),
        ((MILAN, MILAN, MILAN), None),
        ((MILAN | H100, XEON | H100, H100), None),
        ((MILAN, MILAN, {"processor": ""}), None),
        ((MILAN, MILAN, {"processor": None}), None),
    ],
)
def test_processors_that_computed_are_told_apart_where_they_are_on_record(run, changes, said):
    runs = [
        replace(run, label=str(number), environment=run.environment | change)
        for number, change in enumerate(changes)
    ]
    found = unlike_processors(runs)
    assert found == [] if said is None else found[0].endswith(f": {said}")
    old = replace(run, environment={"packages": {}, "mode": "ray"})
    assert unlike_processors([runs[0], old]) == []


def test_the_description_is_told_as_the_scenarios_words(run):
    """What `--set` changes it does not follow, so the page must not state it as a fact."""
    words = "a &lt;small&gt; fleet &amp; its report"
    assert f'<p class="under">Its scenario says: {words}</p>' in report_page([run])
