"""The clock of a profile that has times of kinds of layers; sums computed by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest
from virtual_fleets import profile

from edgesim.hardware.profiles import LayerTime
from edgesim.hardware.work import LayerTally, Work

LINEAR = LayerTime(
    kind="linear_fp32",
    call_s=1.0,
    s_per_mac=0.5,
    s_per_entry=0.25,
    s_per_far_entry=2.0,
    s_per_weight=4.0,
)
IN_LAYER = Work(macs_fp32=8 * 10**9, elementwise_ops=10**9, traffic_bytes=10**12)
TALLY = LayerTally(
    kind="linear_fp32", calls=2, macs=6, entries=8, far_entries=1, weights=3, work=IN_LAYER
)
LAYER = Work(**IN_LAYER.counts, layers=(TALLY,))
SECONDS = 2 * 1.0 + 6 * 0.5 + 8 * 0.25 + 1 * 2.0 + 3 * 4.0


def test_a_layer_takes_the_sum_of_its_sizes_times():
    timed = replace(profile(), layer_times=(LINEAR,))
    assert timed.compute_s(LAYER) == SECONDS == 21.0


def test_work_outside_of_layers_is_added_by_the_roofline():
    """2e9 fp32 MAC at 1e9/s are 2 s; those of the layer itself do not count again."""
    timed = replace(profile(), layer_times=(LINEAR,))
    assert timed.compute_s(LAYER + Work(macs_fp32=2 * 10**9)) == SECONDS + 2.0


def test_layers_without_a_time_go_by_the_rates():
    other = replace(LINEAR, kind="relu_fp32")
    timed = replace(profile(), layer_times=(other,))
    assert timed.compute_s(LAYER) == profile().compute_s(IN_LAYER) == 8.0


def test_a_profile_without_times_takes_no_notice_of_layers():
    assert profile().compute_s(LAYER) == profile().compute_s(IN_LAYER)


def test_elementwise_operations_count_where_their_rate_is_known():
    """3e9 operations at 1e9/s outlast 1 s of arithmetic."""
    work = Work(macs_fp32=10**9, elementwise_ops=3 * 10**9)
    assert profile().compute_s(work) == 1.0
    assert replace(profile(), elementwise_ops_per_s=1e9).compute_s(work) == 3.0


def test_layers_of_one_kind_add_up_and_others_stay_apart():
    other = replace(TALLY, kind="relu_fp32")
    both = LAYER + LAYER + Work(**IN_LAYER.counts, layers=(other,))
    assert {tally.kind: tally.calls for tally in both.layers} == {"linear_fp32": 4, "relu_fp32": 2}
    assert both.layers[0].work == IN_LAYER * 2
    assert both == IN_LAYER * 3, "works with the same counts are equal"


def test_a_share_of_some_work_takes_that_share_of_its_time():
    timed = replace(profile(), layer_times=(LINEAR,))
    assert timed.compute_s(LAYER * 3) == 3 * SECONDS
    assert timed.compute_s(LAYER.each(lambda count: count / 4)) == pytest.approx(SECONDS / 4)
