"""Quantized layers as modules: parameters in fp32, running ranges, and the noise's seed."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from edgesim.quant import autograd
from edgesim.quant.affine import Grid, Quantized
from edgesim.quant.arithmetic import Arithmetic, Geometry, Range
from edgesim.quant.backward_pass import in_backward_pass
from edgesim.quant.errors import LayerInputError
from edgesim.quant.layer_step import LayerStep
from edgesim.quant.rounding_noise import derive
from edgesim.quant.settings import QuantizationSettings


class Noise:
    """The seed of the noise in one model, shared by its quantizers, and their calls in a step.

    Attributes:
        seed: of the current step, in [0, 2**64).
        calls: how often each place was called since the step began.
    """

    __slots__ = ("calls", "seed")

    def __init__(self) -> None:
        self.begin(0)

    def begin(self, seed: int) -> None:
        """Begin a step with this seed."""
        self.seed = seed
        self.calls: dict[int, int] = {}

    def seed_of(self, place: int) -> int | None:
        """The seed of the next call of a place; None if a backward pass asks and it is not clear.

        `torch.utils.checkpoint` computes a part of the forward pass again in the backward pass, and
        must get the same noise. Which of several calls it computes again cannot be seen.
        """
        call = self.calls.get(place, 0)
        if not in_backward_pass():
            self.calls[place] = call + 1
        elif call == 1:
            call = 0
        else:
            return None
        return derive(self.seed, place, *([call] if call else []))


class QuantizedPlace(nn.Module):
    """A place of a model that rounds, with a name and noise of its own.

    Args:
        arithmetic: back end.
        settings: of quantization.
    """

    def __init__(self, arithmetic: Arithmetic, settings: QuantizationSettings) -> None:
        super().__init__()
        self.arithmetic = arithmetic
        self.settings = settings
        self.layer = "?"
        self.place = 0
        self.noise = Noise()

    def layer_step(self) -> LayerStep:
        """The `LayerStep` of a call of the layer in the current step.

        Raises:
            LayerInputError: a backward pass computes again what called the layer several times.
        """
        if (seed := self.noise.seed_of(self.place)) is None:
            raise LayerInputError(
                f"{self.layer}: torch.utils.checkpoint around a part that calls this layer several "
                "times; its roundings can't be repeated: call other layers, or let checkpoint be"
            )
        return LayerStep(self.arithmetic, self.settings, self.layer, seed, self.training)


class InputQuantizer(QuantizedPlace):
    """Quantizes one input of one layer.

    In training the grid is that of the batch, from the mean of its samples' minima to the mean of
    their maxima (reference.md, section 1.2), or with `unclipped` from the batch's minimum to its
    maximum. In evaluation the grid is that of the running range; before the first batch of
    training, that of the evaluated batch.

    Args:
        arithmetic: back end.
        settings: of quantization.
        unclipped: whether the range is the whole batch's, which clips nothing in training.

    Attributes:
        low: running minimum, shape (1,). It is a buffer; with `ranges: gossiped`, a parameter
            without gradient.
        high: running maximum, likewise.
    """

    low: Tensor
    high: Tensor

    def __init__(
        self, arithmetic: Arithmetic, settings: QuantizationSettings, *, unclipped: bool = False
    ) -> None:
        super().__init__(arithmetic, settings)
        self.unclipped = unclipped
        for name in ("low", "high"):
            if settings.ranges == "gossiped":
                self.register_parameter(name, nn.Parameter(torch.zeros(1), requires_grad=False))
            else:
                self.register_buffer(name, torch.zeros(1))

    def reset_ranges(self) -> None:
        """Forget all batches."""
        self.low.zero_()
        self.high.zero_()

    def forward(self, x_NCHW: Tensor, step: LayerStep) -> Quantized:
        """An input in 8 bits, NHWC; in training, its range updates the running range.

        Args:
            x_NCHW: float32, in any memory layout; fast if channels_last.
            step: as returned by `layer_step`.

        Raises:
            NonFiniteError: the input holds NaN or infinity.
        """
        return self.codes(autograd.rows(x_NCHW.detach()), step)

    def codes(self, x: Tensor, step: LayerStep) -> Quantized:
        """As `forward`, for a contiguous input whose first axis is the sample's; of its shape."""
        arithmetic = self.arithmetic
        if not self.training:
            grid = self._grid_of(x, step)
            return Quantized(arithmetic.quantize(x, grid, step.activation_seed), grid)
        quantize = arithmetic.quantize_whole if self.unclipped else arithmetic.quantize_by_samples
        quantized, extremes = quantize(x, step.activation_seed)
        step.require_finite(extremes, "activations")
        self._remember(extremes)
        return quantized

    def grid(self, x_NCHW: Tensor, step: LayerStep) -> Grid:
        """The grid that `forward` uses; in training, updates the running range."""
        return self._grid_of(autograd.rows(x_NCHW.detach()), step)

    def _grid_of(self, x: Tensor, step: LayerStep) -> Grid:
        arithmetic = self.arithmetic
        extremes = arithmetic.full_range(x) if self.unclipped else arithmetic.sample_range(x)
        grid = step.grid(extremes, "activations")
        if self.training:
            self._remember(extremes)
            return grid
        running = self.low.item(), self.high.item()
        return step.grid(running, "running ranges") if any(running) else grid

    def _remember(self, extremes: Range) -> None:
        low, high = self.low, self.high
        was_low, was_high = low.item(), high.item()
        # Before the first batch there is no running range to average with.
        old_weight = self.settings.range_momentum if was_low or was_high else 0.0
        low.fill_(old_weight * was_low + (1 - old_weight) * extremes[0])
        high.fill_(old_weight * was_high + (1 - old_weight) * extremes[1])


class QuantizedConv2d(nn.Conv2d):
    """Convolution in 8 bits, padded by zeros alike on opposite sides.

    Args:
        in_channels: C.
        out_channels: O.
        geometry: of the kernel, and groups.
        bias: whether there are biases.
        arithmetic: back end.
        settings: of quantization.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        geometry: Geometry,
        *,
        bias: bool,
        arithmetic: Arithmetic,
        settings: QuantizationSettings,
    ) -> None:
        super().__init__(in_channels, out_channels, *geometry, bias)
        self.geometry = geometry
        self.input = InputQuantizer(arithmetic, settings)

    def forward(self, x_NCHW: Tensor) -> Tensor:
        """Convolution of the quantized input with the quantized weights, float32.

        Args:
            x_NCHW: a batch, or one image without an axis of samples.

        Raises:
            LayerInputError: another shape.
        """
        step = self.input.layer_step()
        _check_input(step, x_NCHW, self.in_channels, ("height", "width"))
        if x_NCHW.dim() == 3:
            return self.forward(x_NCHW[None])[0]
        return autograd.convolution(
            x_NCHW,
            self.weight,
            self.bias,
            x=self.input(x_NCHW, step),
            geometry=self.geometry,
            step=step,
        )


class QuantizedConv1d(nn.Conv1d):
    """Convolution of signals in 8 bits: that of images of one row.

    Args:
        in_channels: C.
        out_channels: O.
        geometry: that of the images; its rows have kernel 1, stride 1, padding 0 and dilation 1.
        bias: whether there are biases.
        arithmetic: back end.
        settings: of quantization.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        geometry: Geometry,
        *,
        bias: bool,
        arithmetic: Arithmetic,
        settings: QuantizationSettings,
    ) -> None:
        kernel, stride, padding, dilation = (columns for _, columns in geometry[:4])
        super().__init__(
            in_channels, out_channels, kernel, stride, padding, dilation, geometry.groups, bias
        )
        self.geometry = geometry
        self.input = InputQuantizer(arithmetic, settings)

    def forward(self, x_NCL: Tensor) -> Tensor:
        """Convolution of the quantized input with the quantized weights, float32, (N, O, L').

        Args:
            x_NCL: a batch, or one signal without an axis of samples.

        Raises:
            LayerInputError: another shape.
        """
        step = self.input.layer_step()
        _check_input(step, x_NCL, self.in_channels, ("length",))
        if x_NCL.dim() == 2:
            return self.forward(x_NCL[None])[0]
        x_NC1L = x_NCL[:, :, None]
        y_NO1L = autograd.convolution(
            x_NC1L,
            self.weight[:, :, None],
            self.bias,
            x=self.input(x_NC1L, step),
            geometry=self.geometry,
            step=step,
        )
        return y_NO1L.squeeze(2)


def _check_input(step: LayerStep, x: Tensor, channels: int, sides: tuple[str, ...]) -> None:
    """Refuse inputs that a convolution of torch would refuse, too."""
    axes = x.dim() - len(sides)  # samples and channels, or channels alone
    if axes not in (1, 2) or x.shape[axes - 1] != channels:
        due = ", ".join(("samples", str(channels), *sides))
        raise LayerInputError(
            f"layer {step.layer}: the input has shape {tuple(x.shape)}; must be ({due})"
        )


class QuantizedLinear(nn.Linear):
    """Fully connected layer in 8 bits."""

    def __init__(
        self,
        in_features: int,
        out_features: int,
        *,
        bias: bool = True,
        arithmetic: Arithmetic,
        settings: QuantizationSettings,
    ) -> None:
        super().__init__(in_features, out_features, bias)
        self.geometry = Geometry.square(1)
        self.input = InputQuantizer(arithmetic, settings)

    def forward(self, x_NC: Tensor) -> Tensor:
        """Product of quantized input and weights, shape (N, out_features), float32.

        The input may have more axes, (N, ..., in_features). The middle axes are then the pixels of
        a 1x1 convolution; the output is (N, ..., out_features).
        """
        if x_NC.dim() > 2:
            return self._at_each_place(x_NC)
        step, x_NC11 = self.input.layer_step(), x_NC[:, :, None, None]
        y_NO11 = autograd.convolution(
            x_NC11,
            self.weight[:, :, None, None],
            self.bias,
            x=self.input(x_NC11, step),
            geometry=self.geometry,
            step=step,
        )
        return y_NO11.flatten(1)

    def _at_each_place(self, x: Tensor) -> Tensor:
        step, x_NCP1 = self.input.layer_step(), x.flatten(1, -2).transpose(1, 2)[..., None]
        y_NOP1 = autograd.convolution(
            x_NCP1,
            self.weight[:, :, None, None],
            self.bias,
            x=self.input(x_NCP1, step),
            geometry=self.geometry,
            step=step,
        )
        # Not `[..., 0]`, whose gradient is written in another layout and copied.
        return y_NOP1.squeeze(3).transpose(1, 2).reshape(*x.shape[:-1], self.out_features)


class QuantizedSum(nn.Module):
    """Sum of the branches of a residual block, each in 8 bits with a range of its own.

    Source: reference.md, section 1.2.
    """

    def __init__(self, arithmetic: Arithmetic, settings: QuantizationSettings) -> None:
        super().__init__()
        self.input = InputQuantizer(arithmetic, settings)
        self.shortcut = InputQuantizer(arithmetic, settings)

    def forward(self, branch: Tensor, shortcut: Tensor) -> Tensor:
        """Entry by entry, shape of both, samples first, float32.

        Raises:
            LayerInputError: the shapes differ, or have no axis beside that of the samples.
        """
        if branch.shape != shortcut.shape or branch.dim() < 2:
            shapes = " and ".join(str(tuple(x.shape)) for x in (branch, shortcut))
            raise LayerInputError(
                f"a residual sum in 8 bits adds branches of one shape, samples first, not {shapes}"
            )
        # Ranges and sums know no place, so other shapes become images of one pixel.
        a, b = (x if x.dim() == 4 else x.flatten(1)[..., None, None] for x in (branch, shortcut))
        step = self.input.layer_step()
        y = autograd.residual_sum(
            a, b, a_grid=self.input.grid(a, step), b_grid=self.shortcut.grid(b, step), step=step
        )
        return y if branch.dim() == 4 else y.reshape(branch.shape)


def name_layers_(model: nn.Module) -> None:
    """Give quantized layers their names and numbers in the model, and one common noise seed.

    Without this call, all layers round with equal noise, and errors cannot name the layer.
    """
    noise, place = Noise(), 0
    for name, module in model.named_modules():
        if isinstance(module, QuantizedPlace):
            module.layer, module.place, module.noise = name.rpartition(".")[0] or name, place, noise
            place += 1


def rounding_layers(model: nn.Module) -> nn.ModuleList:
    """Modules of a model whose noise `seed_rounding_` changes, one for all that share it.

    There are none in a model of fp32.
    """
    by_noise = {m.noise: m for m in model.modules() if isinstance(m, QuantizedPlace)}
    return nn.ModuleList(by_noise.values())


def seed_rounding_(model: nn.Module, seed: int) -> None:
    """Give each quantized input, and the gradients of its layer, noise of its own for one step.

    Args:
        model: may have no quantized layers.
        seed: in [0, 2**64).
    """
    for module in model.modules():
        if isinstance(module, QuantizedPlace):
            module.noise.begin(seed)
