"""examples/outside.py: four processes of its own, and the page that shows it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from textwrap import dedent

import yaml
from runs_of_examples import EXAMPLES
from thorough import thorough_only

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
