"""Runs of scenarios: trained, resumed, and loaded."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from io import StringIO
from itertools import count
from pathlib import Path

from rich.console import Console

from edgesim.api.callbacks import CallbackError, Callbacks
from edgesim.api.checks import check
from edgesim.api.scenarios import ScenarioLike, errors_of_python, name_of, read_scenario
from edgesim.errors import ResultWarning, ScenarioError, ScenarioWarning
from edgesim.fleet.recording.fleet_state import Sink
from edgesim.fleet.run import RunResult, resume_run, run_scenario
from edgesim.results.evaluation import Callback
from edgesim.results.load import load_run
from edgesim.results.run import Run
from edgesim.results.run_files import ABOUT
from edgesim.scenario.scale import scaled
from edgesim.storage.store import Store

_OPTIONS = ("scale", "out", "inline", "address", "dashboard", "on_evaluation", "sinks", "progress")


def run(
    scenario: ScenarioLike,
    *,
    scale: float | None = None,
    out: Path | str | None = None,
    inline: bool = False,
    address: str | None = None,
    dashboard: bool = False,
    on_evaluation: Callback | Sequence[Callback] = (),
    sinks: Sequence[Sink] = (),
    progress: bool = False,
    **overrides: object,
) -> Run:
    """Train the fleet of a scenario.

        run = edgesim.run("quickstart", inline=True, seed=2, gossip__averaging_rate=0.2)

    Args:
        scenario: a file, the name of a shipped scenario (`edgesim list scenarios`), a mapping like
            a file's, or a scenario.
        scale: shortens the training to this share, above 0 and at most 1; milestones, warm-up and
            evaluations come sooner alike. Whole numbers are rounded, and stay at least 1.
        out: run directory, absent or empty; a path, or a URI that fsspec knows. Default:
            runs/<name>-<time>.
        inline: run all devices in this process, without Ray.
        address: of a running Ray cluster; None starts one on this machine for the run.
        dashboard: start Ray's dashboard with it.
        on_evaluation: called with each `Evaluation`, in a thread of the run; or several of them.
            An error that one raises stops the run and is raised here.
        sinks: also told how the fleet goes on: `edgesim.TensorBoard`, `edgesim.MLflow`, or a
            subclass of `edgesim.Sink`. One that fails is told no more; the run goes on.
        progress: print how it goes on, as `edgesim run` does. The figures of its end are in the
            `Run`, which a notebook shows.
        **overrides: values by key. Double underscores stand for dots, and a value may be a whole
            section: `seed=2`, `fleet__devices=4`, `topology={"kind": "ring"}`. Keys with dots are
            given as `**{"fleet.devices": 4}`.

    Returns:
        The run with its tables.

    Raises:
        ScenarioError: the scenario or an override can't be used; the message says what to change.
        RunDirectoryError: `out` can't be used.
        EdgesimError: the run failed; what it recorded until then is in `out`.

    Warns:
        ScenarioWarning: an allowed choice of the scenario has consequences that are easily
            overlooked.
        ResultWarning: figures of the finished run are in doubt; one warning has all doubts.
    """
    name = name_of(scenario)
    read = read_scenario(scenario, overrides, _OPTIONS)
    if scale is not None:
        read = scaled(read, scale, "scale")
    checked = check(read, name, reads_images=True)
    for notice in checked.notices:
        warnings.warn(f"{name}: {notice}", ScenarioWarning, stacklevel=2)
    place = str(out or default_place(checked.scenario.name))
    told = _all_sinks(on_evaluation, sinks, place)
    with errors_of_python(), _resumable(place, address):
        result = run_scenario(
            checked.prepared,
            place,
            inline=inline,
            address=address,
            dashboard=dashboard,
            console=progress_console(progress=progress),
            sinks=told,
        )
    return _finished(result)


def resume(
    place: Path | str,
    *,
    inline: bool | None = None,
    address: str | None = None,
    dashboard: bool = False,
    on_evaluation: Callback | Sequence[Callback] = (),
    sinks: Sequence[Sink] = (),
    progress: bool = False,
) -> Run:
    """Go on with a run that was interrupted; the result is that of an undisturbed run.

    Args:
        place: run directory, a path or a URI.
        inline: without Ray, or with it; None: as it was.
        address: as in `run`.
        dashboard: as in `run`.
        on_evaluation: as in `run`; called with the evaluations that are made from now on.
        sinks: as in `run`.
        progress: as in `run`.

    Raises:
        RunDirectoryError: there is no run to go on with.
        LeaseError: another process works on the run.
        EdgesimError: the run failed.

    Warns:
        ResultWarning: figures of the finished run are in doubt; one warning has all doubts.
    """
    told = _all_sinks(on_evaluation, sinks, str(place))
    with errors_of_python(), _resumable(str(place), address):
        result = resume_run(
            place,
            inline=inline,
            address=address,
            dashboard=dashboard,
            console=progress_console(progress=progress),
            sinks=told,
        )
    return _finished(result)


def _finished(result: RunResult) -> Run:
    """A finished run; what is in doubt is one warning, which says how to open the run.

    As an error the warning comes instead of the run. Notices of own parts in a summary are no
    doubts: they were raised before the run.
    """
    run = load_run(result.place)
    said, notices = result.summary.get("warnings", ()), result.summary.get("own_notices", ())
    if doubts := [f"{result.place}: {text}" for text in said if text not in notices]:
        opened = f"the run is finished; edgesim.load_run({result.place!r}) opens it"
        warnings.warn("\n".join([*doubts, opened]), ResultWarning, stacklevel=3)
    return run


def default_place(name: str) -> Path:
    """A run directory that is not there yet: runs/<name>-<time>."""
    place = Path("runs") / f"{name}-{datetime.now(UTC):%Y%m%d-%H%M%S}"
    if not place.exists():
        return place
    others = (place.with_name(f"{place.name}-{number}") for number in count(2))
    return next(other for other in others if not other.exists())


@contextmanager
def _resumable(place: str, address: str | None) -> Iterator[None]:
    """Raise a callback's own error, and note in each error of a run how it goes on."""
    there = "" if address is None else f", address={address!r}"
    goes_on = f"the run goes on with edgesim.resume({place!r}{there})"
    try:
        yield
    except CallbackError as error:
        cause = error.__cause__
        assert isinstance(cause, Exception), "what the callback raised"
        cause.add_note(goes_on)
        raise cause from None
    except KeyboardInterrupt as error:
        if Store.at(place).exists(ABOUT):  # else it had not begun
            error.add_note(goes_on)
        raise


def progress_console(*, progress: bool) -> Console:
    """Where a run or a sweep shows its progress."""
    if progress:
        return Console(soft_wrap=True, highlight=False, markup=False, emoji=False)
    return Console(file=StringIO(), quiet=True)


def _all_sinks(
    on_evaluation: Callback | Sequence[Callback], sinks: Sequence[Sink], place: str
) -> list[Sink]:
    """Sinks of a run, the callbacks first.

    Raises:
        ScenarioError: an argument is of a wrong kind.
    """
    callbacks = (on_evaluation,) if callable(on_evaluation) else on_evaluation
    for name, given, kind in (
        ("on_evaluation", callbacks, "a function, or a list of them"),
        ("sinks", sinks, "a list of sinks, such as [sink]"),
    ):
        if not isinstance(given, list | tuple):
            raise ScenarioError(f"{name} is of type {type(given).__name__}; must be {kind}")
    assert not callable(callbacks)
    for each in callbacks:
        if not callable(each):
            raise ScenarioError(f"on_evaluation: {each!r} is no function")
    return [Callbacks(tuple(callbacks), place), *sinks]
