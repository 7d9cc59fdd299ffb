"""Runs with one's own parts keep what they began with, and go on with nothing else."""

import re
import shutil
from io import StringIO

import pandas as pd
import pytest
from rich.console import Console
from small_fleets import assert_same_bits, killed_at_its_end, prepared, train

from edgesim import UnfinishedRunWarning, load_run
from edgesim.api.checks import prepared_table
from edgesim.assembly.build import PLAIN
from edgesim.errors import EdgesimError, OwnCodeError, ScenarioError
from edgesim.fleet.run import resume_run

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
