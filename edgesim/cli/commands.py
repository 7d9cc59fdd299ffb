"""The commands, one function each."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from edgesim.cli.catalog_names import What
from edgesim.cli.checking import check, read
from edgesim.cli.data import data_commands
from edgesim.cli.garbage import uncollected
from edgesim.cli.options import Address, Dashboard, Overrides, Scale, ScenarioPath, lasting
from edgesim.cli.output import err as _err
from edgesim.cli.output import out as _out
from edgesim.cli.output import output as _output
from edgesim.errors import ScenarioError
from edgesim.study.tables.lines import show

if TYPE_CHECKING:
    from edgesim.fleet.recording.view import View

FAILED = 1

app = typer.Typer(
    name="edgesim",
    help="Emulates a fleet of edge devices that train one model together, without a server.",
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # its boxes cut long names
    add_completion=False,
)
app.add_typer(data_commands, name="data", short_help="Fetch datasets.")


def _show_version(wanted: bool) -> None:
    if wanted:
        from edgesim.code_version import code_version

        _out.print(str(code_version()))
        raise typer.Exit


@app.callback()
def common(
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks of errors.")] = False,
    version_wanted: Annotated[
        bool,
        typer.Option(
            "--version", callback=_show_version, is_eager=True, help="Show the version and exit."
        ),
    ] = False,
) -> None:
    """Options of all commands."""


@app.command(short_help="Train the fleet of a scenario.")
def run(
    scenario: ScenarioPath,
    overrides: Overrides = None,
    out: Annotated[
        str | None,
        typer.Option(
            help="Run directory, a path or a URI; default runs/<name>-<time>.", callback=lasting
        ),
    ] = None,
    inline: Annotated[
        bool, typer.Option("--inline", help="All devices in this process, without Ray.")
    ] = False,
    address: Address = None,
    dashboard: Dashboard = True,
    scale: Scale = None,
) -> None:
    """Train the fleet of a scenario."""
    with _shown(f"reading {scenario}") as view, ExitStack() as stack:
        unchecked, workers = read(scenario, overrides or (), scale), None
        if not inline and address is None:
            from edgesim.fleet.on_ray.workers import prepared_workers

            workers = stack.enter_context(prepared_workers(_out))
        checked = check(scenario, unchecked, reads_images=True)
        from edgesim.api.runs import default_place
        from edgesim.cli.answers import result_table
        from edgesim.fleet.run import run_scenario

        result = run_scenario(
            checked.prepared,
            out or default_place(checked.scenario.name),
            inline=inline,
            address=address,
            dashboard=dashboard,
            console=_out,
            view=view,
            workers=workers,
        )
        show(result_table(result.summary, result.place), _out)


@app.command(short_help="Resume a run that was interrupted.")
def resume(
    run: Annotated[
        str, typer.Argument(metavar="RUN", help="Directory of an interrupted run, or its URI.")
    ],
    inline: Annotated[
        bool | None,
        typer.Option("--inline/--ray", help="Without Ray, or with it; default: as it was."),
    ] = None,
    address: Address = None,
    dashboard: Dashboard = True,
) -> None:
    """Resume a run that was interrupted; the result is that of an undisturbed run."""
    with _shown(f"reading {run}") as view:
        with uncollected():
            from edgesim.cli.answers import result_table
            from edgesim.fleet.run import resume_run

        result = resume_run(
            run, inline=inline, address=address, dashboard=dashboard, console=_out, view=view
        )
        show(result_table(result.summary, result.place), _out)


@app.command("dashboard", short_help="Open Ray's dashboard of a run.")
def dashboard_(
    run: Annotated[
        str | None,
        typer.Argument(
            metavar="RUN", help="A run that goes on here, or a dashboard's URL; default: newest."
        ),
    ] = None,
    opens: Annotated[
        bool, typer.Option("--open/--no-open", help="Open it in a browser; else print the way in.")
    ] = True,
) -> None:
    """Open Ray's dashboard of a run in a browser, without being asked for its token."""
    from edgesim.cli.dashboard import show_dashboard

    show_dashboard(run, _out, opens=opens)


@app.command(short_help="Check a scenario with its graph, data and model.")
def validate(scenario: ScenarioPath, overrides: Overrides = None) -> None:
    """Check a scenario with its graph, data and model; start nothing and write nothing.

    A dataset that is missing is fetched if the scenario has data.download: true.
    """
    from edgesim.scenario.sweep import has_sweep

    if has_sweep(scenario):
        from edgesim.cli.sweep import check_sweep

        show(check_sweep(scenario, overrides or (), _err.print), _out)
    else:
        unchecked = read(scenario, overrides or ())
        show(check(scenario, unchecked, reads_images=False).table, _out)


@app.command(short_help="Say what a scenario costs, without training.")
def cost(
    scenario: ScenarioPath,
    overrides: Overrides = None,
    compare: Annotated[
        Path | None,
        typer.Option(
            metavar="OTHER", help="Second scenario, shown beside the first; --set changes both."
        ),
    ] = None,
    compare_overrides: Annotated[
        list[str] | None,
        typer.Option(
            "--compare-set",
            metavar="KEY.PATH=VALUE",
            help="Change OTHER alone; may be repeated.",
        ),
    ] = None,
    json_file: Annotated[
        Path | None, typer.Option("--json", metavar="FILE", help="Write all numbers, unrounded.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Write figures (SVG) and a page.")
    ] = None,
    all_models: Annotated[
        bool, typer.Option("--all-models", help="Compare every model of the catalog too.")
    ] = False,
    short: Annotated[
        bool, typer.Option("--short", help="Print the answer alone, without the tables.")
    ] = False,
    paper: Annotated[
        bool, typer.Option("--paper", help="Print the paper's ratios of fp32 to 8 bits too.")
    ] = False,
    only: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY.PATH=VALUE",
            help="Of a sweep, only the cells that have this value; may be repeated.",
        ),
    ] = None,
) -> None:
    """Say what a scenario costs, without training.

    First the answer: whether the training fits the devices' memory, how long it takes, what
    limits it, how long batteries last, and which settings would help most. Then tables of an
    iteration: computing, memory, messages, energy, time.

    Of a sweep, one table: what each cell costs.
    """
    from edgesim.scenario.sweep import has_sweep

    if has_sweep(scenario):
        from edgesim.cli.sweep_costs import show_sweep_costs

        given = {
            "--compare": compare,
            "--compare-set": compare_overrides,
            "--out": out,
            "--all-models": all_models,
            "--paper": paper,
        }
        unfit = [option for option, value in given.items() if value]
        show_sweep_costs(scenario, overrides or (), only or (), json_file, _out, _err, unfit)
        return
    if only:
        raise ScenarioError(f"--only chooses cells of a sweep, and {scenario} is none")
    from edgesim.cli.cost import show_costs

    show_costs(
        scenario,
        overrides or (),
        _out,
        other=compare,
        other_overrides=compare_overrides or (),
        json_file=json_file,
        out=out,
        all_models=all_models,
        is_short=short,
        with_paper=paper,
        say=_err.print,
    )


@app.command(short_help="Write what happened in runs as one HTML page.")
def report(
    runs: Annotated[
        list[str], typer.Argument(metavar="RUN", help="Directories of runs, or their URIs.")
    ],
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Page to write; default: report.html in the run's folder; of several runs, here.",
        ),
    ] = None,
    paper: Annotated[
        bool, typer.Option("--paper", help="Print what the paper reports beside what was measured.")
    ] = False,
    accuracy: Annotated[
        list[float] | None,
        typer.Option(
            metavar="PERCENT",
            min=0,
            max=100,
            help="Print what each run had spent when it came to this accuracy; may be repeated.",
        ),
    ] = None,
) -> None:
    """Write what happened in a run, or in several side by side, as one HTML page.

    The page opens in a browser without a network. Runs that are not finished are reported, too.
    """
    from edgesim.cli.report import show_report

    show_report(runs, out, _out, with_paper=paper, accuracies=accuracy or ())


@app.command(short_help="Write the trained model of a run to a file.")
def export(
    run: Annotated[str, typer.Argument(metavar="RUN", help="Directory of a run, or its URI.")],
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE",
            help="File to write. NAME.pt: the values, for torch.load; NAME.pt2: a program of "
            "torch.export, which runs without edgesim (of 8-bit models with --full-precision).",
        ),
    ],
    device: Annotated[
        str | None,
        typer.Option(
            metavar="DEVICE", help="Number or name of a device; default: the averaged model."
        ),
    ] = None,
    full_precision: Annotated[
        bool,
        typer.Option(
            "--full-precision", help="Put an 8-bit model's values into layers that compute in fp32."
        ),
    ] = False,
) -> None:
    """Write the trained model of a finished run to a file.

    The model is evaluated once more, on the samples that the run was
    evaluated on.
    """
    with uncollected():
        from edgesim.cli.export import write_model

    show(write_model(run, file, device, full_precision=full_precision), _out)


@app.command(short_help="Say whether two runs have the same bits, and where they part.")
def diff(
    first: Annotated[str, typer.Argument(metavar="RUN", help="Directory of a run, or its URI.")],
    second: Annotated[str, typer.Argument(metavar="OTHER", help="Another one.")],
) -> None:
    """Say whether two finished runs have the same bits, and where they part.

    It compares the final models and all tables, but for the columns of this machine's times. The
    exit status is 0 if all is the same, and 1 if not.
    """
    from edgesim.cli.diff import diff_table

    table, is_same = diff_table(first, second)
    show(table, _out)
    if not is_same:
        raise typer.Exit(FAILED)


@app.command(short_help="Run a scenario with many settings.")
def sweep(
    file: Annotated[
        Path,
        typer.Argument(metavar="FILE", help="Scenario file with a block `sweep`, or its name."),
    ],
    overrides: Overrides = None,
    only: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY.PATH=VALUE",
            help="Run only the cells that have this value; may be repeated: all must hold.",
        ),
    ] = None,
    out: Annotated[
        str | None,
        typer.Option(
            help="Folder of the sweep, a path or a URI; default runs/<name>, with --scale "
            "runs/<name>-scale-<scale>.",
            callback=lasting,
        ),
    ] = None,
    workers: Annotated[
        int | None, typer.Option(min=1, help="Cells at once; default: one for each core.")
    ] = None,
    address: Annotated[
        str | None,
        typer.Option(help="Ray cluster that runs the cells; default: cores of this machine."),
    ] = None,
    scale: Scale = None,
) -> int:
    """Run a scenario with many settings; the same command goes on with what is not finished."""
    from edgesim.cli.sweep import show_sweep

    overrides, only = overrides or [], only or []
    is_whole = show_sweep(file, overrides, only, out, workers, address, _out, _err.print, scale)
    return 0 if is_whole else FAILED


@app.command(short_help="Write a commented scenario to start from.")
def new(
    name: Annotated[
        Path, typer.Argument(metavar="NAME", help="Name of the scenario; its file is NAME.yaml.")
    ],
    source: Annotated[
        Path, typer.Option("--from", metavar="SCENARIO", help="Scenario to start from.")
    ] = Path("quickstart"),
) -> None:
    """Write a commented scenario to start from: each key with its meaning."""
    from edgesim.cli.new import write_new

    path = write_new(name, source)
    _out.print(f"{path} is written; change it, then: edgesim validate {path}; edgesim run {path}")


@app.command(short_help="Measure this machine and write it as the profile of a device.")
def calibrate(
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Scenario to write; default: print it."),
    ] = None,
    name: Annotated[str, typer.Option(help="Name of the profile.")] = "this-machine",
    based_on: Annotated[
        str, typer.Option(help="Profile of `edgesim list devices` for what is not measured.")
    ] = "raspberry-pi-5",
    rounds: Annotated[
        int,
        typer.Option(min=1, max=100, help="Turns of each measurement; more on a busy machine."),
    ] = 2,
    median: Annotated[
        bool,
        typer.Option(
            "--median/--fastest",
            help="Which time of a step counts: the median, of the machine with what runs on it, or "
            "the fastest, of the machine alone.",
        ),
    ] = False,
    peer: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT",
            help="Measure the network to a machine that runs `edgesim calibrate --serve`.",
        ),
    ] = None,
    serve: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=65535,
            metavar="PORT",
            help="Serve as the peer of another machine's --peer, until Ctrl-C.",
        ),
    ] = None,
) -> None:
    """Measure this machine and write it as the profile of a device.

    It takes one to two minutes on a quiet machine. The file is a scenario; `edgesim validate` and
    `edgesim cost` take it as it is.
    """
    from edgesim.cli.calibrate import calibrate_here, serve_peers

    if serve is not None:
        serve_peers(serve, _err)
        return
    calibrate_here(
        out,
        name=name,
        based_on=based_on,
        rounds=rounds,
        median=median,
        peer=peer,
        console=_out,
        messages=_err,
    )


@app.command("list", short_help="List what scenarios can name, columns, metrics.")
def list_(
    what: Annotated[What, typer.Argument(help="What to list.")],
    name: Annotated[
        str | None,
        typer.Argument(
            help="One entry or key, to be described in full, as in `list topologies torus`."
        ),
    ] = None,
) -> None:
    """List what scenarios can name; `columns` are those of a run's tables, with their meanings.

    `metrics` are those that Prometheus sees while a run goes on.
    `schema` is a JSON schema of scenario files, for editors.
    """
    from edgesim.cli.listing import catalog_table, schema_text

    if what == "schema" and name is None:
        _out.print(schema_text())
    else:
        show(catalog_table(what, name), _out)


@contextmanager
def _shown(stage: str) -> Iterator[View]:
    """Context that shows the progress of a run from its first second on.

    The run goes on if its terminal is closed, its pipe has no reader, or the disk of its output is
    full.
    """
    from edgesim.fleet.recording.terminal_view import make_view

    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    with _output.dispensable(), closing(make_view(_out)) as view:
        view.stage(stage)
        yield view
