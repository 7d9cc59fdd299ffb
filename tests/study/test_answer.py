"""The answer of `edgesim cost`: against a fleet worked out by hand, and in its words."""

from dataclasses import replace
from math import ceil

import pytest
from study_scenarios import DENSE, INT8, MIXED, ROOT, as_if_long, small

from edgesim.compression.wire import HEADER
from edgesim.scenario.files import load_scenario
from edgesim.study.answer import answer_of
from edgesim.study.changes import _fits, advise
from edgesim.study.iteration import iteration_costs
from edgesim.study.tables.answer_text import answer_lines, answer_table, change_table
from edgesim.study.tables.kinds import Names
from edgesim.study.tables.scenario_tables import energy_table, time_table
from edgesim.study.tables.units import brief, with_unit
from edgesim.study.training import training_of

PARAMETERS = 24_170  # of small_cnn on grey images (test_iteration_costs.py)
MESSAGE_BYTES = 4 * PARAMETERS + HEADER.size + len("choco")
ROUNDS = 12  # 192 samples, 4 devices, batches of 16: 3 rounds an epoch; 4 epochs
LINES = 16  # "at most about 15", and the line on accuracy

# Memory traffic takes no time. Watts and microjoules are round numbers.
PROFILE = (
    "int8_gmacs_per_s: {rate}, bits16_gmacs_per_s: {rate}, fp32_gmacs_per_s: {rate}, "
    "memory_mib: {mib}, memory_gbytes_per_s: 1000000, idle_power_w: 1, active_power_w: 3, "
    "radio: {{bandwidth_mbps: 100, send_uj_per_byte: 2, receive_uj_per_byte: 1, "
    "half_duplex: false}}"
)
FAST, SLOW = PROFILE.format(rate=1.0, mib=64), PROFILE.format(rate=0.01, mib=1.25)
BY_HAND = (
    f"hardware={{profiles: [{{name: fast, {FAST}}}, {{name: slow, {SLOW}}}]}}",
    (
        "fleet.devices=[{profile: fast, names: [a, b, c]}, "
        "{profile: slow, name: d, battery_wh: 0.005}]"
    ),
    "gossip.compressor={kind: identity}",
)


def answered(folder, *overrides):
    scenario = small(folder, *overrides)
    costs = iteration_costs(scenario)
    return answer_of(costs, advise(scenario, costs))


@pytest.fixture(scope="module")
def by_hand(tmp_path_factory):
    with as_if_long():
        return answered(tmp_path_factory.mktemp("hand"), *BY_HAND)


@pytest.fixture(scope="module")
def of_six_boards():
    scenario = load_scenario(ROOT / "scenarios" / "six_boards.yaml")
    costs = iteration_costs(scenario)
    return answer_of(costs, advise(scenario, costs))


def test_a_row_of_several_boards_has_the_range_of_all_of_them(of_six_boards):
    """attic and hall have the same profile and degrees, but other links and other waits."""
    costs = of_six_boards.costs
    names = Names.of(costs)
    attic, hall = (costs.devices[names.names.index(name)] for name in ("attic", "hall"))
    energy, time = energy_table(costs), time_table(costs)
    row = next(row for row in time.rows if row[0].startswith("attic, hall"))
    air_s = sorted(own.time.cycle.air_s for own in (attic, hall))
    assert row[3] == " to ".join(f"{1000 * seconds:.4g}" for seconds in air_s) + " ms"
    attic_awaits, hall_awaits = (names.one(own.time.cycle.waits_for) for own in (attic, hall))
    assert row[-1] == f"attic: {attic_awaits}; hall: {hall_awaits}"
    radio = {with_unit(own.energy_by("profile").radio_j, "J") for own in (attic, hall)}
    assert len(radio) == 2
    assert all(value.split()[0] in energy.rows[1][3] for value in radio)


def said(answer):
    """Sentences by label."""
    return dict(answer_table(answer).rows)


def test_what_messages_take_on_one_channel_is_told_where_it_is_longer(tmp_path):
    """Four radios in a directed ring send a message each, one after the other."""
    words = "fleet.profile=raspberry-pi-4b", "network.bandwidth_mbps=1"
    answer = answered(tmp_path, *words)
    seconds = 4 * 8 * answer.costs.message.encoded.total / 1e6
    assert answer.channel_s == pytest.approx(seconds)
    assert said(answer)["channel"] == (
        f"{brief(seconds, 's')} of messages a round, if all radios share one"
    )
    by_wire = answered(tmp_path, "fleet.profile=jetson-nano", "network.bandwidth_mbps=1")
    assert by_wire.channel_s is None
    assert "channel" not in said(by_wire)


def test_the_slow_device_sets_the_time_of_a_fleet(by_hand):
    """Each step of d takes 100 times as long as one of the others, and longer than any message."""
    macs = by_hand.costs.devices[3].work.total.macs_fp32
    step_s = macs / 0.01e9
    assert by_hand.costs.steady_state.period_s == pytest.approx(step_s)
    assert by_hand.training.epoch_s == pytest.approx(3 * step_s)
    assert by_hand.training.seconds == pytest.approx(ROUNDS * step_s)
    assert by_hand.limit == "computing"
    assert by_hand.costs.steady_state.limits[0].device == 3
    assert by_hand.by_kind["computing"] == pytest.approx(step_s, rel=0.01)


def test_bytes_and_energies_of_the_whole_training(by_hand):
    """3 W while it computes, 1 W while it waits, 2 uJ for a byte sent and 1 uJ for one received."""
    macs = by_hand.costs.devices[0].work.total.macs_fp32
    slow_s, fast_s = macs / 0.01e9, macs / 1e9
    radio_j = MESSAGE_BYTES * 3e-6
    assert by_hand.training.sent_bytes == pytest.approx([ROUNDS * MESSAGE_BYTES] * 4)
    fast_j = ROUNDS * (3 * fast_s + (slow_s - fast_s) + radio_j)
    assert by_hand.training.energy_j[1] == pytest.approx(fast_j)
    assert by_hand.training.energy_j[3] == pytest.approx(ROUNDS * (3 * slow_s + radio_j), rel=0.01)


def test_a_device_leaves_in_its_turn_while_its_battery_can_still_pay_for_leaving(by_hand):
    """Turns of device 3 of 4: rounds 3, 7 and 11. Its last messages are x and two public copies."""
    (life,) = by_hand.training.lives
    round_j = by_hand.training.energy_j[3] / ROUNDS
    last_bytes = 3 * 4 * PARAMETERS + MESSAGE_BYTES
    last_j = last_bytes * (2e-6 + 1.0 * 8 / 100e6)  # 1 W while the radio sends them
    reserve_j = 4 * round_j + last_j
    assert 3 * round_j + reserve_j > 18 > 3 * round_j
    assert (life.device, life.rounds) == (3, 3)
    last_s = last_bytes * 8 / 100e6
    assert life.seconds == pytest.approx(3 * by_hand.costs.steady_state.period_s + last_s)
    assert not life.lasts
    assert life.used == pytest.approx((11 * round_j + reserve_j) / 18)


def test_a_battery_that_lasts_holds_the_reserve_in_the_last_turn_too(tmp_path, by_hand):
    (life,) = by_hand.training.lives
    found = []
    for share in (1 - 1e-6, 1 + 1e-6):
        battery = f"fleet.devices.1.battery_wh={share * life.needed_j / 3600:.12g}"
        with as_if_long():
            found += answer_of(iteration_costs(small(tmp_path, *BY_HAND, battery))).training.lives
    assert [one.lasts for one in found] == [False, True]
    assert found[0].rounds == 11


def test_memory_that_is_missing_is_told_by_name(by_hand):
    """Slow devices have 1.25 MiB."""
    scarce, roomy = by_hand.needs
    assert (scarce.profile, scarce.devices, scarce.fits) == ("slow", (3,), False)
    assert scarce.free_bytes == 1.25 * 2**20 - by_hand.costs.devices[3].faithful_memory.total
    assert (roomy.devices, roomy.fits) == ((0, 1, 2), True)
    assert by_hand.fits is False
    assert said(by_hand)["memory"].startswith("DOES NOT FIT d (slow): 1.")
    assert said(by_hand)["memory"].endswith("are missing; fits a, b, c")


def test_devices_of_the_same_profile_that_fit_are_not_said_to_be_short(tmp_path):
    """The hub of a star keeps copies of three neighbours, a leaf of one."""
    star = ("topology={kind: star}", "fleet.profile=gap9")
    costs = iteration_costs(small(tmp_path, *star))
    hub, *leaves = (device.faithful_memory.total / 2**20 for device in costs.devices)
    assert max(leaves) < hub
    between = (max(leaves) + hub) / 2
    tight = f"fleet={{devices: [{{profile: gap9, count: 4, memory_mib: {between}}}]}}"
    answer = answer_of(iteration_costs(small(tmp_path, star[0], tight)))
    assert {need.devices: need.fits for need in answer.needs} == {(0,): False, (1, 2, 3): True}
    assert said(answer)["memory"].startswith("DOES NOT FIT device 0 (gap9): ")
    assert said(answer)["memory"].endswith("are missing; fits devices 1-3")


def test_what_fits_is_found_by_trying(by_hand):
    """Smaller batches of fp32, and of 8 bits; and a device with more memory."""
    advice = by_hand.advice
    assert advice.goal == "fit"
    assert all(change.fits for change in advice.changes)
    keys = {s.split("=")[0] for change in advice.changes for s in change.candidate.settings}
    assert keys <= {"data.batch_size", "model.precision", "fleet.devices.1.profile"}
    assert len(keys) >= 2


@pytest.mark.parametrize(
    "overrides",
    [MIXED, (*MIXED, "fleet.pace=free"), (), BY_HAND],
    ids=["lockstep", "free", "no profile", "too small"],
)
def test_each_change_has_the_figures_of_the_scenario_with_that_set(tmp_path, overrides):
    advice = answered(tmp_path, *overrides).advice
    assert advice.changes
    for change in advice.changes:
        scenario = small(tmp_path, *overrides, *change.candidate.settings)
        assert training_of(iteration_costs(scenario)) == change.training


def test_changes_are_ranked_by_the_time_that_is_left(tmp_path):
    answer = answered(tmp_path, *MIXED)
    seconds = [change.training.seconds for change in answer.advice.changes]
    assert answer.advice.goal == "time"
    assert seconds == sorted(seconds)
    assert seconds[-1] < 0.95 * answer.training.seconds


def test_several_changes_at_once_help_more(of_six_boards):
    """The battery of the garden is asked for less than by the best of them alone."""
    advice = of_six_boards.advice
    settings = {setting for change in advice.changes for setting in change.candidate.settings}
    assert set(advice.together.candidate.settings) == settings
    used = [
        max(life.used for life in change.training.lives)
        for change in (advice.together, *advice.changes)
    ]
    assert used == sorted(used)


def test_a_key_of_a_section_that_another_change_sets_is_joined_with_it(tmp_path):
    """`gossip.compressor` and `gossip.compressor.values`, which the section leaves out."""
    advice = answered(tmp_path, *MIXED, DENSE).advice
    settings = {setting for change in advice.changes for setting in change.candidate.settings}
    keys = {setting.partition("=")[0] for setting in settings}
    assert {"gossip.compressor", "gossip.compressor.values"} <= keys
    assert set(advice.together.candidate.settings) == settings


@pytest.mark.parametrize(
    ("key", "fits"),
    [
        ("b", True),
        ("a", False),
        ("a.c", True),
        ("a.kind", False),
        ("a.kind.x", False),
        ("ab", True),
    ],
)
def test_a_change_fits_others_whose_keys_it_leaves_as_they_are(key, fits):
    assert _fits(key, {"a": "{kind: top_k}"}) == fits
    assert not _fits("a", {"a.c": "1"})


def test_changes_that_do_not_fit_each_other_are_not_counted_as_all(tmp_path):
    answer = answered(tmp_path, *MIXED)
    part = replace(answer.advice.changes[0], costs=answer.costs)
    answer = replace(answer, advice=replace(answer.advice, together=part))
    assert change_table(answer).rows[-1][0] == "1. together"


def test_where_nothing_helps_that_is_said(tmp_path):
    """One device that computes and nothing else, in 8 bits."""
    lonely = ("fleet.devices=1", "fleet.profile=raspberry-pi-4b", *INT8)
    answer = answered(tmp_path, *lonely, "training.epochs=null", "training.rounds=9")
    assert answer.advice.changes == ()
    assert answer.advice.num_tried >= 2
    assert said(answer)["change"].endswith(
        "changed scenarios were tried, and none helps to save time"
    )
    assert "waiting" not in said(answer)


def test_a_fleet_without_profiles_is_told_what_to_add(tmp_path):
    answer = answered(tmp_path)
    assert answer.fits is None
    assert said(answer)["time"] == "not known without fleet.profile; 12 rounds, 3 an epoch"
    assert "16 of 16 devices of the catalog have so much" in said(answer)["memory"]
    settings = [change.candidate.settings[0] for change in answer.advice.changes]
    assert settings[0].startswith("fleet.profile=")
    assert any(not setting.startswith("fleet.profile=") for setting in settings)


def test_at_free_pace_nobody_waits_and_virtual_time_ends_the_rounds(tmp_path):
    limit = ("training.virtual_time_s=0.05", "training.epochs=500", "evaluation.every_epochs=null")
    answer = answered(tmp_path, *MIXED, "fleet.pace=free", *limit)
    periods_s = [cycle.period_s for cycle in answer.costs.steady_state.devices]
    # The last step is the first one that ends at the limit or later.
    assert answer.training.rounds == tuple(ceil(0.05 / period_s) for period_s in periods_s)
    assert 0.05 <= answer.training.seconds < 0.05 + max(periods_s)
    assert said(answer)["waiting"].startswith("nobody waits; slowest step: device 3")
    assert "at free pace" in said(answer)["time"]


def test_a_link_of_a_graph_file_is_tried_with_more_bandwidth(tmp_path):
    """a -> b takes ten times as long as the other way, and longer than all else."""
    (tmp_path / "pair.csv").write_text("source,target,bandwidth_mbps\na,b,0.1\nb,a,1\n")
    answer = answered(
        tmp_path,
        "fleet.devices=[{profile: raspberry-pi-4b, names: [a, b]}]",
        f"topology={{kind: file, path: {tmp_path / 'pair.csv'}}}",
        "network.half_duplex=false",
    )
    assert "(a -> b " in said(answer)["limits"]
    wider = [change for change in answer.advice.changes if change.candidate.wider]
    assert [change.candidate.wider for change in wider] == [(0, 1, 1e6)]
    assert "a -> b at 1 Mbit/s" in "\n".join(answer_lines(answer))
    # Both steps, and one message each way at 1 Mbit/s, make two rounds.
    air_s = answer.costs.message.encoded.total * 8 / 1e6
    step_s = answer.costs.devices[0].time.roofline_s
    assert wider[0].costs.steady_state.period_s == pytest.approx(step_s + air_s)


def test_a_large_fleet_is_told_in_groups_and_one_too_large_gets_no_advice(tmp_path, monkeypatch):
    fleet = (
        "fleet.devices=[{profile: raspberry-pi-4b, count: 40}, {profile: jetson-nano, count: 8}]"
    )
    scenario = small(tmp_path, fleet)
    costs = iteration_costs(scenario)
    lines = answer_lines(answer_of(costs))
    assert len(lines) <= LINES
    assert "devices 40-47" in "".join(lines) or "devices 0-39" in "".join(lines)
    monkeypatch.setattr("edgesim.study.changes.MOST_DEVICES", 47)
    assert advise(scenario, costs) is None


@pytest.mark.parametrize(
    "overrides",
    [
        MIXED,
        (*MIXED, *INT8, "gossip.compressor.keep=0.01"),
        (*MIXED, "fleet.pace=free"),
        (*MIXED, "gossip={algorithm: gradient_push}"),
        (),
        BY_HAND,
        ("fleet.profile=arduino-portenta-h7", "fleet.duty_cycle={period_s: 9, awake_s: 1}"),
    ],
    ids=["mixed", "int8", "free", "dense", "no profile", "too small", "asleep"],
)
def test_an_answer_has_few_lines_of_a_page(tmp_path, overrides):
    lines = answer_lines(answered(tmp_path, *overrides))
    assert len(lines) <= LINES + 2  # two more where settings take lines of their own
    assert [line for line in lines if len(line) > 80] == []
    assert not any("inf" in line.split() or "nan" in line for line in lines)


def test_fewer_messages_are_advised_at_free_pace_but_not_free_pace_that_has_hardly_any(tmp_path):
    """Slow links: at free pace a radio would skip nine messages of ten."""
    words = ("topology={kind: complete}", "fleet.profile=raspberry-pi-zero-2w")
    found = answered(tmp_path, *words, "network.bandwidth_mbps=0.2")
    settings = [one.candidate.settings for one in found.advice.changes]
    assert settings
    assert ("fleet.pace=free",) not in settings
    free = answered(tmp_path, *words, "fleet.pace=free", "network.bandwidth_mbps=1000")
    settings = [one.candidate.settings for one in free.advice.changes]
    assert any("one_peer" in setting or "local_steps" in setting for (setting,) in settings)


def test_devices_that_sleep_could_be_awake(tmp_path):
    """Those with a duty cycle of their own, and those with the fleet's."""
    sleeps = "duty_cycle: {period_s: 1, awake_s: 0.1}"
    own = f"fleet.devices=[{{profile: raspberry-pi-4b, count: 3}}, {{profile: gap9, {sleeps}}}]"
    both = ("fleet.duty_cycle={period_s: 1, awake_s: 0.5}", own)
    for overrides, settings in (
        ((own,), "fleet.devices.1.duty_cycle=null"),
        (both, "fleet.duty_cycle=null fleet.devices.1.duty_cycle=null"),
    ):
        text = " ".join(answer_lines(answered(tmp_path, "model.precision=int8", *overrides), 200))
        assert settings in " ".join(text.split())


SLEEPING = ("fleet.profile=raspberry-pi-4b", "fleet.duty_cycle={period_s: 9, awake_s: 3}")


def test_a_short_training_in_which_nobody_falls_asleep_is_not_charged_for_sleep(tmp_path):
    sleeping = answered(tmp_path, *SLEEPING)
    awake = answered(tmp_path, SLEEPING[0])
    assert sleeping.training.seconds == awake.training.seconds < 3
    assert "sleep" not in said(sleeping)["limits"]


@pytest.mark.parametrize(("rounds", "is_said"), [(5, False), (500, True)])
def test_how_long_a_battery_lasts_is_said_of_sleepers_too(tmp_path, rounds, is_said):
    """Of a training of many cycles; in a short one the sleep is no measure of later rounds."""
    cycle = "fleet.duty_cycle={period_s: 0.1, awake_s: 0.05}"
    battery = "fleet.devices=[{profile: raspberry-pi-4b, count: 4, battery_wh: 7}]"
    length = f"training={{rounds: {rounds}, optimizer: {{lr: 0.05}}}}"
    answer = answered(tmp_path, battery, cycle, length)
    assert ("a full one pays for" in said(answer)["batteries"]) == is_said


def test_a_battery_that_is_hardly_used_is_not_said_to_be_untouched(tmp_path):
    """0 % is no answer to what a training takes from a battery."""
    battery = "fleet.devices=[{profile: raspberry-pi-4b, count: 4, battery_wh: 10000}]"
    answer = answered(tmp_path, battery)
    assert all(0 < life.used < 5e-4 for life in answer.training.lives)
    text = said(answer)["batteries"]
    assert "needs <0.1 % of 10 kWh" in text
    assert f"; a full one pays for {answer.training.lives[3].rounds:,} such rounds, " in text
    assert all(row[-1] == "<1 %" for row in change_table(answer).rows)


@pytest.mark.parametrize(("epochs", "is_short"), [(1, True), (100_000, False)])
def test_sleep_in_a_training_of_few_cycles_is_said_to_be_a_mean(tmp_path, epochs, is_short):
    """A run of few rounds may end before anybody falls asleep, and take a third of the mean."""
    with as_if_long():
        answer = answered(tmp_path, *SLEEPING, f"training.epochs={epochs}")
    assert (answer.training.seconds < 90) == is_short
    assert ("(in the mean over cycles of 9 s: in so" in said(answer)["limits"]) == is_short


def test_six_named_boards(of_six_boards):
    """As the comments of the scenario say: who is slow, who waits for whom, which battery dies."""
    sentences = said(of_six_boards)
    assert sentences["batteries"].startswith("END EARLY: garden after ")
    assert "garden -> shed" in sentences["limits"]
    assert "for hall" in sentences["waiting"]
    assert "slowest step: cellar, garden, shed, at least " in sentences["waiting"]
    assert "tightest on cellar, garden, shed: 2.53 MiB of 325 MiB" in sentences["memory"]
    assert "device " not in "".join(sentences.values()).replace("a device in all", "")
    goal = of_six_boards.advice.goal
    assert goal == "batteries"
    assert "garden" in "\n".join(answer_lines(of_six_boards)[9:])


def test_the_documentation_shows_a_whole_answer_as_it_is(of_six_boards):
    lines = answer_lines(of_six_boards)
    page = (ROOT / "docs" / "cost.md").read_text(encoding="utf-8")
    assert "\n".join(["```", *lines, "```"]) in page
