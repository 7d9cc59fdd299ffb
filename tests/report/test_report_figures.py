"""Figures of the graph, of labels, memory, energy and bytes show what the tables hold."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd
import pytest
from reported_runs import content, table, train

import edgesim
from edgesim.report.figures.breakdowns import label_skew
from edgesim.report.report import report_page
from edgesim.report.runs import load_runs


@pytest.fixture(scope="module")
def run(place):
    return edgesim.load_run(place)


def test_links_of_the_graph_are_the_messages_of_their_rounds(page, run):
    """Also after a board has left: then they are those of its successor."""
    links = table(page, "graph", "links")
    assert links["graph"].iloc[0].startswith("rounds 0 to ")
    handover = run.messages.query("kind == 'handover'").iloc[0]
    successor = run.scenario.fleet.names[handover["receiver"]]
    for label, own in links.groupby("graph"):
        first, *_, last = map(int, re.findall(r"\d+", f"{label} {label.split()[-1]}"))
        sent = run.messages[run.messages["round"].between(first, last)]
        sent = sent.assign(sender_name=sent["name"])
        if first > run.summary["left_after_round"]["3"]:
            sent = sent.replace({"receiver_name": {run.scenario.fleet.names[3]: successor}})
        sent = sent[sent["sender_name"] != sent["receiver_name"]]
        expected = sent.groupby(["sender_name", "receiver_name"])["bytes"].sum()
        drawn = own.set_index(["sender_name", "receiver_name"])["bytes"].sort_index()
        np.testing.assert_allclose(drawn, expected, rtol=1e-3)
        assert list(drawn.index) == list(expected.index)
    # A device hands over and leaves, so the graph changes, and there is a slider.
    assert links["graph"].nunique() > 1
    spec = content(page)["figures"]["graph"]["views"][0]
    assert spec["params"][0]["bind"]["max"] == links["graph"].nunique() - 1


def test_labels_are_those_of_the_shards(page, run):
    labels = table(page, "labels").pivot_table(index="device", columns="label", values="samples")
    np.testing.assert_array_equal(labels, np.stack(run.devices["label_counts"].to_numpy()))


def test_label_skew_is_the_distance_from_the_mix_of_the_fleet():
    """Of two devices with one label each, half of the samples would have to change."""
    rows = [(0, 0, 10), (0, 1, 0), (1, 0, 0), (1, 1, 10)]
    labels = pd.DataFrame(rows, columns=["device", "label", "samples"])
    np.testing.assert_allclose(label_skew(labels), [0.5, 0.5])
    alike = labels.assign(samples=[3, 9, 1, 3])
    np.testing.assert_allclose(label_skew(alike), [0, 0])


def test_parts_add_up_to_the_totals(page, run):
    memory = table(page, "memory", "parts")
    assert set(memory.groupby("name")["bytes"].sum()) == set(run.devices["memory_bytes"])
    energy = table(page, "energy").groupby("name")["energy_j"].sum()
    expected = run.rounds.groupby("name")["energy_j"].sum()
    pd.testing.assert_series_equal(energy, expected, rtol=1e-5)
    sent = table(page, "bytes").query("part != 'sent again'").groupby("name")["bytes"].sum()
    pd.testing.assert_series_equal(
        sent, run.rounds.groupby("name")["sent_bytes"].sum(), check_names=False
    )


def test_work_of_a_round_is_what_its_row_counts(page, run):
    work = table(page, "compute").query("kind == 'multiply-accumulates'")
    full_batch = run.rounds["macs_fp32"].max()
    assert work["amount_of_round"].sum() == full_batch


def test_loss_in_training_is_that_of_the_rounds(page, run):
    losses = table(page, "training-loss", "devices").set_index(["name", "round"])["loss"]
    expected = run.rounds.set_index(["name", "round"])["loss"].sort_index()
    pd.testing.assert_series_equal(losses.sort_index(), expected, rtol=1e-5, check_index_type=False)


def test_gossip_of_the_work_is_that_of_a_round_with_an_exchange(tmp_path):
    """Before, it was of the mean number of messages of a round, rounded: of none."""
    place = train(
        tmp_path,
        "training.rounds=8",
        "gossip.local_steps=4",
        "fleet={devices: 4, profile: raspberry-pi-4b}",
    )
    rounds = edgesim.load_run(place).rounds
    page = report_page(load_runs([place]))
    work = table(page, "compute").query("kind == 'other operations'")
    assert work["amount_of_round"].sum() == rounds.query("round == 3")["elementwise_ops"].max()
    assert "of gossip with 2 messages sent and absorbed" in page
    assert "Of all rounds 25 % send." in page
