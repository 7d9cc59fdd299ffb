"""What an import must not load: actors start fast, and graphs can be studied without torch."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

# In an order in which no module loads what a later one must not, so that one process shows all.
FORBIDDEN = {
    "topologies": ("edgesim", "torch", "ray"),
    "edgesim": ("torch", "ray", "pandas", "pydantic", "yaml"),
    "edgesim.scenario": ("torch", "ray"),
    "edgesim.data.sources": ("torch", "torchvision", "sklearn", "ray"),
    "edgesim.cli": ("torch",),
    "edgesim.gossip": ("ray",),
    "edgesim.device.device": ("torchvision", "sklearn"),
    "edgesim.fleet.run": ("ray",),
    "edgesim.study.report": ("matplotlib", "ray"),
}
PROGRAM = """
import importlib, json, sys
found = {}
for module, forbidden in json.loads(sys.argv[1]).items():
    importlib.import_module(module)
    found[module] = [name for name in forbidden if name in sys.modules]
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def loaded():
    """The forbidden modules that are there after each import, one after the other."""
    command = [sys.executable, "-c", PROGRAM, json.dumps(FORBIDDEN)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


@pytest.mark.parametrize("module", FORBIDDEN)
def test_import_does_not_load(module, loaded):
    assert loaded[module] == []
