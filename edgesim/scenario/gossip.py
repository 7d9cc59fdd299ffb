"""Section `gossip`: algorithm and compressor."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from edgesim.scenario.catalog import ALGORITHMS, COMPRESSORS
from edgesim.scenario.own_parts import OPTIONS, ChosenBy, NamedIn, Options, OwnPart
from edgesim.scenario.section import LARGEST_WHOLE, Count, MustBe, Natural, Rate, Section

Values = Literal["fp32", "fp16", "int8"]

_VALUES = "format of each value on the wire; null: that of model.precision"

BucketSize = Annotated[int, Field(ge=2, le=LARGEST_WHOLE)] | None
_BUCKET_SIZE = Field(
    default=None,
    description=(
        "entries of each tensor that have a scale of their own, QSGD's bucket size; the last of a "
        "tensor may be fewer; null: a tensor has one scale"
    ),
)


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
        description="bits of a level; with the sign at most 8"
    )
    biased: bool = Field(
        default=False,
        description=(
            "whether values are scaled down so that the compressor is contractive in the mean"
        ),
    )
    bucket_size: BucketSize = _BUCKET_SIZE


class MinMaxUint8Compressor(Section):
    """Bagua's 8 bits between each tensor's extremes (docs/reference.md, section 7)."""

    kind: Literal["min_max_uint8"]
    bucket_size: BucketSize = _BUCKET_SIZE


class SignScaleCompressor(Section):
    """Signs, times the mean magnitude of each tensor."""

    kind: Literal["sign_scale"]
    bucket_size: BucketSize = _BUCKET_SIZE


class OtherCompressor(Section):
    """A compressor of the catalog without a section of its own, or your own (docs/own-parts.md)."""

    kind: Annotated[OwnPart, NamedIn(COMPRESSORS)]
    options: Options = Field(default_factory=dict, description=OPTIONS)


CompressorSection = Annotated[
    IdentityCompressor
    | TopKCompressor
    | RandomKCompressor
    | QsgdCompressor
    | MinMaxUint8Compressor
    | SignScaleCompressor
    | OtherCompressor,
    ChosenBy("kind", COMPRESSORS),
]

AveragingRate = Rate | Literal["auto"]

_AVERAGING_RATE = (
    "eta: share of the disagreement that an exchange removes "
    "(docs/reference.md, section 3.7); auto: the rate with which "
    "gossip alone, with this graph, compressor and pace, brings devices together fastest; the run "
    "keeps the number that was found"
)
_COMPRESSOR = Field(
    default=IdentityCompressor(kind="identity"),
    description="what is kept of each message, and in which format",
)


class GossipSection(Section):
    """Keys of every algorithm; `algorithm` and further options are in the subclasses."""

    local_steps: Count = Field(
        default=1,
        description=(
            "rounds from one exchange to the next: devices exchange messages in the last of "
            "them only, and take local steps in all (local SGD)"
        ),
    )


class ChocoGossip(GossipSection):
    """CHOCO-SGD with push-sum; tracks the model (docs/reference.md, section 14)."""

    algorithm: Literal["choco"]
    averaging_rate: AveragingRate = Field(description=_AVERAGING_RATE)
    compressor: CompressorSection = _COMPRESSOR


class ChocoNumeratorGossip(GossipSection):
    """CHOCO-SGD with push-sum as published; tracks the numerator (docs/reference.md, section 3.3)."""  # noqa: E501

    algorithm: Literal["choco_numerator"]
    averaging_rate: AveragingRate = Field(description=_AVERAGING_RATE)
    compressor: CompressorSection = _COMPRESSOR


class DeepSqueezeGossip(GossipSection):
    """DeepSqueeze with push-sum, also known as Sparse-Push (docs/reference.md, section 3.4)."""

    algorithm: Literal["deepsqueeze"]
    averaging_rate: AveragingRate = Field(description=_AVERAGING_RATE)
    compressor: CompressorSection = _COMPRESSOR


class GradientPushGossip(GossipSection):
    """SGP on directed graphs, D-PSGD on regular ones; every entry is sent (docs/reference.md, section 3.2)."""  # noqa: E501

    algorithm: Literal["gradient_push"]
    averaging_rate: AveragingRate = Field(default=1.0, description=_AVERAGING_RATE)
    values: Values = Field(
        default="fp32",
        description="format of each value on the wire, in any model.precision; fp16 and int8 "
        "round the model, without error feedback",
    )

    @property
    def compressor(self) -> IdentityCompressor:
        """Everything is sent."""
        return IdentityCompressor(kind="identity", values=self.values)


class DcdGossip(GossipSection):
    """Bagua's low-precision decentralized SGD (docs/reference.md, section 7)."""

    algorithm: Literal["dcd"]
    compressor: CompressorSection = _COMPRESSOR


class FedAvgGossip(GossipSection):
    """FedAvg: device 0 averages what others made of its model (docs/reference.md, section 13)."""

    algorithm: Literal["fedavg"]
    participation: Rate = Field(
        default=1.0, description="share of the devices that train in a cycle, drawn anew for each"
    )

    @property
    def compressor(self) -> IdentityCompressor:
        """Everything is sent."""
        return IdentityCompressor(kind="identity")


Sites = Annotated[
    Count | Annotated[tuple[Natural, ...], Field(strict=False, min_length=2)] | Literal["nodes"],
    MustBe("a number of sites, the site of each device such as [0, 0, 1, 1], or nodes"),
]

_SITES = (
    "groups of devices that average with their leader, before leaders gossip and send them the "
    "result (Bagua's hierarchical mode): the site of each device, from 0, or a number of equal "
    "sites of consecutive devices, or nodes: a site is what fleet.placement: by_node starts on a "
    "node of the cluster, and the run keeps the sites that were found; null: no sites"
)


class BaguaGossip(GossipSection):
    """Keys of both of Bagua's algorithms."""

    local_steps: Count = Field(
        default=1,
        description=(
            "rounds with a step from one exchange to the next, Bagua's communication interval: "
            "devices exchange messages after the first of these steps"
        ),
    )
    sites: Sites | None = Field(default=None, description=_SITES)


class BaguaLowPrecisionGossip(BaguaGossip):
    """Bagua's low-precision decentralized SGD to the letter: a ring, min-max uint8 (docs/reference.md, section 7)."""  # noqa: E501

    algorithm: Literal["bagua_low_precision"]
    bucket_bytes: Count = Field(
        default=10 * 2**20,
        description=(
            "bytes in fp32 with which a bucket of parameters is full; parameters are taken in "
            "reverse order, and each bucket has one minimum and maximum"
        ),
    )

    @property
    def compressor(self) -> MinMaxUint8Compressor:
        """Bagua's 8 bits."""
        return MinMaxUint8Compressor(kind="min_max_uint8")


class BaguaDecentralizedGossip(BaguaGossip):
    """Bagua's decentralized SGD in fp32 (docs/reference.md, section 7)."""

    algorithm: Literal["bagua_decentralized"]
    peers: Literal["all", "shift_one"] = Field(
        default="all",
        description="all devices average, or each with one other, a new one in each exchange",
    )

    @property
    def compressor(self) -> IdentityCompressor:
        """Everything is sent."""
        return IdentityCompressor(kind="identity")


class OtherGossip(GossipSection):
    """An algorithm of the catalog without a section of its own, or your own (docs/own-parts.md)."""

    algorithm: Annotated[OwnPart, NamedIn(ALGORITHMS)]
    averaging_rate: AveragingRate | None = Field(
        default=None, description=f"{_AVERAGING_RATE}; null: the algorithm's own, if it has one"
    )
    compressor: CompressorSection = _COMPRESSOR
    options: Options = Field(default_factory=dict, description=OPTIONS)


Gossip = Annotated[
    ChocoGossip
    | ChocoNumeratorGossip
    | DeepSqueezeGossip
    | GradientPushGossip
    | DcdGossip
    | FedAvgGossip
    | BaguaLowPrecisionGossip
    | BaguaDecentralizedGossip
    | OtherGossip,
    ChosenBy("algorithm", ALGORITHMS),
]
