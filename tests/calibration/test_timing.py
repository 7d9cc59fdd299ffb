"""What counts as the time of a small network's step."""

from __future__ import annotations

import pytest
from torch import nn

from edgesim.calibration import timing
from edgesim.calibration.micro_networks import MicroNetwork

STEP_S, REST_S = 2.0, 100.0


class Clock:
    """Processor time that passes only when this test says so."""

    def __init__(self):
        self.now_s = 0.0
        self.events = []

    def pass_s(self, what, seconds):
        self.events.append(what)
        self.now_s += seconds

    def __call__(self):
        return self.now_s


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(timing, "thread_time", clock)
    return clock


def layers(clock):
    layer = nn.Linear(4, 4)
    layer.register_forward_pre_hook(lambda *_: clock.pass_s("step", STEP_S))
    return nn.Sequential(layer)


class Rest:
    def __init__(self, clock):
        self.clock = clock

    def sum(self):
        self.clock.pass_s("rest", REST_S)


def test_the_rest_of_a_model_is_read_before_each_timed_step_and_not_counted(clock):
    network = MicroNetwork("linear", lambda: layers(clock), (2, 4))
    one = timing.TimedNetwork(network)
    one.take_turn(Rest(clock))
    assert set(one.steps_s) == {STEP_S}
    timed = clock.events[clock.events.index("rest") :]
    assert timed == ["rest", "step"] * (len(timed) // 2)
    assert len(timed) >= 4
