"""Names of devices are in every table, message and figure of a run."""

from __future__ import annotations

import json

import pandas as pd
import pytest
from rich.console import Console

import edgesim
from edgesim.assembly.preparation import prepare
from edgesim.errors import EdgesimError
from edgesim.fleet import run
from edgesim.fleet.recording import departures, watchdog
from edgesim.fleet.run import run_scenario
from edgesim.fleet.transport.progress import Waiting
from edgesim.results.load import UnfinishedRunWarning
from edgesim.scenario.files import load_scenario
from edgesim.study.figures.fleet_figure import fleet_picture
from edgesim.study.iteration import iteration_costs
from edgesim.study.tables.scenario_tables import fleet_table

NAMES = ["attic", "gateway", "sensor-10", "sensor-9"]
SCENARIO = """
name: named
fleet:
  devices:
    - {profile: jetson-nano, name: gateway}
    - {profile: raspberry-pi-4b, names: [sensor-9, sensor-10, attic], battery_wh: 20}
topology: {kind: file, path: links.csv}
data: {source: digits, partition: {kind: iid}, batch_size: 16}
model: {name: small_cnn}
training: {rounds: 3, optimizer: {lr: 0.05}}
gossip: {algorithm: choco, averaging_rate: 0.2, compressor: {kind: top_k, keep: 0.1}}
"""


@pytest.fixture(scope="module")
def scenario(tmp_path_factory):
    folder = tmp_path_factory.mktemp("named")
    links = "gateway,sensor-9\nsensor-9,sensor-10\nsensor-10,attic\nattic,gateway\n"
    (folder / "links.csv").write_text(links)
    (folder / "s.yaml").write_text(SCENARIO)
    return load_scenario(folder / "s.yaml")


@pytest.fixture(scope="module")
def folder(scenario, tmp_path_factory):
    """Of a run of it."""
    place = tmp_path_factory.mktemp("runs") / "run"
    console = Console(width=300, record=True)
    run_scenario(prepare(scenario), place, inline=True, console=console)
    (place.parent / "said.txt").write_text(console.export_text())
    return place


def assert_named(table: pd.DataFrame, number: str, name: str) -> None:
    expected = [NAMES[device] if device >= 0 else None for device in table[number]]
    assert table[name].tolist() == expected
    columns = table.columns.tolist()
    assert columns.index(name) == columns.index(number) + 1


@pytest.mark.parametrize("table", ["rounds", "messages", "evaluations", "devices"])
def test_every_table_has_names_beside_numbers(folder, table):
    rows = pd.read_parquet(folder / f"{table}.parquet")
    assert len(rows) >= 4
    assert_named(rows.astype({"name": object}).where(rows.notna(), None), "device", "name")
    if table == "messages":
        assert_named(rows, "sender", "sender_name")
        assert_named(rows, "receiver", "receiver_name")
    if table == "devices":
        assert rows["profile"].tolist() == [
            "raspberry-pi-4b", "jetson-nano", "raspberry-pi-4b", "raspberry-pi-4b",
        ]  # fmt: skip


def test_an_unfinished_run_has_them_too(scenario, tmp_path, monkeypatch):
    """Parts have numbers alone."""

    def fail(*_, **__):
        raise EdgesimError("here it ends")

    monkeypatch.setattr(run, "check_rounds", fail)
    with pytest.raises(EdgesimError, match="here it ends"):
        run_scenario(prepare(scenario), tmp_path / "run", inline=True, console=Console(quiet=True))
    with pytest.warns(UnfinishedRunWarning):
        loaded = edgesim.load_run(tmp_path / "run")
    assert_named(loaded.rounds, "device", "name")
    assert_named(loaded.messages, "receiver", "receiver_name")


def test_tables_of_devices_without_names_have_no_such_column(tmp_path):
    (tmp_path / "s.yaml").write_text(
        SCENARIO.replace("{kind: file, path: links.csv}", "{kind: ring}")
        .replace(", name: gateway", "")
        .replace("names: [sensor-9, sensor-10, attic]", "count: 3")
    )
    run_scenario(
        prepare(load_scenario(tmp_path / "s.yaml")),
        tmp_path / "run",
        inline=True,
        console=Console(quiet=True),
    )
    for table in ("rounds", "messages", "evaluations", "devices"):
        assert "name" not in pd.read_parquet(tmp_path / "run" / f"{table}.parquet")


def test_a_run_says_which_number_is_whose(folder):
    said = (folder.parent / "said.txt").read_text()
    assert "devices: 0 attic, 1 gateway, 2 sensor-10, 3 sensor-9" in said
    assert json.loads((folder / "summary.json").read_text())["device_names"] == NAMES


def test_messages_speak_of_devices_by_name():
    stalled = watchdog.describe([Waiting(1, 5, ((0, 1),))], 10, NAMES)
    assert "device 1 (gateway) in round 5 waits for device 0 (attic) (edge 0 -> 1)" in stalled
    assert "device 0 (attic): computing, or away, and waited for" in stalled
    end = {"rounds": 3, "virtual_time_s": 1.0, "push_weight": 0.5}
    summary = {
        "devices": 4,
        "device_names": NAMES,
        "dead_devices": {"3": end},
        "without_model": [1],
    }
    lines = departures.describe(summary)
    assert lines[0].startswith("device 3 (sensor-9) died of an empty battery")
    assert (
        lines[-1] == "device 1 (gateway) got no model: no message reached it before the run ended"
    )


def test_the_study_of_costs_speaks_of_them_by_name(scenario):
    costs = iteration_costs(scenario)
    boards = [device.profile.name for device in costs.devices]
    assert boards == ["raspberry-pi-4b", "jetson-nano", "raspberry-pi-4b", "raspberry-pi-4b"]
    text = repr(fleet_table(costs))
    assert "'attic, after" in text
    assert "device 0" not in text
    svg = fleet_picture(costs).svg
    for name in NAMES:
        assert f">{name}: " in svg
