"""What a trained model is of: a run by its directory alone, and its data once they are needed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from edgesim.assembly.build import DataSpec
from edgesim.assembly.preparation import prepare
from edgesim.assembly.prepared_run import PreparedRun
from edgesim.models.start_values import StartValues
from edgesim.results.run import Run
from edgesim.results.run_files import RunDirectoryError
from edgesim.scenario.schema import Scenario


@dataclass(frozen=True)
class Origin:
    """A run without its data, which are read when they are needed.

    Attributes:
        scenario: of the run.
        environment: content of its environment.json.
        start: values with which it began, if they were not random.
        data: what its model was made for.
    """

    scenario: Scenario
    environment: Mapping[str, Any]
    start: StartValues | None
    data: DataSpec

    @property
    def num_rounds(self) -> int:
        """Largest number of rounds of a device; runs of an older edgesim do not say it."""
        known = self.environment.get("rounds")
        return self.prepared.training.num_rounds if known is None else int(known)

    @cached_property
    def prepared(self) -> PreparedRun:
        """The run with its data.

        Raises:
            ScenarioError, DataError: they are not where the scenario says.
        """
        return prepare(self.scenario, goes_on=True, reads_images=False, start=self.start)


def data_of(run: Run, environment: Mapping[str, Any], start: StartValues | None) -> DataSpec:
    """What the run's model was made for; runs of an older edgesim do not say it, but their data do.

    Raises:
        ScenarioError, DataError: the data of such a run are not where its scenario says.
        RunDirectoryError: they have changed.
    """
    inputs = environment.get("inputs", {})
    if "image_shape" in inputs:
        lists = {key: tuple(inputs[key]) for key in ("image_shape", "mean", "std")}
        return DataSpec(**inputs | lists)
    data = prepare(run.scenario, goes_on=True, reads_images=False, start=start).data
    if inputs and inputs != {"mean": list(data.mean), "std": list(data.std)}:
        raise RunDirectoryError(
            f"{run.place}: the training samples have changed since the run, and with them the mean "
            "by which images are normalised; bring them back"
        )
    return data
