"""Scenarios that don't fit their devices are refused, with what would make them fit."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgesim.api.checks import check
from edgesim.assembly.budget import check_memory, memory_of_devices
from edgesim.errors import ScenarioError
from edgesim.scenario import Scenario, load_scenario

ROOT = Path(__file__).parents[2]


def scenario(*overrides: str) -> Scenario:
    return load_scenario(ROOT / "scenarios" / "cifar10_ring8.yaml", overrides)


def refusal(*overrides: str) -> str:
    with pytest.raises(ScenarioError) as caught:
        check_memory(scenario(*overrides))
    return str(caught.value)


def test_what_fits_and_what_has_no_profile_passes():
    assert check_memory(scenario()) is None
    assert check_memory(scenario("fleet.profile=raspberry-pi-4b")) is None


def test_a_refusal_has_the_table_and_what_would_fit():
    text = refusal("fleet.profile=gap9")
    needed = memory_of_devices(scenario())[0]
    assert f"has 32 MiB and needs {needed.total / 2**20:.3g} MiB" in text
    assert f"activations {needed.activations / 2**20:.3g} MiB" in text
    assert "so do 7 more devices" in text
    assert len(text.splitlines()) == 2


def test_what_is_said_to_fit_fits_and_one_sample_more_does_not():
    text = refusal("fleet.profile=gap9")
    batch_size = int(text.partition("data.batch_size: ")[2].split()[0])
    assert check_memory(scenario("fleet.profile=gap9", f"data.batch_size={batch_size}")) is None
    refusal("fleet.profile=gap9", f"data.batch_size={batch_size + 1}")
    assert "or model.precision: int8;" in text
    assert check_memory(scenario("fleet.profile=gap9", "model.precision=int8")) is None


def test_a_norm_of_fp32_is_part_of_what_has_to_change():
    """Eight bits alone would leave it in fp32, and the model would not fit."""
    pinned = ("fleet.profile=gap9", "model.norm=evonorm_s0")
    assert "or model.precision: int8 with model.norm: null;" in refusal(*pinned)
    assert check_memory(scenario(*pinned, "model.precision=int8", "model.norm=null")) is None
    refusal(*pinned, "model.precision=int8")


def test_only_the_devices_that_are_short_are_named():
    devices = "fleet.devices=[{profile: raspberry-pi-4b, count: 7}, {profile: gap9}]"
    text = refusal(devices)
    assert "fleet: device 7, gap9, has" in text
    assert "so do" not in text


def test_where_nothing_helps_it_is_said():
    assert "a smaller model, or devices with more memory" in refusal(
        "fleet={devices: 8, profile: gap9}",
        "hardware.profiles=[]",
        "fleet.devices=[{profile: gap9, count: 8, memory_mib: 1}]",
        "fleet.profile=null",
    )


def test_a_warning_goes_on():
    text = check_memory(scenario("fleet.profile=gap9", "fleet.enforce_memory=warn"))
    assert text is not None
    assert "enforce_memory" not in text


def test_small_memory_has_a_small_unit():
    text = refusal("fleet.devices=[{profile: gap9, count: 8, memory_mib: 0.02}]")
    assert "has 20.5 KiB and needs" in text
    assert " 0.0" not in text


# By the file, a star: the hub keeps copies of five neighbours, a leaf one. Nodes have the order of
# their names, so that the hub is device 5, and the device that the scenario lists first is the hub.
STAR = "source,target\n" + "".join(f"hub,{leaf}\n{leaf},hub\n" for leaf in "abcde")


def star(tmp_path, hub_mib, leaf_mib):
    (tmp_path / "star.csv").write_text(STAR)
    hub = f"{{profile: gap9, name: hub, memory_mib: {hub_mib}}}"
    leaves = f"{{profile: gap9, names: [a, b, c, d, e], memory_mib: {leaf_mib}}}"
    graph = f"topology={{kind: file, path: {tmp_path / 'star.csv'}}}"
    quickstart = ROOT / "scenarios" / "quickstart.yaml"
    return load_scenario(quickstart, [graph, f"fleet.devices=[{hub}, {leaves}]"])


def test_devices_of_a_graph_file_are_checked_and_named_by_their_own_numbers(tmp_path):
    tables = memory_of_devices(star(tmp_path, 32, 32))
    (leaf, *_, hub) = (table.total / 2**20 for table in tables)
    assert leaf < hub, "the hub has more copies"
    between = (leaf + hub) / 2
    assert check(star(tmp_path, 32, between), "star", reads_images=False)
    with pytest.raises(ScenarioError, match=r"fleet: device 5 \(hub\), gap9, has .*\)\n"):
        check(star(tmp_path, between, 32), "star", reads_images=False)


CHOCO, DEEPSQUEEZE = (
    f"gossip={{algorithm: {name}, averaging_rate: 0.5}}" for name in ("choco", "deepsqueeze")
)


def table_of(*overrides: str):
    return memory_of_devices(load_scenario(ROOT / "scenarios" / "quickstart.yaml", overrides))[0]


def test_on_changing_graphs_copies_are_of_the_run_and_messages_of_a_round():
    """In a matching a device meets one peer a round, and all of the seven others in the run."""
    alone = table_of("topology={kind: random_matching}", DEEPSQUEEZE)
    copies = table_of("topology={kind: random_matching}", CHOCO)
    vector = copies.weights
    assert copies.gossip_state == 14 * vector
    assert copies.mailbox == alone.mailbox
    complete = table_of("topology={kind: complete}", DEEPSQUEEZE)
    assert complete.mailbox == 7 * alone.mailbox


@pytest.mark.parametrize("gossip", [CHOCO, DEEPSQUEEZE])
def test_messages_of_devices_that_join_late_have_room(gossip):
    """Later than the rounds of a changing graph that are looked at."""
    joins = "fleet.churn={joins: [{device: 1, round: 300}, {device: 7, round: 300}]}"
    at_once, late = (table_of("topology.kind=complete", gossip, *more) for more in ([], [joins]))
    assert late.mailbox == at_once.mailbox
    assert late.gossip_state >= at_once.gossip_state
