"""The columns of all tables of a run, for files, progress display and reports.

Each column has one meaning and one unit, given here; a column is in a file only if it was counted
or measured in that run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from edgesim.results.arrow_table import column_of, scalar_of

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, slots=True)
class Column:
    """One column: name, Arrow type and meaning."""

    name: str
    type: str
    meaning: str


ROUNDS: tuple[Column, ...] = (
    Column("device", "int32", "device, from 0"),
    Column("round", "int64", "round of this device, from 0"),
    Column("epoch", "int32", "epoch from 0: round divided by the fleet's rounds per epoch"),
    Column("loss", "float64", "mean loss of the round's batch at z = x/u; for classes in nats"),
    Column("learning_rate", "float64", "gamma of the round"),
    Column(
        "push_weight",
        "float64",
        "u after the round's messages are absorbed; of a device that leaves in lockstep, in its "
        "last round, after its last shares are sent, too",
    ),
    Column("sent_bytes", "int64", "length of all messages encoded in the round"),
    Column("sent_value_bytes", "int64", "bytes of values in messages encoded in the round"),
    Column(
        "sent_index_bytes", "int64", "bytes of positions of values in messages encoded in the round"
    ),
    Column(
        "sent_overhead_bytes",
        "int64",
        "bytes of scales and headers in messages encoded in the round",
    ),
    Column("received_bytes", "int64", "length of all messages absorbed in the round"),
    Column("messages_sent", "int32", "messages encoded in the round"),
    Column("macs_int8", "int64", "multiply-accumulates of 8-bit codes in the round"),
    Column("macs_16bit", "int64", "multiply-accumulates with a 16-bit float operand"),
    Column("macs_fp32", "int64", "multiply-accumulates of 32-bit floats"),
    Column("elementwise_ops", "int64", "operations of the round other than multiply-accumulates"),
    Column("traffic_bytes", "int64", "bytes read from and written to memory in the round"),
    Column(
        "compute_wall_s",
        "float64",
        "wall-clock seconds from begin to end of computing in the round",
    ),
    Column("compute_cpu_s", "float64", "seconds in which a core computed for the round"),
    Column("wait_wall_s", "float64", "wall-clock seconds spent waiting in the round"),
)

VIRTUAL_ROUNDS: tuple[Column, ...] = (
    Column("virtual_time_s", "float64", "the device's virtual clock after the round"),
    Column("virtual_compute_s", "float64", "awake virtual seconds of the round's step"),
    Column("virtual_wait_s", "float64", "awake virtual seconds of the round without computing"),
    Column("waited_for", "int32", "sender whose message ended the wait; -1: none"),
    Column("retransmissions", "int64", "packets of the round's messages that were sent again"),
    Column(
        "retransmitted_bytes", "int64", "bytes of packets that were sent again; not in sent_bytes"
    ),
    Column("energy_j", "float64", "energy of the round, joules; the sum of the next four"),
    Column(
        "energy_compute_j", "float64", "energy of operations, or of the board while it computes"
    ),
    Column(
        "energy_memory_j", "float64", "energy of memory traffic; 0 if the board's power includes it"
    ),
    Column("energy_radio_j", "float64", "energy of bytes sent, retransmitted and received"),
    Column("energy_idle_j", "float64", "energy of waiting"),
)
"""Columns of rounds.parquet where devices have profiles."""

FREE_ROUNDS: tuple[Column, ...] = (
    Column("messages_absorbed", "int32", "messages absorbed in the round"),
    Column(
        "staleness_s",
        "float64",
        "mean age of absorbed messages, in virtual seconds since they left",
    ),
)
"""Columns of rounds.parquet at free pace."""

_CHARGE = "energy left in its battery, joules; below 0: overdrawn; NaN without a battery"
BATTERY_ROUNDS: tuple[Column, ...] = (
    Column("charge_left_j", "float64", f"after the round, {_CHARGE}"),
)
"""Columns of rounds.parquet where devices have batteries."""

MESSAGES: tuple[Column, ...] = (
    Column("round", "int64", "round of the sender in which the message was sent"),
    Column("device", "int32", "device that sent the message: the sender, or its successor"),
    Column("sender", "int32", "address at the sending end of the edge"),
    Column("receiver", "int32", "address at the receiving end"),
    Column("kind", "string", "'share' of gossip; 'handover' or 'copy' of a device that leaves"),
    Column("bytes", "int64", "length of the encoded message"),
)

VIRTUAL_MESSAGES: tuple[Column, ...] = (
    Column("retransmissions", "int64", "packets of the message that were sent again"),
    Column("retransmitted_bytes", "int64", "bytes of packets that were sent again"),
    Column("departure_time_s", "float64", "virtual time at which its first bit is sent"),
    Column("sent_time_s", "float64", "virtual time at which its last bit is sent"),
    Column("arrival_time_s", "float64", "virtual time at which its last bit reaches a free radio"),
)
"""Columns of messages.parquet where devices have profiles."""

EVALUATIONS: tuple[Column, ...] = (
    Column(
        "round",
        "int64",
        "rounds completed when the models were taken; consensus at free pace: mean over the "
        "devices present, rounded down, which falls where quick devices leave",
    ),
    Column("epoch", "float64", "epochs completed when the models were taken; as those rounds"),
    Column("model", "string", "'consensus': sum(x)/sum(u); 'device': z = x/u of one device"),
    Column(
        "device",
        "int32",
        "device, or -1 for the consensus model; with more devices than evaluation.device_sample "
        "a sample drawn by the seed",
    ),
    Column(
        "accuracy",
        "float64",
        "fraction of test samples, or validation samples, classified correctly; null if the task "
        "has no accuracy",
    ),
    Column("loss", "float64", "mean loss on the test samples; for classes cross-entropy in nats"),
    Column(
        "consensus_distance",
        "float64",
        "consensus: sqrt(mean over devices of |z_i - z_bar|^2); device: |z_i - z_bar|; of the "
        "parameters that are trained, without gossiped ranges of 8-bit activations",
    ),
    Column(
        "model_norm",
        "float64",
        "consensus: |z_bar|; device: |z_i|; Euclidean, of the parameters that are trained",
    ),
)

OWN_EVALUATIONS: tuple[Column, ...] = (
    Column(
        "own_accuracy",
        "float64",
        "device: accuracy on its own held-out samples; consensus: of the averaged model, mean over "
        "devices; null of a device without such samples, and in a task without accuracy",
    ),
    Column("own_loss", "float64", "the same of the loss"),
)
"""Columns of evaluations.parquet where devices have held-out samples of their own.

A further measure NAME of a task is there as own_NAME too.
"""

OWN_PREFIX, GOSSIPED_PREFIX = "own_", "after_gossip_"
"""What the names of such columns begin with."""

GOSSIPED_EVALUATIONS: tuple[Column, ...] = (
    Column(
        "after_gossip_accuracy",
        "float64",
        "device: accuracy of its model after evaluation.gossip_rounds further rounds of gossip "
        "without training; consensus: mean over the evaluated devices; null where devices' models "
        "are not evaluated",
    ),
    Column("after_gossip_loss", "float64", "the same of the loss"),
    Column(
        "after_gossip_consensus_distance",
        "float64",
        "consensus_distance after these rounds; consensus: of the evaluated devices",
    ),
)
"""Columns of evaluations.parquet with `evaluation.gossip_rounds`.

A further measure NAME of a task is there as after_gossip_NAME too.
"""

VIRTUAL_EVALUATIONS: tuple[Column, ...] = (
    Column(
        "virtual_time_s",
        "float64",
        "clock of the device; for the consensus model, the latest clock",
    ),
)
"""Columns of evaluations.parquet where devices have profiles."""

TOTALS: tuple[Column, ...] = (
    Column(
        "total_sent_bytes",
        "int64",
        "bytes of all messages encoded by then; consensus: by all devices, device: by this one",
    ),
    Column("total_messages_sent", "int64", "messages encoded by then; of the same devices"),
    Column(
        "total_energy_j",
        "float64",
        "energy of the same devices for the rounds before, joules; by virtual time also for the "
        "waits under way. At free pace by rounds or epochs the last evaluation alone has the waits "
        "after last steps",
    ),
)
"""Columns that `edgesim.load_run` adds to evaluations: sums over the rounds before each of them."""

CONSENSUS = -1
"""Number of the averaged model in tables, among those of devices."""

EVALUATION_NAMES = frozenset(c.name for c in (*EVALUATIONS, *VIRTUAL_EVALUATIONS, *TOTALS))
"""Columns of evaluations that are no metrics of a task."""

DEVICES: tuple[Column, ...] = (
    Column("device", "int32", "device, from 0"),
    Column("samples", "int64", "training samples in its shard"),
    Column("label_counts", "list<int64>", "training samples of each class"),
    Column("parameters", "int64", "trainable parameters, D"),
    Column("shard_bytes", "int64", "bytes of its inputs and targets: images and labels"),
    Column(
        "memory_bytes",
        "int64",
        "predicted memory at the peak of a round; the sum of the next columns",
    ),
    *(
        Column(f"memory_{component}_bytes", "int64", f"predicted memory: {meaning}")
        for component, meaning in (
            ("weights", "operands of products, and the model's statistics"),
            ("master_copy", "fp32 values that the optimizer and gossip change"),
            ("gradients", "gradients of the parameters"),
            ("optimizer", "state of the optimizer"),
            ("activations", "the batch, and tensors that later layers and the backward pass read"),
            ("layer_gradients", "gradients at outputs of layers"),
            ("gossip_state", "vectors of the algorithm beside x"),
            ("send_buffers", "a compressed vector and encoded messages"),
            ("receive_buffers", "an encoded message that is being read"),
            ("mailbox", "messages that wait to be absorbed"),
        )
    ),
)

OWN_DEVICES: tuple[Column, ...] = (
    Column("held_out_samples", "int64", "test samples that are its own"),
)
"""Columns of devices.parquet where devices have held-out samples of their own."""

FREE_DEVICES: tuple[Column, ...] = (
    Column(
        "influence",
        "float64",
        "how much its steps moved the sum of x, as a multiple of the mean of all devices: learning "
        "rates, times u where steps move the model; not with dcd or an algorithm of one's own",
    ),
)
"""Columns of devices.parquet at free pace."""

UNLIKE_INFLUENCE = 1.5
"""Largest influence of a device divided by the least, from which on users are told of it."""

VIRTUAL_DEVICES: tuple[Column, ...] = (Column("profile", "string", "name of the device's profile"),)
"""Columns of devices.parquet where devices have profiles."""

BATTERY_DEVICES: tuple[Column, ...] = (
    Column("charge_left_j", "float64", f"after the device's last round, {_CHARGE}"),
)
"""Columns of devices.parquet where devices have batteries."""

LIVE_DEVICES: tuple[Column, ...] = (
    Column("rounds_done", "int64", "rounds that the device has completed"),
    Column("mailbox_messages", "int64", "messages that have arrived and are not absorbed yet"),
    Column("awaited_messages", "int64", "number of devices from which the device awaits messages"),
    Column("actor_restarts", "int64", "number of restarts of its actor"),
    Column("waits_for", "int64", "1 while the device waits for the other one, else 0"),
)
"""Figures of a device that are known only during its run; in no file."""

NAMED = {
    "device": Column("name", "string", "name of the device"),
    "sender": Column("sender_name", "string", "name at the sending end"),
    "receiver": Column("receiver_name", "string", "name at the receiving end"),
    "waited_for": Column(
        "waited_for_name", "string", "name of the sender that the device waited for"
    ),
}
"""Name columns if devices have names, by the number column that each follows."""

WALL_COLUMNS = ("compute_wall_s", "compute_cpu_s", "wait_wall_s")
"""Columns that depend on the machine; all others depend on the scenario alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundRecord:
    """One row of rounds.parquet; fields as in `ROUNDS`, None where devices have no clock."""

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
    macs_int8: int
    macs_16bit: int
    macs_fp32: int
    elementwise_ops: int
    traffic_bytes: int
    compute_wall_s: float
    compute_cpu_s: float
    wait_wall_s: float = 0.0
    virtual_time_s: float | None = None
    virtual_compute_s: float | None = None
    virtual_wait_s: float | None = None
    waited_for: int | None = None
    retransmissions: int | None = None
    retransmitted_bytes: int | None = None
    energy_j: float | None = None
    energy_compute_j: float | None = None
    energy_memory_j: float | None = None
    energy_radio_j: float | None = None
    energy_idle_j: float | None = None
    charge_left_j: float | None = None
    messages_absorbed: int | None = None
    staleness_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageRecord:
    """One row of messages.parquet; fields as in `MESSAGES`, None where devices have no clock."""

    round: int
    device: int
    sender: int
    receiver: int
    kind: str
    bytes: int
    retransmissions: int | None
    retransmitted_bytes: int | None
    departure_time_s: float | None
    sent_time_s: float | None
    arrival_time_s: float | None


@dataclass(frozen=True, slots=True)
class RoundReport:
    """One round: its record, and the messages that the device sent in it."""

    round: RoundRecord
    messages: tuple[MessageRecord, ...]


def row_of(record: RoundRecord | MessageRecord) -> dict[str, Any]:
    """A record as the row of a table, by the names of its columns."""
    return {field.name: getattr(record, field.name) for field in fields(record)}


def columns_that_hold(
    columns: tuple[Column, ...], optional: tuple[Column, ...], first_row: Mapping[str, Any]
) -> tuple[Column, ...]:
    """Columns of a table, with those of the optional ones that its rows have."""
    return columns + tuple(column for column in optional if first_row[column.name] is not None)


def with_names(table: pa.Table, names: Sequence[str]) -> pa.Table:
    """A table with name columns, each after its number; unchanged if there are no names.

    -1, the number of the averaged model and of nobody, has none.
    """
    if not names:
        return table
    import pyarrow as pa
    import pyarrow.compute as pc

    known = column_of(names, pa.string())
    for number, column in NAMED.items():
        place = table.schema.get_field_index(number)
        if place < 0:
            continue
        numbers = table[number]
        null, zero = pa.nulls(1, numbers.type)[0], scalar_of(0, numbers.type)
        named = known.take(pc.if_else(pc.less(numbers, zero), null, numbers))
        (field,) = arrow_schema((column,))
        table = table.add_column(place + 1, field, named)
    return table


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
