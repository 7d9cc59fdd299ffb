"""References to parts in files, `./file.py:Name`: with the folder of the file, and without it."""

from __future__ import annotations

import re
from pathlib import Path

FILE_FORM = r"(.*\.py):([A-Za-z_]\w*)"  # a path may have colons, on Windows that of its drive
FILE = re.compile(FILE_FORM)

KEYS = frozenset({"task", "algorithm", "kind", "name", "source"})
"""Keys at which a reference may stand, and at which the path of its file becomes absolute."""


def absolute_reference(text: str, folder: Path) -> str:
    """A reference with the absolute path of its file; any other text as it is."""
    match = FILE.fullmatch(text)
    if match is None:
        return text
    return f"{(folder / Path(match[1]).expanduser()).resolve()}:{match[2]}"


def without_folders(value: object, key: str) -> object:
    """A value of a scenario, in which references have the names of their files alone.

    Args:
        value: plain.
        key: of the value; its last part tells whether it may be a reference.
    """
    if isinstance(value, dict):
        return {name: without_folders(inner, str(name)) for name, inner in value.items()}
    if isinstance(value, list):
        return [without_folders(inner, key) for inner in value]
    if not isinstance(value, str) or key.rpartition(".")[2] not in KEYS:
        return value
    match = FILE.fullmatch(value)
    return f"{Path(match[1]).name}:{match[2]}" if match else value


def are_alike(one: object, other: object) -> bool:
    """Whether two values are references to the same name in files, maybe in different ones."""
    matches = [FILE.fullmatch(each) for each in (one, other) if isinstance(each, str)]
    names = [match[2] for match in matches if match]
    return len(names) == 2 and names[0] == names[1]
