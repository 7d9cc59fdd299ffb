"""Warns where devices at free pace seldom send: a fleet that hardly gossips trains apart."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from edgesim.results.arrow_table import numbers_of
from topologies import Schedule

LEAST_SHARE = 0.5  # of the rounds with an exchange, in which something is sent


def silence_warning(rounds: pa.Table, schedule: Schedule) -> str | None:
    """What to say of a run at free pace whose devices skipped most exchanges; None if they did not.

    A device sends nothing while its radio still sends messages of an earlier round.

    Args:
        rounds: rows of rounds.parquet, with columns `round` and `messages_sent`.
        schedule: of the fleet's graphs.
    """
    numbers, sent = (numbers_of(rounds[name]) for name in ("round", "messages_sent"))
    is_due = (numbers + 1) % schedule.exchange_every == 0
    num_due, num_sent = int(is_due.sum()), int(np.count_nonzero(sent[is_due]))
    if num_sent >= LEAST_SHARE * num_due:
        return None
    return (
        f"at free pace devices sent messages in {num_sent:,} of {num_due:,} rounds with an "
        "exchange, since a busy radio skips messages; so models mixed seldom: compress more, or "
        "raise gossip.local_steps or network.bandwidth_mbps"
    )
