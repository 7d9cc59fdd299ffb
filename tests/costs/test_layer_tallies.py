"""Kinds and sizes of layers, of which a calibrated clock makes time."""

from __future__ import annotations

import pytest
from cost_models import SETTINGS
from test_closed_form import form_of

from edgesim.costs.closed_form import closed_form
from edgesim.costs.layer import Layer
from edgesim.costs.layer_work import work_of_layer
from edgesim.hardware.layer_kinds import LAYER_KINDS
from edgesim.hardware.work import FAR_ENTRIES
from edgesim.models import MODELS


def tally(**layer):
    (found,) = work_of_layer(Layer(name="layer", **layer)).total.layers
    return found


@pytest.mark.parametrize("settings", [None, SETTINGS], ids=["fp32", "int8"])
@pytest.mark.parametrize("name", MODELS)
def test_the_layers_hold_all_of_a_steps_work(name, settings):
    """So a clock that knows all kinds of layers leaves nothing of a step to the roofline."""
    work = closed_form(form_of(name, (3, 32, 32), settings), 2).step_work.total
    assert work.without(work.layers) == type(work)()
    assert {layers.kind for layers in work.layers} <= set(LAYER_KINDS)


def test_sizes_of_a_convolution():
    """3 passes of 2 x 8 x 5 x 5 outputs, each of 4 x 9 products."""
    found = tally(
        kind="convolution",
        input_shape=(2, 4, 5, 5),
        output_shape=(2, 8, 5, 5),
        taps=9,
        num_weights=8 * 4 * 9,
    )
    assert (found.kind, found.calls, found.macs) == ("convolution_fp32", 1, 3 * 400 * 36)
    assert (found.entries, found.far_entries, found.weights) == (200 + 400, 0, 288)


@pytest.mark.parametrize(
    ("options", "kind"),
    [
        ({"taps": 9}, "convolution_fp32"),
        ({"taps": 1}, "pointwise_convolution_fp32"),
        ({"taps": 9, "groups": 4}, "depthwise_convolution_fp32"),
        ({"taps": 49, "needs_input_gradient": False}, "first_convolution_fp32"),
        ({"taps": 9, "settings": SETTINGS}, "convolution_int8"),
        ({"taps": 9, "settings": SETTINGS, "is_unfolded": True}, "unfolded_convolution_int8"),
        (
            {"taps": 9, "settings": SETTINGS, "is_unfolded": True, "groups": 4},
            "unfolded_depthwise_convolution_int8",
        ),
    ],
)
def test_convolutions_that_run_other_code_are_of_other_kinds(options, kind):
    found = tally(
        kind="convolution", input_shape=(1, 4, 5, 5), output_shape=(1, 4, 5, 5), **options
    )
    assert found.kind == kind


def test_the_second_factor_of_a_product_counts_as_weights():
    """Of 3 products of (2, 5) and (5, 4) matrices: 3 x 5 x 4."""
    found = tally(kind="product", input_shape=(3, 2, 5), output_shape=(3, 2, 4))
    assert (found.kind, found.weights) == ("product_fp32", 60)


def test_the_table_of_an_embedding_counts_as_weights():
    found = tally(kind="embedding", input_shape=(2, 3), output_shape=(2, 3, 4), table_entries=400)
    assert (found.entries, found.weights) == (6 + 24, 400)


def test_a_fork_is_part_of_its_sum():
    found = tally(kind="fork", input_shape=(1, 4), output_shape=(1, 4))
    assert (found.calls, found.entries) == (0, 0)
    assert found.work.elementwise_ops == 4


def test_numbers_of_a_layer_beyond_the_caches_are_far():
    half = FAR_ENTRIES // 2
    near = tally(kind="relu", input_shape=(half,), output_shape=(half,))
    far = tally(kind="relu", input_shape=(half + 3,), output_shape=(half + 3,))
    assert (near.far_entries, far.far_entries) == (0, 6)
