"""A run as a report sees it: its tables, scenario and names, and what of them is missing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from edgesim.report.frames import Frame
from edgesim.report.holders import between_devices, waiting_for_devices
from edgesim.results.run import Run
from edgesim.results.scenario_of_run import num_devices_of
from edgesim.scenario.schema import Scenario

CONSENSUS = "consensus"
"""Value of the column `model` of the averaged model."""


@dataclass(frozen=True, eq=False)
class ReportedRun:
    """A run that a report is made of.

    Attributes:
        run: its tables.
        settings: content of its scenario.yaml.
        environment: content of its environment.json.
        scenario: its settings as a checked value; None where they cannot be checked any more.
        label: what tells it from the other runs of the report.
        group: what tells it from runs that differ in more than the seed.
        missing: what the report cannot show of it, a sentence each.
        digest: of its settings and data.
    """

    run: Run
    settings: Mapping[str, Any]
    environment: Mapping[str, Any]
    scenario: Scenario | None
    label: str
    group: str
    missing: tuple[str, ...]
    digest: str = ""

    @property
    def place(self) -> str:
        """Path or URI of the run directory."""
        return self.run.place

    @property
    def is_finished(self) -> bool:
        """Whether the run has ended."""
        return self.run.is_finished

    @property
    def rounds(self) -> Frame:
        """Rows of rounds.parquet."""
        return self.run.rounds

    @property
    def messages(self) -> Frame:
        """Rows of messages.parquet."""
        return self.run.messages

    @property
    def evaluations(self) -> Frame:
        """Rows of evaluations.parquet."""
        return self.run.evaluations

    @property
    def consensus(self) -> Frame:
        """Evaluations of the averaged model."""
        return self.evaluations[self.evaluations["model"] == CONSENSUS]

    @property
    def num_devices(self) -> int:
        """Number of devices of the fleet."""
        return num_devices_of(self.settings) or 0

    @cached_property
    def labels(self) -> list[str]:
        """What each device is called on axes: its name, or its number."""
        names = self.settings["fleet"].get("names") or ()
        return list(names) or [str(device) for device in range(self.num_devices)]

    @property
    def has_names(self) -> bool:
        """Whether devices have names."""
        return bool(self.settings["fleet"].get("names"))

    def device(self, device: int) -> str:
        """What a device is called in a sentence."""
        return self.labels[device] if self.has_names else f"device {device}"

    @property
    def has_clock(self) -> bool:
        """Whether devices have a virtual clock."""
        return "virtual_time_s" in self.run.rounds

    @property
    def is_free(self) -> bool:
        """Whether devices go at their own pace."""
        return bool(self.settings["fleet"].get("pace") == "free")

    @cached_property
    def by_device(self) -> Frame:
        """Rounds in the order of device and round; `waited_for` is a device that was there."""
        rounds = self.run.rounds.sort_values(["device", "round"], ignore_index=True)
        return waiting_for_devices(rounds, self.messages)

    @cached_property
    def exchanges(self) -> Frame:
        """Messages between devices that were there, in place of those that had left.

        Those of a successor to an address that it has taken over are none.
        """
        found = between_devices(self.messages, self.num_devices, is_free=self.is_free)
        return found[found["sender"] != found["receiver"]]
