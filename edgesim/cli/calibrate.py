"""`edgesim calibrate`: measures this machine and writes the profile of a device."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from edgesim.errors import ScenarioError
from edgesim.hardware.catalog import PROFILES
from edgesim.scenario.hardware import LONGEST_NAME, PROFILE_NAME

if TYPE_CHECKING:
    from edgesim.calibration.fit import Fit
    from edgesim.calibration.micro_networks import Sizes

POOR = 0.25
"""Relative error of a step, above which the kind of layer is named."""


def calibrate_here(
    out: Path | None,
    *,
    name: str,
    based_on: str,
    rounds: int,
    median: bool,
    peer: str | None,
    console: Console,
    messages: Console,
    sizes: Sizes = "full",
) -> None:
    """Measure this machine; write a scenario with its profile to a file, or print it.

    Args:
        out: file to write; None to print.
        name: of the profile.
        based_on: profile of the catalog for what is not measured.
        rounds: turns of each measurement.
        median: the median of the turns counts; otherwise the fastest.
        peer: `host:port` of a peer that serves; None for none.
        console: for the scenario.
        messages: for progress, and what comes after it.
        sizes: of the small networks.

    Raises:
        CalibrationError: something can't be measured or written.
        ScenarioError: the names can't stand in a scenario.
    """
    _check_names(name, based_on)
    from edgesim.calibration.profile_file import check_place, profile_text, write_profile

    if out is not None:
        check_place(out)
    with _progress(messages) as note:
        note(0, 1, "loading torch")
        from edgesim.assembly.build import quantization_settings
        from edgesim.calibration.calibrate import calibrate
        from edgesim.calibration.turns import Turns

        turns = Turns(rounds, takes_median=median)
        found = calibrate(note, quantization_settings(), turns=turns, sizes=sizes, peer=peer)
    text = profile_text(found, name, based_on)
    if found.no_power:
        messages.print(f"power: not measured: {found.no_power}")
    if poor := _poor_fits(found.fits):
        messages.print(poor, markup=False, highlight=False, soft_wrap=True)
    if out is None:
        console.print(text, markup=False, highlight=False, soft_wrap=True, end="")
        return
    write_profile(out, text)
    messages.print(f"{out} is written; try: edgesim cost {out}")


def serve_peers(port: int, messages: Console) -> None:
    """Answer `edgesim calibrate --peer` of other machines until Ctrl-C.

    Raises:
        CalibrationError: the port can't be had.
    """
    from edgesim.calibration.network import serve

    serve(
        port,
        lambda own: messages.print(
            f"listening on port {own} of all networks of this machine; Ctrl-C ends it"
        ),
    )


def _poor_fits(fits: Sequence[Fit]) -> str:
    """Kinds of layers whose times describe badly what was measured; empty if there are none."""
    poor = sorted((fit for fit in fits if fit.worst > POOR), key=lambda fit: -fit.worst)
    if not poor:
        return ""
    named = ", ".join(f"{fit.time.kind} ({100 * fit.worst:.0f} %)" for fit in poor)
    return (
        f"layers of which a measured step is more than {100 * POOR:.0f} % off the profile's times: "
        f"{named}; more --rounds, or a machine that does nothing else, may help"
    )


def _check_names(name: str, based_on: str) -> None:
    if not re.fullmatch(PROFILE_NAME, name) or len(name) > LONGEST_NAME:
        raise ScenarioError(
            f"--name {name}: must be lower-case letters, digits and '-', a letter or digit first, "
            f"at most {LONGEST_NAME}"
        )
    if name in PROFILES:
        raise ScenarioError(f"--name {name}: is a profile of edgesim's; choose another name")
    if based_on not in PROFILES:
        raise ScenarioError(
            f"--based-on {based_on}: no such profile; `edgesim list devices` has all"
        )


@contextmanager
def _progress(console: Console) -> Iterator[Callable[[int, int, str], None]]:
    """A bar on a terminal; elsewhere a line for every tenth of the way."""
    if not console.is_terminal:
        tenths = set[int]()

        def tell(done: int, total: int, what: str) -> None:
            tenth = 10 * done // total
            if tenth not in tenths:
                tenths.add(tenth)
                console.print(f"{10 * tenth} %: {what}")

        yield tell
        return
    columns = TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn()
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("", total=1)

        def move(done: int, total: int, what: str) -> None:
            shown = what.replace("_", " ")
            bar.update(task, completed=done, total=total, description=shown)

        yield move
