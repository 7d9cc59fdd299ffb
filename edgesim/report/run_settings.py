"""Settings of runs: which ones differ, and the labels of runs that follow from them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import yaml

from edgesim.data.sources import SOURCES
from edgesim.report.reported_run import ReportedRun
from edgesim.report.units import listed
from edgesim.results.test_samples import settings_of_test_samples
from edgesim.scenario.file_references import without_folders
from edgesim.scenario.own_parts import OwnPart
from edgesim.scenario.plain import value_of

_LONGEST_LABEL = 60  # characters of a label that has all differing settings

_FOLLOWS = "gossip.averaging_rate"  # is named in a label last

_CONTENT = "content of "  # before the name of a file, in place of a key
_TEST_SAMPLES = f"{_CONTENT}test samples"

_PART = "name"  # a key that may hold an own part

_NO_SETTINGS = ("name", "description", "seed")  # what says nothing of how a run was trained


def held_back_of(settings: Mapping[str, Any]) -> int | None:
    """Training samples that a run held back, and evaluated on in place of the test samples."""
    held_back: int | None = (settings.get("data") or {}).get("validation_samples")
    return held_back


def published_samples(settings: Mapping[str, Any]) -> tuple[int, int | None] | None:
    """Training and test samples of a published dataset, None of another one."""
    source = SOURCES.get(str(value_of(settings, "data.source")))
    shape = source.published_shape if source else None
    return (shape.num_train, shape.num_test) if shape else None


def trained_alike(run: ReportedRun) -> str:
    """All that runs over several seeds have in common, as a text that can be compared."""
    kept = {key: value for key, value in _compared(run).items() if key not in _NO_SETTINGS}
    texts = {key: known_part(run, written(value)) for key, value in sorted(kept.items())}
    return "\n".join(f"{key}: {text}" for key, text in texts.items())


def known_part(run: ReportedRun, value: str) -> str:
    """A value; if it is an own part, what is the same wherever its file is."""
    digest = run.environment.get("own_parts", {}).get(value)
    return f"{without_folders(value, _PART)} {digest}" if digest else value


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
        and len({known_part(run, value) for run, value in zip(runs, values, strict=True)}) > 1
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


def labels_of(runs: Sequence[ReportedRun]) -> list[str]:
    """Short labels that tell runs apart: the settings that differ, or else their folders."""
    labels = groups_of(runs)
    if len(runs) > 1 and len({run.settings["seed"] for run in runs}) > 1:
        seeds = [f"seed {run.settings['seed']}" for run in runs]
        labels = [f"{label}, {seed}" for label, seed in zip(labels, seeds, strict=True)]
    if len(set(labels)) == len(labels):
        return labels
    folders = [Path(run.place).name for run in runs]
    if len(set(folders)) == len(folders):
        return folders
    return [f"{place + 1}: {folder}" for place, folder in enumerate(folders)]


def groups_of(runs: Sequence[ReportedRun]) -> list[str]:
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
    pairs = set(zip(names, labels, strict=False))  # names are empty where all runs have one name
    if len(set(names)) == len(set(labels)) == len(pairs):
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


def written(value: object) -> str:
    """A value of a scenario as it is written there."""
    if isinstance(value, str):
        return value
    text = yaml.safe_dump(value, default_flow_style=True, width=10**6).strip()
    return text.removesuffix("...").strip()
