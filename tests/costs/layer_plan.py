"""The oracle of counts: layers by formula, put down one on the other, from sizes alone.

Symbols:
    k: kernel   s: stride   p: padding   I, O: input and output channels   g: groups of channels
    H, W: sides of the input
    A convolution, padded by k // 2, has ceil(H / s) x ceil(W / s) pixels of output, and on each
    k^2 (I / g) O products, as many as it has weights.
"""

from __future__ import annotations

from math import ceil, floor
from typing import TypedDict, Unpack

from edgesim.costs.layer import Kind, Layer
from edgesim.costs.model_form import ModelForm
from edgesim.models.norms import Norm
from edgesim.quant.arithmetic import Gate
from edgesim.quant.settings import QuantizationSettings

# Kind, parameters per channel, groups; reference.md, section 2.
NORM_FORMS: dict[Norm, tuple[Kind, int, int]] = {
    "batch": ("batch_norm", 2, 1),
    "group": ("group_norm", 2, 2),
    "evonorm_s0": ("evonorm_s0", 3, 8),
    "range_evonorm": ("range_evonorm", 3, 8),
    "range_batch": ("range_batch_norm", 2, 1),
}
_RANGE_NORMS: frozenset[Norm] = frozenset({"range_evonorm", "range_batch"})


class _LayerFields(TypedDict, total=False):
    settings: QuantizationSettings | None
    taps: int
    groups: int
    gate: Gate | None
    num_weights: int
    num_affine: int
    needs_input_gradient: bool


class LayerPlan:
    """Layers of a training step, each put on the output of the one before.

    Attributes:
        form: of the model.
        shape: of the newest output, of one sample: channels, height and width.
        layers: so far, in the order of the forward pass.
        parameter_shapes: of the trained tensors, in the model's order.
        num_quantizers: 8-bit inputs.
        macs_per_sample: of the forward pass.
        first_macs_per_sample: of its first layer, which has no input gradient.
    """

    def __init__(self, form: ModelForm, batch_size: int) -> None:
        self.form = form
        self.shape: tuple[int, ...] = form.image_shape
        self.layers: list[Layer] = []
        self.parameter_shapes: list[tuple[int, ...]] = []
        self.num_quantizers = 0
        self.macs_per_sample = 0
        self.first_macs_per_sample = 0
        self._batch_size = batch_size
        self._add("images", "copy", self.shape, needs_input_gradient=False)

    def conv(
        self,
        name: str,
        O: int,  # noqa: E741 (symbols of the legend, here and below)
        k: int,
        *,
        s: int = 1,
        g: int = 1,
        bias: bool = False,
    ) -> None:
        """Square convolution."""
        I, H, W = self.shape  # noqa: E741
        weights, pixels = k * k * (I // g) * O, ceil(H / s) * ceil(W / s)
        is_first = not self.macs_per_sample
        if is_first:
            self.first_macs_per_sample = weights * pixels
        self.macs_per_sample += weights * pixels
        self.parameter_shapes.append((O, I // g, k, k))
        biases = O if bias and self.form.conv_bias else 0
        if biases:
            self.parameter_shapes.append((O,))
        self._add_quantized(
            name,
            "convolution",
            (O, ceil(H / s), ceil(W / s)),
            taps=k * k,
            groups=g,
            num_weights=weights,
            num_affine=biases,
            needs_input_gradient=not is_first,
        )

    def linear(self, name: str, O: int) -> None:  # noqa: E741
        """Fully connected layer with bias."""
        (I,) = self.shape  # noqa: E741
        self.macs_per_sample += I * O
        self.parameter_shapes += [(O, I), (O,)]
        self._add_quantized(name, "linear", (O,), num_weights=I * O, num_affine=O)

    def norm(self, name: str) -> None:
        """Norm with its nonlinearity."""
        assert self.form.norm is not None, "a model of one's own has no formulas"
        kind, num_parameters, groups = NORM_FORMS[self.form.norm]
        C = self.shape[0]
        self.parameter_shapes += [(C,)] * num_parameters
        if self.form.norm not in _RANGE_NORMS:  # these know no 8 bits
            self._add(name, kind, self.shape, groups=groups, num_affine=num_parameters * C)
            return
        gate: Gate | None = None
        if self.form.norm == "range_evonorm":
            gate = self.form.gate if self.form.settings is None else "hard_sigmoid"
        self._add_quantized(
            name, kind, self.shape, groups=groups, gate=gate, num_affine=num_parameters * C
        )

    def residual_sum(self, name: str) -> None:
        """Sum of a block's branches."""
        self._add_quantized(name, "residual_sum", self.shape)
        self.num_quantizers += self.form.settings is not None  # for the second input

    def max_pool(self, name: str, k: int, *, s: int, p: int = 0, ceils: bool = False) -> None:
        """Maximum of each window; `ceils`: windows that are cut off at the far sides count."""
        C, H, W = self.shape
        rounded = ceil if ceils else floor
        sides = [rounded((side + 2 * p - k) / s) + 1 for side in (H, W)]
        kind: Kind = "max_pool" if self.form.settings is None else "compact_max_pool"
        self._add(name, kind, (C, *sides), taps=k * k)

    def average(self) -> None:
        """Mean over the image."""
        self._add("average", "average", self.shape[:1])

    def unchanged(self, name: str, kind: Kind) -> None:
        """A layer without parameters or windows, whose output has the shape of its input."""
        self._add(name, kind, self.shape)

    def _add_quantized(
        self, name: str, kind: Kind, out: tuple[int, ...], **fields: Unpack[_LayerFields]
    ) -> None:
        """A layer that is in 8 bits where the model is."""
        self.num_quantizers += self.form.settings is not None
        fields["settings"] = self.form.settings
        self._add(name, kind, out, **fields)

    def _add(
        self, name: str, kind: Kind, out: tuple[int, ...], **fields: Unpack[_LayerFields]
    ) -> None:
        N = self._batch_size
        layer = Layer(
            name=name, kind=kind, input_shape=(N, *self.shape), output_shape=(N, *out), **fields
        )
        self.layers.append(layer)
        self.shape = out
