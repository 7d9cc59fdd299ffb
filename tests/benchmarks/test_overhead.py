"""Workloads of the benchmark of overhead are scenarios that can be run."""

from __future__ import annotations

import pytest
from overhead import WORKLOADS, make_plan, make_scenario

from edgesim.assembly.build import choose_compute


@pytest.mark.parametrize("workload", WORKLOADS, ids=lambda workload: workload.name)
def test_a_workload_is_a_plan_of_a_fleet(workload, tmp_path):
    scenario = make_scenario(tmp_path, workload, "top_k", 1)
    plan = make_plan(scenario, workload.rounds, tmp_path / "run")
    assert plan.scenario.model.precision == workload.precision
    assert plan.compute == choose_compute(scenario, 0)  # in 8 bits integers, where there can be
    assert scenario.fleet.num_devices == workload.devices
