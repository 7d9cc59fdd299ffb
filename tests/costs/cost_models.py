"""Models to count: every one of the catalog, small, in both precisions."""

import torch

from edgesim.assembly.build import quantization_settings
from edgesim.learning.flat_model import FlatModel
from edgesim.models import EightBit, build_model, full_precision, seed_dropout_
from edgesim.quant.reference import Reference

SETTINGS = quantization_settings()

# Name, image, batch: the smallest that a model takes, sides that are halved with a rest among them.
CASES = [
    ("small_cnn", (1, 9, 11), 3),
    ("resnet20", (3, 13, 10), 2),
    ("resnet", (3, 8, 8), 2),
    ("resnet54", (3, 8, 8), 2),
    ("resnet18", (3, 33, 45), 2),
    ("vgg11", (3, 32, 32), 2),
    ("mobilenet_v2", (3, 16, 9), 2),
    ("mobilenet_v2", (3, 97, 96), 1),
]


def fp32(norm="evonorm_s0"):
    return full_precision(norm)


def int8(settings=SETTINGS, norm="range_evonorm", arithmetic=None):
    back_end = arithmetic or Reference(has_integer_zero=settings.has_integer_zero)
    return EightBit(norm, back_end, settings, conv_bias=True)


def flat_model(name, image_shape, layers, num_classes=10):
    generator = torch.Generator().manual_seed(1)
    module = build_model(
        name,
        image_shape=image_shape,
        num_classes=num_classes,
        layers=layers,
        generator=generator,
    )
    seed_dropout_(module, 1)
    return FlatModel(module)


def batch_of(image_shape, batch_size):
    images = torch.randn(batch_size, *image_shape, generator=torch.Generator().manual_seed(2))
    return images, torch.arange(batch_size) % 10
