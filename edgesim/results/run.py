"""A run as Python code holds it: its scenario, its tables, its models."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from edgesim.results.models import Models
from edgesim.storage.store import Store

if TYPE_CHECKING:
    import pandas as pd

    from edgesim.scenario.schema import Scenario


@dataclass(frozen=True, repr=False, eq=False)
class Run:
    """Tables of a run; `edgesim list columns` prints the meaning of their columns.

    Attributes:
        place: path or URI of the run directory.
        rounds: one row per device and round, ordered by round and device.
        messages: one row per message, ordered by round, sender and receiver.
        evaluations: one row per evaluated model, with the bytes, messages and energy up to then in
            `total_sent_bytes`, `total_messages_sent` and `total_energy_j`. In an unfinished run
            these are null if a round that they sum is not written yet.
        devices: one row per device; no rows for an unfinished run.
        summary: figures of the closing table; empty for an unfinished run.
        models: final models by device, and `models.consensus`; none of an unfinished run.
        missing: what an unfinished run lacks, a line each; empty for a finished run.
    """

    place: str
    rounds: pd.DataFrame
    messages: pd.DataFrame
    evaluations: pd.DataFrame
    devices: pd.DataFrame
    summary: dict[str, Any]
    models: Models = field(default_factory=lambda: Models(None))
    missing: tuple[str, ...] = ()
    _about: Mapping[str, Any] = field(default_factory=dict)
    """Name, seed and number of devices of an unfinished run; `summary` has those of others."""

    @property
    def is_finished(self) -> bool:
        """Whether the run has ended.

        In an unfinished run devices may have done different numbers of rounds, and their last
        rounds may not be written yet.
        """
        return not self.missing

    @cached_property
    def scenario(self) -> Scenario:
        """The scenario as it was run, with every default.

        Raises:
            RunDirectoryError: the run directory lacks scenario.yaml, or the file is damaged.
            ScenarioError: a package that the scenario names is not installed.
        """
        from edgesim.results.run_files import RunFiles
        from edgesim.results.scenario_of_run import scenario_of_run

        return scenario_of_run(RunFiles(Store.at(self.place)))

    @property
    def path(self) -> Path:
        """Path of the run directory on this machine.

        Raises:
            StorageError: the run directory is not on this machine.
        """
        return Store.at(self.place).path

    @property
    def consensus(self) -> pd.DataFrame:
        """The evaluations of the averaged model: one row per evaluation."""
        return self.evaluations[self.evaluations["model"] == "consensus"].reset_index(drop=True)

    def accuracies(self, model: Literal["consensus", "device"] = "consensus") -> pd.Series:
        """Accuracy of each evaluation, by its row in `consensus`; those without one are left out.

        Args:
            model: of the averaged model, or the mean of the evaluated devices' own models.

        Raises:
            ValueError: it is neither of both.
        """
        if model not in {"consensus", "device"}:
            raise ValueError(f"model is {model!r}; must be consensus or device")
        is_consensus = self.evaluations["model"] == "consensus"
        number = is_consensus.cumsum() - 1
        wanted = self.evaluations["model"] == model
        accuracy = self.evaluations["accuracy"][wanted].astype("float64")
        return accuracy.groupby(number[wanted]).mean().dropna()

    def reaching(
        self, accuracy: float, model: Literal["consensus", "device"] = "consensus"
    ) -> pd.Series | None:
        """First row of `consensus` by which the run has an accuracy; None if it never has.

        The row says what the fleet had spent by then: `round`, `epoch`, `virtual_time_s`,
        `total_sent_bytes` and `total_energy_j`. Its `accuracy` is that of the averaged model.

        Args:
            accuracy: a fraction, such as 0.8.
            model: whose accuracy, as in `accuracies`.

        Raises:
            ValueError: the accuracy is not above 0 and at most 1, or there is no such model.
        """
        if not 0 < accuracy <= 1:
            meant = f": {accuracy / 100:g}?" if 1 < accuracy <= 100 else ""
            raise ValueError(f"accuracy is {accuracy:g}; must be above 0 and at most 1{meant}")
        return self.with_accuracy(accuracy, model)

    def with_accuracy(
        self, accuracy: float, model: Literal["consensus", "device"] = "consensus"
    ) -> pd.Series | None:
        """As `reaching`, of any number."""
        found = self.accuracies(model)
        reached = found.index[found >= accuracy]
        return None if reached.empty else self.consensus.loc[reached[0]]

    def __repr__(self) -> str:
        facts = "; ".join(" ".join(pair) for pair in self._facts())
        return f"<run {self._title}: {facts}>"

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><td>{escape(name)}</td><td>{escape(value)}</td></tr>"
            for name, value in self._facts()
        )
        return f"<table><caption>{escape(self._title)}</caption><tbody>{rows}</tbody></table>"

    @property
    def _title(self) -> str:
        about = self.summary or self._about
        title = f"{about.get('name')} (seed {about.get('seed')})" if about else "a run"
        return title if self.is_finished else f"{title}, unfinished"

    def _facts(self) -> list[tuple[str, str]]:
        """What a person wants to see first."""
        facts = []
        last = self.consensus.tail(1)
        if not last.empty:
            row = last.iloc[0]
            if row["accuracy"] == row["accuracy"]:  # not NaN, as in a task without
                facts.append(("accuracy", f"{row['accuracy']:.4f}"))
            facts.append(("loss", f"{row['loss']:.4g}"))
        if not self.rounds.empty:
            of_devices = self.rounds.groupby("device")["round"].max() + 1
            num_devices = (self.summary or self._about).get("devices", len(of_devices))
            are_equal = of_devices.nunique() == 1
            facts += [
                ("devices", f"{num_devices:,}"),
                ("rounds" if are_equal else "rounds, most", f"{of_devices.max():,}"),
                ("bytes sent", f"{self.rounds['sent_bytes'].sum():,}"),
            ]
        facts += [("warning", line) for line in self.summary.get("warnings", ())]
        facts += [("missing", line) for line in self.missing]
        return [*facts, ("files", self.place)]
