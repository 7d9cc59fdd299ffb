"""What a scenario says of a device goes to the node of that name, whatever its place in a list."""

from __future__ import annotations

import json
from math import inf
from pathlib import Path
from textwrap import dedent, indent

import pytest

from edgesim.assembly.build import make_schedule, name_devices
from edgesim.assembly.equipment import device_hardware, device_profiles
from edgesim.errors import ScenarioError
from edgesim.scenario.files import dump_scenario, load_scenario, parse_scenario
from edgesim.scenario.presence import make_timed_churn

HEADER = (
    '<?xml version="1.0" encoding="UTF-8"?>'
    '<graphml xmlns="http://graphml.graphdrawing.org/xmlns">'
    '<key id="p" for="node" attr.name="profile" attr.type="string"/>'
    '<graph edgedefault="undirected">'
)
REST = """
name: named
data: {source: digits, partition: {kind: iid}, batch_size: 16}
model: {name: small_cnn}
training: {rounds: 8, optimizer: {lr: 0.05}}
gossip: {algorithm: choco, averaging_rate: 0.2, compressor: {kind: top_k, keep: 0.1}}
"""
LIST = """
devices:
  - {profile: jetson-nano, name: gateway, battery_wh: 20}
  - profile: raspberry-pi-4b
    names: [sensor-9, sensor-10]
    duty_cycle: {period_s: 60, awake_s: 20}
  - {profile: samsung-galaxy-a54, name: attic}
"""
PROFILES = {
    "attic": "samsung-galaxy-a54",
    "gateway": "jetson-nano",
    "sensor-10": "raspberry-pi-4b",
    "sensor-9": "raspberry-pi-4b",
}
NAMES = ("attic", "gateway", "sensor-10", "sensor-9")  # their order in a file of the graph


def graphml(nodes: dict[str, str | None]) -> str:
    """A star around the first node; profiles by node."""
    lines = [
        f'<node id="{n}">' + (f'<data key="p">{p}</data>' if p else "") + "</node>"
        for n, p in nodes.items()
    ]
    hub, *others = nodes
    lines += [f'<edge source="{hub}" target="{other}"/>' for other in others]
    return HEADER + "".join(lines) + "</graph></graphml>"


NODES = ["gateway", "sensor-9", "sensor-10", "attic"]
FILES = {
    "graph.graphml": graphml(dict.fromkeys(NODES)),
    "profiles.graphml": graphml({name: PROFILES[name] for name in NODES}),
    "links.csv": "gateway,sensor-9\nsensor-9,sensor-10\nsensor-10,attic\nattic,gateway\n",
    "other.csv": "gateway,sensor-9\nsensor-9,sensor-10\nsensor-10,cellar\ncellar,gateway\n",
    "from_0.csv": "0,1\n1,2\n2,3\n3,0\n",
    "from_8.edgelist": "8 9\n9 10\n10 11\n11 8\n",
    "trace.csv": "time,source,target,duration\n0,gateway,sensor-9,100\n0,gateway,sensor-10,100\n"
    "0,gateway,attic,100\n",
}  # fmt: skip
TOPOLOGIES = {
    "graphml": "{kind: file, path: graph.graphml}",
    "csv": "{kind: file, path: links.csv}",
    "trace": "{kind: trace, path: trace.csv, seconds_per_round: 1, undirected: true, repeat: true}",
    "cycle": "{kind: cycle, graphs: [{kind: ring}, {kind: file, path: links.csv}]}",
}


@pytest.fixture
def scenario_of(tmp_path: Path):
    """A scenario of a section `fleet` and a topology, beside the files."""
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)

    def make(fleet: str, topology: str = TOPOLOGIES["graphml"], more: str = ""):
        text = (
            f"{REST}\ntopology: {topology}\nfleet:\n{indent(dedent(fleet).strip(), '  ')}\n{more}"
        )
        (tmp_path / "s.yaml").write_text(text)
        return load_scenario(tmp_path / "s.yaml")

    return make


def profile_by_name(scenario):
    named, _ = name_devices(scenario)
    profiles = [profile.name for profile in device_profiles(named)]
    return dict(zip(named.fleet.names, profiles, strict=True))


@pytest.mark.parametrize("letter", ["\x1b", "\x9b", "\u2028", "\u202e", "\u2066"])
def test_a_name_has_no_characters_that_move_a_cursor_or_turn_text_round(letter):
    with pytest.raises(ScenarioError, match="must be the name of a device"):
        load_scenario("quickstart", [f"fleet={json.dumps({'devices': 2, 'names': [letter, 'b']})}"])


@pytest.mark.parametrize("topology", TOPOLOGIES.values(), ids=TOPOLOGIES)
def test_profiles_go_to_the_nodes_of_their_names(scenario_of, topology):
    """Files number nodes alphabetically, "sensor-10" before "sensor-9", and the list has another
    order: by number the gateway's board went to the attic."""
    scenario = scenario_of(LIST, topology)
    named, schedule = name_devices(scenario)
    assert named.fleet.names == NAMES
    assert profile_by_name(scenario) == PROFILES
    if "kind: trace" not in topology:  # free pace alone has a trace's devices sleep
        hardware = device_hardware(named, schedule)
        batteries = [device.profile.battery_j for device in hardware]
        assert batteries[NAMES.index("gateway")] == 20 * 3600
        sleepy = {n for n, h in zip(NAMES, hardware, strict=True) if h.duty_cycle.awake_part < 1}
        assert sleepy == {"sensor-9", "sensor-10"}


def test_names_may_stand_beside_the_list(scenario_of):
    fleet = """
        names: [gateway, sensor-9, sensor-10, attic]
        devices: [{profile: jetson-nano}, {profile: raspberry-pi-4b, count: 2},
          {profile: samsung-galaxy-a54}]
    """
    assert profile_by_name(scenario_of(fleet)) == PROFILES


def test_a_named_scenario_stays_what_it_is(scenario_of):
    """Also when it is written to a run's folder and read again."""
    fleet = LIST + "churn: {absent: [{device: sensor-9, from_round: 1, until_round: 3}]}\n"
    named, _ = name_devices(scenario_of(fleet))
    assert name_devices(named)[0] == named
    read = parse_scenario(dump_scenario(named), "again", Path())
    assert read == named
    assert name_devices(read)[0] == named


def test_alike_devices_need_no_names(scenario_of):
    one_group = "devices: [{profile: jetson-nano, count: 4}]"
    for fleet in ("devices: 4", "{devices: 4, profile: jetson-nano}", one_group):
        named, _ = name_devices(scenario_of(fleet))
        assert named.fleet.names == NAMES
        assert {p.name for p in device_profiles(named)} <= {"jetson-nano"}
        assert len(device_profiles(named)) in {0, 4}


def test_devices_of_drawn_graphs_have_names_if_the_list_gives_some(scenario_of):
    named, _ = name_devices(scenario_of(LIST, "{kind: ring}"))
    assert named.fleet.names == ("gateway", "sensor-9", "sensor-10", "attic")
    assert profile_by_name(scenario_of(LIST, "{kind: ring}")) == PROFILES
    assert name_devices(scenario_of("devices: 4", "{kind: ring}"))[0].fleet.names == ()


def test_nodes_that_are_numbered_from_0_are_devices_by_number(scenario_of):
    fleet = "devices: [{profile: jetson-nano}, {profile: raspberry-pi-4b, count: 3}]"
    named, _ = name_devices(scenario_of(fleet, "{kind: file, path: from_0.csv}"))
    assert named.fleet.names == ()
    assert [p.name for p in device_profiles(named)][:2] == ["jetson-nano", "raspberry-pi-4b"]


class TestProfilesInTheGraph:
    FILE = "{kind: file, path: profiles.graphml}"

    def test_are_used(self, scenario_of):
        assert profile_by_name(scenario_of("devices: 4", self.FILE)) == PROFILES

    def test_give_clocks_and_radios(self, scenario_of):
        """Keys that need them are not refused before the file is read."""
        fleet = (
            "{devices: 4, pace: free, compute_jitter: 0.1, duty_cycle: {period_s: 9, awake_s: 3}}"
        )
        scenario = scenario_of(fleet, self.FILE, "network: {latency_ms: 20}")
        named, schedule = name_devices(scenario)
        assert len(device_hardware(named, schedule)) == 4
        for wrong, message in [
            ("{devices: 4, pace: free}", r"fleet\.pace is free, but devices have no clocks"),
            ("{devices: 4, compute_jitter: 0.1}", r"fleet\.compute_jitter is set, but"),
        ]:
            with pytest.raises(ScenarioError, match=message):
                name_devices(scenario_of(wrong))
            with pytest.raises(ScenarioError, match=message):
                scenario_of(wrong, "{kind: ring}")

    def test_may_be_of_the_scenarios_own(self, scenario_of, tmp_path):
        (tmp_path / "own.graphml").write_text(graphml(dict.fromkeys("ab", "slow-board")))
        more = (
            "hardware: {profiles: [{name: slow-board, based_on: jetson-nano, fp32_gmacs_per_s: 1}]}"
        )
        scenario = scenario_of("devices: 2", "{kind: file, path: own.graphml}", more)
        assert profile_by_name(scenario) == {"a": "slow-board", "b": "slow-board"}

    def test_given_twice_must_be_the_same(self, scenario_of):
        assert profile_by_name(scenario_of(LIST, self.FILE)) == PROFILES
        for fleet in (
            LIST.replace("jetson-nano", "jetson-xavier-nx"),
            "{devices: 4, profile: jetson-nano}",
        ):
            with pytest.raises(
                ScenarioError, match=r"fleet: device \d \(.*\) is jetson-.* here and "
            ):
                name_devices(scenario_of(fleet, self.FILE))

    @pytest.mark.parametrize(
        ("nodes", "message"),
        [
            ({"a": "jetson-nano", "b": None}, r"device 1 \(b\) has no attribute profile"),
            ({"a": "jetson-nano", "b": "jetson-nan"}, "'jetson-nan', which is no profile; did you"),
        ],
    )
    def test_must_be_known_and_of_all(self, scenario_of, tmp_path, nodes, message):
        (tmp_path / "bad.graphml").write_text(graphml(nodes))
        with pytest.raises(ScenarioError, match=message):
            name_devices(scenario_of("devices: 2", "{kind: file, path: bad.graphml}"))


AMBIGUOUS = "devices: [{profile: jetson-nano}, {profile: raspberry-pi-4b, count: 3}]"


@pytest.mark.parametrize(
    ("fleet", "topology", "message"),
    [
        (AMBIGUOUS, "graphml", r"fleet\.devices: .* its devices \(attic, gateway, .* give each"),
        (AMBIGUOUS, "trace", r"fleet\.devices: .* give each item a name, or names"),
        (AMBIGUOUS, "{kind: file, path: from_8.edgelist}", r"names its devices \(8, 9, 10, 11\)"),
        (LIST, "{kind: file, path: other.csv}", "no device .* named 'attic'; .* cellar"),
        (LIST.replace("attic", "atic"), "csv", "is named 'atic'; did you mean attic?"),
        (LIST + "  - {profile: jetson-nano, name: barn}", "csv", "has no device 'barn', which fl"),
        (LIST + "  - {profile: jetson-nano, name: barn}", "trace", "no device 'barn'.*; add it t"),
        (LIST[: LIST.index("  - {profile: samsung")], "csv", "has the device 'attic', which fl"),
        ("devices: 5", "csv", "has 4 devices, but the fleet has 5; set fleet.devices: 4"),
        (
            "devices: 4",
            "{kind: cycle, graphs: [{kind: file, path: links.csv}, {kind: file, path: other.csv}]}",
            "topology: graphs of the cycle differ in the name of device 0, attic and cellar",
        ),
    ],
)  # fmt: skip
def test_what_may_mean_two_things_is_refused(scenario_of, fleet, topology, message):
    with pytest.raises(ScenarioError, match=message):
        make_schedule(scenario_of(fleet, TOPOLOGIES.get(topology, topology)))


@pytest.mark.parametrize(
    ("fleet", "message"),
    [
        ("devices: [{P, name: a}, {P}]", r"devices\[1\] has no name"),
        (
            "devices: [{P, name: a, count: 2}]",
            r"devices\[0\]\.name names one device, but count is 2",
        ),
        ("devices: [{P, names: [a, b], count: 3}]", r"\.count is 3, but there are 2 names"),
        ("devices: [{P, names: [a, b], name: c}]", r"devices\[0\]\.names is set beside name"),
        ("devices: [{P, names: [a, b, a]}]", r"fleet\.devices has the name 'a' twice"),
        ("{devices: 3, names: [a, b]}", r"fleet\.names are 2, but there are 3 devices"),
        ("{devices: 2, names: [a, a]}", r"fleet\.names has the name 'a' twice"),
        ("{names: [a], devices: [{P, name: a}]}", r"fleet\.names is set beside names in devices"),
        ("{devices: 1, names: [3]}", r"fleet\.names\[0\] is 3; must be the name of a device"),
        ('{devices: 1, names: [""]}', r"fleet\.names\[0\] is .*; must be the name of a device"),
    ],
)
def test_names_that_do_not_add_up_are_refused(scenario_of, fleet, message):
    with pytest.raises(ScenarioError, match=message):
        scenario_of(fleet.replace("{P", "{profile: jetson-nano"))


class TestChurn:
    def test_is_of_devices_by_name(self, scenario_of):
        fleet = LIST + dedent(
            """
            churn:
              absent: [{device: sensor-9, from_round: 1, until_round: 3}]
              joins: [{device: sensor-10, round: 2}]
              leaves: [{device: attic, round: 5}]
            """
        )
        for topology in (TOPOLOGIES["graphml"], "{kind: ring}"):
            named, schedule = name_devices(scenario_of(fleet, topology))
            number = {name: device for device, name in enumerate(named.fleet.names)}
            presence = schedule.presence
            assert [presence.is_present(number["sensor-9"], r) for r in range(5)] == [
                True, False, False, True, True,
            ]  # fmt: skip
            assert presence.join_round(number["sensor-10"]) == 2
            assert presence.leave_round(number["attic"]) == 5

    def test_is_of_devices_by_name_at_free_pace_too(self, scenario_of):
        fleet = f"{LIST}pace: free\nchurn: {{leaves: [{{device: sensor-9, at_s: 5}}]}}"
        named, _ = name_devices(scenario_of(fleet))
        leaving = [make_timed_churn(named).leave_s(device) for device in range(4)]
        assert leaving == [inf, inf, inf, 5], NAMES

    @pytest.mark.parametrize(
        ("device", "topology", "message"),
        [
            ("1", TOPOLOGIES["csv"], "is 1, but devices have names here.* such as 'gateway'"),
            ("gatway", TOPOLOGIES["csv"], "the name of no device; did you mean gateway"),
            ("'9'", "{kind: file, path: from_8.edgelist}", None),
            ("9", "{kind: file, path: from_8.edgelist}", "is 9; must be from 0 to 3"),
            ("gateway", "{kind: ring}", "is 'gateway', but devices have no names here"),
            ("gateway", "{kind: file, path: from_0.csv}", "devices have no names here; write its"),
        ],
    )  # fmt: skip
    def test_of_whom_is_never_a_guess(self, scenario_of, device, topology, message):
        fleet = (
            f"devices: 4\nchurn: {{absent: [{{device: {device}, from_round: 1, until_round: 3}}]}}"
        )
        if message is None:
            _, schedule = name_devices(scenario_of(fleet, topology))
            assert not schedule.presence.is_present(1, 1), "of 8, 9, 10, 11 the second"
            return
        with pytest.raises(ScenarioError, match=r"fleet\.churn\.absent.0.*\.device .*" + message):
            name_devices(scenario_of(fleet, topology))
