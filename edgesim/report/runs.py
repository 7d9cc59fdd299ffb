"""Runs as a report sees them: their tables, scenario and names, and what of them is missing."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any

import yaml

from edgesim.data.sources import SOURCES
from edgesim.errors import EdgesimError
from edgesim.report.errors import NothingRecordedError, ReportError
from edgesim.report.frames import Frame
from edgesim.report.units import listed
from edgesim.results.load import UnfinishedRunWarning, load_run
from edgesim.results.run import Run
from edgesim.results.run_files import ABOUT, RunDirectoryError, RunFiles
from edgesim.results.scenario_of_run import num_devices_of, scenario_of_run
from edgesim.results.test_samples import settings_of_test_samples
from edgesim.scenario.own_parts import OwnPart
from edgesim.scenario.schema import Scenario
from edgesim.storage.store import Store

CONSENSUS = "consensus"
"""Value of the column `model` of the averaged model."""

_LONGEST_LABEL = 60  # characters of a label that has all differing settings

_FOLLOWS = "gossip.averaging_rate"  # is named in a label last

_CONTENT = "content of "  # before the name of a file, in place of a key
_TEST_SAMPLES = f"{_CONTENT}test samples"

_NO_SETTINGS = ("name", "description", "seed")  # what says nothing of how a run was trained


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
        """Rounds in the order of device and round."""
        return self.run.rounds.sort_values(["device", "round"], ignore_index=True)


def load_runs(places: Sequence[str | Path], *, are_compared: bool = True) -> list[ReportedRun]:
    """Load runs, check that they can be compared, and give each a label.

    Args:
        places: run directories, paths or URIs; or folders of this machine with runs in them, of
            which those are left out that have recorded nothing yet.
        are_compared: refuse runs of which accuracies measure different things.

    Raises:
        EdgesimError: a place is no run, holds no round yet, or its files are damaged.
        ReportError: two runs cannot be compared.
    """
    found = [run for place in places for run in _load_all(place)]
    if are_compared:
        check_comparable(found)
    groups, labels = _groups(found), _labels(found)
    return [
        replace(run, label=label, group=group)
        for run, label, group in zip(found, labels, groups, strict=True)
    ]


def _load_all(place: str | Path) -> list[ReportedRun]:
    """The run at a place, or all runs of a folder."""
    store = Store.at(place)
    if not store.is_local or store.exists(ABOUT) or not store.path.is_dir():
        return [_load(place)]
    folders = sorted(
        path.parent for depth in ("*", "*/*") for path in store.path.glob(f"{depth}/{ABOUT}")
    )
    found, without = [], []
    for folder in folders:
        try:
            found.append(_load(folder))
        except NothingRecordedError:
            without.append(folder.name)
    if found and without:
        words = f"runs of the folder that have recorded nothing yet: {listed(without)}"
        found[0] = replace(found[0], missing=(*found[0].missing, words))
    return found or [_load(folders[0] if folders else place)]


def _load(place: str | Path) -> ReportedRun:
    missing: list[str] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        run = load_run(place)
    for warning in caught:
        if not issubclass(warning.category, UnfinishedRunWarning):
            warnings.warn_explicit(
                warning.message, warning.category, warning.filename, warning.lineno
            )
    if run.rounds.empty:
        raise NothingRecordedError(
            f"{run.place}: no round of this run is recorded yet; report it later"
        )
    files = RunFiles(Store.at(place))
    settings = files.read_settings()
    environment = files.read_json("environment.json") if files.has("environment.json") else {}
    if not run.is_finished:
        missing.append(
            "labels, memory and the closing figures of devices, which are written when a run ends"
        )
        if run.evaluations.empty:
            missing.append("accuracy and loss of models: none has been evaluated yet")
    scenario: Scenario | None = None
    try:
        scenario = scenario_of_run(files)
    except RunDirectoryError:
        raise
    except EdgesimError as error:
        missing.append(f"what follows from its scenario, which this edgesim cannot read: {error}")
    return ReportedRun(
        run, settings, environment, scenario, run.place, "", tuple(missing), files.run_digest
    )


def check_comparable(runs: Sequence[ReportedRun]) -> None:
    """Refuse runs of which accuracies and losses measure different things."""
    first = runs[0]
    for other in runs[1:]:
        for key in ("data.source", "data.options", "training.task", "training.task_options"):
            one, two = (_value(run.settings, key) for run in (first, other))
            if one != two:
                raise ReportError(
                    f"{first.run.place} and {other.run.place} can't be compared: {key} is "
                    f"{written(one)} in the first and {written(two)} in the second; report them "
                    "apart"
                )
        for key in ("data.source", "training.task"):
            one, two = (_code_digest(run, key) for run in (first, other))
            if one and two and one != two:
                raise ReportError(
                    f"{first.run.place} and {other.run.place} can't be compared: the code of {key} "
                    "was changed between the two; report them apart"
                )


def _code_digest(run: ReportedRun, key: str) -> str | None:
    """Digest of one's own code that a setting names; None of a part that edgesim has."""
    parts: Mapping[str, str] = run.environment.get("own_parts", {})
    return parts.get(str(_value(run.settings, key)))


def published_samples(settings: Mapping[str, Any]) -> tuple[int, int | None] | None:
    """Training and test samples of a published dataset, None of another one."""
    source = SOURCES.get(str(_value(settings, "data.source")))
    shape = source.published_shape if source else None
    return (shape.num_train, shape.num_test) if shape else None


def trained_alike(run: ReportedRun) -> str:
    """All that runs over several seeds have in common, as a text that can be compared."""
    kept = {key: value for key, value in _compared(run).items() if key not in _NO_SETTINGS}
    return "\n".join(f"{key}: {written(value)}" for key, value in sorted(kept.items()))


def differing_settings(
    runs: Sequence[ReportedRun], *, follows: bool = True
) -> dict[str, list[str]]:
    """Settings that differ between runs: the value in each run as text, by key.

    Args:
        runs: two or more.
        follows: whether keys that are null have the value that follows from other keys.
    """
    flat = [_compared(run) for run in runs]
    if follows and all(run.scenario for run in runs):
        flat = [settings | _following(run) for settings, run in zip(flat, runs, strict=True)]
    keys = list(dict.fromkeys(key for settings in flat for key in settings))
    table = {key: [written(settings.get(key)) for settings in flat] for key in keys}
    if len({settings_of_test_samples(run.settings, without=("path",)) for run in runs}) > 1:
        table.pop(_TEST_SAMPLES, None)  # they follow
    return {
        key: values
        for key, values in table.items()
        if len(set(values)) > 1
        and key != "description"
        and not key.startswith("paper.")
        # A file that one run alone has is told of by the key that names it.
        and not (key.startswith(_CONTENT) and written(None) in values)
    }


def _compared(run: ReportedRun) -> dict[str, object]:
    """Settings of a run and digests of what they name, by key."""
    found = flat_settings(_with_names(run.settings)) | _contents(run)
    if published_samples(run.settings) is not None:
        found.pop("data.path", None)  # where a published dataset lies is no matter
    return found


def _with_names(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings with the names of devices in place of their numbers in `fleet.devices`.

    A graph file numbers devices in an order of its own, which is not that of the user's scenario.
    """
    fleet = settings.get("fleet") or {}
    names, groups = fleet.get("names") or (), fleet.get("devices")
    if not names or not isinstance(groups, list):
        return dict(settings)
    rest = iter(names)
    named = {listed(list(islice(rest, group.get("count") or 1))): group for group in groups}
    return {**settings, "fleet": {**fleet, "devices": named}}


def _contents(run: ReportedRun) -> dict[str, object]:
    """Digests of the samples, files and own code that settings name, which may have changed.

    Training samples are not among them: which of them devices have may follow from the seed.
    """
    digests: dict[str, set[str]] = {}
    for path, digest in run.environment.get("files", {}).items():
        digests.setdefault(Path(path).name, set()).add(digest[:8])
    for part, digest in run.environment.get("own_parts", {}).items():
        digests.setdefault(Path(_file_of(part)).name, set()).add(digest[:8])
    if samples := run.environment.get("samples"):
        digests["test samples"] = {samples["test"][:8]}
    return {f"{_CONTENT}{name}": ", ".join(sorted(found)) for name, found in digests.items()}


def _file_of(part: str) -> str:
    """File or module of one's own part, which is written FILE:NAME."""
    return part.rpartition(":")[0] or part


def _following(run: ReportedRun) -> dict[str, object]:
    """Values of keys that are null and follow from other keys."""
    assert run.scenario is not None, "looked at before"
    found: dict[str, object] = {}
    model, compressor = run.scenario.model, run.settings["gossip"].get("compressor") or {}
    if model.norm is None and not isinstance(model.name, OwnPart):
        found["model.norm"] = model.norm_used
    if model.gate is None and model.gate_used is not None:
        found["model.gate"] = model.gate_used
    if "values" in compressor and compressor["values"] is None:
        found["gossip.compressor.values"] = model.precision
    return found


def _labels(runs: Sequence[ReportedRun]) -> list[str]:
    """Short labels that tell runs apart: the settings that differ, or else their folders."""
    labels = _groups(runs)
    if len(runs) > 1 and len({run.settings["seed"] for run in runs}) > 1:
        seeds = [f"seed {run.settings['seed']}" for run in runs]
        labels = [f"{label}, {seed}" for label, seed in zip(labels, seeds, strict=True)]
    if len(set(labels)) == len(labels):
        return labels
    folders = [Path(run.place).name for run in runs]
    if len(set(folders)) == len(folders):
        return folders
    return [f"{place + 1}: {folder}" for place, folder in enumerate(folders)]


def _groups(runs: Sequence[ReportedRun]) -> list[str]:
    """What runs that differ in the seed alone have in common, by the settings that differ."""
    differing = differing_settings(runs, follows=False)
    names = differing.get("name", [])
    for key in _NO_SETTINGS:
        differing.pop(key, None)
    if not differing:
        return [str(run.settings.get("name", "run")) for run in runs]
    differing = {key: _without_folders(values) for key, values in differing.items()}
    columns = [[f"{_short(key)} {value}" for value in values] for key, values in differing.items()]
    labels = [", ".join(words) for words in zip(*columns, strict=True)]
    if max(map(len, labels)) <= _LONGEST_LABEL:
        return labels
    if len(set(names)) == len(set(labels)):
        return names
    # Settings that follow from others tell nothing: those stay that tell more groups apart. The
    # averaging rate often follows from the compressor, which says more.
    told: list[str] = [""] * len(runs)
    for key in sorted(differing, key=lambda key: key == _FOLLOWS):
        words = [f"{_short(key)} {value}" for value in differing[key]]
        more = [f"{one}, {word}".removeprefix(", ") for one, word in zip(told, words, strict=True)]
        told = more if len(set(more)) > len(set(told)) else told
    if max(map(len, told)) <= _LONGEST_LABEL:
        return told
    numbers = {label: place + 1 for place, label in enumerate(dict.fromkeys(labels))}
    return [f"settings {numbers[label]}" for label in labels]


def _without_folders(values: list[str]) -> list[str]:
    """Own parts without their folders, where that still tells them apart."""
    short = [value.rsplit("/", 1)[-1] if ".py:" in value else value for value in values]
    return short if len(set(short)) == len(set(values)) else values


def _short(key: str) -> str:
    """A key in a label: its last part, and the part before where that says little."""
    if key.startswith(_CONTENT):
        return key
    *before, last = key.split(".")
    return f"{before[-1]}.{last}" if before and last in ("kind", "name", "values") else last


def flat_settings(value: object, key: str = "") -> dict[str, object]:
    """Settings by their whole keys, items of lists by their number; without those that are null."""
    if isinstance(value, dict):
        items: list[tuple[object, object]] = list(value.items())
    elif isinstance(value, list) and any(isinstance(item, dict) for item in value):
        items = list(enumerate(value))
    else:
        return {} if value is None else {key: value}
    found: dict[str, object] = {}
    for name, inner in items:
        found |= flat_settings(inner, f"{key}.{name}" if key else str(name))
    return found


def _value(settings: Mapping[str, Any], key: str) -> object:
    value: Any = settings
    for part in key.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    return value


def written(value: object) -> str:
    """A value of a scenario as it is written there."""
    if isinstance(value, str):
        return value
    text = yaml.safe_dump(value, default_flow_style=True, width=10**6).strip()
    return text.removesuffix("...").strip()
