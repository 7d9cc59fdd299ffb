"""Fleets whose models read the vectors of devices: the bits of fleets that copy them."""

from io import StringIO

import pytest
from rich.console import Console
from small_fleets import assert_same_bits, killed_at_its_end, train

from edgesim.fleet.run import resume_run
from edgesim.learning import flat_model

FLEETS = {
    "lockstep": (),
    "free pace": ("fleet.pace=free", "fleet.profile=raspberry-pi-4b"),
    "steps on models": ("training.optimizer.step_on=model",),
    "8 bits": ("model.precision=int8", "model.quantization={ranges: gossiped}"),
}


@pytest.mark.parametrize("overrides", FLEETS.values(), ids=FLEETS)
def test_they_have_the_same_bits(overrides, tmp_path, monkeypatch):
    copying = train(tmp_path, "copying", *overrides, inline=True)
    used = []
    point_at = flat_model.FlatModel._point_at
    with monkeypatch.context() as patch:
        patch.setattr(flat_model, "_LONG", 1)
        patch.setattr(
            flat_model.FlatModel,
            "_point_at",
            lambda self, vector: (
                used.append(vector is not self.parameters),
                point_at(self, vector),
            ),
        )
        assert_same_bits(copying, train(tmp_path, "using", *overrides, inline=True))
    assert any(used)


def test_a_killed_one_goes_on_to_the_same_bits(tmp_path, monkeypatch):
    copying = train(tmp_path, "copying", inline=True)
    monkeypatch.setattr(flat_model, "_LONG", 1)
    with killed_at_its_end(monkeypatch):
        train(tmp_path, "using", "recovery.checkpoint_every_rounds=2", inline=True)
    assert_same_bits(copying, resume_run(tmp_path / "using", console=Console(file=StringIO())))
