"""What an import must not load: actors start fast, and graphs can be studied without torch."""

from __future__ import annotations

import subprocess
import sys

import pytest


@pytest.mark.parametrize(
    ("module", "forbidden"),
    [
        ("topologies", "torch"),
        ("topologies", "edgesim"),
        ("edgesim", "torch"),
        ("edgesim.scenario", "torch"),
        ("edgesim.gossip", "ray"),
        ("edgesim.device.device", "torchvision"),
        ("edgesim.device.device", "sklearn"),
        ("edgesim.fleet.run", "ray"),
        ("edgesim.cli", "torch"),
        ("edgesim.study.report", "matplotlib"),
        ("edgesim.study.report", "ray"),
    ],
)
def test_import_does_not_load(module, forbidden):
    code = f"import sys, {module}; sys.exit('{forbidden}' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
