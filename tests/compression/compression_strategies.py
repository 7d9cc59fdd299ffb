"""Layouts, vectors and compressors that the compression tests draw from."""

import numpy as np
import torch
from hypothesis import strategies as st

from edgesim.compression.compressors import QSGD, Identity, MinMaxUInt8, RandomK, SignScale, TopK
from edgesim.compression.payload import Payload
from edgesim.compression.wire import Message
from edgesim.learning.parameters import ParameterLayout


def resnet20_layout():
    """The 86 tensors of ResNet-20 with EvoNorm-S0, written out by hand.

    Source: reference.md, section 5.
    """
    shapes = []

    def conv_and_norm(c_in, c_out, k):
        shapes.extend([(c_out, c_in, k, k), (c_out,), (c_out,), (c_out,)])

    conv_and_norm(3, 16, 3)
    c_in = 16
    for c_out in (16, 32, 64):
        for block in range(3):
            conv_and_norm(c_in if block == 0 else c_out, c_out, 3)
            conv_and_norm(c_out, c_out, 3)
            if block == 0 and c_in != c_out:
                conv_and_norm(c_in, c_out, 1)
            c_in = c_out
    shapes.extend([(10, 64), (10,)])
    layout = ParameterLayout.from_shapes(shapes)
    assert (layout.num_tensors, layout.numel) == (86, 273_258)
    return layout


layouts = st.lists(st.integers(1, 40) | st.sampled_from([255, 256, 1000]), min_size=1, max_size=6)
layouts = layouts.map(lambda sizes: ParameterLayout.from_shapes([(size,) for size in sizes]))
keeps = st.sampled_from([0.01, 0.1, 0.29, 0.5, 1.0]) | st.floats(1e-6, 1.0)
formats = st.sampled_from(["fp32", "fp16", "int8", "fp64"])
bucket_sizes = st.none() | st.integers(2, 50) | st.just(999)
compressors = st.one_of(
    st.builds(Identity, values=formats),
    st.builds(TopK, keep=keeps, values=formats),
    st.builds(RandomK, keep=keeps, values=formats),
    st.builds(QSGD, bits=st.integers(1, 7), biased=st.booleans(), bucket_size=bucket_sizes),
    st.builds(MinMaxUInt8, bucket_size=bucket_sizes),
    st.builds(SignScale, bucket_size=bucket_sizes),
)
seeds = st.integers(0, 2**32 - 1)


@st.composite
def layouts_and_vectors(draw, dtype=None):
    """A layout and a vector under it: Gaussian, with ties, with zeros, at some magnitude."""
    layout = draw(layouts)
    rng = np.random.default_rng(draw(seeds))
    x = rng.standard_normal(layout.numel) * draw(st.sampled_from([1e-6, 1.0, 1e3]))
    shape = draw(st.sampled_from(["gaussian", "ties", "sparse", "zero", "constant"]))
    if shape == "ties":
        x = np.round(x / np.abs(x).max() * 2) * np.abs(x).max()
    elif shape == "sparse":
        x[rng.random(layout.numel) < 0.8] = 0.0
    elif shape in {"zero", "constant"}:
        x[:] = 0.0 if shape == "zero" else x[0]
    dtype = dtype or draw(st.sampled_from([torch.float32, torch.float64]))
    return layout, torch.from_numpy(x).to(dtype)


@st.composite
def payloads(draw):
    """What some compressor makes of some vector."""
    layout, x = draw(layouts_and_vectors())
    return draw(compressors).compress(x, layout, np.random.default_rng(draw(seeds)))


uint32 = st.integers(0, 2**32 - 1)
kinds_and_notes = st.tuples(st.just("share"), st.just(())) | st.tuples(
    st.sampled_from(["handover", "copy"]), st.lists(uint32, max_size=5).map(tuple)
)
messages = st.builds(
    lambda kind_and_notes, **fields: Message(
        kind=kind_and_notes[0], notes=kind_and_notes[1], **fields
    ),
    kind_and_notes=kinds_and_notes,
    algorithm=st.sampled_from(["choco", "deep_squeeze", "dcd"]),
    sender=uint32,
    receiver=uint32,
    sequence=uint32,
    round_index=uint32,
    weight=st.floats(0, 1),
    push_weight=st.floats(0, 1e3),
    payload=payloads(),
)


def message_of(payload, **fields):
    """A message with plain header fields."""
    header = {"sender": 0, "receiver": 1, "sequence": 7, "round_index": 7}
    header |= {"weight": 0.5, "push_weight": 1.0, "algorithm": "choco"}
    return Message(**(header | fields), payload=payload)


def assert_same_payload(left: Payload, right: Payload):
    """Equal content, bit for bit."""
    assert left.code == right.code
    assert (left.indices is None) == (right.indices is None)
    if left.indices is not None:
        np.testing.assert_array_equal(left.indices, right.indices)
    np.testing.assert_array_equal(left.counts, right.counts)
    assert left.codes.tobytes() == right.codes.tobytes()
    assert left.scales.tobytes() == right.scales.tobytes()
    assert left.values.tobytes() == right.values.tobytes()
