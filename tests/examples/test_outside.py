"""examples/outside.py: four processes of its own, and the page that shows it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from textwrap import dedent

import torch
import yaml
from runs_of_examples import EXAMPLES
from thorough import thorough_only
from torch import distributed as dist
from torch import nn

import edgesim

PROGRAM = EXAMPLES / "outside.py"
PAGE = EXAMPLES.parent / "docs" / "outside.md"
# Imports what all four would import, before they part.
IMPORTS = "import runpy, torch._dynamo, edgesim.distributed.around"
RUN = f"{IMPORTS}; runpy.run_path({str(PROGRAM)!r}, run_name='__main__')"


@thorough_only
def test_each_process_learns_digits_that_it_has_not(tmp_path):
    environment = os.environ | {"PYTHONUNBUFFERED": "", "OMP_NUM_THREADS": "1"}  # whole lines
    command = [sys.executable, "-c", RUN]
    options = {"capture_output": True, "text": True, "timeout": 200, "env": environment}
    done = subprocess.run(command, cwd=tmp_path, **options)
    assert done.returncode == 0, done.stderr
    lines = sorted(done.stdout.splitlines())
    assert [line.partition(":")[0] for line in lines] == [f"process {rank}" for rank in range(4)]
    for line in lines:
        digits = yaml.safe_load(re.search(r"\[.*\]", line)[0])
        accuracy = float(re.search(r"([\d.]+)%$", line)[1]) / 100
        assert len(digits) <= 4
        assert accuracy > 0.8, "a model of its own digits alone is right in 0.4 of all, or less"
    assert len({line.rpartition(" ")[2] for line in lines}) == 1, "one averaged model"


def test_the_page_shows_parts_of_the_program():
    text, program = PAGE.read_text(), PROGRAM.read_text()
    (first, *_) = re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    assert first in program
    (sections,) = re.findall(r"^```yaml\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    named: dict[str, object] = {}
    exec(re.search(r"^GOSSIP = .*?^}$", program, re.MULTILINE | re.DOTALL)[0], named)
    assert yaml.safe_load(dedent(sections)) == named["GOSSIP"]


def test_what_the_page_saves_is_resumed(tmp_path):
    """By a process alone; the newest checkpoint is one that others may lack."""
    (code,) = re.findall(
        r"^```python\n(def parts.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL
    )
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)

    def begun():
        torch.manual_seed(1)
        model = nn.Linear(3, 2)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        scenario = {"topology": {"kind": "ring"}, "gossip": {"algorithm": "gradient_push"}}
        named = {"model": model, "optimizer": optimizer, "torch": torch, "dist": dist, "os": os}
        named["scheduler"] = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)
        named["gossip"] = edgesim.gossip_around(model, optimizer, scenario)
        exec(code, named)
        return named

    def train(named, steps):
        for _ in range(steps):
            named["optimizer"].zero_grad()
            named["model"](torch.ones(1, 3)).square().sum().backward()
            named["optimizer"].step()
            named["scheduler"].step()

    try:
        first = begun()
        assert first["resume"](tmp_path) == 0
        for _ in range(2):
            train(first, 2)
            first["save"](tmp_path)
        train(first, 1)
        second = begun()
        assert second["resume"](tmp_path) == 4
        train(second, 1)
        assert torch.equal(second["model"].weight, first["model"].weight)
    finally:
        dist.destroy_process_group()
