"""Runs a sweep: all cells are checked, then as many run at once as there are cores."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from os import fspath
from pathlib import Path

from edgesim.api.checks import check
from edgesim.api.runs import progress_console
from edgesim.api.scenarios import (
    ScenarioLike,
    errors_of_python,
    in_words_of_python,
    name_of,
    written_overrides,
)
from edgesim.errors import ScenarioError, ScenarioWarning
from edgesim.fleet.recording.full_disk import FullDisk
from edgesim.results.load import UnfinishedRunWarning
from edgesim.scenario.files import dump_scenario, read_scenario_text
from edgesim.scenario.own_parts import OwnPart
from edgesim.scenario.plain import in_yaml, plain_value
from edgesim.scenario.schema import Scenario
from edgesim.scenario.shipped import scenario_file
from edgesim.scenario.strict_yaml import ARGUMENT, GIVEN, ONLY_ARGUMENT, OVERRIDE
from edgesim.scenario.sweep import KEY, Sweep, chosen, parse_sweep, scaled_sweep
from edgesim.storage.space import WaitForSpace
from edgesim.sweeps.cluster import run_tasks_on_cluster
from edgesim.sweeps.directory import (
    SweepError,
    as_begun,
    is_finished,
    open_directory,
    read_failures,
    write_failures,
)
from edgesim.sweeps.load import SEED, SweepResults, load_sweep
from edgesim.sweeps.pool import Event, Task, run_tasks
from edgesim.sweeps.progress import shown_progress
from edgesim.sweeps.sameness import known_contents, other_code
from edgesim.sweeps.unlike_rounds import notice_of_rounds, rounds_follow

_OPTIONS = ("sweep", "only", "scale", "out", "workers", "address", "on_event", "progress")


class SweepWarning(UserWarning):
    """Cells of a sweep failed; `SweepResults.missing` names them."""


def sweep(
    scenario: ScenarioLike,
    sweep: Mapping[str, object] | None = None,
    *,
    only: Mapping[str, object] | None = None,
    scale: float | None = None,
    out: Path | str | None = None,
    workers: int | None = None,
    address: str | None = None,
    on_event: Callable[[Event], None] | None = None,
    progress: bool = False,
    **overrides: object,
) -> SweepResults:
    """Run a scenario with many settings, and go on where an earlier call was interrupted.

        edgesim.sweep("quickstart", {"grid": {"gossip.averaging_rate": [0.1, 0.2], "seed": [1, 2]}})

    Each cell runs inline, on cores of this machine or on a CPU of a Ray cluster, and gives the bits
    of the same scenario run alone. Finished cells are not run again. A cell that fails does not
    stop the others.

    Args:
        scenario: a file, the name of a shipped scenario, a mapping, or a scenario.
        sweep: the block `sweep`, with the keys `grid`, `zip`, `list`; None: that of the scenario.
        only: values by key; only cells that have all of them are run. None: all cells.
        scale: shortens the training of all cells to this share, as in `edgesim.run`.
        out: folder of the sweep; the same one goes on. Default: runs/<name>,
            with a scale runs/<name>-scale-<scale>.
        workers: cells at once; None: one for each core, of the cluster if there is one.
        address: of a running Ray cluster whose nodes all reach `out`; None: this machine.
        on_event: called with what happens to cells.
        progress: print how the cells go on, as `edgesim sweep` does.
        **overrides: values of all cells by key, as in `edgesim.run`.

    Raises:
        ScenarioError: a key, a value or a cell can't be used; nothing was run.
        SweepError: `out` holds something else, or a sweep of other settings; no cell could be run
            with so many `workers`.

    Warns:
        ScenarioWarning: allowed choices of cells that are easily overlooked.
        SweepWarning: cells failed.
    """
    if workers is not None and not (isinstance(workers, int) and workers > 0):
        raise SweepError(f"workers is {workers!r}; must be a whole number from 1, or None")
    planned = read_sweep(scenario, sweep, written_overrides(overrides, _OPTIONS), ARGUMENT)
    if only:
        wanted = written_overrides(only)
        planned = chosen(planned, wanted, name_of(scenario), origin=ONLY_ARGUMENT)
    if scale is not None:
        planned = scaled_sweep(planned, scale, "scale")
    place = str(out or default_place(planned))
    planned = as_begun(planned, place)
    with errors_of_python():
        notices = check_open_cells(planned, place, name_of(scenario))
    for notice in notices:
        warnings.warn(f"{name_of(scenario)}: {notice}", ScenarioWarning, stacklevel=2)
    with (
        errors_of_python(),
        shown_progress(planned, progress_console(progress=progress), place) as show,
    ):

        def tell(event: Event) -> None:
            show(event)
            if on_event is not None:
                on_event(event)

        try:
            failures = run_sweep(planned, place, tell, workers, address)
        except KeyboardInterrupt as error:
            error.add_note(f"the same call goes on with the sweep, in {place}")
            raise
    if failures:
        said = "; ".join(f"{name}: {why}" for name, why in failures.items())
        told = in_words_of_python(f"{len(failures)} cells failed: {said}")
        warnings.warn(told, SweepWarning, stacklevel=2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnfinishedRunWarning)
        return load_sweep(place)


def read_sweep(
    given: ScenarioLike,
    block: Mapping[str, object] | None = None,
    overrides: Sequence[str] = (),
    origin: str = OVERRIDE,
) -> Sweep:
    """The sweep of a scenario.

    Args:
        given: the scenario, with or without a block `sweep`.
        block: the block, if it is no part of the scenario.
        overrides: each `key.path=value`.
        origin: what messages put before an override.

    Raises:
        ScenarioError: a key, a value or a cell can't be used.
    """
    if isinstance(given, Scenario | Mapping):
        content = plain_value(given)
        assert isinstance(content, dict), "of a mapping or a section"
        added = {} if block is None else {KEY: plain_value(block, KEY)}
        return parse_sweep(in_yaml(content | added), GIVEN, Path.cwd(), overrides, origin=origin)
    path = scenario_file(fspath(given))
    text = read_scenario_text(path)
    if block is not None:
        text = f"{text.rstrip()}\n{KEY}: {in_yaml(plain_value(block, KEY))}\n"
    try:
        return parse_sweep(text, str(path), path.parent, overrides, origin=origin)
    except ScenarioError as error:
        if block is None:
            raise
        last_line = f"{path}:{len(text.splitlines())}: "  # which is in no file
        raise ScenarioError(str(error).replace(last_line, "")) from None


def default_place(planned: Sweep) -> Path:
    """Folder of a sweep without a name of its own: always the same one, so that it goes on."""
    shorter = "" if planned.scale == 1 else f"-scale-{planned.scale:g}"
    return Path("runs") / f"{planned.name}{shorter}"


def check_cells(planned: Sweep, name: str, finished: Collection[str] = ()) -> list[str]:
    """Check every cell that is to be run; nothing is written.

    Args:
        planned: the sweep.
        name: of the sweep, for messages.
        finished: cells that need no check.

    Returns:
        Notices, each once with the number of cells that it is about.

    Raises:
        ScenarioError: a cell can't be run; the message names it.
    """
    said: Counter[str] = Counter()
    rounds = []
    to_run = [cell for cell in planned.wanted if cell.name not in finished]
    for cell in to_run:
        checked = check(cell.scenario, f"{name}: cell {cell.name}", reads_images=False)
        said.update(checked.notices)
        if rounds_follow(cell.scenario):
            row = tuple((key, value) for key, value in cell.settings.items() if key != SEED)
            rounds.append((row, checked.num_rounds))
    lines = [f"{notice} ({count} of {len(to_run)} cells)" for notice, count in said.items()]
    return [*lines, *notice_of_rounds(rounds), *_notice_of_norms(planned)]


def check_open_cells(planned: Sweep, place: str, name: str) -> list[str]:
    """The same of cells that are not finished, and of the folder.

    Args:
        planned: the sweep.
        place: its folder, a path or a URI.
        name: of the sweep, for messages.

    Raises:
        ScenarioError: see `check_cells`.
        SweepError: the folder holds something else.
    """
    store = open_directory(place, planned, writes=False)
    finished = {cell.name for cell in planned.wanted if is_finished(store, cell.name)}
    return [*check_cells(planned, name, finished), *other_code(store, planned)]


def _notice_of_norms(planned: Sweep) -> list[str]:
    """What else differs between cells of different precision that name no norm."""
    models = [cell.scenario.model for cell in planned.wanted]
    norms = {
        model.precision: model.norm_used
        for model in models
        if model.norm is None and not isinstance(model.name, OwnPart)
    }
    if len(norms) < 2:
        return []
    said = (
        f"model.norm is {norms['fp32']} in the cells in fp32, {norms['int8']} in those in int8; to "
        "compare precisions alone, set model.norm to range_evonorm and model.gate to hard_sigmoid"
    )
    return [said]


def run_sweep(
    planned: Sweep,
    place: str,
    tell: Callable[[Event], None],
    num_workers: int | None = None,
    address: str | None = None,
) -> dict[str, str]:
    """Run all cells that are to be run and not finished.

    Args:
        planned: a checked sweep.
        place: its folder, a path or a URI.
        tell: called with what happens to cells.
        num_workers: cells at once; None: one for each core.
        address: of a Ray cluster that runs the cells; None: this machine does.

    Returns:
        Cells that failed, each with its reason.

    Raises:
        SweepError: the folder holds something else.
        PoolError: no process can be started.
        FleetError: there is no cluster at the address, or a node lacks what cells need.
    """
    full_disk = FullDisk("sweep", "edgesim sweep")
    store = open_directory(place, planned).patient(WaitForSpace(full_disk.told_by("sweep")))
    failures: dict[str, str] = {}
    earlier = read_failures(store) if planned.left_out else {}
    kept = {name: why for name, why in earlier.items() if name in planned.left_out}

    def note(event: Event) -> None:
        if event.kind == "failed":
            failures[event.cell] = str(event.fields["text"])
            write_failures(store, kept | failures)
        tell(event)

    write_failures(store, kept | failures)
    contents = known_contents(store, planned)
    tasks = [
        Task(
            name=cell.name,
            scenario=dump_scenario(cell.scenario),
            place=f"{store.url}/{cell.name}",
            known=contents.of_cell(cell.scenario),
        )
        for cell in planned.wanted
        if not is_finished(store, cell.name)
    ]
    if address is None:
        run_tasks(tasks, note, num_workers)
    else:
        run_tasks_on_cluster(tasks, store, note, address, num_workers)
    return failures
