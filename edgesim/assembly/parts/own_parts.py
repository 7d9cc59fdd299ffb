"""Makes objects from references to parts (their form: edgesim/scenario/own_parts.py).

A file's module is made from the source that travels with the scenario, not from the file: a machine
of a cluster has no such file. A package is imported as usual, after a check that its content equals
that on the machine that read the scenario.
"""

from __future__ import annotations

import linecache
import os
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from hashlib import blake2b
from importlib import import_module
from importlib.machinery import ModuleSpec
from inspect import Parameter, signature
from pathlib import Path
from threading import RLock
from types import ModuleType
from typing import Any

from edgesim.assembly.parts.options import check_options
from edgesim.assembly.parts.own_errors import failure, file_module, remember, with_frames
from edgesim.assembly.parts.own_imports import ALONE
from edgesim.errors import EdgesimError, ScenarioError, did_you_mean
from edgesim.scenario.catalog import Catalog
from edgesim.scenario.own_parts import OwnPart, package_digest, shipped_part
from edgesim.scenario.section import ContradictionError, Section

_PAGES = {
    "gossip": "own-algorithm",
    "training.task": "own-task",
    "training": "own-optimizer",
    "model": "own-model",
    "data": "own-dataset",
    "topology": "own-topology",
}
"""Pages of docs/ that say what a part needs, by the beginning of its key."""
_LOCK = RLock()  # threads of a host build devices at the same time
# By module of a package: its specification, which a reload renews, and the digest of its file.
_IMPORTED: dict[str, tuple[ModuleSpec | None, bytes]] = {}
_WORD = 2**32 - 1


def load_part(part: OwnPart, key: str) -> Any:  # noqa: ANN401 (whatever the name stands for)
    """The class or function that a reference names.

    Args:
        part: that the scenario names.
        key: of the scenario, for messages.

    Raises:
        ScenarioError: the module can't be made or imported, or lacks the name; or
            what it names can't be called.
    """
    module_name = part.place if part.source is None else file_module(part.digest)
    remember(module_name, part.name, key)
    module = _imported(part, key) if part.source is None else _made(part, part.source, key)
    if not hasattr(module, part.name):
        names = [name for name in vars(module) if not name.startswith("_")]
        remedy = did_you_mean(part.name, names, f"it has {', '.join(names[:8]) or 'no names'}")
        raise ScenarioError(f"{key}: {part.place} has no {part.name}; {remedy}")
    named = getattr(module, part.name)
    if not callable(named):
        raise ScenarioError(f"{key}: {part} is no class or function, and can't be called")
    return named


def part_and_options(
    section: Section, key: str, catalog: Catalog, others: Collection[str] = ()
) -> tuple[OwnPart, dict[str, Any]]:
    """The part that a section of a scenario chooses, and the keyword arguments for it.

    Args:
        section: has the part's options under `options`, or is itself of one shipped part.
        key: of the section, whose value names the part.
        catalog: of the shipped parts of this kind.
        others: keys of the section that are no options.
    """
    named = getattr(section, key)
    if isinstance(named, OwnPart):
        return named, dict(section.model_dump()["options"])
    options = section.model_dump(exclude={key, *others})
    return shipped_part(catalog, named), options


def make_part(
    part: OwnPart,
    key: str,
    options: Mapping[str, Any],
    needs: Sequence[str] = (),
    form: Callable[[Any], Any] = lambda named: named,
    offered: Collection[str] = (),
    **given: object,
) -> Any:  # noqa: ANN401 (whatever the call returns)
    """The object that a reference's class or function makes.

    Args:
        part: that the scenario names.
        key: of the scenario, for messages.
        options: of the scenario, passed on as keyword arguments.
        needs: names of attributes that the object must have.
        form: gives the class or function that is called, from the one that is named.
        offered: names of all arguments from which a part of this kind may choose.
        given: further keyword arguments: those that every part of this kind gets, or this one has
            chosen.

    Raises:
        ScenarioError: it takes other arguments, refuses them, or lacks what it needs.
    """
    make = form(load_part(part, key))
    holder, _, last = key.rpartition(".")
    where = f"{holder}.task_options" if last == "task" else f"{holder}.options"
    check_options(make, options, offered or given, where, str(part))
    made = call(make, f"{key}: {part}", {**given, **options})
    try:
        missing = [name for name in needs if not hasattr(made, name)]
    except Exception as error:  # of a property
        raise _refusal(f"{key}: {part}", error) from error
    if missing:
        page = next((_PAGES[start] for start in _PAGES if key.startswith(start)), "own-parts")
        raise ScenarioError(
            f"{key}: {part} has no {', '.join(missing)}; docs/{page}.md says what for"
        )
    return made


def needs(protocol: type) -> tuple[str, ...]:
    """Names that objects of a protocol have."""
    return tuple(name for name in vars(protocol) if not name.startswith("_"))


def call(make: Callable[..., Any], said: str, arguments: Mapping[str, Any]) -> Any:  # noqa: ANN401
    """Call a class or function of one's own.

    Args:
        make: the class or function.
        said: key and reference, which begin messages.
        arguments: by keyword.

    Raises:
        ScenarioError: it takes other arguments, or raises an error.
    """
    try:
        signature(make).bind(**arguments)
    except TypeError as error:
        known = ", ".join(arguments) or "nothing"
        remedy = _remedy_of_call(make, arguments)
        raise ScenarioError(f"{said} can't be called with {known}: {error}{remedy}") from error
    except ValueError:  # some classes in C have no signature
        pass
    try:
        return make(**arguments)
    except EdgesimError as error:
        raise with_frames(ScenarioError(f"{said}: {error}"), error) from error
    except Exception as error:
        raise _refusal(said, error) from error


def _remedy_of_call(make: Callable[..., Any], arguments: Mapping[str, Any]) -> str:
    """What to do about arguments that a class or function does not take."""
    taken = signature(make).parameters
    lacking = [name for name in arguments if name not in taken]
    takes_all = any(each.kind is Parameter.VAR_KEYWORD for each in taken.values())
    unfilled = any(
        name not in arguments and each.default is Parameter.empty for name, each in taken.items()
    )
    if not lacking or takes_all or unfilled:
        return ""
    remedy = (
        f"; let {'its __init__' if isinstance(make, type) else 'it'} take {' and '.join(lacking)}"
    )
    return f"{remedy}, or remove data.path" if lacking == ["path"] else remedy


def _refusal(said: str, error: Exception) -> EdgesimError:
    """What to show for an error of own code while it is loaded, made or asked before a run."""
    remedy = ""
    if isinstance(error, ModuleNotFoundError):
        remedy = f"; {ALONE}"
    return with_frames(ScenarioError(f"{said} {failure(error)}{remedy}"), error)


def _imported(part: OwnPart, key: str) -> ModuleType:
    """The module of an installed package."""
    try:
        here = "" if part.shipped_as else package_digest(part.place)
    except ContradictionError as error:
        raise ScenarioError(f"{key} {error.problem} on every machine") from error
    if here != part.digest:
        raise ScenarioError(
            f"{key}: the package of {part.place} differs here from the one that the run was "
            "prepared with; install the same on every machine"
        )
    try:
        module = import_module(part.place)
    except Exception as error:
        raise _refusal(f"{key}: importing {part.place}", error) from error
    if not part.shipped_as:
        _check_is_as_imported(part.place.partition(".")[0], key)
    return module


def _check_is_as_imported(package: str, key: str) -> None:
    """Refuse a package of which a file is no longer what its module was imported from.

    The scenario has the digest of the files as they are; the modules are what they were.
    """
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None) or ""
        has_file = file.endswith(".py") and Path(file).is_absolute()  # torch has one that has none
        if name.partition(".")[0] != package or not has_file:
            continue
        try:
            now = blake2b(Path(file).read_bytes()).digest()
        except OSError as error:
            raise ScenarioError(f"{key}: {name} can't be read any more: {error}") from error
        spec = module.__spec__
        with _LOCK:
            if name not in _IMPORTED or _IMPORTED[name][0] is not spec:  # new, or reloaded
                _IMPORTED[name] = spec, now if _is_compiled_from(file, spec) else b""
            was = _IMPORTED[name][1]
        if was != now:
            raise ScenarioError(
                f"{key}: {name} has changed since this process imported it; reload it by "
                "importlib.reload, or start a new process or kernel"
            )


def _is_compiled_from(file: str, spec: ModuleSpec | None) -> bool:
    """Whether Python compiled a module from its file as it is now, as far as can be told.

    An import notes time and size of the file in the compiled one, where it can write that.
    """
    compiled = spec.cached if spec else None
    if sys.dont_write_bytecode or not compiled or not os.access(Path(compiled).parent, os.W_OK):
        return True
    try:
        header, there = Path(compiled).read_bytes()[:16], Path(file).stat()
    except OSError:
        return True
    flags, time_s, size = (int.from_bytes(header[i : i + 4], "little") for i in (4, 8, 12))
    now = int(there.st_mtime) & _WORD, there.st_size & _WORD
    return bool(flags) or (time_s, size) == now


def _made(part: OwnPart, source: str, key: str) -> ModuleType:
    """The module of a file, made from its text, the same one each time."""
    name = file_module(part.digest)
    with _LOCK:
        if name in sys.modules:
            return sys.modules[name]
        module = ModuleType(name)
        module.__file__ = part.place
        # So that tracebacks show lines of files that this machine lacks.
        lines = source.splitlines(keepends=True)
        linecache.cache[part.place] = (len(source), None, lines, part.place)
        sys.modules[name] = module  # dataclasses look their module up while it is made
        try:
            exec(compile(source, part.place, "exec"), module.__dict__)  # noqa: S102 (its purpose)
        except Exception as error:
            del sys.modules[name]
            raise _refusal(f"{key}: {part.place}", error) from error
        return module
