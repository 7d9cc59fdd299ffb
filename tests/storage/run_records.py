"""Rounds, messages and models as a device would report them, with made-up figures."""

from __future__ import annotations

import numpy as np
import torch

from edgesim.results.columns import DEVICES, EVALUATIONS, MessageRecord, RoundRecord, RoundReport
from edgesim.results.run_directory import RunDirectory
from edgesim.results.snapshot import Snapshot


def report(device: int, round_index: int, *, receivers: tuple[int, ...] = ()) -> RoundReport:
    """A round whose loss tells device and round."""
    record = RoundRecord(
        device=device,
        round=round_index,
        epoch=0,
        loss=device + round_index / 1000,
        learning_rate=0.1,
        push_weight=1.0,
        sent_bytes=10 * len(receivers),
        sent_value_bytes=0,
        sent_index_bytes=0,
        sent_overhead_bytes=0,
        received_bytes=0,
        messages_sent=len(receivers),
        macs_int8=0,
        macs_16bit=0,
        macs_fp32=0,
        elementwise_ops=0,
        traffic_bytes=0,
        compute_wall_s=0.0,
        compute_cpu_s=0.0,
    )
    messages = tuple(
        MessageRecord(
            round=round_index,
            device=device,
            sender=device,
            receiver=receiver,
            kind="share",
            bytes=10,
            retransmissions=None,
            retransmitted_bytes=None,
            departure_time_s=None,
            sent_time_s=None,
            arrival_time_s=None,
        )
        for receiver in receivers
    )
    return RoundReport(record, messages)


def snapshot(device: int, round_index: int) -> Snapshot:
    """A model of three numbers."""
    return Snapshot(
        device=device,
        round_index=round_index,
        rounds_done=round_index,
        x=torch.tensor([device, round_index, 0.5]),
        u=1.25,
        buffers=torch.zeros(2),
        virtual_time_s=None,
    )


SUMMARY = {"name": "small", "sent_bytes": 20, "consensus_accuracy": 0.5}


def begun(directory: RunDirectory) -> RunDirectory:
    """With the files that a run writes before it trains."""
    directory.write_text("scenario.yaml", "name: small\n")
    directory.write_json("environment.json", {"mode": "inline"})
    return directory


def table(directory: RunDirectory, name: str) -> list[tuple[int, ...]]:
    keys = {"rounds": ["round", "device"], "messages": ["round", "sender", "receiver"]}[name]
    columns = directory.read_table(f"{name}.parquet").to_pydict()
    return list(zip(*(columns[key] for key in keys), strict=True))


def evaluation(round_index: int) -> dict[str, object]:
    """A row of an evaluation."""
    row = {"round": round_index, "epoch": 0.5, "model": "consensus", "device": -1, "accuracy": 0.5}
    return {**row, "loss": 0.1, "consensus_distance": np.pi, "model_norm": 1.0}


def finished(directory: RunDirectory) -> None:
    begun(directory).write_rounds(0, [report(0, r, receivers=(1,)) for r in range(2)])
    directory.merge_rounds()
    directory.drop_recovery()
    directory.write_table("evaluations.parquet", [evaluation(1), evaluation(2)], EVALUATIONS)
    directory.write_table("devices.parquet", [], DEVICES)
    directory.write_json("summary.json", SUMMARY)
