"""A small fleet in 8 bits: the same bits however it is packed, small messages, clear ends."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch
from faulty_hosts import run_hosts
from small_fleets import assert_same_bits, outcome, prepared, train

from edgesim.assembly.build import PLAIN, DataSpec, make_flat_model
from edgesim.assembly.gossip import make_compressor
from edgesim.compression.compressors import TopK
from edgesim.compression.wire import decode
from edgesim.costs.metered_model import MeteredModel
from edgesim.device.trainer import DivergedError
from edgesim.fleet.host.devices import make_devices
from edgesim.fleet.plan import FleetPlan
from edgesim.fleet.recording.evaluation import Evaluator
from edgesim.models import NORMS
from edgesim.quant.layers import InputQuantizer
from edgesim.results.snapshot import Snapshot

EIGHT = ("model.precision=int8", "model.norm=range_evonorm", "model.quantization.backend=reference")
NOISY = (  # whatever can be rounded at random is
    *EIGHT,
    "model.quantization.activation_rounding=stochastic",
    "model.quantization.evaluation_rounding=stochastic",
    "training.rounds=3",
)


@pytest.fixture(scope="module")
def inline_run(tmp_path_factory):
    return train(tmp_path_factory.mktemp("inline"), "run", *NOISY, inline=True)


@pytest.fixture(scope="module")
def long_run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("long")
    return train(folder, "run", *EIGHT, "training.rounds=20", inline=True)


def test_the_same_seed_gives_the_same_bits_and_another_seed_others(
    tmp_path, inline_run, two_threads
):
    assert_same_bits(inline_run, train(tmp_path, "again", *NOISY, inline=True))
    other = train(tmp_path, "other", *NOISY, "seed=4", inline=True)
    xs = [outcome(run)[2]["device-000000/x"] for run in (inline_run, other)]
    assert not np.array_equal(*xs)


def test_hosts_of_one_and_of_three_devices_end_with_the_bits_of_one_host(tmp_path):
    """Noise belongs to device, round and layer, and not to a process or an order."""
    packings = [[[0, 1, 2, 3]], [[0], [1], [2], [3]], [[0, 1, 3], [2]]]
    ends = [
        run_hosts(tmp_path / str(seed), seed, groups, *NOISY)
        for seed, groups in enumerate(packings)
    ]
    for end in ends[1:]:
        for ours, first in zip(end, ends[0], strict=True):
            np.testing.assert_array_equal(ours, first)


def test_every_device_round_and_layer_has_noise_of_its_own(tmp_path):
    """In the reference code all devices share theirs (docs/reference.md, section 9.15)."""
    ready = prepared(tmp_path, *EIGHT)
    plan = FleetPlan(ready.scenario, ready.schedule, ready.data, ready.training, PLAIN, tmp_path)
    model = make_flat_model(ready.scenario, ready.data, PLAIN)
    devices = make_devices(plan, dict(enumerate(ready.shards())), model)
    quantizers = [m for m in model.model.modules() if isinstance(m, InputQuantizer)]
    assert len(quantizers) == 7  # three convolutions, three norms, the head
    seeds = []
    for round_index in range(2):
        for device in devices:
            device.participant.round_index = round_index
            device.step(MeteredModel(model))
            seeds += [quantizer.layer_step().seed for quantizer in quantizers]
    assert len(seeds) == 2 * 4 * 7
    assert len(set(seeds)) == len(seeds)


def values_sent(folder, *overrides):
    return make_compressor(prepared(folder, *overrides).scenario).values


def test_values_of_sparse_messages_have_8_bits_unless_the_scenario_says_otherwise(tmp_path):
    for kind in ("top_k", "random_k"):
        sparse = f"kind: {kind}, keep: 0.2"
        assert values_sent(tmp_path, *EIGHT, f"gossip.compressor={{{sparse}}}") == "int8"
        chosen = f"gossip.compressor={{{sparse}, values: fp16}}"
        assert values_sent(tmp_path, *EIGHT, chosen) == "fp16"
    assert values_sent(tmp_path) == "fp32"


@pytest.mark.parametrize("values", [None, "fp32", "fp16", "int8"])
def test_what_is_called_uncompressed_sends_fp32_unless_the_scenario_says_otherwise(
    tmp_path, values
):
    more = "" if values is None else f", values: {values}"
    for gossip in (
        f"gossip.compressor={{kind: identity{more}}}",
        f"gossip={{algorithm: gradient_push{more}}}",
        f"gossip={{algorithm: dcd, compressor: {{kind: identity{more}}}}}",
    ):
        ring = "topology.kind=ring"  # DCD's
        assert values_sent(tmp_path, *EIGHT, ring, gossip) == (values or "fp32")


def test_gradient_push_of_8_bit_models_sends_four_bytes_an_entry(tmp_path):
    result = train(tmp_path, "push", *EIGHT, "gossip={algorithm: gradient_push}", inline=True)
    rounds = pd.read_parquet(result.path / "rounds.parquet")
    entries = rounds["messages_sent"].sum() * result.summary["parameters"]
    assert rounds["sent_value_bytes"].sum() == 4 * entries


def test_sent_values_are_a_byte_each(tmp_path, inline_run):
    full = train(tmp_path, "fp32", "model.norm=range_evonorm", NOISY[-1], inline=True)
    eight, four_times = (
        pd.read_parquet(run.path / "rounds.parquet")["sent_value_bytes"].sum()
        for run in (inline_run, full)
    )
    assert 4 * eight == four_times


def test_activation_ranges_are_not_gossiped(inline_run):
    """They are local; the reference code sends them by mistake (docs/reference.md, section 1.5)."""
    weights = outcome(inline_run)[2]
    grey = 24_458 - 2 * 9 * 16  # not counted: what the first convolution has for red and green
    assert weights["device-000000/x"].shape == (grey,)


def test_the_loss_falls_and_the_models_learn(long_run):
    """A tenth of the digits are right by chance; the loss begins near ln 10 = 2.3."""
    losses = pd.read_parquet(long_run.path / "rounds.parquet").groupby("round")["loss"].mean()
    assert losses.iloc[-5:].mean() < 0.8 * losses.iloc[:5].mean()
    evaluations = pd.read_parquet(long_run.path / "evaluations.parquet")
    last = evaluations[(evaluations["round"] == 20) & (evaluations["model"] == "consensus")]
    assert float(last["accuracy"].iloc[0]) > 0.3


@pytest.mark.parametrize("norm", NORMS)
def test_every_norm_trains_in_a_fleet(tmp_path, norm):
    """Its buffers and the layers' ranges are views of one vector there."""
    ready = prepared(tmp_path, *EIGHT, f"model.norm={norm}")
    model = make_flat_model(ready.scenario, ready.data, PLAIN)
    plan = FleetPlan(ready.scenario, ready.schedule, ready.data, ready.training, PLAIN, tmp_path)
    for device in make_devices(plan, dict(enumerate(ready.shards())), model):
        device.step(MeteredModel(model))
        assert len(device.send()) == 1


@pytest.mark.parametrize("norm", ["range_evonorm", "range_batch", "evonorm_s0"])
def test_divergence_names_device_round_and_layer(tmp_path, norm):
    """8-bit codes can't express what is not finite: it must not turn into ordinary numbers."""
    with pytest.raises(
        DivergedError,
        match=(
            r"device \d diverged in round \d+: \w+ of layer [\w.]+ hold NaN.*; "
            r"lower training.optimizer.lr"
        ),
    ):
        train(
            tmp_path,
            "run",
            *EIGHT,
            f"model.norm={norm}",
            "training.optimizer.lr=1.0e+20",
            "training.rounds=20",
            inline=True,
        )


FP32 = "gossip.compressor={kind: identity, values: fp32}"
GOSSIPED = (*EIGHT, "model.quantization.ranges=gossiped")


def test_gossiped_ranges_are_two_scalars_for_each_quantizer_after_the_parameters(tmp_path):
    """ResNet-20 in 8 bits has 208 tensors and 273,380 entries; 2,889 are sent at 99 %.

    Source: docs/reference.md, section 3.6.
    """
    data = DataSpec((3, 32, 32), 10, (0.5,) * 3, (0.25,) * 3)
    scenario = prepared(tmp_path, *GOSSIPED, "model.name=resnet20").scenario
    model = make_flat_model(scenario, data, PLAIN)
    assert model.num_trainable == 273_258
    assert model.layout.numel == 273_380
    assert model.layout.num_tensors == 208
    assert model.layout.sizes[-122:] == (1,) * 122
    assert len(model.buffers) == 0
    payload = TopK(keep=0.01, values="fp32").compress(
        model.parameters, model.layout, np.random.default_rng(1)
    )
    assert len(payload.indices) == 2_889


def test_gossiped_ranges_are_the_models_and_no_optimizer_moves_them(tmp_path):
    """After a step they are what the forward pass left, times the push weight."""
    ready = prepared(tmp_path, *GOSSIPED, "training.optimizer.weight_decay=0.5", FP32)
    plan = FleetPlan(ready.scenario, ready.schedule, ready.data, ready.training, PLAIN, tmp_path)
    model = make_flat_model(ready.scenario, ready.data, PLAIN)
    device = make_devices(plan, dict(enumerate(ready.shards())), model)[0]
    device.step(MeteredModel(model))
    envelopes = device.send()
    sent = decode(envelopes[0].data, model.layout)
    ranges = model.parameters[model.num_trainable :]
    assert (ranges[0::2] < ranges[1::2]).all()
    # The first message of CHOCO is the whole half step, here in fp32.
    received = torch.zeros_like(model.parameters)
    sent.payload.add_to_(received)
    torch.testing.assert_close(received[model.num_trainable :], ranges)


def test_a_fleet_with_gossiped_ranges_trains_to_the_same_bits_twice(tmp_path):
    first = train(tmp_path, "first", *GOSSIPED, "training.rounds=3", inline=True)
    assert_same_bits(first, train(tmp_path, "second", *GOSSIPED, "training.rounds=3", inline=True))


def test_evaluation_at_random_has_noise_of_its_own_in_each_batch_and_round(tmp_path):
    ready = prepared(tmp_path, *NOISY)
    model = make_flat_model(ready.scenario, ready.data, PLAIN)
    quantizer = next(m for m in model.leaf_modules if isinstance(m, InputQuantizer))
    images = torch.zeros(2, 1, 8, 8)
    images[0] = 1.0
    batches = [(images, torch.zeros(2, dtype=torch.int64))] * 3
    seeds = []

    def passes():
        for batch in batches:
            yield batch
            seeds.append(quantizer.noise.seed)

    evaluator = Evaluator([model], passes, 1, ready.scenario.seed)
    for round_index in (1, 2):
        x = model.parameters.clone()
        snapshot = Snapshot(0, round_index, round_index, x, 1.0, model.buffers.clone(), None)
        evaluator.evaluate([snapshot], devices_too=True)
    evaluator.close()
    assert len(seeds) == len(set(seeds)) == 2 * 2 * 3  # rounds, models, batches
