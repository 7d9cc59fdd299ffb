"""Runs with one's own parts keep what they began with, and go on with nothing else."""

import re
import shutil
from functools import partial
from io import StringIO

import pandas as pd
import pytest
from rich.console import Console
from small_fleets import assert_same_bits, killed_at_its_end, prepared, train

import edgesim
from edgesim import ScenarioWarning, UnfinishedRunWarning, load_run
from edgesim.api.checks import prepared_table
from edgesim.assembly.build import PLAIN
from edgesim.cli.checking import read
from edgesim.cli.cost import show_costs
from edgesim.errors import EdgesimError, OwnCodeError, ScenarioError
from edgesim.fleet.run import resume_run
from edgesim.results.run_files import RunFiles
from edgesim.storage.store import Store

SOURCE = """
from edgesim.compression.compressors import TopK

def Mine(keep):
    return TopK(keep=keep, values="fp32")
"""


@pytest.fixture
def own(tmp_path):
    """Overrides that choose a compressor of one's own."""
    path = tmp_path / "mine.py"
    path.write_text(SOURCE)
    compressor = f"{{kind: '{path}:Mine', options: {{keep: 0.2}}}}"
    return (
        f"gossip={{algorithm: choco, averaging_rate: 0.2, compressor: {compressor}}}",
        "recovery.checkpoint_every_rounds=2",
        "fleet.churn={absent: [{device: 1, from_round: 3, until_round: 4}]}",
        "topology.kind=complete",
    )


@pytest.fixture
def killed(tmp_path, own, monkeypatch):
    """A run that was killed at its end, before its summary was written."""
    with killed_at_its_end(monkeypatch):
        train(tmp_path, "killed", *own, inline=True)
    return tmp_path / "killed"


def test_a_payload_of_wrong_types_in_a_later_round_is_told_as_own_code(tmp_path):
    path = tmp_path / "late.py"
    path.write_text(
        "from dataclasses import dataclass, replace\n"
        "import torch\nfrom edgesim.compression.compressors import TopK\n\n"
        "calls = []\n\n"
        "@dataclass(frozen=True, slots=True)\n"
        "class Late(TopK):\n"
        "    def compress(self, x, layout, rng):\n"
        "        made = TopK.compress(self, x, layout, rng)\n"
        "        calls.append(1)\n"
        "        if len(calls) < 12:\n"
        "            return made\n"
        "        return replace(made, indices=torch.tensor(made.indices))\n"
    )
    options = "{keep: 0.2, values: fp32}"
    compressor = f"{{kind: '{path}:Late', options: {options}}}"
    gossip = f"gossip={{algorithm: choco, averaging_rate: 0.2, compressor: {compressor}}}"
    with pytest.raises(OwnCodeError) as caught:
        train(tmp_path, "late", gossip, inline=True)
    first, second = str(caught.value).splitlines()
    assert re.fullmatch(
        r"gossip\.compressor\.kind: on device \d in round \d compress gives a payload that can't "
        r"be sent: its indices are a tensor of torch; must be an array of numpy: indices.numpy\(\)",
        first,
    )
    assert second.startswith("mend your code")


def resume(run):
    return resume_run(run, console=Console(file=StringIO()))


def test_an_own_part_has_the_bits_of_the_same_thing_in_the_catalog(tmp_path, own):
    mine = train(tmp_path, "mine", *own, inline=True)
    theirs = train(tmp_path, "theirs", *own[1:], inline=True)
    assert_same_bits(mine, theirs)


def test_its_content_is_part_of_the_digest_and_validate_names_it(tmp_path, own):
    before = prepared(tmp_path, *own)
    row = dict(prepared_table(before).rows)["gossip.compressor.kind, your own"]
    assert row.startswith(f"Mine from {tmp_path / 'mine.py'} (file ")
    (tmp_path / "mine.py").write_text(f"{SOURCE}# more\n")
    assert prepared(tmp_path, *own).digest(PLAIN) != before.digest(PLAIN)


def test_a_run_goes_on_when_the_file_is_gone_and_not_when_it_has_changed(tmp_path, own, killed):
    whole = train(tmp_path, "whole", *own, inline=True)
    shutil.copytree(killed, tmp_path / "moved")
    (tmp_path / "mine.py").write_text(f"{SOURCE}# more\n")
    with pytest.raises(ScenarioError, match=r"names .*/mine.py, which has changed since the run"):
        resume(killed)
    (tmp_path / "mine.py").unlink()
    with pytest.warns(UnfinishedRunWarning):
        loaded = load_run(tmp_path / "moved")
    assert len(loaded.rounds) == len(pd.read_parquet(whole.path / "rounds.parquet"))
    assert_same_bits(whole, resume(killed))


def test_a_damaged_copy_is_refused(tmp_path, killed):
    (copy,) = (killed / "own_parts").iterdir()
    copy.write_text(copy.read_text().replace("fp32", "fp16"))
    (tmp_path / "mine.py").unlink()
    with pytest.raises(EdgesimError, match=rf"own_parts/{copy.name}.*does not match its checksum"):
        resume(killed)


@pytest.fixture
def kept(tmp_path, own):
    """A finished run whose file has changed since."""
    train(tmp_path, "kept", *own, inline=True)
    (tmp_path / "mine.py").write_text(f"{SOURCE.replace('fp32', 'fp16')}\nmine = 1\n")
    return tmp_path / "kept"


def test_the_scenario_of_a_run_repeats_it_with_the_code_that_the_run_kept(tmp_path, kept):
    with pytest.warns(ScenarioWarning, match=r"kind: .*/mine.py has changed since; the code that"):
        edgesim.run(kept / "scenario.yaml", out=tmp_path / "changed", inline=True)
    (tmp_path / "mine.py").unlink()
    again = edgesim.run(kept / "scenario.yaml", out=tmp_path / "gone", inline=True)
    for name in ("changed", "gone"):
        parts = edgesim.compare_runs(kept, tmp_path / name)
        assert not [part.difference for part in parts if part.difference]
        digests = {RunFiles(Store.at(place)).run_digest for place in (kept, tmp_path / name)}
        assert len(digests) == 1
    assert again.scenario == load_run(kept).scenario


def test_all_that_reads_the_scenario_of_a_run_takes_the_code_that_the_run_kept(tmp_path, kept):
    (tmp_path / "mine.py").unlink()
    path = kept / "scenario.yaml"
    assert edgesim.validate(path, seed=9).scenario.seed == 9
    assert read(path, ["seed=9"]) == edgesim.load_scenario(path, seed=9)
    show = partial(show_costs, other=None, other_overrides=[], json_file=None, out=None)
    console = Console(file=StringIO())
    show(path, [], console, all_models=False, is_short=False, with_paper=False, say=lambda _: None)
    costs = edgesim.cost(path, fleet__profile="raspberry-pi-4b")
    assert costs.answer.advice.num_tried, "changed scenarios have the code too"


def test_a_copy_of_the_scenario_elsewhere_asks_for_the_file(tmp_path, kept):
    (tmp_path / "mine.py").unlink()
    shutil.copy(kept / "scenario.yaml", tmp_path / "copy.yaml")
    with pytest.raises(ScenarioError, match=r"names .*/mine.py, which is not there"):
        edgesim.load_scenario(tmp_path / "copy.yaml")


def test_an_override_names_a_file_of_which_the_run_has_no_copy(tmp_path, kept):
    (tmp_path / "new.py").write_text(SOURCE)
    reference = f"{tmp_path}/new.py:Mine"
    scenario = edgesim.load_scenario(
        kept / "scenario.yaml", gossip__compressor__kind=reference, gossip__averaging_rate=0.1
    )
    assert scenario.gossip.compressor.kind.source == SOURCE
