"""Writes the evaluations of runs as one file of docs/measured, which is small enough to be kept.

    python benchmarks/raw_evaluations.py docs/measured/FILE.json --processor NAME RUN RUN ...

A run that the file has already, by its digest, is replaced; others stay. Of each run it keeps the
evaluations of the averaged model, at the end also those of all devices and those as the authors
evaluate, after 50 more rounds of gossip; and digests of the run, of its samples and of edgesim's
code, as far as its version noted them. Of an unfinished run it keeps the evaluations so far.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import pandas as pd

import edgesim
from edgesim.results.run import Run

NOTE = (
    "accuracies on the test images: of the averaged model, of each device, and as the authors "
    "evaluate, after more rounds of gossip (evaluation.gossip_rounds)"
)
DIGITS = 5  # of losses and distances


def cell(run: Run, processor: str) -> dict[str, Any]:
    """What is kept of a run."""
    rows = run.evaluations
    if rows.empty:
        raise SystemExit(f"{run.path}: has no evaluation yet; leave it out")
    done = [_evaluation(of_round) for _, of_round in rows.groupby("round")]
    environment = json.loads((run.path / "environment.json").read_text())
    kept = {
        "cell": run.path.name,
        "finished": run.is_finished,
        "run_digest": json.loads((run.path / "run.json").read_text())["run_digest"],
        "processor": processor,
        "samples": environment.get("samples"),
        "code": environment.get("code"),
        "evaluations": done,
        "rounds": int(rows["round"].max()),
        "sent_bytes": int(rows.loc[rows["model"] == "consensus", "total_sent_bytes"].iloc[-1]),
    }
    return kept | ({"resumes": run.summary["resumes"]} if run.is_finished else {})


def _evaluation(rows: pd.DataFrame) -> dict[str, Any]:
    """One evaluation: its figures by name, without those that were not taken."""
    averaged = rows[rows["model"] == "consensus"].iloc[0]
    devices = rows[rows["model"] == "device"].sort_values("device")
    found: dict[str, Any] = {
        "epoch": averaged["epoch"],
        "averaged": averaged["accuracy"],
        "loss": round(averaged["loss"], DIGITS),
        "consensus_distance": round(averaged["consensus_distance"], DIGITS),
    }
    if len(devices):
        found["devices"] = devices["accuracy"].tolist()
        after = devices.get("after_gossip_accuracy")
        if after is not None and after.notna().all():
            found["as_the_authors"] = float(after.mean())
            found["devices_as_the_authors"] = after.tolist()
    return found


def add(file: Path, runs: list[Path], processor: str) -> dict[str, Any]:
    """Add runs to a file, which is made if it is not there.

    Args:
        file: in docs/measured.
        runs: run directories.
        processor: on which they were trained.

    Returns:
        the content of the file.
    """
    content: dict[str, Any] = {"note": NOTE, "cells": []}
    if file.exists():
        content = json.loads(file.read_text())
    for path in runs:
        new = cell(edgesim.load_run(path), processor)
        others = [one for one in content["cells"] if one["run_digest"] != new["run_digest"]]
        content["cells"] = [*others, new]
    file.write_text(json.dumps(content, indent=1) + "\n")
    return content


def main() -> None:
    """Add the runs of the command line, and say how they ended."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", type=Path)
    parser.add_argument("runs", type=Path, nargs="+")
    parser.add_argument("--processor", required=True, help="on which they were trained")
    arguments = parser.parse_args()
    for one in add(arguments.file, arguments.runs, arguments.processor)["cells"]:
        last = one["evaluations"][-1]
        authors = last.get("as_the_authors", float("nan"))
        print(f"{one['cell']}: epoch {last['epoch']:g}, {last['averaged']:.4f}, {authors:.4f}")


if __name__ == "__main__":
    main()
