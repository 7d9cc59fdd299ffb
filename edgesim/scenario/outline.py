"""An outline of the schema for messages: the keys, and what each must be.

Error messages and overrides take ranges and lists of names from here, so none is written twice.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal, Self, get_args, get_origin

from pydantic import Discriminator
from pydantic.fields import FieldInfo

from edgesim.scenario.catalog import Catalog
from edgesim.scenario.own_parts import FORM, OWN, ChosenBy, NamedIn, NameIn, OwnPart
from edgesim.scenario.schema import Scenario
from edgesim.scenario.section import MustBe, Section

Key = tuple[str | int, ...]
"""Path to a value from the top of a scenario: keys, and positions in lists."""


@dataclass(frozen=True, slots=True)
class Slot:
    """Schema of the value at one key, or of one item of a list.

    Attributes:
        annotation: the bare type.
        constraints: ranges, `MustBe` and what names a catalog, as pydantic keeps them.
        discriminator: the key that chooses among several sections, if there are several.
    """

    annotation: Any
    constraints: tuple[object, ...] = ()
    discriminator: str | None = None

    @property
    def catalog(self) -> Catalog | None:
        """The catalog whose names can stand here, or choose the section that does."""
        naming = (c for c in self.constraints if isinstance(c, ChosenBy | NamedIn | NameIn))
        return next((constraint.catalog for constraint in naming), None)

    @classmethod
    def of(cls, annotation: object) -> Self:
        """Slot of a type, out of all layers of `Annotated`."""
        constraints: tuple[object, ...] = ()
        discriminator = None
        while get_origin(annotation) is Annotated:
            annotation, *extras = get_args(annotation)
            for extra in extras:
                if isinstance(extra, FieldInfo):
                    constraints += tuple(extra.metadata)
                    discriminator = discriminator or _name(extra.discriminator)
                else:
                    constraints += (extra,)
                    discriminator = discriminator or _name(extra)
        return cls(annotation, constraints, discriminator)

    @classmethod
    def of_key(cls, section: type[Section], key: str) -> Self | None:
        """Slot of a section's key; None if the section does not know the key."""
        field = section.model_fields.get(key)
        if field is None:
            return None
        inner = cls.of(field.annotation)
        return cls(
            inner.annotation,
            (*field.metadata, *inner.constraints),
            next(filter(None, map(_name, (field.discriminator, *field.metadata))), None)
            or inner.discriminator,
        )

    @property
    def sections(self) -> tuple[type[Section], ...]:
        """Sections that can stand here; empty where a plain value stands."""
        if isinstance(self.annotation, type) and issubclass(self.annotation, Section):
            return (self.annotation,)
        return tuple(s for member in self._members for s in member.sections)

    @property
    def takes_own(self) -> bool:
        """Whether a reference to a part of one's own can choose the section."""
        choosing = (c for c in self.constraints if isinstance(c, ChosenBy))
        return any(c.name_of(section) == OWN for c in choosing for section in self.sections)

    @property
    def item(self) -> Slot | None:
        """Slot of each item where a list stands, else None."""
        return (
            Slot.of(get_args(self.annotation)[0]) if get_origin(self.annotation) is tuple else None
        )

    @property
    def element(self) -> Slot | None:
        """Slot of each item of the list that can stand here, maybe among other types."""
        return self.item or next((m.element for m in self._members if m.element), None)

    @property
    def number(self) -> type[int | float] | None:
        """`int` or `float` where a number can stand, else None."""
        if self.annotation is int or self.annotation is float:
            return int if self.annotation is int else float
        return next((m.number for m in self._members if m.number), None)

    @property
    def is_switch(self) -> bool:
        """Whether true or false can stand here."""
        return self.annotation is bool or any(member.is_switch for member in self._members)

    def list_member(self, name: object) -> Slot | None:
        """The list among several types, by the name that pydantic gives it in a location."""
        if not str(name).startswith("tuple["):
            return None
        return next((member for member in self._members if member.item), None)

    def section_named(self, name: object) -> type[Section] | None:
        """The section that the discriminator's value `name` chooses."""
        name = OWN if ":" in str(name) else name
        return next((s for s in self.sections if name in self.names_of(s)), None)

    def key(self, key: str) -> Slot | None:
        """Slot of a key in whichever of the sections knows it."""
        slots = (Slot.of_key(section, key) for section in self.sections)
        return next((slot for slot in slots if slot), None)

    @property
    def must_be(self) -> str:
        """Continues the sentence "must be"."""
        for constraint in self.constraints:
            if isinstance(constraint, MustBe):
                return constraint.text
        if self.discriminator:
            return f"a mapping with the key {self.discriminator}: {_one_of(self.names)}"
        if self.sections:
            return f"a mapping with the keys {', '.join(self.sections[0].model_fields)}"
        if self.annotation is OwnPart:
            return f"{_one_of(self.names)}, or {FORM}" if self.names else FORM
        if self.catalog:
            return _one_of(self.names)
        if self._members:
            # Two lists of names are one list.
            return " or ".join(m.must_be for m in self._members).replace(" or one of ", ", ")
        return _describe_plain(self.annotation, self.constraints)

    @property
    def names(self) -> tuple[str, ...]:
        """Values that the discriminator may take, or the value itself where it is a literal."""
        if self.catalog:
            return tuple(self.catalog)
        if self.discriminator:
            named = (_literal(section, self.discriminator) for section in self.sections)
            return tuple(name for name in named if name is not None)
        if get_origin(self.annotation) is Literal:
            return get_args(self.annotation)
        return tuple(name for member in self._members for name in member.names)

    def bound(self, name: str) -> float | None:
        """An end of the range, by its name in pydantic.

        Also if a number is one of several types.
        """
        own = _bound(self.constraints, name)
        inner = (member.bound(name) for member in self._members)
        return own if own is not None else next((b for b in inner if b is not None), None)

    @property
    def _members(self) -> tuple[Slot, ...]:
        origin = get_origin(self.annotation)
        plain = isinstance(self.annotation, type) or origin in (Literal, tuple, dict)
        return () if plain else tuple(Slot.of(m) for m in get_args(self.annotation))

    def names_of(self, section: type[Section]) -> tuple[str, ...]:
        """The discriminator's values that choose a section.

        The section of all parts that have none of their own is chosen by `OWN`, which stands for
        references, and by the names of the catalog that no other section has.
        """
        assert self.discriminator
        name = _literal(section, self.discriminator)
        if name is not None:
            return (name,)
        others = {_literal(other, self.discriminator) for other in self.sections}
        return (OWN, *(name for name in self.names if name not in others))


def _literal(section: type[Section], key: str) -> str | None:
    """The one name that chooses a section; None where references may."""
    annotation = section.model_fields[key].annotation
    return get_args(annotation)[0] if get_origin(annotation) is Literal else None


SCENARIO = Slot(Scenario)
"""The slot of a whole scenario."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where in a scenario pydantic found an error.

    Attributes:
        key: path to the value.
        slot: what must stand there; None for a key that the schema does not know.
        holder: the section that has, lacks or does not know the last key.
    """

    key: Key
    slot: Slot | None
    holder: type[Section]


def locate(location: Key) -> Place:
    """Place of a pydantic error location, which mixes keys with names of union members."""
    place = Place((), SCENARIO, Scenario)
    section: type[Section] | None = Scenario
    for part in location:
        slot = place.slot
        if slot is None:
            break
        if section:
            place = Place((*place.key, part), Slot.of_key(section, str(part)), section)
        elif slot.discriminator:
            section = slot.section_named(part)
            continue
        elif list_slot := slot.list_member(part):
            place = Place(place.key, list_slot, place.holder)
        elif slot.element and isinstance(part, int):
            place = Place((*place.key, part), slot.element, place.holder)
        else:
            break
        section = _only_section(place.slot)
    return place


def dotted(key: Key) -> str:
    """A key as users write it: `topology.graphs[0].kind`."""
    parts = (f"[{part}]" if isinstance(part, int) else f".{in_one_line(part)}" for part in key)
    return "".join(parts).removeprefix(".")


def in_one_line(text: str, longest: int = 60) -> str:
    """Text as messages quote it: printable, in one line, truncated if it is long."""
    shown = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
    return shown if len(shown) <= longest else f"{shown[: longest - 3]}..."


def _only_section(slot: Slot | None) -> type[Section] | None:
    """The section at a slot that needs no discriminator to know it."""
    return slot.sections[0] if slot and slot.sections and not slot.discriminator else None


def _name(discriminator: object) -> str | None:
    """The key that chooses, from any of pydantic's kinds of discriminators."""
    if isinstance(discriminator, Discriminator):
        discriminator = discriminator.discriminator
    if isinstance(discriminator, ChosenBy):
        return discriminator.key
    return discriminator if isinstance(discriminator, str) else None


def _one_of(names: tuple[str, ...]) -> str:
    return names[0] if len(names) == 1 else f"one of {', '.join(map(str, names))}"


def _describe_plain(annotation: object, constraints: tuple[object, ...]) -> str:
    if get_origin(annotation) is Literal:
        return _one_of(get_args(annotation))
    if get_origin(annotation) is tuple:
        return f"a list, each item {Slot.of(get_args(annotation)[0]).must_be}"
    if annotation is int:
        return "a whole number" + _describe_whole_range(constraints)
    if annotation is float:
        return "a number" + _describe_range(constraints)
    if annotation is bool:
        return "true or false"
    return "null" if annotation is type(None) else "text"


def _describe_whole_range(constraints: tuple[object, ...]) -> str:
    low, high = _bound(constraints, "ge"), _bound(constraints, "le")
    if low is not None and high is not None:
        return f" from {low} to {high}"
    return "" if low is None else f", at least {low}"


def _describe_range(constraints: tuple[object, ...]) -> str:
    bounds = (_bound(constraints, name) for name in ("ge", "gt", "le", "lt"))
    ge, gt, le, lt = (None if bound is None else f"{bound:g}" for bound in bounds)
    if (le, lt) != (None, None):
        left = f"({gt}" if ge is None else f"[{ge}"
        return f" in {left}, " + (f"{lt})" if le is None else f"{le}]")
    if gt is not None:
        return f" above {gt}"
    return "" if ge is None else f", at least {ge}"


def _bound(constraints: tuple[object, ...], name: str) -> float | None:
    return next((getattr(c, name) for c in constraints if hasattr(c, name)), None)
