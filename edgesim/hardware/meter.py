"""Costs of the rounds of one device: time by its clock, energy by a price list, lost packets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import nan
from typing import Any, Generic, Protocol, TypeVar

from edgesim.hardware.energy import Activity, Energy, price
from edgesim.hardware.energy_tables import EnergyTable
from edgesim.hardware.timeline import Hardware, RoundTime, Stamp
from edgesim.hardware.work import Work


class Clock(Protocol):
    """The part of a virtual clock that a meter uses; implemented by `Timeline` and `FreeClock`."""

    @property
    def hardware(self) -> Hardware:
        """Of the device."""
        ...

    @property
    def now_s(self) -> float:
        """The device's clock."""
        ...

    def step(self, work: Work, round_index: int) -> float:
        """Compute for as long as the work takes; returns the awake seconds that it took."""
        ...

    def send(self, edge: tuple[int, int], num_bytes: int, sequence: int) -> Stamp:
        """Send a message by the radio; see `Timeline.send`."""
        ...

    def work_more(self, work: Work) -> float:
        """Compute beyond the end of a round; returns the seconds that it takes."""
        ...

    def state(self) -> dict[str, Any]:
        """State of the clock between two rounds, as values that JSON can hold."""
        ...

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from a state that `state` returned."""
        ...


ClockT = TypeVar("ClockT", bound=Clock)


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundCosts:
    """Virtual time and energy of one round.

    Attributes:
        end_s: the device's clock after the round.
        compute_s: awake seconds of the step.
        wait_s: awake seconds in which the device did not compute.
        waited_for: sender of the message that ended the wait; -1 without one.
        lost_packets: number of packets of the device's messages that were sent again.
        lost_bytes: bytes of the packets that were sent again.
        energy: energy of the round.
        charge_left_j: energy left in the battery, below 0 if overdrawn; NaN without a battery; None
            if no device of the fleet has a battery.
    """

    end_s: float
    compute_s: float
    wait_s: float
    waited_for: int
    lost_packets: int
    lost_bytes: int
    energy: Energy
    charge_left_j: float | None

    @property
    def columns(self) -> dict[str, Any]:
        """The costs by the names of columns of rounds.parquet."""
        return {
            "virtual_time_s": self.end_s,
            "virtual_compute_s": self.compute_s,
            "virtual_wait_s": self.wait_s,
            "waited_for": self.waited_for,
            "retransmissions": self.lost_packets,
            "retransmitted_bytes": self.lost_bytes,
            "energy_j": self.energy.total_j,
            "energy_compute_j": self.energy.compute_j,
            "energy_memory_j": self.energy.memory_j,
            "energy_radio_j": self.energy.radio_j,
            "energy_idle_j": self.energy.idle_j,
            "charge_left_j": self.charge_left_j,
        }


@dataclass(slots=True)
class Meter(Generic[ClockT]):
    """Clock and energy of one device.

    Each round: `step` (or `begin_round`, if the caller advances the clock itself), then `send` for
    each message, then `end_round` with the time that the clock returned, then `send` for each
    message of a handover, if any, then `settle`.

    Attributes:
        timeline: clock of the device.
        table: energies of operations; None for the profile's powers.
        with_charge: whether to record the charge of the battery: some device of the fleet has one.
        spent_j: energy of all settled rounds.
        costliest_j: largest energy of a settled round.
        costliest_silent_j: largest energy of a settled round without a message.
    """

    timeline: ClockT
    table: EnergyTable | None
    with_charge: bool = False
    spent_j: float = 0.0
    costliest_j: float = 0.0
    costliest_silent_j: float = 0.0
    _work: Work = field(default_factory=Work)
    _time: RoundTime | None = None
    _received_bytes: int = 0
    _sent_bytes: int = 0
    _stamps: list[Stamp] = field(default_factory=list)

    @property
    def now_s(self) -> float:
        """The device's clock."""
        return self.timeline.now_s

    def step(self, work: Work, round_index: int) -> None:
        """Begin a round and compute its step."""
        self.begin_round(work)
        self.timeline.step(work, round_index)

    def begin_round(self, work: Work) -> None:
        """Begin to count a round with this work; the caller advances the clock."""
        self._work, self._sent_bytes, self._stamps, self._time = work, 0, [], None

    def send(self, edge: tuple[int, int], num_bytes: int, sequence: int) -> Stamp:
        """Send a message of the round; see `Timeline.send`."""
        stamp = self.timeline.send(edge, num_bytes, sequence)
        self._sent_bytes += num_bytes
        self._stamps.append(stamp)
        return stamp

    def end_round(self, time: RoundTime, received_bytes: int, work: Work | None = None) -> None:
        """Count the end of a round.

        Args:
            time: time of the round, as the clock returned it.
            received_bytes: bytes of the absorbed messages.
            work: work of absorbing them, if `step` did not count it.
        """
        self._time, self._received_bytes = time, received_bytes
        if work is not None:
            self._work += work

    def work_more(self, work: Work) -> None:
        """Compute the work of a handover, after the round's messages."""
        time = self._round_time()
        compute_s = self.timeline.work_more(work)
        self._work += work
        self._time = replace(time, end_s=self.timeline.now_s, compute_s=time.compute_s + compute_s)

    def await_radio(self) -> None:
        """Stay awake until all messages have left; the device does nothing afterwards."""
        time, awake = self._round_time(), self.timeline.hardware.duty_cycle
        end_s = awake.awakening(max([time.end_s, *(stamp.sent_s for stamp in self._stamps)]))
        wait_s = time.wait_s + awake.awake_between(time.end_s, end_s)
        self._time = replace(time, end_s=end_s, wait_s=wait_s)

    def lasts(self, num_rounds: int, silent_rounds: int, last_bytes: int) -> bool:
        """Whether the battery can pay for further rounds like the costliest so far.

        Args:
            num_rounds: number of further rounds with messages.
            silent_rounds: number of further rounds without messages.
            last_bytes: bytes that are sent afterwards.
        """
        profile, round_j = self.timeline.hardware.profile, self._energy().total_j
        if profile.battery_j is None:
            return True
        rounds_j = num_rounds * max(round_j, self.costliest_j)
        silent_j = round_j if self._is_silent else 0.0
        rounds_j += silent_rounds * max(silent_j, self.costliest_silent_j)
        last_j = self.timeline.hardware.sending_j(last_bytes)
        return self.spent_j + round_j + rounds_j + last_j <= profile.battery_j

    @property
    def has_charge(self) -> bool:
        """Whether the battery can pay for one more round like the costliest; after `settle`."""
        battery_j = self.timeline.hardware.profile.battery_j
        return battery_j is None or self.spent_j + self.costliest_j <= battery_j

    def settle(self) -> RoundCosts:
        """Close the round that has ended."""
        time, energy = self._round_time(), self._energy()
        self.spent_j += energy.total_j
        self.costliest_j = max(self.costliest_j, energy.total_j)
        if self._is_silent:
            self.costliest_silent_j = max(self.costliest_silent_j, energy.total_j)
        return RoundCosts(
            end_s=time.end_s,
            compute_s=time.compute_s,
            wait_s=time.wait_s,
            waited_for=time.waited_for,
            lost_packets=sum(stamp.lost_packets for stamp in self._stamps),
            lost_bytes=self._lost_bytes(),
            energy=energy,
            charge_left_j=self._charge_left_j() if self.with_charge else None,
        )

    def state(self) -> dict[str, Any]:
        """State of the meter between two rounds, as values that JSON can hold."""
        return {
            "clock": self.timeline.state(),
            "spent_j": self.spent_j,
            "costliest_j": self.costliest_j,
            "costliest_silent_j": self.costliest_silent_j,
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from a state that `state` returned."""
        self.timeline.restore(state["clock"])
        self.spent_j, self.costliest_j = state["spent_j"], state["costliest_j"]
        self.costliest_silent_j = state["costliest_silent_j"]

    @property
    def _is_silent(self) -> bool:
        return not (self._stamps or self._received_bytes)

    def _energy(self) -> Energy:
        """Energy of the current round so far."""
        time = self._round_time()
        activity = Activity(
            work=self._work,
            sent_bytes=self._sent_bytes + self._lost_bytes(),
            received_bytes=self._received_bytes,
            compute_s=time.compute_s,
            wait_s=time.wait_s,
        )
        return price(activity, self.timeline.hardware.profile, self.table)

    def _charge_left_j(self) -> float:
        battery_j = self.timeline.hardware.profile.battery_j
        return nan if battery_j is None else battery_j - self.spent_j

    def _lost_bytes(self) -> int:
        return sum(stamp.lost_bytes for stamp in self._stamps)

    def _round_time(self) -> RoundTime:
        assert self._time is not None, "follows end_round"
        return self._time
