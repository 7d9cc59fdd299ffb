"""A scenario: everything that decides the result of a run, in one frozen value.

Each section has a file of its own beside this one. This file has the whole scenario and the checks
between sections. Names of models, datasets and compressors are literals, so reading a scenario
loads neither torch nor Ray. A test holds these names equal to the catalogs.
"""

from __future__ import annotations

import re
from math import ceil
from typing import Annotated, Self

from pydantic import Field, model_validator

from edgesim.errors import did_you_mean
from edgesim.hardware.catalog import PROFILES
from edgesim.scenario.data import DataSection
from edgesim.scenario.fleet import FleetSection
from edgesim.scenario.gossip import Gossip
from edgesim.scenario.hardware import HardwareSection, NetworkSection
from edgesim.scenario.metrics import MetricsSection
from edgesim.scenario.model import ModelSection
from edgesim.scenario.paper import PaperSection
from edgesim.scenario.recovery import RecoverySection
from edgesim.scenario.section import MOST_LINKS, ContradictionError, MustBe, Section, Seed
from edgesim.scenario.topology import Cycle, GraphFile, Topology, least_links
from edgesim.scenario.training import MOST_EVALUATIONS, EvaluationSection, TrainingSection

_ROTATING_DEVICES = 8  # of the reference code's permutations; reference.md, section 3.8


class Scenario(Section):
    """One scenario file, checked, with every default filled in."""

    name: Annotated[
        str,
        Field(pattern=r"^[a-z0-9][a-z0-9._-]*$", max_length=100),
        MustBe(
            "lower-case letters, digits, '.', '_' and '-', a letter or digit first, at most 100"
        ),
    ] = Field(description="name of the run; also of its folder unless --out says otherwise")
    description: str = Field(default="", description="what the scenario is for")
    seed: Seed = Field(default=1, description="root of all randomness")
    fleet: FleetSection
    hardware: HardwareSection = HardwareSection()
    topology: Topology
    network: NetworkSection = NetworkSection()
    data: DataSection
    model: ModelSection
    training: TrainingSection
    gossip: Gossip
    evaluation: EvaluationSection = EvaluationSection()
    recovery: RecoverySection = RecoverySection()
    metrics: MetricsSection = MetricsSection()
    paper: PaperSection | None = Field(
        default=None, description="what the paper reports for the scenario; null: nothing"
    )

    @property
    def steps_on_model(self) -> bool:
        """Whether a step of the optimizer moves the model z = x/u; else it moves the numerator."""
        return (self.training.optimizer.step_on or self.fleet.rules.steps_on) == "model"

    @model_validator(mode="after")
    def _sites_are_of_all_devices(self) -> Self:
        sites, fleet = getattr(self.gossip, "sites", None), self.fleet
        if sites == "nodes" and fleet.placement != "by_node":
            raise ContradictionError(
                "gossip.sites",
                f"is nodes; must be a number or a list for fleet.placement: {fleet.placement}, or "
                "set by_node, with which consecutive devices share a node",
            )
        if isinstance(sites, tuple) and len(sites) != fleet.num_devices:
            raise ContradictionError(
                "gossip.sites",
                f"has {len(sites)} items; must have one for each of the {fleet.num_devices} "
                "devices",
            )
        return self

    @model_validator(mode="after")
    def _integers_are_the_processors(self) -> Self:
        switches = self.model.quantization
        if switches and switches.backend == "int8_cpu" and self.fleet.accelerator == "cuda":
            raise ContradictionError(
                "model.quantization.backend",
                "is int8_cpu; must be auto or reference for fleet.accelerator: cuda",
            )
        return self

    @model_validator(mode="after")
    def _horizons_are_of_free_fleets(self) -> Self:
        if self.training.virtual_time_s is not None and not self.fleet.rules.goes_by_clock:
            raise ContradictionError(
                "training.virtual_time_s", "is set; in lockstep give epochs or rounds alone"
            )
        if self.training.virtual_time_s is not None and self.evaluation.every_rounds is not None:
            raise ContradictionError(
                "evaluation.every_rounds",
                "is set beside training.virtual_time_s, by which devices end in rounds of their "
                "own; use every_virtual_s",
            )
        every_s, end_s = self.evaluation.every_virtual_s, self.training.virtual_time_s
        if every_s is not None and end_s is None:
            raise ContradictionError(
                "evaluation.every_virtual_s", "is set; it needs a training.virtual_time_s"
            )
        return self

    @model_validator(mode="after")
    def _further_gossip_is_of_whole_fleets(self) -> Self:
        rounds = self.evaluation.gossip_rounds
        if rounds and not self.fleet.rules.waits_for_all:
            raise ContradictionError(
                "evaluation.gossip_rounds",
                f"is {rounds}; must be 0 at fleet.pace: {self.fleet.pace}, where messages are "
                "always on their way",
            )
        if rounds and self.fleet.churn is not None:
            raise ContradictionError(
                "evaluation.gossip_rounds",
                f"is {rounds}; must be 0 with fleet.churn: further rounds need the whole fleet",
            )
        return self

    @model_validator(mode="after")
    def _evaluations_are_not_too_many(self) -> Self:
        # Epochs have rounds once the data is known; each evaluation by epochs is one of theirs.
        training, evaluation = self.training, self.evaluation
        lengths = {
            "every_rounds": training.rounds,
            "every_epochs": None if training.virtual_time_s else training.epochs,
            "every_virtual_s": training.virtual_time_s,
        }
        for key, length in lengths.items():
            interval = getattr(evaluation, key)
            if interval is None or length is None:
                continue
            if (num_evaluations := ceil(length / interval)) > MOST_EVALUATIONS:
                raise ContradictionError(
                    f"evaluation.{key}",
                    f"is {interval:g}: {num_evaluations:,} evaluations; must be at most "
                    f"{MOST_EVALUATIONS:,}; raise it",
                )
        return self

    @model_validator(mode="after")
    def _links_are_not_too_many(self) -> Self:
        num_devices = self.fleet.num_devices
        num_links = least_links(self.topology, num_devices)
        if num_links > MOST_LINKS:
            raise ContradictionError(
                "topology.kind",
                f"is {self.topology.kind}: {num_links:,} links or more among {num_devices:,} "
                f"devices; must be at most {MOST_LINKS:,} links: take fewer devices or a sparser "
                "kind",
            )
        return self

    @model_validator(mode="after")
    def _profiles_exist(self) -> Self:
        own = [profile.name for profile in self.hardware.profiles]
        for place, own_name in enumerate(own):
            if own_name in PROFILES:
                raise ContradictionError(
                    f"hardware.profiles.{place}.name",
                    f"is {own_name}, the name of a profile of `edgesim list devices`; "
                    "choose another",
                )
        known = {*PROFILES, *own}
        wanted = [
            (f"hardware.profiles.{place}.based_on", profile.based_on)
            for place, profile in enumerate(self.hardware.profiles)
        ]
        if isinstance(self.fleet.devices, int):
            wanted.append(("fleet.profile", self.fleet.profile))
        else:
            wanted += [
                (f"fleet.devices.{place}.profile", group.profile)
                for place, group in enumerate(self.fleet.devices)
            ]
        for key, name in wanted:
            allowed = PROFILES if key.endswith("based_on") else known
            if name in own and allowed is PROFILES:
                said = "one of your own profiles; it can only be one of `edgesim list devices`"
                raise ContradictionError(key, f"is {name}, {said}")
            if name is not None and name not in allowed:
                remedy = did_you_mean(name, allowed, _board_for(name, key))
                kind = "profile of `edgesim list devices`" if allowed is PROFILES else "profile"
                raise ContradictionError(key, f"is {name}, which is no {kind}; {remedy}")
        return self

    @model_validator(mode="after")
    def _clocks_and_radios_need_profiles(self) -> Self:
        # Nodes of a graph file may have them, which is known once it is read.
        if not self.reads_graph_file and (missing := self.missing_profiles()):
            raise ContradictionError(*missing)
        return self

    @property
    def reads_graph_file(self) -> bool:
        """Whether the graph is read from a file, which may also name the devices."""
        topology = self.topology
        graphs = topology.graphs if isinstance(topology, Cycle) else (topology,)
        return any(isinstance(graph, GraphFile) for graph in graphs)

    def missing_profiles(self) -> tuple[str, str] | None:
        """A key that needs devices with profiles, and what is wrong there; None if nothing is."""
        fleet = self.fleet
        if fleet.groups:
            return None
        for key in ("compute_jitter", "duty_cycle"):
            if getattr(fleet, key):
                return f"fleet.{key}", "is set, but devices have no profile: add one"
        if fleet.rules.goes_by_clock:
            return (
                "fleet.pace",
                f"is {fleet.pace}, but devices have no clocks; name what they are in fleet.profile",
            )
        if self.network != NetworkSection():
            return "network", "is set, but devices have no radios; name their fleet.profile"
        if self.hardware != HardwareSection():
            return "hardware", "is set, but no device has a profile; name it in fleet.profile"
        return None

    @model_validator(mode="after")
    def _rotating_has_its_devices(self) -> Self:
        if self.topology.kind == "rotating" and self.fleet.num_devices != _ROTATING_DEVICES:
            raise ContradictionError(
                "fleet.devices",
                f"is {self.fleet.num_devices}; must be {_ROTATING_DEVICES} for topology.kind: "
                "rotating",
            )
        return self

    @model_validator(mode="after")
    def _every_device_can_have_a_sample(self) -> Self:
        samples = self.data.train_samples
        if samples is not None and samples < self.fleet.num_devices:
            raise ContradictionError(
                "data.train_samples",
                f"is {samples}; must be at least fleet.devices, {self.fleet.num_devices}",
            )
        return self


def _board_for(name: str, key: str) -> str:
    """What to write for a name that is like no name of a profile: `stm32` describes one."""
    described = {known: one.profile.description.lower() for known, one in PROFILES.items()}
    begins_a_word = re.compile(rf"\b{re.escape(name.lower())}")
    meant = (known for known, words in described.items() if begins_a_word.search(words))
    if len(name) > 2 and (board := next(meant, None)) is not None:
        return f"did you mean {board}?"
    own = ", or describe it under hardware.profiles (docs/own-device.md)"
    return f"see `edgesim list devices`{'' if key.endswith('based_on') else own}"
