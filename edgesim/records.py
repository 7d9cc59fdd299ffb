"""What a run writes: one table of columns, used by files, progress display and reports.

Each column has one meaning and one unit, given here; a column is in a file only if it was counted
or measured in that run.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, slots=True)
class Column:
    """One column: its name, its Arrow type, what it says."""

    name: str
    type: str
    meaning: str


ROUNDS: tuple[Column, ...] = (
    Column("device", "int32", "device, from 0"),
    Column("round", "int64", "round of this device, from 0"),
    Column("epoch", "int32", "round divided by the fleet's rounds per epoch, from 0"),
    Column("loss", "float64", "mean cross-entropy of the round's batch at z = x/u, nats"),
    Column("learning_rate", "float64", "gamma of the round"),
    Column("push_weight", "float64", "u after the round's messages are absorbed"),
    Column("sent_bytes", "int64", "length of all messages encoded in the round"),
    Column("sent_value_bytes", "int64", "of these, values"),
    Column("sent_index_bytes", "int64", "of these, positions of the values"),
    Column("sent_overhead_bytes", "int64", "of these, scales and headers"),
    Column("received_bytes", "int64", "length of all messages absorbed in the round"),
    Column("messages_sent", "int32", "messages encoded in the round"),
    Column("compute_wall_s", "float64", "seconds of this machine from begin to end of computing"),
    Column("compute_cpu_s", "float64", "of these, seconds in which a core worked on it"),
    Column("wait_wall_s", "float64", "seconds of this machine spent waiting in the round"),
)

EVALUATIONS: tuple[Column, ...] = (
    Column("round", "int64", "rounds completed when the models were taken"),
    Column("epoch", "float64", "the same in epochs"),
    Column("model", "string", "'consensus': sum(x)/sum(u); 'device': z = x/u of one device"),
    Column("device", "int32", "device, or -1 for the consensus model"),
    Column("accuracy", "float64", "fraction of test samples classified correctly"),
    Column("loss", "float64", "mean cross-entropy on the test samples, nats"),
    Column(
        "consensus_distance",
        "float64",
        "consensus: sqrt(mean over devices of |z_i - z_bar|^2); device: |z_i - z_bar|",
    ),
)

DEVICES: tuple[Column, ...] = (
    Column("device", "int32", "device, from 0"),
    Column("samples", "int64", "training samples in its shard"),
    Column("label_counts", "list<int64>", "training samples of each class"),
    Column("parameters", "int64", "trainable parameters, D"),
    Column("shard_bytes", "int64", "bytes of its images and labels"),
)

WALL_COLUMNS = ("compute_wall_s", "compute_cpu_s", "wait_wall_s")
"""Columns that depend on the machine; all others depend on the scenario alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundRecord:
    """One row of rounds.parquet; fields as in `ROUNDS`."""

    device: int
    round: int
    epoch: int
    loss: float
    learning_rate: float
    push_weight: float
    sent_bytes: int
    sent_value_bytes: int
    sent_index_bytes: int
    sent_overhead_bytes: int
    received_bytes: int
    messages_sent: int
    compute_wall_s: float
    compute_cpu_s: float
    wait_wall_s: float = 0.0


def arrow_schema(columns: tuple[Column, ...]) -> pa.Schema:
    """Arrow schema of a table, each field with its meaning as metadata."""
    import pyarrow as pa

    types = {"list<int64>": pa.list_(pa.int64()), "string": pa.string()}
    return pa.schema(
        [
            pa.field(
                c.name,
                types.get(c.type) or pa.type_for_alias(c.type),
                metadata={"meaning": c.meaning},
            )
            for c in columns
        ]
    )
