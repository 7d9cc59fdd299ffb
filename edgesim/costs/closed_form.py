"""Counts of a model of the catalog and of one of its training steps, before anything runs.

The model is built without storage and passes shapes from layer to layer (`shapes_alone.py`). All of
its layers have closed forms of work and memory. Tests compare the counts, layer by layer, with
formulas of the architectures (reference.md, section 5) and with steps that ran.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import lru_cache
from math import prod

from edgesim.costs.errors import CostError
from edgesim.costs.layer import NORM_KINDS, PRODUCT_KINDS, Kind, Layer
from edgesim.costs.layer_work import StepWork
from edgesim.costs.memory_table import Component
from edgesim.costs.model_form import ModelForm
from edgesim.costs.shapes_alone import layers_of_step
from edgesim.costs.step_replay import peak_of_step
from edgesim.hardware.widths import FLOAT_BYTES, INDEX_BYTES
from edgesim.models.catalog import MODELS
from edgesim.models.eight_bit import EightBit
from edgesim.models.initialization import outline
from edgesim.models.kind import ModelSize
from edgesim.models.layers import FullPrecision, Layers
from edgesim.quant.backends import BackendName
from edgesim.quant.layers import InputQuantizer
from edgesim.quant.reference import Reference

_RUNNING_STATISTICS: frozenset[Kind] = frozenset({"batch_norm", "range_batch_norm"})


@dataclass(frozen=True, slots=True, kw_only=True)
class ClosedForm:
    """Counts of a model and of one of its training steps.

    Attributes:
        form: of the model.
        batch_size: samples of the step.
        layers: of the step, in the order of the forward pass.
        parameter_shapes: of the trained tensors, in the model's order.
        num_quantizers: 8-bit inputs, each with a running range of two numbers.
    """

    form: ModelForm
    batch_size: int
    layers: tuple[Layer, ...]
    parameter_shapes: tuple[tuple[int, ...], ...]
    num_quantizers: int

    @property
    def step_work(self) -> StepWork:
        """MACs, element-wise operations and traffic; the first layer has no input gradient."""
        return StepWork.of(self.layers)

    @property
    def num_trainable(self) -> int:
        """Trained parameters."""
        return sum(map(prod, self.parameter_shapes))

    @property
    def flat_shapes(self) -> tuple[tuple[int, ...], ...]:
        """Shapes of all tensors in the flat vector: the trained ones, then gossiped ranges.

        Source: reference.md, section 1.5.
        """
        settings = self.form.settings
        if settings is None or settings.ranges == "local":
            return self.parameter_shapes
        return self.parameter_shapes + ((1,),) * (2 * self.num_quantizers)

    @property
    def forward_macs_per_sample(self) -> int:
        """MACs of the forward pass of one sample, by which models are compared."""
        return self.step_work.forward.macs // self.batch_size

    @property
    def product_inputs(self) -> int:
        """Entries of the inputs of convolutions and linear layers, per sample."""
        return self._input_entries(PRODUCT_KINDS)

    @property
    def norm_inputs(self) -> int:
        """Entries of the inputs of norms, per sample."""
        return self._input_entries(NORM_KINDS)

    @property
    def measured_layers(self) -> tuple[str, ...]:
        """Empty: all layers have closed forms."""
        return ()

    @property
    def paper_inputs(self) -> int:
        """Inputs of all convolutions, linear layers and norms, and the logits, per sample."""
        return self.product_inputs + self.norm_inputs + self.form.num_classes

    @property
    def batch_bytes(self) -> int:
        """Bytes of images and labels."""
        return FLOAT_BYTES * self.layers[0].input_entries + INDEX_BYTES * self.batch_size

    @property
    def statistics_bytes(self) -> int:
        """Bytes of the model's buffers, and of the device's copies of its float buffers."""
        settings = self.form.settings
        is_local = settings is not None and settings.ranges == "local"
        floats, counters = 2 * self.num_quantizers if is_local else 0, 0
        for layer in self.layers:
            if layer.kind in _RUNNING_STATISTICS:
                floats += 2 * layer.input_shape[1]
                counters += layer.kind == "batch_norm"  # torch counts its batches
        return 2 * FLOAT_BYTES * floats + INDEX_BYTES * counters

    def peak_of_step(self, backend: BackendName) -> Mapping[Component, int]:
        """Additional bytes at the peak of a step, by component, relative to the time before it."""
        return peak_of_step(self.layers, backend)

    def _input_entries(self, kinds: Collection[Kind]) -> int:
        return sum(prod(layer.input_shape[1:]) for layer in self.layers if layer.kind in kinds)


@lru_cache(maxsize=64)  # the budget asks for the same batch sizes many times
def closed_form(form: ModelForm, batch_size: int) -> ClosedForm:
    """Counts of a model of the catalog.

    Raises:
        CostError: the catalog has no such model.
    """
    if form.name not in MODELS:
        raise CostError(f"no counts for a model named {form.name!r}; there are {', '.join(MODELS)}")
    channels, height, width = form.image_shape
    image, size = (channels, height, width), ModelSize(form.depth, form.width)
    make, layers = MODELS[form.name].make, _layers_of(form)
    model = outline(lambda: make(layers, image, form.num_classes, size))
    trained = (p for p in model.parameters() if p.requires_grad)
    return ClosedForm(
        form=form,
        batch_size=batch_size,
        parameter_shapes=tuple(tuple(parameter.shape) for parameter in trained),
        num_quantizers=sum(isinstance(module, InputQuantizer) for module in model.modules()),
        layers=layers_of_step(model, (batch_size, *form.image_shape)),
    )


def _layers_of(form: ModelForm) -> Layers:
    assert form.norm is not None, "models of the catalog have one"
    if form.settings is None:
        return FullPrecision(form.norm, form.gate, form.conv_bias)
    unused = Reference(has_integer_zero=form.settings.has_integer_zero)
    return EightBit(form.norm, unused, form.settings, conv_bias=form.conv_bias)
