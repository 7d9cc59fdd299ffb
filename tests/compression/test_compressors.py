import math

import numpy as np
import pytest
import torch
from compression_strategies import (
    compressors,
    keeps,
    layouts_and_vectors,
    resnet20_layout,
    seeds,
)
from hypothesis import example, given, settings
from hypothesis import strategies as st

from edgesim.compression.compressors import QSGD, Identity, MinMaxUInt8, RandomK, SignScale, TopK
from edgesim.compression.errors import CompressionError
from edgesim.compression.payload import Payload
from edgesim.compression.segments import Segments
from edgesim.compression.value_codes import ScaledInteger
from edgesim.compression.wire import Message, decode, encode
from edgesim.learning.parameters import ParameterLayout


def rng(seed=0):
    return np.random.default_rng(seed)


def compressed(compressor, x, layout=None, seed=0):
    x = torch.as_tensor(x)
    layout = layout or ParameterLayout.from_shapes([(x.numel(),)])
    return compressor.compress(x, layout, rng(seed)).decode()


def squared_norm(x):
    return float(x.double().square().sum())


@given(compressors, layouts_and_vectors(), seeds)
def test_same_rng_state_gives_same_bits(compressor, case, seed):
    layout, x = case
    first = compressor.compress(x, layout, rng(seed))
    again = compressor.compress(x, layout, rng(seed))
    assert first.decode().numpy().tobytes() == again.decode().numpy().tobytes()
    if not isinstance(compressor, RandomK | QSGD):
        other = compressor.compress(x, layout, rng(seed + 1))
        assert first.decode().numpy().tobytes() == other.decode().numpy().tobytes()


@given(compressors, layouts_and_vectors(), seeds)
def test_the_vector_is_left_alone_and_never_aliased(compressor, case, seed):
    """A payload is sent while the device trains on: it must not follow the device's vector."""
    layout, x = case
    before = x.clone()
    payload = compressor.compress(x, layout, rng(seed))
    assert torch.equal(x, before)
    decoded = payload.decode()
    x.zero_()
    assert torch.equal(payload.decode(), decoded)


@given(compressors, layouts_and_vectors(), seeds)
def test_no_message_is_longer_than_its_form_says(compressor, case, seed):
    """Dense ones are as long; sparse ones may lack bitmaps, and 6 bytes a tensor and 2."""
    layout, x = case
    payload, form = compressor.compress(x, layout, rng(seed)), compressor.form(layout)
    message = Message("choco", 0, 1, 0, 0, 0.5, 1.0, payload)
    longest, slack = form.longest_bytes("choco"), 0
    if form.is_sparse:
        slack = 6 * layout.num_tensors + 2 + layout.numel // 8
    assert longest - slack <= len(encode(message)) <= longest


@given(keeps, layouts_and_vectors())
def test_top_k_keeps_the_largest_of_each_tensor(keep, case):
    layout, x = case
    payload = TopK(keep, "fp64").compress(x, layout, rng())
    kept = torch.zeros(layout.numel, dtype=torch.bool)
    kept[torch.from_numpy(payload.indices.copy())] = True
    for part, mask, count in zip(layout.split(x), layout.split(kept), payload.counts, strict=True):
        assert count == mask.sum() == max(1, int(part.numel() * (1 - (1 - keep))))
        if count < part.numel():
            assert part[mask].abs().min() >= part[~mask].abs().max()


@given(st.floats(0.01, 1.0), layouts_and_vectors(torch.float64))
def test_top_k_is_a_contraction_per_tensor(keep, case):
    """|x - C(x)|^2 <= (1 - k/n) |x|^2: the kept k entries hold at least their share."""
    layout, x = case
    payload = TopK(keep, "fp64").compress(x, layout, rng())
    error = x - payload.decode()
    for e, part, k in zip(layout.split(error), layout.split(x), payload.counts, strict=True):
        bound = (1 - k / part.numel()) * squared_norm(part)
        assert squared_norm(e) <= bound + 1e-12 * squared_norm(part)


def test_top_k_breaks_ties_towards_the_lower_index():
    payload = TopK(0.5, "fp32").compress(
        torch.tensor([1.0, -2.0, 1.0, 1.0]), ParameterLayout.from_shapes([(4,)]), rng()
    )
    assert payload.indices.tolist() == [0, 1]


@pytest.mark.parametrize(("keep", "kept"), [(0.01, 2_767), (0.1, 27_290)])
def test_resnet20_keeps_as_many_entries_as_the_reference(keep, kept):
    """reference.md, section 10, check 12. 10 % of the 640 weights of the last layer are 63: R
    computes 640 (1 - .9)."""
    layout = resnet20_layout()
    x = torch.from_numpy(rng().standard_normal(layout.numel))
    for compressor in (TopK(keep, "fp32"), RandomK(keep, "fp32")):
        assert compressor.compress(x, layout, rng()).num_values == kept


def test_random_k_chooses_every_position_equally_often():
    """3 of 12 positions in 4,000 draws: 1,000 each, standard deviation sqrt(4000/4*3/4) = 27."""
    layout = ParameterLayout.from_shapes([(12,), (2,)])
    stream = rng(3)
    hits = np.zeros(14)
    for _ in range(4_000):
        payload = RandomK(0.25, "fp32").compress(torch.ones(14), layout, stream)
        hits[payload.indices] += 1
    assert np.abs(hits[:12] - 1_000).max() < 5 * 27
    assert np.abs(hits[12:] - 2_000).max() < 5 * math.sqrt(4_000 / 4)


@pytest.mark.parametrize("kept", [[], [1], [5]])
def test_tensors_may_send_nothing(kept):
    """Three tensors, of which at most one has an entry in the message; in int8."""
    layout, indices = ParameterLayout.from_shapes([(2,), (3,), (1,)]), np.array(kept, np.int64)
    counts = np.diff(np.searchsorted(indices, layout.offsets))
    codes, scales = ScaledInteger(8).quantize(np.full(len(kept), 2.0), Segments(counts))
    payload = Payload(layout, ScaledInteger(8), indices, counts, codes, scales)
    sent = decode(encode(Message("choco", 0, 1, 0, 0, 0.5, 1.0, payload)), layout).payload.decode()
    assert sent.tolist() == pytest.approx([2.0 * (i in kept) for i in range(6)], rel=2**-23)


@given(layouts_and_vectors(torch.float32))
def test_int8_is_within_half_a_step_of_each_entry(case):
    layout, x = case
    decoded = Identity("int8").compress(x, layout, rng()).decode()
    for y, part in zip(layout.split(decoded), layout.split(x), strict=True):
        step = float(part.abs().max()) / 127
        # 1e-3 of a step covers the float32 rounding of scale, quotient and product
        assert float((y - part).abs().max()) <= 0.501 * step


@given(layouts_and_vectors(torch.float32))
def test_identity_in_fp32_loses_nothing(case):
    layout, x = case
    assert torch.equal(Identity("fp32").compress(x, layout, rng()).decode(), x)


def test_qsgd_is_unbiased():
    """Mean of 4,000 draws within 5 standard errors; a step is |x|/3 and its deviation <= half."""
    x = torch.tensor([0.3, -1.2, 0.0, 2.0, -0.01])
    layout, stream = ParameterLayout.from_shapes([(5,)]), rng(1)
    draws = torch.stack([QSGD(2).compress(x, layout, stream).decode() for _ in range(4_000)])
    step = float(x.norm()) / 3
    assert float((draws.mean(0) - x).abs().max()) < 5 * 0.5 * step / math.sqrt(4_000)
    assert float(draws[:, 2].abs().max()) == 0.0


@given(st.integers(1, 7), layouts_and_vectors(torch.float32), seeds)
def test_qsgd_values_are_neighbouring_levels(bits, case, seed):
    """Each entry lands on one of the two multiples of |x|/s around it.

    Source: reference.md, section 3.6.
    """
    layout, x = case
    decoded = compressed(QSGD(bits), x, layout, seed)
    for y, part in zip(layout.split(decoded), layout.split(x), strict=True):
        step = float(part.double().norm()) / (2**bits - 1)
        # 2**-14: rounding of x / step + u near level 127 in float32
        assert float((y - part).abs().max()) <= (1 + 2**-14) * step
        assert bool((y * part >= 0).all())


def test_biased_qsgd_is_a_contraction_in_the_mean():
    """E|x - C(x)|^2 <= (1 - 1/(1 + omega)) |x|^2 with omega = min(n/s^2, sqrt(n)/s)."""
    x = torch.from_numpy(rng(5).standard_normal(400))
    layout, stream, s = ParameterLayout.from_shapes([(400,)]), rng(6), 3
    omega = min(400 / s**2, 20 / s)
    errors = [
        squared_norm(x - QSGD(2, biased=True).compress(x, layout, stream).decode())
        for _ in range(200)
    ]
    assert np.mean(errors) <= (1 - 1 / (1 + omega)) * squared_norm(x) * 1.01


@pytest.mark.parametrize(("n", "omega"), [(4, 4 / 9), (400, 20 / 3)])
def test_biased_qsgd_sends_the_same_levels_of_a_smaller_norm(n, omega):
    """Divided by 1 + min(n / s^2, sqrt(n) / s) with s = 3: the first is less below 9 entries."""
    x = torch.from_numpy(rng(5).standard_normal(n))
    levels = compressed(QSGD(2), x, seed=6)
    np.testing.assert_allclose(
        compressed(QSGD(2, biased=True), x, seed=6), levels / (1 + omega), rtol=1e-6
    )


def test_qsgd_norms_do_not_overflow_where_squares_do():
    """|(3, 4)| = 5; the squares of 3e25 and 4e25 are beyond float32."""
    decoded = compressed(QSGD(7), torch.tensor([3e25, -4e25]))
    step = 5e25 / 127
    levels = decoded.numpy() / step
    np.testing.assert_allclose(levels, np.round(levels), atol=1e-4)
    assert decoded.tolist() == pytest.approx([3e25, -4e25], abs=step)


@given(layouts_and_vectors(torch.float32))
def test_sign_scale_sends_mean_magnitude_with_the_sign(case):
    layout, x = case
    decoded = compressed(SignScale(), x, layout)
    for y, part in zip(layout.split(decoded), layout.split(x), strict=True):
        mean = float(part.double().abs().mean())
        np.testing.assert_allclose(y, np.where(part.numpy() >= 0, mean, -mean), rtol=1e-6)


def bagua_oracle(x):
    """Bagua's MinMaxUInt8 (reference.md, section 7), scalar by scalar in float32, with the lower
    clamp that Bagua lacks."""
    one = np.float32
    eps, low, high = one(1e-7), one(min(x)), one(max(x))
    a = one(one(255) / one(one(high - low) + eps))
    upper = np.rint(one(high * a))
    lower = one(upper - one(255))
    codes = [np.clip(one(min(np.rint(one(one(v) * a)), upper) - lower), 0, 255) for v in x]
    return [float(one(one(np.uint8(q) + lower) / a)) for q in codes]


@given(layouts_and_vectors(torch.float32))
@settings(max_examples=40)  # the oracle works entry by entry
def test_min_max_uint8_equals_baguas_formula(case):
    layout, x = case
    decoded = compressed(MinMaxUInt8(), x, layout)
    for y, part in zip(layout.split(decoded), layout.split(x), strict=True):
        assert y.tolist() == bagua_oracle(part.numpy())


@given(layouts_and_vectors(torch.float32))
def test_min_max_uint8_represents_zero_inside_the_range(case):
    """The offset is an integer, so an entry that is zero stays zero wherever 0 is in range."""
    layout, x = case
    decoded = compressed(MinMaxUInt8(), x, layout)
    for y, part in zip(layout.split(decoded), layout.split(x), strict=True):
        if float(part.min()) < 0 < float(part.max()):
            assert bool((y[part == 0] == 0).all())


@given(compressors, layouts_and_vectors(), st.sampled_from([math.nan, math.inf, -math.inf]), seeds)
def test_non_finite_input_is_refused_by_tensor_name(compressor, case, bad, seed):
    layout, x = case
    x[-1] = bad
    with pytest.raises(CompressionError, match=f"{layout.names[-1]}.*not finite"):
        compressor.compress(x, layout, rng(seed))


@given(
    compressors,
    st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False), min_size=1, max_size=8),
    seeds,
)
@example(MinMaxUInt8(), [-3e38, 3e38], 0)
@example(Identity("int8"), [3.4028234663852886e38, 1e-45], 0)
@example(Identity("int8"), [1e-45, 0.0], 0)
@example(QSGD(2, biased=True), [3e38] * 8, 0)
def test_any_finite_vector_is_refused_or_decodes_to_finite_values(compressor, entries, seed):
    x, layout = torch.tensor(entries), ParameterLayout.from_shapes([(len(entries),)])
    try:
        payload = compressor.compress(x, layout, rng(seed))
    except CompressionError:
        return
    assert bool(payload.decode().isfinite().all())


@given(st.lists(st.floats(-65504, 65504, width=32), min_size=1, max_size=20))
def test_fp16_rounds_as_numpy_does_subnormals_included(entries):
    expected = np.array(entries, np.float32).astype(np.float16).astype(np.float32)
    assert compressed(Identity("fp16"), torch.tensor(entries)).tolist() == expected.tolist()


def test_values_beyond_fp16_are_refused_not_clipped():
    with pytest.raises(CompressionError, match="fp16"):
        compressed(Identity("fp16"), torch.tensor([7e4]))


HUGE, LOWER = torch.tensor([1.0, 2.0, 3.0, 7e4, -3e38]), "; lower training.optimizer.lr"


@pytest.mark.parametrize(
    ("compressor", "entry", "problem"),
    [
        (TopK(1.0, "fp16"), 0, f"top_k in fp16{LOWER}, or choose values: fp32"),
        (RandomK(1.0, "fp16"), 0, f"random_k in fp16{LOWER}, or choose values: fp32"),
        (Identity("fp16"), 0, f"identity in fp16{LOWER}, or choose values: fp32"),
        (TopK(0.5, "fp16"), 1, f"top_k in fp16{LOWER}, or choose values: fp32"),
    ],
)
def test_values_beyond_a_format_are_named_with_their_tensor_and_a_remedy(
    compressor, entry, problem
):
    """Tensors of 3 and 2 entries; the larger half of the second is its last alone."""
    layout = ParameterLayout.from_shapes([(3,), (2,)])
    with pytest.raises(CompressionError) as caught:
        compressor.compress(HUGE, layout, rng())
    said = f"{layout.names[1]}: entry {entry} is beyond the range of {problem}"
    assert str(caught.value) == said


@pytest.mark.parametrize(
    ("compressor", "label"), [(MinMaxUInt8(), "min_max_uint8"), (QSGD(4, biased=False), "qsgd")]
)
def test_a_range_beyond_float32_has_no_other_format_to_choose(compressor, label):
    with pytest.raises(CompressionError, match=rf"the range of {label} in .*{LOWER}$"):
        compressed(compressor, torch.tensor([3.4e38, -3.4e38]))


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda: TopK(0.0, "fp32"), "keep is 0.0"),
        (lambda: RandomK(1.5, "fp32"), "keep is 1.5"),
        (lambda: TopK(math.nan, "fp32"), "keep is nan"),
        (lambda: TopK(0.1, "fp8"), "fp16"),
        (lambda: Identity("float"), "fp32"),
        (lambda: QSGD(0), "bits is 0"),
        (lambda: QSGD(8), "bits is 8"),
    ],
)
def test_bad_parameters_are_refused(make, match):
    with pytest.raises(CompressionError, match=match):
        make()


@pytest.mark.parametrize("x", [torch.zeros(3), torch.zeros(2, 2), torch.zeros(4, dtype=torch.int)])
def test_a_vector_that_does_not_fit_the_layout_is_refused(x):
    with pytest.raises(CompressionError, match=r"\(4,\)"):
        compressed(SignScale(), x, ParameterLayout.from_shapes([(4,)]))
