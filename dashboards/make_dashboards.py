"""Makes all files of this folder, and deploy/monitoring.yaml, from the table of metrics.

`make dashboards` runs it; `tests/dashboards` hold the files to what it makes.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import yaml
from grafana_foundation_sdk.builders.common import VizLegendOptions, VizTooltipOptions
from grafana_foundation_sdk.builders.dashboard import (
    Dashboard,
    DatasourceVariable,
    QueryVariable,
    Row,
)
from grafana_foundation_sdk.builders.prometheus import Dataquery
from grafana_foundation_sdk.builders.timeseries import Panel
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.common import (
    DataSourceRef,
    LegendDisplayMode,
    SortOrder,
    TooltipDisplayMode,
)
from grafana_foundation_sdk.models.dashboard import VariableOption, VariableRefresh

from edgesim.results.metrics import (
    DEVICE_METRICS,
    EVALUATION_METRICS,
    FLEET_METRICS,
    WAITS_FOR,
    Metric,
    series,
)

ROOT = Path(__file__).parents[1]
SELECTION = 'SessionName=~"$SessionName", run=~"$run"'
PANEL_WIDTH, PANEL_HEIGHT = 8, 7  # of a grid of 24 columns
_SOURCE = DataSourceRef(type_val="prometheus", uid="${datasource}")
_UNITS = {"s": "s", "bytes": "bytes", "j": "joule", "accuracy": "percentunit"}
_MADE = "# Made by `make dashboards` from the table of metrics (edgesim/results/metrics.py).\n"

_ROUNDS = "ray_edgesim_fleet_rounds_done"
_WINDOW = "40s"  # of speeds: they lag by half of it, and need three values of nodes that tell 10 s
_EACH = "by (SessionName, run)"
# Name, expression, meaning, unit in Grafana.
RULES = (
    (
        "edgesim:rounds:per_second",
        f'deriv({_ROUNDS}{{statistic="mean"}}[{_WINDOW}])',
        "rounds that a device does in a second of real time, mean over devices",
        "short",
    ),
    (
        "edgesim:rounds:spread",
        f'max {_EACH} ({_ROUNDS}{{statistic="max"}}) - min {_EACH} ({_ROUNDS}{{statistic="min"}})',
        "rounds by which the slowest device that has neither left nor died is behind the fastest",
        "short",
    ),
    (
        "edgesim:sent_bytes:per_second",
        f"sum {_EACH} (deriv(ray_edgesim_fleet_sent_bytes_total[{_WINDOW}]))",
        "bytes that the fleet sends in a second of real time",
        "Bps",
    ),
)


def fleet_dashboard() -> Dashboard:
    """What fleets of any size have."""
    board = _dashboard("edgesim: fleet", "edgesim-fleet")
    board.with_row(Row("Averaged model, newest evaluation"))
    for metric in EVALUATION_METRICS:
        board.with_panel(_panel(metric, "{{run}}"))
    board.with_row(Row("Speed of the emulation"))
    for name, _, meaning, unit in RULES:
        query = f"{name}{{{SELECTION}}}"
        board.with_panel(_panel_of(name, meaning, unit, query, "{{run}}"))
    board.with_row(Row("All devices"))
    for metric in FLEET_METRICS:
        legend = "{{run}} {{statistic}}" if metric.labels else "{{run}}"
        board.with_panel(_panel(metric, legend))
    return board


def device_dashboard() -> Dashboard:
    """What each device does; fleets above `metrics.most_devices` have none of it."""
    board = _dashboard("edgesim: devices", "edgesim-devices")
    for metric in DEVICE_METRICS:
        board.with_panel(_panel(metric, "{{run}} {{device}}"))
    board.with_panel(_panel(WAITS_FOR, "{{run}} {{device}} waits for {{other}}"))
    return board


def _dashboard(title: str, uid: str) -> Dashboard:
    everything = VariableOption(text="All", value="$__all")
    first = f"ray_edgesim_{FLEET_METRICS[0].name}"
    board = (
        Dashboard(title)
        .uid(uid)
        .tags(["edgesim", "ray"])
        .time("now-15m", "now")
        .refresh("10s")
        .readonly()
        .with_variable(DatasourceVariable("datasource").label("source").type("prometheus"))
    )
    for name, query in (
        ("SessionName", f"label_values({first}, SessionName)"),  # which Ray's dashboard fills in
        ("run", f'label_values({first}{{SessionName=~"$SessionName"}}, run)'),
    ):
        board.with_variable(
            QueryVariable(name)
            .query(query)
            .datasource(_SOURCE)
            .refresh(VariableRefresh.ON_TIME_RANGE_CHANGED)
            .include_all(include_all=True)
            .all_value(".*")
            .multi(multi=True)
            .current(everything)
        )
    return board


def _panel(metric: Metric, legend: str) -> Panel:
    unit = _UNITS.get(metric.name.rpartition("_")[2], "short")
    query = f"{series(metric)}{{{SELECTION}}}"
    return _panel_of(metric.name, metric.meaning, unit, query, legend)


def _panel_of(title: str, meaning: str, unit: str, query: str, legend: str) -> Panel:
    return (
        Panel()
        .title(title)
        .description(meaning)
        .unit(unit)
        .datasource(_SOURCE)
        .height(PANEL_HEIGHT)
        .span(PANEL_WIDTH)
        .legend(VizLegendOptions().display_mode(LegendDisplayMode.LIST).show_legend(True))
        .tooltip(VizTooltipOptions().mode(TooltipDisplayMode.MULTI).sort(SortOrder.DESCENDING))
        .with_target(Dataquery().ref_id("A").expr(query).legend_format(legend).range())
    )


def as_json(board: Dashboard) -> str:
    """A dashboard as Grafana imports it."""
    return JSONEncoder(sort_keys=True, indent=2).encode(board.build()) + "\n"


def rules() -> dict[str, Any]:
    """Recording rules, as Prometheus and its operator take them."""
    recorded = [{"record": name, "expr": expression} for name, expression, _, _ in RULES]
    return {"groups": [{"name": "edgesim", "interval": "5s", "rules": recorded}]}


def prometheus() -> dict[str, Any]:
    """Configuration of a Prometheus on the machine where Ray's dashboard listens."""
    return {
        "global": {"scrape_interval": "5s"},
        "rule_files": ["rules.yml"],
        "scrape_configs": [
            {
                "job_name": "ray",
                "http_sd_configs": [
                    {
                        "url": "http://127.0.0.1:8265/api/prometheus/sd",
                        "refresh_interval": "5s",
                        "authorization": {
                            "type": "Bearer",
                            "credentials_file": "/etc/edgesim/auth_token",
                        },
                    }
                ],
            }
        ],
    }


def kubernetes(boards: dict[str, str]) -> list[dict[str, Any]]:
    """For Prometheus' operator and for Grafana's sidecar that looks for config maps."""
    pods = {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PodMonitor",
        "metadata": {"name": "edgesim-ray", "labels": {"release": "prometheus"}},
        "spec": {
            "jobLabel": "ray-cluster",
            "namespaceSelector": {"any": True},
            # All pods of KubeRay, heads and workers: each exports what its node was told.
            "selector": {"matchExpressions": [{"key": "ray.io/cluster", "operator": "Exists"}]},
            "podMetricsEndpoints": [
                {"port": "metrics", "interval": "5s"},
            ],
            "podTargetLabels": ["ray.io/cluster", "ray.io/node-type"],
        },
    }
    recording = {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PrometheusRule",
        "metadata": {"name": "edgesim", "labels": {"release": "prometheus"}},
        "spec": rules(),
    }
    panels = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "edgesim-dashboards", "labels": {"grafana_dashboard": "1"}},
        "data": {name: json.dumps(json.loads(text)) for name, text in boards.items()},
    }
    return [pods, recording, panels]


def files() -> dict[Path, str]:
    """All files that are made, with their content."""
    boards = {
        "edgesim-fleet.json": as_json(fleet_dashboard()),
        "edgesim-devices.json": as_json(device_dashboard()),
    }
    here = ROOT / "dashboards"
    providers = [
        {
            "name": "edgesim",
            "folder": "edgesim",
            "type": "file",
            "options": {"path": "/etc/edgesim/dashboards"},
        }
    ]
    source = {
        "name": "Prometheus",
        "type": "prometheus",
        "access": "proxy",
        "url": "http://127.0.0.1:9090",
        "isDefault": True,
    }
    made: dict[Path, Any] = {
        here / "rules.yml": rules(),
        here / "prometheus.yml": prometheus(),
        here / "grafana" / "dashboards" / "edgesim.yml": {"apiVersion": 1, "providers": providers},
        here / "grafana" / "datasources" / "edgesim.yml": {
            "apiVersion": 1,
            "datasources": [source],
        },
    }
    texts = {path: _MADE + _yaml(content) for path, content in made.items()}
    several = "---\n".join(_yaml(part) for part in kubernetes(boards))
    texts[ROOT / "deploy" / "monitoring.yaml"] = _MADE + several
    return texts | {here / name: text for name, text in boards.items()}


def _yaml(content: object) -> str:
    text: str = yaml.safe_dump(content, sort_keys=False, width=10_000)
    return text


def main() -> None:
    """Write the files."""
    for path, text in files().items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        sys.stdout.write(f"{path.relative_to(ROOT)}\n")


if __name__ == "__main__":
    main()
