"""Devices of a real fleet on one machine: each a process with a share of a core and an uplink.

    share     a quota of the processor's time (cgroup v2 cpu.max, or v1 cpu.cfs_quota_us)
    uplink    a network namespace with one wire to a common switch, shaped by a token bucket (tbf)

Everything has the number of the process in its name. It is removed when the fleet ends, by an error
or a signal too. What a killed process left is removed when the next fleet is made.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Self

SUBNET = "10.213.9"
PAYLOAD_BYTES, FRAME_BYTES = 1448, 1514  # of a full TCP segment, and of its Ethernet frame
PERIOD_US = 10_000  # of a quota, or longer: the kernel takes no quota below a millisecond
_LEAST_QUOTA_US = 1_000
_NAME = "reality"
_DIES_WITH_PARENT = ("setpriv", "--pdeathsig", "KILL")


class ConfinementError(Exception):
    """The machine can't hold such a fleet; the message says what is missing, in one line."""


@dataclass(frozen=True, slots=True)
class CpuGroups:
    """Where groups with quotas are made.

    Attributes:
        root: folder of the file system of groups.
        version: of cgroups, 1 or 2.
    """

    root: Path
    version: int

    def limits(self, share: float) -> dict[str, str]:
        """What is written to which file of a group for a share of a core."""
        quota_us, period_us = quota(share)
        if self.version == 2:
            return {"cpu.max": f"{quota_us} {period_us}"}
        return {"cpu.cfs_period_us": str(period_us), "cpu.cfs_quota_us": str(quota_us)}

    def weight(self) -> dict[str, str]:
        """The largest weight beside the other programs of the machine."""
        return {"cpu.weight": "10000"} if self.version == 2 else {"cpu.shares": "262144"}


def quota(share: float) -> tuple[int, int]:
    """Microseconds that a device may run, and of the period in which it may."""
    period_us = max(PERIOD_US, round(_LEAST_QUOTA_US / share))
    return round(share * period_us), period_us


def cpu_groups(mounts: str) -> CpuGroups | None:
    """Where the kernel's controller of processor time is, by the text of /proc/mounts."""
    for line in mounts.splitlines():
        _, place, kind, options, *_ = line.split()
        if kind == "cgroup" and "cpu" in options.split(","):
            return CpuGroups(Path(place), 1)
    for line in mounts.splitlines():
        _, place, kind, *_ = line.split()
        controllers = Path(place) / "cgroup.controllers"
        if kind == "cgroup2" and controllers.exists() and "cpu" in controllers.read_text().split():
            return CpuGroups(Path(place), 2)
    return None


def shaping(uplink_mbps: float) -> list[str]:
    """Options of tbf for a rate of TCP's payload; a bucket of two frames, and a long queue."""
    rate_bps = uplink_mbps * 1e6 * FRAME_BYTES / PAYLOAD_BYTES
    burst_bytes = max(2 * FRAME_BYTES, round(rate_bps / 8 / 1000))  # the kernel wakes each ms
    return ["rate", f"{round(rate_bps)}bit", "burst", f"{burst_bytes}b", "limit", "16mb"]


def cores_of(shares: Sequence[float], cores: Sequence[int]) -> list[int]:
    """A core for each device, so that the sums of shares are as even as may be."""
    taken = dict.fromkeys(cores, 0.0)
    found = [0] * len(shares)
    for device in sorted(range(len(shares)), key=lambda d: -shares[d]):
        found[device] = min(taken, key=lambda core: taken[core])
        taken[found[device]] += shares[device]
    if max(taken.values()) > 0.95:
        raise ConfinementError(
            f"shares of {max(taken.values()):.2f} on one core of {len(cores)}; must be below 0.95"
        )
    return found


def check() -> CpuGroups:
    """Check what a fleet needs.

    Raises:
        ConfinementError: something is missing.
    """
    if sys.platform != "linux" or os.geteuid() != 0:
        raise ConfinementError("a real fleet needs Linux and root, for namespaces and quotas")
    for command, package in (
        ("ip", "iproute2"),
        ("tc", "iproute2"),
        ("nsenter", "util-linux"),
        ("taskset", "util-linux"),
        ("setpriv", "util-linux"),
    ):
        if shutil.which(command) is None:
            raise ConfinementError(f"the command {command} is missing; install {package}")
    groups = cpu_groups(Path("/proc/mounts").read_text())
    if groups is None:
        raise ConfinementError("no cgroup controller of processor time (cpu) is mounted")
    return groups


class ConfinedFleet:
    """Namespaces, wires, quotas and processes of a fleet; a context manager.

    Args:
        shares: of a core, for each device.
        uplinks_mbps: of payload, for each device.

    Raises:
        ConfinementError: the machine can't hold it.
    """

    def __init__(self, shares: Sequence[float], uplinks_mbps: Sequence[float]) -> None:
        self._groups = check()
        self._cores = cores_of(shares, sorted(os.sched_getaffinity(0)))
        self._shares, self._uplinks = shares, uplinks_mbps
        self._tag = f"{_NAME}-{os.getpid()}"
        self._folder = self._groups.root / self._tag
        self._processes: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Self:
        self.open()
        return self

    def open(self) -> None:
        """Make namespaces, wires and groups; all of them or none.

        Raises:
            ConfinementError: the kernel can't.
        """
        remove_leftovers(self._groups)
        try:
            self._make_network()
            self._make_groups()
        except BaseException:
            self.close()
            raise

    def __exit__(self, *_: object) -> None:
        self.close()

    @staticmethod
    def address(device: int) -> str:
        """Of a device, in the fleet's network."""
        return f"{SUBNET}.{device + 1}"

    @staticmethod
    def interface() -> str:
        """Of a device's wire, in its namespace."""
        return "uplink"

    def core(self, device: int) -> int:
        """On which a device runs."""
        return self._cores[device]

    def entrance(self, device: int) -> Path:
        """File to which a process writes its number to be held to the device's share."""
        return self._folder / f"device-{device}" / "cgroup.procs"

    def start(self, device: int, command: Sequence[str], log: Path, **environment: str) -> None:
        """Start a process in a device's namespace; it ends with the fleet, however that ends."""
        with log.open("w") as output:
            self._processes.append(
                subprocess.Popen(
                    [*_DIES_WITH_PARENT, *self._inside(device), *command],
                    env={**os.environ, **environment},
                    stdout=output,
                    stderr=output,
                    stdin=subprocess.DEVNULL,
                    start_new_session=True,  # Ctrl-C is the fleet's business
                )
            )

    def ended(self) -> list[int]:
        """Devices whose processes have ended."""
        return [d for d, process in enumerate(self._processes) if process.poll() is not None]

    def stop(self) -> None:
        """End the processes."""
        for process in self._processes:
            process.kill()
        for process in self._processes:
            process.wait()
        self._processes.clear()

    def close(self) -> None:
        """Remove everything."""
        self.stop()
        remove(self._groups, self._tag)

    def _namespace(self, device: int) -> str:
        return f"{self._tag}-{device}"

    def _inside(self, device: int) -> list[str]:
        """Begin of a command in a device's namespace; the files are the machine's."""
        return ["nsenter", f"--net=/run/netns/{self._namespace(device)}"]

    def _make_network(self) -> None:
        switch = f"{self._tag}-switch"
        _run("ip", "netns", "add", switch)
        _run("ip", "-n", switch, "link", "add", "bridge", "type", "bridge")
        _run("ip", "-n", switch, "link", "set", "bridge", "up")
        for device, uplink_mbps in enumerate(self._uplinks):
            own, port, wire = self._namespace(device), f"port{device}", self.interface()
            _run("ip", "netns", "add", own)
            ends = ["link", "add", port, "type", "veth", "peer", "name", wire, "netns", own]
            _run("ip", "-n", switch, *ends)
            _run("ip", "-n", switch, "link", "set", port, "master", "bridge", "up")
            _run("ip", "-n", own, "address", "add", f"{self.address(device)}/24", "dev", wire)
            _run("ip", "-n", own, "link", "set", "lo", "up")
            _run("ip", "-n", own, "link", "set", wire, "up")
            shaped = ["qdisc", "add", "dev", wire, "root", "tbf", *shaping(uplink_mbps)]
            _run("tc", "-n", own, *shaped)
            # A full uplink keeps segments for a second or more: they are not lost, so TCP must not
            # send them again. And it must not begin slowly again with every round.
            route = ["route", "change", f"{SUBNET}.0/24", "dev", wire, "rto_min", "20s"]
            _run("ip", "-n", own, *route)
            keys = {"tcp_congestion_control": "reno", "tcp_slow_start_after_idle": "0"}
            for key, value in keys.items():
                _run(*self._inside(device), "sh", "-c", f"echo {value} > {_IPV4}/{key}")

    def _make_groups(self) -> None:
        try:
            self._folder.mkdir()
            for name, value in self._groups.weight().items():
                (self._folder / name).write_text(value)
            if self._groups.version == 2:
                for folder in (self._groups.root, self._folder):
                    (folder / "cgroup.subtree_control").write_text("+cpu")
            for device, share in enumerate(self._shares):
                own = self.entrance(device).parent
                own.mkdir()
                for name, value in self._groups.limits(share).items():
                    (own / name).write_text(value)
        except OSError as error:
            raise ConfinementError(f"no quotas of processor time here: {error}") from error


_IPV4 = "/proc/sys/net/ipv4"


def remove_leftovers(groups: CpuGroups) -> None:
    """Remove what fleets of processes left that are no more."""
    there = _namespaces() + [folder.name for folder in groups.root.glob(f"{_NAME}-*")]
    for tag in {found.group() for name in there if (found := re.match(rf"{_NAME}-\d+", name))}:
        if not Path("/proc", tag.rpartition("-")[2]).exists():
            remove(groups, tag)


def remove(groups: CpuGroups, tag: str) -> None:
    """Remove the namespaces and groups of a fleet; wires go with their namespaces."""
    for name in _namespaces():
        if name.startswith(f"{tag}-"):
            _run("ip", "netns", "delete", name)
    folder = groups.root / tag
    for each in (*folder.glob("device-*"), folder):
        with suppress(FileNotFoundError):
            _remove_group(each)


def _namespaces() -> list[str]:
    """Names of all namespaces, and the words beside them."""
    return _run("ip", "netns", "list").split()


def _remove_group(folder: Path) -> None:
    """Remove a group; a process that was just killed leaves it a moment later."""
    deadline_s = time.monotonic() + 5
    while True:
        try:
            folder.rmdir()
        except FileNotFoundError:
            raise
        except OSError:
            if time.monotonic() > deadline_s:
                raise
            time.sleep(0.05)
        else:
            return


def _run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ConfinementError(f"{' '.join(command)}: {done.stderr.strip()}")
    return done.stdout


@contextmanager
def ends_on_sigterm() -> Iterator[None]:
    """Let SIGTERM end the program as Ctrl-C does, so that everything is removed."""
    import signal

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
