"""Image models in both precisions, built from explicit layers and an explicit generator."""

from edgesim.models.catalog import MODELS, build_model, check_model, full_precision
from edgesim.models.dropout import SeededDropout, seed_dropout_
from edgesim.models.eight_bit import EightBit
from edgesim.models.errors import ModelError
from edgesim.models.evonorm import EvoNormS0, evonorm_s0
from edgesim.models.kind import ModelKind
from edgesim.models.layers import FullPrecision, Layers
from edgesim.models.norms import NORMS, NormKind

__all__ = [
    "MODELS",
    "NORMS",
    "EightBit",
    "EvoNormS0",
    "FullPrecision",
    "Layers",
    "ModelError",
    "ModelKind",
    "NormKind",
    "SeededDropout",
    "build_model",
    "check_model",
    "evonorm_s0",
    "full_precision",
    "seed_dropout_",
]
