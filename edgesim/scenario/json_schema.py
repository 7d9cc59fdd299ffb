"""A JSON schema of scenario files: editors complete keys by it and mark mistakes."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from pydantic.json_schema import GenerateJsonSchema
from pydantic_core import CoreSchema

from edgesim.scenario.guide import ITEM, guide
from edgesim.scenario.schema import Scenario
from edgesim.scenario.sweep import KEY, SweepSection

_DEFS = "#/$defs/"
_IN_SWEEP = "InSweep"  # ends the names of definitions for files with a block `sweep`
_KEY = "Key"  # name of the definition of keys with dots
_OPTIONS = r"^(.+\.)?(task_)?options\..+$"  # arguments of one's own parts have names of their own


class _Untitled(GenerateJsonSchema):
    """Schemas without titles, which would repeat the names of keys."""

    def field_title_should_be_set(self, schema: CoreSchema | Any) -> bool:  # noqa: ANN401, ARG002
        return False


def scenario_json_schema() -> dict[str, Any]:
    """JSON schema, draft 2020-12, of a scenario file with or without a block `sweep`.

    It holds keys, types, ranges and names. What depends on several keys, on files or on data is
    not in it; `edgesim validate` checks that. In a file with a block `sweep` no key is required,
    since the block may set it.
    """
    scenario = _of(Scenario)
    definitions: dict[str, Any] = scenario.pop("$defs")
    scenario["description"] = "A scenario of edgesim."
    relaxed = {f"{name}{_IN_SWEEP}": _relaxed(inner) for name, inner in definitions.items()}
    assert not relaxed.keys() & definitions.keys()
    many = _relaxed(scenario)
    many["properties"][KEY] = _sweep_block()
    return {
        "$schema": GenerateJsonSchema.schema_dialect,
        "title": "edgesim scenario",
        "if": {"required": [KEY]},
        "then": many,
        "else": scenario,
        "$defs": {**definitions, **relaxed, _KEY: _any_key()},
    }


def _of(section: type[Scenario | SweepSection]) -> dict[str, Any]:
    """What pydantic says of a section, without titles and OpenAPI's discriminators."""
    schema = section.model_json_schema(schema_generator=_Untitled)
    unused = ("title", "discriminator")
    plain = _mapped(schema, lambda node: {k: v for k, v in node.items() if k not in unused})
    assert isinstance(plain, dict)
    return plain


def _sweep_block() -> dict[str, Any]:
    """Schema of the block `sweep`, whose keys are keys of a scenario with dots."""
    block = _of(SweepSection)
    for part in ("grid", "zip"):
        block["properties"][part]["propertyNames"] = {"$ref": _DEFS + _KEY}
    block["properties"]["list"]["items"]["propertyNames"] = {"$ref": _DEFS + _KEY}
    return block


def _any_key() -> dict[str, Any]:
    """Schema of text that is a key of a scenario."""
    keys = [entry.key for entry in guide()]
    plain = sorted({key for key in keys if ITEM not in key.split(".")})
    items = sorted({_pattern(key) for key in keys if ITEM in key.split(".")})
    return {"anyOf": [{"enum": plain}, *({"pattern": p} for p in (*items, _OPTIONS))]}


def _pattern(key: str) -> str:
    """Regular expression of a key with any positions in lists, as `.3` or `[3]`."""
    parts = (r"(\.\d+|\[\d+\])" if p == ITEM else rf"\.{re.escape(p)}" for p in key.split("."))
    return "^" + "".join(parts).removeprefix(r"\.") + "$"


def _relaxed(schema: dict[str, Any]) -> dict[str, Any]:
    """The same schema without required keys; several alternatives may then fit at once."""

    def changed(node: dict[str, Any]) -> dict[str, Any]:
        kept = {key: value for key, value in node.items() if key not in ("required", "oneOf")}
        if "oneOf" in node:
            kept["anyOf"] = node["oneOf"]
        if str(kept.get("$ref", "")).startswith(_DEFS):
            kept["$ref"] += _IN_SWEEP
        return kept

    relaxed = _mapped(schema, changed)
    assert isinstance(relaxed, dict)
    return relaxed


def _mapped(node: object, change: Callable[[dict[str, Any]], dict[str, Any]]) -> object:
    """A schema with each mapping in it changed."""
    if isinstance(node, dict):
        return {key: _mapped(inner, change) for key, inner in change(node).items()}
    return [_mapped(inner, change) for inner in node] if isinstance(node, list) else node
