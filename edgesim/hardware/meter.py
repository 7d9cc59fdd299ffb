"""What the rounds of one device take: time by its clock, energy by a price list, losses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from edgesim.hardware.energy import Activity, Energy, price
from edgesim.hardware.energy_tables import EnergyTable
from edgesim.hardware.timeline import Stamp, Timeline
from edgesim.hardware.work import Work


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundCosts:
    """Virtual time and energy of one round.

    Attributes:
        end_s: the device's clock after the round.
        compute_s: awake seconds of the step.
        wait_s: awake seconds in which it did not compute.
        lost_packets: packets of its messages that were sent again.
        lost_bytes: bytes of these.
        energy: what all of it drew.
    """

    end_s: float
    compute_s: float
    wait_s: float
    lost_packets: int
    lost_bytes: int
    energy: Energy


@dataclass(slots=True)
class Meter:
    """Clock and energy of one device.

    Each round: `step`, then `send` for each message, then `end_round`.

    Attributes:
        timeline: its clock.
        table: energies of operations; None for the profile's powers.
    """

    timeline: Timeline
    table: EnergyTable | None
    _work: Work = field(default_factory=Work)
    _sent_bytes: int = 0
    _stamps: list[Stamp] = field(default_factory=list)

    @property
    def now_s(self) -> float:
        """The device's clock."""
        return self.timeline.now_s

    def step(self, work: Work, round_index: int) -> None:
        """Do all the computing of a round."""
        self._work, self._sent_bytes, self._stamps = work, 0, []
        self.timeline.step(work, round_index)

    def send(self, receiver: int, num_bytes: int, sequence: int) -> Stamp:
        """Send a message of the round."""
        stamp = self.timeline.send(receiver, num_bytes, sequence)
        self._sent_bytes += num_bytes
        self._stamps.append(stamp)
        return stamp

    def end_round(self, arrived: Sequence[tuple[int, Stamp]], received_bytes: int) -> RoundCosts:
        """Wait for the messages of the round.

        Args:
            arrived: sender and stamp of each.
            received_bytes: of all of them.
        """
        time = self.timeline.end_round(arrived)
        lost_bytes = sum(stamp.lost_bytes for stamp in self._stamps)
        activity = Activity(
            work=self._work,
            sent_bytes=self._sent_bytes + lost_bytes,
            received_bytes=received_bytes,
            compute_s=time.compute_s,
            wait_s=time.wait_s,
        )
        return RoundCosts(
            end_s=time.end_s,
            compute_s=time.compute_s,
            wait_s=time.wait_s,
            lost_packets=sum(stamp.lost_packets for stamp in self._stamps),
            lost_bytes=lost_bytes,
            energy=price(activity, self.timeline.hardware.profile, self.table),
        )
