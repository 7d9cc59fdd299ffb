"""Calls of one's own code before a run: errors are said with their place, results are checked."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from copy import copy
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, Generic, TypeVar

import numpy as np
import torch
from torch import Tensor

from edgesim.assembly.parts.own_errors import failure, with_frames
from edgesim.data.errors import DataError
from edgesim.errors import EdgesimError, ScenarioError
from edgesim.hardware.widths import FLOAT_BYTES
from edgesim.hardware.work import Work
from edgesim.scenario.own_parts import OwnPart
from edgesim.storage.state_tree import KEPT, Arrays, Packed, StateTreeError, pack, restore_

Part = TypeVar("Part")

_LEAST_PIECE = 16  # entries of a part of a vector; below it may be counters


@dataclass(frozen=True)
class Checked(Generic[Part]):
    """Does what a part of one's own does in a run; subclasses check what some methods give.

    Attributes:
        own: the part.
    """

    own: Part

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 (of any member)
        """Other members are those of the part, also such as edgesim does not read."""
        if name == "own" or name.startswith("__"):  # not there yet while it is unpickled
            raise AttributeError(name)
        return getattr(self.own, name)


def is_own(named: object) -> bool:
    """Whether a part is one's own, and none of the catalog."""
    return isinstance(named, OwnPart) and not named.shipped_as


def new_rng(seed: int = 0) -> np.random.Generator:
    """A generator that gives the same numbers each time."""
    return np.random.default_rng(seed)


def check_hash(key: str, part: object) -> None:
    """Refuse a part without a hash, by which what was worked out of it is kept."""
    try:
        hash(part)
    except TypeError as error:
        raise ScenarioError(
            f"{key}: {type(part).__name__} can't be hashed ({error}); make it a dataclass with "
            "frozen=True, whose fields can be hashed: tuples instead of lists"
        ) from error


def called(key: str, name: str, method: Callable[..., Any], *arguments: object) -> Any:  # noqa: ANN401
    """What a method gives; its errors are said with their place."""
    try:
        return method(*arguments)
    except DataError:
        raise
    except EdgesimError as error:
        raise with_frames(ScenarioError(f"{key}: {name} refuses: {error}"), error) from error
    except (Exception, SystemExit) as error:
        raise with_frames(ScenarioError(f"{key}: {name} {failure(error)}"), error) from error


def expect(key: str, said: str, found: object, kind: type) -> None:
    """Refuse what is of another type."""
    if not isinstance(found, kind):
        raise ScenarioError(f"{key}: {said} gives {shown(found)}; must be a {kind.__name__}")


def check_work(key: str, said: str, work: object) -> None:
    """Refuse what is no work, or can't be counted."""
    expect(key, said, work, Work)
    assert isinstance(work, Work), "as expected"
    for name, count in work.counts.items():
        if not isinstance(count, int | np.integer) or isinstance(count, bool) or count < 0:
            raise ScenarioError(
                f"{key}: {said} has {name} {count!r}; must be a whole number, not negative"
            )


def shown(value: object) -> str:
    """What a value is, shortly."""
    if isinstance(value, Tensor):
        return f"a tensor of {value.dtype} and shape {tuple(value.shape)}"
    if value is None or isinstance(value, bool | int | float | str):
        return repr(value)
    return f"an object of type {type(value).__name__}"


def check_finite(key: str, when: str, x: Tensor) -> None:
    """Refuse parameters with entries that are not finite; says how many and where."""
    wrong = (~torch.isfinite(x)).nonzero()
    if len(wrong):
        first = int(wrong[0])
        raise ScenarioError(
            f"{key}: {when} {len(wrong):,} of {len(x):,} entries of x are not finite, first entry "
            f"{first}, which is {float(x[first])}"
        )


def flat_vectors(state: object, numel: int) -> float:
    """Number of flat vectors with `numel` entries that a state holds, whole or in pieces.

    Arrays of floats count if they have at least half as many entries, or 16. Counters do not.
    """
    arrays = Packed.of(state, "state").arrays.values()
    least = min(numel / 2, _LEAST_PIECE)
    large = (a for a in arrays if a.dtype.kind == "f" and a.size >= least)
    return sum(array.nbytes for array in large) / (FLOAT_BYTES * numel)


def vectors_of_any_type(state: object, numel: int) -> float:
    """All that a state holds, in flat vectors of fp32; a vector may be in parts, or of 8 bits."""
    arrays = Packed.of(state, "state").arrays.values()
    return sum(array.nbytes for array in arrays) / (FLOAT_BYTES * numel)


def check_kept(key: str, state: object) -> None:
    """Refuse a state that can't be written to a checkpoint and read back."""
    arrays: Arrays = {}
    try:
        problem = _no_state(state)
        if not problem:
            # Into another one: fields that share memory would no longer share it.
            again = copy(state)
            restore_(again, pack(state, arrays, "state"), arrays)
            problem = _other_kind(_fields_of(state), _fields_of(again), "state")
    except StateTreeError as error:
        said = f"{key}: its state can't be kept in a checkpoint: {error}"
        raise ScenarioError(said) from error
    except Exception as error:
        raise _not_kept(key, str(error)) from error
    if problem:
        raise _not_kept(key, problem)


def _not_kept(key: str, problem: str) -> ScenarioError:
    return ScenarioError(
        f"{key}: its state can't be kept in a checkpoint: {problem}; it must be a dataclass of "
        f"{KEPT}"
    )


def _no_state(state: object) -> str:
    """Why nothing can be read back into an object; empty if something can."""
    if not is_dataclass(state) or isinstance(state, type):
        return f"it is {shown(state)}"
    is_frozen: bool = type(state).__dataclass_params__.frozen  # type: ignore[attr-defined]
    return "its dataclass is frozen, so nothing can be read back into it" if is_frozen else ""


def _fields_of(state: object) -> dict[str, object]:
    """Fields of a dataclass by name."""
    return {field.name: getattr(state, field.name) for field in fields(state)}  # type: ignore[arg-type]


def _other_kind(before: object, after: object, path: str) -> str:
    """What comes back from a checkpoint as another kind of object; empty if nothing does."""
    if type(before) is not type(after) and not isinstance(before, Tensor):
        kinds = type(before).__name__, type(after).__name__
        return f"{path} is a {kinds[0]}, and comes back as a {kinds[1]}"
    pairs: Iterable[tuple[object, object, object]] = ()
    if isinstance(before, dict) and isinstance(after, dict):
        pairs = ((key, before[key], after.get(key)) for key in before)
    elif isinstance(before, tuple | list) and isinstance(after, tuple | list):
        pairs = zip(range(len(before)), before, after, strict=True)
    found = (_other_kind(one, other, f"{path}/{name}") for name, one, other in pairs)
    return next((problem for problem in found if problem), "")
