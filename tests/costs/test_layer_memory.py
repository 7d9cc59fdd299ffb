"""Memory of single layers and messages, by hand, beside what is measured of whole models."""

from __future__ import annotations

import pytest
from cost_models import SETTINGS

from edgesim.compression.compressors import QSGD, MinMaxUInt8
from edgesim.compression.wire import HEADER
from edgesim.costs.layer import Layer
from edgesim.costs.layer_memory import memory_of_layer
from edgesim.learning.parameters import ParameterLayout


def memory(kind, shape, *, backend="reference", is_last_feature=False, **of_layer):
    layer = Layer(name="one", kind=kind, input_shape=shape, output_shape=shape, **of_layer)
    return memory_of_layer(layer, backend, is_last_feature=is_last_feature)


@pytest.mark.parametrize(("side", "copied"), [(1, 0), (2, 4 * 3 * 8 * 4)])
def test_the_gradient_of_the_last_feature_is_copied_unless_it_has_one_pixel(side, copied):
    """Of 3 samples and 8 channels, in floats; one pixel is in either layout as it is."""
    shape = (3, 8, side, side)
    last = memory("residual_sum", shape, is_last_feature=True, settings=SETTINGS)
    assert last.before_codes == copied
    assert memory("residual_sum", shape, settings=SETTINGS).before_codes == 0


@pytest.mark.parametrize(
    ("kind", "floats"), [("batch_norm", 96), ("group_norm", 96), ("evonorm_s0", 0)]
)
def test_a_norm_with_a_relu_has_a_gradient_between_both(kind, floats):
    """3 samples, 8 channels and 4 pixels are 96 entries; EvoNorm is its own nonlinearity."""
    assert memory(kind, (3, 8, 2, 2), groups=2, num_affine=16).activation_gradient == 4 * floats


def test_of_the_parameters_of_range_evonorm_beta_is_only_passing():
    """gamma, v and beta of 8 channels; the compiled back end keeps them as one array."""
    options = {"groups": 2, "num_affine": 24, "settings": SETTINGS}
    norm = memory("range_evonorm", (3, 8, 2, 2), **options)
    assert (norm.kept_weights, norm.passing_weights) == (4 * 16, 4 * 8)
    compiled = memory("range_evonorm", (3, 8, 2, 2), backend="int8_cpu", **options)
    assert (compiled.kept_weights, compiled.passing_weights) == (4 * 24, 0)


@pytest.mark.parametrize(
    ("side", "place_bytes"), [(16, 1), (17, 2), (181, 2), (182, 4)], ids=lambda value: str(value)
)
def test_places_of_extremes_take_the_shortest_type_that_holds_them(side, place_bytes):
    """16 channels in one group: 16 chunks of side x side entries, 256 of which end at place 255.

    32,761 places fit below 2^15 and 33,124 don't. A chunk has two extremes.
    """
    norm = memory("range_evonorm", (1, 16, side, side), num_affine=48, settings=SETTINGS)
    codes, scales = 16 * side * side, 2 * 4
    assert norm.kept == codes + scales + 2 * place_bytes * 16


def test_only_values_of_less_than_a_byte_are_packed_anew_when_they_are_encoded():
    """1,000 values in one tensor; 5 bits each are 625 bytes. Scales: a step, or two ends."""
    layout, name = ParameterLayout.from_shapes([(1000,)]), "choco"
    for compressor, packed in ((MinMaxUInt8(), 0), (QSGD(bits=4), 625)):
        form = compressor.form(layout)
        message_bytes = HEADER.size + len(name) + form.scale_bytes + form.value_bytes
        assert form.section_bytes(message_bytes, name) == packed
