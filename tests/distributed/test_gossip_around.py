"""Four processes of torch.distributed end with the parameters and bytes of the emulator.

The emulator trains each case inline. The processes get the same initial module and the same
batches, and train them in a loop of their own with an optimizer of torch.
"""

from __future__ import annotations

import re
import subprocess
import sys
from copy import deepcopy
from io import StringIO
from pathlib import Path

import numpy as np
import pytest
import torch
from once import made_once
from outside_processes import LAYOUT, NUM_PROCESSES
from rich.console import Console
from small_fleets import outcome, prepared

from edgesim.assembly.build import PLAIN, make_flat_model
from edgesim.assembly.optimization import make_learning_rates
from edgesim.compression.wire import decode
from edgesim.data.batches import BatchStream
from edgesim.fleet.run import run_scenario
from topologies import first_exchange, is_balanced, steps_before, takes_step

IRREGULAR = "topology={kind: erdos_renyi, probability: 0.5}"
DEEPSQUEEZE = (
    "gossip={algorithm: deepsqueeze, averaging_rate: 0.2, compressor: {kind: top_k, keep: 0.3}}"
)
MOMENTUM = "training.optimizer={lr: 0.05, momentum: 0.9, nesterov: true, weight_decay: 0.01}"
CASES = {
    "choco": ("topology.kind=ring",),
    "deepsqueeze": (IRREGULAR, DEEPSQUEEZE, MOMENTUM),
    "step on the model": (
        IRREGULAR,
        DEEPSQUEEZE,
        "training.optimizer={lr: 0.05, weight_decay: 0.01, step_on: model}",
    ),
    "closure": (IRREGULAR, "gossip={algorithm: gradient_push}", MOMENTUM),
    "changing graphs": (
        "topology={kind: random_matching}",
        "training={rounds: 8, device_seeds: shared, optimizer: {lr: 0.05}}",
        "gossip.compressor={kind: qsgd, bits: 4, biased: true}",
        "gossip.local_steps=2",
        "evaluation.every_rounds=8",
    ),
    "momentum tracking": (
        "gossip={algorithm: momentum_tracking}",
        "training.optimizer={lr: 0.05, nesterov: false}",
        "training.schedule={milestones: [1]}",
    ),
    "beer": (
        "gossip={algorithm: beer, averaging_rate: 0.2, compressor: {kind: top_k, keep: 0.2}}",
        "training.schedule={milestones: [1]}",
    ),
    "buckets": (
        "gossip={algorithm: beer, averaging_rate: 0.2}",
        "gossip.compressor={kind: qsgd, bits: 4, biased: true, bucket_size: 100}",
    ),
    "fedavg": (
        "topology.kind=star",
        "data.partition={kind: dirichlet, alpha: 0.5}",
        "gossip={algorithm: fedavg, local_steps: 2}",
    ),
    "all-reduce": (
        "training.rounds=12",
        "gossip={algorithm: all_reduce}",
        "evaluation.every_rounds=6",
    ),
    "relay": ("topology={kind: chain}", "gossip={algorithm: relay_sgd}"),
    "bagua": (
        "topology.kind=ring",
        "gossip={algorithm: bagua_low_precision, local_steps: 2, bucket_bytes: 4096}",
    ),
    "bagua's sites": (
        "topology.kind=complete",
        "training.rounds=6",
        "gossip={algorithm: bagua_low_precision, sites: 2}",
        "evaluation.every_rounds=6",
    ),
}
FURTHER = {"choco": {"is_resumed": True}, "deepsqueeze": {"is_resumed": True}}
FURTHER["closure"] = {"uses_closure": True}


def case_of(run, model):
    """A case as the processes read it: what the emulator would train, for the caller's loop."""
    scenario, data, schedule = run.scenario, run.data, run.schedule
    section, rates = scenario.training.optimizer, make_learning_rates(scenario)
    with_step = [r for r in range(run.training.num_rounds) if takes_step(schedule, 0, r)]
    shards = run.shards()
    for parameter in model.parameters():  # tensors of their own, like any module's
        parameter.data = parameter.data.clone()
    return {
        "scenario": scenario.model_dump(mode="json", exclude_unset=True),
        "model": model,
        "batches": [
            [
                BatchStream(
                    shard,
                    scenario.data.batch_size,
                    scenario.data.augment,
                    data.mean,
                    data.std,
                    scenario.seed,
                    0 if scenario.training.device_seeds == "shared" else device,
                ).batch(steps_before(schedule, r))
                for r in with_step
            ]
            for device, shard in enumerate(shards)
        ],
        "num_samples": [len(shard) for shard in shards],
        "rates": [rates.at(r // run.training.rounds_per_epoch) for r in with_step],
        "optimizer": "SGD",
        "options": {
            "lr": section.lr,
            "momentum": section.momentum,
            "nesterov": section.nesterov,
            "weight_decay": section.weight_decay,
        },
    }


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("outside")


@pytest.fixture(scope="module")
def scenarios(folder):
    return {name: prepared(folder, *overrides) for name, overrides in CASES.items()}


@pytest.fixture(scope="module")
def left_by_processes(tmp_path_factory, scenarios):
    """Folder in which the four processes have left what they found."""

    def start(place):
        cases = {}
        for name, run in scenarios.items():
            flat = make_flat_model(run.scenario, run.data, PLAIN)
            cases[name] = case_of(run, deepcopy(flat.model)) | FURTHER.get(name, {})
        torch.save(cases, place / "cases.pt")
        program = Path(__file__).with_name("outside_processes.py")
        done = subprocess.run(
            [sys.executable, program, place], capture_output=True, text=True, timeout=250
        )
        left = [place / f"rank-{rank}.pt" for rank in range(NUM_PROCESSES)]
        assert all(path.exists() for path in left), done.stderr[-3000:]

    return made_once(tmp_path_factory, "outside-processes", start)


@pytest.fixture(scope="module")
def processes(left_by_processes):
    """What the four processes left, by rank."""
    left = [left_by_processes / f"rank-{rank}.pt" for rank in range(NUM_PROCESSES)]
    return [torch.load(path, weights_only=True) for path in left]


@pytest.fixture(scope="module")
def emulated(folder, scenarios):
    """Runs of the emulator, by case; each is made when it is first asked for."""
    made = {}

    def emulate(name):
        if name not in made:
            console = Console(file=StringIO())
            run = run_scenario(scenarios[name], folder / name, console=console, inline=True)
            made[name] = outcome(run)
        return made[name]

    return emulate


def test_the_cases_are_what_they_are_meant_for(scenarios):
    """One graph is directed, with push weights that move; one changes, with rounds in between."""
    irregular = scenarios["deepsqueeze"].schedule
    assert not is_balanced(irregular.graph(0))
    assert any(not irregular.graph(0).has_edge(b, a) for a, b in irregular.graph(0).edges)
    changing = scenarios["changing graphs"].schedule
    assert not changing.is_static
    assert first_exchange(changing) == 1


@pytest.mark.parametrize("case", CASES)
def test_parameters_are_those_of_the_emulator_to_float_rounding(case, processes, emulated):
    """Gossip computes the same bits from the same x. The passes of a module may add up in another
    order where its tensors begin at other addresses: a few units in the last place of float32,
    6e-8 of parameters that are about 1, for each of the 6 steps or fewer.
    """
    _, _, models = emulated(case)
    us = [float(models[f"device-{rank:06d}/u"]) for rank in range(NUM_PROCESSES)]
    assert (set(us) == {1.0}) == (IRREGULAR not in CASES[case])
    for rank, left in enumerate(processes):
        found, x = left["outcomes"][case], models[f"device-{rank:06d}/x"]
        assert found["u"] == us[rank]
        np.testing.assert_allclose(found["x"].numpy(), x, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(found["z"].numpy(), x / us[rank], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("case", CASES)
def test_bytes_are_those_that_the_emulator_counts(case, processes, emulated):
    rounds, _, _ = emulated(case)
    assert rounds["sent_bytes"].sum() > 0
    for rank, left in enumerate(processes):
        found, own = left["outcomes"][case], rounds[rounds["device"] == rank]
        values, indices, scales, header = found["sent"]
        assert values == own["sent_value_bytes"].sum()
        assert indices == own["sent_index_bytes"].sum()
        assert scales + header == own["sent_overhead_bytes"].sum()
        assert found["received"] == own["received_bytes"].sum()
        assert found["rounds"] == len(own)


@pytest.mark.parametrize("case", CASES)
def test_steps_are_those_of_the_optimizer(case, processes, scenarios):
    """Rounds without a step, such as the further exchanges of an average, are not among them."""
    run = scenarios[case]
    wanted = sum(takes_step(run.schedule, 0, r) for r in range(run.training.num_rounds))
    assert {left["outcomes"][case]["steps"] for left in processes} == {wanted}


@pytest.mark.parametrize("case", CASES)
def test_the_average_is_that_of_all_mass(case, processes):
    found = [left["outcomes"][case] for left in processes]
    x = np.stack([each["x"].double().numpy() for each in found])
    mean = x.sum(0) / sum(each["u"] for each in found)
    for each in found:
        flat = torch.cat([tensor.reshape(-1) for tensor in each["average"].values()])
        np.testing.assert_allclose(flat.numpy(), mean, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("case", [name for name, more in FURTHER.items() if "is_resumed" in more])
def test_resumed_from_checkpoints_the_bits_are_those_of_an_undisturbed_training(case, processes):
    for left in processes:
        calm, resumed = left["outcomes"][case], left["outcomes"][f"{case} resumed"]
        for name in ("x", "z"):
            assert torch.equal(calm[name], resumed[name])
        assert {**resumed, "x": 0, "z": 0, "average": 0} == {**calm, "x": 0, "z": 0, "average": 0}


def test_a_message_travels_while_its_receiver_is_busy(left_by_processes):
    left = left_by_processes
    (of_1, refusal), both_of_0 = (torch.load(left / f"ahead-{rank}.pt") for rank in (0, 1))
    for sender, data in ((1, of_1), *((0, data) for data in both_of_0)):
        message = decode(data, LAYOUT)
        assert message.sender == sender
        assert message.payload.decode().tolist() == [1.0] * 500
    assert len(both_of_0) == 2
    assert "for others that wait for 100 at most: the compressor sends more" in refusal


REFUSED = {
    "other parameters": "the parameters of process 2 differ from those of process 0; call",
    "other rate": "process 3 differs from process 0 in gossip; give all",
    "other learning rate": "process 1 differs from process 0 in the learning rate; give all",
    "other state": "the state of gossip is of another scenario or model",
    "other rank": "was given the state of process",
    "changed parameters": "parameter {} was changed outside of optimizer.step()",
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_cannot_go_well_is_refused_in_every_process(what, processes):
    first, *_ = processes[0]["outcomes"]["choco"]["average"]
    for left in processes:
        assert left["said"][what].startswith("GossipError: ")
        assert REFUSED[what].format(first) in left["said"][what]


def test_a_group_of_another_size_and_processes_outside_of_it_are_refused(processes):
    said = [left["said"]["in a pair"] for left in processes]
    size = "ScenarioError: fleet.devices is 4, but the group has 2 processes; start 4, or"
    assert all(each.startswith(size) for each in said[:2])
    assert said[2:] == ["GossipError: this process is not in the group that it was given"] * 2


def test_all_processes_say_which_one_cannot_begin_and_may_try_again(processes):
    """The calls of gossip_around that follow in the program show that they may."""
    said = [left["said"]["one cannot begin"] for left in processes]
    wrong = "num_samples is 0; must be a whole number, at least 1"
    others = f"GossipError: process 2 can't begin gossip: {wrong}"
    last = "GossipError: num_samples is -1; must be a whole number, at least 1"
    assert said == [others, others, f"GossipError: {wrong}", last]


def test_who_waits_for_a_lost_process_says_so(processes):
    """In the ring, processes 0 and 2 wait for the lost one in round 1.

    Process 1 waits for them, and may have had their messages of round 1 before they noticed.
    """
    *others, last = (left["said"]["lost"] for left in processes)
    assert last == ("", "")
    for rank, (said, of_checkpoint) in enumerate(others):
        lost = re.match(
            rf"GossipError: process {rank} of 4 lost process (\d) in round (\d): ", said
        )
        assert int(lost[1]) in ((0, 2) if rank == 1 else (3,))
        assert int(lost[2]) in ((1, 2) if rank == 1 else (1,))
        assert f"process {rank}: an error ended round {lost[2]} in its middle" in of_checkpoint
        for message in (said, of_checkpoint):
            assert "go on from checkpoints of the same round" in message
