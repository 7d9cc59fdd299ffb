"""Compressors with a scale for each bucket of a tensor's entries.

The oracle: a compressor without buckets, and a layout that has each bucket as a tensor.
"""

import math

import numpy as np
import pytest
import torch
from compression_strategies import layouts_and_vectors, message_of, seeds
from hypothesis import given
from hypothesis import strategies as st

from edgesim.compression.buckets import in_buckets, message_layout
from edgesim.compression.compressors import QSGD, Identity, MinMaxUInt8, SignScale
from edgesim.compression.errors import CompressionError, NonFiniteEntryError, WireError
from edgesim.compression.wire import HEADER, decode, encode
from edgesim.learning.parameters import ParameterLayout

KINDS = [
    lambda **bucket: QSGD(3, **bucket),
    lambda **bucket: QSGD(2, biased=True, **bucket),
    MinMaxUInt8,
    SignScale,
]
kinds = st.sampled_from(KINDS)
bucket_sizes = st.integers(2, 50) | st.sampled_from([256, 999, 1000, 5000])


def rng(seed=0):
    return np.random.default_rng(seed)


def divided(sizes, bucket_size):
    """Sizes of the buckets, cut off one after the other."""
    found = []
    for size in sizes:
        while size > 0:
            found.append(min(size, bucket_size))
            size -= bucket_size
    return found


@given(kinds, layouts_and_vectors(), bucket_sizes, seeds)
def test_a_bucket_is_compressed_as_a_tensor_of_its_own(kind, case, bucket_size, seed):
    """The same values to the bit, and the same bytes after the header."""
    layout, x = case
    buckets = ParameterLayout.from_shapes([(n,) for n in divided(layout.sizes, bucket_size)])
    payload = kind(bucket_size=bucket_size).compress(x, layout, rng(seed))
    oracle = kind().compress(x, buckets, rng(seed))
    assert payload.decode().numpy().tobytes() == oracle.decode().numpy().tobytes()
    body = slice(HEADER.size, None)
    assert encode(message_of(payload))[body] == encode(message_of(oracle))[body]


@given(kinds, layouts_and_vectors(), seeds, st.integers(0, 3))
def test_buckets_as_long_as_the_longest_tensor_change_no_byte(kind, case, seed, longer):
    layout, x = case
    bucket_size = max(2, *layout.sizes) + longer
    in_one = kind(bucket_size=bucket_size).compress(x, layout, rng(seed))
    assert encode(message_of(in_one)) == encode(message_of(kind().compress(x, layout, rng(seed))))


@given(kinds, layouts_and_vectors(), bucket_sizes, seeds)
def test_a_message_is_as_long_as_its_form_says(kind, case, bucket_size, seed):
    layout, x = case
    compressor = kind(bucket_size=bucket_size)
    payload, form = compressor.compress(x, layout, rng(seed)), compressor.form(layout)
    sections = payload.sections
    assert len(sections.scales) == form.scale_bytes
    assert len(sections.values) == form.value_bytes
    assert form.longest_bytes("choco") == len(encode(message_of(payload)))


def test_a_bucket_does_not_cross_tensors():
    """Three tensors; the last bucket of each may be shorter."""
    layout = ParameterLayout.from_shapes([(5,), (2, 3), (1,)])
    assert in_buckets(layout, 2).sizes == (2, 2, 1, 2, 2, 2, 1)
    assert in_buckets(layout, 4).sizes == (4, 1, 4, 2, 1)
    assert in_buckets(layout, 6) is layout
    assert in_buckets(in_buckets(layout, 4), 4) is in_buckets(layout, 4)


def test_signs_and_extremes_of_buckets_by_hand():
    """Five entries in buckets of two: mean magnitudes 2, 15 and 7; minima and maxima."""
    x, layout = torch.tensor([1.0, -3.0, 10.0, 20.0, -7.0]), ParameterLayout.from_shapes([(5,)])
    signs = SignScale(bucket_size=2).compress(x, layout, rng())
    assert signs.decode().tolist() == [2.0, -2.0, 15.0, 15.0, -7.0]
    extremes = MinMaxUInt8(bucket_size=2).compress(x, layout, rng())
    assert extremes.scales.tolist() == [[-3.0, 1.0], [10.0, 20.0], [-7.0, -7.0]]


def test_a_large_entry_spoils_its_bucket_alone():
    """One norm of all loses the small entries in few levels; theirs alone does not."""
    x = torch.full((1000,), 0.01)
    x[:10] = 1000.0
    layout = ParameterLayout.from_shapes([(1000,)])
    whole, parts = (
        kind.compress(x, layout, rng()).decode()[10:].count_nonzero()
        for kind in (QSGD(4), QSGD(4, bucket_size=10))
    )
    assert whole < 20
    assert parts == 990


def test_qsgd_in_buckets_is_unbiased():
    """Mean of 4,000 draws within 5 standard errors; a step is the bucket's norm / 3.

    The last bucket has one entry, which is its own norm.
    """
    x = torch.tensor([0.3, -1.2, 0.0, 2.0, -0.01])
    layout, stream = ParameterLayout.from_shapes([(5,)]), rng(1)
    compressor = QSGD(2, bucket_size=2)
    draws = torch.stack([compressor.compress(x, layout, stream).decode() for _ in range(4_000)])
    steps = torch.tensor([math.hypot(0.3, 1.2), math.hypot(0.3, 1.2), 2, 2, 0.01]) / 3
    assert bool(((draws.mean(0) - x).abs() <= 5 * 0.5 * steps / math.sqrt(4_000) + 1e-8).all())


@pytest.mark.parametrize("bucket_size", [4, 64])
def test_the_error_of_qsgd_is_bounded_by_the_length_of_a_bucket(bucket_size):
    """E|x - C(x)|^2 <= min(d / s^2, sqrt(d) / s) |x|^2 for buckets of d, however long x is.

    Source: arXiv 1610.02132, Lemma 3.1. The first is smaller for 4 entries, the second for 64.
    """
    x, s = torch.from_numpy(rng(5).standard_normal(4100)), 3
    layout, stream, norm = ParameterLayout.from_shapes([(4100,)]), rng(6), float(x.square().sum())
    omega = min(bucket_size / s**2, math.sqrt(bucket_size) / s)

    def error(compressor):
        """Mean of 50 draws, and 1 % for chance."""
        draws = [compressor.compress(x, layout, stream).decode() for _ in range(50)]
        return float(np.mean([float((x - y).square().sum()) for y in draws])) / norm / 1.01

    assert error(QSGD(2, bucket_size=bucket_size)) <= omega
    assert error(QSGD(2, bucket_size=bucket_size, biased=True)) <= 1 - 1 / (1 + omega)
    assert error(QSGD(2)) > 10  # of all entries in one


def test_biased_qsgd_divides_by_the_length_of_each_bucket():
    """Five entries in buckets of four: 1 + min(4 / 9, 2 / 3), and 1 + 1 / 9 for the last."""
    x, layout = torch.from_numpy(rng(5).standard_normal(5)), ParameterLayout.from_shapes([(5,)])
    plain = QSGD(2, bucket_size=4).compress(x, layout, rng(6)).decode()
    biased = QSGD(2, biased=True, bucket_size=4).compress(x, layout, rng(6)).decode()
    expected = plain / torch.tensor([1 + 4 / 9] * 4 + [1 + 1 / 9])
    np.testing.assert_allclose(biased, expected, rtol=1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_a_receiver_with_other_buckets_refuses_the_message(kind):
    layout = ParameterLayout.from_shapes([(10,), (3,)])
    compressor = kind(bucket_size=4)
    data = encode(message_of(compressor.compress(torch.ones(13), layout, rng())))
    assert decode(data, message_layout(compressor, layout)).payload.layout.sizes == (4, 4, 2, 3)
    for other in (layout, in_buckets(layout, 5)):
        with pytest.raises(WireError, match="must train the same model"):
            decode(data, other)


def test_messages_of_other_compressors_have_the_layout_of_the_vector():
    layout = ParameterLayout.from_shapes([(10,)])
    for compressor in (Identity("int8"), QSGD(2), MinMaxUInt8(), SignScale()):
        assert message_layout(compressor, layout) is layout


def test_a_value_beyond_the_range_is_named_by_its_place_in_the_tensor():
    """Entries 2 and 3 of the second tensor are a bucket of their own."""
    layout, x = ParameterLayout.from_shapes([(3,), (4,)]), torch.ones(7)
    x[5], x[6] = 3.4e38, -3.4e38
    with pytest.raises(NonFiniteEntryError, match=f"^{layout.names[1]}: entry 2 is beyond"):
        MinMaxUInt8(bucket_size=2).compress(x, layout, rng())


@pytest.mark.parametrize("bucket_size", [1, 0, -3])
@pytest.mark.parametrize("kind", KINDS)
def test_buckets_of_fewer_than_two_entries_are_refused(kind, bucket_size):
    with pytest.raises(CompressionError, match=f"bucket_size is {bucket_size}; must be at least 2"):
        kind(bucket_size=bucket_size)
