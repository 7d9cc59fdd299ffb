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

from dataclasses import dataclass
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
from edgesim.compression.selection import kept_counts
from edgesim.costs.errors import CostError
from edgesim.costs.layer_work import FLOAT_BYTES, INDEX_BYTES, NOISE_OPS
from edgesim.gossip.algorithm import Algorithm
from edgesim.gossip.choco import Choco, FixedGraphChoco
from edgesim.gossip.dcd import Dcd
from edgesim.gossip.deep_squeeze import DeepSqueeze
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


@dataclass(frozen=True, slots=True)
class _Message:
    """One message of a compressor.

    Attributes:
        entries: K.
        held_bytes: codes and indices.
        compress: select, quantize, write.
        decode_ops: from code to number, per entry.
    """

    entries: int
    held_bytes: int
    compress: Work
    decode_ops: int

    def added(self, *, is_scaled: bool) -> Work:
        """Work of adding it to a vector, times a factor or not."""
        ops = self.decode_ops + (2 if is_scaled else 1)
        return Work(
            elementwise_ops=ops * self.entries,
            traffic_bytes=self.held_bytes + 2 * FLOAT_BYTES * self.entries,
        )


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
    if not isinstance(algorithm, Choco | FixedGraphChoco | DeepSqueeze | GradientPush | Dcd):
        raise CostError(f"an algorithm of type {type(algorithm).__name__} has no counts")
    if algorithm.layout.numel != numel:
        raise CostError(f"{numel} entries, but the layout has {algorithm.layout.numel}")
    message = _message(algorithm.compressor, algorithm.layout)
    plain, scaled = message.added(is_scaled=False), message.added(is_scaled=True)
    debias = _vector(numel, ops=1, passes=2)
    is_sending = min(out_degree, 1)
    match algorithm:
        case FixedGraphChoco():
            send = _vector(numel, ops=1, passes=3) + message.compress + plain  # q = C(x - h), h
            send += _vector(numel, ops=2, passes=3)  # x -= eta (1 - w) h
            absorb = scaled * in_degree + _vector(numel, ops=2, passes=3)  # S, x += eta S
            return send * is_sending + absorb + debias
        case Choco():
            edge = _vector(numel, ops=2, passes=3)  # x -= eta w h or x += eta w h
            send = _vector(numel, ops=1, passes=3) + message.compress + plain + edge
            return send * out_degree + (plain + edge) * in_degree + debias
        case DeepSqueeze():
            # v = delta + x, c = C(v), delta = v - c, x -= eta (1 - w) c
            send = _vector(numel, ops=1, passes=3) + message.compress + plain + scaled
            return send * is_sending + scaled * in_degree + debias
        case GradientPush():
            return (message.compress + scaled) * is_sending + scaled * in_degree + debias
        case Dcd():
            # t = x - h + sum_e w_e h[e] - (1 - w) h, q = C(t), h += q, x = h; u is 1 throughout
            send = _vector(numel, ops=1, passes=3) + _vector(numel, ops=2, passes=3)
            send += _vector(numel, ops=2, passes=3) * in_degree + message.compress + plain
            return send + _vector(numel, ops=0, passes=2) + plain * in_degree


def _vector(numel: int, *, ops: int, passes: int) -> Work:
    """Operations per entry, and vectors read and written."""
    return Work(elementwise_ops=ops * numel, traffic_bytes=passes * FLOAT_BYTES * numel)


def _message(compressor: Compressor, layout: ParameterLayout) -> _Message:
    """Work of compressing one vector of that layout."""
    entries, selection_ops, is_sparse = layout.numel, 0, False
    match compressor:
        case TopK() | RandomK():
            entries, is_sparse = int(kept_counts(compressor.keep, layout).sum()), True
            # Keys (|x|, or random numbers), the key of rank K, then a comparison of each with it.
            keys = 1 if isinstance(compressor, TopK) else NOISE_OPS
            selection_ops = round((keys + 1 + _quickselect(compressor.keep)) * layout.numel)
            code_ops, decode_ops, bits = _FORMAT_OPS[compressor.values]
        case Identity():
            code_ops, decode_ops, bits = _FORMAT_OPS[compressor.values]
        case MinMaxUInt8():  # minimum, maximum, x a, rounding, - L, two ends; (q + L) / a
            code_ops, decode_ops, bits = 7, 2, 8
        case SignScale():  # |x| and its sum, sign; 2 q - 1 and the magnitude
            code_ops, decode_ops, bits = 3, 3, 1
        case QSGD():  # square and sum, x / step, noise and its sum, rounding, two ends
            code_ops, decode_ops, bits = 3 + NOISE_OPS + 4, 1, compressor.bits + 1
        case _:
            raise CostError(f"a compressor of type {type(compressor).__name__} has no counts")
    held_bytes = -(-entries * bits // 8) + (INDEX_BYTES * entries if is_sparse else 0)
    compress = Work(
        elementwise_ops=selection_ops + code_ops * entries,
        traffic_bytes=FLOAT_BYTES * layout.numel + held_bytes,
    )
    return _Message(entries, held_bytes, compress, decode_ops)


# By value format: operations to quantize an entry, to decode it, and bits. int8: |x|, maximum,
# x / step, rounding, and back a product; fp16: a rounding, and back.
_FORMAT_OPS = {"fp32": (0, 0, 32), "fp64": (1, 0, 64), "fp16": (1, 1, 16), "int8": (4, 1, 8)}


def _quickselect(keep: float) -> float:
    """Comparisons per entry to find the key of that rank: 2 (1 + entropy of the rank, in nats).

    Mean over orders, for long vectors: D. E. Knuth, "Mathematical analysis of algorithms", IFIP
    Congress 1971.
    """
    entropy = -sum(p * log(p) for p in (keep, 1 - keep) if p > 0)
    return 2 * (1 + entropy)
