"""Scenarios that edgesim ships, found by name: `quickstart`, `smoke/choco_ring`."""

from __future__ import annotations

from pathlib import Path

from edgesim.errors import ScenarioError

_PACKAGE = Path(__file__).resolve().parents[1]
_SUFFIX = ".yaml"


def shipped_folder() -> Path:
    """Folder of the shipped scenarios: package data of an install, or `scenarios/` of a checkout.

    The wheel holds the checkout's folder under another name (pyproject.toml).

    Raises:
        ScenarioError: the install lacks the folder.
    """
    for folder in (_PACKAGE / "shipped_scenarios", _PACKAGE.parent / "scenarios"):
        if folder.is_dir():
            return folder
    raise ScenarioError(f"{_PACKAGE}: this install lacks the shipped scenarios; install it again")


def shipped_scenarios() -> dict[str, Path]:
    """Files of the shipped scenarios by name, sorted by name."""
    folder = shipped_folder()
    files = {
        path.relative_to(folder).with_suffix("").as_posix(): path
        for path in folder.rglob(f"*{_SUFFIX}")
    }
    return dict(sorted(files.items()))


def scenario_file(given: Path | str) -> Path:
    """File of a scenario: the path itself, or the shipped scenario of that name.

    A file that exists has precedence over a shipped scenario.
    """
    path = Path(given)
    if path.parts[:1] == ("~",):
        path = path.expanduser()
    if path.suffix or path.is_absolute() or path.is_file():
        return path
    return shipped_scenarios().get(path.as_posix(), path)
