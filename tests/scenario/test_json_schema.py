"""The JSON schema for editors agrees with the schema that a run checks its scenario against."""

import json
from copy import deepcopy
from pathlib import Path

import pytest
import yaml
from jsonschema import Draft202012Validator
from pydantic import ValidationError

from edgesim.cli.key_tables import ListingError
from edgesim.cli.listing import catalog_table, schema_text
from edgesim.scenario import Scenario, dump_scenario, load_scenario
from edgesim.scenario.guide import guide
from edgesim.scenario.json_schema import scenario_json_schema
from edgesim.scenario.strict_yaml import compose, to_value

ROOT = Path(__file__).resolve().parents[2]
SHIPPED = sorted((ROOT / "scenarios").rglob("*.yaml"))
FILES = [*SHIPPED, *sorted((ROOT / "examples").glob("*.yaml"))]
SCHEMA = Draft202012Validator(scenario_json_schema())
VALUES = (True, -1, 1.5, 10**12, "text", None, [], {"wrong": 1})


def read(path):
    return to_value(compose(path.read_text(), str(path)), path.parent)


def complaints(value):
    return [error.message for error in SCHEMA.iter_errors(value)]


def test_it_is_a_schema():
    Draft202012Validator.check_schema(SCHEMA.schema)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_shipped_scenarios_and_examples_fit(path):
    assert complaints(read(path)) == []
    if "\nsweep:" not in path.read_text():  # with every default, too
        assert complaints(yaml.safe_load(dump_scenario(load_scenario(path)))) == []


def places(value, path=()):
    """Path of each value below a value."""
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for key, inner in items:
        yield (*path, key)
        if isinstance(inner, dict | list):
            yield from places(inner, (*path, key))


def holder_of(value, path):
    for key in path[:-1]:
        value = value[key]
    return value


def is_of_the_right_form(value):
    """Whether pydantic finds nothing wrong but what depends on several keys, or on files."""
    try:
        Scenario.model_validate(value)
    except ValidationError as error:
        return None if any(e["type"] == "value_error" for e in error.errors()) else False
    return True


def test_it_refuses_the_values_that_a_run_refuses():
    base = yaml.safe_load(dump_scenario(load_scenario("coming_and_going")))
    del base["fleet"]["devices"][1:]
    for path in places(base):
        for value in VALUES:
            changed = deepcopy(base)
            holder_of(changed, path)[path[-1]] = value
            is_right = is_of_the_right_form(changed)
            if is_right is not None:
                assert SCHEMA.is_valid(changed) == is_right, (path, value)


def test_a_misspelt_or_missing_key_is_refused_in_every_section():
    base = yaml.safe_load(dump_scenario(load_scenario("six_boards")))
    for path in places(base):
        holder = holder_of(base, path)
        if isinstance(holder, list) or "options" in path[:-1]:
            continue
        changed = deepcopy(base)
        inner = holder_of(changed, path)
        inner[f"{path[-1]}s_"] = inner.pop(path[-1])
        assert not SCHEMA.is_valid(changed), path


def test_references_to_own_parts_stand_where_names_do():
    base = read(ROOT / "scenarios" / "quickstart.yaml")
    base["gossip"] = {"algorithm": "./own.py:Mine", "options": {"fade": 0.9}}
    base["model"] = {"name": "my_lab.models:Net"}
    assert complaints(base) == []
    base["model"] = {"name": r"C:\lab\models.py:Net"}
    assert complaints(base) == []
    base["gossip"] = {"algorithm": "choco", "averaging_rate": 0.2, "options": {"fade": 0.9}}
    assert not SCHEMA.is_valid(base)
    base["gossip"] = {"algorithm": "./own.py"}
    assert not SCHEMA.is_valid(base)


def test_every_key_can_be_an_axis_of_a_sweep():
    base = read(ROOT / "scenarios" / "quickstart.yaml")
    for entry in guide():
        for key in (entry.key, entry.key.replace(".0", "[3]")):
            base["sweep"] = {"grid": {key: [entry.example]}, "list": [{key: entry.example}]}
            assert complaints(base) == []
        base["sweep"] = {"grid": {f"{entry.key}s_": [entry.example]}}
        assert not SCHEMA.is_valid(base), entry.key


def test_a_sweep_may_set_what_its_scenario_lacks():
    base = read(ROOT / "scenarios" / "quickstart.yaml")
    del base["gossip"]["averaging_rate"], base["topology"]
    assert not SCHEMA.is_valid(base)
    axes = {"gossip.averaging_rate": [0.1, 0.2], "topology": [{"kind": "ring"}]}
    assert complaints(base | {"sweep": {"grid": axes}}) == []
    assert not SCHEMA.is_valid(base | {"sweep": {"grid": axes}, "sead": 1})
    assert not SCHEMA.is_valid(base | {"sweep": {"gird": axes}})
    assert not SCHEMA.is_valid(base | {"sweep": {"grid": {"seed": 1}}})


def test_the_command_line_prints_it():
    assert json.loads(schema_text()) == SCHEMA.schema
    with pytest.raises(ListingError, match="edgesim list schema"):
        catalog_table("schema", "fleet")
