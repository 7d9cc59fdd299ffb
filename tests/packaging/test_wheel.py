"""The wheel alone, installed outside the repository, has all that its user needs.

Its environment is empty but for a path to the packages that edgesim depends on, so nothing is
downloaded. The repository is not on its path.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
from pathlib import Path
from zipfile import ZipFile

import pytest
from thorough import thorough_only

ROOT = Path(__file__).resolve().parents[2]
SMALL = ("fleet.devices=4", "training.rounds=4", "data.train_samples=80", "evaluation.samples=40")

# Several commands in one process, since each would load torch anew.
COMMANDS = """
import json, sys
import edgesim
from edgesim.cli import main

def call(*words):
    sys.argv = ["edgesim", *words]
    try:
        main()
    except SystemExit as ended:
        if ended.code:
            raise

call("list", "scenarios")
call("new", "mine", "--from", "smoke/choco_trace")
call("validate", "mine.yaml")
call("run", "quickstart", "--inline", "--out", "r", *sys.argv_of_run)
call("report", "r")
run = edgesim.load_run("r")
print(json.dumps({"file": edgesim.__file__, "path": sys.path, "name": run.scenario.name}))
"""


def build(folder):
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = folder.glob("*.whl")
    return wheel


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    return build(tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def environment(wheel, tmp_path_factory):
    """Python of an environment that has the wheel."""
    folder = tmp_path_factory.mktemp("environment")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    python = folder / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet"]
    subprocess.run([*pip, "--no-deps", "--no-index", str(wheel)], check=True)
    (site,) = folder.glob("lib/python*/site-packages")
    # The path alone: what other .pth files there name, such as the repository, is left out.
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return python


def test_the_wheel_has_every_file_of_the_packages_and_every_shipped_scenario(wheel):
    listed = subprocess.run(
        ["git", "ls-files", "edgesim", "topologies", "scenarios"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    )
    wanted = {
        name.replace("scenarios/", "edgesim/shipped_scenarios/", 1)
        if name.startswith("scenarios/")
        else name
        for name in listed.stdout.splitlines()
    }
    assert len(wanted) > 300
    assert wanted <= set(ZipFile(wheel).namelist())


@thorough_only  # of all commands; the next test starts one of them
def test_outside_the_repository_scenarios_are_found_copied_checked_and_trained(
    environment, tmp_path
):
    variables = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    words = [word for override in SMALL for word in ("--set", override)]
    code = COMMANDS.replace("*sys.argv_of_run", f"*{words!r}")
    done = subprocess.run(
        [str(environment), "-c", code],
        cwd=tmp_path,
        env=variables,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "smoke/choco_ring" in done.stdout
    found = json.loads(done.stdout.splitlines()[-1])
    assert Path(found["file"]).is_relative_to(environment.parents[1])
    assert str(ROOT) not in found["path"]
    assert found["name"] == "quickstart"
    assert (tmp_path / "mine.yaml").is_file()
    assert (tmp_path / "r" / "report.html").stat().st_size > 10_000


def test_the_command_is_installed(environment, tmp_path):
    variables = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    command = environment.with_name("edgesim")
    done = subprocess.run(
        [str(command), "list", "scenarios", "quickstart"],
        cwd=tmp_path,
        env=variables,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "shipped_scenarios" in done.stdout
