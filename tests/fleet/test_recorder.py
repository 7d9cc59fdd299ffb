"""What is shown of a run while it goes on."""

from __future__ import annotations

import asyncio
import io
from math import nan
from typing import cast

import pytest
from rich.console import Console

from edgesim.fleet import recorder
from edgesim.fleet.evaluation import Evaluator
from edgesim.fleet.progress import Progress
from edgesim.fleet.run_directory import RunDirectory


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


@pytest.mark.parametrize(("num_actors", "seconds"), [(1, 0.5), (2, 0.5), (8, 2), (1000, 5)])
def test_many_actors_are_asked_more_rarely(num_actors, seconds):
    assert recorder.pause_s(num_actors) == seconds


def test_it_stops_at_once_however_long_its_pauses(monkeypatch, tmp_path):
    monkeypatch.setattr(recorder, "pause_s", lambda num_actors: 3600.0)
    looking_on = recorder.Recorder(
        RunDirectory(str(tmp_path)),
        cast("Evaluator", None),  # there is nothing to evaluate
        num_devices=1,
        num_rounds=10,
        evaluation_rounds=[],
        device_models="never",
        console=Console(file=io.StringIO()),
    )

    async def poll() -> list[Progress]:
        asyncio.get_running_loop().call_later(0.1, looking_on.stop_watching)  # in its pause
        return [Progress(1, rounds_done=5, slowest_round=5, loss=1.0, sent_bytes=0)]

    asyncio.run(looking_on.watch(poll))
    assert looking_on.rounds_done == 5
