"""Guide to the keys of a scenario: meaning, range, default and example, from the schema."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from inspect import getdoc
from typing import Any, Literal, get_origin

from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from edgesim.scenario.outline import SCENARIO, Slot
from edgesim.scenario.own_parts import FORM, OWN, OwnPart
from edgesim.scenario.plain import in_yaml
from edgesim.scenario.section import Section

ITEM = "0"  # stands for the position of any item of a list, as `--set` names it

_KINDS_HELP = {
    "topology.kind": "which topology; see `edgesim list topologies`",
    "topology.graphs.0.kind": "which static topology; see `edgesim list topologies`",
    "gossip.algorithm": "which algorithm; see `edgesim list algorithms`",
    "gossip.compressor.kind": "which compressor; see `edgesim list compressors`",
}

# Better examples than the ends of a range; a test checks them against the schema.
_EXAMPLES: dict[str, object] = {
    "name": "my-fleet",
    "description": "what it is for",
    "seed": 7,
    "devices": 8,
    "profile": "raspberry-pi-4b",
    "based_on": "raspberry-pi-4b",
    "count": 4,
    "compute_jitter": 0.1,
    "int8_gmacs_per_s": 48.0,
    "bits16_gmacs_per_s": 12.0,
    "elementwise_gops_per_s": 6.0,
    "fp32_gmacs_per_s": 24.0,
    "memory_mib": 512,
    "memory_gbytes_per_s": 5.0,
    "idle_power_w": 2.7,
    "active_power_w": 6.4,
    "battery_wh": 20.0,
    "bucket_size": 512,
    "bandwidth_mbps": 10.0,
    "send_uj_per_byte": 0.3,
    "receive_uj_per_byte": 0.2,
    "latency_ms": 20.0,
    "jitter_ms": 5.0,
    "loss": 0.01,
    "period_s": 60.0,
    "awake_s": 20.0,
    "offset_s": 5.0,
    "absent": [{"device": 3, "from_round": 10, "until_round": 20}],
    "joins": [{"device": 5, "round": 30}],
    "leaves": [{"device": 2, "round": 50}],
    "profiles": [{"name": "my-board", "based_on": "raspberry-pi-4b", "memory_mib": 512}],
    "hardware": {"energy_table": "jouppi_7nm"},
    "training": {"epochs": 10, "optimizer": {"lr": 0.05}},
    "device": 3,
    "from_round": 10,
    "until_round": 20,
    "round": 30,
    "from_s": 600.0,
    "until_s": 1200.0,
    "at_s": 1800.0,
    "absence_probability": 0.05,
    "mean_absence_rounds": 5.0,
    "mean_absence_s": 60.0,
    "presumed_dead_after_s": 30.0,
    "devices_per_actor": "auto",
    "gpus_per_actor": 0.25,
    "seconds_per_round": 10.0,
    "rows": 2,
    "stride": 2,
    "hold": 5,
    "degree": 4,
    "probability": 0.3,
    "image_size": 32,
    "train_samples": 2000,
    "validation_samples": 5000,
    "batch_size": 32,
    "skew": 0.8,
    "alpha": 0.5,
    "epochs": 10,
    "rounds": 500,
    "virtual_time_s": 3600.0,
    "lr": 0.05,
    "weight_decay": 0.0001,
    "milestones": [50, 75],
    "warmup_epochs": 1,
    "local_steps": 4,
    "averaging_rate": 0.2,
    "keep": 0.1,
    "bits": 4,
    "every_epochs": 5,
    "every_rounds": 100,
    "every_virtual_s": 300.0,
    "samples": 1000,
    "own_samples": 100,
    "device_sample": 20,
    "checkpoint_every_s": 60.0,
    "checkpoint_every_rounds": 100,
    "stall_timeout_s": 1800.0,
    "options": {"strength": 0.5},
    "task_options": {"delta": 0.5},
}


# Examples by the whole key or its end, for names with several meanings.
_EXAMPLES_BY_KEY: dict[str, object] = {
    "radio": {"name": "wifi", "bandwidth_mbps": 10.0},
    "radio.name": "wifi",
    "hardware.profiles.0.name": "my-board",
    "fleet.devices.0.name": "gateway",
    "names": ["gateway", "garden"],
    "topology.path": "graph.graphml",
    "topology.graphs.0.path": "graph.graphml",
    "data.path": "my-images",
    "data.source": "digits",
    "data.partition.column": "user",
    "data.partition.path": "shards.csv",
    "data.partition.test_path": "test_shards.csv",
    "model.name": "resnet20",
    "model.start_from": "model.pt",
    "gossip.compressor": {"kind": "top_k", "keep": 0.1},
}

# What the example of an entry has in other form, by the key of its section; None: leaves out.
_EXAMPLES_OF_ENTRIES: dict[tuple[str, str], dict[str, object]] = {
    ("topology", "trace"): {"path": "contacts.csv"},
    ("gossip", "dcd"): {"compressor": {"kind": "min_max_uint8"}},
    **{
        ("gossip", name): {"compressor": None}  # they send whole vectors
        for name in (
            *("all_reduce", "d2", "gradient_tracking", "momentum_tracking", "gut"),
            "relay_sgd",
        )
    },
}

# Keys that a section's example shows though it could do without.
_SHOWN = frozenset({"compressor"})


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyGuide:
    """One key.

    Attributes:
        key: dots between its parts; an item of a list is named `0`, which stands for any position.
        meaning: what it is for.
        must_be: continues the sentence "must be".
        default: as YAML; None where the key is required.
        example: a value that it can have.
        choices: keys, with their values, under which this key exists.
        slot: its place in the schema.
        is_choice: whether it chooses among several sections.
        names: that choose, without references and names of other packages.
    """

    key: str
    meaning: str
    must_be: str
    default: str | None
    example: object
    choices: tuple[tuple[str, tuple[str, ...]], ...]
    slot: Slot
    is_choice: bool = False
    names: tuple[str, ...] = ()

    @property
    def override(self) -> str:
        """What follows `--set` to give it the example's value."""
        return f"{self.key}={in_yaml(self.example)}"

    @property
    def condition(self) -> str:
        """Condition under which the key exists; empty if always."""
        return " and ".join(f"{key}: {' or '.join(values)}" for key, values in self.choices)


def guide(prefix: str = "") -> list[KeyGuide]:
    """Keys that begin with a key, itself included; all without one.

    Positions in lists may be any number, or written in brackets as messages do.
    """
    wanted = re.sub(r"\[(\d+)\]", r".\1", prefix).strip(".")
    wanted = re.sub(r"\.\d+(?=\.|$)", f".{ITEM}", wanted)
    every = _inside("", SCENARIO, (), wanted)
    return [entry for entry in every if not wanted or _is_at_or_below(entry.key, wanted)]


def is_key(key: str) -> bool:
    """Whether a scenario has a key, told without listing all keys; False for keys inside lists."""
    slot: Slot | None = SCENARIO
    for part in key.split("."):
        slot = slot.key(part) if slot is not None else None
    return slot is not None


def guide_of_kind(holder: str, name: str) -> list[KeyGuide]:
    """Keys of the section that `name` chooses at a key."""
    choosing = [entry for entry in guide(holder) if entry.key == holder]
    slot = choosing[0].slot
    section = slot.section_named(name)
    assert section is not None, f"no {name} at {holder}"
    assert slot.discriminator is not None
    return [
        entry
        for entry in guide(holder)
        if entry.key != holder and _is_known_with(entry, f"{holder}.{slot.discriminator}", name)
    ]


def names_of_sections(holder: str) -> tuple[str, ...]:
    """Names that choose one of several sections at a key; none where no name does."""
    slot = _slot_at(holder)
    return slot.names if slot.discriminator else ()


def has_section(holder: str, name: str) -> bool:
    """Whether the keys of a name stand in a section of its own, and not under options."""
    section = _slot_at(holder).section_named(name) if name in names_of_sections(holder) else None
    return section is not None and section is not _slot_at(holder).section_named(OWN)


def example_of_kind(holder: str, name: str, also: Collection[str] = ()) -> dict[str, object]:
    """A section with that name and examples of the keys that it needs.

    Args:
        holder: key of the section.
        name: that chooses it.
        also: further keys to show, where the section has them.
    """
    slot = _slot_at(holder)
    section = slot.section_named(name)
    assert section is not None, f"no {name} at {holder}"
    example = _example_of_section(section, slot.discriminator, name, holder, also)
    example |= _EXAMPLES_OF_ENTRIES.get((holder, name), {})
    return {key: value for key, value in example.items() if value is not None}


def example_value(slot: Slot, default: object) -> object:
    """A value that can stand at a slot."""
    return _example_of(slot, default, "")


def _slot_at(holder: str) -> Slot:
    """What the schema says of a section, by the names of its keys."""
    slot: Slot | None = SCENARIO
    for key in holder.split("."):
        assert slot is not None, f"the schema has no {holder}"
        slot = slot.key(key)
    assert slot is not None, f"the schema has no {holder}"
    return slot


def _is_known_with(entry: KeyGuide, key: str, name: str) -> bool:
    return all(name in values for chooser, values in entry.choices if chooser == key)


def _is_at_or_below(key: str, holder: str) -> bool:
    return key == holder or key.startswith(f"{holder}.")


def _inside(
    holder: str, slot: Slot, choices: tuple[tuple[str, tuple[str, ...]], ...], wanted: str
) -> Iterator[KeyGuide]:
    """Keys below a key, each followed by those below it.

    Given a key that is wanted, those beside the way to it are left out; all are there without one.
    """
    if slot.element is not None:
        yield from _inside(_joined(holder, ITEM), slot.element, choices, wanted)
    sections = [s for s in slot.sections if slot.element is None or s not in slot.element.sections]
    seen: dict[tuple[object, ...], tuple[KeyGuide, list[str]]] = {}
    for section in sections:
        for key in section.model_fields:
            path = _joined(holder, key)
            if wanted and not (_is_at_or_below(path, wanted) or _is_at_or_below(wanted, path)):
                continue
            entry = _entry(path, key, section, slot)
            same = (key, entry.meaning, entry.must_be, entry.default)
            names = seen.setdefault(same, (entry, []))[1]
            names += slot.names_of(section) if slot.discriminator else ("",)
    every = sum(len(slot.names_of(section)) for section in sections) if slot.discriminator else 0
    for entry, names in seen.values():
        own = choices
        if slot.discriminator and len(names) < every:
            own = (*choices, (_joined(holder, slot.discriminator), tuple(names)))
        yield replace(entry, choices=own)
        if not entry.is_choice:
            yield from _inside(entry.key, entry.slot, own, wanted)


def _entry(path: str, key: str, section: type[Section], holder_slot: Slot) -> KeyGuide:
    """A key as it is under all choices; `_inside` adds those under which it exists."""
    field, slot = section.model_fields[key], Slot.of_key(section, key)
    assert slot is not None
    if key == holder_slot.discriminator:
        names = holder_slot.names
        must_be = f"one of {', '.join(names)}" if len(names) > 1 else names[0]
        if holder_slot.section_named(OWN):
            must_be += f", or your own: {FORM}"
        return KeyGuide(
            key=path,
            meaning=_KINDS_HELP.get(path, "which of them"),
            must_be=must_be,
            default=None if field.is_required() else in_yaml(_default(field)),
            example=names[-1],
            choices=(),
            slot=slot,
            is_choice=True,
            names=names,
        )
    return KeyGuide(
        key=path,
        meaning=field.description or _meaning_of(slot),
        must_be=slot.must_be,
        default=None if field.is_required() else in_yaml(_plain(_default(field))),
        example=_example(path, field, slot),
        choices=(),
        slot=slot,
    )


def _joined(holder: str, key: str) -> str:
    return f"{holder}.{key}" if holder else key


def _meaning_of(slot: Slot) -> str:
    """Docstrings of the sections that can stand here."""
    first = [(getdoc(section) or "").partition("\n")[0].rstrip(".") for section in slot.sections]
    return first[0] if len(first) == 1 else "one of several"


def _default(field: FieldInfo) -> object:
    default = field.get_default(call_default_factory=True, validated_data={})
    return str(default) if isinstance(default, OwnPart) else default


def _plain(default: object) -> object:
    """A default as YAML writes it; of a section the keys that it sets."""
    if isinstance(default, Section):
        return default.model_dump(mode="json", exclude_unset=True)
    return list(default) if isinstance(default, tuple) else default


def _example(path: str, field: FieldInfo, slot: Slot) -> object:
    """An example value of a key: a familiar one, or any that the schema allows."""
    for known, value in _EXAMPLES_BY_KEY.items():
        if path == known or path.endswith(f".{known}"):
            return value
    key = path.rpartition(".")[2]
    if key in _EXAMPLES and get_origin(slot.annotation) is not Literal:
        return _EXAMPLES[key]
    default = _default(field)
    return not default if slot.is_switch else _example_of(slot, default, path)


def _example_of(slot: Slot, default: object, path: str) -> object:
    if slot.sections and slot.number is None:
        section = slot.sections[0]
        name = slot.names_of(section)[0] if slot.discriminator else None
        value: object = _example_of_section(section, slot.discriminator, name, path)
        return [value] if slot.element is not None else value
    if names := [name for name in slot.names if name != default]:
        return names[-1]
    if slot.element is not None:
        return [_example_of(slot.element, None, _joined(path, ITEM))]
    if default not in (None, PydanticUndefined, ""):
        return default
    if slot.number is not None:
        return _number_in_range(slot)
    return "text"


def _example_of_section(
    section: type[Section],
    discriminator: str | None,
    name: str | None,
    holder: str,
    also: Collection[str] = (),
) -> dict[str, Any]:
    """The keys that a section needs; one that needs none has its first."""
    value: dict[str, Any] = {discriminator: name} if discriminator else {}
    needed = [
        key
        for key, field in section.model_fields.items()
        if field.is_required() or key in _SHOWN or key in also
    ]
    for key in needed or ([] if discriminator else list(section.model_fields)[:1]):
        slot = Slot.of_key(section, key)
        assert slot is not None
        if key not in value:
            path = _joined(holder, key)
            value[key] = _example(path, section.model_fields[key], slot)
    return value


def _number_in_range(slot: Slot) -> float:
    """A number that the constraints allow."""
    bounds = {name: slot.bound(name) for name in ("ge", "gt", "le", "lt")}
    low = next((b for b in (bounds["ge"], bounds["gt"]) if b is not None), 0)
    high = next((b for b in (bounds["le"], bounds["lt"]) if b is not None), None)
    if slot.number is int:
        return int(low)
    return float(low) + 1.0 if high is None else (float(low) + float(high)) / 2
