"""The guide to the keys: complete, true to the schema, and its examples can be set."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

import pytest
import yaml
from pydantic import TypeAdapter

import edgesim
from edgesim.cli.listing import ListingError, catalog_table
from edgesim.scenario import ScenarioError, dump_scenario, load_scenario
from edgesim.scenario.files import parse_scenario
from edgesim.scenario.guide import example_of_kind, guide, guide_of_kind
from edgesim.scenario.plain import in_yaml

ROOT = Path(__file__).resolve().parents[2]
EVERY = guide()
QUICKSTART = ROOT / "scenarios" / "quickstart.yaml"
IDS = [f"{number}-{entry.key}" for number, entry in enumerate(EVERY)]


def keys_of(value, prefix=""):
    """Keys of a scenario as the guide names them."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield f"{prefix}{key}"
            if key != "options":  # keys of a part, which it says itself
                yield from keys_of(inner, f"{prefix}{key}.")
    elif isinstance(value, list):
        for item in value:
            yield from keys_of(item, f"{prefix}0.")


@pytest.mark.parametrize(
    "path",
    [p for p in sorted((ROOT / "scenarios").rglob("*.yaml")) if "\nsweep:" not in p.read_text()],
    ids=lambda p: p.stem,
)
def test_every_key_of_every_shipped_scenario_is_in_it(path):
    written = yaml.safe_load(dump_scenario(load_scenario(path)))
    assert set(keys_of(written)) <= {entry.key for entry in EVERY}


@pytest.mark.parametrize("entry", EVERY, ids=IDS)
def test_an_entry_is_complete_and_its_example_is_of_the_schema(entry):
    assert entry.meaning.strip()
    assert entry.must_be.strip()
    if entry.is_choice:
        assert entry.example in entry.must_be
        return
    slot = entry.slot
    annotation = slot.annotation
    for constraint in slot.constraints:
        annotation = Annotated[annotation, constraint]
    adapter = TypeAdapter(annotation)
    adapter.validate_python(yaml.safe_load(in_yaml(entry.example)))
    if entry.default not in (None, "null"):
        adapter.validate_python(yaml.safe_load(entry.default))


@pytest.mark.parametrize("entry", EVERY, ids=IDS)
def test_an_example_can_be_set_where_its_key_is_known(entry):
    """It may contradict another key of the quickstart, but it is known and of the right type."""
    chosen = {key: f"{key}={values[0]}" for key, values in entry.choices}
    settings = [text for key, text in chosen.items() if ".0" not in key]
    if ".0" in entry.key:  # items are there once their list is
        holder = entry.key.partition(".0")[0]
        listed = in_yaml(next(e for e in EVERY if e.key == holder).example)
        profiled = "[{profile: raspberry-pi-4b}]"
        settings.append(f"{holder}={profiled if holder == 'fleet.devices' else listed}")
    settings += [text for key, text in chosen.items() if ".0" in key]
    own = re.sub(r"\.0(?=\.|$)", "[0]", entry.key)
    said = complaint(*settings, entry.override)
    assert f"{own} is an unknown key" not in said
    assert not re.search(rf"{re.escape(own)} is .*must be {re.escape(entry.must_be)}", said)


def complaint(*settings):
    """What is wrong with the quickstart, so changed; nothing if it is right."""
    try:
        load_scenario(QUICKSTART, settings)
    except ScenarioError as error:
        return str(error)
    return ""


def test_a_prefix_gives_its_keys_and_a_position_stands_for_all():
    keys = [entry.key for entry in guide("training.optimizer")]
    assert keys[0] == "training.optimizer"
    assert "training.optimizer.lr" in keys
    assert all(key.startswith("training.optimizer") for key in keys)
    assert [e.key for e in guide("fleet.devices[3].profile")] == ["fleet.devices.0.profile"]
    assert [e.key for e in guide("fleet.devices.12.profile")] == ["fleet.devices.0.profile"]
    assert guide("training.optim") == []


def test_ranges_and_defaults_are_the_schemas():
    lr, momentum = guide("training.optimizer.lr")[0], guide("training.optimizer.momentum")[0]
    assert (lr.default, lr.must_be) == (None, "a number in [1e-30, 1e+30]")
    assert (momentum.default, momentum.must_be) == ("0.9", "a number in [0, 1)")
    rows = guide("topology.rows")[0]
    assert rows.choices == (("topology.kind", ("torus",)),)


def test_options_of_a_kind_are_its_own():
    assert {e.key for e in guide_of_kind("topology", "torus") if not e.is_choice} == {
        "topology.weights",
        "topology.rows",
    }
    assert "gossip.compressor" not in {e.key for e in guide_of_kind("gossip", "gradient_push")}
    assert {e.key for e in guide_of_kind("gossip.compressor", "top_k") if not e.is_choice} == {
        "gossip.compressor.keep",
        "gossip.compressor.values",
    }


def has_short_citation(text):
    """Whether it cites the reference as the code may, and a user can't follow."""
    return re.search(r"\u00a7|\bR's|\bR:|\(R\)", text)


@pytest.mark.parametrize(
    "what",
    ["topologies", "algorithms", "compressors", "models", "datasets", "tasks", "partitions"],
)
def test_every_entry_of_every_catalog_has_details(what):
    for name, description in catalog_table(what, None).rows:
        table = catalog_table(what, name)
        assert table.title == f"{name}: {description}"
        assert any("example: " in note for note in table.notes)
        assert not has_short_citation(str(table))
    with pytest.raises(ListingError, match=r"did you mean|see `edgesim list"):
        catalog_table(what, "no-such-thing")


@pytest.mark.parametrize(
    ("holder", "name"),
    [
        (holder, name)
        for holder, what in (
            ("topology", "topologies"),
            ("gossip", "algorithms"),
            ("gossip.compressor", "compressors"),
        )
        for name, _ in catalog_table(what, None).rows
    ],
)
def test_the_example_of_an_entry_passes_the_schema(holder, name):
    example = in_yaml(example_of_kind(holder, name))
    settings = [f"{holder}={example}"]
    if name == "dcd":
        settings.append("topology={kind: ring}")
    scenario = parse_scenario(QUICKSTART.read_text(), "quickstart.yaml", ROOT, settings)
    assert name in str(scenario.model_dump()[holder.partition(".")[0]])


ON = {  # graphs that algorithms need; others take any
    "all_reduce": {"kind": "directed_ring"},
    "bagua_decentralized": {"kind": "complete"},
    "bagua_low_precision": {"kind": "ring"},
    "fedavg": {"kind": "star"},
    "relay_sgd": {"kind": "chain"},
}


@pytest.mark.parametrize("name", [name for name, _ in catalog_table("algorithms", None).rows])
def test_the_example_of_an_algorithm_can_be_run(name):
    if not name.isidentifier():  # the line on algorithms of one's own
        return
    (example,) = [note for note in catalog_table("algorithms", name).notes if "example: " in note]
    gossip = yaml.safe_load(example.removeprefix("example: "))["gossip"]
    if name == "bagua_low_precision":
        assert "sites" not in gossip
    topology = ON.get(name, {"kind": "ring", "weights": "metropolis"})
    rounds = {
        "training": {"rounds": 840, "optimizer": {"lr": 0.05}},
        "evaluation__every_rounds": 840,
    }
    checked = edgesim.validate("quickstart", gossip=gossip, topology=topology, **rounds)
    assert str(checked.scenario.gossip.algorithm) == name


def test_an_unknown_key_is_refused_with_those_that_it_may_mean():
    with pytest.raises(ListingError, match=r"gossip\.compressor"):
        catalog_table("keys", "gossip.compresor")
    details = dict(catalog_table("keys", "gossip.compressor.keep").rows)
    assert details["must be"] == "a number in (0, 1]"
    assert details["example"] == "--set gossip.compressor.keep=0.1"
    assert "top_k" in details["only with"]


@pytest.mark.parametrize(
    ("key", "example"),
    [
        ("fleet.devices.0.radio", {"name": "wifi", "bandwidth_mbps": 10.0}),
        ("hardware.profiles.0.radio", {"name": "wifi", "bandwidth_mbps": 10.0}),
        ("fleet.devices.0.radio.name", "wifi"),
        ("topology.path", "graph.graphml"),
        ("gossip.compressor", {"kind": "top_k", "keep": 0.1}),
    ],
)
def test_an_example_is_of_what_its_key_means(key, example):
    assert guide(key)[0].example == example


def test_no_example_of_a_section_is_its_default():
    for entry in EVERY:
        if entry.slot.sections and entry.slot.number is None:
            assert in_yaml(entry.example) != entry.default, entry.key


def test_only_the_name_of_a_run_is_shown_as_that_of_a_run():
    assert [e.key for e in EVERY if "my-fleet" in in_yaml(e.example)] == ["name"]


def test_the_example_of_an_algorithm_shows_a_compressor():
    (note,) = [n for n in catalog_table("algorithms", "choco").notes if n.startswith("example")]
    assert "compressor: {kind: top_k, keep: 0.1}" in note


def test_what_is_printed_cites_the_reference_by_its_file():
    said = [f"{entry.meaning} {entry.must_be}" for entry in EVERY]
    said += [description for _, description in catalog_table("norms", None).rows]
    assert not [text for text in said if has_short_citation(text)]
    assert any("docs/reference.md, section 3.7" in text for text in said)


def test_examples_of_numbers_are_round():
    """The middle of a range is none that a person would write."""
    for entry in guide():
        if isinstance(entry.example, float):
            assert float(f"{entry.example:.3g}") == entry.example, entry.key


@pytest.mark.parametrize(
    ("name", "default"),
    [
        *(
            ("choco_iclr", "required"),
            ("beer", "required"),
            ("d2", "1.0"),
            ("gradient_push", "1.0"),
        ),
        *(("relay_sgd", None), ("all_reduce", None), ("bagua_low_precision", None)),
    ],
)
def test_an_algorithm_is_listed_with_the_averaging_rate_that_it_takes(name, default):
    rows = {row[0]: row for row in catalog_table("algorithms", name).rows}
    row = rows.get("gossip.averaging_rate")
    assert (row and row[1]) == default
    assert not any("null" in cell for cell in row or ())
    if default == "required":
        with pytest.raises(ScenarioError, match=r"averaging_rate is missing"):
            edgesim.validate("quickstart", gossip={"algorithm": name}, topology={"kind": "ring"})
    assert not {key for key in rows if key.endswith("options.name")}  # no option: it is the kind's
