"""Options of a part: the keyword arguments of its class or function, checked by its annotations.

A plain annotation says what an option must be: `bool`, `int`, `float`, `str`, a `Literal`, one of
these or None, and `Annotated[float, Field(gt=0, le=1)]` of pydantic for a range. What has another
annotation, or none, takes any value.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Hashable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from inspect import Parameter, getdoc, isclass, signature
from typing import Any, Literal, get_args, get_origin, get_type_hints

from pydantic import ConfigDict, TypeAdapter, ValidationError

from edgesim.errors import ScenarioError, did_you_mean
from edgesim.scenario.guide import example_value
from edgesim.scenario.outline import Slot
from edgesim.scenario.problems import show

_PLAIN = (bool, int, float, str, type(None))
_CHECKS = ConfigDict(strict=True, allow_inf_nan=False)
_ATTRIBUTE = re.compile(r"^\s+(\w+): (.*(?:\n\s{8,}\S.*)*)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Option:
    """A keyword argument that a scenario may give.

    Attributes:
        name: of the argument.
        annotation: of the argument; `Any` if it takes any value.
        default: `Parameter.empty` if it must be given.
        meaning: what the docstring says of it; may be empty.
    """

    name: str
    annotation: Any
    default: object
    meaning: str

    @property
    def is_required(self) -> bool:
        """Whether a scenario must give it."""
        return self.default is Parameter.empty

    @property
    def must_be(self) -> str:
        """Continues the sentence "must be"; empty if it takes any value."""
        return "" if self.annotation is Any else Slot.of(self.annotation).must_be

    @property
    def example(self) -> object:
        """A value that it can have: its default, if it has one."""
        if not self.is_required or self.annotation is Any:
            return None if self.is_required else self.default
        return example_value(Slot.of(self.annotation), None)

    def takes(self, value: object) -> bool:
        """Whether it can have a value."""
        try:
            TypeAdapter(self.annotation, config=_CHECKS).validate_python(value)
        except ValidationError:
            return False
        return True


def parameters_of(make: Callable[..., Any]) -> Mapping[str, Parameter]:
    """Parameters of a class or function by name; none where it does not tell."""
    try:
        return signature(make).parameters
    except ValueError:  # some classes in C
        return {}


def options_of(make: Callable[..., Any], given: Collection[str]) -> dict[str, Option] | None:
    """The options of a class or function by name; None if it does not say which it takes.

    Args:
        make: the class or function.
        given: keyword arguments that do not come from the scenario's options.
    """
    try:
        parameters = signature(make).parameters.values()
    except ValueError:  # some classes in C say nothing of their arguments
        return None
    if any(p.kind is Parameter.VAR_KEYWORD for p in parameters):
        return None
    describe = _known if isinstance(make, Hashable) else _hints_and_meanings
    hints, meanings = describe(make)
    return {
        p.name: Option(p.name, _plain(hints.get(p.name)), p.default, meanings.get(p.name, ""))
        for p in parameters
        if p.name not in given
        and p.kind in (Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY)
    }


def check_options(
    make: Callable[..., Any], options: Mapping[str, Any], given: Collection[str], key: str, of: str
) -> None:
    """Refuse options that a part does not take, and values that they can't have.

    Args:
        make: its class or function.
        options: of the scenario.
        given: further keyword arguments, which do not come from the scenario's options; also those
            that it would get if it took them.
        key: of the options in a scenario.
        of: the part, for messages.

    Raises:
        ScenarioError: names the option, and says what would be right.
    """
    known = options_of(make, given)
    if known is None:
        return
    for name, value in options.items():
        if name not in known:
            names = f"it takes {', '.join(known)}" if known else "it takes none"
            raise ScenarioError(
                f"{key}.{name} is no option of {of}; {did_you_mean(name, known, names)}"
            )
        if not known[name].takes(value):
            raise ScenarioError(f"{key}.{name} is {show(value)}; must be {known[name].must_be}")
    for option in known.values():
        if option.is_required and option.name not in options:
            must_be = f"; must be {option.must_be}" if option.must_be else ""
            raise ScenarioError(
                f"{key}.{option.name} is missing; {of} needs it{_or_misnamed(make, given)}{must_be}"
            )


def _or_misnamed(make: Callable[..., Any], given: Collection[str]) -> str:
    """The names of all arguments, one of which may be meant; empty if the part takes them all."""
    if set(given) <= set(parameters_of(make)):
        return ""
    return f", and it is none of the arguments that such a part gets ({', '.join(given)})"


def _hints_and_meanings(make: Callable[..., Any]) -> tuple[dict[str, Any], dict[str, str]]:
    """Annotations of the arguments, and what the docstring says of them."""
    return _hints(make), _meanings(make)


# A run makes some thirty parts, each from one of a few classes.
_known = lru_cache(maxsize=256)(_hints_and_meanings)


def _hints(make: Callable[..., Any]) -> dict[str, Any]:
    """Annotations of the arguments, as far as they can be made out."""
    try:
        hints = get_type_hints(make, include_extras=True)
        if isclass(make) and "__init__" in vars(make):
            hints |= get_type_hints(make.__init__, include_extras=True)
    except (NameError, TypeError):
        return {}
    return hints


def _plain(annotation: object) -> Any:  # noqa: ANN401 (an annotation)
    """The annotation if its values can be those of a scenario, else `Any`."""
    bare = Slot.of(annotation).annotation
    if bare in _PLAIN or get_origin(bare) is Literal:
        return annotation
    members = get_args(bare)
    if members and all(_plain(member) is not Any for member in members) and not isclass(bare):
        return annotation if get_origin(bare) not in (list, tuple, dict, set) else Any
    return Any


def _meanings(make: Callable[..., Any]) -> dict[str, str]:
    """What a docstring in Google's style says of attributes and arguments, in one line each."""
    lines = f"\n{getdoc(make) or ''}\n"
    return {name: " ".join(text.split()) for name, text in _ATTRIBUTE.findall(lines)}
