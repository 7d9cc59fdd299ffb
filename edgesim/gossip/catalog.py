"""Gossip algorithms by the names that scenarios and `edgesim list` use."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from edgesim.gossip.algorithm import Algorithm
from edgesim.gossip.choco import Choco
from edgesim.gossip.choco_numerator import ChocoNumerator
from edgesim.gossip.dcd import Dcd
from edgesim.gossip.deep_squeeze import DeepSqueeze
from edgesim.gossip.fixed_graph_choco import FixedGraphChoco
from edgesim.gossip.gradient_push import GradientPush

Form = Callable[..., Algorithm[Any]]
"""Makes an algorithm from `compressor`, `layout`, and (if it takes one) `averaging_rate`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchanges:
    """What is known of a fleet's exchanges before it starts.

    Attributes:
        are_fixed: the same edges carry one message each in every exchange.
        are_balanced: `are_fixed`, and the weights are doubly stochastic, so that push weights stay
            1.
    """

    are_fixed: bool
    are_balanced: bool


@dataclass(frozen=True, slots=True)
class AlgorithmKind:
    """An algorithm of the catalog.

    Attributes:
        description: one line for people.
        form: the form of the algorithm that fits a fleet's exchanges.
        has_rate: whether it takes an averaging rate.
        disagrees: where lossy compression keeps devices apart at any averaging rate: nowhere,
            where push weights move, or everywhere.
    """

    description: str
    form: Callable[[Exchanges], Form]
    has_rate: bool = True
    disagrees: Literal["nowhere", "where push weights move", "everywhere"] = "nowhere"


def _choco(exchanges: Exchanges) -> Form:
    """The two-buffer form where push weights stay 1, so that x is the model."""
    return FixedGraphChoco if exchanges.are_balanced else Choco


def _choco_numerator(exchanges: Exchanges) -> Form:
    """The two-buffer form where all edges carry one message in every exchange."""
    return FixedGraphChoco if exchanges.are_fixed else ChocoNumerator


ALGORITHMS: dict[str, AlgorithmKind] = {
    "choco": AlgorithmKind(
        "CHOCO-SGD with push-sum: compressed differences of models to "
        "public copies (docs/reference.md, section 14)",
        _choco,
    ),
    "choco_numerator": AlgorithmKind(
        "CHOCO-SGD as published: differences of x = u z, not of "
        "the model (docs/reference.md, section 3.3)",
        _choco_numerator,
        disagrees="where push weights move",
    ),
    "deepsqueeze": AlgorithmKind(
        "DeepSqueeze / Sparse-Push: compressed models with error "
        "feedback (docs/reference.md, section 3.4)",
        lambda _: DeepSqueeze,
        disagrees="everywhere",
    ),
    "gradient_push": AlgorithmKind(
        "SGP on directed graphs, D-PSGD on regular ones: "
        "uncompressed models (docs/reference.md, section 3.2)",
        lambda _: GradientPush,
    ),
    "dcd": AlgorithmKind(
        "Bagua's low-precision decentralized SGD: weights on the "
        "compressed path (docs/reference.md, section 7)",
        lambda _: Dcd,
        has_rate=False,
    ),
}
