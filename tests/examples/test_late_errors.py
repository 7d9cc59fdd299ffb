"""What an algorithm of one's own does wrong only later in a run is told with device and round."""

from __future__ import annotations

import pickle
import re
import shutil

import numpy as np
import pandas as pd
import pytest
import torch
from runs_of_examples import EXAMPLES, train

import edgesim
from edgesim import load_run
from edgesim.assembly.gossip import make_algorithm, make_compressor
from edgesim.assembly.preparation import prepare
from edgesim.device.trainer import DivergedError
from edgesim.errors import OwnCodeError, ScenarioError
from edgesim.learning.parameters import ParameterLayout
from edgesim.scenario import load_scenario
from topologies import Static, column_stochastic, ring

ROUNDS = ("training.rounds=20", "evaluation={every_rounds: 10}")
FIELD = {"delta: torch.Tensor": "delta: torch.Tensor\n    rounds: int = 0"}
LAYOUT = ParameterLayout.from_shapes([(6, 5), (4,)])
LATE = 6  # the rehearsal has three rounds


def late(fault, *, in_send=False):
    """Changes of the example by which something happens in a later round."""
    at = "        u, v = state.u" if in_send else "        for share in received:"
    count = f"        state.rounds += 1\n        if state.rounds == {LATE}:\n            {fault}\n"
    return FIELD | {at: count + at}


def broken(folder, changes, name="ecq_gossip.py"):
    """A scenario with a changed copy of an example."""
    for file in EXAMPLES.iterdir():
        if file.is_file():
            shutil.copy(file, folder)
    source = (folder / name).read_text()
    for old, new in changes.items():
        assert source.count(old) == 1, old
        source = source.replace(old, new)
    (folder / name).write_text(source)
    return folder / "all_own.yaml"


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (
            late("state.x, received = state.x[None], []"),
            r"after absorb_ x is float32 of shape \(1, \d+\); must stay float32 of shape \(\d+,\)",
        ),
        (late("state.x = state.x.double()"), r"after absorb_ x is float64 of shape"),
        (late("state.x = None", in_send=True), r"EcqGossip.send_ on device \d+ in round 5 fails"),
        (late("state.u = -1.0"), r"after absorb_ u is -\d\.\d; must be a finite float"),
        (
            late("received[0].payload.codes[:] = 0"),
            r"EcqGossip\.absorb_ on device \d+ in round 5 fails at .*: ValueError: assignment dest",
        ),
        (
            late("received[0].payload.values[:] = 0"),
            r"fails at .*ecq_gossip\.py:\d+: ValueError: assignment destination is read-only",
        ),
        (
            FIELD
            | {
                "        return [Share(edge.receiver, edge.weight, u, c,": (
                    "        state.rounds += 1\n"
                    f"        c = [c, 0 * c.decode()][state.rounds == {LATE}]\n"
                    "        return [Share(edge.receiver, edge.weight, u, c,"
                )
            },
            r"a share whose payload is of type Tensor; must be a Payload, as",
        ),
    ],
)
def test_it_is_told_with_its_device_and_round(tmp_path, changes, said):
    path = broken(tmp_path, changes)
    with pytest.raises(OwnCodeError) as caught:
        train(path, tmp_path / "run", *ROUNDS, inline=True)
    first, second = str(caught.value).splitlines()
    assert re.search(said, first), first
    assert re.search(r"on device \d+ in round 5", first)
    assert second.startswith("mend your code and start the run anew")


def test_a_value_that_is_not_finite_may_be_due_to_ones_own_algorithm(tmp_path):
    path = broken(tmp_path, late("state.delta[0] = float('nan')", in_send=True))
    with pytest.raises(DivergedError, match=r"in round 5: .* by your own gossip\.algorithm; lower"):
        train(path, tmp_path / "run", *ROUNDS, inline=True)


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ("state.delta = state.x", "gossip/delta and gossip/x overlap in memory; clone one of them"),
        ("state.past = {6}", "gossip/past is of type set; must be of tensors, numbers, text"),
    ],
)
def test_a_state_that_a_checkpoint_would_change_ends_the_run(tmp_path, fault, said):
    """It would go on with other bits when it is resumed."""
    path = broken(
        tmp_path,
        late(fault)
        | {"delta: torch.Tensor": FIELD["delta: torch.Tensor"] + "\n    past: object = None"},
    )
    with pytest.raises(OwnCodeError) as caught:
        train(path, tmp_path / "run", *ROUNDS, "recovery.checkpoint_every_rounds=1", inline=True)
    assert said in str(caught.value)


COMPRESSOR_FIELD = {"    block: int\n": "    block: int\n    calls = []\n"}


def late_payload(fault, old="        return Payload(layout, FP32, indices, counts, codes, scales)"):
    """Changes of the compressor by which it gives something else from its sixtieth call on."""
    count = f"        self.calls.append(1)\n        if len(self.calls) > 60:\n            {fault}\n"
    return COMPRESSOR_FIELD | {old: count + old}


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ("return None", "gives an object of type NoneType; must be a Payload"),
        ("codes = codes.astype(float)", "gives codes of float64; fp32 takes float32"),
        ("codes = codes[:-1]", r"gives \d+ codes for \d+ positions, with counts of"),
        ("indices = indices + layout.numel", r"gives indices from \d+ to \d+, of \d+ entries"),
        ("indices = indices.astype(float)", "can't be sent: its indices are float64"),
        (
            "codes = np.full_like(codes, np.inf)",
            "values that are not finite, though x is: raise Non",
        ),
        ("scales = scales[:0]", r"gives scales of float32 and shape \(0, 0\); fp32 takes float32"),
        ("scales = None", "gives scales of NoneType and shape"),
        ("x *= 0.5", "compress changes x, which is not its own; copy it first"),
        (
            "codes = x.numpy(); indices = None; counts = layout.size_array",
            r"gives \d+ values, and form\(layout\) says at most \d+; say the largest number",
        ),
    ],
)
def test_late_payloads_are_told_with_device_and_round(tmp_path, fault, said):
    path = broken(tmp_path, late_payload(fault), "block_compressor.py")
    with pytest.raises(OwnCodeError) as caught:
        train(path, tmp_path / "run", *ROUNDS, inline=True)
    first, second = str(caught.value).splitlines()
    assert re.match(r"gossip\.compressor\.kind: on device \d+ in round \d+ compress ", first), first
    assert re.search(said, first), first
    assert second.startswith("mend your code and start the run anew")


def test_a_payload_that_shares_memory_with_the_vector_is_a_copy_of_it(tmp_path):
    """The algorithm changes the vector after it was compressed, and before it is read."""
    same = "        codes, scales = FP32.quantize(values[indices], Segments(counts))\n"
    plain, shared = (tmp_path / name for name in ("plain", "shared"))
    runs = []
    for folder, codes in ((plain, "values.copy()"), (shared, "values")):
        folder.mkdir()
        dense = f"        indices, counts, codes = None, layout.size_array, {codes}\n"
        form = (
            "MessageForm.sparse(FP32, self._counts(layout), layout, select_ops=ops)",
            "MessageForm.dense(FP32, layout, encode_ops=ops)",
        )
        path = broken(folder, {same: same + dense, form[0]: form[1]}, "block_compressor.py")
        runs.append(train(path, folder / "run", *ROUNDS, inline=True))
    first, second = (load_run(run.path).consensus for run in runs)
    pd.testing.assert_frame_equal(first, second)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"return {}": "return {'mine': -3}"}, "conventions(layout) has 'mine': -3; must be names"),
        ({"return {}": "return {'mine': 1.5}"}, "conventions(layout) has 'mine': 1.5; must be nam"),
        ({"ops = 2 *": "ops = -2 *"}, "form(layout) has select_ops -358; must be a whole number"),
    ],
)
def test_costs_that_can_not_be_counted_are_refused(tmp_path, change, said):
    path = broken(tmp_path, change, "block_compressor.py")
    with pytest.raises(ScenarioError, match=re.escape(said)):
        prepare(load_scenario(path))


def test_conventions_may_be_numbers_of_numpy(tmp_path):
    path = broken(tmp_path, {"return {}": "return {'mine': np.int64(7)}"}, "block_compressor.py")
    run = train(
        path, tmp_path / "run", "training.rounds=2", "evaluation={every_rounds: 2}", inline=True
    )
    assert run.summary["message_bytes_by_convention"] == {"mine": 7}


def test_by_hand_an_algorithm_is_its_formula(monkeypatch, capsys):
    monkeypatch.syspath_prepend(str(EXAMPLES))
    import by_hand

    assert by_hand.main() < 1e-5
    assert capsys.readouterr().out.startswith("largest difference: ")
    right = by_hand.formula
    monkeypatch.setattr(by_hand, "formula", lambda X, W, S, eta: right(X, W, S, 0.99 * eta))
    assert by_hand.main() > 1e-3


def test_rounds_without_edges_are_tried_where_a_run_has_them(tmp_path):
    quiet = {
        "        if not out_edges:\n            return []\n": (
            "        if not out_edges:\n            state.x.mul_(0.9)\n            return []\n"
        )
    }
    path = broken(tmp_path, quiet)
    assert not any("sum of x" in said for said in prepare(load_scenario(path)).notices)
    notices = prepare(load_scenario(path, ["gossip.local_steps=2"])).notices
    (told,) = (said for said in notices if "sum of x" in said)
    assert told.startswith("gossip.algorithm: a round without out-edges changes the sum of x over")
    assert told.endswith(
        "send_ must leave the state as it is where out_edges is empty, as in rounds of local steps"
    )


def test_more_memory_than_it_holds_is_told_of(tmp_path):
    path = broken(tmp_path, {"Buffers(kept=1,": "Buffers(kept=7,"})
    told = "gossip.algorithm: buffers(1, 1) says that 7 flat vectors are kept beside x; the state"
    assert any(said.startswith(told) for said in prepare(load_scenario(path)).notices)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (
            {"    keeps_edges = False": ("    keeps_edges = False\n    needs_onegraph = True")},
            "member needs_onegraph, which edgesim does not read; did you mean needs_one_graph?",
        ),
        (
            {
                "    delta: torch.Tensor\n": (
                    "    delta: torch.Tensor\n\n    def take_rate(self, gamma):\n        pass\n"
                )
            },
            "member take_rate, which edgesim does not read; did you mean take_rate_?",
        ),
    ],
)
def test_members_that_may_be_misspelt_are_told_of(tmp_path, changes, said):
    path = broken(tmp_path, changes)
    assert any(said in notice for notice in prepare(load_scenario(path)).notices)


def test_an_algorithm_may_read_members_of_its_compressor(tmp_path):
    path = broken(
        tmp_path,
        {"        leaving =": "        assert self.compressor.block == 8\n        leaving ="},
    )
    prepare(load_scenario(path))  # which calls send_
    algorithm = make_algorithm(load_scenario(path), LAYOUT, Static(column_stochastic(ring(4))))
    again = pickle.loads(pickle.dumps(algorithm))  # to an actor
    assert again.compressor.block == 8
    assert again == algorithm
    with pytest.raises(AttributeError, match="blok"):
        _ = again.compressor.blok


def test_vectors_of_any_strides_and_with_nan_are_compressed(tmp_path):
    path = broken(
        tmp_path, {"if not np.isfinite(values).all():": "if False:"}, "block_compressor.py"
    )
    compressor = make_compressor(load_scenario(path))
    wide = torch.arange(2.0 * LAYOUT.numel).reshape(-1, 2)
    rng = np.random.default_rng(0)
    for x in (wide[:, 0], wide.flatten()[::2], torch.full((LAYOUT.numel,), torch.nan)):
        assert compressor.compress(x, LAYOUT, rng).num_values


def test_a_state_that_an_evaluation_can_not_keep_is_told_too(tmp_path):
    """Without checkpoints, further gossip before an evaluation keeps a copy of the state."""
    path = broken(tmp_path, late("state.delta = state.x"))
    further = "evaluation={every_rounds: 10, gossip_rounds: 2, device_models: every}"
    with pytest.raises(OwnCodeError, match="overlap in memory") as caught:
        train(path, tmp_path / "run", "training.rounds=20", further, inline=True)
    assert re.search(
        r"gossip\.algorithm: on device \d+ in round \d+ has a state", str(caught.value)
    )


def test_a_vector_that_is_kept_in_parts_counts(tmp_path):
    parts = {
        "    delta: torch.Tensor": "    delta: torch.Tensor\n    past: list",
        "return EcqState(x, 1.0, torch.zeros_like(x))": (
            "return EcqState(x, 1.0, torch.zeros_like(x), list(torch.zeros_like(x).split(50)))"
        ),
        "Buffers(kept=1,": "Buffers(kept=2,",
    }
    path = broken(tmp_path, parts)
    assert not any("flat vectors" in said for said in prepare(load_scenario(path)).notices)


@pytest.mark.parametrize(
    "gossip", ["algorithm: gradient_push", "algorithm: choco, compressor: {kind: identity}"]
)
def test_a_push_weight_that_rounding_leaves_below_0_is_none(tmp_path, gossip):
    """Each of ten devices sends all its mass away in nine equal parts."""
    (tmp_path / "all.py").write_text(
        "import networkx as nx\n\n"
        "def graph(num_devices):\n"
        "    made = nx.complete_graph(num_devices, nx.DiGraph)\n"
        "    nx.set_edge_attributes(made, 1 / (num_devices - 1), 'weight')\n"
        "    return made\n"
    )
    (tmp_path / "s.yaml").write_text(edgesim.dump_scenario(edgesim.load_scenario("quickstart")))
    settings = (
        f"gossip={{{gossip}, averaging_rate: 1.0}}",
        f"topology={{kind: '{tmp_path}/all.py:graph', weights: edges}}",
        *("fleet.devices=10", "data.train_samples=200"),
        *("training.epochs=null", "training.rounds=2", "evaluation={every_rounds: 2, samples: 40}"),
    )
    run = train(tmp_path / "s.yaml", tmp_path / "run", *settings, inline=True)
    assert run.summary["rounds"] == 2
