"""One evaluation of a run, as those who are told of it get it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

from edgesim.results.columns import EVALUATION_NAMES


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """What an evaluation found. Figures are of the averaged model.

    Attributes:
        place: path or URI of the run directory.
        round: completed rounds.
        epoch: the same in epochs.
        accuracy: fraction of test samples classified correctly; None in a task without.
        loss: mean loss on the test samples.
        consensus_distance: sqrt(mean over devices of `|z_i - z_bar|^2`), of trained parameters.
        model_norm: `|z_bar|`, Euclidean, of trained parameters.
        virtual_time_s: the fleet's clock; None where devices have no profile.
        total_sent_bytes: of all messages of the fleet until then; None if a run that an earlier
            version began does not know it.
        total_energy_j: of the fleet until then; None where devices have no profile.
        metrics: measures of the task beside loss and accuracy, by name.
        devices: the same of single devices' own models, where they were evaluated: rows of
            evaluations.parquet, with `total_sent_bytes` and `total_energy_j`.
    """

    place: str
    round: int
    epoch: float
    accuracy: float | None
    loss: float
    consensus_distance: float
    model_norm: float
    virtual_time_s: float | None
    total_sent_bytes: int | None
    total_energy_j: float | None
    metrics: Mapping[str, float]
    devices: tuple[Mapping[str, Any], ...] = field(repr=False)

    @classmethod
    def of(cls, rows: Sequence[Mapping[str, Any]], place: str) -> Self:
        """An evaluation from its rows of evaluations.parquet, that of the averaged model first.

        Args:
            rows: of the evaluation.
            place: path or URI of the run directory.
        """
        consensus, *devices = rows
        return cls(
            place=place,
            round=consensus["round"],
            epoch=consensus["epoch"],
            accuracy=consensus["accuracy"],
            loss=consensus["loss"],
            consensus_distance=consensus["consensus_distance"],
            model_norm=consensus["model_norm"],
            virtual_time_s=consensus["virtual_time_s"],
            total_sent_bytes=consensus.get("total_sent_bytes"),
            total_energy_j=consensus.get("total_energy_j"),
            metrics={
                name: value for name, value in consensus.items() if name not in EVALUATION_NAMES
            },
            devices=tuple(devices),
        )


Callback = Callable[[Evaluation], object]
"""Told of each evaluation; what it returns is not used."""
