"""The graph of an interrupted run is of rounds that all devices have ended."""

from __future__ import annotations

import pandas as pd
import pytest

from edgesim.report.graph_figure import _of_whole_rounds


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
