"""Random fleets keep the promises: the same bits, nothing lost, accounts and reports that agree.

A case draws a scenario of a few devices and rounds from most keys that change a training. If it is
refused, nothing is run. Otherwise it is trained three times: with one thread, with two, and
interrupted at a random step and resumed. Tables, models and figures must be equal to the last bit.
Bytes, times, energies and push weights of the tables must agree with each other, and with what
`edgesim cost` says before. The report can be made, and its times add up.
"""

from __future__ import annotations

import json
import os
import random
import shutil
from contextlib import suppress
from io import StringIO
from itertools import count
from unittest.mock import patch

import numpy as np
import pandas as pd
from random_fleets import IN_SEVERAL_ROUNDS, drawn
from rich.console import Console
from tiny_runs import PulledPlugError, folder

from edgesim.assembly.preparation import prepare
from edgesim.device.device import Device
from edgesim.errors import EdgesimError
from edgesim.fleet import run as run_module
from edgesim.fleet.run import resume_run, run_scenario
from edgesim.report.activity import segments, shares_over_time, spans_of_rounds
from edgesim.report.ends import device_table, rounds_missed
from edgesim.report.report import report_page
from edgesim.report.runs import load_runs
from edgesim.report.waiting import pace_setters
from edgesim.results.columns import WALL_COLUMNS
from edgesim.scenario.schema import Scenario
from edgesim.study.iteration import iteration_costs
from edgesim.study.training import training_of

NUM_IN_TESTS = 16
TABLES = ("rounds", "messages", "evaluations", "devices")
OF_THIS_MACHINE = {"compute_wall_s", "compute_cpu_s", "wait_wall_s", "wall_s", "resumes", "seal"}
NS = 1e-9  # clocks count whole nanoseconds


def check(seed):
    """Train one random fleet in three ways."""
    rng = random.Random(seed)
    scenario = Scenario.model_validate(drawn(rng))
    try:
        ready = prepare(scenario)
    except EdgesimError:
        return
    place = folder() / f"promises-{os.getpid()}"
    try:
        check_ready(ready, rng, place)
    finally:
        shutil.rmtree(place, ignore_errors=True)


def check_ready(ready, rng, place):
    """Train a scenario in three ways, into a folder."""
    one = trained(ready, place / "one", cores=1)
    assert_same(one, trained(ready, place / "two", cores=2), "with two threads")
    rows = len(pd.read_parquet(one / "rounds.parquet"))
    again = resumed(ready, place / "again", rng.randint(1, rows))
    assert_same(one, again, "after an interruption")
    check_accounts(ready.scenario, one)
    check_report(one)
    if is_foretold(ready.scenario):
        check_foretold(ready.scenario, one)


def console():
    return Console(file=StringIO(), force_terminal=False)


def trained(ready, place, *, cores):
    with patch.object(run_module, "num_cores", lambda: cores):
        run_scenario(ready, place, inline=True, console=console())
    return place


def resumed(ready, place, at_step):
    """A run that ended at the n-th step of its devices and went on."""
    step, steps = Device.step, count(1)

    def step_or_end(self, model):
        if next(steps) == at_step:
            raise PulledPlugError
        step(self, model)

    with (
        patch.object(run_module, "num_cores", lambda: 1),
        patch.object(Device, "step", step_or_end),
        suppress(PulledPlugError),
    ):
        run_scenario(ready, place, inline=True, console=console())
    check_unfinished_report(place)
    with patch.object(run_module, "num_cores", lambda: 1):
        resume_run(place, console=console())
    return place


def assert_same(first, second, how):
    """Tables, models and figures of two runs are equal to the last bit."""
    for name in TABLES:
        paths = [run / f"{name}.parquet" for run in (first, second)]
        assert paths[0].exists() == paths[1].exists(), f"{name} {how}"
        if paths[0].exists():
            a, b = (
                pd.read_parquet(path).drop(columns=list(WALL_COLUMNS), errors="ignore")
                for path in paths
            )
            try:
                pd.testing.assert_frame_equal(a, b, check_exact=True)
            except AssertionError as error:
                raise AssertionError(f"{name} {how}: {error}") from error
    a, b = (figures(run) for run in (first, second))
    assert a == b, f"summary.json {how}: {differing(a, b)}"
    models = [
        sorted(path.name for path in (run / "models").glob("*.npz")) for run in (first, second)
    ]
    assert models[0] == models[1], f"models {how}: {models}"
    for name in models[0]:
        a, b = (dict(np.load(run / "models" / name)) for run in (first, second))
        assert a.keys() == b.keys(), f"{name} {how}"
        for key, array in a.items():
            assert array.tobytes() == b[key].tobytes(), f"{key} of {name} {how}"


def figures(run):
    """What summary.json has that no clock of this machine told; nan as text, equal to itself."""
    told = json.loads((run / "summary.json").read_text())
    return {key: json.dumps(value) for key, value in told.items() if key not in OF_THIS_MACHINE}


def differing(a, b):
    keys = [key for key in {**a, **b} if a.get(key) != b.get(key)]
    return {key: (a.get(key), b.get(key)) for key in keys}


def check_accounts(scenario, run):
    """Bytes, times, energies and push weights of a run's tables agree."""
    rounds = pd.read_parquet(run / "rounds.parquet")
    summary = json.loads((run / "summary.json").read_text())
    parts = rounds.sent_value_bytes + rounds.sent_index_bytes + rounds.sent_overhead_bytes
    assert (parts == rounds.sent_bytes).all(), "bytes of values, positions and the rest"
    for key in ("sent_bytes", "received_bytes", "messages_sent", "macs_fp32", "macs_int8"):
        assert summary[key] == rounds[key].sum(), key
    assert not rounds.duplicated(["device", "round"]).any(), "a round twice"
    if (run / "messages.parquet").exists():
        messages = pd.read_parquet(run / "messages.parquet")
        sent = messages.groupby(["device", "round"]).bytes.agg(["sum", "size"])
        mine = rounds.set_index(["device", "round"])
        mine = mine[mine.messages_sent > 0]
        joined = mine.join(sent)
        assert (joined.sent_bytes == joined["sum"]).all(), "bytes of messages of a round"
        assert (joined.messages_sent == joined["size"]).all(), "messages of a round"
        assert len(sent) == len(mine), "messages of rounds that are not there"
        if "arrival_time_s" in messages and len(messages):
            assert (messages.departure_time_s <= messages.sent_time_s + NS).all()
            assert (messages.sent_time_s <= messages.arrival_time_s + NS).all()
    if "energy_j" in rounds:
        parts = sum(rounds[f"energy_{part}_j"] for part in ("compute", "memory", "radio", "idle"))
        assert np.allclose(parts, rounds.energy_j, rtol=1e-12, atol=0), "parts of energy"
        assert np.isclose(summary["energy_j"], rounds.energy_j.sum(), rtol=1e-12), "energy"
    if "virtual_time_s" in rounds:
        by_device = rounds.sort_values(["device", "round"]).groupby("device")
        assert (by_device.virtual_time_s.diff().dropna() >= 0).all(), "a clock went back"
        spent = rounds.virtual_compute_s + rounds.virtual_wait_s
        assert (spent >= 0).all(), "time below zero"
        if scenario.fleet.duty_cycle is None and scenario.fleet.churn is None:
            clock = by_device.virtual_time_s.last()
            awake = spent.groupby(rounds.device).sum()
            assert np.allclose(clock, awake, rtol=1e-6, atol=1e-6), "awake time and the clock"
    if scenario.fleet.pace == "lockstep" and not summary["left_after_round"]:
        num = rounds.device.nunique()
        if scenario.gossip.algorithm not in IN_SEVERAL_ROUNDS and scenario.fleet.churn is None:
            mass = rounds.groupby("round").push_weight.sum()
            assert np.allclose(mass, num, rtol=1e-9), f"push weights: {mass.to_dict()} of {num}"
        assert summary["sent_bytes"] == summary["received_bytes"], "bytes that nobody received"


def check_unfinished_report(place):
    """The report of what is there can be made, or there is nothing yet."""
    try:
        runs = load_runs([place])
    except EdgesimError:
        return
    assert report_page(runs)


def check_report(place):
    """The report of a run can be made, and its times add up."""
    (run,) = load_runs([place])
    devices = device_table(run)
    assert devices["rounds"].sum() == len(run.rounds), "rounds of devices"
    assert devices["sent_bytes"].sum() == run.run.summary["sent_bytes"], "bytes of devices"
    assert all(
        0 < missed <= run.rounds["round"].max() + 1 for missed in rounds_missed(run).values()
    )
    assert report_page([run])
    if not run.has_clock:
        return
    end_s = run.rounds["virtual_time_s"].max()
    if not run.is_free:
        # A successor waits for its own last message to the leaver, over the leaver's link.
        own = run.rounds["waited_for"] == run.rounds["device"]
        of_devices = run.by_device["waited_for"] == run.by_device["device"]
        assert of_devices.sum() == own.sum(), "a device waits for itself"
        found = pace_setters(run)
        assert np.isclose(found.whole_s, end_s, rtol=1e-9), "the critical path"
        fleet = run.settings["fleet"]
        assert found.away_s == 0 or fleet["duty_cycle"] or fleet["churn"], "sleep of nobody"
    spans = spans_of_rounds(run)
    shares = shares_over_time(run, spans, 24).groupby("time_s")["share"].sum()
    assert np.allclose(shares, 1.0, rtol=1e-6), "shares of the fleet's time"
    parts = segments(run, spans, (0.0, float(end_s)), list(range(run.num_devices)))
    for _, own in parts[parts["activity"] != "sending"].groupby("device"):
        own = own.sort_values("start_s")
        gaps = own["start_s"].iloc[1:].to_numpy() - own["end_s"].iloc[:-1].to_numpy()
        assert (gaps >= -1e-9 * end_s).all(), "spans of the timeline overlap"


def is_foretold(scenario):
    """Whether `edgesim cost` reckons with all that happens: full batches, and nobody is away."""
    if isinstance(scenario.fleet.devices, int) or scenario.fleet.churn is not None:
        return False
    groups = scenario.fleet.devices
    has_battery = any(group.battery_wh is not None for group in groups)
    shard, rest = divmod(scenario.data.train_samples, sum(group.count for group in groups))
    is_full = not rest and not shard % scenario.data.batch_size
    return is_full and scenario.data.partition.kind == "iid" and not has_battery


def check_foretold(scenario, run):
    """Seconds, bytes and joules of a run; sparse messages are some permille off."""
    foretold = training_of(iteration_costs(scenario))
    rounds = pd.read_parquet(run / "rounds.parquet")
    for what, said, found in (
        ("seconds", foretold.seconds, rounds.virtual_time_s.max()),
        ("bytes", sum(foretold.sent_bytes), rounds.sent_bytes.sum()),
        ("energy", sum(foretold.energy_j), rounds.energy_j.sum()),
    ):
        assert np.isclose(said, found, rtol=0.01), f"{what}: foretold {said}, found {found}"
