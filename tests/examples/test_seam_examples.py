"""Examples of one's own parts that gossip, train and deal samples, all run."""

from __future__ import annotations

import shutil
import signal
import sys

import numpy as np
import pytest
import runs_of_examples
import yaml
from runs_of_examples import EXAMPLES, resume
from small_fleets import assert_same_bits, killed_at_its_end

from edgesim import cli, load_run
from edgesim.assembly.preparation import prepare
from edgesim.errors import ScenarioError
from edgesim.hardware.work import Work
from edgesim.scenario import load_scenario
from edgesim.scenario.own_parts import own_parts
from edgesim.study.iteration import iteration_costs

NAMES = {
    "ecq_gossip": "gossip.algorithm",
    "block_compressor": "gossip.compressor.kind",
    "adam": "training.optimizer.kind",
    "cosine": "training.schedule.kind",
    "few_labels": "data.partition.kind",
    "one_peer_hypercube": "topology.kind",
}
SHORT = ("training.rounds=6", "evaluation={every_rounds: 3, samples: 40}", "data.train_samples=200")
FREE = (
    "fleet.devices=[{profile: raspberry-pi-5, count: 3}, {profile: raspberry-pi-4b}]",
    "fleet.pace=free",
)


@pytest.fixture
def everything(tmp_path):
    """A scenario of all own parts at once, with their files beside it."""
    path = tmp_path / "everything.yaml"
    whole = yaml.safe_load((EXAMPLES / "ecq_gossip.yaml").read_text())
    for name, key in NAMES.items():
        shutil.copy(EXAMPLES / f"{name}.py", tmp_path)
        target, source = whole, yaml.safe_load((EXAMPLES / f"{name}.yaml").read_text())
        *sections, _ = key.split(".")
        for section in sections[:-1]:
            target, source = target[section], source[section]
        if name != "ecq_gossip":
            target[sections[-1]] = source[sections[-1]]
    path.write_text(yaml.safe_dump(whole))
    return path


def train(path, out, *overrides, **options):
    return runs_of_examples.train(path, out, *SHORT, *overrides, **options)


@pytest.mark.parametrize(("name", "key"), NAMES.items())
def test_each_example_is_short_and_learns(tmp_path, name, key):
    source = (EXAMPLES / f"{name}.py").read_text()
    assert len(source.splitlines()) < 60
    scenario = load_scenario(EXAMPLES / f"{name}.yaml", SHORT)
    assert [(key, part.source) for key, part in own_parts(scenario)] == [(key, source)]
    result = train(EXAMPLES / f"{name}.yaml", tmp_path / "run", inline=True)
    rounds = load_run(result.path).rounds
    assert rounds["loss"].iloc[-4:].mean() < rounds["loss"].iloc[:4].mean(), "it learns"


def test_costs_are_those_that_the_parts_say(everything):
    """On a directed ring, where each device sends one message and takes one."""
    costs = iteration_costs(load_scenario(everything, SHORT))
    layout, trained = costs.studied.algorithm.layout, costs.studied.model.num_trainable
    memory, work = costs.devices[0].faithful_memory, costs.devices[0].work
    assert memory.gossip_state == 4 * layout.numel, "what is left unsent"
    assert memory.optimizer == 2 * 4 * trained, "two moments"
    assert work.optimizer == Work(elementwise_ops=14 * trained, traffic_bytes=7 * 4 * trained)
    kept = sum(-(-n // 8) for n in layout.sizes)
    assert costs.message.num_kept == kept
    assert costs.message.encoded.values == 4 * kept
    # Made: |x| and comparisons, x read, codes and indices written. Then added, and added times a
    # factor, here and at the other end: codes, indices and x read, x written.
    message = Work(elementwise_ops=2 * layout.numel, traffic_bytes=4 * layout.numel + 12 * kept)
    message += Work(elementwise_ops=kept + 2 * 2 * kept, traffic_bytes=3 * (12 + 8) * kept)
    vectors = Work(elementwise_ops=3 * layout.numel, traffic_bytes=5 * 4 * layout.numel)
    assert work.gossip == message + vectors


def test_the_command_shows_them(everything, monkeypatch, capsys):
    terminate = signal.getsignal(signal.SIGTERM)
    monkeypatch.setattr(sys, "argv", ["edgesim", "cost", str(everything)])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    signal.signal(signal.SIGTERM, terminate)
    assert not ended.value.code
    assert "largest_of_blocks" in capsys.readouterr().out


@pytest.mark.ray
@pytest.mark.parametrize("pace", [(), FREE], ids=["lockstep", "free"])
def test_packed_actors_have_the_bits_of_one_process(tmp_path, started_ray, everything, pace):
    """Workers make the modules from what travels with the plan."""
    inline = train(everything, tmp_path / "inline", *pace, inline=True)
    packing = "fleet.devices_per_actor=2"
    packed = train(everything, tmp_path / "packed", *pace, packing)
    assert_same_bits(inline, packed)


def test_it_trains_in_8_bits(tmp_path, everything):
    eight = (
        "model.precision=int8",
        "training.rounds=2",
        "evaluation={every_rounds: 2, samples: 10}",
    )
    result = train(everything, tmp_path / "run", *eight, inline=True)
    assert np.isfinite(load_run(result.path).rounds["loss"]).all()


def test_a_killed_run_goes_on_to_the_same_bits_unless_a_file_has_changed(
    tmp_path, everything, monkeypatch
):
    often = "recovery.checkpoint_every_rounds=2"
    whole = train(everything, tmp_path / "whole", often, inline=True)
    with killed_at_its_end(monkeypatch):
        train(everything, tmp_path / "killed", often, inline=True)
    adam = tmp_path / "adam.py"
    before = adam.read_text()
    adam.write_text(before.replace("0.999", "0.9"))
    with pytest.raises(ScenarioError, match=r"training.optimizer.kind names .*/adam.py, which has"):
        resume(tmp_path / "killed")
    adam.write_text(before)
    resumed = resume(tmp_path / "killed")
    assert_same_bits(whole, resumed)


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("training.schedule.options={epochs: 0}", "training.schedule.kind"),
        ("data.partition.options={slices: 0}", "data.partition.kind"),
        (
            "training.optimizer.options={beta3: 1}",
            "training.optimizer.options.beta3 is no option of",
        ),
        (
            "gossip.options={}",
            "gossip.options.fade is missing; ",
        ),
        ("gossip.compressor.options={block: 0}", "gossip.compressor.kind"),
    ],
)
def test_wrong_options_are_refused_in_one_line_before_anything_starts(everything, override, said):
    with pytest.raises(ScenarioError) as caught:
        prepare(load_scenario(everything, [*SHORT, override]))
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


A_LIST = "must be a list of positions, or an array of one axis"
A_PARTITION = (
    "must be a list of positions for each device, or a dict of two such lists, train and test"
)
OWN_TESTS = "{{'train': [[0], [1], [2], [3]], 'test': {}}}"


@pytest.mark.parametrize(
    ("parts", "said"),
    [
        ("[range(100)]", "gives 1 devices samples; there are 4"),
        ("[[0], [1], [2], []]", "gives device 3 no sample"),
        ("[[0], [1], [2], [0]]", "gives a sample to two devices, or twice to one"),
        ("[[0], [1], [2], [200]]", "gives device 3 a position that is none of 0 to 199"),
        ("[[0], [1], [2], [0.5]]", "gives device 3 float64; positions are whole numbers"),
        (
            "[[0], [1], [2], {3}]",
            f"gives device 3 an object of type set; {A_LIST}",
        ),
        (
            "[[0], [1], [2], [[3]]]",
            f"gives device 3 an array of shape (1, 1); {A_LIST}",
        ),
        ("3", "gives int; must be a list of positions for each device"),
        ("{'train': []}", f"gives a dict of train; {A_PARTITION}"),
        ("dict.fromkeys(range(7))", f"gives a dict of 0, 1, 2, 3, 4, ...; {A_PARTITION}"),
        (OWN_TESTS.format("[[0]]"), "gives 1 devices test samples; there are 4"),
        (
            OWN_TESTS.format("[[0], [1], [], [9999]]"),
            "gives device 3 a position of a test sample that is none of 0 to 354",
        ),
        (OWN_TESTS.format("[[0], [1], [], [2, 2]]"), "gives device 3 a test sample twice"),
    ],
)
def test_a_partition_that_is_none_is_refused(tmp_path, parts, said):
    path = tmp_path / "mine.py"
    path.write_text(f"def deal(labels, num_devices, rng):\n    return {parts}\n")
    override = f"data.partition={{kind: '{path}:deal'}}"
    with pytest.raises(ScenarioError) as caught:
        prepare(load_scenario(EXAMPLES / "few_labels.yaml", [*SHORT, override]))
    assert str(caught.value) == f"data.partition.kind: {path}:deal {said}"


def test_a_partition_may_say_whose_the_test_samples_are(tmp_path):
    """Devices 0 and 1 have one label each; 2 and 3 the same one, and 3 no test samples."""
    path = tmp_path / "mine.py"
    path.write_text(
        "import numpy as np\n"
        "def deal(labels, test_labels, num_devices):\n"
        "    train = [np.flatnonzero(labels == label) for label in range(2)]\n"
        "    train += np.array_split(np.flatnonzero(labels == 2), 2)\n"
        "    test = [np.flatnonzero(test_labels == label) for label in (0, 1, 1)]\n"
        "    return {'train': train, 'test': [*test, []]}\n"
    )
    override = f"data.partition={{kind: '{path}:deal'}}"
    name = EXAMPLES / "few_labels.yaml"
    found = prepare(load_scenario(name, [*SHORT, override]))
    own = found.own_test_samples()
    assert [*own] == [0, 1, 2]
    assert [set(own[device].labels) for device in own] == [{0}, {1}, {1}]
    assert len(found.held_out[1]) == (found.dataset.test.labels == 1).sum()
    few = prepare(load_scenario(name, [*SHORT, override, "evaluation.own_samples=3"]))
    assert [len(positions) for positions in few.held_out] == [3, 3, 3, 0]
    none = prepare(load_scenario(name, [*SHORT, override, "evaluation.own_samples=0"]))
    assert none.held_out == ()
