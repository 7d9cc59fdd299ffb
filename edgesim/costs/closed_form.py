"""Layers, products and parameters of the catalog's models by their architectures' formulas.

Written from the architectures (reference.md, section 5), apart from the code that builds and runs
the models: nothing here makes a tensor. Tests hold the two to each other, layer by layer.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from math import prod
from typing import Literal

from edgesim.costs.errors import CostError
from edgesim.costs.layer import Kind, Layer
from edgesim.costs.layer_plan import NORM_FORMS, LayerPlan, ModelForm
from edgesim.costs.layer_work import StepWork
from edgesim.costs.memory_table import Component
from edgesim.costs.step_replay import peak_of_step
from edgesim.hardware.widths import FLOAT_BYTES, INDEX_BYTES
from edgesim.quant.backends import BackendName

_NORM_KINDS = frozenset(kind for kind, _, _ in NORM_FORMS.values())
_RUNNING_STATISTICS: frozenset[Kind] = frozenset({"batch_norm", "range_batch_norm"})
_LARGE_IMAGE_SIDE = 96  # of MobileNetV2: from here on its layout for large images


@dataclass(frozen=True, slots=True, kw_only=True)
class MacCount:
    """Multiply-accumulates of a step, by pass."""

    forward: int
    input_gradient: int
    weight_gradient: int

    @property
    def total(self) -> int:
        """Of all passes."""
        return self.forward + self.input_gradient + self.weight_gradient


@dataclass(frozen=True, slots=True, kw_only=True)
class ClosedForm:
    """Counts of a model and of one of its training steps.

    Attributes:
        form: of the model.
        batch_size: samples of the step.
        layers: of the step, in the order of the forward pass.
        macs: of the step; its first layer has no input gradient.
        parameter_shapes: of the trained tensors, in the model's order.
        num_quantizers: 8-bit inputs, each with a running range of two numbers.
    """

    form: ModelForm
    batch_size: int
    layers: tuple[Layer, ...]
    macs: MacCount
    parameter_shapes: tuple[tuple[int, ...], ...]
    num_quantizers: int

    @property
    def step_work(self) -> StepWork:
        """Work of the step, element by element and byte by byte too."""
        return StepWork.of(self.layers)

    @property
    def num_trainable(self) -> int:
        """Trained parameters."""
        return sum(map(prod, self.parameter_shapes))

    @property
    def flat_shapes(self) -> tuple[tuple[int, ...], ...]:
        """Of all tensors in the flat vector: gossiped ranges follow the trained ones.

        Source: reference.md, section 1.5.
        """
        settings = self.form.settings
        if settings is None or settings.ranges == "local":
            return self.parameter_shapes
        return self.parameter_shapes + ((1,),) * (2 * self.num_quantizers)

    @property
    def forward_macs_per_sample(self) -> int:
        """MACs of the forward pass of one sample, by which models are compared."""
        return self.macs.forward // self.batch_size

    @property
    def paper_macs(self) -> int:
        """MACs of the step by the paper's convention: three times the forward pass.

        Source: reference.md, section 6.
        """
        return 3 * self.macs.forward

    @property
    def product_inputs(self) -> int:
        """Entries of the inputs of convolutions and linear layers, per sample."""
        return self._entries("input", {"convolution", "linear"})

    @property
    def norm_inputs(self) -> int:
        """Entries of the inputs of norms, per sample."""
        return self._entries("input", _NORM_KINDS)

    @property
    def outputs(self) -> int:
        """Entries of the outputs of convolutions, norms and residual sums, per sample."""
        return self._entries("output", {"convolution", "residual_sum", *_NORM_KINDS})

    @property
    def measured_layers(self) -> tuple[str, ...]:
        """None: all layers have closed forms."""
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
        """Bytes of the model's buffers, and of the device's own ones of these that are floats."""
        settings = self.form.settings
        is_local = settings is not None and settings.ranges == "local"
        floats, counters = 2 * self.num_quantizers if is_local else 0, 0
        for layer in self.layers:
            if layer.kind in _RUNNING_STATISTICS:
                floats += 2 * layer.input_shape[1]
                counters += layer.kind == "batch_norm"  # torch counts its batches
        return 2 * FLOAT_BYTES * floats + INDEX_BYTES * counters

    def peak_of_step(self, backend: BackendName) -> Mapping[Component, int]:
        """Bytes at the peak of a step, by component, beside what is there before it."""
        return peak_of_step(self.layers, backend)

    def _entries(self, side: Literal["input", "output"], kinds: Collection[Kind]) -> int:
        chosen = [layer for layer in self.layers if layer.kind in kinds]
        shapes = [x.input_shape if side == "input" else x.output_shape for x in chosen]
        return sum(prod(shape[1:]) for shape in shapes)


def closed_form(form: ModelForm, batch_size: int) -> ClosedForm:
    """Counts of a model of the catalog.

    Raises:
        CostError: there are no formulas for the model.
    """
    if form.name not in _ARCHITECTURES:
        raise CostError(
            f"no formulas for a model named {form.name!r}; there are {', '.join(_ARCHITECTURES)}"
        )
    plan = LayerPlan(form, batch_size)
    _ARCHITECTURES[form.name](plan)
    forward = plan.macs_per_sample * batch_size
    return ClosedForm(
        form=form,
        batch_size=batch_size,
        layers=tuple(plan.layers),
        macs=MacCount(
            forward=forward,
            input_gradient=forward - plan.first_macs_per_sample * batch_size,
            weight_gradient=forward,
        ),
        parameter_shapes=tuple(plan.parameter_shapes),
        num_quantizers=plan.num_quantizers,
    )


def _small_cnn(plan: LayerPlan) -> None:
    """3x3 convolutions of 16, 32 and 64 channels, 2x2 poolings between; a linear layer."""
    _conv_norm(plan, "features.0", "features.1", 16, 3)
    plan.max_pool("features.2", 2, s=2, ceils=True)
    _conv_norm(plan, "features.3", "features.4", 32, 3)
    plan.max_pool("features.5", 2, s=2, ceils=True)
    _conv_norm(plan, "features.6", "features.7", 64, 3)
    _linear_head(plan)


def _small_image_resnet(plan: LayerPlan, blocks: int, width: int = 16) -> None:
    """Three stages of w, 2 w and 4 w channels; the second and third halve the image.

    The paper's have w = 16 (docs/reference.md, section 5).
    """
    _conv_norm(plan, "features.0", "features.1", width, 3)
    _residual_stages(plan, 2, (width, 2 * width, 4 * width), blocks)
    _linear_head(plan)


def _resnet18(plan: LayerPlan) -> None:
    """A 7x7 convolution and a 3x3 pooling, stride 2 each; four stages of two blocks.

    Source: reference.md, section 5.
    """
    _conv_norm(plan, "features.0", "features.1", 64, 7, s=2)
    plan.max_pool("features.2", 3, s=2, p=1)
    _residual_stages(plan, 3, (64, 128, 256, 512), 2)
    _linear_head(plan)


def _residual_stages(plan: LayerPlan, index: int, widths: tuple[int, ...], blocks: int) -> None:
    for stage, width in enumerate(widths):
        for block in range(blocks):
            name = f"features.{index}"
            stride, block_input = 2 if stage and not block else 1, plan.shape
            plan.unchanged(f"{name}.fork", "fork")
            _conv_norm(plan, f"{name}.branch.0", f"{name}.branch.1", width, 3, s=stride)
            _conv_norm(plan, f"{name}.branch.2", f"{name}.branch.3", width, 3)
            if stride != 1 or block_input[0] != width:
                plan.shape = block_input
                names = f"{name}.shortcut.0", f"{name}.shortcut.1"
                _conv_norm(plan, *names, width, 1, s=stride)
            plan.residual_sum(f"{name}.sum")
            index += 1


def _vgg11(plan: LayerPlan) -> None:
    """Configuration A: 3x3 convolutions with biases, poolings; a hidden layer of 512.

    Source: reference.md, section 5.
    """
    index = 0
    for widths in ((64,), (128,), (256, 256), (512, 512), (512, 512)):
        for width in widths:
            plan.conv(f"features.{index}", width, 3, bias=True)
            plan.norm(f"features.{index + 1}")
            index += 2
        plan.max_pool(f"features.{index}", 2, s=2)
        index += 1
    plan.average()
    plan.unchanged("head.0", "dropout")
    plan.linear("head.1", 512)
    plan.unchanged("head.2", "relu")
    plan.linear("head.3", plan.form.num_classes)
    plan.unchanged("loss", "loss")


def _mobilenet_v2(plan: LayerPlan) -> None:
    """Stem of 32, inverted residuals, a last 1x1 convolution of 1280 (arXiv 1801.04381).

    Source: reference.md, section 5.
    """
    is_large = min(plan.shape[1:]) >= _LARGE_IMAGE_SIDE
    _conv_norm(plan, "features.0", "features.1", 32, 3, s=2 if is_large else 1)
    index = 2
    for t, c, n, small_s, large_s in (  # expansion, channels, blocks, stride of the first
        (1, 16, 1, 1, 1),
        (6, 24, 2, 1, 2),
        (6, 32, 3, 2, 2),
        (6, 64, 4, 2, 2),
        (6, 96, 3, 1, 1),
        (6, 160, 3, 2, 2),
        (6, 320, 1, 1, 1),
    ):
        strides = [large_s if is_large else small_s] + [1] * (n - 1)
        for s in strides:
            _inverted_residual(plan, f"features.{index}", t, c, s)
            index += 1
    _conv_norm(plan, f"features.{index}", f"features.{index + 1}", 1280, 1)
    _linear_head(plan)


def _inverted_residual(plan: LayerPlan, name: str, t: int, c: int, s: int) -> None:
    """Expand, filter each channel, project; beside it at stride 1 a shortcut."""
    block_input = plan.shape
    width = t * block_input[0]
    if s == 1:
        plan.unchanged(f"{name}.fork", "fork")
    _conv_norm(plan, f"{name}.branch.0", f"{name}.branch.1", width, 1)
    _conv_norm(plan, f"{name}.branch.2", f"{name}.branch.3", width, 3, s=s, g=width)
    _conv_norm(plan, f"{name}.branch.4", f"{name}.branch.5", c, 1)
    if s != 1:
        return
    if block_input[0] != c:
        plan.shape = block_input
        _conv_norm(plan, f"{name}.shortcut.0", f"{name}.shortcut.1", c, 1)
    plan.residual_sum(f"{name}.sum")


def _conv_norm(
    plan: LayerPlan, conv: str, norm: str, width: int, kernel: int, *, s: int = 1, g: int = 1
) -> None:
    plan.conv(conv, width, kernel, s=s, g=g)
    plan.norm(norm)


def _linear_head(plan: LayerPlan) -> None:
    plan.average()
    plan.linear("head", plan.form.num_classes)
    plan.unchanged("loss", "loss")


_ARCHITECTURES: dict[str, Callable[[LayerPlan], None]] = {
    "resnet": lambda plan: _small_image_resnet(
        plan, blocks=(plan.form.depth - 2) // 6, width=plan.form.width
    ),
    "resnet20": lambda plan: _small_image_resnet(plan, blocks=3),
    "resnet54": lambda plan: _small_image_resnet(plan, blocks=8),  # 50 layers
    "resnet18": _resnet18,
    "vgg11": _vgg11,
    "mobilenet_v2": _mobilenet_v2,
    "small_cnn": _small_cnn,
}
