"""The figure of docs/choco.md, from what choco_forms.py and choco_training.py have measured.

It is drawn from docs/measured:

    python benchmarks/choco_figure.py --figure docs/figures/choco.svg
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import matplotlib as mpl
import pandas as pd

mpl.use("svg")
from matplotlib import pyplot as plt

MEASURED = Path(__file__).parents[1] / "docs" / "measured"
CASE = "irregular, free, eta 0.1, keep 0.1"
TIME = 1500  # of a consensus run
COLORS = {"numerator": "#dd8452", "model": "#55a868", "deepsqueeze": "#8172b3"}
ARMS = {
    "lockstep": ("#4c72b0", "lockstep"),
    "free, model form": (COLORS["model"], "free, model form"),
    "free, numerator form": (COLORS["numerator"], "free, numerator form"),
    "free, model form, 16 s": ("#64b5cd", "free, model form, until 16 s"),
    "free, model form, auto, 16 s": ("#8c8c8c", "free, model form, rate found, until 16 s"),
}


def main() -> None:
    """Draw consensus without training on the left, training on the right."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--figure", type=Path, required=True, help="SVG to write")
    arguments = parser.parse_args()
    mpl.rcParams["svg.hashsalt"] = "choco"  # equal input, equal file
    figure, (left, right) = plt.subplots(1, 2, figsize=(9.0, 3.6), layout="constrained")
    curves = json.loads((MEASURED / "choco_forms.json").read_text())["consensus"][CASE]
    for form, color in COLORS.items():
        errors = curves[form]["different"]
        times = [TIME * (point + 1) / len(errors) for point in range(len(errors))]
        label = "DeepSqueeze" if form == "deepsqueeze" else f"CHOCO, {form} form"
        left.plot(times, errors, color=color, label=label)
    left.set(xlabel="time (turns of a device)", ylabel="largest distance from the mean")
    left.set_title("gossip alone", fontsize="medium")
    runs = json.loads((MEASURED / "choco_training.json").read_text())
    seen = set()
    for key, run in runs.items():
        color, label = ARMS[key.rsplit(" seed ", 1)[0]]
        rows = pd.DataFrame(run["evaluations"])
        averaged = rows[rows["device"] == -1]
        shown = None if label in seen else label
        seen.add(label)
        part = [(number + 1) / len(averaged) for number in range(len(averaged))]
        right.plot(part, averaged["consensus_distance"], color=color, label=shown)
    right.set(xlabel="part of the training", ylabel="consensus distance")
    right.set_title("training, six unlike boards", fontsize="medium")
    for axes in (left, right):
        axes.set_yscale("log")
        axes.grid(alpha=0.3)
        axes.legend(fontsize="small")
    figure.savefig(arguments.figure, metadata={"Date": None})
    plt.close(figure)


if __name__ == "__main__":
    main()
