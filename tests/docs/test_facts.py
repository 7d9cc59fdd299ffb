"""Facts that pages state, checked against the code: files of graphs, and prices of energy."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from small_fleets import train

import edgesim
from edgesim.assembly.equipment import device_profiles
from edgesim.cli.column_tables import TABLES, columns_table
from edgesim.cli.key_tables import ListingError
from edgesim.hardware.energy_tables import ENERGY_TABLES
from edgesim.results import columns
from topologies.files import _LINK_ATTRIBUTES, LINK_FIGURES, load_graph

DOCS = Path(__file__).resolve().parents[2] / "docs"


def section(page, title):
    text = (DOCS / page).read_text()
    return text.partition(f"## {title}\n")[2].partition("\n## ")[0]


def test_the_page_names_all_attributes_of_links():
    text = section("fleets.md", "A graph of your own")
    rows = re.findall(r"^\| (`[^|]*) \|", text.partition("| attribute |")[2], re.MULTILINE)
    assert re.findall(r"`([^`]*)`", " ".join(rows)) == [
        *LINK_FIGURES,
        *(name for name in _LINK_ATTRIBUTES if name not in LINK_FIGURES),
    ]


def test_its_example_is_read_as_it_says(tmp_path):
    text = section("fleets.md", "A graph of your own")
    path = tmp_path / "campus.csv"
    path.write_text(text.partition("```text\n")[2].partition("```")[0])
    graph = load_graph(path)
    assert [graph.nodes[device]["name"] for device in graph] == ["attic", "cellar", "gateway"]
    figures = {"bandwidth_mbps": 2, "latency_ms": 30, "multiplicity": 1}
    assert graph.edges[2, 1] == graph.edges[1, 2] == figures


@pytest.mark.parametrize("table", ["profile", *ENERGY_TABLES])
def test_energy_is_what_the_page_says(tmp_path, table):
    settings = (
        "fleet.profile=raspberry-pi-4b",
        "network={bandwidth_mbps: 20, loss: 0.1}",
        f"hardware.energy_table={table}",
    )
    run = edgesim.load_run(train(tmp_path, "run", *settings, inline=True).place)
    rounds, profiles = run.rounds, device_profiles(run.scenario)
    of = [profiles[device] for device in rounds["device"]]
    sent = rounds["sent_bytes"] + rounds["retransmitted_bytes"]
    assert rounds["retransmitted_bytes"].sum() > 0
    radio_j = sent * [profile.radio.send_j_per_byte for profile in of]
    radio_j += rounds["received_bytes"] * [profile.radio.receive_j_per_byte for profile in of]
    idle_j = rounds["virtual_wait_s"] * [profile.idle_power_w for profile in of]
    if table == "profile":
        compute_j = rounds["virtual_compute_s"] * [profile.active_power_w for profile in of]
        memory_j = np.zeros(len(rounds))
    else:
        prices = ENERGY_TABLES[table]
        picojoules = rounds["elementwise_ops"] * prices.fp32_add_pj
        for name in ("int8", "16bit", "fp32"):
            picojoules += rounds[f"macs_{name}"] * prices.mac_pj(name, "paper")
        compute_j = 1e-12 * picojoules
        memory_j = 1e-12 * rounds["traffic_bytes"] * prices.dram_pj_per_byte
    parts = {"compute": compute_j, "memory": memory_j, "radio": radio_j, "idle": idle_j}
    for name, expected in parts.items():
        np.testing.assert_allclose(rounds[f"energy_{name}_j"], expected, rtol=1e-12)
    np.testing.assert_allclose(rounds["energy_j"], sum(parts.values()), rtol=1e-12)


def test_list_columns_has_every_column_once():
    groups = {
        name: value
        for name, value in vars(columns).items()
        if isinstance(value, tuple) and value and isinstance(value[0], columns.Column)
    }
    assert groups.pop("LIVE_DEVICES"), "in no table"
    shown = [column for groups_of in TABLES.values() for of in groups_of.values() for column in of]
    assert sorted(map(id, shown)) == sorted(id(c) for group in groups.values() for c in group)
    assert len(columns_table(None).rows) == len(shown)
    assert {row[0] for row in columns_table("rounds").rows} == {"rounds"}
    assert {row[0] for row in columns_table("accuracy").rows} == {"evaluations"}
    with pytest.raises(ListingError, match=r"neither a table nor a column; did you mean energy_j"):
        columns_table("enrgy_j")
