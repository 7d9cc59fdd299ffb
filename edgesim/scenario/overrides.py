"""`--set key.path=value`: values of the command line or of Python code, laid over a scenario."""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence

from yaml.nodes import MappingNode, Node, SequenceNode

from edgesim.errors import ScenarioError
from edgesim.scenario.outline import SCENARIO, Slot, in_one_line
from edgesim.scenario.strict_yaml import (
    CHOICES,
    OVERRIDE,
    compose,
    find,
    is_from_override,
    is_null,
    mapping,
    null_node,
    sequence,
    text_node,
)

_POSITION = re.compile(r"\[([0-9]+)\]")  # as messages write it: fleet.devices[0].profile
_LONGEST_OVERRIDE = 120  # characters that messages quote
_DIGITS = re.compile(r"[0-9]{1,9}")

_log = logging.getLogger(__name__)


def apply_overrides(
    root: MappingNode, overrides: Sequence[str], written: str = OVERRIDE
) -> MappingNode:
    """The file's nodes with all overrides applied; the last one wins. Does not change `root`.

    A missing section is created. An item of a list is named by its position, from 0. A new `kind`
    (or `gossip.algorithm`) drops the keys beside it that the new kind does not know, and one of two
    alternatives (`training.epochs`, `.rounds`) drops the other, unless the command line set them
    too. Keys and values are checked later, by the schema.

    Args:
        root: of the scenario file.
        overrides: each `key.path=value`, the value in YAML.
        written: what messages put before an override: `OVERRIDE` or `ARGUMENT`.

    Raises:
        ScenarioError: an override is not of this form, or names an item that a list lacks.
    """
    for override in overrides:
        origin = written + in_one_line(override, _LONGEST_OVERRIDE)
        path, _, text = override.partition("=")
        keys = parts_of(path)
        if "=" not in override or not all(keys):
            raise ScenarioError(
                f"{origin}: write it as key.path=value, for example {written}training.epochs=10"
            )
        value = compose(text, origin) or null_node(origin)
        root = _set_key(root, SCENARIO, keys, value, origin)
    return root


def parts_of(path: str) -> list[str]:
    """Parts of a key: `fleet.devices[0].count` has four."""
    return _POSITION.sub(r".\1", path.strip()).split(".")


def _set_key(
    section: MappingNode, slot: Slot | None, keys: list[str], value: Node, origin: str
) -> MappingNode:
    """A copy of `section` in which the value at `keys` is `value`."""
    key, *inner_keys = keys
    pair = find(section, key)
    if inner_keys:
        value = _set_inside(
            pair and pair[1], slot and slot.key(key), key, inner_keys, value, origin
        )
    else:
        section = _without_orphans(section, slot, key, value)
    pairs = [(name, value if name.value == key else old) for name, old in section.value]
    if pair is None:
        pairs.append((text_node(key, origin), value))
    return mapping(pairs, like=section)


def _set_inside(
    old: Node | None, slot: Slot | None, name: str, keys: list[str], value: Node, origin: str
) -> Node:
    """A copy of the list or section `old`, called `name`, in which the value at `keys` is `value`.

    A value that is neither list nor section is replaced by a section.
    """
    if not isinstance(old, SequenceNode):
        section = old if isinstance(old, MappingNode) else mapping([], like=null_node(origin))
        return _set_key(section, slot, keys, value, origin)
    position, *inner_keys = keys
    items = list(old.value)
    if not _DIGITS.fullmatch(position) or int(position) >= len(items):
        raise ScenarioError(
            f"{origin}: {name} is a list of {len(items)}; name an item by its position, "
            f"{f'0 to {len(items) - 1}' if items else 'which an empty list has none of'}, "
            "or set the list as a whole"
        )
    place = int(position)
    if inner_keys:
        item = slot and slot.element
        value = _set_inside(items[place], item, f"{name}.{place}", inner_keys, value, origin)
    items[place] = value
    return sequence(items, like=old)


def _without_orphans(section: MappingNode, slot: Slot | None, key: str, value: Node) -> MappingNode:
    """The section without the file's keys that do not exist when `key` is `value`."""
    if slot is None or is_null(value):
        return section
    if key == slot.discriminator and (chosen := slot.section_named(value.value)):
        orphans = {name.value for name, _ in section.value} - set(chosen.model_fields)
    else:
        groups = [s.alternatives for s in slot.sections if key in s.alternatives]
        orphans = set().union(*groups) - {key}
    kept = []
    for name, old in section.value:
        if name.value in orphans and not _holds_override(old):
            origin = value.start_mark.name
            if not origin.startswith(CHOICES):
                _log.info("%s drops %s", origin, name.value)
        else:
            kept.append((name, old))
    return mapping(kept, like=section)


def _holds_override(node: Node) -> bool:
    """Whether the command line gave the value or a part of it."""
    inner: list[Node] = []
    if isinstance(node, MappingNode):
        inner = [value for _, value in node.value]
    elif isinstance(node, SequenceNode):
        inner = node.value
    return is_from_override(node) or any(_holds_override(value) for value in inner)
