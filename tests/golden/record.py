"""Records the digests of all golden runs anew: `make golden`.

For a change that is meant to move bits. Say in CHANGELOG.md which results moved, and why.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

import torch
from golden_runs import RECORD, RUNS, digests, figures, machine


def main() -> None:
    """Trains all runs, one after the other."""
    torch.set_num_threads(1)
    recorded = {}
    for name, golden in RUNS.items():
        with tempfile.TemporaryDirectory() as folder:
            run = golden.train(Path(folder))
            recorded[name] = {"figures": figures(run), "digests": digests(run)}
        sys.stderr.write(f"{name}\n")
    lines = [
        f'"{name}": {{"figures": {json.dumps(of_run["figures"])}, "digests": {{\n'
        + ",\n".join(
            f'  "{table}": {json.dumps(columns)}' for table, columns in of_run["digests"].items()
        )
        + "}}"
        for name, of_run in recorded.items()
    ]
    text = f'{{"machine": {json.dumps(machine())},\n"runs": {{\n' + ",\n".join(lines) + "}}\n"
    RECORD.write_text(text)


if __name__ == "__main__":
    main()
