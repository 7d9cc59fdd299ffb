"""The schema and the catalogs name the same, and what a catalog names is there."""

from inspect import getdoc, isclass, isfunction, signature

import pytest

from edgesim.assembly.parts.options import options_of
from edgesim.scenario import catalog
from edgesim.scenario.catalog import Catalog
from edgesim.scenario.outline import SCENARIO, Slot
from edgesim.scenario.own_parts import OWN
from topologies import KINDS

CATALOGS = [value for value in vars(catalog).values() if isinstance(value, Catalog)]
ENTRIES = [(of, name) for of in CATALOGS for name in of]


def slot_at(*path: str) -> Slot:
    slot = SCENARIO
    for key in path:
        found = slot.key(key)
        assert found
        slot = found
    return slot


@pytest.mark.parametrize(("of", "name"), ENTRIES, ids=[f"{of.kind}-{name}" for of, name in ENTRIES])
def test_each_entry_is_there_and_described_in_one_line(of, name):
    assert of[name] is not None
    assert of.description(name)
    assert "\n" not in of.description(name)


@pytest.mark.parametrize("of", CATALOGS, ids=lambda of: f"{of.kind}-{next(iter(of), OWN)}")
def test_the_catalog_describes_a_part_as_its_docstring_does(of):
    documented = {name: part for name, part in of.items() if isclass(part) or isfunction(part)}
    for name, part in documented.items():
        assert of.description(name) == getdoc(part).partition("\n")[0].removesuffix(".")


@pytest.mark.parametrize("of", [catalog.MODELS, catalog.NORMS], ids=lambda of: of.kind)
def test_descriptions_of_models_and_norms_are_short(of):
    assert all(0 < len(of.description(name)) < 80 for name in of)


@pytest.mark.parametrize(
    ("path", "of"),
    [
        (("gossip",), catalog.ALGORITHMS),
        (("gossip", "compressor"), catalog.COMPRESSORS),
        (("training", "optimizer"), catalog.OPTIMIZERS),
        (("training", "schedule"), catalog.SCHEDULES),
        (("data", "partition"), catalog.PARTITIONS),
        (("topology",), {**catalog.TOPOLOGIES, **KINDS}),
    ],
)
def test_names_with_a_section_are_of_the_catalog(path, of):
    slot = slot_at(*path)
    names = {name for section in slot.sections for name in slot.names_of(section)}
    assert names - {OWN} == set(of)


def test_keys_of_compressors_are_their_options():
    slot = slot_at("gossip", "compressor")
    for name, make in catalog.COMPRESSORS.items():
        section = slot.section_named(name)
        assert section is not None
        assert set(section.model_fields) - {"kind"} == set(signature(make).parameters)


def test_a_compressor_is_called_by_its_name():
    examples = {"keep": 0.5, "values": "fp32", "bits": 4}
    for name, make in catalog.COMPRESSORS.items():
        options = options_of(make, ())
        needed = {key: examples[key] for key, option in options.items() if option.is_required}
        assert make(**needed).name == name


def test_topologies_and_their_options():
    slot = slot_at("topology")
    options = {kind: set(slot.section_named(kind).model_fields) - {"kind"} for kind in slot.names}
    assert options == {kind: set(entry.options) for kind, entry in KINDS.items()}
