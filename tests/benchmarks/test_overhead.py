"""Workloads of the benchmark of overhead are scenarios that can be run."""

from __future__ import annotations

import pytest
from overhead import WORKLOADS, make_plan, make_scenario


@pytest.mark.parametrize("workload", WORKLOADS, ids=lambda workload: workload.name)
def test_a_workload_is_a_plan_of_a_fleet(workload, tmp_path):
    scenario = make_scenario(tmp_path, workload, "top_k", 1)
    plan = make_plan(scenario, workload.rounds, tmp_path / "run")
    assert plan.scenario.model.precision == workload.precision
    is_int8 = workload.precision == "int8"
    assert plan.compute.backend is None or is_int8
    assert scenario.fleet.num_devices == workload.devices
