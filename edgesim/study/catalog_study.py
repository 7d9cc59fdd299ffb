"""The comparison for every model of the catalog, at the image sizes that suit the model."""

from __future__ import annotations

from edgesim.assembly.message_costs import NoiseMessages
from edgesim.gossip.fixed_graph_choco import FixedGraphChoco
from edgesim.quant.settings import QuantizationSettings
from edgesim.study.comparison import (
    PAPER_BATCH,
    PAPER_OPTIMIZER,
    PrecisionComparison,
    Setting,
    compare_precisions,
)
from edgesim.study.own_gossip import OwnGossip

# Model and side of its images: that of CIFAR for all models; that of Imagenette for models that the
# paper trains on it (reference.md, section 5).
CASES: tuple[tuple[str, int], ...] = (
    ("small_cnn", 32),
    ("resnet20", 32),
    ("resnet54", 32),
    ("mobilenet_v2", 32),
    ("vgg11", 32),
    ("vgg11", 224),
    ("resnet18", 32),
    ("resnet18", 224),
)


def compare_catalog(
    settings: QuantizationSettings, own: OwnGossip | None = None
) -> tuple[PrecisionComparison, ...]:
    """Every model, at the paper's batch, for a device of a directed ring.

    Args:
        settings: of 8-bit arithmetic.
        own: algorithm and compressor of a scenario; None for the paper's alone.
    """
    messages = NoiseMessages()
    return tuple(
        compare_precisions(_setting(name, side, settings, own), messages) for name, side in CASES
    )


def _setting(
    name: str, side: int, settings: QuantizationSettings, own: OwnGossip | None
) -> Setting:
    return Setting(
        name=name,
        image_shape=(3, side, side),
        num_classes=10,
        batch_size=PAPER_BATCH,
        settings=settings,
        optimizer=PAPER_OPTIMIZER,
        out_degree=1,
        in_degree=1,
        choco=FixedGraphChoco,
        own=own,
    )
