"""Bytes that a training step holds between its passes, counted from the tensors that exist.

Activations are counted by autograd's own hooks: what is saved for the backward pass, each storage
once however many functions saved it. What lives only while one layer or block computes, in fp32 in
either precision, comes on top and is not counted here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks

from edgesim.learning.flat_model import FlatModel


@dataclass(frozen=True, slots=True, kw_only=True)
class StepMemory:
    """Bytes held at the peak of a step.

    Attributes:
        parameters: the fp32 values that the optimizer updates.
        gradients: of the parameters.
        optimizer: state of the local optimizer.
        weight_codes: symmetric 8-bit weights kept from the forward to the backward pass; codes on
            other grids count as activations.
        activations: saved for the backward pass, by type of number.
    """

    parameters: int
    gradients: int
    optimizer: int
    weight_codes: int
    activations: Mapping[torch.dtype, int]

    @property
    def faithful(self) -> int:
        """All of it."""
        return self.parameters + self._without_parameters

    @property
    def paper(self) -> int:
        """Without fp32 master weights where there are 8-bit weights, as the paper counts.

        Source: reference.md, section 6.

        Weights then take one byte each, norm parameters and biases too.
        """
        if not self.weight_codes:
            return self.faithful
        return self.parameters // 4 + self._without_parameters - self.weight_codes

    @property
    def _without_parameters(self) -> int:
        held = self.gradients + self.optimizer + self.weight_codes
        return held + sum(self.activations.values())


def measure_step_memory(
    model: FlatModel, images_NCHW: Tensor, labels_N: Tensor, optimizer_state: Tensor
) -> StepMemory:
    """Run a step's forward and backward pass, and count what is held between them.

    Args:
        model: whose gradient is overwritten.
        images_NCHW: one batch.
        labels_N: its labels.
        optimizer_state: what the local optimizer keeps.
    """
    peak = _PeakOfSaved(model.parameters)
    with saved_tensors_hooks(peak.pack, _unpack):
        model.loss_and_gradient(images_NCHW, labels_N)
    return StepMemory(
        parameters=model.parameters.nbytes,
        gradients=model.gradient.nbytes,
        optimizer=optimizer_state.nbytes,
        weight_codes=peak.at_peak.get(torch.int8, 0),
        activations={kind: size for kind, size in peak.at_peak.items() if kind != torch.int8},
    )


class _PeakOfSaved:
    """Follows the storages that autograd holds; parameters are not counted.

    Attributes:
        at_peak: bytes by type of number when they were most in all.
    """

    def __init__(self, parameters: Tensor) -> None:
        self.at_peak: dict[torch.dtype, int] = {}
        self._parameters = parameters.untyped_storage().data_ptr()
        self._holders: Counter[int] = Counter()
        self._now: Counter[torch.dtype] = Counter()

    def pack(self, tensor: Tensor) -> _Held:
        """Called by autograd when a tensor is saved."""
        place = tensor.untyped_storage().data_ptr()
        if place != self._parameters:
            self._holders[place] += 1
            if self._holders[place] == 1:
                self._now[tensor.dtype] += tensor.untyped_storage().nbytes()
                if self._now.total() > sum(self.at_peak.values()):
                    self.at_peak = dict(self._now)
        return _Held(tensor.detach(), self)

    def release(self, tensor: Tensor) -> None:
        """Called when autograd lets go of it."""
        place = tensor.untyped_storage().data_ptr()
        if place != self._parameters:
            self._holders[place] -= 1
            if not self._holders[place]:
                self._now[tensor.dtype] -= tensor.untyped_storage().nbytes()


class _Held:
    """What autograd keeps in the place of a saved tensor."""

    def __init__(self, tensor: Tensor, peak: _PeakOfSaved) -> None:
        self.tensor = tensor
        self._peak = peak

    def __del__(self) -> None:
        self._peak.release(self.tensor)


def _unpack(held: _Held) -> Tensor:
    return held.tensor
