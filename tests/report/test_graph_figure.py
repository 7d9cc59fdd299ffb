"""The graph: steps in a row with one graph are one; of an interrupted run whole rounds alone."""

from __future__ import annotations

from types import SimpleNamespace

import pandas as pd
import pytest

from edgesim.report.figures.graph_figure import _edges, _of_whole_rounds


def messages_of(rounds):
    """Messages of a ring: number of rounds by device, each fourth with an exchange."""
    return pd.DataFrame(
        [
            {"round": 4 * exchange + 3, "sender": device, "receiver": (device + 1) % len(rounds)}
            for device, done in enumerate(rounds)
            for exchange in range(done)
        ]
    )


@pytest.mark.parametrize(
    ("exchanges", "whole"),
    [
        ((9, 9, 9, 9), 9),
        ((9, 8, 9, 7), 7),
        ((9, 9, 2, 8), 8),  # device 2 left long ago
        ((1, 1, 1, 1), 1),
    ],
)
def test_rounds_that_some_devices_had_begun_are_left_out(exchanges, whole):
    messages = messages_of(exchanges)
    kept = _of_whole_rounds(messages, len(exchanges))
    assert kept["round"].max() == 4 * (whole - 1) + 3
    assert len(kept) == sum(min(done, whole) for done in exchanges)


def drawn(exchanges, *, is_free):
    """The links that are drawn for messages of one byte: time or round, sender, receiver."""
    when = "departure_time_s" if is_free else "round"
    messages = pd.DataFrame(exchanges, columns=[when, "sender", "receiver"]).assign(bytes=1)
    found = _edges(
        SimpleNamespace(exchanges=messages, is_free=is_free, is_finished=True, num_devices=3)
    )
    rows = found.table[["step", "sender", "receiver", "bytes", "messages"]]
    return found.labels, rows.to_numpy().tolist()


def test_rounds_in_a_row_with_one_graph_are_one_step_with_all_their_bytes():
    exchanges = [(0, 0, 1), (0, 1, 2), (1, 0, 1), (1, 1, 2), (2, 2, 0), (3, 0, 1), (3, 1, 2)]
    labels, rows = drawn(exchanges, is_free=False)
    assert labels == ["rounds 0 to 1", "round 2", "round 3"]
    assert rows == [
        [0, 0, 1, 2, 2],
        [0, 1, 2, 2, 2],
        [1, 2, 0, 1, 1],
        [2, 0, 1, 1, 1],
        [2, 1, 2, 1, 1],
    ]


def test_at_free_pace_steps_are_times_and_no_byte_is_left_out():
    early = [(0.01 * number, 0, 1) for number in range(100)]
    late = [(1 + 0.01 * number, 1, 2) for number in range(101)]
    labels, rows = drawn(early + late, is_free=True)
    assert labels == ["0 s to 1 s", "1 s to 2 s"]
    assert rows == [[0, 0, 1, 100, 100], [1, 1, 2, 101, 101]]


def test_a_graph_that_never_changes_has_no_steps():
    assert drawn([(0, 0, 1), (1, 0, 1)], is_free=False) == (["all rounds"], [[0, 0, 1, 2, 2]])
