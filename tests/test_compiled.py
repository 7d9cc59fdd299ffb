"""A change of any file that compiled functions call has them compiled anew."""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numba
import pytest

from edgesim import compiled
from edgesim.compiled import PARTS, folder_of

ROOT = Path(__file__).parents[1]
CALLER = """
from edgesim.compiled import compiled
from edgesim.compression.callee import double
@compiled
def run(x):
    return double(x)
"""
CALLEE = """
from edgesim.compiled import compiled
@compiled
def double(x):
    return {factor} * x
"""


def modules_of(part):
    return (ROOT / part.replace(".", "/")).rglob("*.py")


def is_with_compiled_functions(path):
    text = path.read_text()
    return "import compiled\n" in text or "import inner\n" in text


def imported(path):
    """Modules of edgesim that a file imports."""
    nodes = [*ast.walk(ast.parse(path.read_text()))]
    names = [node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)]
    names += [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    return {name for name in names if name.startswith(("edgesim", "topologies"))}


@pytest.mark.parametrize("part", PARTS)
def test_compiled_functions_call_none_of_another_package(part):
    """For its digest would not say that such a function, or a constant, has changed.

    A file that others of the part only import may itself import errors and types.
    """
    names = {path: path.relative_to(ROOT).with_suffix("").parts for path in modules_of(part)}
    known = {".".join(parts): path for path, parts in names.items()}
    compiled_ones = [name for name, path in known.items() if is_with_compiled_functions(path)]
    assert compiled_ones
    for name in compiled_ones:
        wanted = imported(known[name]) - {"edgesim.compiled"}
        assert all(f"{module}.".startswith(f"{part}.") for module in wanted), name
        for module in wanted & known.keys():
            others = {m for m in imported(known[module]) if not f"{m}.".startswith(f"{part}.")}
            types = {"edgesim.compiled", "edgesim.errors", "edgesim.learning.parameters"}
            assert others <= types, module


def test_all_compiled_functions_are_of_these_packages():
    paths = [path for path in (ROOT / "edgesim").rglob("*.py") if "njit" in path.read_text()]
    assert [path.name for path in paths] == ["compiled.py"]
    found = [path for path in (ROOT / "edgesim").rglob("*.py") if is_with_compiled_functions(path)]
    assert {*found} <= {path for part in PARTS for path in modules_of(part)}


def copied_code(tmp_path):
    """A copy of the code with two more modules of compiled functions."""
    ignored = shutil.ignore_patterns("__pycache__", "*.nb?")
    for package in ("edgesim", "topologies"):
        shutil.copytree(ROOT / package, tmp_path / package, ignore=ignored)
    (tmp_path / "edgesim/compression/caller.py").write_text(CALLER)
    (tmp_path / "edgesim/compression/callee.py").write_text(CALLEE.format(factor=2))
    return tmp_path


def called(root, **environment):
    """What a process computes with the copy."""
    code = "from edgesim.compression.caller import run; print(run(10))"
    variables = {**os.environ, "PYTHONPATH": str(root), **environment}
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=variables,
        cwd=root,
        capture_output=True,
        text=True,
        check=True,
    )
    return int(done.stdout)


def test_a_changed_function_of_another_file_is_noticed(tmp_path):
    """The caller's own file stays as it was. Old folders beside the code are removed."""
    root = copied_code(tmp_path)
    kept = root / "edgesim" / "__pycache__"
    assert called(root) == 20
    (first,) = kept.glob("numba-compression-*")
    assert list(first.rglob("caller.run-*.nbc"))
    (root / "edgesim/compression/callee.py").write_text(CALLEE.format(factor=3))
    assert called(root) == 30
    (second,) = kept.glob("numba-compression-*")
    assert second != first


def test_a_folder_that_the_user_names_serves_several_checkouts(tmp_path):
    root, given = copied_code(tmp_path), tmp_path / "given"
    assert called(root, NUMBA_CACHE_DIR=str(given)) == 20
    (root / "edgesim/compression/callee.py").write_text(CALLEE.format(factor=3))
    assert called(root, NUMBA_CACHE_DIR=str(given)) == 30
    assert len(list((given / "edgesim").glob("numba-compression-*"))) == 2
    assert not list((root / "edgesim" / "__pycache__").glob("numba-*"))


@pytest.fixture
def places(monkeypatch):
    """Sets the folders that may hold compiled functions."""
    folder_of.cache_clear()
    yield lambda *folders: monkeypatch.setattr(compiled, "_places", lambda: folders)
    folder_of.cache_clear()


def test_without_a_place_to_write_functions_are_compiled_in_each_process(tmp_path, places):
    blocked = tmp_path / "file"
    blocked.write_text("")
    places(blocked, tmp_path / "user")
    assert folder_of(PARTS[0]).parent == tmp_path / "user"
    places(blocked)
    assert folder_of(PARTS[1]) is None

    def one(x):
        return x + 1

    one.__module__ = f"{PARTS[1]}.of_a_test"
    assert compiled.compiled(one)(1) == 2


def test_in_the_users_folder_those_of_other_installations_stay(tmp_path, places):
    other = tmp_path / "numba-kernels-0123456789abcdef"
    other.mkdir()
    places(tmp_path)
    assert folder_of(PARTS[0]) != other
    assert other.is_dir()


def test_other_functions_keep_their_own_folder():
    """Also where modules are imported by several threads."""

    def one(x):
        return x + 1

    one.__module__ = f"{PARTS[1]}.of_a_test"
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(lambda _: compiled.compiled(one), range(100)))
    assert os.environ.get("NUMBA_CACHE_DIR", "") == numba.config.CACHE_DIR
