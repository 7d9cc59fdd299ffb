"""Work of a round beside the training step: optimizer and gossip, as passes over flat vectors.

Operations and traffic are those of the formulas, counted as in `layer_work.py`: each statement
below reads each of its vectors and writes its result once, 4 bytes an entry; messages are held as
codes, with 8 bytes for each index of a sparse one. Encoding to bytes and checksums are not counted.
No MACs: a vector operation has no operand to reuse, and is bound by memory.

Symbols:
    D: entries of the flat vector   K: entries of a message   x, h, S, delta, m: vectors
    q, c: decoded message   eta, w: rates and weights
"""

from __future__ import annotations

from functools import lru_cache
from math import log
from typing import Any

from edgesim.compression.compressors import (
    QSGD,
    Compressor,
    Identity,
    MinMaxUInt8,
    RandomK,
    SignScale,
    TopK,
)
from edgesim.compression.value_codes import ValueFormat
from edgesim.costs.errors import CostError
from edgesim.costs.layer_work import NOISE_OPS
from edgesim.costs.message_form import CountedAlgorithm, MessageForm
from edgesim.costs.widths import FLOAT_BYTES, INDEX_BYTES
from edgesim.gossip.algorithm import Algorithm
from edgesim.gossip.choco import Choco
from edgesim.gossip.choco_numerator import ChocoNumerator
from edgesim.gossip.dcd import Dcd
from edgesim.gossip.deep_squeeze import DeepSqueeze
from edgesim.gossip.fixed_graph_choco import FixedGraphChoco
from edgesim.gossip.gradient_push import GradientPush
from edgesim.hardware.work import Work
from edgesim.learning.optimizers import Optimizer, QuasiGlobalMomentum, Sgd
from edgesim.learning.parameters import ParameterLayout


def optimizer_work(optimizer: Optimizer, num_trainable: int) -> Work:
    """Work of one round's local step, and of what the optimizer learns from gossip.

    Raises:
        CostError: an optimizer of unknown work.
    """
    match optimizer:
        case Sgd():
            # a = g + wd x, m = beta m + a, x -= gamma d; Nesterov: d = a + beta m. Two each.
            ops, passes = (8 if optimizer.nesterov else 6), 5  # g, x and m read, x and m written
        case QuasiGlobalMomentum():
            # a: 2; d = (1 + beta) a + beta^2 m: 3, or a + beta m: 2; x: 2; m = beta m + (1 - beta)
            # d: 3; then r = x - x~: 1, m -= r (1 - beta) / (gamma u): 2.
            ops = 13 if optimizer.nesterov else 12
            passes = 6 + 4  # as above and x~ written; then x, x~ and m read, m written
        case _:
            raise CostError(f"an optimizer of type {type(optimizer).__name__} has no counts")
    return Work(
        elementwise_ops=ops * num_trainable, traffic_bytes=passes * FLOAT_BYTES * num_trainable
    )


@lru_cache(maxsize=1024)
def gossip_work(algorithm: Algorithm[Any], numel: int, out_degree: int, in_degree: int) -> Work:
    """Work of one round's gossip on one device, z = x/u of the next step included.

    Args:
        algorithm: with its compressor and layout.
        numel: D.
        out_degree: active out-edges in the round.
        in_degree: messages absorbed in it.

    Raises:
        CostError: an algorithm or compressor of unknown work, or a layout of another length.
    """
    if not isinstance(algorithm, CountedAlgorithm):
        raise CostError(f"an algorithm of type {type(algorithm).__name__} has no counts")
    if algorithm.layout.numel != numel:
        raise CostError(f"{numel} entries, but the layout has {algorithm.layout.numel}")
    message = _Message(algorithm.compressor, algorithm.layout)
    compress, plain, scaled = message.compress(), message.add(), message.add_times()
    debias = _vector(numel, ops=1, passes=2)
    is_sending, is_hearing = min(out_degree, 1), min(in_degree, 1)
    match algorithm:
        case FixedGraphChoco():
            send = _vector(numel, ops=1, passes=3) + compress + plain  # q = C(x - h), h += q
            send += _vector(numel, ops=2, passes=3)  # x -= eta (1 - w) h
            mix = _vector(numel, ops=2, passes=3) * is_hearing  # x += eta S
            return send * is_sending + scaled * in_degree + mix + debias
        case Choco() | ChocoNumerator():
            edge = _vector(numel, ops=2, passes=3)  # x -= eta w u h or x += eta w u h
            send = _vector(numel, ops=1, passes=3) + compress + plain + edge  # q = C(z - h), h += q
            if isinstance(algorithm, Choco):
                send += _vector(numel, ops=1, passes=2)  # z = x/u, anew for each edge
            return send * out_degree + (plain + edge) * in_degree + debias
        case DeepSqueeze():
            # v = delta + x, c = C(v), delta = v - c, x -= eta (1 - w) c
            send = _vector(numel, ops=1, passes=3) + compress + plain + scaled
            return send * is_sending + scaled * in_degree + debias
        case GradientPush():
            return (compress + scaled) * is_sending + scaled * in_degree + debias
        case Dcd():
            # t = x - h + sum_e w_e h[e] - (1 - w) h, q = C(t), h += q, x = h; u is 1 throughout
            send = _vector(numel, ops=1, passes=3) + _vector(numel, ops=2, passes=3)
            send += _vector(numel, ops=2, passes=3) * in_degree + compress + plain
            send += _vector(numel, ops=0, passes=2)
            return send * is_sending + plain * in_degree


def _vector(numel: int, *, ops: int, passes: int) -> Work:
    """Operations per entry, and vectors read and written."""
    return Work(elementwise_ops=ops * numel, traffic_bytes=passes * FLOAT_BYTES * numel)


class _Message:
    """Work on one message of a compressor."""

    def __init__(self, compressor: Compressor, layout: ParameterLayout) -> None:
        self._form = MessageForm.of(compressor, layout)
        self._numel = layout.numel
        self._selection_ops = _selection_ops(compressor, layout.numel)
        self._code_ops, self._decode_ops = _code_ops(compressor)
        indices = INDEX_BYTES * self._form.entries if self._form.is_sparse else 0
        self._held_bytes = self._form.value_bytes + indices

    def compress(self) -> Work:
        """Select and quantize the entries of a vector."""
        return Work(
            elementwise_ops=self._selection_ops + self._code_ops * self._form.entries,
            traffic_bytes=FLOAT_BYTES * self._numel + self._held_bytes,
        )

    def add(self) -> Work:
        """Add the message to a vector."""
        return self._added(ops=1)

    def add_times(self) -> Work:
        """Add the message times a factor."""
        return self._added(ops=2)

    def _added(self, ops: int) -> Work:
        return Work(
            elementwise_ops=(self._decode_ops + ops) * self._form.entries,
            traffic_bytes=self._held_bytes + 2 * FLOAT_BYTES * self._form.entries,
        )


def _code_ops(compressor: Compressor) -> tuple[int, int]:
    """Operations to quantize an entry, and to decode it."""
    match compressor:
        case MinMaxUInt8():  # minimum, maximum, x a, rounding, - L, two ends; (q + L) / a
            return 7, 2
        case SignScale():  # |x| and its sum, sign; 2 q - 1 and the magnitude
            return 3, 3
        case QSGD():  # square and sum, x / step, noise and its sum, rounding, two ends; q step
            return 3 + NOISE_OPS + 4, 1
        case TopK() | RandomK() | Identity():
            return _FORMAT_OPS[compressor.values]
        case _:
            raise CostError(f"a compressor of type {type(compressor).__name__} has no counts")


# int8: |x|, maximum, x / step, rounding, and back a product; fp16: a rounding, and back.
_FORMAT_OPS: dict[ValueFormat, tuple[int, int]] = {
    "fp32": (0, 0),
    "fp64": (1, 0),
    "fp16": (1, 1),
    "int8": (4, 1),
}


def _selection_ops(compressor: Compressor, numel: int) -> int:
    """Operations to find the entries that are kept.

    Keys (|x|, or random numbers), the key of rank K, then a comparison of each key with it.
    Quickselect takes 2 (1 + entropy of the rank) comparisons an entry, in nats, in the mean over
    orders of a long vector: D. E. Knuth, "Mathematical analysis of algorithms", IFIP Congress 1971.
    """
    if not isinstance(compressor, TopK | RandomK):
        return 0
    key_ops = 1 if isinstance(compressor, TopK) else NOISE_OPS
    entropy = -sum(p * log(p) for p in (compressor.keep, 1 - compressor.keep) if p > 0)
    return round((key_ops + 1 + 2 * (1 + entropy)) * numel)
