"""Gossip in a caller's steps: hooks, errors within a step, states to go on from."""

from __future__ import annotations

import gc
import weakref
from contextlib import suppress
from unittest.mock import Mock

import pytest
import torch
from process_alone import ALONE, parts, stepped
from torch import nn

import edgesim
from edgesim.distributed.peers import Peers, Transfer


def test_one_model_has_one_gossip_until_it_is_removed(group):
    model, optimizer = parts()
    first = edgesim.gossip_around(model, optimizer, ALONE)
    other = torch.optim.SGD([model.bias], lr=0.1)
    for again in (optimizer, other):
        with pytest.raises(edgesim.GossipError, match="already around parameter weight"):
            edgesim.gossip_around(model, again, ALONE)
    first.remove()
    second = edgesim.gossip_around(model, optimizer, ALONE)
    first.remove()  # again, which must not free what is the second's
    with pytest.raises(edgesim.GossipError, match="already around"):
        edgesim.gossip_around(model, other, ALONE)
    stepped(model, optimizer)
    assert (first.rounds, second.rounds) == (0, 1)


@pytest.mark.parametrize("has_scheduler", [False, True])
def test_a_model_whose_optimizer_is_gone_may_have_another_gossip(has_scheduler, group):
    """A scheduler makes a cycle of its optimizer, which lives until Python looks for cycles."""
    model, _ = parts()

    def trained():
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        if has_scheduler:
            torch.optim.lr_scheduler.StepLR(optimizer, 1)
        gossip = edgesim.gossip_around(model, optimizer, ALONE)
        stepped(model, optimizer)
        return gossip

    first = trained()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    second = edgesim.gossip_around(model, optimizer, ALONE)
    first.remove()  # which must not free what is the second's
    with pytest.raises(edgesim.GossipError, match="already around"):
        edgesim.gossip_around(model, optimizer, ALONE)
    stepped(model, optimizer)
    assert (first.rounds, second.rounds) == (1, 1)


def test_an_optimizer_with_gossip_ends_with_its_last_reference(group):
    model, optimizer = parts()
    edgesim.gossip_around(model, optimizer, ALONE)
    stepped(model, optimizer)
    gone = weakref.ref(optimizer)
    gc.disable()
    try:
        del optimizer
        assert gone() is None
    finally:
        gc.enable()


def test_removed_hooks_leave_the_optimizer_as_it_was(group):
    model, optimizer = parts()
    gossip = edgesim.gossip_around(model, optimizer, ALONE)
    gossip.remove()
    model(torch.ones(1, 3)).sum().backward()
    optimizer.step()
    assert gossip.rounds == 0


def test_a_training_that_diverges_says_so(group):
    model, optimizer = parts()
    edgesim.gossip_around(model, optimizer, ALONE)
    model(torch.full((1, 3), torch.nan)).sum().backward()
    optimizer.step()  # alone a process sends nothing, so the next step notices
    with pytest.raises(edgesim.GossipError, match="process 0 diverged in round 1: a parameter"):
        optimizer.step()


REPLACED = {
    "replaced": (
        lambda model, _: setattr(model[1], "weight", nn.Parameter(torch.ones(2, 3))),
        "parameter 1.weight of the model is not the tensor that gossip began with",
    ),
    "added": (
        lambda model, _: model.append(nn.Linear(2, 2)),
        "parameter 2.weight of the model is not the tensor that gossip began with",
    ),
    "left out": (lambda model, _: model.pop(1), "parameter 1.(weight|bias) is no longer in the"),
    "unfrozen": (
        lambda model, _: model[0].bias.requires_grad_(True),
        "parameter 0.bias of the model had no gradient when gossip began",
    ),
    "of the optimizer": (
        lambda _, optimizer: optimizer.add_param_group({"params": [nn.Parameter(torch.ones(2))]}),
        "the optimizer has 1 parameters that gossip did not begin with",
    ),
}


@pytest.mark.parametrize("what", REPLACED)
def test_tensors_that_gossip_did_not_begin_with_are_refused(what, group):
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 2))
    model[0].bias.requires_grad_(False)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    gossip = edgesim.gossip_around(model, optimizer, ALONE)
    stepped(model, optimizer)
    change, message = REPLACED[what]
    change(model, optimizer)
    with pytest.raises(edgesim.GossipError, match=f"{message}.*; to change the model call gossip"):
        stepped(model, optimizer)
    gossip.remove()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    again = edgesim.gossip_around(model, optimizer, ALONE)
    stepped(model, optimizer)
    assert (gossip.steps, again.steps) == (1, 1)


def test_a_rate_of_zero_is_refused_before_the_step_and_harms_nothing(group):
    """Schedules without eta_min have it at their end."""
    model, optimizer = parts()
    gossip = edgesim.gossip_around(model, optimizer, ALONE | {"gossip": {"algorithm": "gut"}})
    stepped(model, optimizer)
    optimizer.param_groups[0]["lr"] = 0.0
    with pytest.raises(edgesim.GossipError, match=r"gut keeps .* above 0; .* has 0: .*eta_min"):
        stepped(model, optimizer)
    optimizer.param_groups[0]["lr"] = 0.05
    stepped(model, optimizer)
    assert gossip.rounds == 2


@pytest.mark.parametrize("u", [1.0, 0.5])
def test_a_step_whose_closure_raises_may_be_taken_again(u, group):
    model, optimizer = parts()
    gossip = edgesim.gossip_around(model, optimizer, ALONE)
    state = gossip._member.state
    state.x.mul_(u)
    state.u = u
    before = model.weight.clone()

    def closure():
        assert torch.equal(model.weight, before)
        raise KeyboardInterrupt

    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            optimizer.step(closure)
        assert torch.equal(model.weight, before)
    gossip.state_dict()
    stepped(model, optimizer)
    assert gossip.rounds == 1


class Swallowing(torch.optim.Optimizer):
    """Goes on where its closure raises an error."""

    def __init__(self, parameters):
        super().__init__(parameters, {"lr": 0.1})

    @torch.no_grad()
    def step(self, closure):
        with suppress(ValueError):
            closure()
        for parameter in self.param_groups[0]["params"]:
            parameter.sub_(parameter.grad)


@pytest.mark.parametrize("u", [1.0, 0.5])
def test_a_step_that_goes_on_after_an_error_of_its_closure_is_refused(u, group):
    """The module holds z by then, which would be taken for the x of the step."""
    model = nn.Linear(3, 2)
    optimizer = Swallowing(model.parameters())
    gossip = edgesim.gossip_around(model, optimizer, ALONE)
    state = gossip._member.state
    state.x.mul_(u)
    state.u = u
    before = model.weight.clone()
    model(torch.ones(1, 3)).sum().backward()

    def closure():
        raise ValueError

    for _ in range(2):
        with pytest.raises(edgesim.GossipError, match="the optimizer went on after an error of"):
            optimizer.step(closure)
        assert torch.equal(model.weight, before)
    assert gossip.rounds == 0
    optimizer.step(lambda: model(torch.ones(1, 3)).sum())
    assert gossip.rounds == 1


def test_an_error_in_the_callers_step_says_how_to_go_on(group):
    model, optimizer = parts()
    gossip = edgesim.gossip_around(model, optimizer, ALONE)
    before = model.weight.clone()

    def fail(*_):
        model.weight.data.add_(1)
        raise MemoryError

    failing = optimizer.register_step_pre_hook(fail)
    with pytest.raises(MemoryError):
        stepped(model, optimizer)
    failing.remove()
    with pytest.raises(
        edgesim.GossipError, match=r"ended optimizer\.step\(\) in its middle, before"
    ):
        stepped(model, optimizer)
    gossip.load_state_dict(gossip.state_dict())
    assert torch.equal(model.weight, before)
    stepped(model, optimizer)
    assert gossip.rounds == 1


OWN = """
from edgesim.gossip.gradient_push import GradientPush

class Mine(GradientPush):
    def {method}(self, state, *others):
        given = super().{method}(state, *others)
        {change}
        return given
"""


@pytest.mark.parametrize(
    ("method", "change", "message"),
    [
        ("send_", "state.x = state.x[1:]", r"after send_ x is float32 of shape \(7,\); must stay"),
        ("absorb_", "state.u = None", "after absorb_ u is None; must be a finite float"),
    ],
)
def test_an_own_algorithm_that_spoils_its_state_is_told(method, change, message, group, tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(OWN.format(method=method, change=change))
    model, optimizer = parts()
    scenario = ALONE | {"gossip": {"algorithm": f"{path}:Mine", "averaging_rate": 1.0}}
    edgesim.gossip_around(model, optimizer, scenario)
    with pytest.raises(edgesim.GossipError, match=f"^gossip.algorithm: on rank 0 in .* {message}"):
        stepped(model, optimizer)


NO_STATES = {
    "none": (None, "it is a NoneType"),
    "all of a checkpoint": ({"model": {}, "gossip": {}}, "it has no key digest"),
    "a changed round": ({"round_index": -1}, "its round_index is -1, where no step begins"),
    "no round": ({"round_index": "3"}, "its round_index is '3', where no step begins"),
}


@pytest.mark.parametrize("what", NO_STATES)
def test_what_is_no_state_of_gossip_is_refused(what, group):
    gossip = edgesim.gossip_around(*parts(), ALONE)
    given, message = NO_STATES[what]
    if "round" in what:
        given = gossip.state_dict() | given
    with pytest.raises(edgesim.GossipError, match=f"this is no state of gossip: {message}; give"):
        gossip.load_state_dict(given)


def test_who_sent_nothing_in_time_is_named(group, monkeypatch):
    peers, text = Peers(None), "[pair.cc:1] Timed out waiting 1500ms for recv operation"
    work = Mock(wait=Mock(side_effect=RuntimeError(text)))
    monkeypatch.setattr(peers, "_receive", lambda *_: Transfer(work, torch.zeros(1)))
    said = "process 0 of 1 waits in round 5 for process 3: nothing came within 1.5 s; process 3 is "
    with pytest.raises(edgesim.GossipError, match=f"^{said}slower, has ended, or is in average"):
        peers.exchange({}, [3], 5, longest_bytes=100)
