"""Holds cells of a sweep to their settings, and to the same samples, files and own code.

A sweep goes on for days. Meanwhile somebody edits a file, replaces the data, or puts the folders of
cells in order.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

from edgesim.code_version import CodeVersion, code_version
from edgesim.results.run_files import RunFiles
from edgesim.results.test_samples import settings_of_test_samples
from edgesim.scenario.own_parts import own_parts
from edgesim.scenario.schema import Scenario
from edgesim.scenario.sweep import Sweep
from edgesim.storage.store import Store
from edgesim.sweeps.directory import SweepError, is_finished
from edgesim.sweeps.moved_parts import with_files_of

_CODE, _FILE, _SAMPLES = "code", "file", "samples"
_OF_DEVICES = ("devices", "names", "profile")
# What a run writes the found values of.
_FOUND = (("gossip.averaging_rate", "auto"), ("gossip.sites", "nodes"))


@dataclass(frozen=True, slots=True)
class Contents:
    """Digests of what cells of a sweep begin with.

    Attributes:
        known: by kind and name, the digest and what it is of. Kinds are `code`, of an own part;
            `file`, of a path; `samples`, of the settings that test samples follow from.
    """

    known: dict[tuple[str, str], tuple[str, str]] = field(default_factory=dict)

    @classmethod
    def from_rows(cls, rows: Iterable[Sequence[str]]) -> Contents:
        """Those that `of_cell` returned."""
        return cls({(kind, name): (digest, of) for kind, name, digest, of in rows})

    def add(self, scenario: Mapping[str, Any], environment: Mapping[str, Any], of: str) -> None:
        """Take in what a run began with.

        Args:
            scenario: of the run, as plain values.
            environment: content of its environment.json; runs of earlier versions lack samples.
            of: what the run is, as messages name it.

        Raises:
            SweepError: it differs from what another run began with.
        """
        found = {(_CODE, part): digest for part, digest in environment.get("own_parts", {}).items()}
        found |= {(_FILE, path): digest for path, digest in environment.get("files", {}).items()}
        if samples := environment.get("samples"):
            found[_SAMPLES, settings_of_test_samples(scenario)] = samples["test"]
        for (kind, name), digest in found.items():
            before, other = self.known.setdefault((kind, name), (digest, of))
            if before != digest:
                what = "the test samples" if kind == _SAMPLES else name
                raise SweepError(
                    f"{what} of {of} differ from those of {other}, so their results can't be "
                    "compared; bring back what it was, or run the sweep anew with another --out"
                )

    def of_cell(self, scenario: Scenario) -> list[list[str]]:
        """What a cell must begin with, as rows of texts."""
        samples = settings_of_test_samples(scenario.model_dump(mode="json"))
        return [
            [kind, name, digest, of]
            for (kind, name), (digest, of) in self.known.items()
            if kind != _SAMPLES or name == samples
        ]


def check_settings(
    store: Store, cell: str, scenario: Mapping[str, Any], parts: Mapping[str, str]
) -> None:
    """Refuse a finished cell whose folder holds a run of other settings.

    Args:
        store: the folder of the sweep.
        cell: its name.
        scenario: of the cell, as plain values.
        parts: digests of its own parts by key.

    Raises:
        SweepError: it does.
    """
    place = f"{store.url}/{cell}"
    run = RunFiles(Store.at(place)).read_settings()
    if parts:
        began_with = environment_of(store, cell).get("own_parts", {})
        scenario = with_files_of(scenario, parts, run, lambda _, part: began_with.get(part))
    wanted = {key: value for key, value in scenario.items() if key not in ("fleet", "paper")}
    unlike = chain(
        _contradictions(wanted, run, ""), _unlike_fleets(scenario["fleet"], run.get("fleet", {}))
    )
    for key, there, here in unlike:
        raise SweepError(
            f"{place}: {key} is {there} in this run and {here} in the sweep; put the cell's own "
            "folder in its place, or remove this one: `edgesim sweep` runs the cell anew"
        )


def _contradictions(wanted: object, found: object, key: str) -> Iterator[tuple[str, Any, Any]]:
    """Keys of both with other values, each with that of the run and the wanted one.

    A run of another edgesim may lack keys.
    """
    if isinstance(wanted, Mapping) and isinstance(found, Mapping):
        for name in wanted:
            if name in found:
                inner = f"{key}.{name}" if key else name
                yield from _contradictions(wanted[name], found[name], inner)
    elif isinstance(wanted, list) and isinstance(found, list) and len(wanted) == len(found):
        for place, (one, other) in enumerate(zip(wanted, found, strict=True)):
            yield from _contradictions(one, other, f"{key}[{place}]")
    elif wanted != found and (key, wanted) not in _FOUND:
        yield key, found, wanted


def _unlike_fleets(
    wanted: Mapping[str, Any], found: Mapping[str, Any]
) -> Iterator[tuple[str, Any, Any]]:
    """The same of fleets, whose devices a run may have put in the order of a graph's file.

    The file may also give devices their names and profiles.
    """
    rest = {key: value for key, value in wanted.items() if key not in _OF_DEVICES}
    yield from _contradictions(rest, found, "fleet")
    boards, there = _boards(wanted), _boards(found)
    if boards.total() != there.total() or (None not in boards and boards != there):
        yield "fleet.devices", _said(there), _said(boards)


def _boards(fleet: Mapping[str, Any]) -> Counter[str | None]:
    """Devices of each profile; of those without one, as None."""
    devices, profile = fleet.get("devices", ()), fleet.get("profile")
    groups: Iterable[Mapping[str, Any]] = (
        [{"count": devices}] if isinstance(devices, int) else devices
    )
    counted: Counter[str | None] = Counter()
    for group in groups:
        counted[group.get("profile") or profile] += int(group.get("count", 1))
    return counted


def _said(boards: Counter[str | None]) -> str:
    return ", ".join(f"{count} {name or 'devices'}" for name, count in boards.items())


def known_contents(store: Store, planned: Sweep) -> Contents:
    """What the finished cells of a sweep began with, and its own parts as they are now.

    Raises:
        SweepError: finished cells began with unlike contents, or have other settings.
    """
    contents = Contents()
    for cell in planned.cells:
        named = {str(part): part.digest for _, part in own_parts(cell.scenario)}
        contents.add({}, {"own_parts": named}, "the sweep")
    for cell in planned.cells:
        if is_finished(store, cell.name):
            scenario = cell.scenario.model_dump(mode="json")
            parts = {key: part.digest for key, part in own_parts(cell.scenario)}
            check_settings(store, cell.name, scenario, parts)
            contents.add(scenario, environment_of(store, cell.name), f"cell {cell.name}")
    return contents


def other_code(store: Store, planned: Sweep) -> list[str]:
    """A notice of finished cells that other code of edgesim has made, or may have made."""
    made = {cell.name for cell in planned.cells if is_finished(store, cell.name)}
    here = code_version()
    codes = (CodeVersion.of(environment_of(store, name)) for name in sorted(made))
    others = Counter(str(code) for code in codes if here.differs(code))
    if not others:
        return []
    said = ", ".join(f"{count} of {len(made)} by {code}" for code, count in others.items())
    notice = (
        f"{store.url}: other code has made finished cells ({said}), and this is {here}: results "
        "may differ for that alone; run the sweep anew with another --out, or go on with the code "
        "that began it"
    )
    return [notice]


def warnings_of_code(environments: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """Cells that other code of edgesim has made than most, or may have made, with a warning each.

    Args:
        environments: of finished cells, by name.
    """
    codes = {name: CodeVersion.of(environment) for name, environment in environments.items()}
    counted = Counter(code.digest for code in codes.values())
    if len(counted) < 2:
        return {}
    digest, number = counted.most_common(1)[0]
    most = next(code for code in codes.values() if code.digest == digest)
    return {
        name: f"made by {code}, and {number} cells by {most}: results may differ for that alone"
        for name, code in codes.items()
        if code.differs(most)
    }


def environment_of(store: Store, cell: str) -> dict[str, Any]:
    """What a finished cell began with."""
    return RunFiles(Store.at(f"{store.url}/{cell}")).read_json("environment.json")
