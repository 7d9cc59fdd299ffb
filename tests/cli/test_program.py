"""Commands in messages can be copied: the shell finds the program, and pip the right Python."""

from __future__ import annotations

import sys
from types import ModuleType

import pytest

from edgesim.__main__ import main as start
from edgesim.program import pip_install, program


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


def test_packages_are_installed_for_the_python_that_runs(monkeypatch):
    monkeypatch.setattr(sys, "executable", "/home/me/my fleet/.venv/bin/python")
    python = "'/home/me/my fleet/.venv/bin/python'"
    assert pip_install("s3fs>=2025.2", "x") == f"{python} -m pip install 's3fs>=2025.2' x"


def test_an_interrupt_while_commands_are_imported_has_no_traceback(monkeypatch, capsys):
    class Interrupted(ModuleType):
        def __getattr__(self, name):
            raise KeyboardInterrupt

    monkeypatch.setitem(sys.modules, "edgesim.cli", Interrupted("edgesim.cli"))
    with pytest.raises(SystemExit, match="130"):
        start()
    assert capsys.readouterr().err == "interrupted\n"
