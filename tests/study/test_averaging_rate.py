"""`averaging_rate: auto`: what is found brings devices together, and better than other rates."""

from __future__ import annotations

from functools import cache
from math import inf
from pathlib import Path
from typing import cast

import pytest
from thorough import some

from edgesim.assembly.build import make_schedule
from edgesim.assembly.gossip import make_algorithm, with_rate
from edgesim.assembly.rate_search import search as averaging_rate
from edgesim.assembly.rate_search.search import (
    LEAST_ENTRIES,
    RATES,
    Candidate,
    FoundRate,
    _floor,
    _has_margin,
    _search,
    find_rate,
    rate_notice,
    with_found_rate,
)
from edgesim.assembly.rate_search.search_fleet import MOST_DEVICES, search_fleet
from edgesim.assembly.rate_search.trial import Trials
from edgesim.assembly.studied_scenario import studied_scenario
from edgesim.errors import ScenarioError
from edgesim.learning.parameters import ParameterLayout
from edgesim.scenario import load_scenario

QUICKSTART = Path(__file__).parents[2] / "scenarios" / "quickstart.yaml"
AUTO = "gossip.averaging_rate=auto"
FOUR = "fleet.devices=4"  # where the size of a fleet is not the subject
BOARDS = {"raspberry-pi-4b": 3, "arduino-portenta-h7": 2, "jetson-nano": 1}
GROUPS = ", ".join(f"{{profile: {name}, count: {count}}}" for name, count in BOARDS.items())
UNLIKE = ("fleet.pace=free", f"fleet.devices=[{GROUPS}]")
IRREGULAR = "topology={kind: erdos_renyi, probability: 0.5}"
# A rate of each that is far too large, and one that is far too small.
CASES = {
    "one-way ring, 10 %": ((), 0.5, 0.015),
    "one-way ring, 1 %": (("gossip.compressor.keep=0.01",), 0.12, 0.0027),
    "torus, 10 %": (("topology.kind=torus", "fleet.devices=12"), 0.7, 0.015),
    "irregular digraph, 10 %": ((IRREGULAR,), 0.5, 0.015),
    "irregular digraph, unlike boards at free pace": ((IRREGULAR, *UNLIKE), 0.5, 0.007),
    "ring, DeepSqueeze": (("topology.kind=ring", "gossip.algorithm=deepsqueeze"), 0.5, 0.007),
}


def scenario(*overrides):
    return load_scenario(QUICKSTART, (*overrides, AUTO))


@cache
def found_for(*overrides):
    """What is found, searched once for all tests that only look at it."""
    return find_rate(scenario(*overrides))


def shrinks(given, rate, num_rounds):
    """A longer trial than those of the search, from another start."""
    other = given.model_copy(update={"seed": given.seed + 1})
    layout = ParameterLayout.from_shapes([(1000,)])
    trials = Trials(
        studied_scenario(other), search_fleet(other, 512), layout, num_rounds=num_rounds
    )
    return trials.shrinks(rate)


@pytest.mark.parametrize("case", some(CASES, 3))
def test_it_beats_fixed_rates_that_are_too_large_or_too_small(case):
    overrides, large, small = CASES[case]
    given, found = scenario(*overrides), found_for(*overrides).rate
    assert small < found < large
    best = shrinks(given, found, 150)
    assert best > 0, "it diverges"
    assert best > 1.5 * max(shrinks(given, large, 150), shrinks(given, small, 150))


def test_what_can_do_without_a_lower_rate_gets_1():
    """Uncompressed gossip on a regular graph: reference.md, section 3.7, and SGP as published."""
    for gossip in ("{algorithm: gradient_push, averaging_rate: 1}",):
        assert find_rate(scenario(f"gossip={gossip}")).rate == 1.0
    assert find_rate(scenario("gossip.compressor={kind: identity}")).rate == 1.0


def test_one_device_needs_no_search():
    found = find_rate(scenario("fleet.devices=1"))
    assert (found.rate, str(found)) == (
        1.0,
        "gossip.averaging_rate: auto is 1: one device has no peer",
    )


def test_it_is_the_same_each_time_and_one_of_the_rates_tried():
    first, second = found_for(FOUR), find_rate(scenario(FOUR))
    assert first == second
    assert first.rate in RATES
    assert first.rate in [candidate.rate for candidate in first.candidates]
    assert f"auto found {first.rate:g} " in str(first)
    for candidate in first.candidates:
        assert str(candidate) in str(first)


def test_no_rate_that_was_tried_up_to_twice_as_large_diverges():
    found = found_for(IRREGULAR, "fleet.devices=5")
    assert [c for c in found.candidates if c.shrinks <= 0], "some diverge here"
    for candidate in found.candidates:
        assert candidate.shrinks > 0 or candidate.rate > 2 * found.rate


@pytest.mark.parametrize("place", range(len(RATES)))
def test_the_next_two_larger_rates_are_its_margin(place):
    """Wherever it stands among RATES: their steps are uneven."""
    for smallest_that_grows in range(-1, place + 1):
        tried = [
            Candidate(r, 0.1 if at > smallest_that_grows else -inf) for at, r in enumerate(RATES)
        ]
        assert _has_margin(tried[place], tried) == (
            place - smallest_that_grows > 2 or smallest_that_grows < 0
        )


class MadeUpTrials:
    """Rates up to the limit bring devices together, the best of them fastest."""

    def __init__(self, limit, best):
        self.limit, self.best = limit, best

    def shrinks(self, rate):
        place = RATES.index(rate)
        return -inf if place < self.limit else 0.5 - 0.01 * abs(place - self.best)


@pytest.mark.parametrize("limit", range(len(RATES) - 3))
def test_whatever_is_searched_the_rate_taken_has_a_margin_that_was_tried(limit):
    for best in range(limit, len(RATES)):
        tried = _search(cast("Trials", MadeUpTrials(limit, best)))
        steady = [candidate for candidate in tried if _has_margin(candidate, tried)]
        if not steady:
            continue
        taken = RATES.index(max(steady, key=lambda candidate: candidate.shrinks).rate)
        assert not limit or taken >= limit + averaging_rate.MARGIN


def test_a_rate_of_an_algorithm_that_keeps_a_distance_says_so():
    free = (IRREGULAR, *UNLIKE)
    for overrides, is_told in (
        (("gossip.algorithm=choco_numerator", *free), True),
        (("gossip.algorithm=choco_numerator", "topology.kind=ring"), False),
        (("gossip.algorithm=deepsqueeze", "topology.kind=ring"), True),
        (("gossip.algorithm=deepsqueeze", "gossip.compressor={kind: identity}"), False),
        (free, False),
    ):
        given = scenario(*overrides)
        floor = _floor(given, make_schedule(given))
        text = str(FoundRate(0.1, (), 8, 8, 1000, floor))
        assert (
            "a distance remains, which gossip.algorithm: choco does not have" in text
        ) is is_told
        assert "\n" not in text, "scenario.yaml keeps it in one comment"


def test_the_search_itself_says_so():
    found = found_for("topology.kind=ring", "gossip.algorithm=deepsqueeze", FOUR)
    assert "a distance remains" in found.floor


def test_a_number_stays_and_dcd_has_none():
    given = load_scenario(QUICKSTART)
    assert with_found_rate(given) == (given, None)
    dcd = load_scenario(QUICKSTART, ("topology.kind=ring", "gossip={algorithm: dcd}"))
    assert with_found_rate(dcd) == (dcd, None)


def test_auto_becomes_the_number():
    small = scenario(FOUR)
    resolved, found = with_found_rate(small)
    assert found is not None
    assert resolved == with_rate(small, found.rate)
    assert resolved.gossip.averaging_rate == found.rate
    with pytest.raises(AssertionError, match="finds a number first"):
        make_algorithm(
            scenario(), ParameterLayout.from_shapes([(4,)]), studied_scenario(scenario()).schedule
        )


OWN = """from edgesim.gossip.fixed_graph_choco import FixedGraphChoco, FixedGraphChocoState

class Choco(FixedGraphChoco):
    def init(self, x, in_weights):
        h = x.clone() if {copies} else 0 * x
        return FixedGraphChocoState(x, 1.0, h, sum(in_weights.values()) * h)
"""


@pytest.mark.parametrize("copies", [True, False])
def test_own_public_copies_may_begin_with_the_x_that_all_devices_share(copies, tmp_path):
    (tmp_path / "own.py").write_text(OWN.format(copies=copies))
    own = f"gossip.algorithm={tmp_path}/own.py:Choco"
    found, choco = find_rate(scenario(own, FOUR)), found_for(FOUR)
    assert choco.rate <= found.rate if copies else found == choco


def test_an_own_state_may_go_by_the_number_of_its_device(tmp_path):
    text = OWN.format(copies=False).replace("init(self, x, in", "init_at(self, x, in")
    text = text.replace("weights):", "weights, place):\n        assert place.num_devices == 4")
    text += "    def init(self, x, in_weights):\n        raise NotImplementedError\n"
    (tmp_path / "own.py").write_text(text)
    own = f"gossip.algorithm={tmp_path}/own.py:Choco"
    assert find_rate(scenario(own, FOUR)) == found_for(FOUR)


def test_auto_of_an_own_algorithm_without_a_rate_is_refused_as_it_was_written(tmp_path):
    text = OWN.format(copies=False).replace("    def", "    __init__ = lambda self: None\n    def")
    (tmp_path / "own.py").write_text(text)
    own = f"gossip={{algorithm: {tmp_path}/own.py:Choco, averaging_rate: auto}}"
    with pytest.raises(ScenarioError, match=r"averaging_rate is auto; .* has none: remove it"):
        find_rate(scenario(own))


def test_gossip_that_no_rate_can_save_is_refused():
    """Unbiased QSGD of large tensors adds more noise than it sends: no contraction.

    Source: reference.md, section 3.6.
    """
    with pytest.raises(ScenarioError, match=r"auto finds none: .* compress less"):
        find_rate(scenario("gossip.compressor={kind: qsgd, bits: 2}"))


def test_buckets_save_it():
    """The vector that is tried need not be longer than a bucket, or than the least length."""
    buckets = "gossip.compressor={kind: qsgd, bits: 2, bucket_size: %d}"
    found = find_rate(scenario(buckets % 16))
    assert found.rate >= 0.1
    assert found.entries == LEAST_ENTRIES
    assert find_rate(scenario(buckets % 1200, "gossip.compressor.bits=6")).entries == 1200


LARGE = {
    "ring": "{kind: ring}",
    "torus": "{kind: torus}",
    "complete": "{kind: complete}",
    "exponential": "{kind: exponential}",
    "random graph": "{kind: erdos_renyi, probability: 0.02}",
    "random regular": "{kind: random_regular, degree: 4}",
    "random matching": "{kind: random_matching}",
    "cycle": "{kind: cycle, graphs: [{kind: ring}, {kind: star}]}",
}


@pytest.mark.parametrize("topology", LARGE.values(), ids=LARGE)
def test_a_large_fleet_is_searched_with_a_smaller_one(topology):
    given = scenario(f"topology={topology}", "fleet.devices=300")
    fleet = search_fleet(given, 128)
    assert 2 < fleet.schedule.num_devices <= MOST_DEVICES
    assert fleet.messages <= 128
    assert not fleet.hardware


def test_kinds_of_devices_are_in_the_smaller_fleet_in_their_shares():
    groups = "[{profile: raspberry-pi-4b, count: 150}, {profile: jetson-nano, count: 50}]"
    fleet = search_fleet(scenario("topology.kind=ring", f"fleet.devices={groups}"), 128)
    names = [own.profile.name for own in fleet.hardware]
    assert names == ["raspberry-pi-4b"] * 48 + ["jetson-nano"] * 16


def write_links(folder, links):
    path = folder / "links.csv"
    rows = [f"{a:03d},{b:03d},{b % 7 + 1}" for a, b in links]
    path.write_text("\n".join(["source,target,latency_ms", *rows]))
    return path


def test_of_a_large_graph_file_a_part_is_taken_with_its_links(tmp_path):
    n = 90
    both = [pair for a in range(n) for b in ((a + 1) % n,) for pair in ((a, b), (b, a))]
    words = (
        f"topology={{kind: file, path: {write_links(tmp_path, both)}}}",
        f"fleet={{devices: {n}, profile: raspberry-pi-4b}}",
    )
    fleet = search_fleet(scenario(*words), 128)
    assert fleet.schedule.num_devices == MOST_DEVICES
    assert fleet.messages == 2 * (MOST_DEVICES - 1), "a piece of the ring is a line"
    for device, own in enumerate(fleet.hardware):
        assert set(own.links) == set(fleet.schedule.possible_receivers(device))
        assert all(link.latency_s > 0 for link in own.links.values())


def test_a_large_one_way_graph_file_is_refused_with_a_remedy(tmp_path):
    one_way = [(a, (a + 1) % 90) for a in range(90)]
    words = (f"topology={{kind: file, path: {write_links(tmp_path, one_way)}}}", "fleet.devices=90")
    with pytest.raises(ScenarioError, match="give a number"):
        search_fleet(scenario(*words), 128)


def test_churn_is_left_out():
    churn = "fleet.churn={leaves: [{device: 1, round: 9}]}"
    assert find_rate(scenario(FOUR, churn)) == found_for(FOUR)


def test_a_fleet_without_contacts_is_no_endless_search(tmp_path):
    trace = tmp_path / "contacts.csv"
    trace.write_text("time,source,target,duration\n0,a,b,60\n0,b,a,60\n")
    words = f"topology={{kind: trace, path: {trace}, seconds_per_round: 60}}"
    given = scenario(words, "fleet.devices=2")
    assert shrinks(given, 0.1, 200) in (-inf, pytest.approx(0.0, abs=0.2))


def notice(*overrides):
    return rate_notice(studied_scenario(load_scenario(QUICKSTART, overrides)))


@pytest.mark.parametrize(
    "overrides",
    [
        ("gossip.averaging_rate=1.0",),
        ("gossip.averaging_rate=0.5", "gossip.compressor.keep=0.01"),
        ("gossip.averaging_rate=1.0", "gossip.algorithm=deepsqueeze"),
        ("gossip.averaging_rate=0.7", IRREGULAR, *UNLIKE),
    ],
    ids=["choco", "one percent", "deepsqueeze", "free pace"],
)
def test_a_given_rate_that_is_too_large_is_told_of(overrides):
    text = notice(*overrides)
    assert text is not None
    assert text.startswith(f"{overrides[0].replace('=', ': ').removesuffix('.0')} lets devices")
    assert text.endswith("lower it, or set it to auto")


def test_an_own_part_that_edgesim_ships_is_tried():
    rate = "gossip.averaging_rate=1.0"
    assert notice(rate, "gossip.algorithm=choco_iclr", "topology.kind=ring") is not None


def test_the_notice_names_a_compressor_that_no_rate_can_save():
    """Unbiased QSGD of few bits adds more noise than it sends (reference.md, section 3.6)."""
    text = notice("gossip.averaging_rate=0.5", "gossip.compressor={kind: qsgd, bits: 2}")
    assert text is not None
    assert "lets devices move apart with qsgd, more than" in text
    assert "; so does" in text
    buckets, biased = "gossip.compressor.bucket_size", "gossip.compressor.biased to true"
    assert text.endswith(f"compress less, set {buckets}, or set {biased}")


def test_cells_that_differ_in_the_seed_are_told_the_same():
    assert len({notice("gossip.averaging_rate=1.0", f"seed={seed}") for seed in range(1, 4)}) == 1


def test_a_device_alone_has_nobody_to_move_apart_from():
    assert notice("gossip.averaging_rate=1.0", "fleet.devices=1") is None


@pytest.mark.parametrize(
    "overrides",
    [
        (),
        ("gossip.averaging_rate=0.001",),
        ("gossip.averaging_rate=0.022", "gossip.compressor.keep=0.01"),
        ("gossip.averaging_rate=1.0", "gossip.compressor={kind: identity}"),
        ("topology.kind=ring", "gossip={algorithm: dcd}"),
        UNLIKE,
    ],
    ids=["quickstart", "slow", "one percent", "exact", "no rate", "free pace"],
)
def test_a_rate_at_which_devices_come_together_is_not(overrides):
    assert notice(*overrides) is None


def test_growth_is_that_of_the_distance_at_the_end():
    """It agrees with `shrinks`, which has the mean share of a round."""
    given = scenario(FOUR)
    layout = ParameterLayout.from_shapes([(1000,)])
    trials = Trials(studied_scenario(given), search_fleet(given, 512), layout, num_rounds=40)
    rate = found_for(FOUR).rate
    assert trials.growth(rate) == pytest.approx((1 - trials.shrinks(rate)) ** 40)
