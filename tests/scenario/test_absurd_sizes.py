"""Scenarios that ask for too much are refused by key and limit; what is large but possible is not.

Each is checked in this process under a limit of memory, so that a check which builds what it should
have refused fails here.
"""

from __future__ import annotations

import resource
from contextlib import contextmanager
from pathlib import Path

import pytest
from pydantic import TypeAdapter

from edgesim.assembly.budget import check_memory
from edgesim.assembly.preparation import prepare
from edgesim.errors import EdgesimError
from edgesim.fleet.host.recorder import EvaluationSchedule
from edgesim.scenario import load_scenario, section
from edgesim.scenario.guide import guide
from edgesim.scenario.section import MOST_ROUNDS
from edgesim.scenario.topology import Topology, least_links
from edgesim.scenario.training import MOST_EVALUATIONS
from topologies import build_schedule, graphs

QUICKSTART = Path(__file__).resolve().parents[2] / "scenarios" / "quickstart.yaml"
ROOM = 700 * 2**20  # bytes, beside what the process has when a check begins


@contextmanager
def little_memory():
    """A process that can't have much more memory than it has."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + ROOM, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


def checked(*overrides):
    with little_memory():
        scenario = load_scenario(QUICKSTART, overrides)
        prepared = prepare(scenario, reads_images=False)
        check_memory(prepared.scenario, schedule=prepared.schedule)
    return prepared


THOUSAND = ("fleet.devices=1200", "data.partition={kind: iid}")
ABSURD = {
    "rounds": (["training.rounds=1000000000000"], ["training.rounds", str(MOST_ROUNDS)]),
    "epochs": (["training.epochs=1000000000000"], ["training.epochs", str(MOST_ROUNDS)]),
    "epochs of many rounds": (
        ["training.epochs=20000000", "evaluation.every_epochs=null"],
        ["training.epochs", f"{MOST_ROUNDS:,}"],
    ),
    "evaluations": (
        ["training.rounds=100000000", "evaluation.every_rounds=1"],
        ["evaluation.every_rounds", "100,000,000 evaluations", f"{MOST_EVALUATIONS:,}"],
    ),
    "evaluations of epochs": (["training.epochs=1000000"], ["evaluation.every_epochs"]),
    "devices": (["fleet.devices=100000"], ["fleet.devices", "10000"]),
    "groups of devices": (
        ["fleet.devices=[{profile: gap9, count: 9000}, {profile: gap9, count: 9000}]"],
        ["fleet.devices", "18,000", "10,000"],
    ),
    "complete graph": (["topology={kind: complete}", *THOUSAND], ["200,000 links"]),
    "dense random graph": (
        ["topology={kind: erdos_renyi, probability: 0.9}", *THOUSAND],
        ["200,000 links"],
    ),
    "regular random graph": (
        ["topology={kind: random_regular, degree: 600}", *THOUSAND],
        ["200,000 links"],
    ),
    "many graphs": (
        [
            "topology={kind: cycle, graphs: [" + ", ".join(["{kind: complete}"] * 20) + "]}",
            "fleet.devices=200",
        ],
        ["200,000 links"],
    ),
    "absences by chance": (
        [
            "fleet.churn={random: {absence_probability: 0.5, mean_absence_rounds: 1}}",
            "training.rounds=100000000",
            "evaluation.every_rounds=10000000",
        ],
        ["training.rounds", "1,000,000", "fleet.churn.random"],
    ),
    "many absences by chance": (
        [
            "fleet.churn={random: {absence_probability: 0.5, mean_absence_rounds: 1}}",
            "training.rounds=1000000",
            "evaluation.every_rounds=100000",
        ],
        ["fleet.churn.random", "8,000,000 times", "5,000,000"],
    ),
}


@pytest.mark.parametrize(("overrides", "named"), ABSURD.values(), ids=ABSURD)
def test_absurd_sizes_are_refused_by_key_and_limit(overrides, named):
    with pytest.raises(EdgesimError) as caught:
        checked(*overrides)
    assert isinstance(caught.value, ValueError)
    for words in named:
        assert words in str(caught.value)
    assert len(str(caught.value).splitlines()) <= 2


# What no data and no graph is needed for is refused by reading the scenario, which loads no torch.
BY_READING = {
    "rounds", "epochs", "evaluations", "evaluations of epochs", "devices", "groups of devices",
    "complete graph", "dense random graph", "regular random graph", "many graphs",
}  # fmt: skip


@pytest.mark.parametrize(("overrides", "named"), [ABSURD[k] for k in sorted(BY_READING)])
def test_what_the_scenario_alone_shows_is_refused_by_reading_it(overrides, named):
    with pytest.raises(EdgesimError) as caught:
        load_scenario(QUICKSTART, overrides)
    for words in named:
        assert words in str(caught.value)


def test_limits_of_evaluations_and_rounds_are_listed():
    for key in ("every_epochs", "every_rounds", "every_virtual_s"):
        assert f"{MOST_EVALUATIONS:,} evaluations" in guide(f"evaluation.{key}")[0].meaning
    assert guide("training.rounds")[0].must_be == f"a whole number from 1 to {MOST_ROUNDS} or null"


def test_the_limit_of_links_is_that_of_graphs():
    assert section.MOST_LINKS == graphs.MOST_LINKS


@pytest.mark.parametrize(
    ("kind", "num_devices", "options"),
    [
        ("complete", 9, {}),
        ("random_regular", 12, {"degree": 5}),
        ("erdos_renyi", 80, {"probability": 0.7}),
        ("cycle", 9, {"graphs": [{"kind": "complete"}, {"kind": "ring"}]}),
    ],
)
def test_no_graph_has_fewer_links_than_its_section_counts(kind, num_devices, options):
    topology = TypeAdapter(Topology).validate_python({"kind": kind, **options})
    least = least_links(topology, num_devices)
    assert least > 0
    options = topology.builder_options()[1]
    for seed in range(5):
        schedule = build_schedule(kind, num_devices, seed=seed, **options)
        rounds = range(len(options.get("graphs", [0])))
        assert sum(schedule.graph(r).number_of_edges() for r in rounds) >= least


LARGE = {
    "rounds": ["training.rounds=100000000", "evaluation.every_rounds=1001"],
    "devices on a ring": ["fleet.devices=1400", "data.partition={kind: iid}"],
    "images": ["data.image_size=1024"],
    "long exchange": [
        "training.rounds=100000000",
        "evaluation.every_rounds=10000000",
        "gossip.local_steps=10000000",
        "fleet.profile=raspberry-pi-4b",
    ],
    "leave after a long absence": [
        "training.rounds=100000000",
        "evaluation.every_rounds=10000000",
        "fleet.churn.absent=[{device: 1, from_round: 10, until_round: 99999000}]",
        "fleet.churn.leaves=[{device: 1, round: 99999100}]",
    ],
    "batches": ["data.batch_size=2147483647"],
}


@pytest.mark.parametrize("overrides", LARGE.values(), ids=LARGE)
def test_large_scenarios_are_checked_with_little_work(overrides):
    assert checked(*overrides).training.num_rounds >= 1


def test_evaluations_of_a_long_run_take_no_memory():
    plan = checked("training.rounds=100000000", "evaluation.every_rounds=1001").training
    rounds = plan.evaluation_rounds
    assert len(rounds) == 99_901
    assert (rounds[0], rounds[1], rounds[-2], rounds[-1]) == (1001, 2002, 99_999_900, 100_000_000)
    assert list(rounds[:3]) == [1001, 2002, 3003]
    assert 2002 in rounds[:-1]
    assert 2003 not in rounds[:-1]
    evaluations = EvaluationSchedule(rounds)
    assert list(evaluations.until(2500, 0.0)) == [1001, 2002]
    assert list(evaluations.until(1000, 0.0)) == []
    assert len(evaluations.until(10**9, 0.0)) == len(rounds) - 1


def test_evaluations_by_the_clock_are_counted_as_far_as_it_has_come():
    plan = checked(
        "fleet.profile=raspberry-pi-4b",
        "fleet.pace=free",
        "training.virtual_time_s=100",
        "evaluation.every_virtual_s=0.3",
        "training.rounds=1000",
    ).training
    assert list(plan.evaluation_rounds) == [*range(1, 334), 1000]
    evaluations = EvaluationSchedule(plan.evaluation_rounds, plan.evaluation_interval_s)
    assert list(evaluations.until(0, 0.9)) == [n for n in range(1, 334) if n * 0.3 <= 0.9]
    assert list(evaluations.until(0, 0.0)) == []
