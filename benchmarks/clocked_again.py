"""The clocks of a run in lockstep, on other hardware: from its recorded work and messages.

In lockstep hardware changes no learning, so nothing is trained again.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, cast

from edgesim.hardware.meter import Meter
from edgesim.hardware.timeline import Hardware, Stamp, Timeline
from edgesim.hardware.work import Work
from edgesim.results.run import Run


@dataclass(frozen=True, slots=True)
class Spent:
    """What a fleet has spent after a round.

    Attributes:
        virtual_time_s: clock of its last device.
        sent_bytes: by all devices since the start.
        energy_j: of all devices since the start.
    """

    virtual_time_s: float
    sent_bytes: int
    energy_j: float


def spent_by_rounds(run: Run, hardware: Sequence[Hardware], seed: int) -> Iterator[Spent]:
    """What a run in lockstep would have spent on this hardware, after each round.

    Args:
        run: finished, or complete as far as it is asked for.
        hardware: of each device.
        seed: of the scenario.
    """
    meters = [
        Meter(Timeline(part, seed=seed, device=device), None)
        for device, part in enumerate(hardware)
    ]
    rounds = run.rounds.sort_values(["round", "device"]).groupby("round")
    messages = dict(iter(run.messages.groupby("round")))
    sent_bytes, energy_j = 0, 0.0
    for label, of_devices in rounds:
        index = cast("int", label)
        inbox: list[list[tuple[int, Stamp]]] = [[] for _ in meters]
        for meter, row in zip(meters, of_devices.to_dict("records"), strict=True):
            meter.step(_work_of(row), index)
        for message in messages[index].to_dict("records") if index in messages else ():
            sender, receiver = message["sender"], message["receiver"]
            stamp = meters[sender].send((sender, receiver), message["bytes"], index)
            inbox[receiver].append((sender, stamp))
        for device, (meter, received) in enumerate(
            zip(meters, of_devices["received_bytes"], strict=True)
        ):
            meter.end_round(meter.timeline.end_round(inbox[device]), int(received))
            energy_j += meter.settle().energy.total_j
        sent_bytes += int(of_devices["sent_bytes"].sum())
        yield Spent(max(meter.now_s for meter in meters), sent_bytes, energy_j)


def _work_of(row: dict[Hashable, Any]) -> Work:
    """The work of one device in one round."""
    return Work(
        macs_int8=int(row["macs_int8"]),
        macs_16bit=int(row["macs_16bit"]),
        macs_fp32=int(row["macs_fp32"]),
        elementwise_ops=int(row["elementwise_ops"]),
        traffic_bytes=int(row["traffic_bytes"]),
    )
