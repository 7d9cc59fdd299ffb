"""Trained runs that several modules read."""

from __future__ import annotations

import warnings

import pytest
from trained_models import MODELS, OWN, OWN_NAMES, SMALL

import edgesim


@pytest.fixture(scope="session")
def run_of(tmp_path_factory):
    """Gives a run of a model, made once."""
    folder, made = tmp_path_factory.mktemp("trained"), {}
    (folder / "own.py").write_text(OWN)

    def get(name):
        if name not in made:
            own = {"name": f"{folder}/own.py:{OWN_NAMES.get(name, 'Net')}"}
            own |= {"precision": "int8"} if name in ("signals", "norms") else {}
            out = folder / name.replace(", ", "-")
            model = MODELS.get(name, own)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", edgesim.ScenarioWarning)
                made[name] = edgesim.run("quickstart", out=out, inline=True, model=model, **SMALL)
        return made[name]

    return get
