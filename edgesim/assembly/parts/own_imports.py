"""Looks where the modules are that own files import, and those that a scenario names.

The digest of a run covers own files and packages that the scenario names. What a file imports must
be what every process finds. A script or a notebook also finds the files of its folder, which nobody
keeps: two runs of one digest could have other bits. What is installed is found by a new Python that
runs no script.
"""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path

from edgesim.errors import ScenarioError
from edgesim.scenario.own_parts import OwnPart, own_parts, state_of_packages
from edgesim.scenario.schema import Scenario

ALONE = "a file may import installed packages alone, no file beside it"
"""Ends messages about imports of other modules."""

_OURS = frozenset({"edgesim", "topologies"})  # the code that runs, of which a run keeps a digest
_INSTALLED = frozenset({"site-packages", "dist-packages"})  # folders of packages
_OF_PYTHON = {Path(sysconfig.get_path(name)).resolve() for name in ("stdlib", "platstdlib")}
_AS_SCRIPT = {"__name__", "'__main__'"}
_ASK = """
import json, sys
from importlib.util import find_spec
found = {name: find_spec(name) for name in sys.argv[1:]}
print(json.dumps({name: spec.origin or "" for name, spec in found.items() if spec}))
"""


def check_imports(scenario: Scenario) -> list[str]:
    """Refuse modules that other processes may not find, or may find in another place.

    Returns:
        Notices of modules that PYTHONPATH alone names, which a user may change between two runs.

    Raises:
        ScenarioError: a file imports such a module, or the scenario names one.
    """
    notices: list[str] = []
    for key, part in own_parts(scenario):
        if part.source is None:
            _check_reference(key, part)
        else:
            notices += _check_file(key, part, part.source)
    return notices


def _check_reference(key: str, part: OwnPart) -> None:
    package = part.place.partition(".")[0]
    if package not in (loose := _loose({package: _origin(package)})):
        return
    is_file = "." not in part.place and not loose[package].endswith("__init__.py")
    remedy = f"install it, or name the file: {loose[package]}:{part.name}"
    raise ScenarioError(
        f"{key} names the package {package}, which is not installed: this process alone finds "
        f"{loose[package]}; {remedy if is_file else 'install it'}"
    )


def _check_file(key: str, part: OwnPart, source: str) -> Iterator[str]:
    """Notices of a file; see `check_imports`."""
    said, names = f"{key}: {part.place} imports", imported(source)
    if "__main__" in names:
        raise ScenarioError(f"{said} __main__, which each process has another of; {ALONE}")
    origins = {name: _origin(name) for name in sorted(names)}
    for name, origin in _loose(origins).items():
        raise ScenarioError(f"{said} {name} from {origin}, which is not installed; {ALONE}")
    for name, origin in origins.items():
        if not _is_of_environment(name, origin) and _is_in_pythonpath(origin):
            yield (
                f"{said} {name} from {origin}, which is in PYTHONPATH: a run's digest does not "
                "cover it"
            )


def imported(source: str) -> set[str]:
    """Names of modules, without their dots, that a text imports; none of one that is no Python."""
    try:
        nodes: list[ast.AST] = [ast.parse(source)]
    except (SyntaxError, ValueError):  # told when it is loaded
        return set()
    names = []
    while nodes:
        node = nodes.pop()
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.append(node.module)
        if isinstance(node, ast.If) and _is_never_true(node.test):
            nodes += node.orelse
        else:
            nodes += ast.iter_child_nodes(node)
    return {name.partition(".")[0] for name in names}


def _is_never_true(test: ast.expr) -> bool:
    """Whether a condition is for type checkers, or for a file that runs as a script."""
    if isinstance(test, ast.Compare) and [type(op) for op in test.ops] == [ast.Eq]:
        return {ast.unparse(side) for side in (test.left, *test.comparators)} == _AS_SCRIPT
    name = getattr(test, "attr", getattr(test, "id", ""))
    return bool(name == "TYPE_CHECKING")


def _origin(name: str) -> str:
    """File that a module of this process is or would be imported from; empty if there is none.

    Of a package without `__init__.py` it is a folder.
    """
    try:
        spec = find_spec(name)
    except ValueError:  # a module without a specification
        return getattr(sys.modules[name], "__file__", None) or ""
    if spec is None or spec.origin:
        return spec.origin or "" if spec else ""
    return next(iter(spec.submodule_search_locations or ()), "")


def _loose(origins: dict[str, str]) -> dict[str, str]:
    """Those of some modules, by name, that a new Python finds nowhere, or elsewhere."""
    unknown = {n: place for n, place in origins.items() if not _is_of_environment(n, place)}
    if not unknown:
        return {}
    state = (os.environ.get("PYTHONPATH"), Path.cwd(), *map(state_of_packages, sys.path))
    if (answer := _asked(tuple(unknown), sys.executable or "", state)) is None:
        return {}
    found: dict[str, str] = json.loads(answer.splitlines()[-1])  # a start of Python may print, too
    return {
        name: place
        for name, place in unknown.items()
        if name not in found or (found[name] and not _is_same(place, found[name]))
    }


@lru_cache(maxsize=64)  # cells of a sweep ask the same; a Python takes 50 ms to start
def _asked(names: tuple[str, ...], python: str, _state: object) -> str | None:
    """What a new Python finds under these names, as JSON; None if it does not start.

    The answer depends on a state of folders and variables too.
    """
    command = [python, "-P", "-c", _ASK, *names]  # -P: not in the working folder
    try:
        asked = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
    except OSError:  # a program has Python within it
        return None
    return asked.stdout if asked.returncode == 0 else None


def _is_same(one: str, other: str) -> bool:
    """Whether two places are; a package without `__init__.py` may have several."""
    return Path(one).is_dir() or Path(one).resolve() == Path(other).resolve()


def _is_of_environment(name: str, origin: str) -> bool:
    """Whether a module is Python's, in a folder of installed packages, or nowhere."""
    if name in _OURS or origin in ("", "built-in", "frozen"):
        return True
    path = Path(origin)
    is_of_python = any(map(path.resolve().is_relative_to, _OF_PYTHON))
    return is_of_python or not _INSTALLED.isdisjoint(path.parts)


def _is_in_pythonpath(origin: str) -> bool:
    path, named = Path(origin).resolve(), os.environ.get("PYTHONPATH", "")
    folder = path.parent.parent if path.name == "__init__.py" else path.parent
    return bool(named) and folder in map(Path.resolve, map(Path, named.split(os.pathsep)))
