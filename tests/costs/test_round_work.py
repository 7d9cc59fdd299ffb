"""Work of optimizers and gossip, statement by statement."""

from itertools import pairwise

import pytest

from edgesim.compression.compressors import (
    QSGD,
    Identity,
    MinMaxUInt8,
    RandomK,
    SignScale,
    TopK,
)
from edgesim.costs.round_work import gossip_work
from edgesim.gossip.beer import Beer
from edgesim.gossip.choco import Choco
from edgesim.gossip.choco_numerator import ChocoNumerator
from edgesim.gossip.d2 import D2
from edgesim.gossip.dcd import Dcd
from edgesim.gossip.deep_squeeze import DeepSqueeze
from edgesim.gossip.fixed_graph_choco import FixedGraphChoco
from edgesim.gossip.gradient_push import GradientPush
from edgesim.hardware.work import Work
from edgesim.learning.adam import Adam, QuasiGlobalAdam
from edgesim.learning.optimizers import QuasiGlobalMomentum, Sgd
from edgesim.learning.parameters import ParameterLayout

LAYOUT = ParameterLayout.from_shapes([(100, 9), (100,)])
D = 1000
FP32 = Identity(values="fp32")
DEBIAS = Work(elementwise_ops=D, traffic_bytes=8 * D)


@pytest.fixture(autouse=True)
def _count_anew():
    """Not what another test has counted."""
    gossip_work.cache_clear()


def hyper(nesterov):
    return {"momentum": 0.9, "nesterov": nesterov, "weight_decay": 1e-4}


@pytest.mark.parametrize(
    ("optimizer", "ops", "vectors"),
    [
        (Sgd(**hyper(True)), 8, 5),
        (Sgd(**hyper(False)), 6, 5),
        (QuasiGlobalMomentum(**hyper(True)), 2 + 3 + 2 + 3 + 1 + 2, 10),
        (QuasiGlobalMomentum(**hyper(False)), 2 + 2 + 2 + 3 + 1 + 2, 10),
        (Adam(weight_decay=1e-4), 2 + 3 + 4 + 3 + 3, 7),
        (Adam(weight_decay=1e-4, decoupled=True), 1 + 3 + 4 + 3 + 3, 7),
        (QuasiGlobalAdam(), 2 + 2 + 4 + 3 + 3 + 1 + 2 + 1 + 3 + 4, 12),
        (QuasiGlobalAdam(damped=True), 2 + 3 + 4 + 3 + 3 + 1 + 2 + 1 + 3 + 4, 12),
    ],
)
def test_an_optimizer_passes_over_its_vectors(optimizer, ops, vectors):
    expected = Work(elementwise_ops=ops * 77, traffic_bytes=4 * vectors * 77)
    assert optimizer.work(77) == expected


def algorithm(kind, compressor=FP32):
    rate = {} if kind is Dcd else {"averaging_rate": 1.0}
    return kind(compressor=compressor, layout=LAYOUT, **rate)


def vectors(ops, passes):
    return Work(elementwise_ops=ops * D, traffic_bytes=4 * passes * D)


COMPRESS = vectors(0, 2)  # fp32: read, written
ADD, ADD_SCALED = vectors(1, 3), vectors(2, 3)  # message and target read, target written


@pytest.mark.parametrize(("out_degree", "in_degree"), [(0, 0), (1, 1), (2, 3), (0, 2)])
def test_gossip_counts_each_statement_of_its_algorithm(out_degree, in_degree):
    sends, hears = min(out_degree, 1), min(in_degree, 1)
    subtract = vectors(1, 3)

    def work(kind):
        return gossip_work(algorithm(kind), out_degree, in_degree)

    fixed = (subtract + COMPRESS + ADD + ADD_SCALED) * sends
    assert work(FixedGraphChoco) == fixed + ADD_SCALED * (in_degree + hears) + DEBIAS
    per_edge = (subtract + COMPRESS + ADD + ADD_SCALED) * out_degree
    per_edge += (ADD + ADD_SCALED) * in_degree + DEBIAS
    assert work(ChocoNumerator) == per_edge
    assert work(Choco) == per_edge + DEBIAS * out_degree  # x/u before each difference
    squeezed = (ADD + COMPRESS + ADD + ADD_SCALED) * sends
    assert work(DeepSqueeze) == squeezed + ADD_SCALED * in_degree + DEBIAS
    pushed = (COMPRESS + ADD_SCALED) * sends
    assert work(GradientPush) == pushed + ADD_SCALED * in_degree + DEBIAS
    step = subtract + ADD_SCALED * in_degree + ADD_SCALED + COMPRESS + ADD + vectors(0, 2)
    assert work(Dcd) == step * sends + ADD * in_degree
    # s, c and x by R, x + c, s + c; then the difference of both vectors, and x's copy
    tracked = subtract + ADD_SCALED * 2 + ADD * 2
    tracked += (subtract + COMPRESS + ADD) * 2 + vectors(0, 2)
    assert work(Beer) == tracked * sends + ADD_SCALED * 2 * (out_degree + in_degree)
    corrected = (ADD + COMPRESS) * sends + (subtract + ADD_SCALED) * in_degree + ADD * 2 * hears
    assert work(D2) == corrected


def compressed_once(compressor):
    """Work of one gradient push to nobody that listens, less what is not of the message."""
    work = gossip_work(algorithm(GradientPush, compressor), 1, 0)
    return work.elementwise_ops - D, work.traffic_bytes - 8 * D


@pytest.mark.parametrize(
    ("compressor", "ops", "code_bytes"),
    [
        (FP32, 0, 4000),
        (Identity(values="fp16"), 1 + 1, 2000),
        (Identity(values="int8"), 4 + 1, 1000),
        (MinMaxUInt8(), 7 + 2, 1000),
        (SignScale(), 3 + 3, 125),
        (QSGD(bits=3), 3 + 7 + 4 + 1, 500),
        # 900 and 100 entries in buckets of 64: 15 and 2, each with a scale or two of 4 bytes.
        (QSGD(bits=3, bucket_size=64), 3 + 7 + 4 + 1, 500 + 17 * 4),
        (MinMaxUInt8(bucket_size=64), 7 + 2, 1000 + 17 * 8),
        (SignScale(bucket_size=64), 3 + 3, 125 + 17 * 4),
    ],
)
def test_value_codes_cost_their_operations_and_weigh_their_bits(compressor, ops, code_bytes):
    # x read, codes written; then codes and x read, x written, with a product and a sum.
    expected = (ops + 2) * D, 4000 + code_bytes + code_bytes + 8000
    assert compressed_once(compressor) == expected


def test_a_sparse_message_costs_its_selection_and_touches_what_it_keeps():
    # Half of 900 and of 100 entries; at rank 1/2 quickselect compares 2 (1 + ln 2) times an entry.
    kept, comparisons = 500, round((1 + 1 + 2 * (1 + 0.6931471805599453)) * D)
    held = (4 + 8) * kept
    assert compressed_once(TopK(keep=0.5, values="fp32")) == (
        comparisons + 2 * kept,
        4 * D + held + held + 8 * kept,
    )
    random_ops, _ = compressed_once(RandomK(keep=0.5, values="fp32"))
    assert random_ops == comparisons + 2 * kept + 6 * D  # keys: noise of 7 operations, not |x|


def test_stronger_compression_never_costs_more():
    work = [
        gossip_work(algorithm(DeepSqueeze, TopK(keep=keep, values="int8")), 2, 2)
        for keep in (0.01, 0.1, 0.5)
    ]
    for less, more in pairwise(work):
        assert less.elementwise_ops < more.elementwise_ops
        assert less.traffic_bytes < more.traffic_bytes


def tallies(compressor, out_degree, in_degree):
    work = gossip_work(algorithm(FixedGraphChoco, compressor), out_degree, in_degree)
    return {t.kind: (t.calls, t.entries, t.weights) for t in work.layers}


def test_messages_are_kinds_of_layers_with_the_entries_that_are_sent():
    """One is encoded for all neighbours, all that arrive are decoded: 225 of 900, 25 of 100."""
    sparse = {"encoding_sparse": (1, D, 250), "decoding_sparse": (3, 3 * D, 750)}
    assert tallies(TopK(0.25, "fp32"), 2, 3) == sparse
    assert tallies(FP32, 2, 1) == {"encoding_dense": (1, D, D), "decoding_dense": (1, D, D)}


def test_messages_of_other_codes_have_no_kind():
    assert tallies(SignScale(), 2, 3) == {}


def test_decoding_counts_nothing_but_its_time():
    assert TopK(0.1, "fp32").form(LAYOUT).decode_work() == Work()
