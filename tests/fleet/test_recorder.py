"""What is shown of a run while it goes on."""

from __future__ import annotations

import io
from math import nan

import pytest
from rich.console import Console

from edgesim.fleet import recorder
from edgesim.fleet.progress import Progress


@pytest.mark.parametrize(
    ("losses", "shown"),
    [((1.0, 2.0), "loss 1.500"), ((1.0, nan), "loss 1.000"), ((nan, nan), "loss -")],
    ids=["all know theirs", "one was restarted", "none has one"],
)
def test_the_loss_is_the_mean_of_those_that_have_one(monkeypatch, losses, shown):
    monkeypatch.setattr(recorder, "LOG_INTERVAL_S", -1.0)  # a line each time
    said = io.StringIO()
    display = recorder._Display(Console(file=said, width=200), total=20)
    parts = [
        Progress(num_devices=1, rounds_done=5, slowest_round=5, loss=loss, sent_bytes=0)
        for loss in losses
    ]
    display.show(parts, num_rounds=10)
    assert said.getvalue().startswith(f"round 5/10, {shown}, sent 0 bytes")
