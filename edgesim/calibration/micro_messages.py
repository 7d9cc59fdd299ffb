"""Messages whose encoding and decoding are timed, as parts of a round that are no layers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import torch

from edgesim.calibration.micro_networks import Sizes
from edgesim.compression.compressors import Compressor, Identity, TopK
from edgesim.compression.loading import load_compiled_code
from edgesim.compression.wire import Message, decode, encode
from edgesim.hardware.work import LayerTally
from edgesim.learning.parameters import ParameterLayout

_KEEPS = (0.01, 0.1, 0.3)

# Number of tensors, entries of each: sizes between those of the catalog's models.
_LAYOUTS = ((8, 700), (20, 6_000), (50, 1_500), (90, 4_000), (40, 30_000), (16, 200_000))


@dataclass(frozen=True, slots=True)
class MicroMessage:
    """A message of Gaussian noise.

    Attributes:
        kind: `encoding` or `decoding`.
        shapes: of the tensors.
        compressor: that makes the message.
    """

    kind: str
    shapes: tuple[tuple[int, ...], ...]
    compressor: Compressor

    def made(self) -> tuple[Callable[[], None], tuple[LayerTally, ...]]:
        """A function that encodes or decodes it, and its sizes."""
        layout, rng = ParameterLayout.from_shapes(self.shapes), np.random.default_rng(0)
        x = torch.from_numpy(rng.standard_normal(layout.numel, np.float32))
        form = self.compressor.form(layout)

        def encoded() -> bytes:
            payload = self.compressor.compress(x, layout, rng)
            return encode(Message("message", 0, 1, 0, 0, 1.0, 1.0, payload))

        data = encoded()
        if self.kind == "encoding":
            return lambda: _ignore(encoded()), form.compress_work().layers
        return lambda: _ignore(decode(data, layout)), form.decode_work().layers


def micro_messages(sizes: Sizes) -> Iterator[MicroMessage]:
    """Sparse and dense messages in fp32, by compiled code, as a process codes all but its first."""
    load_compiled_code()
    layouts = _LAYOUTS if sizes == "full" else ((2, 50), (3, 90))
    compressors: tuple[Compressor, ...] = (
        *(TopK(keep, "fp32") for keep in _KEEPS),
        Identity("fp32"),
    )
    for num_tensors, numel in layouts:
        shapes = ((numel,),) * num_tensors
        for compressor in compressors:
            for kind in ("encoding", "decoding"):
                yield MicroMessage(kind, shapes, compressor)


def _ignore(_: object) -> None:
    """Take a result that nobody needs."""
