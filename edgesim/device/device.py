"""One edge device: its shard, its gossip state, its meters. No Ray, no asyncio.

A device is driven from outside, always in this order, once a round:

    device.step(model)                     # local step
    envelopes = device.send()                # messages for the active out-edges
    device.absorb(arrivals)                # messages that arrived
    device.pace.leave(next_sequences)      # only if it `must_leave`: its last messages
    device.report()                        # row of rounds.parquet

The pace of the device (device/pace/) decides which messages are sent and absorbed, what the device
waits for, and what it tells other devices beside the messages. An absent device does nothing in a
round; a device that has no mass yet takes no step.

A device keeps only flat vectors; it borrows a model for the duration of a call.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import nan
from typing import Any, Literal, final

import torch
from numpy.typing import NDArray

from edgesim.costs.metered_model import MeteredModel
from edgesim.device.mail import Arrival, Envelope
from edgesim.device.membership import Membership
from edgesim.device.pace import Pace
from edgesim.device.participant import Participant
from edgesim.device.round_figures import RoundFigures, Stopwatch
from edgesim.hardware.work import Work
from edgesim.results.columns import RoundReport
from edgesim.results.snapshot import Snapshot
from edgesim.storage.state_tree import Arrays


@final
class Device:
    """A device with its own data, taking part in gossip over a schedule of graphs.

    Args:
        participant: its vectors, its mass, its messages, its costs.
        pace: of the participant.

    Attributes:
        participant: as given.
        pace: as given.
    """

    def __init__(self, participant: Participant, pace: Pace) -> None:
        self.participant = participant
        self.pace = pace

    @property
    def index(self) -> int:
        """Number of the device, from 0."""
        return self.participant.index

    @property
    def round_index(self) -> int:
        """Rounds that the device has completed."""
        return self.participant.round_index

    @property
    def membership(self) -> Membership:
        """The edges on which the device exchanges messages."""
        return self.participant.membership

    @property
    def now_s(self) -> float:
        """The device's clock, or 0 where it has none."""
        return self.participant.now_s

    @property
    def is_done(self) -> bool:
        """Whether there is no round left to do."""
        return self.pace.is_done

    @property
    def end(self) -> Literal["finished", "left", "died"] | None:
        """How the device ended; None while it trains."""
        if not self.is_done:
            return None
        return self.pace.gone or ("left" if self.participant.has_left else "finished")

    @property
    def spent_j(self) -> float | None:
        """Energy of all rounds that it has completed; None where the device has no profile."""
        meter = self.participant.meter
        return None if meter is None else meter.spent_j

    def step(self, model: MeteredModel) -> None:
        """One local step at z = x/u, if the device is there and has mass.

        Raises:
            DivergedError: the loss, an activation, a gradient or a parameter is not finite.
        """
        start, own = Stopwatch.start(), self.participant
        if any(map(own.is_present, own.membership.addresses)):
            loss, rate, work = nan, 0.0, Work()
            # A successor sends in the name of leavers even in rounds in which it is absent itself.
            if own.gossip_state.u > 0 and own.takes_step:
                rate = own.trainer.learning_rate(own.round_index)
                loss, work = own.trainer.step_(own.gossip_state, model, own.round_index)
            out_degree, in_degree = self.pace.degrees(work)
            work += own.gossip_work(out_degree, in_degree)
            own.figures = RoundFigures(loss, rate, work, in_degree=in_degree)
            self.pace.spend(model)
            own.figures.stopwatch += start.stop()
        else:
            self.pace.stay_away()

    def send(self) -> list[Envelope]:
        """The messages of this round."""
        if self.participant.figures is None:
            return []
        start = Stopwatch.start()
        envelopes = self.pace.send()
        self.participant.figures.stopwatch += start.stop()
        return envelopes

    def absorb(self, arrivals: Sequence[Arrival]) -> None:
        """Mix in the messages of this round."""
        if self.participant.figures is None:
            assert not arrivals, "nobody sends to a device that is absent"
            return
        start = Stopwatch.start()
        self.pace.absorb(arrivals)
        self.participant.figures.stopwatch += start.stop()

    def report(self, wait_wall_s: float = 0.0) -> RoundReport | None:
        """End the round and return its report; None if the device was absent.

        Args:
            wait_wall_s: seconds of this machine for which the round waited.
        """
        report = self.participant.report(wait_wall_s)
        self.pace.end_round()
        return report

    def state(self, arrays: Arrays) -> dict[str, Any]:
        """State of the device between two rounds, for a checkpoint; vectors go into `arrays`."""
        return {**self.participant.state(arrays), **self.pace.state()}

    def restore(self, state: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> None:
        """Restore the state that `state` returned."""
        self.participant.restore(state, arrays)
        self.pace.restore(state)

    def snapshot(self, *, with_gossip: bool = False) -> Snapshot:
        """Copy of the model between two rounds, on request with the state of the algorithm."""
        own = self.participant
        return Snapshot(
            device=own.index,
            round_index=own.round_index,
            rounds_done=own.round_index,
            x=own.gossip_state.x.clone(),
            u=own.gossip_state.u,
            buffers=own.trainer.buffers.clone(),
            virtual_time_s=own.meter.now_s if own.meter else None,
            gossip=own.packed_gossip() if with_gossip else None,
        )

    def snapshot_of_round(self, *, with_gossip: bool = False) -> Snapshot:
        """Copy of the model at the end of a round that is absorbed and not yet reported."""
        done = self.round_index + 1
        kept = self.snapshot(with_gossip=with_gossip)
        return replace(kept, round_index=done, rounds_done=done)

    def final_snapshot(self, number: int, *, with_gossip: bool = False) -> Snapshot:
        """Snapshot for evaluation `number` of a device that has ended before it.

        Zero mass if a successor took over; else the final model of the device.
        """
        kept = self.snapshot(with_gossip=with_gossip)
        if self.participant.has_successor:
            kept = replace(kept, x=torch.zeros_like(kept.x), u=0.0)
        return replace(kept, round_index=number, gone=self.pace.gone)
