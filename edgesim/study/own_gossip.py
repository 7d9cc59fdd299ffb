"""The algorithm and compressor of a scenario, for its model in either precision and for others."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from edgesim.assembly.gossip import make_algorithm, with_some_rate
from edgesim.gossip.algorithm import Algorithm
from edgesim.learning.parameters import ParameterLayout
from edgesim.scenario.gossip import IdentityCompressor, RandomKCompressor, TopKCompressor
from edgesim.scenario.schema import Scenario
from topologies import Schedule

DENSE = "dense"


@dataclass(frozen=True, slots=True)
class OwnGossip:
    """Gossip as a scenario has it.

    Attributes:
        scenario: the scenario.
        schedule: its graphs.
    """

    scenario: Scenario
    schedule: Schedule

    def algorithm(
        self, precision: Literal["fp32", "int8"], layout: ParameterLayout
    ) -> Algorithm[Any]:
        """The algorithm with its compressor, for a model in a precision."""
        model = self.scenario.model.model_copy(update={"precision": precision})
        # No cost depends on the averaging rate.
        changed = with_some_rate(self.scenario.model_copy(update={"model": model}))
        return make_algorithm(changed, layout, self.schedule)

    @property
    def compression(self) -> str:
        """What of a vector is sent, in words: `top 1 %`, `dense`, or the kind of compressor."""
        compressor = self.scenario.gossip.compressor
        if isinstance(compressor, TopKCompressor):
            return f"top {100 * compressor.keep:g} %"
        if isinstance(compressor, RandomKCompressor):
            return f"random {100 * compressor.keep:g} %"
        return DENSE if isinstance(compressor, IdentityCompressor) else str(compressor.kind)
