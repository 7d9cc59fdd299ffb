"""Runs in lockstep on other hardware: accuracy against virtual time, bytes and energy.

In lockstep hardware changes no learning. So the clocks of eight Raspberry Pi 4B run here from the
work and the messages that the runs recorded:

    python benchmarks/paper_on_pis.py RUN RUN ... --figures docs/figures --json FILE

`--set` names other hardware, with keys of a scenario. `--also` takes curves of other runs from an
earlier `--json` on the same hardware. Of an unfinished run the evaluations so far are shown.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from itertools import islice
from pathlib import Path

import matplotlib as mpl
import pandas as pd
from clocked_again import spent_by_rounds
from rich.console import Console
from rich.table import Table

import edgesim
from edgesim.assembly.build import make_schedule
from edgesim.assembly.equipment import device_hardware
from edgesim.hardware.timeline import Hardware
from edgesim.results.run import Run
from edgesim.scenario import load_scenario
from edgesim.scenario.schema import Scenario

mpl.use("svg")
from matplotlib import pyplot as plt
from matplotlib.lines import Line2D
from matplotlib.ticker import LogLocator, NullFormatter

PIS = ("fleet.profile=raspberry-pi-4b", "network={bandwidth_mbps: 10, latency_ms: 5}")
STYLES = {"fp32": "-", "int8": "--"}
OTHER_NORM = "fp32, range_evonorm"
LEVELS = (0.3, 0.4, 0.5, 0.6, 0.7, 0.8)  # accuracies whose first crossing is reported


def curve(run: Run, hardware: Sequence[Hardware], seed: int) -> pd.DataFrame:
    """Accuracy of the averaged model with what the fleet had spent until then."""
    done = run.evaluations[run.evaluations["model"] == "consensus"].set_index("round")
    spent = pd.DataFrame(list(islice(spent_by_rounds(run, hardware, seed), done.index.max())))
    spent.index = spent.index + 1  # rounds completed
    return done[["epoch", "accuracy"]].join(spent)


def name_of(scenario: Scenario) -> str:
    """What tells a run from the others of the paper."""
    keys = scenario.model_dump()
    compressor, model, training = keys["gossip"]["compressor"], keys["model"], keys["training"]
    left_out = 0 if compressor["kind"] == "identity" else round(100 * (1 - compressor["keep"]))
    skew = keys["data"]["partition"]["skew"]
    # Of two kinds of Range EvoNorm in fp32, the one that has the gate of the 8-bit models.
    of_8_bits = model["precision"] == "fp32" and model["gate"] == "hard_sigmoid"
    norm = scenario.model.norm_used + (" as in int8" if of_8_bits else "")
    unit = "epochs" if training["epochs"] else "rounds"
    return f"{model['precision']}, {norm}, {left_out} %, skew {skew}, {training[unit]} {unit}"


def draw(curves: dict[str, pd.DataFrame], folder: Path) -> None:
    """One figure of three: accuracy against time, bytes and energy.

    A color for what is left out and the skew, dashes for 8 bits, thicker lines for longer runs. Of
    runs in fp32 those with the paper's norm are drawn.
    """
    mpl.rcParams["svg.hashsalt"] = "edgesim"
    shown = {name: points for name, points in curves.items() if not name.startswith(OTHER_NORM)}
    parts = {name: name.split(", ") for name in shown}
    cells = sorted({", ".join(part[2:4]) for part in parts.values()})
    colors = {cell: f"C{number}" for number, cell in enumerate(cells)}
    widths = dict.fromkeys(sorted({part[4] for part in parts.values()}, key=_number), 1.0)
    widths = {length: 1.0 + 1.2 * number for number, length in enumerate(widths)}
    panels = (
        ("virtual_time_s", 3600.0, "virtual time, hours"),
        ("sent_bytes", 1e9, "sent by the fleet, GB"),
        ("energy_j", 1e3, "energy of the fleet, kJ"),
    )
    figure, axes = plt.subplots(1, 3, figsize=(12, 4.6), sharey=True, layout="constrained")
    for axis, (column, unit, label) in zip(axes, panels, strict=True):
        for name, points in shown.items():
            precision, _, left_out, skew, length = parts[name]
            axis.plot(
                points[column] / unit,
                100 * points["accuracy"],
                STYLES[precision],
                color=colors[f"{left_out}, {skew}"],
                linewidth=widths[length],
            )
        axis.set(xlabel=label, xscale="log")
        axis.xaxis.set_major_locator(LogLocator(subs=(1, 3)))
        axis.xaxis.set_major_formatter("{x:g}")
        axis.xaxis.set_minor_formatter(NullFormatter())
        axis.grid(alpha=0.3, which="both")
    axes[0].set_ylabel("test accuracy of the averaged model, %")
    keys = [
        *(Line2D([], [], color=color, label=cell) for cell, color in colors.items()),
        *(Line2D([], [], color="k", ls=style, label=name) for name, style in STYLES.items()),
        *(Line2D([], [], color="k", lw=width, label=name) for name, width in widths.items()),
    ]
    figure.legend(handles=keys, loc="outside lower center", ncols=len(keys), fontsize="small")
    figure.savefig(folder / "paper-on-pis.svg", metadata={"Date": None})
    plt.close(figure)


def _number(length: str) -> int:
    """Of a length such as `20 epochs`."""
    return int(length.split()[0])


def table(curves: dict[str, pd.DataFrame]) -> Table:
    """Where each run ended, and the hours that it took to come to an accuracy."""
    columns = ("epochs", "accuracy", "hours", "GB", "kJ", *(f"h to {a:.0%}" for a in LEVELS))
    shown = Table("run", *columns)
    for name, points in curves.items():
        last = points.iloc[-1]
        reached = [points[points["accuracy"] >= level] for level in LEVELS]
        shown.add_row(
            name,
            f"{last['epoch']:g}",
            f"{last['accuracy']:.4f}",
            f"{last['virtual_time_s'] / 3600:.3f}",
            f"{last['sent_bytes'] / 1e9:.3f}",
            f"{last['energy_j'] / 1e3:.1f}",
            *(f"{r['virtual_time_s'].iloc[0] / 3600:.3f}" if len(r) else "-" for r in reached),
        )
    return shown


def earlier(file: Path) -> dict[str, pd.DataFrame]:
    """Curves that `--json` wrote."""
    content = json.loads(file.read_text())
    return {name: pd.DataFrame(points).set_index("round") for name, points in content.items()}


def main() -> None:
    """Run the clocks, print the table, and draw."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("runs", type=Path, nargs="*", metavar="RUN")
    parser.add_argument("--also", type=Path, help="file of an earlier --json")
    parser.add_argument("--set", action="append", default=[], help="hardware; default: " + PIS[0])
    parser.add_argument("--figures", type=Path, help="folder for the figure")
    parser.add_argument("--json", type=Path, help="write the curves to this file")
    arguments = parser.parse_args()
    curves = earlier(arguments.also) if arguments.also else {}
    for folder in arguments.runs:
        scenario = load_scenario(folder / "scenario.yaml", arguments.set or PIS)
        name = name_of(scenario)
        if name in curves:
            parser.error(f"{folder}: a second curve of {name}; give one of each")
        hardware = device_hardware(scenario, make_schedule(scenario))
        run = edgesim.load_run(folder)
        if scenario.fleet.pace != "lockstep":
            parser.error(f"{folder}: at free pace, where hardware changes learning")
        if not len(run.evaluations):
            parser.error(f"{folder}: no model has been evaluated yet")
        curves[name] = curve(run, hardware, scenario.seed)
    if not curves:
        parser.error("name a run, or a file of earlier curves with --also")
    Console(width=140).print(table(curves))
    if arguments.json:
        content = {
            name: {"round": points.index.to_list(), **points.to_dict("list")}
            for name, points in curves.items()
        }
        arguments.json.write_text(json.dumps(content, indent=1) + "\n")
    if arguments.figures:
        draw(curves, arguments.figures)


if __name__ == "__main__":
    main()
