"""Two machines as far as one can be two: `ray start` in network namespaces of their own."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from contextlib import suppress
from io import StringIO
from pathlib import Path

import pytest
import yaml
from process_trees import wait_for
from rich.console import Console
from small_fleets import assert_same_bits
from thorough import thorough_only

from edgesim.assembly.preparation import prepare
from edgesim.fleet.run import RunResult, run_scenario
from edgesim.scenario import load_scenario

RAY = str(Path(sys.executable).with_name("ray"))
HEAD_IP, WORKER_IP, PORT = "10.213.7.1", "10.213.7.2", 6379
SCENARIO = {
    "name": "two-machines",
    "fleet": {"devices": 2, "placement": "spread"},
    "topology": {"kind": "directed_ring"},
    "data": {
        "source": "digits",
        "train_samples": 64,
        "batch_size": 16,
        "partition": {"kind": "iid"},
    },
    "model": {"name": "small_cnn"},
    "training": {"rounds": 4, "optimizer": {"lr": 0.05}},
    "gossip": {
        "algorithm": "choco",
        "averaging_rate": 0.2,
        "compressor": {"kind": "top_k", "keep": 0.2},
    },
    "evaluation": {"samples": 20},
}


def ip(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["ip", *words], capture_output=True, text=True, check=False)


@pytest.fixture
def namespaces():
    """Names of two namespaces with one wire between them."""
    if os.geteuid() != 0:
        pytest.skip("network namespaces need root")
    if shutil.which("ip") is None:
        pytest.skip("network namespaces need the command ip")
    tag = f"es{os.getpid() % 100_000}"
    names = f"{tag}-head", f"{tag}-worker"
    made = [ip("netns", "add", name) for name in names]
    try:
        if any(each.returncode for each in made):
            pytest.skip(f"no network namespaces here: {made[0].stderr.strip()}")
        wire = f"{tag}h", f"{tag}w"
        if (linked := ip("link", "add", wire[0], "type", "veth", "peer", wire[1])).returncode:
            pytest.skip(f"no virtual wires here: {linked.stderr.strip()}")
        for end, name, address in zip(wire, names, (HEAD_IP, WORKER_IP), strict=True):
            for words in (
                ["link", "set", end, "netns", name],
                ["-n", name, "address", "add", f"{address}/24", "dev", end],
                ["-n", name, "link", "set", end, "up"],
                ["-n", name, "link", "set", "lo", "up"],
            ):
                assert ip(*words).returncode == 0, words
        yield names
    finally:
        for name in names:
            ip("netns", "delete", name)  # and the wire with it


def environment(token: str) -> dict[str, str]:
    own = {k: v for k, v in os.environ.items() if not k.startswith("RAY_")}
    return {**own, "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": token, "OMP_NUM_THREADS": "1"}


def end(process: subprocess.Popen[bytes]) -> None:
    """End a node with all its processes, which are in a session of their own."""
    process.terminate()
    try:
        process.wait(timeout=15)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    with suppress(ProcessLookupError):  # if all of them have ended
        os.killpg(process.pid, signal.SIGKILL)


@thorough_only
@pytest.mark.ray
def test_a_fleet_on_two_machines_has_the_bits_of_one(tmp_path, namespaces):
    """They see each other's addresses alone, and ask for a token."""
    scenario = tmp_path / "scenario.yaml"
    scenario.write_text(yaml.safe_dump(SCENARIO))
    sockets = tempfile.mkdtemp(prefix="es-ray-", dir="/tmp")  # their paths must be short
    head_options = ["--head", f"--port={PORT}", f"--temp-dir={sockets}"]
    head_options += ["--include-dashboard=false"]
    nodes = []
    try:
        for name, address, options in (
            (namespaces[0], HEAD_IP, head_options),
            (namespaces[1], WORKER_IP, [f"--address={HEAD_IP}:{PORT}"]),
        ):
            start = ["ip", "netns", "exec", name, RAY, "start", "--block", "--num-cpus=1"]
            common = [f"--node-ip-address={address}", "--disable-usage-stats"]
            log = tmp_path / f"{name}.log"
            with log.open("w") as output:
                nodes.append(
                    subprocess.Popen(
                        [*start, *common, *options],
                        env=environment("a" * 64),
                        stdout=output,
                        stderr=output,
                        start_new_session=True,
                    )
                )
            wait_for(lambda: "Ray runtime started" in log.read_text(), nodes[-1])  # noqa: B023
        command = [sys.executable, "-m", "edgesim", "run", str(scenario)]
        command += ["--out", str(tmp_path / "two"), "--address", f"{HEAD_IP}:{PORT}"]
        done = subprocess.run(
            ["ip", "netns", "exec", namespaces[0], *command],
            env=environment("a" * 64),
            capture_output=True,
            text=True,
            timeout=200,
            check=False,
        )
        assert done.returncode == 0, done.stderr
    finally:
        for node in reversed(nodes):
            end(node)
        shutil.rmtree(sockets, ignore_errors=True)
    one = run_scenario(
        prepare(load_scenario(scenario)),
        tmp_path / "one",
        inline=True,
        console=Console(file=StringIO()),
    )
    assert_same_bits(one, RunResult(str(tmp_path / "two"), {}))
