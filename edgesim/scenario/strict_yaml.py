"""YAML read strictly, with the place of every value kept.

YAML 1.1 as PyYAML reads it, without its surprises: duplicate keys and tags are refused; octal
`010`, base-60 `1:30`, dates and merge keys are plain text, which the schema then refuses.
"""

from __future__ import annotations

import re
from functools import lru_cache
from pathlib import Path
from typing import Any

import yaml
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from edgesim.errors import ScenarioError
from edgesim.scenario.file_references import KEYS, absolute_reference
from edgesim.scenario.outline import Key, in_one_line

OVERRIDE = "--set "
"""Starts the origin of values of the command line."""

ARGUMENT = "argument "
"""Starts the origin of values that Python code sets."""

GIVEN = "the scenario given"
"""Origin of a scenario that is no file."""

SWEEP = "sweep "
"""Starts the origin of values that a sweep gives to one of its cells."""

ONLY = "--only "
"""Starts the origin of values by which the command line chooses cells of a sweep."""

ONLY_ARGUMENT = f"{ARGUMENT}only: "
"""Starts the origin of values by which Python code chooses them."""

CHOICES = (ONLY, ONLY_ARGUMENT)
"""Start the origins of values that only ask what a cell has, and change none."""

_OVERRIDES = (OVERRIDE, ARGUMENT, SWEEP, ONLY)

PATHS = frozenset({"path", "test_path", "start_from"})  # keys of files, made absolute
_FOLDERS = frozenset({"tokenizer", "encoder"})  # likewise if ./folder; otherwise they are names

_MOST_REMEMBERED = 10_000  # characters of a text whose nodes are kept

_TAG = "tag:yaml.org,2002:"
_TEXT_TAG = f"{_TAG}str"
_NULL_TAG = f"{_TAG}null"
_INT = re.compile(r"[-+]?(?:0|[1-9][0-9_]*|0x[0-9a-fA-F][0-9a-fA-F_]*|0b[01][01_]*)$")
_FLOAT = re.compile(
    r"(?:[-+]?[0-9][0-9_]*\.[0-9_]*(?:[eE][-+][0-9]+)?"
    r"|\.[0-9][0-9_]*(?:[eE][-+][0-9]+)?"
    r"|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))$"
)


class _StrictLoader(yaml.SafeLoader):
    """Composes nodes only; the constructors for whole documents are never used."""

    yaml_implicit_resolvers = {  # noqa: RUF012 - PyYAML's own interface
        first: [pair for pair in pairs if pair[0] in (f"{_TAG}bool", _NULL_TAG)]
        for first, pairs in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }

    def __init__(self, text: str, origin: str) -> None:
        super().__init__(text)
        self.name = origin
        self._open_anchors: set[str] = set()

    def compose_node(self, parent: Node | None, index: int) -> Node | None:
        event: yaml.NodeEvent = self.peek_event()  # type: ignore[no-untyped-call]
        assert isinstance(event.start_mark, yaml.Mark)
        where = place(event.start_mark)
        if tag := getattr(event, "tag", None):
            shown = in_one_line(tag.replace(_TAG, "!!"))
            raise ScenarioError(f"{where}: the tag {shown} is not allowed; write the plain value")
        if isinstance(event, yaml.AliasEvent) and event.anchor in self._open_anchors:
            raise ScenarioError(
                f"{where}: *{in_one_line(event.anchor)} contains itself; write the value out"
            )
        if event.anchor is None or isinstance(event, yaml.AliasEvent):
            return super().compose_node(parent, index)
        self._open_anchors.add(event.anchor)
        node = super().compose_node(parent, index)
        self._open_anchors.discard(event.anchor)
        return node

    def compose_mapping_node(self, anchor: dict[Any, Node]) -> MappingNode:
        node = super().compose_mapping_node(anchor)
        first_line: dict[str, int] = {}
        for key, _ in node.value:
            if key.tag != _TEXT_TAG:
                shown = in_one_line(key.value) if isinstance(key, ScalarNode) else "in brackets"
                raise ScenarioError(
                    f"{place(key.start_mark)}: the key {shown} is no text; put a word there"
                )
            line = key.start_mark.line + 1
            if key.value in first_line:
                shown = in_one_line(key.value)
                raise ScenarioError(
                    f"{place(key.start_mark)}: the key {shown} is there already in line "
                    f"{first_line[key.value]}; keep one of the two"
                )
            first_line[key.value] = line
        return node


_StrictLoader.add_implicit_resolver(f"{_TAG}int", _INT, list("-+0123456789"))
_StrictLoader.add_implicit_resolver(f"{_TAG}float", _FLOAT, list("-+0123456789."))


def compose(text: str, origin: str) -> Node | None:
    """Node tree of one YAML document; None if it is empty.

    A text that was read before is not read again, so nobody may change the nodes.

    Args:
        text: the document.
        origin: file name, or `--set ...`, or the like; begins every message about it.

    Raises:
        ScenarioError: not valid YAML, a duplicate key, a tag, an alias inside its own value, or a
            key that is no text.
    """
    return (_remembered if len(text) <= _MOST_REMEMBERED else _compose)(text, origin)


_REMEDIES = (  # by a part of what the parser says
    (r"'\t'", "; indent with blanks, not tabs"),
    ("mapping values are not allowed", "; put a text with a colon and a blank in quotes"),
    ("cannot start any token", "; put a text that begins with it in quotes"),
    ("undefined alias", "; put a text that begins with * in quotes"),
)


def _compose(text: str, origin: str) -> Node | None:
    try:
        return _StrictLoader(text, origin).get_single_node()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = place(mark, with_column=True) if mark else origin
        remedy = next((remedy for part, remedy in _REMEDIES if part in str(error.problem)), "")
        raise ScenarioError(f"{where}: not valid YAML: {error.problem}{remedy}") from error
    except yaml.reader.ReaderError as error:
        has_lines = not (origin.startswith(_OVERRIDES) or origin == GIVEN)
        line = f":{text.count(chr(10), 0, error.position) + 1}" if has_lines else ""
        raise ScenarioError(
            f"{origin}{line}: not valid YAML: a character that text files do not have"
        ) from error
    except RecursionError as error:
        raise ScenarioError(f"{origin}: not valid YAML: nested too deeply") from error


_remembered = lru_cache(maxsize=64)(_compose)


def to_value(node: Node, folder: Path) -> object:
    """Plain Python value of a node: dicts, lists, text, numbers, truth values and None.

    Text under a key `path`, and the file of an own part, become absolute. They are relative to
    `folder`, or to the current folder if an override gave them.

    Raises:
        ScenarioError: a path that can't be one, or a number with thousands of digits.
    """
    return _Converter(folder).convert(node)


def text_node(text: str, origin: str) -> ScalarNode:
    """A node of plain text that comes from an override."""
    return ScalarNode(_TEXT_TAG, text, *_marks(origin))


def null_node(origin: str) -> ScalarNode:
    """An empty value that comes from an override."""
    return ScalarNode(_NULL_TAG, "", *_marks(origin))


def is_null(node: Node) -> bool:
    """Whether the value is empty or `null`."""
    return node.tag == _NULL_TAG


def mapping(pairs: list[tuple[Node, Node]], like: Node) -> MappingNode:
    """A mapping node with the place of another node."""
    return MappingNode(f"{_TAG}map", pairs, like.start_mark, like.end_mark)


def sequence(items: list[Node], like: Node) -> SequenceNode:
    """A list node with the place of another node."""
    return SequenceNode(f"{_TAG}seq", items, like.start_mark, like.end_mark)


def is_number(text: str) -> bool:
    """Whether YAML reads the text, unquoted, as a number."""
    return bool(_INT.match(text) or _FLOAT.match(text))


def is_from_override(node: Node) -> bool:
    """Whether the command line, or Python code, set the value beside the scenario."""
    return node.start_mark.name.startswith(_OVERRIDES)


def place(mark: yaml.Mark, *, with_column: bool = False) -> str:
    """`file:line`, or the override as it was given; a scenario that is no file has no lines."""
    if mark.name.startswith(_OVERRIDES) or mark.name == GIVEN:
        return mark.name
    return f"{mark.name}:{mark.line + 1}" + (f":{mark.column + 1}" if with_column else "")


def place_of(root: Node, key: Key, *, name_itself: bool = False) -> str:
    """Place of the value at a key, or of the innermost section on the way that exists.

    A section's place is the line of its name, not that of its first key. With `name_itself` that
    holds for every key.
    """
    node, mark = root, root.start_mark
    for part in key:
        if isinstance(part, int) and isinstance(node, SequenceNode) and part < len(node.value):
            node = node.value[part]
            mark = node.start_mark
            continue
        pair = find(node, str(part))
        if pair is None:
            break
        name, node = pair
        is_section = isinstance(node, MappingNode) and not is_from_override(node)
        mark = name.start_mark if is_section or name_itself else node.start_mark
    return place(mark)


def find(node: Node | None, key: str) -> tuple[ScalarNode, Node] | None:
    """Key and value nodes of a mapping's key; None if there is none, or no mapping."""
    pairs = node.value if isinstance(node, MappingNode) else []
    return next(((name, value) for name, value in pairs if name.value == key), None)


def _marks(origin: str) -> tuple[yaml.Mark, yaml.Mark]:
    mark = yaml.Mark(origin, 0, 0, 0, "", 0)
    return mark, mark


class _Converter:
    """Converts each node once, however many aliases point at it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._value_by_node: dict[Node, object] = {}
        self._constructor = yaml.constructor.SafeConstructor()

    def convert(self, node: Node) -> object:
        if node not in self._value_by_node:
            self._value_by_node[node] = self._convert(node)
        return self._value_by_node[node]

    def _convert_key(self, key: str, node: Node) -> object:
        value = self.convert(node)
        if key not in {*PATHS, *_FOLDERS, *KEYS} or not isinstance(value, str) or not value:
            return value
        if key in _FOLDERS and not value.startswith((".", "~")):
            return value  # a name
        folder = Path.cwd() if is_from_override(node) else self._folder
        try:
            if key in KEYS:
                return absolute_reference(value, folder)
            return str((folder / Path(value).expanduser()).resolve())
        except (OSError, RuntimeError, ValueError) as error:
            raise ScenarioError(
                f"{place(node.start_mark)}: {key} is {value!r}; no path can look so: {error}"
            ) from error

    def _convert(self, node: Node) -> object:
        if isinstance(node, MappingNode):
            return {name.value: self._convert_key(name.value, value) for name, value in node.value}
        if isinstance(node, SequenceNode):
            return [self.convert(item) for item in node.value]
        try:
            return self._constructor.construct_document(node)
        except ValueError as error:  # Python reads no number of more than 4,300 digits
            raise ScenarioError(
                f"{place(node.start_mark)}: a number with too many digits"
            ) from error
