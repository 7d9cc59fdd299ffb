"""The promises of the methods for skewed data and of the baselines, in small real fleets."""

from __future__ import annotations

import pytest
from faulty_hosts import run_hosts
from interrupted_runs import resumed
from small_fleets import assert_same_bits, outcome, prepared, train

from edgesim.compression.wire import HEADER
from edgesim.errors import ScenarioError

RING, CHAIN = "topology.kind=ring", "topology={kind: chain}"
METHODS = {
    "choco_iclr": (
        "gossip={algorithm: choco_iclr, averaging_rate: 0.2, compressor: {kind: top_k, keep: 0.2}}",
    ),
    "beer": (
        "gossip={algorithm: beer, averaging_rate: 0.2, compressor: {kind: top_k, keep: 0.2}}",
        "training.schedule={milestones: [1]}",
    ),
    "d2": (RING, "gossip={algorithm: d2, averaging_rate: 0.9}"),
    "gradient_tracking": ("gossip={algorithm: gradient_tracking}",),
    "momentum_tracking": (
        "gossip={algorithm: momentum_tracking}",
        "training.schedule={milestones: [1]}",
    ),
    "gut": (RING, "gossip={algorithm: gut}", "training.schedule={milestones: [1]}"),
    "qg_gutm": (
        RING,
        "gossip={algorithm: gut, options: {mu: 0.06, momentum: 0.9}}",
        "training.optimizer={lr: 0.05, momentum: 0, nesterov: false}",
    ),
    "relay_sgd": (CHAIN, "gossip={algorithm: relay_sgd}"),
}
WHOLE_CYCLES = ("training.rounds=12", "evaluation={every_rounds: 6, samples: 50}")
METHODS |= {
    "all_reduce": (*WHOLE_CYCLES, "gossip={algorithm: all_reduce}"),
    "local_sgd": (
        "training.rounds=16",
        "evaluation={every_rounds: 8, samples: 50}",
        "gossip={algorithm: all_reduce, local_steps: 3}",
    ),
    "fedavg": (
        *WHOLE_CYCLES,
        "topology={kind: star}",
        "gossip={algorithm: fedavg, local_steps: 2, participation: 0.5}",
    ),
}
COMPLETE = "topology={kind: complete}"
METHODS |= {
    "bagua": (COMPLETE, "gossip={algorithm: bagua_low_precision, local_steps: 2}"),
    "bagua_sites": (
        COMPLETE,
        "training.rounds=16",
        "evaluation={every_rounds: 8, samples: 50}",
        "gossip={algorithm: bagua_low_precision, sites: 2, local_steps: 2, bucket_bytes: 20000}",
    ),
    "bagua_one_site": (
        *WHOLE_CYCLES,
        COMPLETE,
        "gossip={algorithm: bagua_low_precision, sites: 1}",
    ),
    "bagua_all": (COMPLETE, "gossip={algorithm: bagua_decentralized, local_steps: 2}"),
    "bagua_pairs": (COMPLETE, "gossip={algorithm: bagua_decentralized, peers: shift_one}"),
    "bagua_pairs_of_sites": (
        *WHOLE_CYCLES,
        COMPLETE,
        "gossip={algorithm: bagua_decentralized, peers: shift_one, sites: [0, 1, 1, 0]}",
    ),
}
MESSAGES = {  # of 4 devices in 6 rounds, and vectors in each
    "d2": (4 * 2 * 6, 1),
    "gradient_tracking": (4 * 6, 2),
    "momentum_tracking": (4 * 6, 2),
    "gut": (4 * 2 * 6, 1),
    "relay_sgd": (2 * 3 * 6, 1),
}


def message_bytes(name, entries):
    return 4 * entries + HEADER.size + len(name)


@pytest.mark.parametrize("method", METHODS)
def test_packed_and_over_a_faulty_network_the_bits_are_those_of_one_process(tmp_path, runs, method):
    calm = runs.calm(*METHODS[method])
    xs = run_hosts(tmp_path / "hosts", 1, [[0, 2], [1, 3]], *METHODS[method])
    _, _, models = outcome(calm)
    for device, x in enumerate(xs):
        assert models[f"device-{device:06d}/x"].tobytes() == x.tobytes()


@pytest.mark.ray
@pytest.mark.parametrize("method", ["all_reduce", "gradient_tracking", "bagua_sites"])
def test_as_actors_the_bits_are_those_of_one_process(tmp_path, runs, started_ray, method):
    """Messages of chunks, of two vectors, and of two layouts, between processes."""
    packed = train(tmp_path, "run", *METHODS[method], "fleet.devices_per_actor=2")
    assert_same_bits(runs.calm(*METHODS[method]), packed)


@pytest.mark.parametrize("method", METHODS)
def test_killed_and_resumed_the_bits_are_those_of_an_undisturbed_run(tmp_path, runs, method):
    runs.interrupted(tmp_path / "run", *METHODS[method], at_step=15)
    assert_same_bits(runs.calm(*METHODS[method]), resumed(tmp_path))


@pytest.mark.parametrize("method", MESSAGES)
def test_bytes_are_those_of_the_closed_form(runs, method):
    rounds, _, models = outcome(runs.calm(*METHODS[method]))
    messages, vectors = MESSAGES[method]
    size = message_bytes(method, vectors * len(models["device-000000/x"]))
    assert rounds["messages_sent"].sum() == messages
    assert rounds["sent_bytes"].sum() == messages * size
    assert rounds["received_bytes"].sum() == messages * size


@pytest.mark.parametrize("method", ["all_reduce", "local_sgd"])
def test_an_all_reduce_sends_two_models_less_two_chunks_a_device_and_leaves_equal_bits(
    runs, method
):
    """In 2 (n - 1) messages; the figures of 4 devices and two averages."""
    rounds, _, models = outcome(runs.calm(*METHODS[method]))
    x = models["device-000000/x"]
    ends = [(c + 1) * len(x) // 4 for c in range(4)]
    chunks = [end - start for start, end in zip([0, *ends], ends, strict=False)]
    one_average = 2 * 3 * sum(message_bytes("all_reduce", chunk) for chunk in chunks)
    assert rounds["sent_bytes"].sum() == 2 * one_average
    assert all(models[f"device-{d:06d}/x"].tobytes() == x.tobytes() for d in range(4))


def test_fedavg_sends_a_model_up_and_one_down_for_each_device_that_trains(tmp_path, runs):
    """Two of four train in each cycle of three rounds; the others hold no model and step not."""
    rounds, _, models = outcome(runs.calm(*METHODS["fedavg"]))
    star = prepared(tmp_path, *METHODS["fedavg"]).schedule
    messages = sum(len(star.drawn(c) - {0}) + len(star.drawn(c + 1) - {0}) for c in range(4))
    assert messages > 0
    x = models["device-000000/x"]
    assert rounds["sent_bytes"].sum() == messages * message_bytes("fedavg", len(x))
    for (device, r), row in rounds.set_index(["device", "round"]).iterrows():
        assert (row["loss"] == row["loss"]) == (r % 3 < 2 and device in star.drawn(r // 3))
    for device in range(1, 4):
        has_model = device in star.drawn(4)
        assert models[f"device-{device:06d}/u"] == has_model
        assert not has_model or models[f"device-{device:06d}/x"].tobytes() == x.tobytes()


@pytest.mark.parametrize(
    ("method", "steps", "sent"),
    [  # of 4 devices: exchanges, and messages of differences and of vectors in each
        ("bagua", 3, (8, 0)),  # left and right
        ("bagua_sites", 4, (2, 4)),  # one member up and one down in each of two sites
        ("bagua_one_site", 4, (0, 6)),
        ("bagua_all", 3, (0, 12)),
        ("bagua_pairs", 6, (0, 4)),
        ("bagua_pairs_of_sites", 4, (0, 6)),
    ],
)
def test_bagua_sends_a_difference_of_bytes_among_leaders_and_fp32_within_sites(
    tmp_path, runs, method, steps, sent
):
    rounds, _, models = outcome(runs.calm(*METHODS[method]))
    entries = len(models["device-000000/x"])
    run = prepared(tmp_path, *METHODS[method])
    num_buckets = 1
    if method == "bagua_sites":  # filled from the last parameter on
        num_buckets, filled = 0, 0
        for size in reversed(run.layout.sizes):
            filled += 4 * size
            if filled >= 20_000:
                num_buckets, filled = num_buckets + 1, 0
        num_buckets += filled > 0
        assert num_buckets > 1
    header = HEADER.size + len(run.scenario.gossip.algorithm)
    of_differences, of_vectors = header + 8 * num_buckets + entries, header + 4 * entries
    size = sent[0] * of_differences + sent[1] * of_vectors
    assert rounds["messages_sent"].sum() == steps * sum(sent)
    assert rounds["sent_bytes"].sum() == rounds["received_bytes"].sum() == steps * size
    equal = [models[f"device-{d:06d}/x"].tobytes() for d in range(4)]
    if method == "bagua_one_site":
        assert len(set(equal)) == 1


def test_a_further_average_of_all_models_leaves_them_equal(runs):
    """Bagua's models differ by their last steps, here those of a second step without exchange."""
    summary = runs.calm(*METHODS["bagua_all"], "evaluation.gossip_rounds=1").summary
    assert summary["consensus_distance"] > 1e-3
    assert summary["after_gossip_consensus_distance"] < 1e-6


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        (("topology.kind=ring", "gossip={algorithm: d2}"), "averaging_rate below 1"),
        (("gossip={algorithm: d2}",), "topology.kind is directed_ring.*d2"),
        (
            (RING, "gossip={algorithm: gut, compressor: {kind: top_k, keep: 0.1}}"),
            "gossip.compressor.kind is top_k; .*gut sends whole vectors",
        ),
        (
            ("gossip={algorithm: gradient_tracking, compressor: {kind: identity, values: int8}}",),
            "gossip.compressor.values is int8",
        ),
        (("gossip={algorithm: relay_sgd}",), "tree"),
        (("topology={kind: star}", "gossip={algorithm: gradient_tracking}"), "metropolis"),
        (("topology={kind: exponential}", "gossip={algorithm: gut}"), "topology.kind"),
        (("topology={kind: random_matching}", "gossip={algorithm: gradient_tracking}"), "fixed"),
        (
            (
                "fleet={devices: [{profile: raspberry-pi-4b, count: 4}], pace: free}",
                "gossip={algorithm: momentum_tracking}",
            ),
            "fleet.pace is free; gossip.algorithm: momentum_tracking",
        ),
        (
            (
                "fleet={devices: [{profile: raspberry-pi-4b, count: 4, battery_wh: 1}]}",
                "gossip={algorithm: choco_iclr, averaging_rate: 0.2}",
            ),
            "battery",
        ),
        (
            (
                "fleet.churn={absent: [{device: 1, from_round: 2, until_round: 4}]}",
                "gossip={algorithm: gradient_tracking}",
            ),
            "fleet.churn is set; gossip.algorithm: gradient_tracking",
        ),
        ((RING, "gossip={algorithm: gut, options: {mu: 2}}"), r"options.mu is 2; must be"),
        ((RING, *WHOLE_CYCLES, "gossip={algorithm: all_reduce}"), "use kind: directed_ring"),
        ((*WHOLE_CYCLES, "gossip={algorithm: fedavg}"), "use kind: star"),
        (("gossip={algorithm: all_reduce}", "training.rounds=7"), "training.rounds is 7"),
        (
            (
                *WHOLE_CYCLES,
                "gossip={algorithm: all_reduce}",
                "training.optimizer.momentum_kind=quasi_global",
            ),
            "momentum_kind is quasi_global",
        ),
        (
            (
                "fleet={devices: [{profile: raspberry-pi-4b, count: 4}], pace: free}",
                *WHOLE_CYCLES,
                "topology={kind: star}",
                "gossip={algorithm: fedavg}",
            ),
            "fleet.pace is free; gossip.algorithm: fedavg",
        ),
        (
            ("gossip={algorithm: bagua_low_precision, sites: 2}",),
            "no such link; use kind: complete",
        ),
        (
            (COMPLETE, "gossip={algorithm: bagua_low_precision, sites: 3}"),
            "gossip.sites: 4 devices can't be divided among 3 equal sites",
        ),
        (
            (COMPLETE, "gossip={algorithm: bagua_decentralized, sites: [0, 0, 2, 2]}"),
            "gossip.sites: the sites have the numbers 0, 2; must be 0, 1, 2",
        ),
        (
            (COMPLETE, "gossip={algorithm: bagua_decentralized, sites: [0, 0, 1]}"),
            "gossip.sites has 3 items; must have one for each of the 4 devices",
        ),
        (
            (COMPLETE, "gossip={algorithm: bagua_decentralized, sites: nodes}"),
            "gossip.sites is nodes; .* fleet.placement: auto, or set by_node",
        ),
        (
            (
                COMPLETE,
                "training.rounds=12",
                "gossip={algorithm: bagua_decentralized, sites: [0, 0, 1, 2], peers: shift_one}",
            ),
            "gossip.peers is shift_one, which pairs sites; there are 3",
        ),
        (
            (
                COMPLETE,
                "fleet.devices=3",
                "gossip={algorithm: bagua_decentralized, peers: shift_one}",
            ),
            "gossip.peers is shift_one, which pairs devices; there are 3",
        ),
        (
            ("topology={kind: random_matching}", "gossip={algorithm: bagua_low_precision}"),
            "choose a fixed graph",
        ),
        (
            (
                COMPLETE,
                "fleet={devices: [{profile: raspberry-pi-4b, count: 4}], pace: free}",
                "gossip={algorithm: bagua_low_precision}",
            ),
            "fleet.pace is free; gossip.algorithm: bagua_low_precision",
        ),
        (
            (
                COMPLETE,
                "fleet.churn={absent: [{device: 1, from_round: 2, until_round: 4}]}",
                "gossip={algorithm: bagua_low_precision}",
            ),
            "fleet.churn is set; gossip.algorithm: bagua_low_precision",
        ),
        (
            (
                COMPLETE,
                "fleet={devices: [{profile: raspberry-pi-4b, count: 4, battery_wh: 1}]}",
                "gossip={algorithm: bagua_low_precision}",
            ),
            "battery",
        ),
        (
            (
                *WHOLE_CYCLES,
                COMPLETE,
                "gossip={algorithm: bagua_low_precision, sites: 2}",
                "training.optimizer.momentum_kind=quasi_global",
            ),
            "momentum_kind is quasi_global",
        ),
        (
            (
                *WHOLE_CYCLES,
                COMPLETE,
                "evaluation.gossip_rounds=2",
                "gossip={algorithm: bagua_low_precision, sites: 2}",
            ),
            "whose averages take several rounds",
        ),
        (
            (COMPLETE, "training.rounds=7", "gossip={algorithm: bagua_low_precision, sites: 2}"),
            "training.rounds is 7; .* takes 3 rounds",
        ),
    ],
)
def test_what_a_method_is_not_made_for_is_refused_by_name(tmp_path, overrides, said):
    with pytest.raises(ScenarioError, match=said) as refused:
        prepared(tmp_path, *overrides)
    assert "\n" not in str(refused.value)
