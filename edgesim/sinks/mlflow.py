"""Metrics of a run for MLflow; needs the extra `mlflow`."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from edgesim.fleet.recording.fleet_state import FleetState, Sink
from edgesim.program import pip_install
from edgesim.sinks.steps import MissingPackageError, evaluation_values, state_values, summary_values

_MOST_METRICS = 1000  # of one request; MLflow's servers take no more


class MLflow(Sink):
    """A sink that logs to one run of MLflow; steps are rounds of the slowest device.

    Args:
        tracking_uri: of a server or a database, such as `sqlite:///mlflow.db`; None: as MLflow is
            set up. Newer versions of MLflow refuse plain folders.
        experiment: name of the experiment; made if it is not there.
        run_name: name of the run in MLflow.
        most_devices: a larger fleet has no metrics of single devices, only those of the fleet.

    Raises:
        MissingPackageError: MLflow is not installed.
    """

    def __init__(
        self,
        tracking_uri: str | None = None,
        experiment: str = "edgesim",
        run_name: str | None = None,
        most_devices: int = 100,
    ) -> None:
        try:
            from mlflow.tracking import MlflowClient
        except ImportError as error:
            remedy = pip_install("mlflow-skinny", "alembic", "sqlalchemy")
            raise MissingPackageError(
                f"MLflow can't be imported ({error}); install it: {remedy}"
            ) from error
        self._client: Any = MlflowClient(tracking_uri)
        self._most_devices = most_devices
        self._status = "KILLED"
        found = self._client.get_experiment_by_name(experiment)
        number = found.experiment_id if found else self._client.create_experiment(experiment)
        self._run_id: str = self._client.create_run(number, run_name=run_name).info.run_id

    def update(self, fleet: FleetState) -> None:
        """Log the newest values."""
        if fleet.slowest_round is not None:
            self._log(fleet.slowest_round, state_values(fleet, self._most_devices))

    def evaluated(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Log what an evaluation found of the averaged model."""
        self._log(*evaluation_values(rows))

    def finished(self, summary: Mapping[str, Any]) -> None:
        """Log the totals of a run that came to its end."""
        self._log(*summary_values(summary))
        self._status = "FINISHED"

    def close(self) -> None:
        """End MLflow's run: as finished or as killed."""
        self._client.set_terminated(self._run_id, self._status)

    def _log(self, step: int, values: Mapping[str, float]) -> None:
        from mlflow.entities import Metric

        now_ms = int(time.time() * 1000)
        metrics = [Metric(name, value, now_ms, step) for name, value in values.items()]
        for first in range(0, len(metrics), _MOST_METRICS):
            self._client.log_batch(self._run_id, metrics[first : first + _MOST_METRICS])
