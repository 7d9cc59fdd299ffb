"""A device's model at the end of a round, as evaluations need it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from torch import Tensor

from edgesim.storage.state_tree import Packed


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A device's model with all that its evaluation and the averaged model need.

    Attributes:
        device: which one.
        round_index: number of its evaluation, which is a number of completed rounds or of intervals
            of virtual time.
        rounds_done: rounds that the device has completed.
        x: numerator, shape (D,); u: push weight; the model is x/u.
        buffers: the model's local statistics, flat.
        virtual_time_s: the device's clock; None where it has none.
        gone: why the device no longer takes part in the fleet; None if it does.
        gossip: state of its gossip algorithm, for evaluations after further rounds of gossip; None
            where there are none.
        sent_bytes: of all messages of the device until then; None if that is not known.
        energy_j: of the device until then; None without a profile, or if it is not known.
    """

    device: int
    round_index: int
    rounds_done: int
    x: Tensor
    u: float
    buffers: Tensor
    virtual_time_s: float | None
    gone: Literal["died", "left"] | None = None
    gossip: Packed | None = None
    sent_bytes: int | None = None
    energy_j: float | None = None
