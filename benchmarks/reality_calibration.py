"""Profiles of the devices of `reality.py`, measured where they will train.

All devices calibrate at once, each on its core and within its quota: as an engineer would measure
boards, with all that else runs on them. A processor with a quota is no slow processor: its caches
are cold after each pause, and others fill them meanwhile.
"""

from __future__ import annotations

import re
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
            turns = round(rounds * share / min(shares))
            calibrate = (
                f"{sys.executable} -m edgesim calibrate --median --rounds {turns} "
                f"--out {files[device]} --name device-{device}"
            )
            confined = f"echo $$ > {fleet.entrance(device)} && exec taskset -c {fleet.core(device)}"
            command = ["sh", "-c", f"{confined} {calibrate}"]
            fleet.start(device, command, logs[device], OMP_NUM_THREADS="1")
        said = -1
        while len(ended := fleet.ended()) < len(shares):
            if missing := [device for device in ended if not files[device].exists()]:
                raise ConfinementError(_failure(missing[0], logs[missing[0]]))
            if (done := min(percent(log.read_text()) for log in logs)) > said:
                print(f"all devices calibrate, each within its quota: {done} %", flush=True)
                said = done
            time.sleep(0.5)
    if missing := [device for device, file in enumerate(files) if not file.exists()]:
        raise ConfinementError(_failure(missing[0], logs[missing[0]]))
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
