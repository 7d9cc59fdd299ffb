"""The files in dashboards/ are those of the table of metrics; Prometheus understands them."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import make_dashboards
import pytest
import yaml

from edgesim.results.metrics import (
    DEVICE_METRICS,
    EVALUATION_METRICS,
    FLEET_METRICS,
    WAITS_FOR,
)

ROOT = Path(__file__).parents[2]
DASHBOARDS = ROOT / "dashboards"
METRICS = (*DEVICE_METRICS, WAITS_FOR, *FLEET_METRICS, *EVALUATION_METRICS)


def queries_of_panels() -> list[str]:
    """Every query of every panel, with the dashboard's variables as they are."""
    boards = [json.loads(path.read_text()) for path in sorted(DASHBOARDS.glob("*.json"))]
    panels = [panel for board in boards for panel in board["panels"] if panel["type"] != "row"]
    return [target["expr"] for panel in panels for target in panel["targets"]]


@pytest.mark.parametrize("path", make_dashboards.files(), ids=lambda path: path.name)
def test_the_files_are_those_that_make_dashboards_makes(path):
    made = make_dashboards.files()[path]
    assert path.read_text() == made, "run `make dashboards`"


def test_each_metric_has_a_panel_and_each_panel_is_about_a_metric_or_a_rule():
    asked = {re.match(r"[\w:]+", query)[0] for query in queries_of_panels()}
    rules = {rule[0] for rule in make_dashboards.RULES}
    assert asked == {make_dashboards.series(metric) for metric in METRICS} | rules
    for metric in METRICS:
        assert metric.meaning, metric.name


def test_kubernetes_gets_the_same_panels_and_rules():
    monitor, rule, panels = yaml.safe_load_all((ROOT / "deploy" / "monitoring.yaml").read_text())
    assert [part["kind"] for part in (monitor, rule, panels)] == [
        *("PodMonitor", "PrometheusRule", "ConfigMap")
    ]
    assert rule["spec"] == yaml.safe_load((DASHBOARDS / "rules.yml").read_text())
    boards = {path.name: json.loads(path.read_text()) for path in DASHBOARDS.glob("*.json")}
    assert {name: json.loads(text) for name, text in panels["data"].items()} == boards
    (selector,) = monitor["spec"]["selector"]["matchExpressions"]
    assert selector == {"key": "ray.io/cluster", "operator": "Exists"}


@pytest.mark.skipif(not shutil.which("promtool"), reason="needs Prometheus (promtool)")
@pytest.mark.parametrize(
    "check", [("rules", "rules.yml"), ("config", "--syntax-only", "prometheus.yml")]
)
def test_prometheus_finds_no_fault_with_its_files(check):
    command = ["promtool", "check", *check[:-1], str(DASHBOARDS / check[-1])]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
