"""Section `model`: the network of every device, and the arithmetic it is trained in."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Discriminator, Field, Tag, model_validator

from edgesim.scenario.catalog import MODELS, MODULES, NORMS
from edgesim.scenario.own_parts import (
    CATALOG,
    OPTIONS,
    OWN,
    NamedIn,
    NameIn,
    NameOrReference,
    Options,
    OwnPart,
)
from edgesim.scenario.section import ContradictionError, PathText, Section

Rounding = Literal["stochastic", "nearest"]


class QuantizationSection(Section):
    """The switches of 8-bit training (docs/reference.md, section 12); defaults are edgesim's, the paper's are named beside."""  # noqa: E501

    backend: Literal["auto", "reference", "int8_cpu"] = Field(
        default="auto",
        description=(
            "int8_cpu: integer kernels; reference: plain torch; auto: integer kernels if possible"
        ),
    )
    zero_point: Literal["integer", "float_offset"] = Field(
        default="integer",
        description=(
            "integer: zero is a code; the paper: float_offset (docs/reference.md, section 1.1)"
        ),
    )
    weight_range: Literal["per_tensor", "per_out_channel"] = Field(
        default="per_tensor",
        description="one scale for a weight tensor (the paper), or one per channel",
    )
    weight_gradient: Literal["fp32", "fp16", "bf16", "int8"] = Field(
        default="fp32",
        description=(
            "format of the layer gradient in the weight gradient; the authors' code: fp32; int8: "
            "no bifurcation (docs/reference.md, section 1.3)"
        ),
    )
    activation_rounding: Rounding = Field(
        default="nearest",
        description=(
            "rounding of activations in training; the paper: stochastic, by mistake "
            "(docs/reference.md, section 1.4)"
        ),
    )
    evaluation_rounding: Rounding = Field(
        default="nearest",
        description=(
            "rounding of activations in evaluation; the paper: stochastic "
            "(docs/reference.md, section 1.4)"
        ),
    )
    gradient_rounding: Rounding = Field(
        default="stochastic", description="rounding of layer gradients; the paper: stochastic"
    )
    ranges: Literal["gossiped", "local"] = Field(
        default="local",
        description=(
            "running ranges of activations; the paper: gossiped with the "
            "parameters (docs/reference.md, section 1.5)"
        ),
    )
    range_momentum: Annotated[float, Field(ge=0, lt=1)] = Field(
        default=0.1,
        description=(
            "weight of the old running range; that of the batch's range is 1 less this; the "
            "paper: 0.1"
        ),
    )

    @model_validator(mode="after")
    def _integers_need_an_integer_zero(self) -> Self:
        if self.backend == "int8_cpu" and self.zero_point == "float_offset":
            raise ContradictionError(
                "backend",
                "is int8_cpu; must be auto or reference for zero_point: float_offset",
            )
        return self

    @model_validator(mode="after")
    def _float_offset_has_one_grid(self) -> Self:
        if self.zero_point == "float_offset" and self.weight_range == "per_out_channel":
            raise ContradictionError(
                "weight_range",
                "is per_out_channel; must be per_tensor for zero_point: float_offset",
            )
        return self


NORM_OF_PRECISION = {"fp32": "evonorm_s0", "int8": "range_evonorm"}
"""Norms of models that name none, as in the paper."""


class ModelSection(Section):
    """Network that every device trains."""

    name: Annotated[
        Annotated[str, NameIn(MODELS), Tag(CATALOG)]
        | Annotated[OwnPart, NamedIn(MODULES), Tag(OWN)],
        Discriminator(NameOrReference(MODULES)),
    ] = Field(description="architecture, or a torch.nn.Module of your own")
    options: Options | None = Field(default=None, description=OPTIONS)
    depth: Annotated[int, Field(ge=8, le=1202)] | None = Field(
        default=None,
        description=("number of layers of name: resnet, 6 n + 2; other numbers are rounded down"),
    )
    width: Annotated[int, Field(ge=8, le=1024)] | None = Field(
        default=None,
        description="channels of the first stage of name: resnet, doubled in the second and in the "
        "third; null: 16",
    )
    precision: Literal["fp32", "int8"] = Field(
        default="fp32",
        description="arithmetic of training; also the default format of values in sparse messages",
    )
    norm: Annotated[str, NameIn(NORMS)] | None = Field(
        default=None,
        description="normalisation, with its nonlinearity; null: the paper's, evonorm_s0 in fp32 "
        "and range_evonorm in int8",
    )
    gate: Literal["sigmoid", "hard_sigmoid"] | None = Field(
        default=None,
        description=(
            "of norm: range_evonorm (docs/reference.md, section 2); "
            "null: sigmoid in fp32, hard_sigmoid in int8"
        ),
    )
    initialization: Literal["full_precision", "low_precision"] = Field(
        default="full_precision",
        description="initial values of the paper's fp32 or of its "
        "8-bit models, in any precision; its "
        "8-bit VGG-11 also lacks biases of convolutions (docs/reference.md, section 2)",
    )
    start_from: PathText | None = Field(
        default=None,
        description="file with the values that the model begins with, as `edgesim export RUN "
        "model.pt` or torch.save(module.state_dict(), FILE) writes it; null: random ones",
    )
    quantization: QuantizationSection | None = Field(
        default=None, description="switches of precision: int8; null: their defaults"
    )

    @property
    def norm_used(self) -> str:
        """The norm, or the precision's own."""
        return self.norm or NORM_OF_PRECISION[self.precision]

    @property
    def gate_used(self) -> str | None:
        """The gate of norm: range_evonorm, or the precision's own; None of other norms."""
        if self.norm_used != "range_evonorm":
            return None
        return self.gate or ("sigmoid" if self.precision == "fp32" else "hard_sigmoid")

    @model_validator(mode="after")
    def _gate_belongs_to_range_evonorm(self) -> Self:
        if self.gate is not None and self.norm_used != "range_evonorm":
            raise ContradictionError(
                "gate", f"is {self.gate}; must be null or absent for norm: {self.norm_used}"
            )
        if self.gate == "sigmoid" and self.precision == "int8":
            raise ContradictionError(
                "gate", "is sigmoid; must be hard_sigmoid, null or absent for precision: int8"
            )
        return self

    @model_validator(mode="after")
    def _depth_and_width_belong_to_resnet(self) -> Self:
        if self.name == "resnet" and self.depth is None:
            raise ContradictionError("depth", "is missing; name: resnet needs it, such as 20")
        for key in ("depth", "width"):
            if getattr(self, key) is not None and self.name != "resnet":
                raise ContradictionError(
                    key, "is given; must be null or absent but for name: resnet"
                )
        if self.width is not None and self.width % 8:
            raise ContradictionError("width", f"is {self.width}; must be a multiple of 8")
        return self

    @model_validator(mode="after")
    def _own_models_bring_their_layers(self) -> Self:
        if not isinstance(self.name, OwnPart):
            if self.options is not None:
                raise ContradictionError("options", "are given; only your own models take them")
            return self
        if self.norm is not None:
            raise ContradictionError(
                "norm", f"is {self.norm}; must be null or absent for your own model: its norms stay"
            )
        if self.initialization != "full_precision":
            raise ContradictionError(
                "initialization",
                f"is {self.initialization}; must be absent for your own model: it has its own",
            )
        return self

    @model_validator(mode="after")
    def _quantization_belongs_to_int8(self) -> Self:
        if self.precision == "fp32" and self.quantization is not None:
            raise ContradictionError(
                "quantization", "is given; must be null or absent for precision: fp32"
            )
        return self
