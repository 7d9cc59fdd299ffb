"""A compressor of one's own in a run: each payload is checked, so that late faults are told."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from edgesim.assembly.parts.own_calls import Checked
from edgesim.compression.buckets import message_layout
from edgesim.compression.compressors import Compressor
from edgesim.compression.errors import WrongPayloadError
from edgesim.compression.payload import Payload
from edgesim.learning.parameters import ParameterLayout


class CheckedCompressor(Checked[Compressor]):
    """Does what a compressor of one's own does, and checks what it gives."""

    def conventions(self, layout: ParameterLayout) -> Mapping[str, int]:
        """As `Compressor.conventions`."""
        return {name: int(size) for name, size in self.own.conventions(layout).items()}

    def compress(self, x: Tensor, layout: ParameterLayout, rng: np.random.Generator) -> Payload:
        """As `Compressor.compress`.

        Raises:
            WrongPayloadError: the payload can't be sent, has more entries than `form` says, or x
                was changed.
        """
        before = x.clone()
        payload = self.own.compress(x, layout, rng)
        sent = message_layout(self.own, layout)
        if problem := wrong_payload(payload, sent, self.own.form(layout).entries):
            raise WrongPayloadError.of(f"compress gives {problem}")
        if not np.isfinite(payload.values).all() and torch.isfinite(x).all():
            raise WrongPayloadError.of(
                "compress gives values that are not finite, though x is: raise NonFiniteEntryError "
                "where x is beyond the range of the code"
            )
        if not torch.equal(x, before) and not _are_alike(x, before):
            raise WrongPayloadError.of("compress changes x, which is not its own; copy it first")
        return payload


def _are_alike(x: Tensor, other: Tensor) -> bool:
    """Whether vectors are equal, where NaN equals itself."""
    return bool(((x == other) | (x.isnan() & other.isnan())).all())


def checked(compressor: Compressor) -> Compressor:
    """A compressor of one's own whose payloads are checked."""
    return cast("Compressor", CheckedCompressor(compressor))


def unchecked(compressor: Compressor) -> Compressor:
    """The compressor itself, as it is tried before a run."""
    return compressor.own if isinstance(compressor, CheckedCompressor) else compressor


def wrong_payload(payload: Any, layout: ParameterLayout, most: int) -> str:  # noqa: ANN401 (what one's own code gives)
    """What is wrong with a payload; empty if nothing is. Its bits are checked when it is encoded.

    Args:
        payload: that a compressor gave.
        layout: that it must have: of the vector that was given, or of its buckets.
        most: values that it may have.
    """
    if not isinstance(payload, Payload):
        return f"an object of type {type(payload).__name__}; must be a Payload"
    if payload.layout != layout:
        return (
            f"a payload of another layout, of {payload.layout.numel} entries; give it that of the "
            f"vector, of {layout.numel}"
        )
    if problem := payload.wrong_positions():
        return f"a payload that can't be sent: {problem}"
    wanted = payload.code.unpack(np.empty(0, np.uint8), 0).dtype
    codes, indices, counts = payload.codes, payload.indices, payload.counts
    if not isinstance(codes, np.ndarray) or codes.dtype != wanted or codes.ndim != 1:
        found = getattr(codes, "dtype", type(codes).__name__)
        return f"codes of {found}; {payload.code.label} takes {wanted} along one axis"
    positions = layout.numel if indices is None else len(indices)
    if not len(codes) == positions == counts.sum() or len(counts) != layout.num_tensors:
        return (
            f"{len(codes)} codes for {positions} positions, with counts of {counts.sum()} in "
            f"{len(counts)} of {layout.num_tensors} tensors"
        )
    if indices is None and not np.array_equal(counts, layout.size_array):
        return "all entries, but its counts are not layout.size_array"
    shape = layout.num_tensors, payload.code.scales_per_tensor
    scales = payload.scales
    if not isinstance(scales, np.ndarray) or scales.dtype != np.float32 or scales.shape != shape:
        dtype, found = getattr(scales, "dtype", type(scales).__name__), getattr(scales, "shape", ())
        return f"scales of {dtype} and shape {found}; {payload.code.label} takes float32 {shape}"
    if indices is not None and len(indices):
        least, largest = int(indices.min()), int(indices.max())
        if not 0 <= least <= largest < layout.numel:
            return f"indices from {least} to {largest}, of {layout.numel} entries"
    if len(codes) > most:
        return (
            f"{len(codes)} values, and form(layout) says at most {most}; say the largest number, "
            "since work and memory are counted by it"
        )
    return ""
