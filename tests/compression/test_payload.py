import math

import numpy as np
import pytest
import torch
from compression_strategies import payloads
from hypothesis import given
from hypothesis import strategies as st

from edgesim.compression.compressors import Identity, TopK
from edgesim.compression.errors import CompressionError
from edgesim.compression.payload import Payload
from edgesim.compression.value_codes import ScaledInteger, SignBit
from edgesim.learning.parameters import ParameterLayout

LAYOUT = ParameterLayout.from_shapes([(3,), (2,)])
X = torch.tensor([1.0, -3.0, 2.0, 0.5, -0.25])


def top_k(keep=0.4):
    return TopK(keep, "fp32").compress(X, LAYOUT, np.random.default_rng(0))


def test_decode_puts_each_value_in_its_place():
    assert top_k().decode().tolist() == [0.0, -3.0, 0.0, 0.5, 0.0]


def test_decoding_keeps_the_precision_of_the_values():
    assert top_k().decode().dtype == torch.float32
    for values, dtype in (("fp64", torch.float64), ("fp16", torch.float32)):
        payload = TopK(0.4, values).compress(X.double(), LAYOUT, np.random.default_rng(0))
        assert payload.decode().dtype == dtype


@given(payloads(), st.sampled_from([torch.float32, torch.float64]), st.floats(-2, 2))
def test_adding_equals_adding_the_decoded_vector(payload, dtype, scale):
    """Bit for bit: product first, then sum, each rounded once, on any processor."""
    target = torch.linspace(-1, 1, payload.layout.numel, dtype=dtype)
    decoded = payload.decode()
    expected = target + (decoded.to(dtype) * torch.tensor(scale, dtype=dtype))
    assert payload.add_to_(target, scale) is None
    assert target.tolist() == expected.tolist()


def test_sparse_add_leaves_other_entries_untouched():
    """A NaN elsewhere stays the only NaN, and a negative zero keeps its sign."""
    target = torch.tensor([float("nan"), 0.0, -0.0, 0.0, -0.0])
    top_k().add_to_(target, 2.0)
    assert math.copysign(1, target[2]) == -1
    assert math.copysign(1, target[4]) == -1
    assert target[1:].tolist() == [-6.0, 0.0, 1.0, 0.0]


def test_repeated_adds_decode_once():
    payload = top_k()
    assert payload.values is payload.values
    target = torch.zeros(5)
    for _ in range(3):
        payload.add_to_(target)
    assert target.tolist() == [0.0, -9.0, 0.0, 1.5, 0.0]


def test_decoded_vector_is_the_callers_own():
    payload = Identity("fp32").compress(X, LAYOUT, np.random.default_rng(0))
    payload.decode().zero_()
    assert torch.equal(payload.decode(), X)


@pytest.mark.parametrize("target", [torch.zeros(4), torch.zeros(5, dtype=torch.int64)])
def test_a_target_that_does_not_fit_is_refused(target):
    with pytest.raises(CompressionError, match=r"\(5,\)"):
        top_k().add_to_(target)


def test_sections_are_encoded_once():
    payload = top_k()
    assert payload.sections is payload.sections


@pytest.mark.parametrize(
    ("code", "codes", "fault"),
    [
        (ScaledInteger(4), [9, 7, 7, 1, 0], "int4: a code above 7"),
        (ScaledInteger(4), [-8, 7, 7, 1, 0], "int4: a code below -7"),
        (ScaledInteger(8), [-128, 7, 7, 1, 0], "int8: a code below -127"),
        (SignBit(), [0, 1, 2, 1, 0], "sign: a sign other than 0 and 1"),
    ],
)
def test_codes_without_a_place_in_their_bits_are_not_sent(code, codes, fault):
    """Those of a compressor of one's own: the receiver would decode another number."""
    scales = np.ones((2, 1), np.float32)
    payload = Payload(LAYOUT, code, None, LAYOUT.size_array, np.array(codes, np.int8), scales)
    with pytest.raises(CompressionError, match=fault):
        _ = payload.sections
