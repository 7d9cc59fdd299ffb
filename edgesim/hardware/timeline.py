"""The virtual clock of one device in lockstep: times of computing, sending and waiting.

    step      a step takes the profile's compute_s(work), times a seeded factor
    send      messages leave one after the other, once the step is done and the radio is free
    arrive    a message arrives when its link has carried it (links.py)
    round     a round ends when the messages of all in-neighbours have arrived; then the next begins
    trace     a round k that stands for S seconds of a contact trace ends at (k + 1) S, or later

A half-duplex radio either sends or receives. It first sends the messages of a round, then receives
those of that round one by one, in the order in which their first bits could arrive. Until then they
wait in the network. A device that sleeps (duty_cycle.py) neither computes nor sends, and its
half-duplex radio does not receive. A full-duplex port receives any number of messages at once.

The clock of a device that is absent in some rounds stands still. Its next step and messages are
done by the time at which the fleet has come to their round, and the clock goes on from the first
bit of the first message that tells the fleet's time: until then the device was away, and has not
waited. Neighbours that were away too do not know that time. They tell what time they have; then
devices that came back go on together, and wait for each other, until somebody knows better.

On a contact trace the fleet's time is known without messages. A device that comes back in round k
is there from k S on: it then takes its step, sends, and waits. Nothing before is charged.

The clock does not depend on wall-clock time. It depends on the device's own past and on the stamps
of the messages that it receives, so the fleet needs no common clock.
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
from edgesim.streams import StreamPurpose, stream

NOBODY = -1
"""Stands for a sender where a device waited for none."""

OF_FLEET = -1
"""Reckoning of a clock that knows the fleet's time."""


@dataclass(frozen=True, slots=True)
class Stamp:
    """Times of a message on its way, in virtual time; travels beside the message, not in its bytes.

    Attributes:
        start_s: time at which the first bit leaves the sender.
        first_bit_s: time at which the first bit can reach the receiver.
        arrival_s: time at which the last bit reaches a receiver that listens.
        air_s: seconds for which a radio is busy with the message.
        lost_packets: number of packets that were sent again.
        lost_bytes: bytes of the packets that were sent again.
        handed_s: the sender's clock when it handed the message to its radio.
        bound_s: lower bound on the time at which the first bit of a later message of this edge
            reaches the receiver; at free pace only (free_clock.py).
        sent_s: time at which the last bit leaves the sender.
        reckoning: of the sender's clock (`Timeline.reckoning`); in lockstep.
    """

    start_s: float
    first_bit_s: float
    arrival_s: float
    air_s: float
    lost_packets: int
    lost_bytes: int
    handed_s: float = 0.0
    bound_s: float = 0.0
    sent_s: float = 0.0
    reckoning: int = OF_FLEET


@dataclass(frozen=True, slots=True, kw_only=True)
class Hardware:
    """Hardware of a device, as far as its clock depends on it.

    Attributes:
        profile: rates and powers.
        links: link to each receiver.
        is_half_duplex: whether the radio either sends or receives, as the scenario says.
        compute_jitter: standard deviation of the logarithm of the factor on a step's time.
        duty_cycle: times at which the device is awake; at free pace absences are part of it.
        worst_loss: highest packet loss of the links.
        leaves_s: virtual time at which the device leaves for good, by plan; at free pace.
        round_s: seconds of a contact trace that a round stands for; 0 without a trace. In lockstep.
    """

    profile: DeviceProfile
    links: Mapping[int, Link]
    is_half_duplex: bool
    compute_jitter: float = 0.0
    duty_cycle: DutyCycle | AwakeTimes = ALWAYS_AWAKE
    worst_loss: float = 0.0
    leaves_s: float = inf
    round_s: float = 0.0

    def sending_j(self, num_bytes: float) -> float:
        """Energy to send bytes on the worst link, with mean losses: the radio's, and idle power."""
        tried_bytes = num_bytes / (1 - self.worst_loss)
        idle_j = self.profile.idle_power_w * self.sending_s(num_bytes)
        return tried_bytes * self.profile.radio.send_j_per_byte + idle_j

    def sending_s(self, num_bytes: float) -> float:
        """Awake seconds to send bytes on the worst link, with mean losses."""
        slowest_bps = min((link.bandwidth_bps for link in self.links.values()), default=inf)
        return num_bytes / (1 - self.worst_loss) * 8 / slowest_bps


@dataclass(frozen=True, slots=True)
class RoundTime:
    """Virtual time of one round.

    Attributes:
        end_s: the device's clock after the round.
        compute_s: awake seconds of the step.
        wait_s: awake seconds between the step and the end of the round.
        waited_for: sender of the message that ended the wait; `NOBODY` without one.
        is_by_trace: whether the round ended when its seconds of a contact trace were over.
    """

    end_s: float
    compute_s: float
    wait_s: float
    waited_for: int = NOBODY
    is_by_trace: bool = False


@dataclass(slots=True)
class Timeline:
    """The clock of one device.

    Each round: `step`, then `send` for each message, then `end_round`.

    Attributes:
        hardware: hardware of the device.
        seed: seed of the scenario.
        device: number of the device.
        now_s: current time of the clock; it starts at 0.
        radio_free_s: time at which the radio has finished everything that it was given so far.
        last_arrival_s: arrival time of the newest message of each edge.
        reckoning: `OF_FLEET` if the clock has the fleet's time. Else the device was absent, and no
            message has told it that time since; clocks of one number have waited for each other.
        known: numbers that it had since its absence; it takes none of them twice.
    """

    hardware: Hardware
    seed: int
    device: int
    now_s: float = 0.0
    radio_free_s: float = 0.0
    last_arrival_s: dict[tuple[int, int], float] = field(default_factory=dict)
    reckoning: int = OF_FLEET
    known: set[int] = field(default_factory=set)
    _compute_s: float = 0.0
    _round_index: int = 0

    def step_s(self, work: Work, round_index: int) -> float:
        """Awake seconds of the step of a round; more work never takes less time."""
        return self.hardware.profile.compute_s(work) * self._factor(round_index)

    def step(self, work: Work, round_index: int) -> float:
        """Compute a step; its messages can leave when the step ends.

        Returns:
            Awake seconds of the step.
        """
        self._compute_s, self._round_index = self.step_s(work, round_index), round_index
        begin_s = self.begin_s(round_index)
        self.now_s = self.hardware.duty_cycle.after(begin_s, self._compute_s)
        return self._compute_s

    def begin_s(self, round_index: int) -> float:
        """Time at which the step of the next round can begin; on a trace that is later if away."""
        # Products, since sums of many rounds would drift.
        return max(self.now_s, round_index * self.hardware.round_s)

    def work_more(self, work: Work) -> float:
        """Compute further work at the end of a round; returns its seconds."""
        compute_s = self.hardware.profile.compute_s(work)
        self.now_s = self.hardware.duty_cycle.after(self.now_s, compute_s)
        return compute_s

    def send(self, edge: tuple[int, int], num_bytes: int, sequence: int) -> Stamp:
        """Send a message after all messages that the radio was given before.

        Args:
            edge: sender and receiver; the sender is this device, or one whose place it took.
            num_bytes: length of the message.
            sequence: number of the message on its edge.
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
        # A message never overtakes an earlier message of the same link, whatever its own delay is.
        arrival_s = max(arrival_s, self.last_arrival_s.get(edge, 0.0))
        self.last_arrival_s[edge] = arrival_s
        return Stamp(
            start_s,
            start_s + passage.delay_s,
            arrival_s,
            passage.air_s,
            passage.lost_packets,
            passage.lost_bytes,
            handed_s=self.now_s,
            sent_s=self.radio_free_s,
            reckoning=self.reckoning,
        )

    def be_absent(self, number: int) -> None:
        """Let the fleet's time pass; on a contact trace it stays known.

        Args:
            number: of the clock's reckoning from now on; each absence in the fleet has its own.
        """
        if not self.hardware.round_s:
            self.reckoning, self.known = number, {number}

    def end_round(self, arrived: Sequence[tuple[int, Stamp]]) -> RoundTime:
        """Wait for the messages of the round, and for the end of its seconds of a contact trace.

        Args:
            arrived: sender and stamp of each message.
        """
        step_end_s, awake = self.now_s, self.hardware.duty_cycle
        if self.hardware.is_half_duplex:
            done_s = [(self.listen(s), sender) for sender, s in sorted(arrived, key=_first_bit)]
        else:
            done_s = [(stamp.arrival_s, sender) for sender, stamp in arrived]
        # Of messages that end at the same time it is the one of the lowest sender.
        last_s, last = max(done_s, key=lambda d: (d[0], -d[1]), default=(step_end_s, NOBODY))
        told_s = self._learn_time([stamp for _, stamp in arrived])
        end_s = (self._round_index + 1) * self.hardware.round_s
        waits_from_s = max(step_end_s, told_s)
        self.now_s = awake.awakening(max(step_end_s, last_s))
        is_by_trace = end_s > self.now_s
        self.now_s = max(self.now_s, end_s)
        wait_s = awake.awake_between(waits_from_s, self.now_s)
        waited_for = last if last_s > step_end_s and not is_by_trace else NOBODY
        return RoundTime(self.now_s, self._compute_s, wait_s, waited_for, is_by_trace)

    def _learn_time(self, stamps: Sequence[Stamp]) -> float:
        """Take over the time of others who know better; returns until when the device was away.

        The fleet's time is best, then the latest. A number that was taken over before is of clocks
        that have waited for each other ever since, so that they can't be ahead for another reason.
        """
        if self.reckoning == OF_FLEET:
            return 0.0
        told = [stamp for stamp in stamps if stamp.reckoning == OF_FLEET]
        if not told:
            ahead = [stamp for stamp in stamps if stamp.handed_s > self.now_s]
            latest = max(ahead, key=lambda s: (s.handed_s, s.reckoning), default=None)
            if latest is None or latest.reckoning in self.known:
                return 0.0
            told = [stamp for stamp in ahead if stamp.reckoning == latest.reckoning]
        self.reckoning = told[0].reckoning
        self.known = set() if self.reckoning == OF_FLEET else self.known | {self.reckoning}
        return min(stamp.first_bit_s for stamp in told)

    def listens_from_s(self, stamp: Stamp) -> float:
        """Time at which a half-duplex radio with nothing else to do begins to receive a message."""
        return self.hardware.duty_cycle.awakening(max(stamp.first_bit_s, self.radio_free_s))

    def listen(self, stamp: Stamp) -> float:
        """Receive a message once the half-duplex radio is free; returns the time of its end."""
        done_s = self.hardware.duty_cycle.after(self.listens_from_s(stamp), stamp.air_s)
        self.radio_free_s = max(done_s, stamp.arrival_s)
        return self.radio_free_s

    def state(self) -> dict[str, Any]:
        """State of the clock between two rounds, as values that JSON can hold."""
        return {
            "now_s": self.now_s,
            "radio_free_s": self.radio_free_s,
            "last_arrival_s": [[*edge, at_s] for edge, at_s in sorted(self.last_arrival_s.items())],
            "reckoning": self.reckoning,
            "known": sorted(self.known),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from a state that `state` returned."""
        self.now_s, self.radio_free_s = state["now_s"], state["radio_free_s"]
        self.reckoning, self.known = state["reckoning"], set(state["known"])
        self.last_arrival_s = {
            (sender, receiver): at_s for sender, receiver, at_s in state["last_arrival_s"]
        }

    def _factor(self, round_index: int) -> float:
        """Factor on a step's time, with median 1."""
        jitter = self.hardware.compute_jitter
        if not jitter:
            return 1.0
        rng = stream(self.seed, StreamPurpose.COMPUTE_TIME, self.device, round_index)
        return exp(jitter * rng.standard_normal())


def _first_bit(arrived: tuple[int, Stamp]) -> tuple[float, int]:
    """Order in which a half-duplex radio receives messages; of equal times, by sender."""
    sender, stamp = arrived
    return stamp.first_bit_s, sender
