"""The README of a folder names what is in it, and nothing that is not."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ["benchmarks", "dashboards", "deploy", "examples", "scenarios"]
CODE = re.compile(r"`([\w./-]+)`")


def entries(folder):
    """What is in a folder, but for what Python and runs leave there."""
    inside = [path for path in (ROOT / folder).iterdir() if path.name[0] not in "._"]
    folders = {f"{path.name}/" for path in inside if path.is_dir()} - {"runs/"}
    return folders | {path.name for path in inside if path.is_file()} - {"README.md"}


def named(folder):
    """First cells of the tables of a README, and what stands between backquotes in them."""
    text = (ROOT / folder / "README.md").read_text()
    cells = re.findall(r"^\| (.*?) \|", text, re.MULTILINE)
    return {name for cell in cells for name in CODE.findall(cell)}


@pytest.mark.parametrize("folder", FOLDERS)
def test_a_folder_says_what_each_file_in_it_is(folder):
    assert named(folder) == entries(folder)


def test_the_folders_of_tests_are_those_of_the_code_or_are_named():
    folders = {name for name in entries("tests") if name.endswith("/")}
    code = {name for name in entries("edgesim") if name.endswith("/")}
    assert named("tests") <= folders
    assert folders <= named("tests") | code


def test_the_files_to_begin_with_are_there():
    text = (ROOT / "edgesim" / "README.md").read_text()
    rows = [row for row in text.splitlines() if row.startswith("| ") and "`" in row]
    paths = {name for row in rows for name in CODE.findall(row)}
    assert len(paths) > 20
    assert [name for name in paths if not (ROOT / "edgesim" / name).exists()] == []
