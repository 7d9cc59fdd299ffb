"""Records digests of golden runs: `make golden`, or `make golden NAMES="NAME ..."` of some alone.

For a change that is meant to move bits, and for a new scenario in `scenarios/smoke`. Say in
CHANGELOG.md which results moved, and why.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import torch
from golden_runs import RECORD, RUNS, digests, figures, machine


def recorded_anew(content: Mapping[str, Any], names: Collection[str]) -> dict[str, Any]:
    """The content of the record with these runs trained anew, one after the other.

    A run notes its machine where it is not that of the whole record.

    Args:
        content: of the record so far.
        names: of golden runs.
    """
    here = machine()
    whole = here if set(names) == set(RUNS) else content["machine"]
    runs = dict(content["runs"])
    for name in names:
        with tempfile.TemporaryDirectory() as folder:
            run = RUNS[name].train(Path(folder))
            runs[name] = {"figures": figures(run), "digests": digests(run)}
        if here != whole:
            runs[name]["machine"] = here
        sys.stderr.write(f"{name}\n")
    return {"machine": whole, "runs": {name: runs[name] for name in RUNS if name in runs}}


def text_of(content: Mapping[str, Any]) -> str:
    """The record as its file has it: a line for each table of a run."""
    lines = []
    for name, run in content["runs"].items():
        tables = ",\n".join(
            f'  "{table}": {json.dumps(columns)}' for table, columns in run["digests"].items()
        )
        elsewhere = f', "machine": {json.dumps(run["machine"])}' if "machine" in run else ""
        lines.append(
            f'"{name}": {{"figures": {json.dumps(run["figures"])}, "digests": {{\n'
            f"{tables}}}{elsewhere}}}"
        )
    whole = json.dumps(content["machine"])
    return f'{{"machine": {whole},\n"runs": {{\n' + ",\n".join(lines) + "}}\n"


def main() -> None:
    """Record the runs that are named, or all."""
    names = sys.argv[1:] or list(RUNS)
    if unknown := [name for name in names if name not in RUNS]:
        sys.exit(f"{', '.join(unknown)}: no golden run; they are {', '.join(RUNS)}")
    torch.set_num_threads(1)
    RECORD.write_text(text_of(recorded_anew(json.loads(RECORD.read_text()), names)))


if __name__ == "__main__":
    main()
