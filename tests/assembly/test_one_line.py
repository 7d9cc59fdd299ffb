"""A part that edgesim ships is one file and one line in a catalog: made-up ones of every kind."""

from __future__ import annotations

from io import StringIO
from pathlib import Path

import pandas as pd
import pytest
from rich.console import Console

from edgesim.assembly.preparation import prepare
from edgesim.assembly.studied_scenario import studied_scenario
from edgesim.cli.listing import catalog_table
from edgesim.errors import ScenarioError
from edgesim.fleet.run import run_scenario
from edgesim.scenario import catalog, dump_scenario, load_scenario
from edgesim.scenario.catalog import Shipped
from edgesim.scenario.files import parse_scenario
from edgesim.scenario.guide import guide
from edgesim.scenario.own_parts import own_parts

ROOT = Path(__file__).parents[2]
QUICKSTART = ROOT / "scenarios" / "quickstart.yaml"
SHORT = ("training.rounds=3", "evaluation={every_rounds: 2, samples: 30}", "data.train_samples=200")

# Of each kind: the catalog, the line, the key and what `list` calls it; how a scenario names it.
KINDS = {
    "algorithm": (
        catalog.ALGORITHMS,
        ("fading", "ecq_gossip:EcqGossip"),
        ("gossip.algorithm", "algorithms"),
        ("gossip={algorithm: fading, averaging_rate: 0.2, options: {fade: 0.9}}",),
    ),
    "compressor": (
        catalog.COMPRESSORS,
        ("blocks", "block_compressor:LargestOfBlocks"),
        ("gossip.compressor.kind", "compressors"),
        ("gossip.compressor={kind: blocks, options: {block: 16}}",),
    ),
    "optimizer": (
        catalog.OPTIMIZERS,
        ("adam_of_tests", "adam:Adam"),
        ("training.optimizer.kind", "optimizers"),
        ("training.optimizer={kind: adam_of_tests, lr: 0.001, options: {beta1: 0.8}}",),
    ),
    "schedule": (
        catalog.SCHEDULES,
        ("falling", "cosine:Cosine"),
        ("training.schedule.kind", "schedules"),
        ("training.schedule={kind: falling, options: {epochs: 3}}",),
    ),
    "partition": (
        catalog.PARTITIONS,
        ("two_labels", "few_labels:few_labels"),
        ("data.partition.kind", "partitions"),
        ("data.partition={kind: two_labels, options: {slices: 3}}",),
    ),
    "task": (
        catalog.TASKS,
        ("huber", "power:Huber"),
        ("training.task", "tasks"),
        (),
    ),
    "norm": (
        catalog.NORMS,
        ("instance", "made_up_parts:INSTANCE"),
        ("model.norm", "norms"),
        ("model.norm=instance",),
    ),
    "architecture": (
        catalog.MODELS,
        ("one_block", "made_up_parts:ONE_BLOCK"),
        ("model.name", "models"),
        ("model.name=one_block", "model.precision=int8", "model.quantization={backend: reference}"),
    ),
    "module": (
        catalog.MODULES,
        ("two_linear", "two_layers:TwoLayers"),
        ("model.name", "models"),
        ("model={name: two_linear, options: {channels: 4}}",),
    ),
    "source": (
        catalog.SOURCES,
        ("stripes", "made_up_parts:STRIPES"),
        ("data.source", "datasets"),
        ("data={source: stripes, partition: {kind: iid}, batch_size: 4}",),
    ),
    "arrays": (
        catalog.ARRAYS,
        ("many_sensors", "sensors:Readings"),
        ("data.source", "datasets"),
        (),
    ),
}


@pytest.fixture
def shipped(monkeypatch, request):
    """One made-up entry: exactly one entry of a catalog."""
    monkeypatch.syspath_prepend(ROOT / "examples")
    of, (name, reference), places, overrides = KINDS[request.param]
    monkeypatch.setitem(of.parts, name, Shipped(reference))
    return name, *places, [*SHORT, *overrides]


def every(*but):
    return pytest.mark.parametrize("shipped", [k for k in KINDS if k not in but], indirect=True)


@every("task", "arrays")
def test_a_new_entry_is_trained_and_counted(shipped, tmp_path):
    name, _, _, overrides = shipped
    scenario = load_scenario(QUICKSTART, overrides)
    assert list(own_parts(scenario)) == [], "no part of one's own"
    assert parse_scenario(dump_scenario(scenario), "copy", tmp_path) == scenario
    assert f": {name}" in dump_scenario(scenario), "a scenario keeps the name"
    console = Console(file=StringIO())
    run = run_scenario(prepare(scenario), tmp_path / "run", inline=True, console=console)
    assert len(pd.read_parquet(run.path / "rounds.parquet")) == 3 * 8
    assert studied_scenario(scenario).model.num_trainable > 0


def test_a_task_and_arrays_are_trained(monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(ROOT / "examples")
    monkeypatch.setitem(catalog.TASKS.parts, "huber", Shipped("power:Huber"))
    monkeypatch.setitem(catalog.ARRAYS.parts, "houses", Shipped("power:Power"))
    monkeypatch.setitem(catalog.MODULES.parts, "perceptron", Shipped("power:perceptron"))
    overrides = [
        "data={source: houses, options: {samples: 90}, partition: {kind: iid}, batch_size: 4}",
        "model={name: perceptron}",
        "training={task: huber, task_options: {delta: 2}, rounds: 3, optimizer: {lr: 0.01}}",
        "evaluation={every_rounds: 3}",
    ]
    console = Console(file=StringIO())
    prepared = prepare(load_scenario(QUICKSTART, overrides))
    run = run_scenario(prepared, tmp_path / "run", inline=True, console=console)
    assert "worst_share" in pd.read_parquet(run.path / "evaluations.parquet")


@every()
def test_the_command_line_knows_it(shipped):
    name, key, what, _ = shipped
    assert name in dict(catalog_table(what, None).rows)
    table = catalog_table(what, name)
    assert any(note.startswith("example: ") for note in table.notes)
    assert all(name in entry.must_be for entry in guide(key))
    with pytest.raises(ScenarioError, match=f"did you mean {{?.*{name}"):
        load_scenario(QUICKSTART, [f"{key}={name}x"])


@pytest.mark.parametrize("shipped", ["algorithm"], indirect=True)
def test_its_options_are_listed_and_refused_with_key_and_reason(shipped):
    table = catalog_table("algorithms", "fading")
    assert "gossip.options.fade" in {row[0] for row in table.rows}
    assert any("averaging_rate: 0.2" in note and "fade: " in note for note in table.notes)
    for changed, said in {
        "gossip.options={}": r"gossip.options.fade is missing; fading needs it; must be a number",
        "gossip.options={fade: x}": r"gossip.options.fade is the text 'x'; must be a number",
        "gossip.options={fade: 0.9, fadee: 1}": r"fadee is no option of fading; did you mean fade",
        "gossip.averaging_rate=null": r"gossip.averaging_rate is missing; fading needs it",
    }.items():
        scenario = load_scenario(QUICKSTART, [*shipped[-1], changed])
        with pytest.raises(ScenarioError, match=said):
            prepare(scenario)
