"""A scenario checked against its graph, data and model; nothing is started or written."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from edgesim.api.display import tables_html
from edgesim.api.scenarios import ScenarioLike, errors_named, name_of, read_scenario
from edgesim.assembly.budget import check_memory
from edgesim.assembly.build import choose_compute
from edgesim.assembly.gossip import averaging_rate, is_of_nodes, sites_of
from edgesim.assembly.partitions import owner_column
from edgesim.assembly.parts.own_imports import check_imports
from edgesim.assembly.preparation import prepare
from edgesim.assembly.prepared_run import PreparedRun
from edgesim.assembly.rate_search.search import rate_notice
from edgesim.assembly.studied_scenario import studied_scenario
from edgesim.data.shape import DataShape
from edgesim.errors import EdgesimError
from edgesim.learning.accelerator import AcceleratorError, num_local_gpus
from edgesim.quant.backends import describe_backend
from edgesim.quant.errors import BackendError
from edgesim.scenario.data import OwnerPartition
from edgesim.scenario.own_parts import OwnPart, own_parts
from edgesim.scenario.schema import Scenario
from edgesim.study.notices.batteries import check_batteries
from edgesim.study.notices.notices import notices
from edgesim.study.tables.lines import table_lines
from edgesim.study.tables.table import Table
from topologies import first_exchange, mixing_matrix, spectral_gap

LARGEST_GAP = 512  # devices; the spectral gap of so many takes at most a second


@dataclass(frozen=True, slots=True)
class Checked:
    """A scenario that has passed every check.

    Attributes:
        prepared: the scenario as objects, with its data.
        notices: allowed choices whose consequences are easily overlooked, a line each.
    """

    prepared: PreparedRun
    notices: tuple[str, ...]

    @property
    def scenario(self) -> Scenario:
        """The scenario, with every default, and with the averaging rate that was found."""
        return self.prepared.scenario

    @property
    def num_rounds(self) -> int:
        """Rounds of each device."""
        return self.prepared.training.num_rounds

    @property
    def num_parameters(self) -> int:
        """Entries of the vector that is gossiped: trained parameters, and ranges if they are."""
        return self.prepared.layout.numel

    @property
    def table(self) -> Table:
        """What a run will do."""
        return prepared_table(self.prepared)

    def __repr__(self) -> str:
        notices = (f"notice: {line}" for line in self.notices)
        table = self.table
        return "\n".join([table.title, *table_lines(table, None), *table.notes, *notices])

    def _repr_html_(self) -> str:
        return tables_html([self.table], self.notices)


def validate(scenario: ScenarioLike, **overrides: object) -> Checked:
    """Check a scenario with its graph, data and model; start nothing and write nothing.

    A dataset that is missing is fetched if the scenario has `data.download: true`.

    Args:
        scenario: a file, the name of a shipped scenario, a mapping, or a scenario.
        **overrides: values by key, as in `edgesim.run`.

    Returns:
        What a run will do, with notices about choices that are easily overlooked.

    Raises:
        ScenarioError: what can't work, where, and what to change.
        DataError: the data can't be read.
    """
    return check(read_scenario(scenario, overrides), name_of(scenario), reads_images=False)


def check(scenario: Scenario, name: str, *, reads_images: bool, is_cell: bool = False) -> Checked:
    """Check a scenario.

    Args:
        scenario: as it was read.
        name: what messages call the scenario.
        reads_images: whether to read all images that a run uses, after all other checks.
        is_cell: of a sweep, which has checked it: an averaging rate is not tried for a notice, and
            imports of own files are not looked at in the process that runs the cell.

    Raises:
        ScenarioError: what can't work, where, and what to change.
        TorchSettingsError: torch has settings that models can't be made with.
    """
    check_torch()
    with errors_named(name):
        of_imports = [] if is_cell else check_imports(scenario)
        prepared = prepare(scenario, reads_images=False)
        if not is_cell:
            check_imports(scenario)  # again: own code may have changed the path of imports
        shape = DataShape.of(prepared.dataset)
        shortage = check_memory(prepared.scenario, shape, prepared.schedule)
        studied = studied_scenario(prepared.scenario, shape, prepared.schedule)
        check_batteries(studied)
        said = [*of_imports, *prepared.notices, *notices(studied, prepared.training.num_rounds)]
        if not is_cell and prepared.found_rate is None and (of_rate := rate_notice(studied)):
            said.append(of_rate)
        if reads_images:
            prepared.read_images()
    return Checked(prepared, tuple([shortage, *said] if shortage else said))


class TorchSettingsError(EdgesimError, RuntimeError):
    """Settings of torch in this process with which no model can be made."""


def check_torch() -> None:
    """Refuse what a notebook may have set for all of torch.

    Raises:
        TorchSettingsError: another default type, or inference mode.
    """
    if (dtype := torch.get_default_dtype()) != torch.float32:
        raise TorchSettingsError(
            f"torch's default type is {dtype}; models are float32: "
            "torch.set_default_dtype(torch.float32)"
        )
    if torch.is_inference_mode_enabled():
        raise TorchSettingsError(
            "torch.inference_mode() is on, in which nothing can be trained; call edgesim outside"
        )


def prepared_table(prepared: PreparedRun) -> Table:
    """Table of what a run of a checked scenario will do."""
    scenario, training = prepared.scenario, prepared.training
    first = first_exchange(prepared.schedule)
    graph = prepared.schedule.graph(first)
    sizes = [len(indices) for indices in prepared.indices]
    degrees = [degree for _, degree in graph.out_degree()]
    rows = [
        ("devices", str(scenario.fleet.num_devices)),
        ("topology", str(scenario.topology.kind)),
        (f"out-neighbors in round {first}", f"{min(degrees)} to {max(degrees)}"),
    ]
    if prepared.schedule.is_static and len(graph) <= LARGEST_GAP:
        gap = spectral_gap(np.asarray(mixing_matrix(graph)))
        rows.append(("spectral gap", f"{gap:.4f}"))
    elif prepared.schedule.is_static:
        rows.append(("spectral gap", f"computed for up to {LARGEST_GAP} devices"))
    if (sites := sites_of(scenario)) is not None:
        found = "; two halves, until a run finds its nodes" if is_of_nodes(scenario) else ""
        rows.append(("sites", f"{len(set(sites))}{found}"))
    if (rate := averaging_rate(scenario)) is not None:
        rows.append(("averaging rate", f"{rate:g}"))
    rows += [
        ("model", f"{scenario.model.name}, {prepared.layout.numel:,} parameters"),
        *_arithmetic_rows(scenario),
        *([("begins with", f"values of {place}")] if (place := scenario.model.start_from) else []),
        ("samples per device", f"{min(sizes):,} to {max(sizes):,}"),
        *_owner_rows(prepared),
        (scenario.data.evaluated, f"{prepared.num_test_samples:,}"),
        *_held_out_rows(prepared),
        ("rounds", f"{training.num_rounds:,} ({training.rounds_per_epoch} per epoch)"),
        *_evaluation_rows(prepared),
    ]
    rows += [(f"{key}, your own", _described(part)) for key, part in own_parts(scenario)]
    notes = (str(prepared.found_rate),) if prepared.found_rate else ()
    return Table(f"{scenario.name}: valid, can be run", ("", ""), tuple(rows), notes)


def _arithmetic_rows(scenario: Scenario) -> list[tuple[str, str]]:
    """A row about the 8-bit back end that a run on this machine would take; none in fp32."""
    if scenario.model.precision == "fp32":
        return []
    try:
        backend = choose_compute(scenario, num_local_gpus()).backend
    except (AcceleratorError, BackendError) as error:  # another machine may have what it asks for
        return [("8-bit arithmetic", f"none here: {error}")]
    return [("8-bit arithmetic", describe_backend(backend))] if backend else []


def _described(part: OwnPart) -> str:
    """Description of the code that is loaded for an own part."""
    what = "package" if part.source is None else "file"
    return f"{part.name} from {part.place} ({what} {part.digest[:12]})"


def _evaluation_rows(prepared: PreparedRun) -> list[tuple[str, str]]:
    """Rows about evaluations of the averaged model and of devices' own models."""
    section, devices = prepared.scenario.evaluation, prepared.scenario.fleet.num_devices
    num_evaluations = len(prepared.training.evaluation_rounds)
    rows = [("evaluations", f"{num_evaluations:,} of the averaged model")]
    if section.device_models == "never":
        return rows
    most = devices if section.device_sample == "all" else min(section.device_sample, devices)
    which = "all devices" if most == devices else f"{most:,} of {devices:,} devices"
    when = "in each" if section.device_models == "every" else "in the last"
    times, rounds = 1 + bool(section.gossip_rounds), section.gossip_rounds
    seen, noun = (times * most + 1) * prepared.num_test_samples, prepared.dataset.noun
    once_more = f", and once more after {rounds:,} rounds of gossip" if rounds else ""
    return [*rows, (f"  {when}", f"also of {which}{once_more}: {seen:,} {noun}")]


def _owner_rows(prepared: PreparedRun) -> list[tuple[str, str]]:
    """A row that says which device has whose samples, where they are dealt by owner."""
    scenario, section = prepared.scenario, prepared.scenario.data.partition
    if not isinstance(section, OwnerPartition):
        return []
    from edgesim.data.natural import how_dealt  # loads pyarrow

    owners = owner_column(scenario.data, prepared.dataset, section.column, "train")
    used = owners[np.concatenate(prepared.indices)]
    return [("  owners", how_dealt(used, scenario.fleet.num_devices, scenario.fleet.names))]


def _held_out_rows(prepared: PreparedRun) -> list[tuple[str, str]]:
    """A row about test samples of devices' own, where the partition could give them some."""
    sizes = [len(indices) for indices in prepared.held_out]
    label = "  own of a device"
    if not sizes:
        section, is_off = prepared.scenario.data.partition, prepared.scenario.evaluation.own_samples
        if isinstance(section, OwnerPartition) and is_off != 0:
            why = f"test samples have no column {section.column}, or no device's owner in it"
            return [(label, f"none: {why}")]
        return []
    lacking = sum(not size for size in sizes)
    without = f"; {lacking:,} {'device has' if lacking == 1 else 'devices have'} none"
    return [(label, f"{min(sizes):,} to {max(sizes):,}" + (without if lacking else ""))]
