"""The plan of a fleet, which all its hosts get: devices to build, and the run directory."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from edgesim.assembly.build import Compute, DataSpec
from edgesim.assembly.training_plan import TrainingPlan
from edgesim.models.start_values import StartValues
from edgesim.scenario.schema import Scenario
from edgesim.storage.lease import Holder
from topologies import Schedule


@dataclass(frozen=True, slots=True)
class FleetPlan:
    """All that a host needs, beside its shards, to build its devices; the same for all hosts.

    Attributes:
        run_directory: where the run leaves its files, a path or a URI.
        run_digest: digest of all that determines the result; checkpoints of another run are not
            read.
        holder: holder of the lease of the run directory; see `RunDirectory`.
        start: values that models begin with; None: random ones.
    """

    scenario: Scenario
    schedule: Schedule
    data: DataSpec
    training: TrainingPlan
    compute: Compute
    run_directory: Path | str
    run_digest: str = ""
    holder: Holder | None = None
    start: StartValues | None = None
