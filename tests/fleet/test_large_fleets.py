"""What a device costs does not grow with its fleet; the scenario of ten thousand devices trains."""

from __future__ import annotations

import tracemalloc
from types import SimpleNamespace

import numpy as np
import pytest

from edgesim.assembly.build import PLAIN, make_flat_model
from edgesim.assembly.preparation import prepare
from edgesim.data.digits import DIGITS
from edgesim.fleet.host.devices import make_devices
from edgesim.fleet.host.recorder import (
    MESSAGES_PER_PART,
    ROUNDS_PER_PART,
    EvaluationSchedule,
    Recorder,
)
from edgesim.scenario import load_scenario
from edgesim.scenario.shipped import scenario_file


def ten_thousand(devices):
    """The shipped scenario with fewer devices, a sample each."""
    fewer = (f"fleet.devices={devices}", f"data.options.samples={devices}")
    return prepare(load_scenario(scenario_file("ten_thousand"), fewer))


def prepared_bytes(devices):
    """Most memory that the checks of a scenario take at a time."""
    tracemalloc.start()
    try:
        ten_thousand(devices)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_the_checks_of_a_scenario_hold_no_matrix_of_all_pairs_of_devices():
    """A device of 2,000 has 11 edges, each some entries in dictionaries of networkx.

    A matrix of float32 would take (2000 ** 2 - 1000 ** 2) * 4 / 1000 = 12,000 bytes a device more.
    """
    few, many = map(prepared_bytes, (1000, 2000))
    assert (many - few) / 1000 < 11 * 1200


@pytest.mark.parametrize("devices", [8, 128], ids=["3 neighbours", "7 neighbours"])
def test_between_rounds_a_device_holds_model_momentum_and_two_buffers_in_any_fleet(devices):
    prepared = ten_thousand(devices)
    model = make_flat_model(prepared.scenario, prepared.data, PLAIN)
    for device in make_devices(prepared, dict(enumerate(prepared.shards())), model):
        arrays = {}
        device.state(arrays)
        assert sum(array.nbytes for array in arrays.values()) == 4 * 4 * prepared.layout.numel


@pytest.mark.parametrize(
    ("messages", "rounds"),
    [
        pytest.param(1, ROUNDS_PER_PART, id="few neighbours"),
        pytest.param(14, -(-MESSAGES_PER_PART // 14), id="ten thousand devices"),
        pytest.param(MESSAGES_PER_PART, 1, id="more neighbours than a part has messages"),
    ],
)
def test_a_device_with_many_neighbours_keeps_fewer_rounds_in_memory(messages, rounds):
    written = []
    archive = SimpleNamespace(write_rounds=lambda _, reports: written.append(len(reports)))
    recorder = Recorder(archive, EvaluationSchedule(()), None)

    def record(number):
        a_round = SimpleNamespace(device=0, round=number, loss=1.0)
        report = SimpleNamespace(round=a_round, messages=(None,) * messages)
        recorder.record(report, (), 0, None)

    for number in range(2 * rounds):
        record(number)
    assert written == [rounds] * 2
    record(2 * rounds)
    recorder.flush()
    recorder.flush()  # nothing is left
    assert written == [rounds, rounds, 1]


def test_many_digits_are_digits_shifted_by_up_to_a_pixel():
    data = ten_thousand(30).dataset
    digits = DIGITS.load(None, image_size=None, download=False)
    known = digits.train.take(np.arange(len(digits.train)))
    padded = np.pad(known.images_NHWC, ((0, 0), (1, 1), (1, 1), (0, 0)))
    for image, label in zip(*data.train.take(np.arange(30)).contents, strict=True):
        of_class = padded[known.labels == label]
        assert any(
            (of_class[:, top : top + 8, left : left + 8] == image).all(axis=(1, 2, 3)).any()
            for top in range(3)
            for left in range(3)
        )
    tests = data.test.take(np.arange(len(data.test)))
    np.testing.assert_array_equal(
        tests.images_NHWC, digits.test.take(np.arange(len(digits.test))).images_NHWC
    )
