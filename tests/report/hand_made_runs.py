"""Runs that nobody ran: tables of a few rows, to be worked out by hand, and what they say."""

from __future__ import annotations

import pandas as pd

from edgesim.report.ends import device_table
from edgesim.report.reported_run import ReportedRun
from edgesim.report.summary import in_short, results_table
from edgesim.report.troubles import troubles
from edgesim.results.run import Run

MESSAGES = ("round", "device", "sender", "receiver", "kind", "bytes")
EVALUATIONS = ("model", "device", "round", "epoch", "accuracy", "loss", "consensus_distance")


def made(
    rounds,
    messages=(),
    evaluations=(),
    *,
    devices=(),
    summary=None,
    names=None,
    pace="lockstep",
    missing=(),
    environment=None,
    **settings,
):
    """A run with these rows, of as many devices as there are names, or else with rounds."""
    rounds = pd.DataFrame(rounds)
    fleet = {"devices": len(names or rounds["device"].unique()), "names": names, "pace": pace}
    run = Run(
        "place",
        rounds,
        pd.DataFrame(messages, columns=None if len(messages) else MESSAGES),
        pd.DataFrame(evaluations, columns=None if len(evaluations) else EVALUATIONS),
        pd.DataFrame(devices),
        summary or {},
        missing=missing,
    )
    return ReportedRun(
        run=run,
        settings={
            "seed": 1,
            "model": {"name": "small_cnn", "precision": "fp32"},
            "gossip": {"algorithm": "choco"},
            "data": {"source": "digits"},
            "hardware": {"energy_table": "profile"},
            "evaluation": {},
            **settings,
            "fleet": fleet | settings.get("fleet", {}),
        },
        environment=environment or {},
        scenario=None,
        label="made",
        group="made",
        missing=(),
    )


def round_of(device, number, until_s, compute_s, wait_s=0.0, waited_for=-1, **more):
    """A row of rounds.parquet; its energies in joules are 2, 0, 1 and 1 a second of waiting."""
    return {
        "device": device,
        "round": number,
        "loss": 2.0 - number,
        "virtual_time_s": until_s,
        "virtual_compute_s": compute_s,
        "virtual_wait_s": wait_s,
        "waited_for": waited_for,
        "sent_bytes": 200,
        "received_bytes": 250,
        "messages_sent": 2,
        "retransmitted_bytes": 0,
        "energy_j": 3.0 + wait_s,
        "energy_compute_j": 2.0,
        "energy_memory_j": 0.0,
        "energy_radio_j": 1.0,
        "energy_idle_j": wait_s,
        **more,
    }


def message(number, sender, receiver, departs_s, **more):
    """A row of messages.parquet: half a second on the air, then half a second of latency."""
    return {
        "round": number,
        "device": sender,
        "sender": sender,
        "receiver": receiver,
        "kind": "share",
        "bytes": 100,
        "retransmissions": 0,
        "retransmitted_bytes": 0,
        "departure_time_s": departs_s,
        "sent_time_s": departs_s + 0.5,
        "arrival_time_s": departs_s + 1.0,
        **more,
    }


def evaluation(number, averaged, own=(), **more):
    """Rows of evaluations.parquet: accuracies after a round; a loss is 1 less the accuracy."""
    common = {"round": number, "epoch": number / 2, "consensus_distance": 0.5 / number, **more}
    return [
        {"model": model, "device": device, "accuracy": accuracy, "loss": 1 - accuracy, **common}
        for model, device, accuracy in (
            ("consensus", -1, averaged),
            *(("device", device, accuracy) for device, accuracy in enumerate(own)),
        )
    ]


def waiting_fleet(**more):
    """Two quick devices that wait for a slow one, in two rounds.

    A step takes 1 s, of the slow one 3 s. Its messages begin when a step ends and are there a
    second later, so the others wait from second 1 to 4 and from 5 to 7; what they send is there
    before its own step ends, and it waits for nobody.
    """
    slow = {"sent_bytes": 300, "received_bytes": 200}
    rounds = [
        round_of(0, 0, 4.0, 1.0, 3.0, 2, retransmitted_bytes=70),
        round_of(1, 0, 4.0, 1.0, 3.0, 2),
        round_of(2, 0, 3.0, 3.0, **slow),
        round_of(0, 1, 7.0, 1.0, 2.0, 2),
        round_of(1, 1, 7.0, 1.0, 2.0, 2),
        round_of(2, 1, 6.0, 3.0, **slow),
    ]
    ends_s = {(0, 0): 1.0, (0, 1): 1.0, (0, 2): 3.0, (1, 0): 5.0, (1, 1): 5.0, (1, 2): 6.0}
    messages = [
        message(number, sender, receiver, end_s, bytes=150 if sender == 2 else 100)
        for (number, sender), end_s in ends_s.items()
        for receiver in range(3)
        if receiver != sender
    ]
    rows = [*evaluation(1, 0.5, (0.2, 0.1, 0.3)), *evaluation(2, 0.25, (0.25, 0.5, 0.125))]
    return made(rounds, messages, more.pop("evaluations", rows), **more)


def short(run):
    """Its sentences in short."""
    return in_short(run, device_table(run))


def wrong(run):
    """Sentences on what went wrong."""
    return troubles(run, device_table(run))


def figures(run):
    """Its closing figures by name."""
    return {row[0]: row[1] for row in results_table([run], [device_table(run)]).rows}
