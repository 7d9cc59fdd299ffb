"""Figures of one round of one device, for rounds.parquet."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import isnan, nan
from statistics import fmean
from time import perf_counter, thread_time
from typing import Any

from edgesim.compression.wire import ByteCounts
from edgesim.hardware.meter import RoundCosts
from edgesim.hardware.work import Work
from edgesim.results.columns import RoundRecord


@dataclass(frozen=True, slots=True)
class Stopwatch:
    """Seconds of this machine: a duration, or a moment to measure from.

    Attributes:
        wall_s: wall time.
        cpu_s: processor time of this thread.
    """

    wall_s: float = 0.0
    cpu_s: float = 0.0

    @classmethod
    def start(cls) -> Stopwatch:
        """Now."""
        return cls(perf_counter(), thread_time())

    def stop(self) -> Stopwatch:
        """Time since then; on the same thread."""
        return Stopwatch(perf_counter() - self.wall_s, thread_time() - self.cpu_s)

    def __add__(self, other: Stopwatch) -> Stopwatch:
        """Both times."""
        return Stopwatch(self.wall_s + other.wall_s, self.cpu_s + other.cpu_s)


@dataclass(frozen=True, slots=True)
class Staleness:
    """How old messages are when they are absorbed; NaN where there are none.

    Attributes:
        messages: how many were absorbed.
        seconds: mean of the virtual time since the message began to leave.
    """

    messages: int
    seconds: float

    @property
    def columns(self) -> dict[str, Any]:
        """Values by column of rounds.parquet."""
        return {
            "messages_absorbed": self.messages,
            "staleness_s": self.seconds,
        }

    @classmethod
    def of(cls, seconds: Sequence[float]) -> Staleness:
        """Staleness of messages with these ages, in virtual seconds."""
        return cls(len(seconds), fmean(seconds)) if seconds else cls(0, nan)


@dataclass(slots=True)
class RoundFigures:
    """Figures of a round under way.

    Attributes:
        loss: of the batch; NaN if the device took no step.
        learning_rate: of the step.
        work: of the round.
        in_degree: messages that its work was counted for.
        stopwatch: time of the computing.
        received_bytes: of the absorbed messages.
        staleness: of these messages; None in lockstep.
    """

    loss: float
    learning_rate: float
    work: Work
    in_degree: int
    stopwatch: Stopwatch = Stopwatch()
    received_bytes: int = 0
    staleness: Staleness | None = None

    @property
    def has_stepped(self) -> bool:
        """Whether the device took a step."""
        return not isnan(self.loss)

    def record(
        self,
        *,
        device: int,
        round_index: int,
        epoch: int,
        push_weight: float,
        sent: ByteCounts,
        messages_sent: int,
        costs: RoundCosts | None,
    ) -> RoundRecord:
        """Row of rounds.parquet; `costs` is given if the device has a clock."""
        return RoundRecord(
            device=device,
            round=round_index,
            epoch=epoch,
            loss=self.loss,
            learning_rate=self.learning_rate,
            push_weight=push_weight,
            sent_bytes=sent.total,
            sent_value_bytes=sent.values,
            sent_index_bytes=sent.indices,
            sent_overhead_bytes=sent.scales + sent.header,
            received_bytes=self.received_bytes,
            messages_sent=messages_sent,
            **self.work.counts,
            **(costs.columns if costs else {}),
            **(self.staleness.columns if self.staleness else {}),
            compute_wall_s=self.stopwatch.wall_s,
            compute_cpu_s=self.stopwatch.cpu_s,
        )
