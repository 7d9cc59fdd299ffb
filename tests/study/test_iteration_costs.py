"""What is foretold of an iteration against devices that run, and against counts by hand."""

import pandas as pd
import pytest
import torch
from memory_meter import measure_device_memory
from study_scenarios import DENSE, INT8, MIXED, as_if_long, ran, small

import edgesim
from edgesim.assembly.build import PLAIN, DataSpec, make_flat_model
from edgesim.assembly.known_data import data_shape
from edgesim.assembly.optimization import make_optimizer
from edgesim.assembly.preparation import prepare
from edgesim.compression.wire import HEADER
from edgesim.costs.work_meter import WorkMeter
from edgesim.data.errors import DataError
from edgesim.data.sources import open_dataset
from edgesim.errors import ScenarioError
from edgesim.gossip.algorithm import OutEdge
from edgesim.hardware.energy import Activity, price
from edgesim.hardware.energy_tables import ENERGY_TABLES
from edgesim.models.dropout import seed_dropout_
from edgesim.quant.layers import seed_rounding_
from edgesim.scenario.data import DataSection
from edgesim.study.iteration import iteration_costs
from edgesim.study.tables.scenario_tables import fleet_table
from edgesim.study.training import training_of

# small_cnn on grey images: 24,458 (reference.md, section 5's way) less 2 x 144 weights
PARAMETERS = 24_170
DIGITS = DataSpec(image_shape=(1, 8, 8), num_classes=10, mean=(0.5,), std=(0.5,))


@pytest.fixture(scope="module", params=["fp32", "int8"])
def both(request, tmp_path_factory):
    """A fleet foretold, and its tables after it ran.

    Images are large enough for the slow device's step to be longer than any message takes, so that
    the fleet settles in a few rounds.
    """
    folder = tmp_path_factory.mktemp(request.param)
    large = ("network.bandwidth_mbps=100", "data.image_size=24", "training.epochs=3")
    overrides = (*MIXED, *large, DENSE)
    scenario = small(folder, *overrides, *(INT8 if request.param == "int8" else ()))
    with as_if_long():
        foretold = iteration_costs(scenario)
    run = ran(folder, scenario)
    return foretold, pd.read_parquet(run.path / "rounds.parquet"), run


def test_local_steps_are_foretold_in_the_mean(tmp_path):
    """Three of four iterations send nothing; and the rounds of a run say so too."""
    twelve_rounds = ("training.epochs=null", "training.rounds=12")
    scenario = small(tmp_path, DENSE, "gossip.local_steps=4", *twelve_rounds)
    foretold = iteration_costs(scenario)
    run = ran(tmp_path, scenario)
    rounds = pd.read_parquet(run.path / "rounds.parquet")
    message_bytes = foretold.message.encoded.total
    for device in foretold.devices:
        assert device.messages_sent == device.messages_received == 1 / 4
        own = rounds[rounds["device"] == device.device].sort_values("round")
        assert own["sent_bytes"].tolist() == [0, 0, 0, message_bytes] * 3
        for column in ("elementwise_ops", "traffic_bytes"):
            mean = getattr(device.work.total, column)
            assert own[column].mean() == pytest.approx(mean, abs=1), column


@pytest.mark.parametrize(
    "gossip",
    [
        "{algorithm: bagua_low_precision}",
        "{algorithm: bagua_low_precision, sites: [0, 0, 1, 1], bucket_bytes: 20000}",
        "{algorithm: bagua_low_precision, sites: 1, local_steps: 2}",
        "{algorithm: bagua_decentralized, sites: [0, 0, 0, 1], peers: shift_one}",
        "{algorithm: bagua_decentralized, local_steps: 2}",
    ],
)
def test_parts_of_devices_in_sites_and_their_messages_are_foretold(tmp_path, gossip):
    """Leaders and members differ in work and bytes, and messages in length."""
    twelve = ("training.epochs=null", "training.rounds=12", "topology={kind: complete}")
    fleet = "fleet={devices: 4, profile: raspberry-pi-4b}"
    scenario = small(tmp_path, *twelve, f"gossip={gossip}", fleet)
    with as_if_long():
        foretold = iteration_costs(scenario)
    run = ran(tmp_path, scenario)
    rounds = pd.read_parquet(run.path / "rounds.parquet")
    for device in foretold.devices:
        own = rounds[rounds["device"] == device.device]
        assert own["sent_bytes"].mean() == device.sent_bytes
        assert own["received_bytes"].mean() == device.received_bytes
        assert own["messages_sent"].mean() == device.messages_sent
        for column in ("macs_fp32", "elementwise_ops", "traffic_bytes"):
            mean = getattr(device.work.total, column)
            assert own[column].mean() == pytest.approx(mean, abs=3), column  # rounded by part
    ends = rounds.pivot_table(index="round", columns="device", values="virtual_time_s")
    period_s = (ends.loc[11] - ends.loc[5]).mean() / 6  # whole cycles of 1, 2, 3 or 4 rounds
    if not (11 - 5) % foretold.studied.schedule.period:
        assert period_s == pytest.approx(foretold.steady_state.period_s, rel=1e-6)
    by_convention = run.summary["message_bytes_by_convention"]
    assert by_convention == dict(foretold.message.by_convention)


def test_a_fleet_works_and_sends_as_was_foretold(both):
    foretold, rounds, _ = both
    for device in foretold.devices:
        own, work = rounds[rounds["device"] == device.device], device.work.total
        for column in ("macs_int8", "macs_16bit", "macs_fp32", "elementwise_ops", "traffic_bytes"):
            assert set(own[column]) == {getattr(work, column)}, column
        assert set(own["sent_bytes"]) == {foretold.message.encoded.total * device.messages_sent}
        assert set(own["messages_sent"]) == {device.messages_sent}
    assert len(rounds) == 4 * foretold.studied.num_rounds == 4 * 3 * 3


def test_a_fleet_keeps_the_time_that_was_foretold(both):
    foretold, rounds, run = both
    for device in foretold.devices:
        own = rounds[rounds["device"] == device.device]
        assert own["virtual_compute_s"].to_numpy() == pytest.approx(device.time.roofline_s)
    ends = rounds.pivot_table(index="round", columns="device", values="virtual_time_s")
    period_s = (ends.loc[8] - ends.loc[6]) / 2  # it has settled by then
    assert period_s.to_numpy() == pytest.approx(foretold.steady_state.period_s, rel=1e-9)
    assert run.summary["virtual_time_s"] == pytest.approx(
        9 * foretold.steady_state.period_s, rel=0.1
    )


def test_a_fleet_spends_the_energy_that_was_foretold(both):
    foretold, rounds, _ = both
    last = rounds[rounds["round"] == 8].set_index("device")
    for device in foretold.devices:
        energy = device.energy_by("profile")
        assert last.loc[device.device, "energy_compute_j"] == pytest.approx(energy.compute_j)
        assert last.loc[device.device, "energy_radio_j"] == pytest.approx(energy.radio_j)
        assert last.loc[device.device, "energy_idle_j"] == pytest.approx(energy.idle_j)
        assert last.loc[device.device, "energy_j"] == pytest.approx(energy.total_j)


def test_sparse_messages_are_of_nearly_the_foretold_length(tmp_path):
    scenario = small(tmp_path, "training.rounds=2")
    foretold = iteration_costs(scenario).message
    run = ran(tmp_path, scenario)
    sent = pd.read_parquet(run.path / "messages.parquet")["bytes"]
    assert not foretold.is_exact
    assert sent.to_numpy() == pytest.approx(foretold.encoded.total, rel=0.02)


@pytest.mark.parametrize("overrides", [(), INT8], ids=["fp32", "int8"])
def test_counted_layers_and_measured_memory_are_those_foretold(tmp_path, overrides):
    """A real model on a real batch, for a device with one neighbour either way."""
    scenario = small(tmp_path, *overrides)
    costs = iteration_costs(scenario)
    model, device = make_flat_model(scenario, DIGITS, PLAIN), costs.devices[0]
    for seed_ in (seed_dropout_, seed_rounding_):
        seed_(model.leaf_modules, 1)
    images, labels = torch.randn(16, 1, 8, 8), torch.arange(16) % 10
    meter = WorkMeter(model)
    with meter.watch(images.shape):
        model.loss_and_gradient(images, labels)
    counted = meter.work(images.shape)
    assert counted.forward == device.work.forward
    assert counted.input_gradient == device.work.input_gradient
    assert counted.weight_gradient == device.work.weight_gradient
    measured = measure_device_memory(
        model=model,
        batch=(images, labels),
        optimizer=make_optimizer(scenario),
        algorithm=costs.studied.algorithm,
        out_edges=[OutEdge(1, 0.5)],
        in_weights={3: 0.5},
    )
    assert device.faithful_memory.total == pytest.approx(measured.at_peak.total, rel=0.02)


def test_dense_messages_are_known_to_the_byte(tmp_path):
    header = HEADER.size + len("choco")
    for values, value_bytes, scale_bytes in (("fp32", 4, 0), ("fp16", 2, 0), ("int8", 1, 4)):
        dense = f"gossip.compressor={{kind: identity, values: {values}}}"
        message = iteration_costs(small(tmp_path, dense)).message
        # Four layers: three convolutions, each with a norm of three parameters, and a linear one.
        by_hand = value_bytes * PARAMETERS + scale_bytes * (3 * (1 + 3) + 2) + header
        assert message.encoded.total == by_hand
        assert message.is_exact
    assert message.by_convention["reference"] == 4 * (PARAMETERS + 1)


@pytest.mark.parametrize(
    "compressor",
    ["{kind: qsgd, bits: 3}", "{kind: min_max_uint8}", "{kind: sign_scale}"],
)
def test_other_compressors_are_really_encoded_too(tmp_path, compressor):
    message = iteration_costs(small(tmp_path, f"gossip.compressor={compressor}")).message
    assert message.is_exact
    assert message.encoded.indices == 0
    bits = {"qsgd": 4, "min_max_uint8": 8, "sign_scale": 1}[message.compressor]
    assert message.encoded.values == -(-bits * PARAMETERS // 8)
    known = {"qsgd": {"reference"}, "min_max_uint8": {"bagua"}}
    assert set(message.by_convention) == known.get(message.compressor, set())


def test_scales_of_buckets_are_counted(tmp_path):
    """Buckets of ten entries, the last of each tensor shorter."""
    buckets = "gossip.compressor={kind: qsgd, bits: 3, bucket_size: 10}"
    studied = small(tmp_path, buckets)
    costs = iteration_costs(studied)
    sizes = costs.studied.algorithm.layout.sizes
    assert sum(sizes) == PARAMETERS
    assert costs.message.encoded.scales == 4 * sum(-(-size // 10) for size in sizes)


def test_without_profiles_operations_have_prices_and_nothing_else(tmp_path):
    costs = iteration_costs(small(tmp_path))
    device, work = costs.devices[0], costs.devices[0].work.total
    assert costs.steady_state is None
    assert device.time is None
    assert device.fits is None
    assert costs.energy_table == "horowitz_45nm"
    assert {entry.table for entry in device.energy} == set(ENERGY_TABLES)
    energy = device.energy_by("horowitz_45nm")
    # 4.6 pJ a MAC and 0.9 pJ another operation (reference.md, section 6), 1.3 nJ for 8 bytes
    # (Horowitz 2014).
    by_hand = work.macs_fp32 * 4.6e-12 + work.elementwise_ops * 0.9e-12
    assert energy.compute_j == pytest.approx(by_hand)
    assert energy.memory_j == pytest.approx(work.traffic_bytes * 162.5e-12)
    assert energy.radio_j is None
    assert energy.total_j == energy.compute_j + energy.memory_j


def test_every_price_list_agrees_with_the_one_that_runs_are_priced_by(tmp_path):
    costs = iteration_costs(small(tmp_path, *MIXED, *INT8))
    device = costs.devices[3]
    cycle = device.time.cycle
    activity = Activity(
        work=device.work.total,
        sent_bytes=costs.message.encoded.total,
        received_bytes=costs.message.encoded.total,
        compute_s=cycle.compute_s,
        wait_s=cycle.wait_s,
    )
    assert len(device.energy) == 1 + len(ENERGY_TABLES) * 2 * 2
    for entry in device.energy:
        table = ENERGY_TABLES.get(entry.table)
        priced = price(activity, device.profile, table, entry.accumulate, entry.memory)
        assert entry.total_j == pytest.approx(priced.total_j, rel=1e-12)
        assert entry.compute_j == pytest.approx(priced.compute_j, rel=1e-12)


def test_the_slow_device_of_a_fleet_sets_the_pace(tmp_path):
    """Three Raspberry Pi 4B and a Zero 2 W, whose arithmetic takes 1.5 times as long."""
    costs = iteration_costs(small(tmp_path, *MIXED, "data.batch_size=48"))
    steps_s = [device.time.roofline_s for device in costs.devices]
    assert steps_s[3] > max(steps_s[:3])
    assert costs.steady_state.busiest == 3
    assert costs.steady_state.is_settled
    work, profile = costs.devices[3].work.total, costs.devices[3].profile
    time = costs.devices[3].time
    assert time.arithmetic_s == pytest.approx(work.macs_fp32 / profile.fp32_macs_per_s)
    assert time.memory_s == pytest.approx(work.traffic_bytes / profile.memory_bandwidth)
    assert time.roofline_s == max(time.arithmetic_s, time.memory_s)


def test_the_middle_of_a_star_does_more_than_its_ends(tmp_path):
    middle, *ends = iteration_costs(small(tmp_path, "topology.kind=star")).devices
    assert (middle.messages_sent, middle.messages_received) == (3, 3)
    assert {(end.messages_sent, end.messages_received) for end in ends} == {(1, 1)}
    assert middle.work.forward == ends[0].work.forward
    assert middle.work.gossip.traffic_bytes > ends[0].work.gossip.traffic_bytes
    # Messages of the last round, which may not have arrived, and one on its way in from each.
    assert middle.faithful_memory.send_buffers > ends[0].faithful_memory.send_buffers
    assert middle.faithful_memory.mailbox == 3 * ends[0].faithful_memory.mailbox


def test_on_changing_graphs_choco_holds_a_copy_for_every_neighbour(tmp_path):
    """Random matchings of five devices: one rests in each round, any two may meet."""
    overrides = ("topology.kind=random_matching", "fleet.devices=5", "topology.hold=1")
    devices = iteration_costs(small(tmp_path, *overrides)).devices
    for device in devices:
        assert device.faithful_memory.gossip_state == (4 + 4) * 4 * PARAMETERS
    assert sum(device.messages_sent for device in devices) == pytest.approx(4.0)


def test_training_is_counted_in_rounds_of_the_published_number_of_samples(tmp_path):
    """1,442 digits to train on, 4 devices, batch 16: ceil(360.5 / 16) = 23 rounds an epoch."""
    costs = iteration_costs(small(tmp_path, "data.train_samples=null"))
    assert costs.studied.num_rounds == 4 * 23
    prepared = prepare(small(tmp_path, "data.train_samples=null"))
    assert prepared.training.num_rounds == costs.studied.num_rounds
    assert iteration_costs(small(tmp_path, "training.rounds=7")).studied.num_rounds == 7


def test_the_shapes_of_data_that_need_no_reading_are_right():
    digits = open_dataset("digits", None)
    known = data_shape(DataSection(source="digits", partition={"kind": "iid"}, batch_size=1))
    assert known.image_shape == digits.image_shape
    assert known.num_classes == digits.num_classes
    assert known.num_train == len(digits.train)
    larger = DataSection(
        source="cifar10", partition={"kind": "iid"}, batch_size=1, image_size=64, path="nowhere"
    )
    assert data_shape(larger).image_shape == (3, 64, 64)


def test_what_can_not_be_known_or_not_be_is_refused(tmp_path):
    with pytest.raises(DataError, match=r"data\.image_size is missing"):
        iteration_costs(small(tmp_path, "data.source=imagenette", "data.train_samples=null"))
    with pytest.raises(DataError, match="only 1442 training samples; lower it"):
        iteration_costs(small(tmp_path, "data.train_samples=2000"))
    with pytest.raises(DataError, match=r"data\.path: .*nowhere"):
        iteration_costs(small(tmp_path, "data.source=parquet", "data.path=nowhere"))
    with pytest.raises(ScenarioError, match=r"model: vgg11 .* data\.image_size"):
        iteration_costs(small(tmp_path, "model.name=vgg11"))
    with pytest.raises(ScenarioError, match=r"fleet\.devices is 1500, .* lower it"):
        iteration_costs(small(tmp_path, "fleet.devices=1500", "data.train_samples=null"))


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (
            ("topology={kind: star}", "gossip={algorithm: fedavg}", "training.rounds=25"),
            r"training\.rounds is 25; .* must be a multiple of 2",
        ),
        (("gossip.local_steps=30",), r"gossip\.local_steps: not strongly connected"),
        (
            ("training.virtual_time_s=1", "evaluation.every_virtual_s=0.001", "fleet.pace=free"),
            "evaluation.every_virtual_s is 0.001: more evaluations",
        ),
    ],
    ids=["half an average", "no exchange", "evaluations"],
)
def test_what_a_run_refuses_for_its_length_is_refused(tmp_path, settings, said):
    rounds = ("training.epochs=null", "training.rounds=24", "evaluation.every_rounds=null")
    with pytest.raises(ScenarioError, match=said):
        iteration_costs(small(tmp_path, *MIXED, *rounds, *settings))


def test_a_run_is_refused_by_its_own_rounds_alone():
    """By those of all samples of the dataset it would have more evaluations than are allowed."""
    few = {"data__train_samples": 128, "training__epochs": 20000}
    checked = edgesim.validate("quickstart", **few, evaluation={"every_rounds": 1})
    assert len(checked.prepared.training.evaluation_rounds) == 20000
    costs = edgesim.cost("quickstart", advice=False, **few, evaluation={"every_rounds": 1})
    assert costs.study.costs.studied.num_rounds == 20000


def test_fleets_at_free_pace_that_come_and_go_and_die_have_costs(tmp_path):
    """Those of a device that is there; and the table says whose battery is empty first."""
    board = "{profile: raspberry-pi-4b"
    devices = f"devices: [{board}, count: 3}}, {board}, battery_wh: 0.001}}], pace: free"
    churn = (
        "churn: {absent: [{device: 1, from_s: 1, until_s: 9}], joins: [{device: 2, at_s: 5}], "
        "leaves: [{device: 0, at_s: 7}], random: {absence_probability: 0.2, mean_absence_s: 3}}"
    )
    graph = "topology.kind=complete"
    plain = iteration_costs(small(tmp_path, f"fleet={{{devices}}}", graph))
    churning = iteration_costs(small(tmp_path, f"fleet={{{devices}, {churn}}}", graph))
    assert churning.devices == plain.devices
    assert churning.steady_state == plain.steady_state
    rows = dict(fleet_table(churning).rows)
    rounds = 0.001 * 3600 / plain.devices[3].energy_by("profile").total_j
    assert rows["first empty battery"] == f"device 3, after {int(rounds):,} rounds"
    assert all(entry.idle_j == 0 for entry in plain.devices[0].energy)


def test_a_fleet_at_free_pace_does_as_was_foretold(tmp_path, monkeypatch):
    """A message takes ten steps, so that radios skip most rounds; and no device waits."""
    monkeypatch.setattr(
        "edgesim.study.rounds.steady_state.FEW_EVENTS", 0
    )  # a long training's forecast
    monkeypatch.setattr("edgesim.study.rounds.free_pace._ROUNDS", 64)
    monkeypatch.setattr("edgesim.study.rounds.free_pace._MESSAGES", 4)
    free = ("fleet.pace=free", "training.epochs=null", "training.rounds=200")
    scenario = small(tmp_path, *MIXED, *free, DENSE)
    foretold = iteration_costs(scenario)
    run = ran(tmp_path, scenario)
    rounds = pd.read_parquet(run.path / "rounds.parquet")
    for device in foretold.devices:
        own = rounds[rounds["device"] == device.device].sort_values("round").iloc[:-1]
        cycle = device.time.cycle
        assert cycle.wait_s == own["virtual_wait_s"].sum() == 0
        assert device.messages_sent < 0.2
        # Each training holds a message more or less.
        assert own["messages_sent"].mean() == pytest.approx(device.messages_sent, abs=0.01)
        assert own["messages_absorbed"].mean() == pytest.approx(device.messages_received, abs=0.01)
        assert own["virtual_time_s"].iloc[-1] / 199 == pytest.approx(cycle.period_s, rel=0.01)
        used_j = own[["energy_compute_j", "energy_radio_j", "energy_idle_j"]].sum(axis=1)
        assert used_j.mean() == pytest.approx(device.energy_by("profile").total_j, rel=0.1)


def test_who_ends_early_at_free_pace_waits_for_the_others_as_was_foretold(tmp_path, monkeypatch):
    """Devices 0 and 2 end long before device 3, which sends to them until it ends; 1 does not."""
    monkeypatch.setattr(
        "edgesim.study.rounds.steady_state.FEW_EVENTS", 0
    )  # a long training's forecast
    free = ("fleet.pace=free", "training.epochs=null", "training.rounds=400")
    scenario = small(tmp_path, *MIXED, *free, "topology.kind=ring")
    costs = iteration_costs(scenario)
    training = training_of(costs)
    run = ran(tmp_path, scenario)
    rounds = pd.read_parquet(run.path / "rounds.parquet")
    last = rounds[rounds["round"] == 399].set_index("device")
    waits_s = training.last_wait_s
    assert min(waits_s[0], waits_s[2]) > 0.4 * training.seconds
    for device in (0, 2):
        cycle = costs.devices[device].time.cycle
        between_s = cycle.period_s / cycle.absorbed_from[3]
        assert between_s < 0.25 * waits_s[device]
        assert last["virtual_wait_s"][device] == pytest.approx(waits_s[device], abs=between_s)
    assert waits_s[1] < 0.1 * waits_s[0]
    assert waits_s[3] == 0
    used_j = run.summary["energy_j"]
    assert sum(training.energy_j) == pytest.approx(used_j, rel=0.05)
    assert sum(training.last_wait_j) > 0.1 * used_j


def test_the_bound_of_an_index_code_counts_all_vectors_of_a_message(tmp_path):
    """A message of BEER has two; the summary has the sum over messages, a study that of one."""
    gossip = "{algorithm: beer, averaging_rate: 0.1, compressor: {kind: top_k, keep: 0.1}}"
    scenario = small(tmp_path, "topology={kind: ring}", f"gossip={gossip}")
    foretold = iteration_costs(scenario).message.index_entropy_bytes
    summary = ran(tmp_path, scenario).summary
    messages = summary["messages_sent"]
    assert summary["index_entropy_bytes"] == pytest.approx(messages * foretold, rel=1e-12)


def test_fractions_of_a_byte_a_round_have_their_energy(tmp_path):
    """With an exchange in 1,000 rounds a device sends a few bytes a round in the mean."""
    rounds = ("training.epochs=null", "training.rounds=2000", "fleet.profile=raspberry-pi-4b")
    overrides = ("gossip.compressor={kind: sign_scale}", "gossip.local_steps=1000")
    costs = iteration_costs(small(tmp_path, *rounds, *overrides))
    device = costs.devices[0]
    radio = device.profile.radio
    expected_j = device.sent_bytes * radio.send_j_per_byte
    expected_j += device.received_bytes * radio.receive_j_per_byte
    assert device.sent_bytes % 1
    assert device.energy_by("profile").radio_j == pytest.approx(expected_j, rel=1e-12)
