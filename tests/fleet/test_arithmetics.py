"""Who computes with other instructions is told: last bits go by them."""

from __future__ import annotations

import json

import pytest
import torch
from interrupted_runs import resumed

from edgesim.assembly.build import Compute
from edgesim.code_version import CodeVersion, code_version
from edgesim.fleet.on_ray.arithmetics import Arithmetics, Built
from edgesim.fleet.recording.resumes import notices_of_resume
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
        "node c computes with bytes, node a with tiles: last bits may differ from other runs; use "
        "nodes of one kind to repeat them"
    )


@pytest.mark.parametrize("other", ["other instructions", None])
def test_a_run_that_goes_on_with_other_instructions_is_told_so(tmp_path, runs, monkeypatch, other):
    runs.interrupted(tmp_path / "run", at_step=11)
    environment = json.loads((tmp_path / "run" / "environment.json").read_text())
    began = environment["torch_cpu_capability"]
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: other or began)
    resumed(tmp_path)
    notice = f"the run goes on with {other}, and began with {began}: "
    assert (notice in (tmp_path / "resume.log").read_text()) == bool(other)


def test_a_run_that_goes_on_with_other_code_is_told_so_and_says_so_when_it_is_finished(
    tmp_path, runs, monkeypatch
):
    runs.interrupted(tmp_path / "run", at_step=11)
    was, now = code_version(), CodeVersion("0.2.0", "f" * 32, "abc")
    monkeypatch.setattr("edgesim.fleet.environment.code_version", lambda: now)
    run = resumed(tmp_path)
    said = (
        f"the run goes on with edgesim {was.version} (commit abc, code ffffffff), and began with "
    )
    assert f"{said}{was}: bits may differ" in (tmp_path / "resume.log").read_text()
    warning = (
        f"the run went on with edgesim {was.version} (commit abc, code ffffffff), and began with "
    )
    assert sum(said.startswith(warning) for said in run.summary["warnings"]) == 1


ON_CPU = {
    "accelerator": "cpu",
    "gpu": None,
    "eight_bit_backend": None,
    "torch_cpu_capability": "AVX2",
    "packages": {"torch": "2.13.0", "pandas": "3.0"},
}
ON_GPU = ON_CPU | {"accelerator": "cuda", "gpu": "H100"}
OTHERS = {
    "an idle GPU": (ON_CPU | {"gpu": "A100"}, ON_CPU, None),
    "another idle GPU": (ON_CPU | {"gpu": "A100"}, ON_CPU | {"gpu": "H100"}, None),
    "processor": (ON_CPU, ON_CPU | {"torch_cpu_capability": "AVX512"}, "AVX512"),
    "processor beside a GPU": (ON_GPU, ON_GPU | {"torch_cpu_capability": "AVX512"}, None),
    "GPU": (ON_GPU | {"gpu": "A100"}, ON_GPU, "H100"),
    "GPUs of nodes alone": (ON_GPU, ON_GPU | {"gpu": None}, None),
    "kernels": (
        ON_CPU | {"eight_bit_backend": "int8_cpu (bytes)"},
        ON_CPU | {"eight_bit_backend": "int8_cpu (tiles)"},
        "int8_cpu (tiles)",
    ),
    "torch": (ON_CPU, ON_CPU | {"packages": {"torch": "2.14.0", "pandas": "3.1"}}, "torch 2.14.0"),
    "code not on record": (
        ON_CPU,
        ON_CPU | {"code": {"digest": "12345678", "commit": None}},
        "edgesim of an unknown version (code 12345678)",
    ),
}


@pytest.mark.parametrize("what", OTHERS)
def test_only_what_computes_is_compared(what):
    began, now, told = OTHERS[what]
    said = notices_of_resume(began, now)
    assert len(said) == (told is not None)
    assert told is None or said[0].startswith(f"the run goes on with {told}, and began with ")
