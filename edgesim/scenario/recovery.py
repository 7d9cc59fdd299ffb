"""Section `recovery`: checkpoints and restarts; never changes a result."""

from __future__ import annotations

from pydantic import Field

from edgesim.scenario.section import Count, Seconds, Section


class RecoverySection(Section):
    """Checkpoints, restarts and the watchdog."""

    checkpoint_every_s: Seconds = Field(
        default=30.0,
        description=(
            "wall-clock seconds between two checkpoints of a device; more if checkpoints "
            "would take over 2 % of the time"
        ),
    )
    checkpoint_every_rounds: Count | None = Field(
        default=None, description="rounds between two checkpoints of a device, instead of seconds"
    )
    stall_timeout_s: Seconds = Field(
        default=600.0,
        description=(
            "wall-clock seconds without a finished round of any device after which a run "
            "ends and lists the waiting devices"
        ),
    )
