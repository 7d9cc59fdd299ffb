"""Turns pydantic's errors into lines that name file, key, value and remedy."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal
from difflib import get_close_matches

from pydantic import ValidationError
from pydantic_core import ErrorDetails
from yaml.nodes import Node

from edgesim.scenario.guide import ITEM, guide
from edgesim.scenario.outline import Key, Place, Slot, dotted, locate
from edgesim.scenario.own_parts import FORM
from edgesim.scenario.section import ContradictionError, Section
from edgesim.scenario.strict_yaml import is_number, place_of

_MOST_LINES = 2
_MOST_DETAILS = 300  # errors of the schema that are looked at
_LONGEST_VALUE = 60

# Last part of the keys of quantities: a key without it says nothing about its number.
_LEAST_GUESSED = 4  # letters of a value; gpu is not like cpu
_MOST_PLACES = 3  # of a key that is given without its section
_UNITS = ("s", "ms", "mbps", "mib", "w", "wh", "bytes", "gmacs_per_s", "gbytes_per_s")

# What else may be meant by a name that is not in a key's catalog.
_OTHERWISE = {
    ("data", "source"): "a CSV or Parquet file of your own is data.path of table, and a class or "
    "function reads all else (docs/own-dataset.md)"
}

# Whole numbers of up to 40 digits, most of them left of the point.
_FRACTION_OR_EXPONENT = re.compile(r"[-+]?\d{1,20}(\.\d{0,20})?([eE][-+]?\d{1,2})?")
_EXPONENT_NUMBER = re.compile(r"([-+]?)(\d*)\.?(\d*)[eE]([-+]?)(\d+)")


@dataclass(frozen=True, slots=True)
class _Problem:
    """One line of a report.

    Attributes:
        key: path to the value.
        text: continues the sentence that starts with the key.
        mistaken_for: keys of the same section that an unknown key resembles.
        is_unknown: the schema does not know the key.
    """

    key: Key
    text: str
    mistaken_for: tuple[str, ...] = ()
    is_unknown: bool = False


def report(error: ValidationError, root: Node, value: object) -> str:
    """Lines for the first problems of a scenario, and the number of the others.

    Args:
        error: of the schema.
        root: the scenario's nodes, which know where each key was written.
        value: the same as plain values.
    """
    # Unknown keys explain what is missing, so they come first.
    details = sorted(error.errors(), key=lambda detail: detail["type"] != "extra_forbidden")
    problems = _without_echoes([_problem(detail, value) for detail in details[:_MOST_DETAILS]])
    num_others = len(problems) + len(details[_MOST_DETAILS:]) - _MOST_LINES
    lines = [
        f"{place_of(root, p.key, name_itself=p.is_unknown)}: {dotted(p.key)} {p.text}"
        for p in problems[:_MOST_LINES]
    ]
    if num_others > 0:
        lines[-1] += f" (and {num_others} more)"
    return "\n".join(lines)


def nearest(name: str, names: Iterable[str]) -> tuple[str, ...]:
    """Names that a misspelt one may mean, best first."""
    return tuple(get_close_matches(name, list(dict.fromkeys(names)), n=2, cutoff=0.6))


def show(value: object) -> str:
    """A value as a message quotes it."""
    if isinstance(value, str):
        return f"the text {_shortened(repr(value))}"
    if isinstance(value, dict):
        return "a mapping" if value else "an empty mapping"
    if isinstance(value, list):
        return "a list" if value else "an empty list"
    if value is None:
        return "empty"
    return str(value).lower() if isinstance(value, bool) else _shortened(repr(value))


def _problem(detail: ErrorDetails, value: object) -> _Problem:
    place = locate(detail["loc"])
    match detail["type"]:
        case "missing":
            assert place.slot
            return _Problem(place.key, f"is missing; must be {place.slot.must_be}")
        case "extra_forbidden":
            return _unknown_key(place, value)
        case "union_tag_not_found" | "union_tag_invalid":
            return _wrong_choice(place, value)
        case "value_error":
            cause = detail["ctx"]["error"]
            assert isinstance(cause, ContradictionError)
            inner = (int(p) if p.isdigit() else p for p in cause.key.split(".") if p)
            return _Problem((*place.key, *inner), cause.problem)
    return _wrong_value(place.key, place.slot, _value_at(value, place.key))


def _keys_ending(name: str) -> tuple[str, ...]:
    """The few keys of sections whose last part is a name that stands outside of them."""
    keys = dict.fromkeys(entry.key for entry in guide() if entry.key.endswith(f".{name}"))
    found = tuple(k for k in keys if f".{ITEM}." not in k and not k.startswith("paper."))
    return found if len(found) <= _MOST_PLACES else ()


def _unknown_key(place: Place, value: object) -> _Problem:
    *section_key, key = place.key
    names = tuple(place.holder.model_fields)
    guesses = nearest(str(key), names)
    with_unit = tuple(name for name in names if name in {f"{key}_{unit}" for unit in _UNITS})
    if with_unit:
        remedy = f"the unit is missing: write {' or '.join(with_unit)}"
        return _Problem(place.key, f"is an unknown key; {remedy}", with_unit, is_unknown=True)
    remedy = f"did you mean {' or '.join(guesses)}?" if guesses else f"known: {', '.join(names)}"
    if not guesses and not section_key and (whole := _keys_ending(str(key))):
        remedy = f"did you mean {' or '.join(whole)}?"
    if any(_has_other_unit(str(key), name) for name in guesses):
        remedy += " The unit is another: convert the value"
    choice = _choice(place.holder, _value_at(value, tuple(section_key)))
    return _Problem(place.key, f"is an unknown key{choice}; {remedy}", guesses, is_unknown=True)


def _has_other_unit(key: str, name: str) -> bool:
    """Whether two keys are of one quantity in unlike units, as `bandwidth_kbps`."""
    quantity, _, unit = name.rpartition("_")
    return unit in _UNITS and key.rpartition("_")[0] == quantity and not key.endswith(f"_{unit}")


def _choice(holder: type[Section], section: object) -> str:
    """` of kind: ring` for a section that was chosen among others."""
    for key in ("kind", "algorithm"):
        if key in holder.model_fields and holder.model_fields[key].is_required():
            return f" of {key}: {_value_at(section, (key,))}"
    return ""


def _wrong_choice(place: Place, value: object) -> _Problem:
    assert place.slot
    discriminator = place.slot.discriminator
    assert discriminator
    key, names = (*place.key, discriminator), place.slot.names
    section = _value_at(value, place.key)
    if not isinstance(section, dict):
        return _wrong_value(place.key, place.slot, section)
    must_be = f"one of {', '.join(names)}{f', or {FORM}' if place.slot.takes_own else ''}"
    if discriminator not in section:
        # Of a section whose kind is not known, no other key is looked at.
        for written in section:
            if nearest(str(written), (discriminator,)):
                said = f"is an unknown key; did you mean {discriminator}?"
                return _Problem((*place.key, str(written)), said, (discriminator,), is_unknown=True)
        return _Problem(key, f"is missing; must be {must_be}")
    slot = place.slot.key(discriminator)
    return _wrong_value(key, slot, _value_at(value, key), names, must_be)


def _wrong_value(
    key: Key, slot: Slot | None, value: object, names: tuple[str, ...] = (), must_be: str = ""
) -> _Problem:
    assert slot
    must_be = must_be or slot.must_be
    if isinstance(value, float) and (written := _written_whole(repr(value), slot)):
        return _Problem(key, f"is {show(value)}; must be {must_be}: write {written}")
    if not isinstance(value, str):
        return _Problem(key, f"is {show(value)}; must be {must_be}")
    if remedy := _number_remedy(value, slot):
        return _Problem(key, f"is {show(value)}; {remedy}")
    problem = f"is {show(value)}; must be {must_be}"
    if len(value) >= _LEAST_GUESSED and (guesses := nearest(value, names or slot.names)):
        meant = f"{{{slot.discriminator}: {guesses[0]}}}" if slot.discriminator else guesses[0]
        problem += f"; did you mean {meant}?"
    elif key in _OTHERWISE:
        problem += f"; {_OTHERWISE[key]}"
    return _Problem(key, problem)


def _number_remedy(text: str, slot: Slot) -> str:
    """How to write a number that YAML reads as text; empty if none is meant."""
    if slot.number is None:
        return ""
    if written := _written_whole(text, slot):
        return f"must be {slot.must_be}: write {written}"
    if is_number(text):
        return f"must be {slot.must_be}: write {_shortened(text)} without quotes"
    if slot.number is float and (match := _EXPONENT_NUMBER.fullmatch(text)):
        sign, whole, fraction, exponent_sign, exponent = match.groups()
        written = f"{sign}{whole or 0}.{fraction or 0}e{exponent_sign or '+'}{exponent}"
        return f"YAML reads a number only with a point: write {written}"
    return ""


def _written_whole(text: str, slot: Slot) -> str:
    """A whole number that was written as 1e8 or 8.0, in digits; empty if it is out of range."""
    is_written_so = _FRACTION_OR_EXPONENT.fullmatch(text) and not text.lstrip("+-").isdigit()
    if slot.number is not int or not is_written_so:
        return ""
    number = Decimal(text)
    low, high = slot.bound("ge"), slot.bound("le")
    is_inside = (low is None or number >= low) and (high is None or number <= high)
    return str(int(number)) if is_inside and number == number.to_integral_value() else ""


def _without_echoes(problems: list[_Problem]) -> list[_Problem]:
    """Unknown keys first, one problem per key, no `missing` that a misspelt key explains."""
    explained = {(*p.key[:-1], guess) for p in problems for guess in p.mistaken_for}
    by_key: dict[Key, _Problem] = {}
    for problem in sorted(problems, key=lambda p: not p.is_unknown):
        if not (problem.key in explained and problem.text.startswith("is missing")):
            by_key.setdefault(problem.key, problem)
    # A list or section whose part is wrong is itself reported as wrong.
    holders = {key[:length] for key in by_key for length in range(len(key))}
    return [problem for problem in by_key.values() if problem.key not in holders]


def _value_at(value: object, key: Key) -> object:
    for part in key:
        if isinstance(value, dict):
            value = value.get(part)
        elif isinstance(value, list) and isinstance(part, int):
            value = value[part]
    return value


def _shortened(text: str) -> str:
    return text if len(text) <= _LONGEST_VALUE else f"{text[: _LONGEST_VALUE - 3]}..."
