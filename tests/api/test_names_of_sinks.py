"""A method of a sink that nobody would call is refused; the page names what a sink is told."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

import pytest

import edgesim
from edgesim.fleet.recording.fleet_state import FleetFacts, FleetState
from edgesim.fleet.recording.sinks import SinkError, check_sinks
from edgesim.fleet.transport.progress import DeviceProgress

DOCS = Path(__file__).resolve().parents[2] / "docs"


def sink_of(*names, base=edgesim.Sink):
    return type("Mine", (base,), dict.fromkeys(names, lambda self, *_: None))()


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("evaluate", "evaluated"),
        ("finish", "finished"),
        ("on_update", "update"),
        ("closed", "close"),
    ],
)
def test_a_misspelt_method_is_refused(name, meant):
    said = rf"Mine has a method {name}, which nobody calls; did you mean {meant}\?.* as _{name}$"
    with pytest.raises(SinkError, match=said):
        check_sinks([sink_of(name)])
    with pytest.raises(SinkError, match=said):
        check_sinks([sink_of(base=type(sink_of(name)))])
    check_sinks([sink_of(name, meant)])  # a helper of the method that is called
    check_sinks([sink_of(name, base=type(sink_of(meant)))])


def test_other_methods_and_attributes_are_its_own():
    mine = type("Mine", (edgesim.Sink,), {"closed": False, "write": print, "_evaluate": print})()
    check_sinks([mine, edgesim.Sink()])


def test_the_page_names_what_there_is():
    page = (DOCS / "python.md").read_text().partition("`fleet` is a `FleetState`")[2]
    rows = dict(re.findall(r"^\| (`.*?`) \| (.*) \|$", page, re.MULTILINE))
    told = {name for cell in rows for name in re.findall(r"`(\w+)`", cell)}
    properties = {name for name, value in vars(FleetState).items() if isinstance(value, property)}
    assert told == {field.name for field in fields(FleetState)} | properties
    for attribute, kind in (("`facts`", FleetFacts), ("`devices`", DeviceProgress)):
        assert all(hasattr(kind, name) for name in re.findall(r"`(\w+)`", rows[attribute]))
