"""The counts of a model that cost tables need, in closed form or measured."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from edgesim.costs.layer_work import StepWork
from edgesim.costs.memory_table import Component
from edgesim.costs.model_form import ModelForm
from edgesim.quant.backends import BackendName


class CountedModel(Protocol):
    """A model and one of its training steps."""

    @property
    def form(self) -> ModelForm:
        """Name, sizes and arithmetic of the model."""
        ...

    @property
    def batch_size(self) -> int:
        """Samples of the step."""
        ...

    @property
    def step_work(self) -> StepWork:
        """Work of the step."""
        ...

    @property
    def num_trainable(self) -> int:
        """Trained parameters."""
        ...

    @property
    def flat_shapes(self) -> tuple[tuple[int, ...], ...]:
        """Shapes of all tensors in the flat vector."""
        ...

    @property
    def measured_layers(self) -> tuple[str, ...]:
        """Descriptions of layers without closed form; empty in models of the catalog."""
        ...

    @property
    def paper_inputs(self) -> int:
        """Entries that a training step holds per sample by the paper's convention."""
        ...

    @property
    def batch_bytes(self) -> int:
        """Bytes of a batch of inputs and labels."""
        ...

    @property
    def statistics_bytes(self) -> int:
        """Bytes of the model's buffers, and of the device's copies of its float buffers."""
        ...

    def peak_of_step(self, backend: BackendName) -> Mapping[Component, int]:
        """Additional bytes at the peak of a step, by component, relative to the time before it."""
        ...
