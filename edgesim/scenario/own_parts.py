"""Own parts: references `package.module:Name` or `./file.py:Name` in a scenario.

Such a reference may stand wherever a scenario names an entry of a catalog. Here its form is
checked, its file is found, and its source is read: the source travels with the scenario, so that
every process of a fleet makes the same module from it. Nothing is imported here;
`edgesim.assembly.own_parts` does that.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache, partial
from hashlib import blake2b
from importlib.metadata import entry_points
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

from pydantic import BeforeValidator, Discriminator, GetCoreSchemaHandler, ValidationInfo
from pydantic_core import CoreSchema, core_schema

from edgesim.scenario.section import ContradictionError, MustBe, Section

OWN = "./file.py:Name"
"""Stands for any reference among the names of a catalog, in messages and in locations of errors."""

FORM = "package.module:Name or ./file.py:Name"

KEYS = frozenset({"task", "algorithm", "kind", "name", "source"})
"""Keys at which a reference may stand, and at which the path of its file becomes absolute."""

MOST_SOURCE_BYTES = 1_000_000  # of one file

_FILE = re.compile(r"(?P<place>[^:]*\.py):(?P<name>[A-Za-z_]\w*)")
_MODULE = re.compile(r"(?P<place>[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*):(?P<name>[A-Za-z_]\w*)")


@dataclass(frozen=True, slots=True)
class OwnPart:
    """A class or function that a scenario names, with its source.

    Attributes:
        place: absolute path of a file, or name of an importable module.
        name: of the class or function in it.
        source: text of the file; None for a module.
        digest: of the file's text, or of all Python files of the module's package.
    """

    place: str
    name: str
    source: str | None
    digest: str

    def __str__(self) -> str:
        """The reference, as a scenario has it."""
        return f"{self.place}:{self.name}"

    @classmethod
    def __get_pydantic_core_schema__(
        cls, source: object, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        """The schema converts the text in a scenario to the part, and back."""
        return core_schema.with_info_plain_validator_function(
            _validated,
            serialization=core_schema.to_string_ser_schema(),
        )


REFERENCE = MustBe(FORM)
"""Annotates a key that holds an `OwnPart`."""


def announced_by(group: str) -> BeforeValidator:
    """Annotates a key that holds an `OwnPart`, to let it hold announced names too.

    Args:
        group: of the entry points by which packages announce names for this key.
    """
    return BeforeValidator(partial(_announced, group))


Options = Annotated[dict[str, Any], MustBe("a mapping of keyword arguments")]
"""Options that a scenario passes to an own part."""

OPTIONS = "keyword arguments for your own part"
"""Describes a key `options`."""


@dataclass(frozen=True, slots=True)
class Chooser:
    """Chooses among the sections that can stand at a key; one of them is for own parts.

    Attributes:
        key: whose value chooses: the name of a catalog's entry, or a reference.
        group: of the entry points by which packages announce names.
        default: chosen where the key is missing; None where it must be there.
    """

    key: str
    group: str
    default: str | None = None

    @property
    def __name__(self) -> str:
        """Pydantic asks functions for it."""
        return f"by_{self.key}"

    def __call__(self, section: object) -> str | None:
        """The tag of a section that is read or written; None where the key is missing."""
        if isinstance(section, dict):
            name = section.get(self.key, self.default)
        else:
            name = getattr(section, self.key, None)
        if isinstance(name, OwnPart):
            return OWN
        if not isinstance(name, str):
            return None
        return OWN if ":" in name or name in announced_names(self.group) else name


def chosen_by(key: str, group: str, default: str | None = None) -> Discriminator:
    """Annotation of a union of sections, one of them tagged `OWN`; see `Chooser`."""
    return Discriminator(Chooser(key, group, default))


CATALOG = "name"
"""Tags the names of a catalog where a reference may stand instead."""


@dataclass(frozen=True, slots=True)
class NameOrReference:
    """Tells names of a catalog from references, where either may be the value of a key.

    Attributes:
        group: of the entry points by which packages announce names.
    """

    group: str

    @property
    def __name__(self) -> str:
        """Pydantic asks functions for it."""
        return "by_form"

    def __call__(self, value: object) -> str:
        """The tag of a value that is read or written."""
        if isinstance(value, str):
            return OWN if ":" in value or value in announced_names(self.group) else CATALOG
        return OWN if isinstance(value, OwnPart) else CATALOG


def announced_names(group: str) -> dict[str, str]:
    """References by the names that installed packages announce for them."""
    return _announced_names(group, tuple(map(_folder_state, sys.path)))


@lru_cache(maxsize=64)  # used for each key; reading the files of all packages takes 10 ms
def _announced_names(group: str, _: tuple[tuple[str, int], ...]) -> dict[str, str]:
    return {point.name: point.value for point in entry_points(group=group)}


def _folder_state(folder: str) -> tuple[str, int]:
    """A folder of packages, and a number that changes with each installation."""
    try:
        return folder, Path(folder or ".").stat().st_mtime_ns
    except OSError:
        return folder, 0


def absolute_reference(text: str, folder: Path) -> str:
    """A reference with the absolute path of its file; any other text as it is."""
    match = _FILE.fullmatch(text)
    if match is None:
        return text
    return f"{(folder / Path(match['place']).expanduser()).resolve()}:{match['name']}"


def own_parts(value: object, key: str = "") -> Iterator[tuple[str, OwnPart]]:
    """All parts that a scenario or a section of it names, each with its key."""
    if isinstance(value, OwnPart):
        yield key, value
    elif isinstance(value, Section):
        for name in type(value).model_fields:
            yield from own_parts(getattr(value, name), f"{key}.{name}" if key else name)


def _announced(group: str, value: object) -> object:
    """The reference that a package announces by a name; any other value as it is."""
    return announced_names(group).get(value, value) if isinstance(value, str) else value


def _validated(value: object, info: ValidationInfo) -> OwnPart:
    """The part of a reference.

    Raises:
        ContradictionError: the text has another form, or what it names is not there.
    """
    if isinstance(value, OwnPart):
        return value
    if not isinstance(value, str):
        raise ContradictionError("", f"is {value!r}; must be {FORM}")
    read_source = (info.context or {}).get("read_source")
    if match := _FILE.fullmatch(value):
        path = match["place"]
        source = read_source(path) if read_source else None
        source = _read(Path(path)) if source is None else source
        return OwnPart(path, match["name"], source, _digest(source.encode()))
    if match := _MODULE.fullmatch(value):
        return OwnPart(match["place"], match["name"], None, package_digest(match["place"]))
    raise ContradictionError("", f"is {value!r}; must be {FORM}")


def _read(path: Path) -> str:
    try:
        data = path.read_bytes()
        if len(data) > MOST_SOURCE_BYTES:
            raise ContradictionError(
                "", f"names {path}, which has {len(data):,} bytes; at most {MOST_SOURCE_BYTES:,}"
            )
        return data.decode("utf-8-sig")
    except FileNotFoundError:
        similar = sorted(other.name for other in path.parent.glob("*.py"))
        there = f"; there are {', '.join(similar[:5])}" if similar else ""
        raise ContradictionError("", f"names {path}, which is not there{there}") from None
    except OSError as error:
        raise ContradictionError("", f"names {path}, which can't be read: {error}") from error
    except UnicodeDecodeError as error:
        raise ContradictionError("", f"names {path}, which is not UTF-8 text") from error


def package_digest(module: str) -> str:
    """Digest of all Python files of the installed package that a module belongs to.

    Raises:
        ContradictionError: the package is not installed.
    """
    package = module.partition(".")[0]
    try:
        spec = find_spec(package)
    except ValueError:  # a module without a specification, such as __main__
        spec = None
    if spec is None:
        raise ContradictionError(
            "", f"names the package {package}, which is not installed; install it"
        )
    files = {
        str(path.relative_to(folder)): path
        for folder in spec.submodule_search_locations or ()
        for path in Path(folder).rglob("*.py")
    }
    if not files and spec.origin and Path(spec.origin).is_file():
        files = {package: Path(spec.origin)}
    parts = (name.encode() + b"\0" + files[name].read_bytes() for name in sorted(files))
    return _digest(*parts)


def _digest(*parts: bytes) -> str:
    digest = blake2b(digest_size=16)
    for part in parts:
        digest.update(len(part).to_bytes(8, "little") + part)
    return digest.hexdigest()
