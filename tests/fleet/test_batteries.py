"""Devices whose battery ends leave: nothing is lost, and the others go on."""

from __future__ import annotations

import io
import re

import numpy as np
import pandas as pd
import pytest
from faulty_hosts import run_hosts
from rich.console import Console
from small_fleets import (
    assert_same_bits,
    killed_at_its_end,
    prepared,
    snapshots_of_evaluations,
    train,
)
from thorough import each_once, some

from edgesim import load_run
from edgesim.assembly.build import PLAIN, make_flat_model
from edgesim.assembly.studied_scenario import studied_scenario
from edgesim.cli.answers import result_table
from edgesim.errors import ScenarioError
from edgesim.fleet.run import resume_run
from edgesim.fleet.transport.mailbox import WINDOW
from edgesim.report.ends import device_table
from edgesim.report.runs import load_runs
from edgesim.report.troubles import troubles
from edgesim.results.columns import WALL_COLUMNS
from edgesim.results.load import UnfinishedRunWarning
from edgesim.results.run_directory import RunDirectory
from edgesim.study.notices.batteries import battery_notices

STILL = (
    "training.optimizer.lr=1.0e-30",
    "training.rounds=16",
    "evaluation={every_rounds: 1, samples: 2}",
)
ROUND_WH = 0.0166 / 3600  # of the Raspberry Pi in the small scenario


def fleet(*rounds: float | None) -> str:
    """Raspberry Pis whose batteries last for so many rounds; None: plugged in."""
    keys = [f", battery_wh: {ROUND_WH * number:.9f}" if number else "" for number in rounds]
    return f"fleet.devices=[{', '.join(f'{{profile: raspberry-pi-4b{key}}}' for key in keys)}]"


FLEETS = {
    "one leaves": fleet(None, 7.5, None, None),
    "two leave, one after the other": fleet(None, 7.5, 11.5, None),
    "neighbours leave in turn": fleet(None, 7.5, 7.5, None),
    "a successor leaves and then its successor": fleet(4.5, 8.5, 12.5, None),
    "one is left": fleet(5.5, 8.5, None, 4.5),
    "all leave": fleet(7.5, 9.5, 5.5, 4.5),
}
GOSSIPS = {
    "choco": "gossip={algorithm: choco, averaging_rate: 0.3, compressor: {kind: top_k, keep: 0.2}}",
    "deepsqueeze": (
        "gossip={algorithm: deepsqueeze, averaging_rate: 0.3, compressor: {kind: top_k, keep: 0.2}}"
    ),
    "gradient push": "gossip={algorithm: gradient_push}",
}
GRAPHS = ("directed_ring", "ring", "complete", "one_peer_exponential", "random_matching")
CASES = [  # each fleet with each algorithm in a thorough run, on one of the graphs
    (devices, GRAPHS[(row + 2 * column) % len(GRAPHS)], gossip)
    for (row, devices), (column, gossip) in each_once(enumerate(FLEETS), enumerate(GOSSIPS))
]


@pytest.mark.parametrize(("devices", "graph", "gossip"), CASES)
def test_no_mass_is_lost_whoever_leaves(tmp_path, monkeypatch, devices, graph, gossip):
    """Without learning, sum(x) and sum(u) stay those of the start, after every round."""
    taken = snapshots_of_evaluations(monkeypatch)
    ready = prepared(tmp_path)
    x_0 = make_flat_model(ready.scenario, ready.data, PLAIN).parameters.double().numpy()
    settings = (*STILL, FLEETS[devices], GOSSIPS[gossip], f"topology.kind={graph}")
    run = train(tmp_path, "run", *settings, inline=True)
    for round_index, snapshots in taken.items():
        assert len(snapshots) == 4
        assert sum(s.u for s in snapshots) == pytest.approx(4, abs=1e-12), round_index
        total = sum(s.x.double().numpy() for s in snapshots)
        np.testing.assert_allclose(total, 4 * x_0, atol=2e-5)
    assert list(taken) == list(range(1, 17))
    rounds = pd.read_parquet(run.path / "rounds.parquet")
    assert len(rounds) < 4 * 16, "somebody left"
    assert (rounds.groupby("device")["round"].max() < 15).sum() == FLEETS[devices].count(
        "battery_wh"
    )


def test_those_who_leave_hand_over_and_are_not_heard_of_again(tmp_path):
    run = train(tmp_path, "run", *STILL, FLEETS["one leaves"], inline=True)
    rounds = pd.read_parquet(run.path / "rounds.parquet")
    last = rounds.groupby("device")["round"].max()
    assert last[1] < 10
    assert (last.drop(1) == 15).all()
    messages = pd.read_parquet(run.path / "messages.parquet")
    leaving = messages[messages["kind"] != "share"]
    # CHOCO has public copies of the edges 0 -> 1 and 1 -> 2.
    assert leaving[["round", "sender", "receiver", "kind"]].to_numpy().tolist() == [
        [last[1], 1, 2, "handover"],
        [last[1], 1, 2, "copy"],
        [last[1], 1, 2, "copy"],
    ]
    shares = messages[messages["kind"] == "share"]
    # Who sends to it goes on sending: its mail is forwarded.
    assert shares[(shares["sender"] == 0) & (shares["receiver"] == 1)]["round"].max() == 15
    assert shares[shares["sender"] == 1]["round"].max() == last[1]
    sums = messages.groupby(["round", "device"])["bytes"].sum()
    np.testing.assert_array_equal(sums, rounds["sent_bytes"])
    assert messages["bytes"].sum() == rounds["received_bytes"].sum()


def test_a_run_killed_after_a_device_has_left_is_read_and_goes_on(tmp_path, monkeypatch):
    """The leaver alone has checkpoints: the others repeat more than mailboxes hold."""
    settings = (fleet(None, 29.5, None, None), "training.rounds=36")
    whole = train(tmp_path, "whole", *settings, inline=True)
    with killed_at_its_end(monkeypatch):
        train(tmp_path, "killed", *settings, inline=True)
    files = (tmp_path / "killed").glob("checkpoints/*/*")
    assert {file.parent.name for file in files} == {"device-000001"}
    with pytest.warns(UnfinishedRunWarning):
        found = load_run(tmp_path / "killed")
    last = found.rounds.groupby("device")["round"].max()
    assert 2 * WINDOW < last[1] < 30
    assert (last.drop(1) == 35).all()
    resumed = resume_run(tmp_path / "killed", console=Console(file=io.StringIO()))
    assert_same_bits(whole, resumed)


def test_a_battery_lasts_to_its_end_and_not_beyond(tmp_path):
    """What was drawn stays within it, but for less than the rounds until it could leave again."""
    for number, rounds_of_battery in enumerate(some([7.5, 9.5, 11.5], 1)):
        devices = fleet(None, rounds_of_battery, None, None)
        run = train(tmp_path, f"run{number}", *STILL, devices, inline=True)
        rounds = pd.read_parquet(run.path / "rounds.parquet")
        drawn_j = rounds[rounds["device"] == 1]["energy_j"]
        battery_j = rounds_of_battery * ROUND_WH * 3600
        assert drawn_j.sum() < battery_j
        assert drawn_j.sum() + 4 * ROUND_WH * 3600 > battery_j


def test_what_is_left_in_a_battery_is_a_column_of_rounds_and_of_devices(tmp_path):
    """The battery less what was drawn until then; a device that is plugged in has none."""
    run = train(tmp_path, "run", *STILL, fleet(None, 7.5, 40, None), inline=True)
    rounds = pd.read_parquet(run.path / "rounds.parquet")
    devices = pd.read_parquet(run.path / "devices.parquet").set_index("device")
    for device, number in ((1, 7.5), (2, 40)):
        own = rounds[rounds["device"] == device]
        battery_wh = round(number * ROUND_WH, 9)  # as `fleet` writes it
        left_j = battery_wh * 3600 - own["energy_j"].cumsum()
        np.testing.assert_allclose(own["charge_left_j"], left_j, rtol=1e-9, atol=1e-12)
        assert devices.loc[device, "charge_left_j"] == own["charge_left_j"].iloc[-1]
    assert rounds[rounds["device"].isin([0, 3])]["charge_left_j"].isna().all()
    assert devices.loc[[0, 3], "charge_left_j"].isna().all()


@pytest.mark.parametrize(
    "setting",
    [
        (
            "fleet.churn={absent: [{device: 1, from_round: 4, until_round: 5}, "
            "{device: 1, from_round: 8, until_round: 9}]}"
        ),
        "topology={kind: random_matching}",
    ],
    ids=["absent before its turns", "at times without a neighbour"],
)
def test_who_can_not_leave_in_its_next_turn_has_a_reserve_until_a_later_one(tmp_path, setting):
    """Device 1 has its turns in rounds 1, 6 and so on, or 1, 5, 9 and 13; none runs empty."""
    devices = fleet(*(None, 12, None, None), *((None,) if "matching" in setting else ()))
    run = train(tmp_path, "run", *STILL, "fleet.names=[]", devices, setting, inline=True)
    rounds = pd.read_parquet(run.path / "rounds.parquet")
    own = rounds[rounds["device"] == 1]
    assert own["charge_left_j"].min() >= 0
    assert len(own) < 16, "it leaves"


def test_a_successor_that_is_absent_has_a_reserve_for_the_rounds_of_its_leaver(tmp_path):
    """Device 1 does the rounds of device 0 also while it is absent, and can't leave meanwhile."""
    churn = (
        "fleet.churn={leaves: [{device: 0, round: 4}], "
        "absent: [{device: 1, from_round: 10, until_round: 44}]}"
    )
    settings = (*STILL, "training.rounds=60", churn, GOSSIPS["gradient push"])
    for rounds_of_battery in (48, 60):
        devices = fleet(None, rounds_of_battery, None, None)
        graph = "topology.kind=directed_ring"
        name = f"run{rounds_of_battery}"
        run = train(tmp_path, name, *settings, "fleet.names=[]", devices, graph, inline=True)
        rounds = pd.read_parquet(run.path / "rounds.parquet")
        assert rounds[rounds["device"] == 1]["charge_left_j"].min() >= 0


def test_without_a_further_turn_the_reserve_is_until_the_end(tmp_path):
    """Device 1 has turns in rounds 1, 5, 9 and 13, and can't use the last."""
    churn = "fleet.churn={absent: [{device: 1, from_round: 12, until_round: 13}]}"
    settings = (*STILL, churn, GOSSIPS["gradient push"], "fleet.names=[]")
    for number in (53.5, 57):  # of rounds, which cost here more than ROUND_WH
        name, devices = f"run{number:g}", fleet(None, number, None, None)
        run = train(tmp_path, name, *settings, devices, inline=True)
        own = pd.read_parquet(run.path / "rounds.parquet").query("device == 1")
        assert len(own) == 15, "it stays"
        assert own["charge_left_j"].min() > 0


def test_a_fleet_without_batteries_has_no_such_column(tmp_path):
    run = train(tmp_path, "run", fleet(None, None, None, None), inline=True)
    for name in ("rounds", "devices"):
        assert "charge_left_j" not in pd.read_parquet(run.path / f"{name}.parquet")
    assert "left" not in dict(result_table(run.summary, "").rows)


def test_with_local_steps_a_battery_lasts_for_exchanges_and_steps_alike(tmp_path):
    """What is kept in reserve are eight rounds, four of them without messages."""
    devices = fleet(None, 13.5, None, None)
    settings = (*STILL, "gossip.local_steps=2", "training.rounds=24", devices)
    run = train(tmp_path, "run", *settings, inline=True)
    rounds = pd.read_parquet(run.path / "rounds.parquet")
    own = rounds[rounds["device"] == 1].sort_values("round")
    last = own["round"].iloc[-1]
    assert last < 23, "it left"
    assert (last + 1) % 2 == 1, "for an exchange"
    assert (last + 1) // 2 % 4 == 1, "in its turn"
    drawn_j, battery_j = own["energy_j"].sum(), 13.5 * ROUND_WH * 3600
    silent_j = own[own["messages_sent"] == 0]["energy_j"].max()
    loud_j = own[own["messages_sent"] > 0]["energy_j"].iloc[:-1].max()
    assert drawn_j < battery_j < drawn_j + 4 * (silent_j + loud_j)


def test_the_successor_takes_the_leavers_place_on_every_edge(tmp_path):
    """On a ring of four: device 1 leaves to 0, which then sends to 2 in its name."""
    run = train(tmp_path, "run", *STILL, FLEETS["one leaves"], "topology.kind=ring", inline=True)
    messages = pd.read_parquet(run.path / "messages.parquet")
    left = messages[messages["kind"] == "handover"]["round"].iloc[0]
    edges = messages[messages["kind"] == "share"].groupby("round")[["sender", "receiver"]]
    edges_of = {r: sorted(map(tuple, rows.to_numpy().tolist())) for r, rows in edges}
    assert edges_of[left + 2] == [(0, 3), (1, 2), (2, 1), (2, 3), (3, 0), (3, 2)]
    # In its last round the leaver sends its shares of the next one too, but not to the successor.
    assert edges_of[left].count((1, 2)) == 2
    assert edges_of[left].count((1, 0)) == 1
    rounds = pd.read_parquet(run.path / "rounds.parquet")
    sums = messages.groupby(["round", "device"])["bytes"].sum()
    np.testing.assert_array_equal(sums, rounds["sent_bytes"])
    assert run.summary["left_after_round"] == {"1": left}
    assert run.summary["left_because"] == {"1": "battery"}
    said = dict(result_table(run.summary, "").rows)["left"]
    assert left == 0
    assert said == "device 1 after 1 round, as its battery would not last to its next turn"
    assert (rounds[rounds["round"] == left + 2].set_index("device")["messages_sent"] == 2).all()


def test_a_fleet_that_loses_devices_goes_on_learning(tmp_path):
    """Shards are even, so that what is left still reads digits."""
    run = train(
        tmp_path,
        "run",
        fleet(None, 40, None, None, 60, None),
        "training.rounds=120",
        "training.optimizer.lr=0.1",
        "data={source: digits, partition: {kind: iid}, batch_size: 32}",
        "evaluation={every_rounds: 150}",
        "gossip={algorithm: choco, averaging_rate: 1}",
        inline=True,
    )
    rounds = pd.read_parquet(run.path / "rounds.parquet")
    assert sorted(rounds.groupby("device")["round"].max())[1] < 149
    assert run.summary["consensus_accuracy"] > 0.8


@pytest.mark.parametrize(
    ("name", "graph"),
    [
        ("one leaves", "random_matching"),
        ("a successor leaves and then its successor", "directed_ring"),
        ("all leave", "ring"),
    ],
)
def test_faults_of_the_network_do_not_change_a_bit(tmp_path, name, graph):
    """Damage, repetition, reordering and any packing, with envelopes under way as devices leave."""
    settings = (FLEETS[name], f"topology.kind={graph}", "training.rounds=16")
    packings = [[[0, 1, 2, 3]], [[0], [1], [2], [3]], [[0, 2], [1, 3]]]
    ends = [
        run_hosts(tmp_path / str(seed), seed, groups, *settings)
        for seed, groups in enumerate(packings)
    ]
    for end in ends[1:]:
        for device in range(4):
            np.testing.assert_array_equal(end[device], ends[0][device])


ORDERS = [(3, 5, 2, 1, 0, 4), (3, 0, 2, 1, 5, 4), (0, 4, 3, 1, 2, 5)]


@pytest.mark.parametrize("order", some(ORDERS, 1))
def test_successors_that_leave_before_they_know_it_change_nothing(tmp_path, order):
    """Rings whose order is not that of the devices; who is ahead of whom is up to the network."""
    links = tmp_path / "ring.csv"
    pairs = zip(order, order[1:] + order[:1], strict=True)
    links.write_text("source,target\n" + "".join(f"{a},{b}\n" for a, b in pairs))
    settings = (
        fleet(None, None, None, 10, 10, None),
        f"topology={{kind: file, path: {links}}}",
        "training.rounds=16",
        "evaluation={every_rounds: 16, samples: 10}",
    )
    packings = [[list(range(6))], [[i] for i in range(6)], [[0, 3, 5], [1, 2, 4]]]
    ends = [
        run_hosts(tmp_path / str(seed), seed, groups, *settings)
        for seed, groups in enumerate(packings)
    ]
    frames = [merged_tables(tmp_path / str(seed) / "run") for seed in range(len(packings))]
    for end, frame in zip(ends[1:], frames[1:], strict=True):
        for device in range(6):
            np.testing.assert_array_equal(end[device], ends[0][device])
        for ours, first in zip(frame, frames[0], strict=True):
            pd.testing.assert_frame_equal(ours, first, check_exact=True)


def merged_tables(path):
    """Rounds without wall times, and messages: bytes, times and energy to the bit."""
    RunDirectory(path).merge_rounds()
    rounds = pd.read_parquet(path / "rounds.parquet").drop(columns=list(WALL_COLUMNS))
    assert len(rounds) < 6 * 16, "somebody left"
    return rounds, pd.read_parquet(path / "messages.parquet")


@pytest.mark.ray
def test_leaving_is_the_same_inline_and_with_actors(tmp_path, started_ray):
    settings = (FLEETS["two leave, one after the other"], "training.rounds=16")
    assert_same_bits(
        train(tmp_path, "inline", *settings, inline=True),
        train(tmp_path, "each", *settings),
    )


def test_dcd_has_no_place_for_devices_that_leave(tmp_path):
    with pytest.raises(ScenarioError, match=r"dcd, which needs .* battery_wh: plugged_in"):
        prepared(
            tmp_path,
            FLEETS["one leaves"],
            "gossip={algorithm: dcd, compressor: {kind: identity}}",
            "topology.kind=ring",
        )


def test_what_a_first_round_takes_is_what_the_run_meters(tmp_path):
    """A round is metered with what it receives; the notice leaves that out."""
    battery = "{profile: raspberry-pi-4b, battery_wh: 1.0e-6}"
    free = f"fleet={{pace: free, devices: [{battery}, {{profile: raspberry-pi-4b, count: 3}}]}}"
    settings = (free, "data.train_samples=800", "data.partition.skew=0", "training.rounds=2")
    (text,) = battery_notices(studied_scenario(prepared(tmp_path, *settings).scenario))
    said_j = float(re.search(r"at least about (\S+) J", text)[1])
    run = train(tmp_path, "run", *settings, inline=True)
    rounds = pd.read_parquet(run.path / "rounds.parquet")
    first = rounds[(rounds["device"] == 0) & (rounds["round"] == 0)].iloc[0]
    assert 0.9 * first["energy_j"] <= said_j <= 1.01 * first["energy_j"]
    assert run.summary["dead_devices"]["0"]["rounds"] == 1


def test_a_device_that_chance_kept_away_keeps_its_charge(tmp_path):
    """It has no round; the run ended with an internal error in place of its tables."""
    devices = (
        "[{profile: raspberry-pi-5, count: 2, battery_wh: 1.0}, {profile: jetson-nano, count: 2}]"
    )
    random = "{absence_probability: 0.6, mean_absence_rounds: 6}"
    run = load_run(
        train(
            tmp_path,
            "run",
            f"fleet={{devices: {devices}, churn: {{random: {random}}}}}",
            "topology={kind: complete}",
            "training.rounds=3",
            "seed=2",
            inline=True,
        ).path
    )
    there = set(run.rounds["device"])
    away = {0, 1} - there, {2, 3} - there
    assert all(away)
    charges = run.devices["charge_left_j"]
    assert (charges[list(away[0])] == 3600).all()
    assert charges[[2, 3]].isna().all()
    assert (charges[list({0, 1} & there)] < 3600).all()
    (reported,) = load_runs([run.place])
    table = device_table(reported)
    np.testing.assert_array_equal(table["charge_left_j"], charges)
    missed = [f"Device {n} was absent in 3 rounds." for n in sorted(away[0] | away[1])]
    assert [each for each in troubles(reported, table) if "absent" in each] == missed
