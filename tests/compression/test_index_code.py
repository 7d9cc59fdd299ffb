import math
import tracemalloc

import numpy as np
import pytest
import torch
from compression_strategies import layouts, resnet20_layout, seeds
from hypothesis import given
from hypothesis import strategies as st

from edgesim.compression import compilation, compiled_index_code, compiled_selection, index_code
from edgesim.compression.compressors import TopK
from edgesim.compression.errors import CompressionError, WireError
from edgesim.compression.index_code import (
    BITMAP,
    BLOCK,
    FIXED,
    decode_indices,
    encode_indices,
    entropy_bytes,
)
from edgesim.learning.parameters import ParameterLayout


@pytest.fixture(scope="module", autouse=True, params=[0, math.inf], ids=["compiled", "in numpy"])
def calls_in_numpy(request):
    """All tests run with the compiled code and without it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compilation, "CALLS_IN_NUMPY", request.param)
        yield


@st.composite
def index_sets(draw):
    """A layout and, per tensor, any subset of its positions: empty, full, clustered, scattered."""
    layout = draw(layouts)
    rng = np.random.default_rng(draw(seeds))
    chosen = []
    for size in layout.sizes:
        kind = draw(st.sampled_from(["empty", "full", "scattered", "run"]))
        share = draw(st.floats(0, 1))
        if kind == "run":
            mask = np.arange(size) < share * size
        else:
            mask = rng.random(size) < {"empty": 0.0, "full": 1.0, "scattered": share}[kind]
        chosen.append(mask)
    counts = np.array([mask.sum() for mask in chosen], np.int64)
    return layout, np.flatnonzero(np.concatenate(chosen)), counts


@given(index_sets())
def test_every_subset_comes_back(case):
    layout, indices, counts = case
    data = encode_indices(indices, counts, layout)
    decoded, decoded_counts = decode_indices(data, len(indices), layout)
    np.testing.assert_array_equal(decoded, indices)
    np.testing.assert_array_equal(decoded_counts, counts)


def in_both_ways(work):
    """Results of `work` with the compiled code and without it, or the error that it raised."""
    results = []
    for calls_in_numpy in (0, math.inf):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(compilation, "CALLS_IN_NUMPY", calls_in_numpy)
            try:
                results.append(work())
            except (WireError, CompressionError) as error:
                results.append(str(error))
    return results


@given(index_sets())
def test_the_compiled_code_has_the_same_bytes(case):
    layout, indices, counts = case
    compiled, plain = in_both_ways(lambda: encode_indices(indices, counts, layout).tobytes())
    assert compiled == plain


@given(index_sets(), st.data())
def test_the_compiled_decoder_takes_what_the_other_takes(case, data):
    """Of codes with some changed bytes, or cut, or with bytes appended; errors read the same."""
    layout, indices, counts = case
    code = encode_indices(indices, counts, layout)
    for place in data.draw(st.lists(st.integers(0, len(code) - 1), max_size=3)):
        code[place] = data.draw(st.integers(0, 255))
    code = code[: data.draw(st.integers(0, len(code)))]
    code = np.append(code, np.array(data.draw(st.lists(st.integers(0, 255), max_size=2)), np.uint8))

    def decoded():
        positions, found = decode_indices(code, len(indices), layout)
        return positions.tolist(), found.tolist()

    compiled, plain = in_both_ways(decoded)
    assert compiled == plain


@given(index_sets())
def test_the_compiled_decoder_reads_every_code_itself(case):
    """It leaves none to the decoder in numpy, which would read the same."""
    layout, indices, counts = case
    code = encode_indices(indices, counts, layout)
    read = index_code._read_compiled(compiled_index_code, code, len(indices), layout)
    assert read is not None
    np.testing.assert_array_equal(read[0], indices)


def test_compiled_code_takes_the_calls_that_are_due(monkeypatch):
    called = []
    monkeypatch.setattr(compilation, "CALLS_IN_NUMPY", 0)
    for module, name in (
        (compiled_index_code, "write_code"),
        (compiled_index_code, "read_code"),
        (compiled_selection, "largest_per_tensor"),
    ):
        function = getattr(module, name)
        monkeypatch.setattr(
            module, name, lambda *args, name=name, of=function: (called.append(name), of(*args))[1]
        )
    payload = TopK(0.5, "fp32").compress(torch.arange(8.0), ONE, np.random.default_rng(1))
    code = encode_indices(payload.indices, payload.counts, ONE)
    decode_indices(code, 4, ONE)
    assert called == ["largest_per_tensor", "write_code", "read_code", "write_code"]


@pytest.mark.parametrize(
    ("indices", "counts"),
    [
        ([3, 1], [2, 0]),
        ([1, 1], [2, 0]),
        ([1, 9], [2, 0]),
        ([9, 1], [1, 1]),
        ([1, 13], [1, 1]),
        ([-1, 9], [1, 1]),
        ([1, 9], [1, 0]),
        ([1, 9], [1, 2]),
        ([1, 9], [-1, 3]),
        ([3, 20], [1, 0]),
        ([-1], [0, 0]),
        ([99], [0, 0]),
        ([1, 9, 40], [1, 1]),
        ([-5, 3], [1, 0]),
        ([2**63 - 1], [1, 0]),
        ([1, 2**63 - 1], [1, 1]),
        ([1, 2**63 - 1, -(2**63)], [1, 2]),
    ],
)
def test_positions_that_do_not_ascend_within_their_tensors_are_refused(indices, counts):
    with pytest.raises(CompressionError, match="ascend"):
        encode_indices(np.array(indices), np.array(counts), TWO)


@given(index_sets())
def test_no_tensor_costs_more_than_bitmap_or_fixed_width(case):
    """Two table bytes a tensor (three from 128 entries), two part bytes, the shorter of both."""
    layout, indices, counts = case
    n = np.array(layout.sizes)
    fixed = counts * np.array([math.ceil(math.log2(size)) if size > 1 else 0 for size in n])
    bits = np.minimum(n, fixed).sum()
    table = 2 * layout.num_tensors + (counts > 127).sum()
    assert len(encode_indices(indices, counts, layout)) <= table + bits / 8 + 2


@pytest.mark.parametrize("keep", [0.01, 0.1])
@pytest.mark.parametrize("choice", ["top_k of a gaussian", "uniform"])
def test_resnet20_indices_cost_at_most_15_percent_above_entropy(keep, choice):
    layout, rng = resnet20_layout(), np.random.default_rng(11)
    x = torch.from_numpy(rng.standard_normal(layout.numel))
    payload = TopK(keep, "fp32").compress(x, layout, rng)
    indices, counts = payload.indices, payload.counts
    if choice == "uniform":
        picks = [
            offset + np.sort(rng.choice(size, count, replace=False))
            for offset, size, count in zip(layout.offsets, layout.sizes, counts, strict=False)
        ]
        indices = np.concatenate(picks)
    coded_bytes = len(encode_indices(indices, counts, layout))
    floor = sum(math.log2(math.comb(n, int(k))) for n, k in zip(layout.sizes, counts, strict=True))
    assert entropy_bytes(counts, layout) == pytest.approx(floor / 8, rel=1e-9)
    assert coded_bytes <= 1.15 * floor / 8


def test_lengths_by_hand():
    """64 of 4,096, mode and count 2 bytes: a run at the start, and every 64th position.

    Run: all gaps 0, so b = 0 and a flag bit each: 8 bytes. Every 64th: gap 0, then 63 times 63;
    b = 5 leaves 63 >> 5 = 1, so 64 x 5 bits of fields, 40 bytes, and 1 + 63 x 2 flags, 16 bytes.
    """
    layout, counts = ParameterLayout.from_shapes([(4096,)]), np.array([64])
    assert len(encode_indices(np.arange(64), counts, layout)) == 2 + 8
    assert len(encode_indices(np.arange(0, 4096, 64), counts, layout)) == 2 + 40 + 16


def coded(layout, modes, counts, tail):
    return np.array([*modes, *counts, *tail], np.uint8), sum(counts), layout


ONE = ParameterLayout.from_shapes([(8,)])
TWO = ParameterLayout.from_shapes([(8,), (5,)])
FIVE = ParameterLayout.from_shapes([(5,)])
SIXTEEN = ParameterLayout.from_shapes([(16,)])
BAD = {
    "an unknown mode": coded(ONE, [200], [1], [1]),
    "a Rice parameter wider than the tensor": coded(ONE, [2 + 4], [1], [1, 1]),
    "more entries than the tensor holds": coded(ONE, [0], [9], [255, 1]),
    "a bitmap with another number of bits set": coded(ONE, [0], [2], [0b1]),
    "a bitmap cut short": coded(TWO, [0, 0], [1, 1], [1]),
    "a fixed-width position out of range": coded(TWO, [0, 1], [0, 1], [7, 0]),
    "fixed-width positions out of order": coded(ONE, [1], [2], [0b001_010]),
    "a position twice": coded(ONE, [1], [2], [0b010_010]),
    "a gap beyond the end": coded(ONE, [2], [1], [0, 1]),
    "gaps that add up beyond the end": coded(ONE, [2], [2], [0b10000, 0b10]),
    "fewer gaps than entries": coded(ONE, [2], [2], [1]),
    "more gaps than entries": coded(ONE, [2], [1], [3]),
    "a byte too many": coded(ONE, [2], [1], [1, 0]),
    "a byte too many after gaps that end with a byte": coded(ONE, [2], [8], [255, 0]),
    "a byte too many after gaps beside a bitmap": coded(TWO, [0, 2], [1, 1], [1, 1, 0]),
    "a byte too many after a bitmap": coded(ONE, [0], [1], [1, 0]),
    "a byte too many after fixed-width positions": coded(ONE, [1], [1], [5, 0]),
    "a byte too many after nothing": coded(ONE, [1], [0], [0]),
    "nothing": (np.array([], np.uint8), 0, ONE),
    "a table cut short": (np.array([0], np.uint8), 0, ONE),
    "another total": (np.array([0, 1, 1], np.uint8), 2, ONE),
    "a bitmap where fixed width is shorter": coded(ONE, [0], [1], [0b100]),
    "fixed width where a bitmap is shorter": coded(ONE, [1], [4], [0b10_001_000, 0b0110]),
    "Rice's code where fixed width is shorter": coded(SIXTEEN, [3], [1], [0b1, 0b1000_0000]),
    "fields with a bit after the last": coded(ONE, [1], [1], [0b1010]),
    "flags with a byte of zeros after the last": coded(ONE, [0], [4], [0b1111, 0]),
    "a bitmap with a bit after the last": coded(FIVE, [0], [3], [0b10111]),
}


@pytest.mark.parametrize("case", BAD.values(), ids=BAD)
def test_bad_index_codes_are_refused(case):
    data, num_values, layout = case
    with pytest.raises(WireError):
        decode_indices(data, num_values, layout)


@pytest.mark.parametrize(
    ("layout", "modes", "counts", "tail", "positions"),
    [
        (ONE, [1], [1], [0b010], [2]),
        (ONE, [0], [4], [0b1111_0000], [4, 5, 6, 7]),
        (SIXTEEN, [1], [1], [0b1111], [15]),
        (FIVE, [2], [3], [0b111], [0, 1, 2]),
    ],
)
def test_the_shortest_code_is_accepted(layout, modes, counts, tail, positions):
    """The good ones beside the bad ones above, so that these are refused for what they are."""
    indices, _ = decode_indices(*coded(layout, modes, counts, tail))
    assert indices.tolist() == positions


@pytest.mark.parametrize("surplus", [[0], [0, 0], [1], [128]])
@given(case=index_sets())
def test_a_surplus_byte_is_refused(surplus, case):
    layout, indices, counts = case
    code = np.append(encode_indices(indices, counts, layout), np.array(surplus, np.uint8))
    with pytest.raises(WireError):
        decode_indices(code, len(indices), layout)


@given(index_sets(), st.integers(1, 4))
def test_the_code_is_the_same_however_many_entries_are_worked_on_at_a_time(case, num_entries):
    layout, indices, counts = case
    expected = encode_indices(indices, counts, layout)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(index_code, "BLOCK", num_entries)
        np.testing.assert_array_equal(encode_indices(indices, counts, layout), expected)
        decoded, _ = decode_indices(expected, len(indices), layout)
    np.testing.assert_array_equal(decoded, indices)


def test_blocks_of_entries_join_without_a_seam():
    """Tensors with more entries than are read at a time, of all three modes, and empty ones."""
    sizes = [3 * BLOCK, 5, 400 * BLOCK, 2 * BLOCK - 7, 1, 64 * BLOCK, 2**27, BLOCK]
    counts = [2 * BLOCK + 1, 0, 2 * BLOCK + 3, 2 * BLOCK - 7, 1, BLOCK + 1, 3, 0]
    layout, rng = ParameterLayout.from_shapes([(size,) for size in sizes]), np.random.default_rng(4)
    indices = np.concatenate(
        [
            offset + np.sort(rng.permutation(min(size, 2**22))[:count])
            for offset, size, count in zip(layout.offsets, sizes, counts, strict=False)
        ]
    )
    code = encode_indices(indices, np.array(counts), layout)
    assert {BITMAP, FIXED} < set(code[: len(sizes)].tolist()), "all three modes"
    decoded, decoded_counts = decode_indices(code, len(indices), layout)
    np.testing.assert_array_equal(decoded, indices)
    np.testing.assert_array_equal(decoded_counts, counts)


@given(index_sets(), st.data())
def test_a_changed_byte_is_refused_or_means_another_valid_set(case, data):
    layout, indices, counts = case
    code = encode_indices(indices, counts, layout)
    code[data.draw(st.integers(0, len(code) - 1))] = data.draw(st.integers(0, 255))
    try:
        decoded, decoded_counts = decode_indices(code, len(indices), layout)
    except WireError:
        return
    in_tensors = np.diff(np.searchsorted(decoded, layout.offsets))
    np.testing.assert_array_equal(in_tensors, decoded_counts)
    assert len(decoded) == len(indices)
    assert (np.diff(decoded) > 0).all()
    np.testing.assert_array_equal(encode_indices(decoded, decoded_counts, layout), code)


def test_a_long_code_for_a_small_layout_takes_no_memory():
    """A megabyte of ones would be eight million gaps, at 8 bytes each."""
    data = np.concatenate([np.array([2, 1], np.uint8), np.full(2**20, 255, np.uint8)])
    tracemalloc.start()
    try:
        with pytest.raises(WireError, match="longest"):
            decode_indices(data, 1, ONE)
        assert tracemalloc.get_traced_memory()[1] < 2**16
    finally:
        tracemalloc.stop()
