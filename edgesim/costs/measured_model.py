"""A model from outside, counted and measured by running one training step.

Layers of known types are counted in closed form, all others measured (`measured.py`). Memory is
measured as a whole: a closed form would need the connections between layers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from edgesim.costs.describe import measured_layers
from edgesim.costs.layer import NORM_KINDS, PRODUCT_KINDS, Kind
from edgesim.costs.layer_work import StepWork
from edgesim.costs.measured import held_by_autograd
from edgesim.costs.memory_table import Component
from edgesim.costs.model_form import ModelForm
from edgesim.costs.work_meter import WorkMeter
from edgesim.hardware.widths import CODE_BYTES, FLOAT_BYTES, INDEX_BYTES
from edgesim.learning.flat_model import FlatModel
from edgesim.models.dropout import seed_dropout_
from edgesim.models.own import OwnModel
from edgesim.quant.backends import BackendName

_PAPERS_KINDS: frozenset[Kind] = PRODUCT_KINDS | NORM_KINDS


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredModel:
    """Counts of a model from outside and of one of its training steps; see `CountedModel`.

    Attributes:
        form: of the model; it has no norm of the catalog.
        batch_size: samples of the step.
        step_work: of the step.
        num_trainable: trained parameters.
        flat_shapes: of all tensors in the flat vector.
        measured_layers: descriptions of parts that add counts without closed form.
        stays_fp32: descriptions of parts that stay in fp32 with precision int8.
        held_bytes: storages that autograd holds at the end of the forward pass.
        gradient_bytes: largest sum of the gradients at output and input of one module.
        batch_bytes: of inputs and labels.
        statistics_bytes: of buffers, those of a device included.
    """

    form: ModelForm
    batch_size: int
    step_work: StepWork
    num_trainable: int
    flat_shapes: tuple[tuple[int, ...], ...]
    measured_layers: tuple[str, ...]
    stays_fp32: tuple[str, ...]
    held_bytes: int
    gradient_bytes: int
    batch_bytes: int
    statistics_bytes: int

    @property
    def paper_inputs(self) -> int:
        """Inputs of the products and norms that have closed forms, and the outputs of the model."""
        layers = [work.layer for work in self.step_work.layers]
        held = sum(layer.input_entries for layer in layers if layer.kind in _PAPERS_KINDS)
        return held // self.batch_size + self.form.num_classes

    def peak_of_step(self, backend: BackendName) -> Mapping[Component, int]:
        """Bytes held at the end of the forward pass, plus the largest gradients."""
        del backend  # the step was measured with the back end `reference`
        layers = [work.layer for work in self.step_work.layers]
        codes = sum(CODE_BYTES * layer.num_weights for layer in layers if layer.settings)
        return {
            "weights": codes,
            "activations": self.batch_bytes + self.held_bytes - codes,
            "layer_gradients": self.gradient_bytes,
        }


def measure_model(flat: FlatModel, form: ModelForm, inputs: Tensor) -> MeasuredModel:
    """Run one training step and count it.

    Args:
        flat: with a model from outside, on the CPU.
        form: of the model.
        inputs: a full batch.
    """
    model = flat.model
    assert isinstance(model, OwnModel), "models of the catalog have closed forms"
    meter, largest = WorkMeter(flat), 0

    def note(_: nn.Module, args: tuple[Any, ...], output: object) -> None:
        nonlocal largest
        tensors = [t for t in (*args, output) if isinstance(t, Tensor) and t.is_floating_point()]
        largest = max(largest, FLOAT_BYTES * sum(t.numel() for t in tensors))

    handles = [m.register_forward_hook(note) for m in model.inner.modules()]
    seed_dropout_(flat.leaf_modules, 0)
    flat.model.train()
    with meter.watch(inputs.shape), flat.around_step(), held_by_autograd(model) as held_bytes:
        output = model(inputs)
        held = held_bytes() + FLOAT_BYTES * output.numel()  # what the loss keeps
    for handle in handles:
        handle.remove()
    buffers = list(model.buffers())
    floats = sum(b.numel() for b in buffers if b.is_floating_point())
    others = sum(b.numel() * b.element_size() for b in buffers if not b.is_floating_point())
    frozen = sum(p.numel() for key, p in model.named_parameters() if key in model.frozen_names)
    return MeasuredModel(
        form=form,
        batch_size=len(inputs),
        step_work=meter.work(inputs.shape),
        num_trainable=flat.num_trainable,
        flat_shapes=flat.layout.shapes,
        measured_layers=measured_layers(model, meter.measured_parts),
        stays_fp32=model.stays_fp32,
        held_bytes=held,
        gradient_bytes=largest,
        batch_bytes=inputs.numel() * inputs.element_size() + INDEX_BYTES * len(inputs),
        statistics_bytes=FLOAT_BYTES * (2 * floats + frozen) + others,
    )
