"""Small runs for tests of reports."""

from __future__ import annotations

import json
import re
from io import StringIO
from pathlib import Path

import pandas as pd
from rich.console import Console
from small_fleets import small_scenario, write_scenario

from edgesim.assembly.preparation import prepare
from edgesim.fleet import run as fleet_run
from edgesim.scenario import load_scenario

SCENARIO = small_scenario(
    name="four-boards",
    description="a <small> fleet & its report",
    fleet={
        "devices": [
            {"profile": "raspberry-pi-4b", "names": ["attic", "hall"]},
            {"profile": "raspberry-pi-zero-2w", "name": "cellar"},
            {"profile": "raspberry-pi-zero-2w", "name": "</script>", "battery_wh": 7.0e-5},
        ]
    },
    topology={"kind": "ring"},
    network={"bandwidth_mbps": 20, "latency_ms": 1, "loss": 0.1},
    training={"rounds": 12},
    evaluation={"device_models": "every"},
)

FREE = SCENARIO | {
    "name": "free",
    "fleet": {
        "pace": "free",
        "devices": [
            {"profile": "raspberry-pi-4b", "count": 3},
            {"profile": "raspberry-pi-zero-2w", "count": 3},
        ],
        "churn": {
            "absent": [{"device": 4, "from_s": 0.02, "until_s": 0.032}],
            "joins": [{"device": 5, "at_s": 0.024}],
            "leaves": [{"device": 0, "at_s": 0.058}, {"device": 1, "at_s": 0.058}],
        },
    },
    "topology": {"kind": "complete"},
    "network": {"latency_ms": 1},
    "training": {"rounds": 400, "virtual_time_s": 0.08, "optimizer": {"lr": 0.05}},
    "evaluation": {"every_virtual_s": 0.01, "device_models": "every", "samples": 40},
}
"""Of the three quick boards two leave, so the mean of the devices' rounds falls."""


def train(folder: Path, *overrides: str, scenario: dict | None = None) -> Path:
    """Run a scenario in this process; the folder of the run."""
    folder.mkdir(parents=True, exist_ok=True)
    path = write_scenario(folder, scenario or SCENARIO)
    prepared = prepare(load_scenario(path, overrides))
    console = Console(file=StringIO())
    return fleet_run.run_scenario(prepared, folder / "run", inline=True, console=console).path


def content(page: str) -> dict:
    """What the script of a page reads."""
    found = re.search(r'id="report-content">(.*?)</script>', page, re.DOTALL)
    return json.loads(found[1])


def table(page: str, figure: str, name: str | None = None) -> pd.DataFrame:
    """A table of a figure, as it is downloaded."""
    found = content(page)
    tables = found["figures"][figure]["tables"]
    return pd.read_csv(StringIO(found["tables"][tables[name or next(iter(tables))]]))
