"""The oracle of counts: the catalog's models by their architectures' formulas.

Written from the architectures (reference.md, section 5), apart from the code that builds and runs
the models: nothing here makes a tensor.
"""

from __future__ import annotations

from collections.abc import Callable

from layer_plan import LayerPlan

from edgesim.costs.model_form import ModelForm

_LARGE_IMAGE_SIDE = 96  # of MobileNetV2: from here on its layout for large images


def planned(form: ModelForm, batch_size: int) -> LayerPlan:
    """A model of the catalog, layer by layer."""
    plan = LayerPlan(form, batch_size)
    _ARCHITECTURES[form.name](plan)
    return plan


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
