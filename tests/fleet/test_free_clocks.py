"""Clocks without training are those of a run, to the bit."""

from __future__ import annotations

from collections import defaultdict

import pandas as pd
import pytest
from small_fleets import prepared, train

from edgesim.assembly.equipment import device_hardware
from edgesim.assembly.free_clocks import FreeClocks
from edgesim.assembly.message_costs import random_message_bytes
from edgesim.assembly.studied_scenario import studied_scenario
from edgesim.costs.round_work import gossip_work
from edgesim.streams import StreamPurpose, stream

ROUNDS = 12
FREE = (
    "fleet.pace=free",
    f"training.rounds={ROUNDS}",
    "evaluation.every_rounds=12",
    "data.train_samples=192",
    "data.partition={kind: iid}",  # full batches of everybody
    "gossip.compressor={kind: identity}",  # messages of one length
)
TWO_PIS = "{profile: raspberry-pi-4b, count: 2}"
SLEEPER = "{profile: gap9, duty_cycle: {period_s: 0.5, awake_s: 0.2}}"
JITTERY = "{profile: jetson-nano, compute_jitter: 0.3}"
FLEETS = {
    "unlike boards, jitter and losses": (
        f"fleet.devices=[{TWO_PIS}, {{profile: gap9}}, {JITTERY}]",
        "network={latency_ms: 3, jitter_ms: 5, loss: 0.05, packet_bytes: 500}",
    ),
    "half-duplex radios that sleep": (
        f"fleet.devices=[{TWO_PIS}, {SLEEPER}, {{profile: jetson-nano}}]",
        "network={bandwidth_mbps: 2, half_duplex: true}",
        "topology.kind=ring",
    ),
    "an exchange in three rounds": (
        "fleet.devices=[{profile: raspberry-pi-4b, count: 3}, {profile: gap9}]",
        "gossip={algorithm: deepsqueeze, averaging_rate: 0.1, local_steps: 3}",
    ),
}


@pytest.mark.parametrize("overrides", FLEETS.values(), ids=FLEETS)
def test_they_are_those_of_a_run(tmp_path, overrides):
    words = (*FREE[:-1], *overrides) if "gossip" in overrides[-1] else (*FREE, *overrides)
    result = train(tmp_path, "run", *words, inline=True)
    scenario = prepared(tmp_path, *words).scenario
    studied = studied_scenario(scenario)
    algorithm = studied.algorithm
    step = studied.model.step_work.total
    step += studied.optimizer.work(studied.model.num_trainable)
    clocks = FreeClocks(
        device_hardware(scenario, studied.schedule),
        studied.schedule,
        step_work=lambda _: step,
        gossip_work=lambda sent, taken: gossip_work(algorithm, sent, taken),
        message_bytes=random_message_bytes(algorithm, stream(0, StreamPurpose.COMPRESS)),
        seed=scenario.seed,
    )
    found = defaultdict(list)
    for ended in clocks.run(ROUNDS):
        figures = ended.end_s, len(ended.sent), len(ended.absorbed), ended.wait_s
        found[ended.device].append(figures)
    rounds = pd.read_parquet(result.path / "rounds.parquet")
    for device, rows in rounds.groupby("device"):
        columns = ["virtual_time_s", "messages_sent", "messages_absorbed", "virtual_wait_s"]
        expected = [tuple(row) for row in rows[columns].itertuples(index=False)]
        assert found[device] == expected
