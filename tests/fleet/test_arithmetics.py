"""Who computes with other instructions is told: last bits go by them."""

from __future__ import annotations

import json

import pytest
import torch
from interrupted_runs import resumed

from edgesim.assembly.build import Compute
from edgesim.fleet.on_ray.arithmetics import Arithmetics, Built
from edgesim.quant.kernels.products import amx, native


def test_a_process_without_permission_for_matrix_tiles_computes_with_something_else(monkeypatch):
    """Which decides bits of weight gradients, on one and the same processor."""
    monkeypatch.setattr(native, "multiply_add_is_native", lambda: True)
    said = set()
    for is_allowed in (False, True):
        monkeypatch.setattr(amx, "is_native", lambda allowed=is_allowed: allowed)
        said.add(Compute("cpu", "int8_cpu").describe())
    assert len(said) == 2
    assert Compute("cpu", None).describe() == (
        f"fp32, torch with {torch.backends.cpu.get_cpu_capability()}"
    )


def test_a_node_that_computes_in_another_way_is_told_of_once(caplog):
    told = Arithmetics()
    for built in (Built("a", "tiles"), Built("b", "tiles"), *2 * [Built("c", "bytes")]):
        told.note(built)
    (said,) = caplog.messages
    assert said == (
        "node c computes with bytes, node a with tiles: the same bits are certain with the same "
        "arithmetic alone"
    )


@pytest.mark.parametrize("other", ["other instructions", None])
def test_a_run_that_goes_on_with_other_instructions_is_told_so(tmp_path, runs, monkeypatch, other):
    runs.interrupted(tmp_path / "run", at_step=11)
    environment = json.loads((tmp_path / "run" / "environment.json").read_text())
    began = environment["torch_cpu_capability"]
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: other or began)
    resumed(tmp_path)
    notice = f"this machine computes with {other}, and the run began with {began}: "
    assert (notice in (tmp_path / "resume.log").read_text()) == bool(other)
