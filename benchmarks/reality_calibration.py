"""Profiles of the devices of `reality.py`, measured where they will train.

All devices calibrate at once, each on its core and within its quota: as an engineer would measure
boards, with all that else runs on them. A processor with a quota is no slow processor: its caches
are cold after each pause, and others fill them meanwhile.
"""

from __future__ import annotations

import re
import shlex
import sys
import time
from pathlib import Path
from typing import Any

from confinement import ConfinedFleet, ConfinementError
from reality_scenario import Shape, machine_profile, of_share


def calibrate_in_place(shape: Shape, folder: Path, rounds: int) -> list[dict[str, Any]]:
    """Measure each device by `edgesim calibrate --median`; gives profiles of its share of a core.

    Args:
        shape: of the fleet.
        folder: for files.
        rounds: of the device with the smallest share; others take more, so that all end together.

    Raises:
        ConfinementError: a device could not be measured.
    """
    shares = [seat.share for seat in shape.seats]
    files = [folder / f"profile-{device}.yaml" for device in range(len(shares))]
    logs = [folder / f"calibration-{device}.txt" for device in range(len(shares))]
    with ConfinedFleet(shares, [seat.uplink_mbps for seat in shape.seats]) as fleet:
        for device, share in enumerate(shares):
            calibrate = [sys.executable, "-m", "edgesim", "calibrate", "--median"]
            calibrate += ["--rounds", str(round(rounds * share / min(shares)))]
            calibrate += ["--out", str(files[device]), "--name", f"device-{device}"]
            on_core = shlex.join(["exec", "taskset", "-c", str(fleet.core(device)), *calibrate])
            entrance = shlex.quote(str(fleet.entrance(device)))
            command = ["sh", "-c", f"echo $$ > {entrance} && {on_core}"]
            fleet.start(device, command, logs[device], OMP_NUM_THREADS="1")
        said, ended = -1, list[int]()
        while len(ended) < len(shares):
            time.sleep(0.5)
            ended = fleet.ended()
            for device in ended:
                if not files[device].exists():
                    raise ConfinementError(_failure(device, logs[device]))
            if (done := min(percent(log.read_text()) for log in logs)) > said:
                print(f"all devices calibrate, each within its quota: {done} %", flush=True)
                said = done
    return [
        of_share(machine_profile(file), share, f"device-{device}")
        for device, (file, share) in enumerate(zip(files, shares, strict=True))
    ]


def percent(log: str) -> int:
    """How far a calibration is, by what it has said."""
    return max((int(found) for found in re.findall(r"^(\d+) %", log, re.MULTILINE)), default=0)


def _failure(device: int, log: Path) -> str:
    said = log.read_text().strip().splitlines()
    return f"device {device} was not calibrated: {said[-1] if said else 'it said nothing'}"
