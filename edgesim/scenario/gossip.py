"""Section `gossip`: what devices tell their neighbours, and how it is compressed."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from edgesim.scenario.section import Count, Rate, Section

Values = Literal["fp32", "fp16", "int8"]

_VALUES = "format of each value on the wire; null: that of model.precision"


class IdentityCompressor(Section):
    """Everything is sent."""

    kind: Literal["identity"]
    values: Values = Field(
        default="fp32", description="format of each value on the wire, in any model.precision"
    )


class TopKCompressor(Section):
    """The largest entries of each tensor are sent."""

    kind: Literal["top_k"]
    keep: Rate = Field(description="fraction of each tensor's entries that is sent")
    values: Values | None = Field(default=None, description=_VALUES)


class RandomKCompressor(Section):
    """Random entries of each tensor are sent."""

    kind: Literal["random_k"]
    keep: Rate = Field(description="fraction of each tensor's entries that is sent")
    values: Values | None = Field(default=None, description=_VALUES)


class QsgdCompressor(Section):
    """Entries are rounded at random to few levels of the tensor's norm (docs/reference.md, section 3.6)."""  # noqa: E501

    kind: Literal["qsgd"]
    bits: Annotated[int, Field(ge=1, le=7)] = Field(
        description="of a level; with the sign at most a byte"
    )
    biased: bool = Field(default=False, description="scaled down until contractive in the mean")


class MinMaxUint8Compressor(Section):
    """Bagua's 8 bits between each tensor's extremes (docs/reference.md, section 7)."""

    kind: Literal["min_max_uint8"]


class SignScaleCompressor(Section):
    """Signs, times the mean magnitude of each tensor."""

    kind: Literal["sign_scale"]


CompressorSection = Annotated[
    IdentityCompressor
    | TopKCompressor
    | RandomKCompressor
    | QsgdCompressor
    | MinMaxUint8Compressor
    | SignScaleCompressor,
    Field(discriminator="kind"),
]

AveragingRate = Rate | Literal["auto"]

_AVERAGING_RATE = (
    "eta: share of the disagreement that an exchange removes "
    "(docs/reference.md, section 3.7); auto: the rate with which "
    "gossip alone, with this graph, compressor and pace, brings devices together fastest; the run "
    "keeps the number that was found"
)
_COMPRESSOR = "what is kept of each message, and in which format"


class GossipSection(Section):
    """What every algorithm has; `algorithm` and further options are the subclass's."""

    local_steps: Count = Field(
        default=1,
        description="rounds from one exchange to the next: in the last of them devices exchange "
        "messages, the others are local steps alone (local SGD)",
    )


class ChocoGossip(GossipSection):
    """CHOCO-SGD with push-sum; tracks the model (docs/reference.md, section 14)."""

    algorithm: Literal["choco"]
    averaging_rate: AveragingRate = Field(description=_AVERAGING_RATE)
    compressor: CompressorSection = Field(
        default=IdentityCompressor(kind="identity"), description=_COMPRESSOR
    )


class ChocoNumeratorGossip(GossipSection):
    """CHOCO-SGD with push-sum as published; tracks the numerator (docs/reference.md, section 3.3)."""  # noqa: E501

    algorithm: Literal["choco_numerator"]
    averaging_rate: AveragingRate = Field(description=_AVERAGING_RATE)
    compressor: CompressorSection = Field(
        default=IdentityCompressor(kind="identity"), description=_COMPRESSOR
    )


class DeepSqueezeGossip(GossipSection):
    """DeepSqueeze with push-sum, also known as Sparse-Push (docs/reference.md, section 3.4)."""

    algorithm: Literal["deepsqueeze"]
    averaging_rate: AveragingRate = Field(description=_AVERAGING_RATE)
    compressor: CompressorSection = Field(
        default=IdentityCompressor(kind="identity"), description=_COMPRESSOR
    )


class GradientPushGossip(GossipSection):
    """SGP on directed graphs, D-PSGD on regular ones; every entry is sent (docs/reference.md, section 3.2)."""  # noqa: E501

    algorithm: Literal["gradient_push"]
    averaging_rate: AveragingRate = Field(default=1.0, description=_AVERAGING_RATE)
    values: Values = Field(
        default="fp32",
        description="format of each value on the wire, in any model.precision; fp16 and int8 "
        "round the model, without error feedback",
    )


class DcdGossip(GossipSection):
    """Bagua's low-precision decentralized SGD (docs/reference.md, section 7)."""

    algorithm: Literal["dcd"]
    compressor: CompressorSection = Field(
        default=IdentityCompressor(kind="identity"), description=_COMPRESSOR
    )


Gossip = Annotated[
    ChocoGossip | ChocoNumeratorGossip | DeepSqueezeGossip | GradientPushGossip | DcdGossip,
    Field(discriminator="algorithm"),
]
