"""`edgesim new`: writes the file of a new scenario."""

from __future__ import annotations

from pathlib import Path

from edgesim.errors import ScenarioError
from edgesim.scenario.template import new_scenario


def write_new(name: Path, source: Path) -> Path:
    """Write a commented scenario into the current folder, or the one that is part of the name.

    Args:
        name: of the scenario, with or without `.yaml`.
        source: file or shipped name of the scenario to start from.

    Raises:
        ScenarioError: the file exists or can't be written, the name can't be one, or the source
            can't be used.
    """
    if not name.name:
        raise ScenarioError(f"{str(name)!r} names no file; give the scenario a name, as my-fleet")
    path = name if name.suffix == ".yaml" else name.with_name(f"{name.name}.yaml")
    text = new_scenario(path.stem, source, path.parent)
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError as error:
        raise ScenarioError(f"{path}: exists; choose another name") from error
    except OSError as error:
        raise ScenarioError(f"{path}: can't be written ({error.strerror})") from error
    return path
