"""Work of a step: counts that do not depend on clocks or prices."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields

from edgesim.hardware.widths import FLOAT_BYTES

NOISE_OPS = 7  # quant/rounding_noise.py: 12 for two entries (hash 10, halves 2), then each scaled


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """Operations and memory traffic of a step, or of several.

    A multiply-accumulate (MAC) is one product and one addition. Its precision is that of its
    operands; sums of 8-bit products are 32 bits wide, sums of 16-bit ones as well.

    Attributes:
        macs_int8: products of 8-bit codes.
        macs_16bit: products with a 16-bit float operand.
        macs_fp32: products of 32-bit floats.
        elementwise_ops: additions, products, comparisons and the like outside of MACs.
        traffic_bytes: bytes read from and written to memory, each operand of each layer once.
        layers: the part of these counts that layers do, by kind of layer, for clocks that know how
            long each kind takes. Works with the same counts are equal, whatever their layers.
    """

    macs_int8: int = 0
    macs_16bit: int = 0
    macs_fp32: int = 0
    elementwise_ops: int = 0
    traffic_bytes: int = 0
    layers: tuple[LayerTally, ...] = field(default=(), compare=False)

    @property
    def macs(self) -> int:
        """MACs of all precisions."""
        return self.macs_int8 + self.macs_16bit + self.macs_fp32

    @property
    def counts(self) -> dict[str, int]:
        """Operations and bytes by name, without the layers."""
        return {name: getattr(self, name) for name in COUNTS}

    def __add__(self, other: Work) -> Work:
        """Work of both."""
        layers = _merged(self.layers, other.layers)
        return Work(
            **{name: getattr(self, name) + getattr(other, name) for name in COUNTS}, layers=layers
        )

    def __mul__(self, times: int) -> Work:
        """The same work several times."""
        return self.each(lambda count: count * times)

    def without(self, layers: Sequence[LayerTally]) -> Work:
        """Counts of operations and bytes less those of some of its layers, without layers."""
        rest = self.counts
        for tally in layers:
            rest = {name: count - getattr(tally.work, name) for name, count in rest.items()}
        return Work(**rest, layers=())

    def each(self, change: Callable[[float], float]) -> Work:
        """Work with all counts changed in proportion; operations and bytes are rounded."""
        counts = {name: round(change(getattr(self, name))) for name in COUNTS}
        return Work(**counts, layers=tuple(tally.each(change) for tally in self.layers))


COUNTS = tuple(field.name for field in fields(Work) if field.name != "layers")
"""Names of the counts of operations and bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerTally:
    """Sizes of the layers of one kind, added up, forward and backward pass together.

    Attributes:
        kind: of the layers, a key of `layer_kinds.LAYER_KINDS`.
        calls: number of layers.
        macs: products of all passes and precisions.
        entries: numbers that go into the layers and come out of them in the forward pass.
        far_entries: of these, those of each layer beyond the first `FAR_ENTRIES`.
        weights: numbers in the weights of products.
        work: operations and bytes of these layers, without layers.
    """

    kind: str
    calls: float
    macs: float
    entries: float
    far_entries: float
    weights: float
    work: Work

    def __add__(self, other: LayerTally) -> LayerTally:
        """Layers of both, which are of the same kind."""
        assert self.kind == other.kind, "tallies of one kind"
        sizes = {name: getattr(self, name) + getattr(other, name) for name in _SIZES}
        return LayerTally(kind=self.kind, work=self.work + other.work, **sizes)

    def each(self, change: Callable[[float], float]) -> LayerTally:
        """Layers with all sizes changed in proportion."""
        sizes = {name: change(getattr(self, name)) for name in _SIZES}
        return LayerTally(kind=self.kind, work=self.work.each(change), **sizes)


_SIZES = ("calls", "macs", "entries", "far_entries", "weights")
FAR_ENTRIES = 2**21
"""Numbers of one layer, 8 MiB of fp32, beyond which they are taken to lie outside of caches."""


def _merged(
    layers: tuple[LayerTally, ...], others: tuple[LayerTally, ...]
) -> tuple[LayerTally, ...]:
    """Tallies of both, one a kind, in the order in which the kinds come."""
    if not layers or not others:
        return layers or others
    by_kind = {tally.kind: tally for tally in layers}
    for tally in others:
        known = by_kind.get(tally.kind)
        by_kind[tally.kind] = tally if known is None else known + tally
    return tuple(by_kind.values())


def vector_work(numel: int, *, ops: int, passes: int) -> Work:
    """Work of a statement on flat vectors of fp32.

    Args:
        numel: entries of a vector.
        ops: operations per entry.
        passes: number of vectors read plus number of vectors written.
    """
    return Work(elementwise_ops=ops * numel, traffic_bytes=passes * FLOAT_BYTES * numel)
