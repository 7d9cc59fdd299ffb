"""The promises of the methods for skewed data and of the baselines, in small real fleets."""

from __future__ import annotations

import pytest
from faulty_hosts import run_hosts
from interrupted_runs import resumed
from small_fleets import assert_same_bits, outcome, prepared

from edgesim.compression.wire import HEADER
from edgesim.errors import ScenarioError

RING, CHAIN = "topology.kind=ring", "topology={kind: chain}"
METHODS = {
    "choco_iclr": (
        "gossip={algorithm: choco_iclr, averaging_rate: 0.2, compressor: {kind: top_k, keep: 0.2}}",
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
MESSAGES = {  # of 4 devices in 6 rounds, and vectors in each
    "d2": (4 * 2 * 6, 1),
    "gradient_tracking": (4 * 6, 2),
    "momentum_tracking": (4 * 6, 2),
    "gut": (4 * 2 * 6, 1),
    "relay_sgd": (2 * 3 * 6, 1),
}


@pytest.mark.parametrize("method", METHODS)
def test_packed_and_over_a_faulty_network_the_bits_are_those_of_one_process(tmp_path, runs, method):
    calm = runs.calm(*METHODS[method])
    xs = run_hosts(tmp_path / "hosts", 1, [[0, 2], [1, 3]], *METHODS[method])
    _, _, models = outcome(calm)
    for device, x in enumerate(xs):
        assert models[f"device-{device:06d}/x"].tobytes() == x.tobytes()


@pytest.mark.parametrize("method", METHODS)
def test_killed_and_resumed_the_bits_are_those_of_an_undisturbed_run(tmp_path, runs, method):
    runs.interrupted(tmp_path / "run", *METHODS[method], at_step=15)
    assert_same_bits(runs.calm(*METHODS[method]), resumed(tmp_path))


@pytest.mark.parametrize("method", MESSAGES)
def test_bytes_are_those_of_the_closed_form(runs, method):
    rounds, _, models = outcome(runs.calm(*METHODS[method]))
    messages, vectors = MESSAGES[method]
    size = 4 * vectors * len(models["device-000000/x"]) + HEADER.size + len(method)
    assert rounds["messages_sent"].sum() == messages
    assert rounds["sent_bytes"].sum() == messages * size
    assert rounds["received_bytes"].sum() == messages * size


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
    ],
)
def test_what_a_method_is_not_made_for_is_refused_by_name(tmp_path, overrides, said):
    with pytest.raises(ScenarioError, match=said) as refused:
        prepared(tmp_path, *overrides)
    assert "\n" not in str(refused.value)
