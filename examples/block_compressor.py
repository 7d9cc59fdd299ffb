"""A compressor of one's own: it sends the largest entry of each block of neighbouring entries."""

from dataclasses import dataclass

import numpy as np

from edgesim.compression.errors import NonFiniteEntryError
from edgesim.compression.message_form import MessageForm
from edgesim.compression.payload import Payload
from edgesim.compression.segments import Segments
from edgesim.compression.value_codes import FloatCode

FP32 = FloatCode(32)


@dataclass(frozen=True)
class LargestOfBlocks:
    """Contractive: an entry of each block remains, and no other has a larger magnitude."""

    block: int
    name = "largest_of_blocks"  # without an annotation, so that it is no option
    error_grows = False

    @property
    def keep(self):
        return 1 / self.block

    def form(self, layout):
        ops = 2 * layout.numel  # |x|, and a comparison with the largest so far
        return MessageForm.sparse(FP32, self._counts(layout), layout, select_ops=ops)

    def conventions(self, layout):
        return {}  # nobody else counts such messages

    def compress(self, x, layout, rng):
        values = x.numpy()
        if not np.isfinite(values).all():
            raise NonFiniteEntryError("an entry is not finite")
        counts = self._counts(layout)
        tensors = zip(layout.offsets[:-1], layout.sizes, strict=True)
        indices = np.concatenate(
            [start + self._largest(values[start : start + n]) for start, n in tensors]
        )
        codes, scales = FP32.quantize(values[indices], Segments(counts))
        return Payload(layout, FP32, indices, counts, codes, scales)

    def _counts(self, layout):
        return -(-layout.size_array // self.block)

    def _largest(self, values):
        padded = np.full(-(-len(values) // self.block) * self.block, -1.0)
        padded[: len(values)] = np.abs(values)
        places = padded.reshape(-1, self.block).argmax(axis=1)
        return places + self.block * np.arange(len(places))
