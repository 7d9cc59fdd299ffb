"""Parts that a scenario names by reference: `package.module:Name` or `./file.py:Name`.

Such a reference may stand wherever a scenario names an entry of a catalog. Here its form is
checked, its file is found, and its source is read: the source travels with the scenario, so that
every process of a fleet makes the same module from it. A name of a catalog is a reference too,
except where the schema has a section with its keys. Nothing is imported here;
`edgesim.assembly.parts.own_parts` does that.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from importlib.metadata import entry_points
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler, ValidationInfo
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

from edgesim.errors import similar_names
from edgesim.scenario.catalog import Catalog
from edgesim.scenario.file_references import FILE, FILE_FORM
from edgesim.scenario.section import ContradictionError, MustBe, Section

OWN = "./file.py:Name"
"""Stands for any reference among the names of a catalog, in messages and in locations of errors."""

FORM = "package.module:Name or ./file.py:Name"

MOST_SOURCE_BYTES = 1_000_000  # of one file
_NAMED_FILES = 5  # in a message

_MODULE_FORM = r"([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*):([A-Za-z_]\w*)"
_MODULE = re.compile(_MODULE_FORM)


@dataclass(frozen=True, slots=True)
class OwnPart:
    """A class or function that a scenario names, with its source.

    Attributes:
        place: absolute path of a file, or name of an importable module.
        name: of the class or function in it.
        source: text of the file; None for a module.
        digest: of the file's text, or of all Python files of the module's package; empty for a part
            of edgesim.
        shipped_as: name in edgesim's catalog; empty for a part of one's own.
    """

    place: str
    name: str
    source: str | None
    digest: str
    shipped_as: str = ""

    def __str__(self) -> str:
        """The reference, or the name in a catalog, as a scenario has it."""
        return self.shipped_as or f"{self.place}:{self.name}"

    @classmethod
    def __get_pydantic_core_schema__(
        cls, source: object, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        """The schema converts the text in a scenario to the part, and back."""
        return core_schema.with_info_plain_validator_function(
            _validated,
            serialization=core_schema.to_string_ser_schema(),
        )

    @classmethod
    def __get_pydantic_json_schema__(
        cls, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        """For editors: text of the form of a reference."""
        return {"type": "string", "pattern": f"^({FILE_FORM}|{_MODULE_FORM})$"}


@dataclass(frozen=True, slots=True)
class NamedIn:
    """Annotates a key that holds an `OwnPart`, to let it hold names too.

    Attributes:
        catalog: of the shipped parts of this kind; packages announce names for its group.
    """

    catalog: Catalog

    def __get_pydantic_core_schema__(
        self, source: object, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        """A name becomes the part that it stands for before anything else."""
        return core_schema.with_info_before_validator_function(self._part, handler(source))

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        """For editors: one of the names, or what may stand without them."""
        names = [*self.catalog, *announced_names(self.catalog)]
        return {"anyOf": [{"enum": names}, handler(schema)]} if names else handler(schema)

    def _part(self, value: object, info: ValidationInfo) -> object:
        """The shipped part of a name, or the reference that a package announces by it.

        Raises:
            ContradictionError: the value is a file, without the name of what is meant in it.
        """
        if not isinstance(value, str):
            return value
        if value in self.catalog:
            return shipped_part(self.catalog, value)
        if _is_file(value):
            folders = (info.context or {}).get("folders", ())
            raise ContradictionError("", _missing_name(value, folders))
        reference = announced_names(self.catalog).get(value, value)
        if ":" not in reference:
            raise PydanticCustomError("unknown_name", "no such name")
        return reference


@dataclass(frozen=True, slots=True)
class NameIn:
    """Annotates a key that holds a name of a catalog as text.

    Attributes:
        catalog: whose names they are.
    """

    catalog: Catalog

    def __get_pydantic_core_schema__(
        self, source: object, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        """Text that is no name is refused."""
        return core_schema.no_info_after_validator_function(self._checked, handler(source))

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        """For editors: one of the names."""
        return {"enum": [*self.catalog]}

    def _checked(self, name: str) -> str:
        if name not in self.catalog:
            raise PydanticCustomError("unknown_name", "no such name")
        return name


Options = Annotated[dict[str, Any], MustBe("a mapping of keyword arguments")]
"""Options that a scenario passes to a part that it names by reference."""

OPTIONS = "keyword arguments of the part"
"""Describes a key `options`."""


@dataclass(frozen=True, slots=True)
class ChosenBy:
    """Annotates a union of sections; one of them is for all parts without a section of their own.

    Attributes:
        key: whose value chooses: the name of a catalog's entry, or a reference.
        catalog: of the shipped parts of this kind.
        default: chosen where the key is missing; None where it must be there.
    """

    key: str
    catalog: Catalog
    default: str | None = None

    def name_of(self, section: type[Section]) -> str:
        """The value that chooses a section; `OWN` for that of all others."""
        annotation = section.model_fields[self.key].annotation
        return get_args(annotation)[0] if get_origin(annotation) is Literal else OWN

    def __get_pydantic_core_schema__(
        self, source: object, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        """A union whose tags are the names that choose."""
        choices = {self.name_of(section): handler(section) for section in get_args(source)}

        def tag(section: object) -> str | None:
            """The tag of a section that is read or written; None where the key is missing."""
            if isinstance(section, dict):
                name = section.get(self.key, self.default)
            else:
                name = getattr(section, self.key, None)
            if isinstance(name, OwnPart):
                return OWN
            if not isinstance(name, str):
                return None
            return OWN if name not in choices and _is_reference(name, self.catalog) else name

        return core_schema.tagged_union_schema(choices, tag)

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        """For editors: the section of all others is not chosen by a name that has its own."""
        assert schema["type"] == "tagged-union"
        own = [name for name in schema["choices"] if name != OWN]
        is_other = {"properties": {self.key: {"not": {"enum": own}}}}
        return {
            "oneOf": [
                {"allOf": [handler(choice), is_other]} if name == OWN else handler(choice)
                for name, choice in schema["choices"].items()
            ]
        }


CATALOG = "name"
"""Tags the names of a catalog where a reference may stand instead."""


@dataclass(frozen=True, slots=True)
class NameOrReference:
    """Tells names that stay text from references, where either may be the value of a key.

    Attributes:
        catalog: of the shipped parts that are referred to by name.
    """

    catalog: Catalog

    @property
    def __name__(self) -> str:
        """Pydantic asks functions for it."""
        return "by_form"

    def __call__(self, value: object) -> str:
        """The tag of a value that is read or written."""
        if isinstance(value, str):
            return OWN if _is_reference(value, self.catalog) else CATALOG
        return OWN if isinstance(value, OwnPart) else CATALOG


def shipped_part(catalog: Catalog, name: str) -> OwnPart:
    """The part that edgesim ships under a name."""
    module, _, attribute = catalog.parts[name].reference.partition(":")
    return OwnPart(module, attribute, None, "", name)


def announced_names(catalog: Catalog) -> dict[str, str]:
    """References by the names that installed packages announce for them."""
    return _announced_names(catalog.group, tuple(map(state_of_packages, sys.path)))


def _is_reference(name: str, catalog: Catalog) -> bool:
    """Whether a value stands for an `OwnPart`, or is meant to."""
    is_form = ":" in name or _is_file(name)
    return is_form or name in catalog or name in announced_names(catalog)


def _is_file(name: str) -> bool:
    """Whether a value is a Python file, without the name of what is meant in it."""
    return name.endswith(".py")


def _missing_name(file: str, folders: Sequence[Path]) -> str:
    """What is wrong with a file without a name; says what the file has, if it can be read."""
    said = f"is {file}; name the class or function in it: {file}:Name"
    for path in (folder / Path(file).expanduser() for folder in folders):
        try:
            body = ast.parse(_read(path)).body
        except (ContradictionError, SyntaxError, ValueError):
            continue
        kinds = ast.ClassDef | ast.FunctionDef
        names = [node.name for node in body if isinstance(node, kinds) and node.name[0] != "_"]
        return f"{said}; the file has {', '.join(names[:8])}" if names else said
    return said


@lru_cache(maxsize=64)  # used for each key; reading the files of all packages takes 10 ms
def _announced_names(group: str, _: tuple[tuple[str, int], ...]) -> dict[str, str]:
    return {point.name: point.value for point in entry_points(group=group)}


def state_of_packages(folder: str) -> tuple[str, int]:
    """A folder of packages, and a number that changes with each installation."""
    try:
        return folder, Path(folder or ".").stat().st_mtime_ns
    except OSError:
        return folder, 0


def own_parts(value: object, key: str = "") -> Iterator[tuple[str, OwnPart]]:
    """All parts of one's own that a scenario or a section of it names, each with its key."""
    if isinstance(value, OwnPart):
        if not value.shipped_as:
            yield key, value
    elif isinstance(value, Section):
        for name in type(value).model_fields:
            yield from own_parts(getattr(value, name), f"{key}.{name}" if key else name)


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
    if match := FILE.fullmatch(value):
        path = match[1]
        source = read_source(path) if read_source else None
        source = _read(Path(path)) if source is None else source
        return OwnPart(path, match[2], source, _digest(source.encode()))
    if (match := _MODULE.fullmatch(value)) and match[1].partition(".")[0] == "__main__":
        raise ContradictionError(
            "",
            f"is {value}; no other process has what a script or a notebook defines: save it in a "
            f"file and write ./parts.py:{match[2]}",
        )
    if match and (package := match[1].partition(".")[0]) in sys.stdlib_module_names:
        raise ContradictionError(
            "", f"names {package}, which is Python's own; name a part of yours, or of a package"
        )
    if match:
        try:
            digest = package_digest(match[1])
        except ContradictionError as error:
            folders = (info.context or {}).get("folders", ())
            raise ContradictionError("", error.problem + _or_file(match, folders)) from None
        return OwnPart(match[1], match[2], None, digest)
    raise ContradictionError("", f"is {value!r}; must be {FORM}")


def _or_file(match: re.Match[str], folders: Sequence[Path]) -> str:
    """What to write if a reference to a module means a file of this name in one of the folders."""
    file = f"{match[1].replace('.', '/')}.py"
    is_there = any((folder / file).is_file() for folder in folders)
    return f"; or for the file beside it: ./{file}:{match[2]}" if is_there else ""


def _read(path: Path) -> str:
    try:
        data = path.read_bytes()
        if len(data) > MOST_SOURCE_BYTES:
            raise ContradictionError(
                "", f"names {path}, which has {len(data):,} bytes; at most {MOST_SOURCE_BYTES:,}"
            )
        return data.decode("utf-8-sig")
    except FileNotFoundError:
        said = f"names {path}, which is not there{_beside(path)}"
        raise ContradictionError("", said) from None
    except OSError as error:
        raise ContradictionError("", f"names {path}, which can't be read: {error}") from error
    except UnicodeDecodeError as error:
        raise ContradictionError("", f"names {path}, which is not UTF-8 text") from error


def _beside(path: Path) -> str:
    """Which files beside one that is not there may be meant, or are there at all."""
    stems = sorted(other.stem for other in path.parent.glob("*.py"))
    if guesses := similar_names(path.stem, stems):
        return f"; did you mean {' or '.join(f'{stem}.py' for stem in guesses)}?"
    some = [f"{stem}.py" for stem in stems[:_NAMED_FILES]]
    more = ["..."] if stems[_NAMED_FILES:] else []
    return f"; there are {', '.join([*some, *more])}" if some else ""


def package_digest(module: str) -> str:
    """Digest of all Python files of the installed package that a module belongs to.

    Raises:
        ContradictionError: the package is not installed.
    """
    package = module.partition(".")[0]
    try:
        spec = find_spec(package)
    except ValueError:  # a module without a specification
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
