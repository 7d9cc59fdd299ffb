"""Section `paper`: what the paper reports for a scenario; never changes a result."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from edgesim.scenario.section import Count, MustBe, Section


class PaperSection(Section):
    """What the paper (arXiv 2111.09389) reports for the scenario, for `edgesim report --paper`."""

    place: Annotated[
        str, Field(min_length=1, max_length=40), MustBe("text such as Table 2a, or Fig. 1")
    ] = Field(description="table or figure of the paper")
    accuracy: Annotated[float, Field(ge=0, le=100)] | None = Field(
        default=None,
        description="its test accuracy in percent, of the devices' models after 50 further rounds "
        "of gossip (docs/reference.md, section 8); null: no number is known",
    )
    epochs: Count | None = Field(default=None, description="length of the paper's training")
