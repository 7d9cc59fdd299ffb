"""Two machines as far as one can be two: `ray start` in network namespaces of their own."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

import pandas as pd
import pytest
import yaml

from edgesim.results.columns import WALL_COLUMNS

RAY = str(Path(sys.executable).with_name("ray"))
EDGESIM = [sys.executable, "-m", "edgesim"]
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


@pytest.mark.ray
def test_a_fleet_on_two_machines_has_the_bits_of_one(tmp_path, namespaces):
    """They see each other's addresses alone, and ask for a token."""
    scenario = tmp_path / "scenario.yaml"
    scenario.write_text(yaml.safe_dump(SCENARIO))
    log = (tmp_path / "log.txt").open("w")
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
            nodes.append(
                subprocess.Popen(
                    [*start, *common, *options],
                    env=environment("a" * 64),
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )
            )
            wait_for_nodes(namespaces[0], len(nodes))
        run = [*EDGESIM, "run", str(scenario), "--out"]
        address = ["--address", f"{HEAD_IP}:{PORT}"]
        subprocess.run(
            ["ip", "netns", "exec", namespaces[0], *run, str(tmp_path / "two"), *address],
            env=environment("a" * 64),
            stdout=log,
            stderr=log,
            timeout=200,
            check=True,
        )
    finally:
        for node in reversed(nodes):
            end(node)
        log.close()
        shutil.rmtree(sockets, ignore_errors=True)
    inline = [*run, str(tmp_path / "one"), "--inline"]
    subprocess.run(inline, capture_output=True, check=True, timeout=200)
    rounds = [pd.read_parquet(tmp_path / name / "rounds.parquet") for name in ("two", "one")]
    quiet = [table.drop(columns=list(WALL_COLUMNS), errors="ignore") for table in rounds]
    pd.testing.assert_frame_equal(*quiet, check_exact=True)


def wait_for_nodes(namespace: str, wanted: int) -> None:
    """Until so many nodes have joined; pytest's own limit ends it otherwise."""
    count = (
        "import ray, sys; "
        f"ray.init(address='{HEAD_IP}:{PORT}', logging_level='ERROR', log_to_driver=False); "
        f"sys.exit(sum(node['Alive'] for node in ray.nodes()) < {wanted})"
    )
    command = ["ip", "netns", "exec", namespace, sys.executable, "-c", count]
    while subprocess.run(
        command, env=environment("a" * 64), capture_output=True, check=False
    ).returncode:
        time.sleep(0.5)
