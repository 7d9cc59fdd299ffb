"""The virtual clock of one device in lockstep: when it computes, sends, waits and goes on.

    step      takes compute_s(work) of its profile, times a seeded factor
    send      messages leave one after the other, as soon as the step is done and the radio is free
    arrive    each when its link has carried it (links.py)
    round     ends when the messages of all in-neighbours have arrived; then the next step begins

Half-duplex radios do one thing at a time: a device first sends what a round has it send, then takes
in that round's messages one by one, in the order in which their first bits could arrive; until
then they wait in the network. What sleeps (duty_cycle.py) neither computes nor sends nor receives.

Wall-clock time has no part in it. A device needs to know only its own past and the stamps of the
messages that it takes in, so nobody keeps a common clock.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import exp, inf
from typing import Any

from edgesim.hardware.awake_times import AwakeTimes
from edgesim.hardware.duty_cycle import ALWAYS_AWAKE, DutyCycle
from edgesim.hardware.links import Link, pass_over
from edgesim.hardware.profiles import DeviceProfile
from edgesim.hardware.work import Work
from edgesim.streams import Purpose, stream


@dataclass(frozen=True, slots=True)
class Stamp:
    """When a message travels, in virtual time; goes beside the message, not in its bytes.

    Attributes:
        start_s: its first bit leaves the sender.
        first_bit_s: its first bit can reach the receiver.
        arrival_s: its last bit reaches a receiver that listens.
        air_s: seconds that a radio is busy with it.
        lost_packets: packets that were sent again.
        lost_bytes: bytes of these.
        handed_s: the sender's clock when it handed the message to its radio; free pace alone.
        promise_s: the first bit of a later message of this edge reaches the receiver no earlier;
            free pace alone (free_clock.py).
    """

    start_s: float
    first_bit_s: float
    arrival_s: float
    air_s: float
    lost_packets: int
    lost_bytes: int
    handed_s: float = 0.0
    promise_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Hardware:
    """What a device is made of, as far as its clock goes.

    Attributes:
        profile: rates and powers.
        links: by receiver.
        is_half_duplex: of its radio, as the scenario has it.
        compute_jitter: standard deviation of the logarithm of the factor on a step's time.
        duty_cycle: when it is awake; with its absences, where they go by time.
        worst_loss: highest loss of its links.
        leaves_s: virtual time at which it leaves for good, by plan; at free pace.
    """

    profile: DeviceProfile
    links: Mapping[int, Link]
    is_half_duplex: bool
    compute_jitter: float = 0.0
    duty_cycle: DutyCycle | AwakeTimes = ALWAYS_AWAKE
    worst_loss: float = 0.0
    leaves_s: float = inf


@dataclass(frozen=True, slots=True)
class RoundTime:
    """Where the virtual time of one round went.

    Attributes:
        end_s: the device's clock after the round.
        compute_s: awake seconds of the step.
        wait_s: awake seconds between the step and the end of the round.
    """

    end_s: float
    compute_s: float
    wait_s: float


@dataclass(slots=True)
class Timeline:
    """The clock of one device.

    Each round: `step`, then `send` for each message, then `end_round`.

    Attributes:
        hardware: of the device.
        seed: of the scenario.
        device: its number.
        now_s: its clock, from 0.
        radio_free_s: when its radio has done what it was given so far.
        last_arrival_s: when the newest message of an edge arrives, by edge.
    """

    hardware: Hardware
    seed: int
    device: int
    now_s: float = 0.0
    radio_free_s: float = 0.0
    last_arrival_s: dict[tuple[int, int], float] = field(default_factory=dict)
    _compute_s: float = 0.0

    def step_s(self, work: Work, round_index: int) -> float:
        """Awake seconds that the step of a round takes; more work never takes less."""
        return self.hardware.profile.compute_s(work) * self._factor(round_index)

    def step(self, work: Work, round_index: int) -> float:
        """Compute for as long as the work takes; messages can leave at the end of it.

        Returns:
            Awake seconds that it took.
        """
        self._compute_s = self.step_s(work, round_index)
        self.now_s = self.hardware.duty_cycle.after(self.now_s, self._compute_s)
        return self._compute_s

    def work_more(self, work: Work) -> float:
        """Compute at the end of a round; returns the seconds that it takes."""
        compute_s = self.hardware.profile.compute_s(work)
        self.now_s = self.hardware.duty_cycle.after(self.now_s, compute_s)
        return compute_s

    def send(self, edge: tuple[int, int], num_bytes: int, sequence: int) -> Stamp:
        """Put a message on the air behind those that are on it already.

        Args:
            edge: sender and receiver; the sender is this device, or one whose place it took.
            num_bytes: of the message.
            sequence: its number on the edge.
        """
        awake, (sender, receiver) = self.hardware.duty_cycle, edge
        link = self.hardware.links[receiver]
        passage = pass_over(
            link,
            num_bytes,
            seed=self.seed,
            sender=sender,
            receiver=receiver,
            sequence=sequence,
        )
        start_s = awake.awakening(max(self.now_s, self.radio_free_s))
        self.radio_free_s = awake.after(start_s, passage.air_s)
        arrival_s = self.radio_free_s + passage.delay_s
        # A message does not overtake an earlier one of the same link, however much it is delayed.
        arrival_s = max(arrival_s, self.last_arrival_s.get(edge, 0.0))
        self.last_arrival_s[edge] = arrival_s
        return Stamp(
            start_s,
            start_s + passage.delay_s,
            arrival_s,
            passage.air_s,
            passage.lost_packets,
            passage.lost_bytes,
        )

    def end_round(self, arrived: Sequence[tuple[int, Stamp]]) -> RoundTime:
        """Wait for the messages of the round.

        Args:
            arrived: sender and stamp of each.
        """
        step_end_s, awake = self.now_s, self.hardware.duty_cycle
        if self.hardware.is_half_duplex:
            done_s = [self.listen(stamp) for _, stamp in sorted(arrived, key=_first_bit)]
        else:
            done_s = [stamp.arrival_s for _, stamp in arrived]
        self.now_s = awake.awakening(max([step_end_s, *done_s]))
        wait_s = awake.awake_between(step_end_s, self.now_s)
        return RoundTime(self.now_s, self._compute_s, wait_s)

    def listens_from_s(self, stamp: Stamp) -> float:
        """When a half-duplex radio that has nothing else to do begins to take in a message."""
        return self.hardware.duty_cycle.awakening(max(stamp.first_bit_s, self.radio_free_s))

    def listen(self, stamp: Stamp) -> float:
        """Take in one message when the half-duplex radio is free; returns when it is here."""
        done_s = self.hardware.duty_cycle.after(self.listens_from_s(stamp), stamp.air_s)
        self.radio_free_s = max(done_s, stamp.arrival_s)
        return self.radio_free_s

    def state(self) -> dict[str, Any]:
        """What the clock knows between two rounds, as values that JSON can hold."""
        return {
            "now_s": self.now_s,
            "radio_free_s": self.radio_free_s,
            "last_arrival_s": [[*edge, at_s] for edge, at_s in sorted(self.last_arrival_s.items())],
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from what `state` gave."""
        self.now_s, self.radio_free_s = state["now_s"], state["radio_free_s"]
        self.last_arrival_s = {
            (sender, receiver): at_s for sender, receiver, at_s in state["last_arrival_s"]
        }

    def _factor(self, round_index: int) -> float:
        """Factor on a step's time, with median 1."""
        jitter = self.hardware.compute_jitter
        if not jitter:
            return 1.0
        rng = stream(self.seed, Purpose.COMPUTE_TIME, self.device, round_index)
        return exp(jitter * rng.standard_normal())


def _first_bit(arrived: tuple[int, Stamp]) -> tuple[float, int]:
    """Order in which a half-duplex radio takes messages in; the sender decides between equals."""
    sender, stamp = arrived
    return stamp.first_bit_s, sender
