"""`edgesim data`: datasets in the files that their authors publish."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from edgesim.cli.output import out

data_commands = typer.Typer(
    help="Datasets in the files that their authors publish.", rich_markup_mode=None
)


@data_commands.callback()
def common() -> None:
    """Datasets in the files that their authors publish."""


@data_commands.command(short_help="Fetch the published files of a dataset.")
def fetch(
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME", help="Dataset: cifar10, cifar100, fashion_mnist or imagenette."
        ),
    ],
    to: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Folder to put it into; default: NAME.")
    ] = None,
    size: Annotated[
        str, typer.Option(help="Of imagenette: 160px, 320px or full; default: the smallest.")
    ] = "",
) -> None:
    """Fetch the published files of a dataset, check them, and unpack archives."""
    from edgesim.data.published import fetch_published

    folder = to or Path(name)
    fetch_published(name, folder, size, out.print)
    out.print(f"{name} is in {folder}; use it with --set data.path={folder}")
