"""The command line: run, validate, cost, list. Nothing else prints or reads the environment."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.logging import RichHandler
from rich.table import Table

from edgesim.cli.listing import Catalog, catalog_table
from edgesim.errors import EdgesimError, ScenarioError
from edgesim.scenario.files import load_scenario

if TYPE_CHECKING:
    from edgesim.preparation import Prepared

BAD_INPUT, FAILED, INTERRUPTED = 2, 1, 130

app = typer.Typer(
    name="edgesim",
    help="Emulates a fleet of edge devices that train one model together, without a server.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)
_out = Console(soft_wrap=True)
_err = Console(stderr=True, soft_wrap=True, highlight=False, markup=False)

ScenarioPath = Annotated[Path, typer.Argument(metavar="SCENARIO", help="Scenario file (YAML).")]
Overrides = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY.PATH=VALUE", help="Replace a value of the scenario."),
]


Address = Annotated[str | None, typer.Option(help="Ray cluster to use; default: start one here.")]
Dashboard = Annotated[bool, typer.Option(help="Start the Ray dashboard with a new cluster.")]


@app.callback()
def common(
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks of errors.")] = False,
) -> None:
    """Options of all commands."""


@app.command()
def run(
    scenario: ScenarioPath,
    overrides: Overrides = None,
    out: Annotated[
        str | None,
        typer.Option(help="Run directory, a path or a URI; default runs/<name>-<time>."),
    ] = None,
    inline: Annotated[
        bool, typer.Option("--inline", help="All devices in this process, without Ray.")
    ] = False,
    address: Address = None,
    dashboard: Dashboard = True,
) -> None:
    """Train the fleet of a scenario."""
    from edgesim.fleet.run import run_scenario

    prepared = _prepare(scenario, overrides or ())
    result = run_scenario(
        prepared,
        out or _default_out(prepared.scenario.name),
        inline=inline,
        address=address,
        dashboard=dashboard,
        console=_out,
    )
    _print_result(result.summary, result.place)


@app.command()
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
    """Go on with a run that was interrupted, to the result that it would have had."""
    from edgesim.fleet.run import resume_run

    result = resume_run(run, inline=inline, address=address, dashboard=dashboard, console=_out)
    _print_result(result.summary, result.place)


@app.command()
def validate(scenario: ScenarioPath, overrides: Overrides = None) -> None:
    """Check a scenario with its graph, data and model; start nothing and write nothing."""
    _print_prepared(_prepare(scenario, overrides or ()))


@app.command()
def cost(
    scenario: ScenarioPath,
    overrides: Overrides = None,
    compare: Annotated[
        Path | None,
        typer.Option(metavar="OTHER", help="Scenario to set beside it; --set changes both."),
    ] = None,
    compare_overrides: Annotated[
        list[str] | None,
        typer.Option("--compare-set", metavar="KEY.PATH=VALUE", help="Change OTHER alone."),
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
) -> None:
    """Say what a scenario costs each device, without training: memory, bytes, energy, time."""
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
    )


@app.command("list")
def list_(
    what: Annotated[Catalog, typer.Argument(help="What to list.")],
    name: Annotated[
        str | None, typer.Argument(help="A device: each of its numbers with its source.")
    ] = None,
) -> None:
    """List what scenarios can name."""
    _out.print(catalog_table(what, name))


def _prepare(path: Path, overrides: Sequence[str]) -> Prepared:
    """Read and check a scenario; what is found later than by reading names the file too."""
    scenario = load_scenario(path, overrides)
    from edgesim.preparation import prepare  # loads torch: a refused file need not wait for it
    from edgesim.study.budget import check_memory

    try:
        prepared = prepare(scenario)
        shortage = check_memory(scenario)
    except EdgesimError as error:
        if not isinstance(error, ValueError):
            raise
        raise ScenarioError(f"{path}: {error}") from error
    if shortage:
        _err.print(f"{path}: {shortage}")
    return prepared


def main() -> None:
    """Entry point: errors become one or two lines and an exit status."""
    debug = "--debug" in sys.argv
    logging.basicConfig(
        level=logging.INFO,
        format="%(message)s",
        handlers=[RichHandler(console=_err, show_time=False, show_path=False, show_level=False)],
    )
    logging.getLogger("ray").setLevel(logging.WARNING)
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nothing is sent anywhere
    # A lost actor or node is told in one line by the launcher; Ray's own paragraphs are left out.
    losses = "A worker died or was killed|The node with node id|Raylet is terminated"
    # Ray warns of more actors than cores, which is what the scenario asked for.
    crowds = "PYTHON worker processes have been started on node"
    os.environ.setdefault("RAY_DEDUP_LOGS_SKIP_REGEX", f"{losses}|{crowds}")
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        app()
    except (KeyboardInterrupt, asyncio.CancelledError):
        _err.print("interrupted")
        sys.exit(INTERRUPTED)
    except EdgesimError as error:
        if debug:
            raise
        _err.print(str(error))
        sys.exit(BAD_INPUT if isinstance(error, ValueError) else FAILED)
    except Exception as error:
        if debug:
            raise
        _err.print(f"internal error: {type(error).__name__}: {error}")
        _err.print("this is a defect of edgesim; `edgesim --debug ...` shows where")
        sys.exit(FAILED)


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt


def _default_out(name: str) -> Path:
    return Path("runs") / f"{name}-{datetime.now(UTC):%Y%m%d-%H%M%S}"


def _print_prepared(prepared: Prepared) -> None:
    import numpy as np

    from topologies import first_exchange, mixing_matrix, spectral_gap

    scenario, training = prepared.scenario, prepared.training
    first = first_exchange(prepared.schedule)
    graph = prepared.schedule.graph(first)
    sizes = [len(indices) for indices in prepared.indices]
    degrees = [degree for _, degree in graph.out_degree()]
    table = Table(title=f"{scenario.name}: nothing stands in its way", show_header=False)
    table.add_row("devices", str(scenario.fleet.num_devices))
    table.add_row("topology", scenario.topology.kind)
    neighbors = f"{min(degrees)} to {max(degrees)}"
    table.add_row(f"out-neighbors in round {first}", neighbors)
    if prepared.schedule.is_static:
        gap = spectral_gap(np.asarray(mixing_matrix(graph)))
        table.add_row("spectral gap", f"{gap:.4f}")
    table.add_row("model", f"{scenario.model.name}, {prepared.layout.numel:,} parameters")
    table.add_row("samples per device", f"{min(sizes):,} to {max(sizes):,}")
    table.add_row("test samples", f"{len(prepared.test_samples().labels):,}")
    table.add_row("rounds", f"{training.num_rounds:,} ({training.rounds_per_epoch} per epoch)")
    _out.print(table)


def _print_result(summary: dict[str, Any], place: str) -> None:
    table = Table(title=f"{summary['name']} (seed {summary['seed']})", show_header=False)
    table.add_row("accuracy of the averaged model", f"{summary['consensus_accuracy']:.4f}")
    if summary["device_accuracy_min"] is not None:
        table.add_row(
            "accuracy of single devices",
            f"{summary['device_accuracy_min']:.4f} to {summary['device_accuracy_max']:.4f} "
            f"(mean {summary['device_accuracy_mean']:.4f})",
        )
    table.add_row("consensus distance", f"{summary['consensus_distance']:.4g}")
    table.add_row(
        "bytes sent",
        f"{summary['sent_bytes']:,} in {summary['messages_sent']:,} messages "
        f"(values {summary['sent_value_bytes']:,}, indices {summary['sent_index_bytes']:,}, "
        f"scales and headers {summary['sent_overhead_bytes']:,})",
    )
    table.add_row("rounds", f"{summary['rounds']:,} ({summary['epochs']:.4g} epochs)")
    if "virtual_time_s" in summary:
        table.add_row("virtual time", f"{summary['virtual_time_s']:,.1f} s")
        table.add_row(
            "energy",
            f"{summary['energy_j']:,.1f} J (computing {summary['energy_compute_j']:,.1f}, memory "
            f"{summary['energy_memory_j']:,.1f}, radio {summary['energy_radio_j']:,.1f}, waiting "
            f"{summary['energy_idle_j']:,.1f})",
        )
    table.add_row("wall time", f"{summary['wall_s']:.1f} s")
    table.add_row("files", place)
    _out.print(table)
