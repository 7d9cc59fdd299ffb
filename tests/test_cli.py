"""The command line as a user meets it: in its own process, by exit status, output and leftovers."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
import yaml

ROOT = Path(__file__).resolve().parent.parent
QUICKSTART = ROOT / "scenarios" / "quickstart.yaml"
SMALL = ("training.epochs=1", "data.train_samples=160", "evaluation.samples=40")


def edgesim(*arguments, cwd, timeout=240):
    return subprocess.run(
        [sys.executable, "-m", "edgesim", *map(str, arguments)],
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )


def sets(*overrides):
    return [word for override in overrides for word in ("--set", override)]


def edited(folder, **changes):
    """The quickstart with top-level keys replaced, as a file in `folder`."""
    document = yaml.safe_load(QUICKSTART.read_text()) | changes
    path = folder / "edited.yaml"
    path.write_text(yaml.safe_dump(document))
    return path


BAD_SETTINGS = {
    "unknown key": ("gossip.gama=1", "gossip.gama"),
    "number as text": ("training.optimizer.lr=1e-3", "training.optimizer.lr"),
    "negative count": ("fleet.devices=-3", "fleet.devices"),
    "skew of 1.4": ("data.partition.skew=1.4", "data.partition.skew"),
    "keep of 0": ("gossip.compressor.keep=0", "gossip.compressor.keep"),
    "prime torus": ("topology={kind: torus}", "7"),
    "missing data": ("data.source=cifar10", "data"),
}


@pytest.mark.parametrize(("setting", "named"), BAD_SETTINGS.values(), ids=BAD_SETTINGS)
@pytest.mark.parametrize("command", ["run", "validate"])
def test_bad_settings_get_one_or_two_lines_and_status_2(tmp_path, command, setting, named):
    extra = ("fleet.devices=7",) if "torus" in setting else ()
    extra += ("data.path=nowhere",) if "cifar10" in setting else ()
    done = edgesim(command, QUICKSTART, *sets(setting, *extra), cwd=tmp_path)
    assert done.returncode == 2, done.stderr
    lines = done.stderr.strip().splitlines()
    assert 1 <= len(lines) <= 2, done.stderr
    assert named in done.stderr
    assert "Traceback" not in done.stderr
    assert list(tmp_path.iterdir()) == [], "a refused run leaves nothing behind"


def test_a_missing_scenario_a_duplicate_key_and_a_broken_parquet_file_are_refused(tmp_path):
    duplicate = tmp_path / "duplicate.yaml"
    duplicate.write_text(QUICKSTART.read_text() + "\nseed: 5\n")
    folder = tmp_path / "data"
    folder.mkdir()
    (folder / "train.parquet").write_bytes(b"PAR1 this is no parquet file")
    (folder / "test.parquet").write_bytes(b"PAR1 this is no parquet file")
    broken = edited(
        tmp_path,
        data={
            "source": "parquet",
            "path": str(folder),
            "partition": {"kind": "iid"},
            "batch_size": 8,
        },
    )
    cases = {
        "absent.yaml": "absent.yaml",
        str(duplicate): "seed",
        str(broken): "parquet",
    }
    before = sorted(tmp_path.rglob("*"))
    for scenario, named in cases.items():
        done = edgesim("run", scenario, cwd=tmp_path)
        assert done.returncode == 2, done.stderr
        assert named in done.stderr
        assert 1 <= len(done.stderr.strip().splitlines()) <= 2, done.stderr
    assert sorted(tmp_path.rglob("*")) == before


def test_validate_starts_and_writes_nothing_and_says_what_it_saw(tmp_path):
    done = edgesim("validate", QUICKSTART, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "0.0761" in done.stdout, "the spectral gap of a directed ring of 8, R§3.8"
    assert list(tmp_path.iterdir()) == []


def test_an_inline_run_prints_its_table_and_loads_back(tmp_path):
    done = edgesim("run", QUICKSTART, "--inline", "--out", "r", *sets(*SMALL), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    for words in ("accuracy of the averaged model", "consensus distance", "bytes sent", "wall"):
        assert words in done.stdout

    import edgesim as package

    run = package.load_run(tmp_path / "r")
    assert run.summary["devices"] == 8
    assert len(run.rounds) == 8 * run.summary["rounds"]


@pytest.mark.parametrize(
    "what", ["topologies", "models", "datasets", "algorithms", "compressors", "scenarios"]
)
def test_list_knows_every_catalog(what):
    done = edgesim("list", what, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) > 5


@pytest.mark.ray
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("inline", [True, False], ids=["inline", "ray"])
def test_an_interrupted_run_leaves_no_process_behind(tmp_path, number, inline):
    command = [sys.executable, "-m", "edgesim", "run", str(QUICKSTART), "--out", "r"]
    command += ["--inline"] if inline else []
    environment = {**os.environ, "EDGESIM_TEST_MARK": str(tmp_path)}
    process = subprocess.Popen(
        [*command, *sets("training.epochs=100000", "evaluation.every_rounds=5")],
        cwd=tmp_path,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        wait_for((tmp_path / "r" / "evaluations.parquet").is_file, process)
        process.send_signal(number)
        output, _ = process.communicate(timeout=60)
        assert process.returncode == 130, output
        assert "Traceback" not in output
        assert "what was recorded is in" in output
        wait_for(lambda: not descendants(str(tmp_path)), None)
        assert (tmp_path / "r" / "rounds.parquet").is_file()
    finally:
        for left in [process, *descendants(str(tmp_path))]:
            left.kill()


def wait_for(condition, process, seconds=90):
    """Wait until a condition holds; the limit only ends a test that hangs."""
    end = time.monotonic() + seconds
    while not condition():
        assert process is None or process.poll() is None, process.communicate()[0]
        assert time.monotonic() < end, "gave up waiting"
        time.sleep(0.2)


def descendants(mark):
    """Processes that inherited the run's environment, wherever they hang in the process tree."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get("EDGESIM_TEST_MARK") == mark:
                found.append(process)
        except (psutil.AccessDenied, psutil.NoSuchProcess):
            continue
    return [p for p in found if p.status() != psutil.STATUS_ZOMBIE]
