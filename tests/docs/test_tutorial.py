"""The tutorial: its files are those of examples/tutorial, and its commands print what it shows."""

from __future__ import annotations

import os
import re
import runpy
import shlex
import signal
import sys
from pathlib import Path

import pytest

from edgesim.cli import main
from edgesim.sweeps.run import read_sweep

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "examples" / "tutorial"
TEXT = (ROOT / "docs" / "tutorial.md").read_text()
FILES = dict(re.findall(r"^`([\w.]+)`:\n\n```\w+\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL))
SESSIONS = re.findall(r"^```console\n\$ (.*?)\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)
# The sweep's cells are processes, and boards.yaml trains the network, too; the rest takes 10 s.
RUN_HERE = [
    pair
    for pair in SESSIONS
    if not pair[0].startswith(("edgesim report", "edgesim sweep", "edgesim run network.yaml"))
]
PROGRESS = re.compile(r"round [\d,]+/[\d,]+ .* left$")
NUMBER = re.compile(r"\d[\d,]*(?:\.\d+)?(?:e-?\d+)?")


def test_files_on_the_page_are_those_of_the_folder():
    assert {path.name: path.read_text() for path in FOLDER.glob("*.*")} == FILES


@pytest.fixture(scope="module")
def printed(tmp_path_factory):
    """What each command prints, called one after the other in one folder, as a reader does."""
    folder = tmp_path_factory.mktemp("tutorial")
    for name, text in FILES.items():
        (folder / name).write_text(text)
    said = {}
    for command, _ in RUN_HERE:
        log = folder / "printed"
        with log.open("w") as stream, pytest.MonkeyPatch.context() as patch:
            patch.chdir(folder)
            patch.setattr(sys, "stdout", stream)
            patch.setattr(sys, "stderr", stream)
            patch.setattr(os, "environ", os.environ.copy())
            call(shlex.split(command), patch)
        said[command] = log.read_text().replace(f"{folder}/", "/home/me/tutorial/")
    return said


def call(words, patch):
    if words[0] == "python":
        runpy.run_path(words[1])
        return
    patch.setattr(sys, "argv", words)
    handler = signal.getsignal(signal.SIGTERM)
    try:
        with pytest.raises(SystemExit):
            main()
    finally:
        signal.signal(signal.SIGTERM, handler)


@pytest.mark.parametrize(("command", "shown"), RUN_HERE, ids=[command for command, _ in RUN_HERE])
def test_a_command_prints_what_the_page_shows(printed, command, shown):
    """All words, and all numbers but those of this machine; losses differ between processors.

    A machine that is busy with other work prints lines of progress between them.
    """
    lines, expected = (text.splitlines() for text in (printed[command], shown))
    lines, expected = (
        [line for line in part if line.strip() and not PROGRESS.match(line)]
        for part in (lines, expected)
    )
    assert [words_of(line) for line in lines] == [words_of(line) for line in expected]
    for line, wanted in zip(lines, expected, strict=True):
        if not line.startswith(("wall time", "report:", "files")):
            assert numbers_of(line) == pytest.approx(numbers_of(wanted), rel=0.2, abs=0.05), line


def test_the_sweep_has_the_cells_that_the_page_shows():
    (shown,) = (text for command, text in SESSIONS if command.startswith("edgesim sweep"))
    cells = re.findall(r"^\d/6 (\S+): accuracy", shown, re.MULTILINE)
    assert sorted(cells) == sorted(cell.name for cell in read_sweep(FOLDER / "compare.yaml").cells)


def words_of(line):
    return re.sub(r"\s+", " ", re.sub(r"\b[0-9a-f]{12}\b", "DIGEST", NUMBER.sub("0", line)))


def numbers_of(line):
    return [
        float(n.replace(",", "")) for n in NUMBER.findall(re.sub(r"\b[0-9a-f]{12}\b", "", line))
    ]
