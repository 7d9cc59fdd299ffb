"""The schema's literals name exactly what the registries can build."""

from edgesim.compression.catalog import COMPRESSORS
from edgesim.data.sources import SOURCES
from edgesim.gossip.catalog import ALGORITHMS
from edgesim.models.catalog import MODELS
from edgesim.scenario.outline import SCENARIO, Slot
from topologies import KINDS


def slot_at(*path: str) -> Slot:
    slot = SCENARIO
    for key in path:
        found = slot.key(key)
        assert found
        slot = found
    return slot


def test_algorithms():
    assert set(slot_at("gossip").names) == set(ALGORITHMS)


def test_models():
    assert set(slot_at("model", "name").names) == set(MODELS)


def test_sources():
    assert set(slot_at("data", "source").names) == set(SOURCES)


def test_compressors_and_their_options():
    slot = slot_at("gossip", "compressor")
    options_by_kind = {
        kind: set(section.model_fields) - {"kind"}
        for kind in slot.names
        if (section := slot.section_named(kind))
    }
    assert options_by_kind == {kind: set(entry.options) for kind, entry in COMPRESSORS.items()}


def test_topologies_and_their_options():
    slot = slot_at("topology")
    options = {kind: set(slot.section_named(kind).model_fields) - {"kind"} for kind in slot.names}
    assert options == {kind: set(entry.options) for kind, entry in KINDS.items()}
