"""What an algorithm of one's own does wrong only later in a run is told with device and round."""

from __future__ import annotations

import re
import shutil

import pytest
from runs_of_examples import EXAMPLES, train

from edgesim.assembly.preparation import prepare
from edgesim.device.trainer import DivergedError
from edgesim.errors import OwnCodeError, ScenarioError
from edgesim.scenario import load_scenario

ROUNDS = ("training.rounds=20", "evaluation={every_rounds: 10}")
FIELD = {"delta: torch.Tensor": "delta: torch.Tensor\n    rounds: int = 0"}
LATE = 6  # the rehearsal has three rounds


def late(fault, *, in_send=False):
    """Changes of the example by which something happens in a later round."""
    at = "        u, v = state.u" if in_send else "        for share in received:"
    count = f"        state.rounds += 1\n        if state.rounds == {LATE}:\n            {fault}\n"
    return FIELD | {at: count + at}


def broken(folder, changes):
    """A scenario with a changed copy of the example."""
    for file in EXAMPLES.iterdir():
        if file.is_file():
            shutil.copy(file, folder)
    source = (folder / "ecq_gossip.py").read_text()
    for old, new in changes.items():
        assert source.count(old) == 1, old
        source = source.replace(old, new)
    (folder / "ecq_gossip.py").write_text(source)
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
        ("state.delta = state.x", "gossip/delta and gossip/x share memory; clone one of them"),
        ("state.past = {6}", "gossip/past is of type set; must be of tensors, numbers, text"),
    ],
)
def test_a_state_that_a_checkpoint_would_change_ends_the_run(tmp_path, fault, said):
    """It would go on with other bits when it is resumed."""
    fault = fault.replace("rounds", "past")
    path = broken(
        tmp_path,
        late(fault)
        | {"delta: torch.Tensor": FIELD["delta: torch.Tensor"] + "\n    past: object = None"},
    )
    with pytest.raises(OwnCodeError) as caught:
        train(path, tmp_path / "run", *ROUNDS, "recovery.checkpoint_every_rounds=1", inline=True)
    assert said in str(caught.value)


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
            {
                "    keeps_edges: ClassVar[bool] = False": (
                    "    keeps_edges: ClassVar[bool] = False\n    needs_onegraph = True"
                )
            },
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
def test_misspelt_members_are_refused(tmp_path, changes, said):
    path = broken(tmp_path, changes)
    with pytest.raises(ScenarioError, match=re.escape(said)):
        prepare(load_scenario(path))
