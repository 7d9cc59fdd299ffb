"""Commands in messages can be copied: the program is called as the shell would find it."""

from __future__ import annotations

import sys

import pytest

from edgesim.program import program


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """Two installations; their folders, and no other, may be on the PATH."""
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "edgesim").write_text("#!/bin/sh\n")
        (tmp_path / name / "edgesim").chmod(0o755)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("started", "path", "called"),
    [
        ("one/edgesim", "", "one/edgesim"),
        ("one/edgesim", "other", "one/edgesim"),
        ("one/edgesim", "one", "edgesim"),
        ("edgesim", "one", "edgesim"),
        ("somewhere/pytest", "one", "edgesim"),
        ("", "", "edgesim"),
    ],
)
def test_it_is_called_by_a_path_only_where_the_name_would_not_find_it(
    installed, monkeypatch, started, path, called
):
    monkeypatch.setenv("PATH", str(installed / path) if path else "/nowhere")
    monkeypatch.setattr(sys, "argv", [started, "run", "quickstart"])
    assert program() == called
