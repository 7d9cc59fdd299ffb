"""Arguments and options that several commands have."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

ScenarioPath = Annotated[
    Path,
    typer.Argument(metavar="SCENARIO", help="Scenario file (YAML), or name of a shipped one."),
]
Overrides = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY.PATH=VALUE",
        help="Replace a value of the scenario; may be repeated.",
    ),
]
Scale = Annotated[
    float | None,
    typer.Option(help="Shorten training, schedule and evaluations to this share, above 0 to 1."),
]
Address = Annotated[str | None, typer.Option(help="Ray cluster to use; default: start one here.")]
Dashboard = Annotated[bool, typer.Option(help="Start the Ray dashboard with a new cluster.")]


def lasting(out: str | None) -> str | None:
    """A place for results, which outlasts the command."""
    if out is not None and out.startswith("memory:"):
        raise typer.BadParameter(
            f"{out} is gone when this command ends; give a folder, or a URI such as s3://bucket/run"
        )
    return out
