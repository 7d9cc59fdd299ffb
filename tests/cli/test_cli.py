"""The command line as a user meets it, by exit status, output and leftovers.

Whatever runs has a process of its own; what is refused or only answers is called in this one, but
for one of each, since a process takes seconds to import torch.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import psutil
import pytest
import yaml
from process_trees import MARK, marked, wait_for, with_interrupts
from thorough import thorough_only

from edgesim import load_run
from edgesim.cli import main
from edgesim.errors import EdgesimError

ROOT = Path(__file__).resolve().parents[2]
QUICKSTART = ROOT / "scenarios" / "quickstart.yaml"
ENDLESS = ("training.epochs=20000", "evaluation.every_rounds=5", "fleet.devices=4")
SHORT = ("training.rounds=5",)
USERS = {k: v for k, v in os.environ.items() if k != "OMP_NUM_THREADS"}  # nobody has set it
SMALL = ("training.rounds=5", "data.train_samples=160", "evaluation.samples=40")


def edgesim(*arguments, cwd, env=None):
    return subprocess.run(
        [sys.executable, "-m", "edgesim", *map(str, arguments)],
        cwd=cwd,
        env=env,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )


@pytest.fixture
def called(monkeypatch, capsys):
    """The same in this process."""

    def call(*arguments, cwd):
        monkeypatch.chdir(cwd)
        monkeypatch.setattr(sys, "argv", ["edgesim", *map(str, arguments)])
        monkeypatch.setattr(os, "environ", os.environ.copy())
        handler = signal.getsignal(signal.SIGTERM)
        try:
            with pytest.raises(SystemExit) as ended:
                main()
        finally:
            signal.signal(signal.SIGTERM, handler)
        output = capsys.readouterr()
        return SimpleNamespace(returncode=ended.value.code, stdout=output.out, stderr=output.err)

    return call


def sets(*overrides):
    return [word for override in overrides for word in ("--set", override)]


def edited(folder, **changes):
    """The quickstart with top-level keys replaced, as a file in `folder`."""
    document = yaml.safe_load(QUICKSTART.read_text()) | changes
    path = folder / "edited.yaml"
    path.write_text(yaml.safe_dump(document))
    return path


# What is set, and what the answer has to name: the key and the remedy.
BAD_SETTINGS = {
    "unknown key": (["gossip.gama=1"], ["gossip.gama", "averaging_rate"]),
    "number as text": (["training.optimizer.lr=1e-3"], ["training.optimizer.lr", "1.0e-3"]),
    "negative count": (["fleet.devices=-3"], ["fleet.devices", "from 1 to 10000"]),
    "skew of 1.4": (["data.partition.skew=1.4"], ["data.partition.skew", "1.4", "1"]),
    "keep of 0": (["gossip.compressor.keep=0"], ["gossip.compressor.keep", "in (0, 1]"]),
    "prime torus": (
        ["topology={kind: torus}", "fleet.devices=7"],
        ["topology", "torus of 7", "6, 8 or 9"],
    ),
    "missing data": (["data.source=cifar10", "data.path=nowhere"], ["data.path", "nowhere"]),
    "too few samples": (["fleet.devices=3000"], ["devices", "3000"]),
    "small images": (["model.name=vgg11"], ["vgg11", "data.image_size"]),
    "endless absences by chance": (
        [
            "fleet={pace: free, devices: 8, profile: raspberry-pi-4b}",
            "fleet.duty_cycle={period_s: 6000, awake_s: 0.001}",
            "fleet.churn.random={absence_probability: 0.5, mean_absence_s: 0.001}",
            "training.virtual_time_s=100000",
        ],
        ["fleet.churn.random", "mean_absence_s is 0.001", "raise it"],
    ),
    "branches that never learn": (
        ["model={name: resnet20, norm: batch, initialization: low_precision}"],
        ["model.initialization is low_precision", "the ReLU of norm batch", "full_precision"],
    ),
    "batteries of no round": (
        [
            "fleet.devices=[{profile: raspberry-pi-4b, count: 8, battery_wh: 1.0e-6}]",
            "data.batch_size=256",
        ],
        ["battery", "first round", "battery_wh"],
    ),
}


@pytest.mark.parametrize(("settings", "named"), BAD_SETTINGS.values(), ids=BAD_SETTINGS)
def test_bad_settings_name_file_key_and_remedy_in_one_or_two_lines(
    tmp_path, called, settings, named
):
    done = called("run", QUICKSTART, *sets(*settings), cwd=tmp_path)
    assert done.returncode == 2, done.stderr
    lines = done.stderr.strip().splitlines()
    assert 1 <= len(lines) <= 2, done.stderr
    assert "quickstart.yaml" in done.stderr or "--set" in done.stderr
    for words in named:
        assert words in done.stderr
    assert "Traceback" not in done.stderr
    assert list(tmp_path.iterdir()) == [], "a refused run leaves nothing behind"


def test_a_missing_scenario_a_duplicate_key_and_a_broken_parquet_file_are_refused(tmp_path, called):
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
        done = called("run", scenario, cwd=tmp_path)
        assert done.returncode == 2, done.stderr
        assert named in done.stderr
        assert 1 <= len(done.stderr.strip().splitlines()) <= 2, done.stderr
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("settings", [["fleet.devices=-3"], ["data.source=cifar10"]])
def test_validate_refuses_what_run_refuses(tmp_path, called, settings):
    done = called("validate", QUICKSTART, *sets(*settings), cwd=tmp_path)
    assert done.returncode == 2, done.stderr
    assert 1 <= len(done.stderr.strip().splitlines()) <= 2


@pytest.mark.parametrize("words", [("run", QUICKSTART), ("sweep", "sweeps/digits_comparison")])
def test_a_place_that_ends_with_the_command_is_refused(tmp_path, called, words):
    done = called(*words, "--out", "memory://run", cwd=tmp_path)
    assert done.returncode == 2
    assert "memory://run is gone when this command ends; give a folder" in done.stderr


def test_an_address_without_a_cluster_is_refused_before_anything_is_written(tmp_path, called):
    done = called("run", QUICKSTART, "--address", "127.0.0.1:1", "--out", "r", cwd=tmp_path)
    assert done.returncode == 2, done.stderr
    assert "--address 127.0.0.1:1: no Ray cluster there" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_validate_starts_and_writes_nothing_and_says_what_it_saw(tmp_path, called):
    done = called("validate", QUICKSTART, cwd=tmp_path)
    assert not done.returncode, done.stderr
    assert "0.0761" in done.stdout, "the spectral gap of a directed ring of 8"
    assert list(tmp_path.iterdir()) == []


EIGHT_BITS = ("model.precision=int8", "model.norm=evonorm_s0")


@pytest.mark.parametrize(
    "words",
    [
        ["validate"],
        ["run", "--inline", "--out", "r", *sets(*SMALL, "model.quantization.backend=reference")],
    ],
    ids=["validate", "run"],
)
def test_what_8_bits_leave_out_and_take_along_is_said_before_a_run(called, tmp_path, words):
    command, *options = words
    done = called(command, QUICKSTART, *options, *sets(*EIGHT_BITS), cwd=tmp_path)
    assert not done.returncode, done.stderr
    assert "model.norm: evonorm_s0 computes in fp32" in done.stderr
    assert "messages carry 8-bit values" in done.stderr


@pytest.mark.parametrize("command", ["validate", "cost"])
def test_the_averaging_rate_that_was_found_is_shown(called, tmp_path, command):
    done = called(command, QUICKSTART, *sets("gossip.averaging_rate=auto"), cwd=tmp_path)
    assert not done.returncode, done.stderr
    both = done.stdout + done.stderr
    (rate,) = re.findall(r"gossip.averaging_rate: auto found (\S+) by gossip", both)
    assert re.search(rf"averaging rate +{rate}\b", both)


@pytest.fixture(scope="module")
def inline_run(tmp_path_factory):
    """The quickstart, cut short, as users run it: what it said, and its directory."""
    folder = tmp_path_factory.mktemp("inline")
    done = edgesim(
        "run", QUICKSTART, "--inline", "--out", "r", *sets(*SHORT), cwd=folder, env=USERS
    )
    assert done.returncode == 0, done.stderr
    return done.stdout, folder / "r"


def test_an_inline_run_prints_its_table_and_loads_back(inline_run):
    said, place = inline_run
    for words in ("accuracy of the averaged model", "consensus distance", "bytes sent", "wall"):
        assert words in said
    run = load_run(place)
    assert run.summary["devices"] == 8
    assert len(run.rounds) == 8 * run.summary["rounds"]


@pytest.mark.parametrize(
    "what", ["topologies", "models", "datasets", "algorithms", "compressors", "scenarios"]
)
def test_list_knows_every_catalog(called, what):
    done = called("list", what, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    header, *entries = done.stdout.splitlines()
    assert header.split()[0] == "name"
    assert len(entries) >= 4


def test_a_catalog_that_is_mistyped_is_guessed(called):
    done = called("list", "compresors", cwd=ROOT)
    assert done.returncode == 2
    assert "'compresors' is not known; did you mean compressors?" in done.stderr
    for name in ("nothing", "s"):
        done = called("list", name, cwd=ROOT)
        assert f"'{name}' is not one of 'keys', 'topologies'" in done.stderr


def test_a_board_says_whether_its_radio_is_half_duplex(called):
    halves = {"raspberry-pi-4b": "half-duplex: it sends or receives", "jetson-nano": "full-duplex"}
    for name, words in halves.items():
        assert words in called("list", "devices", name, cwd=ROOT).stdout.splitlines()[-1]


def test_an_interrupted_run_leaves_no_process(tmp_path):
    """A terminal's Ctrl-C reaches every process of the group; one with actors: test_own_ray.py."""
    command = [sys.executable, "-m", "edgesim", "run", QUICKSTART, "--out", "r", "--inline"]
    process = subprocess.Popen(
        with_interrupts(signal.SIG_DFL, *command, *sets(*ENDLESS)),
        cwd=tmp_path,
        env={**os.environ, MARK: str(tmp_path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        wait_for((tmp_path / "r" / "evaluations.parquet").is_file, process)
        os.killpg(process.pid, signal.SIGINT)
        output, _ = process.communicate(timeout=60)
        assert process.returncode == 130, output
        assert "Traceback" not in output
        assert "go on with: edgesim resume" in output
        assert output.endswith("\ninterrupted\n")
        wait_for(lambda: not marked(str(tmp_path)), None)
        assert (tmp_path / "r" / "rounds.parquet").is_file()
    finally:
        for left in [process, *marked(str(tmp_path))]:
            left.kill()


def test_a_run_in_the_background_ignores_interrupts_and_ends_by_sigterm(tmp_path):
    """Shells start background jobs so, and Ctrl-C is for what is in the foreground."""
    command = [sys.executable, "-m", "edgesim", "run", QUICKSTART, "--out", "r", "--inline"]
    process = subprocess.Popen(
        with_interrupts(signal.SIG_IGN, *command, *sets(*ENDLESS)),
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    evaluations = tmp_path / "r" / "evaluations.parquet"
    try:
        wait_for(evaluations.is_file, process)
        process.send_signal(signal.SIGINT)
        before = evaluations.stat().st_mtime_ns
        wait_for(lambda: evaluations.stat().st_mtime_ns > before, process)
        process.send_signal(signal.SIGTERM)
        output, _ = process.communicate(timeout=60)
        assert process.returncode == 130, output
        assert "go on with: edgesim resume" in output
        assert (tmp_path / "r" / "rounds.parquet").is_file()
    finally:
        process.kill()
        process.communicate()


@thorough_only
@pytest.mark.ray
def test_a_terminated_run_leaves_no_actor_on_a_shared_cluster(tmp_path, no_ray):
    """Ray has a handler of its own for SIGTERM, which would end the driver on the spot."""
    import ray
    from ray.cluster_utils import Cluster

    head = {"num_cpus": 2, "include_dashboard": False}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    command = ["-m", "edgesim", "run", QUICKSTART, "--out", "r", "--address", cluster.address]
    process = subprocess.Popen(
        [sys.executable, *command, *sets(*ENDLESS, "fleet.devices_per_actor=4")],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        wait_for((tmp_path / "r" / "evaluations.parquet").is_file, process)
        process.terminate()
        output, _ = process.communicate(timeout=60)
        assert process.returncode == 130, output
        assert "go on with: edgesim resume" in output
        ray.init(cluster.address, namespace="edgesim", logging_level="ERROR")
        assert ray.util.list_named_actors(all_namespaces=True) == []
    finally:
        process.kill()
        ray.shutdown()
        cluster.shutdown()


@pytest.mark.parametrize("kind", [EdgesimError, RuntimeError])
def test_an_error_takes_two_lines_whatever_it_says(monkeypatch, capsys, kind):
    def fail(*args, **options):
        raise kind("one\n\ntwo\nthree\nfour")

    monkeypatch.setattr("edgesim.cli.app", fail)
    with pytest.raises(SystemExit):
        main()
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 2
    assert "one" in said[0]
    assert "two three four" in " ".join(said)


def test_an_unforeseen_error_of_another_process_is_told_by_its_cause(monkeypatch, capsys):
    """Ray puts the traceback of its process into the text, twice."""

    class OfRayError(RuntimeError):
        cause = TypeError(f"no such type\nargument 0\n{900 * 'x'}")

        def __str__(self):
            return 2 * "Traceback (most recent call last):\n  File 'a.py', line 2\nTypeError: no"

    for error, said in (
        (
            OfRayError(),
            f"internal error: TypeError: no such type argument 0 {900 * 'x'}"[:516] + "...",
        ),
        (RuntimeError(str(OfRayError())), "internal error: RuntimeError: TypeError: no"),
    ):
        monkeypatch.setattr("edgesim.cli.app", Mock(side_effect=error))
        with pytest.raises(SystemExit):
            main()
        assert capsys.readouterr().err.splitlines()[0] == said


def test_escape_sequences_of_a_path_do_not_reach_the_terminal(called, tmp_path):
    data = sets("data.source=cifar10", r'data.path="a\e[31mb"')
    found = called("validate", "quickstart", *data, cwd=tmp_path)
    assert found.returncode == 2
    assert "\x1b" not in found.stderr
    assert r"a\x1b[31mb" in found.stderr


def test_a_scenario_refused_after_its_workers_were_prepared_leaves_nothing(called, monkeypatch):
    """D2 needs a symmetric graph, which the checks see, beside the start of the fork server."""
    before = {child.pid for child in psutil.Process().children()}
    with tempfile.TemporaryDirectory(prefix="e") as folder:  # short: sockets have long paths
        monkeypatch.setenv("RAY_TMPDIR", folder)
        gossip = "gossip={algorithm: d2, averaging_rate: 0.9}"
        refused = called("run", "quickstart", "--set", gossip, cwd=folder)
        assert refused.returncode == 2
        assert "gossip.algorithm: d2" in refused.stderr
        assert list(Path(folder).iterdir()) == []
    assert {child.pid for child in psutil.Process().children()} <= before


def test_debug_shows_where_and_keeps_lines_and_status(called, tmp_path):
    plain = called("report", "mistyped", cwd=tmp_path)
    shown = called("--debug", "report", "mistyped", cwd=tmp_path)
    assert plain.stderr == f"{tmp_path / 'mistyped'}: there is nothing; name the folder of a run\n"
    assert shown.stderr.startswith("Traceback (most recent call last):")
    assert shown.stderr.endswith(plain.stderr)
    assert plain.returncode == shown.returncode == 2
