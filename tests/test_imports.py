"""What imports and commands must not load: they start fast; graphs can be studied without torch."""

from __future__ import annotations

import json
import os
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


# In such an order, too. Of a scenario of digits, in fp32, on a fixed graph, of devices without
# a profile; what a command does not use of edgesim and of other packages.
ALWAYS_FORBIDDEN = ("ray", "sklearn", "scipy", "pandas", "matplotlib", "altair", "torchvision")
COMMANDS = {
    "--help": ("torch", "numpy", "pydantic_core", "edgesim.scenario", *ALWAYS_FORBIDDEN),
    "list models": ("torch", "numpy", "networkx", "pyarrow", *ALWAYS_FORBIDDEN),
    "list algorithms": ("torch", "numpy", "networkx", "pyarrow", *ALWAYS_FORBIDDEN),
    "validate quickstart": ("numba", "pyarrow", "torch._dynamo", *ALWAYS_FORBIDDEN),
    "run quickstart --inline --set fleet.devices=4 --set training.epochs=1 "
    "--set data.train_samples=80 --set evaluation.samples=10 --out {out}": (
        *("numba", "torch._dynamo", "torch._inductor", "sympy", *ALWAYS_FORBIDDEN),
    ),
}
PROGRAM_OF_COMMANDS = """
import contextlib, io, json, os, sys
from edgesim.cli import main
found = {}
for command, forbidden in json.loads(sys.argv[1]).items():
    sys.argv[1:] = command.format(out=os.environ["OUT"]).split()
    status = None
    with contextlib.redirect_stdout(io.StringIO()):
        try:
            main()
        except SystemExit as end:
            status = end.code
    found[command] = status, [name for name in forbidden if name in sys.modules]
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


@pytest.fixture(scope="module")
def loaded_by_commands(tmp_path_factory):
    """Exit statuses, and the forbidden modules that are there after each command."""
    command = [sys.executable, "-c", PROGRAM_OF_COMMANDS, json.dumps(COMMANDS)]
    environment = {**os.environ, "OUT": str(tmp_path_factory.mktemp("runs") / "run")}
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("command", COMMANDS)
def test_command_does_not_load(command, loaded_by_commands):
    assert loaded_by_commands[command] == [0, []]
