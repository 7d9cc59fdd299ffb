"""Fleets with hardware: clocks, energies and bytes in the tables of a run."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pandas as pd
import pytest
from small_fleets import assert_same_bits, prepared, train

from edgesim.assembly.budget import memory_of_devices
from edgesim.assembly.equipment import device_hardware, device_profiles
from edgesim.hardware.energy import Activity, price
from edgesim.hardware.energy_tables import ENERGY_TABLES
from edgesim.hardware.timeline import Timeline
from edgesim.hardware.work import Work
from edgesim.results.columns import VIRTUAL_EVALUATIONS, VIRTUAL_MESSAGES, VIRTUAL_ROUNDS

MIXED = (
    (
        "fleet.devices=[{profile: raspberry-pi-4b, count: 2}, {profile: gap9}, "
        "{profile: jetson-nano, compute_jitter: 0.2, duty_cycle: {period_s: 0.5, awake_s: 0.2}}]"
    ),
    "topology.kind=ring",
    "network={latency_ms: 3, jitter_ms: 5, loss: 0.05, packet_bytes: 500}",
)


@pytest.fixture(scope="module")
def mixed(tmp_path_factory):
    return train(tmp_path_factory.mktemp("mixed"), "run", *MIXED, inline=True)


def test_hardware_does_not_change_what_is_learned(tmp_path, mixed):
    plain = train(tmp_path, "plain", "topology.kind=ring", inline=True)
    rounds, ours = (pd.read_parquet(run.path / "rounds.parquet") for run in (plain, mixed))
    learned = ["round", "device", "loss", "push_weight", "sent_bytes", "received_bytes"]
    pd.testing.assert_frame_equal(rounds[learned], ours[learned], check_exact=True)


def test_tables_have_the_virtual_columns_and_no_gaps(mixed):
    for name, columns in (
        ("rounds", VIRTUAL_ROUNDS),
        ("messages", VIRTUAL_MESSAGES),
        ("evaluations", VIRTUAL_EVALUATIONS),
    ):
        table = pd.read_parquet(mixed.path / f"{name}.parquet")
        assert list(table.columns)[-len(columns) :] == [column.name for column in columns]
        assert not table.isna().any().any()


def test_bytes_of_rounds_are_the_sum_of_their_messages_edge_by_edge(mixed):
    rounds = pd.read_parquet(mixed.path / "rounds.parquet").set_index(["round", "device"])
    messages = pd.read_parquet(mixed.path / "messages.parquet")
    assert len(messages) == 6 * 8  # rounds, edges of a ring of four
    assert not messages.duplicated(["round", "sender", "receiver"]).any()
    for end, column in (("sender", "sent_bytes"), ("receiver", "received_bytes")):
        sums = messages.groupby(["round", end])["bytes"].sum()
        np.testing.assert_array_equal(sums, rounds[column])
    assert (messages["device"] == messages["sender"]).all(), "nobody has left"
    lost = messages.groupby(["round", "sender"])[["retransmissions", "retransmitted_bytes"]].sum()
    np.testing.assert_array_equal(lost, rounds[lost.columns])
    assert rounds["retransmissions"].sum() > 0


def test_recorded_times_are_those_of_clocks_run_anew_from_the_recorded_work(tmp_path, mixed):
    """The tables alone give the clocks back: nothing else went into them."""
    ready = prepared(tmp_path, *MIXED)
    rounds = pd.read_parquet(mixed.path / "rounds.parquet").set_index(["round", "device"])
    sizes = pd.read_parquet(mixed.path / "messages.parquet").set_index(
        ["round", "sender", "receiver"]
    )
    hardware = device_hardware(ready.scenario, ready.schedule)
    clocks = [Timeline(own, ready.scenario.seed, i) for i, own in enumerate(hardware)]
    for r in range(6):
        inbox = {i: [] for i in range(4)}
        for i, clock in enumerate(clocks):
            row = rounds.loc[r, i]
            work = Work(macs_fp32=int(row["macs_fp32"]), traffic_bytes=int(row["traffic_bytes"]))
            clock.step(work, r)
            for j, _ in ready.schedule.out_edges(i, r):
                stamp = clock.send((i, j), int(sizes.loc[(r, i, j), "bytes"]), r)
                assert sizes.loc[(r, i, j), "departure_time_s"] == stamp.start_s
                assert sizes.loc[(r, i, j), "sent_time_s"] == stamp.sent_s
                assert sizes.loc[(r, i, j), "arrival_time_s"] == stamp.arrival_s
                inbox[j].append((i, stamp))
        for i, clock in enumerate(clocks):
            ended = clock.end_round(inbox[i])
            assert rounds.loc[(r, i), "virtual_time_s"] == ended.end_s
            assert rounds.loc[(r, i), "virtual_wait_s"] == ended.wait_s
            assert rounds.loc[(r, i), "waited_for"] == ended.waited_for
            assert (ended.waited_for in {sender for sender, _ in inbox[i]}) == (ended.wait_s > 0)


@pytest.mark.parametrize("table", ["profile", "horowitz_45nm"])
def test_energy_can_be_priced_anew_from_the_tables(tmp_path, table):
    run = train(tmp_path, "run", *MIXED, f"hardware.energy_table={table}", inline=True)
    profiles = device_profiles(prepared(tmp_path, *MIXED).scenario)
    rounds = pd.read_parquet(run.path / "rounds.parquet")
    for _, row in rounds.iterrows():
        activity = Activity(
            work=Work(
                macs_fp32=int(row["macs_fp32"]),
                elementwise_ops=int(row["elementwise_ops"]),
                traffic_bytes=int(row["traffic_bytes"]),
            ),
            sent_bytes=int(row["sent_bytes"] + row["retransmitted_bytes"]),
            received_bytes=int(row["received_bytes"]),
            compute_s=row["virtual_compute_s"],
            wait_s=row["virtual_wait_s"],
        )
        energy = price(activity, profiles[int(row["device"])], ENERGY_TABLES.get(table))
        assert row["energy_j"] == pytest.approx(energy.total_j, rel=1e-12)
        assert row["energy_radio_j"] == pytest.approx(energy.radio_j, rel=1e-12)
    assert run.summary["energy_j"] == pytest.approx(rounds["energy_j"].sum())


def test_the_slowest_device_sets_the_pace_of_a_ring(tmp_path):
    """A device ten times slower: nobody's rounds can be shorter than its."""
    fleet = "fleet.devices=[{profile: raspberry-pi-4b, count: 3}, {profile: mine}]"
    slow = "hardware.profiles=[{name: mine, based_on: raspberry-pi-4b, fp32_gmacs_per_s: 0.001}]"
    run = train(tmp_path, "run", fleet, slow, "training.rounds=20", inline=True)
    rounds = pd.read_parquet(run.path / "rounds.parquet")
    slowest = rounds[rounds["device"] == 3]
    assert (slowest["virtual_wait_s"] < slowest["virtual_compute_s"]).all()
    ends = rounds[rounds["round"] == 19].set_index("device")["virtual_time_s"]
    assert (ends > 16 * slowest["virtual_compute_s"].mean()).all()


def test_links_of_a_graph_file_may_be_unequal(tmp_path):
    """10 Mbit/s by the network section; one link of the file has 1 Mbit/s and 50 ms."""
    graph = nx.DiGraph([(i, (i + 1) % 4) for i in range(4)])
    graph.edges[2, 3].update(bandwidth_mbps=1.0, latency_ms=50.0)
    nx.write_graphml(graph, tmp_path / "links.graphml")
    ready = prepared(
        tmp_path,
        "fleet.profile=raspberry-pi-4b",
        f"topology={{kind: file, path: {tmp_path / 'links.graphml'}}}",
        "network={bandwidth_mbps: 10, latency_ms: 2}",
    )
    hardware = device_hardware(ready.scenario, ready.schedule)
    assert [hardware[i].links[(i + 1) % 4].bandwidth_bps for i in range(4)] == [1e7, 1e7, 1e6, 1e7]
    assert [hardware[i].links[(i + 1) % 4].latency_s for i in range(4)] == [2e-3, 2e-3, 0.05, 2e-3]


def test_a_link_is_no_faster_than_either_radio(tmp_path):
    ready = prepared(
        tmp_path,
        "fleet.devices=[{profile: jetson-nano, count: 3}, {profile: gap9}]",
        "network.bandwidth_mbps=100",
    )
    hardware = device_hardware(ready.scenario, ready.schedule)
    gap9_bps = hardware[3].profile.radio.bandwidth_bps
    assert [hardware[i].links[(i + 1) % 4].bandwidth_bps for i in range(4)] == [
        1e8,
        1e8,
        gap9_bps,
        gap9_bps,
    ]


def test_figures_of_the_scenario_replace_those_of_the_profile(tmp_path):
    scenario = prepared(
        tmp_path,
        "fleet.devices=[{profile: mine, count: 2}, {profile: samsung-galaxy-a54, "
        "battery_wh: plugged_in}, {profile: mine, radio: {half_duplex: false}}]",
        "hardware.profiles=[{name: mine, based_on: raspberry-pi-5, memory_mib: 64, "
        "battery_wh: 2, radio: {bandwidth_mbps: 3}}]",
    ).scenario
    mine, same, phone, other = device_profiles(scenario)
    assert mine is same
    assert (mine.memory_bytes, mine.battery_j) == (64 * 2**20, 7200.0)
    assert (mine.radio.bandwidth_bps, mine.radio.is_half_duplex) == (3e6, True)
    assert phone.battery_j is None
    assert other.radio.is_half_duplex is False
    assert mine.fp32_macs_per_s == other.fp32_macs_per_s > 0


@pytest.mark.ray
def test_clocks_are_the_same_bits_inline_one_each_and_packed(tmp_path, mixed, started_ray):
    one_each = train(tmp_path, "each", *MIXED)
    packed = train(tmp_path, "packed", *MIXED, "fleet.devices_per_actor=3")
    assert_same_bits(mixed, one_each)
    assert_same_bits(mixed, packed)
    frames = [pd.read_parquet(run.path / "messages.parquet") for run in (mixed, one_each, packed)]
    pd.testing.assert_frame_equal(frames[0], frames[1], check_exact=True)
    pd.testing.assert_frame_equal(frames[0], frames[2], check_exact=True)


def test_the_work_recorded_is_that_of_the_model(mixed):
    """The small CNN on 8x8 digits; both gradients of each layer, but not of the images."""
    first = 8 * 8 * 9 * 16
    forward = first + 4 * 4 * 9 * 16 * 32 + 2 * 2 * 9 * 32 * 64 + 64 * 10
    per_sample = 3 * forward - first
    rounds = pd.read_parquet(mixed.path / "rounds.parquet")
    samples, rest = np.divmod(rounds["macs_fp32"], per_sample)
    assert (rest == 0).all()
    assert samples.max() == 16
    assert (rounds[["macs_int8", "macs_16bit"]] == 0).all().all()


def test_devices_have_their_memory_in_the_results(tmp_path):
    """By component, and equal to what the refusal compares."""
    run = train(tmp_path, "run", "fleet.profile=raspberry-pi-4b", inline=True)
    devices = pd.read_parquet(run.path / "devices.parquet")
    tables = memory_of_devices(prepared(tmp_path, "fleet.profile=raspberry-pi-4b").scenario)
    assert devices["memory_bytes"].tolist() == [table.total for table in tables]
    parts = [column for column in devices if column.startswith("memory_") and column.count("_") > 1]
    assert (devices[parts].sum(axis=1) == devices["memory_bytes"]).all()
    assert (devices["profile"] == "raspberry-pi-4b").all()
