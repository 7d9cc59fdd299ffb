"""One run from a checked scenario to its tables, with Ray or inline; hosts are the same."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path, PurePath
from time import perf_counter
from typing import Any

from rich.console import Console

from edgesim.assembly.build import Compute
from edgesim.assembly.parts.own_errors import own_code
from edgesim.assembly.preparation import prepare
from edgesim.assembly.prepared_run import PreparedRun
from edgesim.assembly.start_files import read_start, write_start
from edgesim.device.trainer import DivergedError
from edgesim.errors import EdgesimError, OwnCodeError
from edgesim.fleet.arithmetic import choose_arithmetic, prepare_arithmetic
from edgesim.fleet.conduct import Fleet, conduct, run_to_its_end
from edgesim.fleet.environment import (
    check_files,
    check_own_parts,
    describe_environment,
    described_content,
    what_differs,
)
from edgesim.fleet.inline import InlineFleet
from edgesim.fleet.on_ray.placement import NodeLostError
from edgesim.fleet.on_ray.workers import Workers
from edgesim.fleet.plan import FleetPlan
from edgesim.fleet.recording.departures import describe
from edgesim.fleet.recording.fleet_state import Sink
from edgesim.fleet.recording.full_disk import FullDisk
from edgesim.fleet.recording.monitor import Monitor
from edgesim.fleet.recording.monitor_of_run import make_monitor
from edgesim.fleet.recording.resumes import notices_of_resume
from edgesim.fleet.recording.sinks import Sinks, check_sinks
from edgesim.fleet.recording.summary import summarise, write_devices
from edgesim.fleet.recording.terminal_view import make_view
from edgesim.fleet.recording.view import View, say
from edgesim.fleet.recovery.checkpoints import NoSoundCheckpointError
from edgesim.fleet.recovery.completeness import check_evaluations, check_finished, check_rounds
from edgesim.fleet.session import session
from edgesim.fleet.sites_of_nodes import with_sites_of_nodes
from edgesim.fleet.stops import Advice, count_restart, note_stop, starting_rounds
from edgesim.fleet.transport.network import EnvelopesLostError
from edgesim.results.own_sources import source_reader, write_sources
from edgesim.results.run_directory import RunDirectory
from edgesim.results.run_files import ABOUT, STOPPED_BY, RunDirectoryError
from edgesim.scenario.files import dump_scenario, parse_scenario
from edgesim.storage.lease import LeaseError
from edgesim.storage.space import StorageError, WaitForSpace
from edgesim.system import usable_cpus

MOST_NAMES = 64  # of devices, that are shown when a run begins


@dataclass(frozen=True, slots=True)
class RunResult:
    """Place of a run's files (a path or a URI), and its summary as in summary.json."""

    place: str
    summary: dict[str, Any]

    @property
    def path(self) -> Path:
        """Where they are on this machine."""
        return Path(self.place)


@own_code()
def run_scenario(
    prepared: PreparedRun,
    out: Path | str,
    *,
    inline: bool = False,
    address: str | None = None,
    dashboard: bool = False,
    console: Console,
    view: View | None = None,
    sinks: Sequence[Sink] = (),
    workers: Workers | None = None,
) -> RunResult:
    """Train the fleet of a scenario and write its run directory.

    Args:
        prepared: checked scenario with its data.
        out: run directory, absent or empty; a path, or a URI that fsspec knows.
        inline: run all devices in this process, without Ray.
        address: of a running Ray cluster; None starts one on this machine for the run.
        dashboard: start Ray's dashboard with it.
        console: where what happens is said.
        view: shows progress there; ended with the run. By default one that suits the console.
        sinks: who else is told how the fleet goes on.
        workers: prepared already for a Ray of edgesim's own.

    Raises:
        SinkError: what is given as a sink is none.
        RunDirectoryError: `out` can't be used.
        RunStoppedError: a sink stopped the run.
        EdgesimError: the run failed; what was recorded until then is in `out`.
    """
    check_sinks(sinks)
    RunDirectory.check_free(out)
    with (
        closing(view or make_view(console)) as view,
        session(
            address, out, inline=inline, dashboard=dashboard, view=view, workers=workers
        ) as mode,
    ):
        prepared = with_sites_of_nodes(prepared, mode, console)
        compute = choose_arithmetic(prepared, mode, console)
        digest = prepared.digest(compute)
        # Before the folder is made: a start that fails leaves none.
        environment = describe_environment(mode, compute) | described_content(prepared)
        with RunDirectory.create(out, digest).held() as directory:
            write_sources(directory, prepared.scenario)
            write_start(directory, prepared.start)
            directory.write_text("scenario.yaml", _scenario_text(prepared))
            _say_names(console, prepared.scenario.fleet.names)
            if prepared.found_rate:
                say(console, str(prepared.found_rate))
            directory.write_json("environment.json", environment)
            run = _Run(prepared, directory, compute, digest, mode, address, view, sinks)
            return run.do(recover=False)


@own_code()
def resume_run(
    place: Path | str,
    *,
    inline: bool | None = None,
    address: str | None = None,
    dashboard: bool = False,
    console: Console,
    view: View | None = None,
    sinks: Sequence[Sink] = (),
) -> RunResult:
    """Resume an interrupted run from its directory; the result is that of an undisturbed run.

    Args:
        place: run directory.
        inline: as in `run_scenario`; None for the mode in which the run began.
        address: of a Ray cluster.
        dashboard: see `run_scenario`.
        console: see `run_scenario`.
        view: see `run_scenario`.
        sinks: see `run_scenario`.

    Raises:
        RunDirectoryError: there is no run to resume, or this program cannot resume it. A finished
            run is no error: its result is returned if all its files are undamaged.
        LeaseError: another process holds the run.
        EdgesimError: the run failed.
    """
    check_sinks(sinks)
    with (
        closing(view or make_view(console)) as view,
        RunDirectory.open_existing(place).held() as directory,
    ):
        return _resume(directory, inline, address, dashboard=dashboard, view=view, sinks=sinks)


def _resume(
    directory: RunDirectory,
    inline: bool | None,
    address: str | None,
    *,
    dashboard: bool,
    view: View,
    sinks: Sequence[Sink],
) -> RunResult:
    """Resume a run that this process holds."""
    directory.sweep_unfinished()
    directory.check_summary()
    if directory.has("summary.json"):
        summary = directory.read_json("summary.json")
        check_finished(directory, summary)
        directory.drop_recovery()  # if it was killed just before
        say(view.console, f"{directory.place}: this run is finished; there is nothing to do")
        told = Sinks(sinks)
        told.tell("finished", summary)
        told.close()
        return RunResult(directory.place, summary)
    text, environment = (
        directory.read_text("scenario.yaml"),
        directory.read_json("environment.json"),
    )
    place = f"{directory.place}/scenario.yaml"
    read_source = source_reader(directory, unchanged=True)
    scenario = parse_scenario(text, place, Path(), read_source=read_source)
    check_own_parts(directory.place, scenario, environment)
    check_files(directory.place, scenario, environment)
    prepared = prepare(scenario, goes_on=True, start=read_start(directory))
    if inline is None:
        inline = environment["mode"] == "inline" and address is None
    with session(address, directory.place, inline=inline, dashboard=dashboard, view=view) as mode:
        compute = choose_arithmetic(prepared, mode, view.console)
        digest = prepared.digest(compute)
        if digest != directory.run_digest:
            raise RunDirectoryError(
                f"{directory.place}: {what_differs(prepared, compute, environment)}: going on "
                "would give another result; bring it back, or start anew"
            )
        now = describe_environment(mode, compute)
        for notice in notices_of_resume(environment, now):
            say(view.console, notice)
        resumed = [*environment.get("resumed", []), now]
        environment = {key: value for key, value in environment.items() if key != STOPPED_BY}
        directory.write_json("environment.json", {**environment, "resumed": resumed})
        run = _Run(prepared, directory, compute, digest, mode, address, view, sinks)
        return run.do(recover=True)


@dataclass(frozen=True, slots=True)
class _Run:
    """One attempt to bring a run to its end."""

    prepared: PreparedRun
    directory: RunDirectory
    compute: Compute
    digest: str
    mode: str
    address: str | None
    view: View
    sinks: Sequence[Sink]

    @property
    def console(self) -> Console:
        """Where what happens is said."""
        return self.view.console

    @property
    def _advice(self) -> Advice:
        return Advice(self.directory, self.prepared.scenario, self.address, self.console)

    def do(self, *, recover: bool) -> RunResult:
        full_disk = FullDisk()
        directory = self.directory.patient(WaitForSpace(full_disk.told_by("driver")))
        prepare_arithmetic(self.prepared, self.compute, self.view)
        start = perf_counter()
        monitor = make_monitor(
            self.prepared,
            directory,
            self.compute,
            num_cores(),
            view=self.view,
            sinks=[*self._sinks_of_ray(), *self.sinks],
            tell_full=full_disk.told_by("hosts"),
        )
        try:
            self._train(monitor, recover=recover)
            with self._can_be_resumed(monitor):
                summary = self._end(monitor, directory, start)
            monitor.tell_summary(summary)
        finally:
            monitor.close()
        return RunResult(directory.place, summary)

    def _end(self, monitor: Monitor, directory: RunDirectory, start: float) -> dict[str, Any]:
        """Check and evaluate what the fleet has left, and write the tables; return the summary."""
        prepared = self.prepared
        # Parts are kept until summary.json says that all is there.
        directory.merge_rounds(prepared.scenario.fleet.names)
        check_rounds(
            directory,
            num_devices=prepared.scenario.fleet.num_devices,
            num_rounds=prepared.training.num_rounds,
            presence=prepared.schedule.presence,
        )
        monitor.finish()
        check_evaluations(directory, len(prepared.training.evaluation_rounds))
        gossip_states = prepared.scenario.evaluation.gossip_states
        directory.keep_final_models(
            prepared.training.num_rounds, with_gossip=gossip_states != "never"
        )
        write_devices(prepared, directory)
        summary = summarise(prepared, directory, monitor.rows, perf_counter() - start)
        for line in describe(summary):
            say(self.console, line)
        directory.write_json("summary.json", summary)
        directory.drop_recovery()
        return summary

    def _train(self, monitor: Monitor, *, recover: bool) -> None:
        """Run the fleet to its end; if it fails, say how it goes on, and join what is recorded."""
        if recover:
            monitor.go_on()
            scenario = self.prepared.scenario
            num_devices = scenario.fleet.num_devices
            start = starting_rounds(self.directory, num_devices, scenario.recovery)
            say(self.console, f"going on from {start}")
        has_started = False
        try:
            with self._fleet(monitor, recover=recover) as fleet:
                has_started = True
                timeout_s = self.prepared.scenario.recovery.stall_timeout_s
                names = self.prepared.scenario.fleet.names
                run_to_its_end(conduct(fleet, monitor, timeout_s, names))
        except (LeaseError, NoSoundCheckpointError, EnvelopesLostError):
            # No advice to resume: another process holds the run, or the error says why it cannot be
            # resumed.
            monitor.close()
            raise
        except BaseException as error:
            monitor.close()
            if has_started:
                can_go_on = not isinstance(error, OwnCodeError | DivergedError)
                note_stop(self.directory, error, can_go_on=can_go_on)
                if isinstance(error, NodeLostError):  # Ray may end this process at any moment
                    self._advice.say_how_to_resume(monitor.rounds_done)
                else:
                    self._advice.end(monitor.rounds_done, can_go_on=can_go_on)
            raise

    def _sinks_of_ray(self) -> list[Sink]:
        if self.mode == "inline":
            return []
        from edgesim.fleet.on_ray.metrics import RayMetrics

        name = PurePath(self.directory.place).name
        return [RayMetrics(name, self.prepared.scenario.metrics.most_devices)]

    @contextmanager
    def _can_be_resumed(self, monitor: Monitor) -> Iterator[None]:
        """Context of the end of a run: `resume` repeats what is interrupted there."""
        try:
            yield
        except (KeyboardInterrupt, StorageError) as error:
            note_stop(self.directory, error, can_go_on=True)
            with suppress(EdgesimError):  # the place can't be reached: that was the error
                if self.directory.has(ABOUT) and not self.directory.has("summary.json"):
                    self._advice.say_how_to_resume(monitor.rounds_done)
            raise

    @contextmanager
    def _fleet(self, monitor: Monitor, *, recover: bool) -> Iterator[Fleet]:
        """Context with the running fleet; it is closed at the end."""
        prepared, compute = self.prepared, self.compute
        plan = FleetPlan(
            scenario=prepared.scenario,
            schedule=prepared.schedule,
            data=prepared.data,
            training=prepared.training,
            compute=compute,
            run_directory=self.directory.place,
            run_digest=self.digest,
            holder=self.directory.holder,
            start=prepared.start,
        )
        self.view.stage(f"starting {prepared.scenario.fleet.num_devices} devices")
        fleet: Fleet
        if self.mode == "inline":
            fleet = InlineFleet(plan, prepared.shards(), num_cores(), recover=recover)
        else:
            from edgesim.fleet.on_ray import launch

            def on_restart(devices: range) -> None:
                monitor.note_restart(devices)
                count_restart(self.directory)

            fleet = launch.RayFleet(
                plan,
                prepared.shards(),
                recover=recover,
                on_restart=on_restart,
                on_cluster=self.address is not None,
            )
        try:
            yield fleet
        finally:
            fleet.close()


def num_cores() -> int:
    """Cores of this machine that this process may use."""
    return len(usable_cpus())


def _say_names(console: Console, names: Sequence[str]) -> None:
    """Show the names of devices by number, since actors and log lines use numbers."""
    if names:
        shown = ", ".join(f"{device} {name}" for device, name in enumerate(names[:MOST_NAMES]))
        more = ", ... (all in devices.parquet)" if len(names) > MOST_NAMES else ""
        say(console, f"devices: {shown}{more}")


def _scenario_text(prepared: PreparedRun) -> str:
    """The scenario as it is run, with the averaging rate that was found and a comment on how."""
    comment = f"# {prepared.found_rate}\n" if prepared.found_rate else ""
    return comment + dump_scenario(prepared.scenario)
