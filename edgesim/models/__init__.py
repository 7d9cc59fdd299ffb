"""Image models in both precisions, built from explicit layers and an explicit generator."""

from edgesim.models.catalog import MODELS, build_model, check_model, full_precision
from edgesim.models.dropout import SeededDropout, seed_dropout_
from edgesim.models.eight_bit import EightBit
from edgesim.models.errors import ModelError
from edgesim.models.evonorm import EvoNormS0, evonorm_s0
from edgesim.models.kind import ModelKind
from edgesim.models.layers import FullPrecision, Layers, ResidualSum
from edgesim.models.matrix_product import MatrixProduct
from edgesim.models.norms import NORMS, BatchNormReLU, NormKind
from edgesim.models.range_norms import RangeBatchNormReLU, RangeEvoNorm

__all__ = [
    "MODELS",
    "NORMS",
    "BatchNormReLU",
    "EightBit",
    "EvoNormS0",
    "FullPrecision",
    "Layers",
    "MatrixProduct",
    "ModelError",
    "ModelKind",
    "NormKind",
    "RangeBatchNormReLU",
    "RangeEvoNorm",
    "ResidualSum",
    "SeededDropout",
    "build_model",
    "check_model",
    "evonorm_s0",
    "full_precision",
    "seed_dropout_",
]
