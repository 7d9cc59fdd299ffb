"""Parts of one's own are tried before a run: each does once what it will do in every round.

What a part gives is checked where it is given. In a run a wrong value would be noticed later, far
from the code that made it, or not at all. Parts of the catalog are made, which checks their
options, but not tried.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import is_dataclass
from math import isfinite
from typing import Any

import numpy as np
import torch
from torch import Tensor

from edgesim.assembly.build import make_learning_rates, make_optimizer
from edgesim.assembly.gossip import make_algorithm, with_some_rate
from edgesim.assembly.own_data import batch_transform
from edgesim.assembly.own_errors import failure, own_code, with_frames
from edgesim.compression.compressors import Compressor
from edgesim.compression.message_form import MessageForm
from edgesim.compression.payload import Payload
from edgesim.compression.wire import Message, decode, encode
from edgesim.data.batches import transformed
from edgesim.data.errors import DataError
from edgesim.errors import EdgesimError, ScenarioError
from edgesim.gossip.algorithm import Algorithm, Buffers, GossipState, OutEdge, Share
from edgesim.hardware.work import Work
from edgesim.learning.flat_model import FlatModel
from edgesim.learning.optimizers import LearningRates, Optimizer
from edgesim.learning.parameters import ParameterLayout
from edgesim.learning.tasks import Task
from edgesim.results.columns import EVALUATIONS, OWN_EVALUATIONS, VIRTUAL_EVALUATIONS
from edgesim.scenario.own_parts import OwnPart
from edgesim.scenario.schema import Scenario
from edgesim.storage.state_tree import Arrays, pack, restore_
from topologies import Schedule

ALGORITHM, COMPRESSOR = "gossip.algorithm", "gossip.compressor.kind"
OPTIMIZER, SCHEDULE = "training.optimizer.kind", "training.schedule.kind"
DATASET, MODEL, TASK = "data.source", "model.name", "training.task"
MOST_EPOCHS = 1000  # whose learning rates are looked at

_NAME = re.compile(r"[a-z][a-z0-9_]{0,31}")
_METRIC = re.compile(r"[a-z][a-z0-9_]*")
_TAKEN = {column.name for column in EVALUATIONS + VIRTUAL_EVALUATIONS + OWN_EVALUATIONS}
_EDGE = OutEdge(receiver=1, weight=0.5)


@own_code()
def rehearse(
    scenario: Scenario,
    schedule: Schedule,
    flat: FlatModel,
    batch: tuple[Tensor, Tensor],
    num_epochs: int,
) -> None:
    """Make all parts that devices are made of, and try those of one's own.

    Args:
        scenario: of the run; its averaging rate may not have been found yet.
        schedule: of its graphs.
        flat: the initial model; it is as it was afterwards.
        batch: inputs and targets of a few samples.
        num_epochs: of the run.

    Raises:
        ScenarioError: one of them fails, or gives what can't be used.
    """
    gossip, training = scenario.gossip, scenario.training
    algorithm = make_algorithm(with_some_rate(scenario), flat.layout, schedule)
    optimizer, rates = make_optimizer(scenario), make_learning_rates(scenario)
    check_declarations(scenario, algorithm, None)
    x = flat.parameters.cpu()
    if _is_own(gossip.compressor.kind):
        _rehearse_compressor(algorithm.compressor, flat.layout, _small_change(x))
    if _is_own(gossip.algorithm):
        _rehearse_algorithm(algorithm, x)
    if _is_own(training.optimizer.kind):
        _rehearse_optimizer(optimizer, x[: flat.num_trainable], training.optimizer.lr)
    if _is_own(training.schedule.kind):
        _rehearse_rates(rates, num_epochs)
    if (transform := batch_transform(scenario.data)) is not None:
        _called(DATASET, "transform", transformed, batch[0].numpy(), transform, _new_rng())


def _is_own(named: object) -> bool:
    """Whether a part is one's own, and none of the catalog."""
    return isinstance(named, OwnPart) and not named.shipped_as


def check_declarations(
    scenario: Scenario, algorithm: Algorithm[Any], optimizer: Optimizer | None
) -> None:
    """Refuse what one's own parts say of their messages and their work, if it can't be counted.

    Args:
        scenario: that names them.
        algorithm: with its compressor and layout.
        optimizer: None where it is looked at elsewhere.

    Raises:
        ScenarioError: a name, a count or a sum of bytes has another form.
    """
    compressor, layout = algorithm.compressor, algorithm.layout
    if _is_own(scenario.gossip.compressor.kind):
        _check_hash(COMPRESSOR, compressor)
        _check_compressor_declarations(compressor, layout)
    if optimizer is not None and _is_own(scenario.training.optimizer.kind):
        _check_optimizer_declarations(optimizer, layout.numel)
    if _is_own(scenario.gossip.algorithm):
        _check_hash(ALGORITHM, algorithm)
        name = algorithm.name
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise ScenarioError(f"{ALGORITHM}: name is {name!r}; must be 1 to 32 of a-z, 0-9 and _")
        _expect(ALGORITHM, "work(1, 1)", _called(ALGORITHM, "work", algorithm.work, 1, 1), Work)
        buffers = _called(ALGORITHM, "buffers", algorithm.buffers, 1, 1)
        _expect(ALGORITHM, "buffers(1, 1)", buffers, Buffers)


def _check_compressor_declarations(compressor: Compressor, layout: ParameterLayout) -> None:
    key = COMPRESSOR
    _expect(key, "form(layout)", _called(key, "form", compressor.form, layout), MessageForm)
    said = _called(key, "conventions", compressor.conventions, layout)
    if not isinstance(said, Mapping) or not all(
        isinstance(name, str) and isinstance(size, int | np.integer) for name, size in said.items()
    ):
        raise ScenarioError(
            f"{key}: conventions(layout) gives {_shown(said)}; must be a dict of bytes by name, "
            "empty if nobody counts such messages"
        )
    keep = compressor.keep
    if not isinstance(keep, float | int) or not 0 < keep <= 1:
        raise ScenarioError(f"{key}: keep is {keep!r}; must be a share of the entries, in (0, 1]")


def _rehearse_algorithm(algorithm: Algorithm[Any], x: Tensor) -> None:
    """Exchange one message between two devices, twice."""
    bits = [_exchange(algorithm, x, _small_change(x)) for _ in range(2)]
    if bits[0] != bits[1]:
        raise ScenarioError(
            f"{ALGORITHM}: two rounds from the same state and generator differ; draw from the rng "
            "that you are given alone, and keep what changes in the state"
        )


def _small_change(x: Tensor) -> Tensor:
    """What a step might add to the parameters."""
    return torch.randn(len(x), generator=torch.Generator().manual_seed(0)) / 100


def _rehearse_compressor(compressor: Compressor, layout: ParameterLayout, x: Tensor) -> None:
    """Compress a vector twice, and read the message."""
    key, before = COMPRESSOR, x.clone()
    sent = []
    for _ in range(2):
        payload = _called(key, "compress", compressor.compress, x, layout, _new_rng())
        _expect(key, "compress(x, layout, rng)", payload, Payload)
        sent.append(_as_bytes(key, "tried", payload, layout))
    if not torch.equal(x, before):
        raise ScenarioError(f"{key}: compress changes x, which is not its own; copy it first")
    if sent[0] != sent[1]:
        raise ScenarioError(
            f"{key}: two payloads of one vector and generator differ; draw from rng alone"
        )


def _as_bytes(key: str, name: str, payload: Payload, layout: ParameterLayout) -> bytes:
    """A payload as a message, which its receiver must read as it was meant."""
    data, wrong, cause = b"", None, None
    if payload.layout != layout:
        wrong = f"its layout has {payload.layout.numel} entries, not {layout.numel}"
    try:
        sent = payload.decode()
        data = encode(Message(name, 0, 1, 0, 0, 1.0, 1.0, payload))
        if not torch.equal(decode(data, layout).payload.decode(), sent):
            wrong = "its receiver reads other values"
        if not torch.isfinite(sent).all():
            wrong = "it has values that are not finite"
    except Exception as error:  # noqa: BLE001 (whatever comes of such a payload)
        wrong, cause = wrong or f"{type(error).__name__}: {error}", error
    if wrong is None:
        return data
    raise ScenarioError(
        f"{key}: a payload of {payload.num_values} values can't be sent: {wrong}; indices ascend, "
        "counts say how many values are of each tensor, codes are of the code's own type"
    ) from cause


def _exchange(algorithm: Algorithm[Any], x: Tensor, change: Tensor) -> bytes:
    """One round of a device that sends one message, which another device takes in; their bits."""
    key, rng = ALGORITHM, _new_rng()
    states = [_called(key, "init", algorithm.init, x.clone(), {1 - n: 0.5}) for n in range(2)]
    for state in states:
        _check_state(key, "init", state, x)
    states[0].x += change
    shares = _called(key, "send_", algorithm.send_, states[0], [_EDGE], rng)
    if not isinstance(shares, list | tuple) or not all(isinstance(s, Share) for s in shares):
        raise ScenarioError(
            f"{key}: send_ gives {_shown(shares)}; must be a list of Share, one for each out-edge"
        )
    if [share.peer for share in shares] != [_EDGE.receiver]:
        peers = [share.peer for share in shares]
        raise ScenarioError(f"{key}: for an edge to device 1, send_ gives shares for {peers}")
    (share,) = shares
    _expect(key, "the payload of a share", share.payload, Payload)
    if not (isfinite(share.push_weight) and share.push_weight >= 0 and isfinite(share.weight)):
        raise ScenarioError(
            f"{key}: a share has weight {share.weight} and push weight {share.push_weight}; must "
            "be finite and not negative"
        )
    data = _as_bytes(key, algorithm.name, share.payload, algorithm.layout)
    arrived = Share(0, share.weight, share.push_weight, decode(data, algorithm.layout).payload)
    _called(key, "absorb_", algorithm.absorb_, states[1], [arrived])
    tried = []
    for name, state in zip(("send_", "absorb_"), states, strict=True):
        _check_state(key, name, state, x)
        tried += [state.x.numpy().tobytes(), repr(float(state.u)).encode()]
    return b"".join([data, *tried])


def _check_state(key: str, after: str, state: object, x: Tensor) -> None:
    """A state that a device can train from, and that a checkpoint can hold."""
    if not isinstance(state, GossipState):
        raise ScenarioError(
            f"{key}: {after} gives {_shown(state)}; must be a GossipState, or a dataclass that "
            "extends it"
        )
    found, u = state.x, state.u
    if not isinstance(found, Tensor) or found.shape != x.shape or found.dtype != x.dtype:
        raise ScenarioError(
            f"{key}: after {after} x is {_shown(found)}; must stay float32 of shape {(len(x),)}"
        )
    if not torch.isfinite(found).all() or not isinstance(u, float) or not (isfinite(u) and u >= 0):
        raise ScenarioError(
            f"{key}: after {after} x or u is not finite, or u is {u!r}; u is a float, at least 0"
        )
    _check_kept(key, state)


def _check_kept(key: str, state: object) -> None:
    """Refuse a state that can't be written to a checkpoint and read back."""
    arrays: Arrays = {}
    try:
        if not is_dataclass(state):
            raise TypeError(f"it is {_shown(state)}")  # noqa: TRY301 (one message for all reasons)
        restore_(state, pack(state, arrays, "state"), arrays)
    except Exception as error:
        raise ScenarioError(
            f"{key}: its state can't be kept in a checkpoint: {error}; it is a dataclass of "
            "tensors, numbers, text, and dicts, tuples and lists of these"
        ) from error


def _check_optimizer_declarations(optimizer: Optimizer, numel: int) -> None:
    for name in ("kept", "kept_in_gossip"):
        if not isinstance(number := getattr(optimizer, name), int):
            raise ScenarioError(
                f"{OPTIMIZER}: {name} is {number!r}; must be a number of flat vectors"
            )
    _expect(OPTIMIZER, "work(n)", _called(OPTIMIZER, "work", optimizer.work, numel), Work)


def _rehearse_optimizer(optimizer: Optimizer, x: Tensor, lr: float) -> None:
    """Take one step, and one look at what gossip did, twice."""
    key = OPTIMIZER
    _check_optimizer_declarations(optimizer, len(x))
    gradient = torch.randn(len(x), generator=torch.Generator().manual_seed(1)) / 100
    results = []
    for _ in range(2):
        moved = x.clone()
        state = _called(key, "init", optimizer.init, moved)
        _check_kept(key, state)
        _called(key, "step_", optimizer.step_, state, moved, gradient.clone(), lr)
        _called(key, "after_gossip_", optimizer.after_gossip_, state, moved, 1.0, lr)
        _check_kept(key, state)
        if moved.shape != x.shape or not torch.isfinite(moved).all():
            raise ScenarioError(f"{key}: after step_ x has another shape, or is not finite")
        results.append(moved)
    if not torch.equal(*results):
        raise ScenarioError(f"{key}: two steps from the same state and gradient differ")


def _rehearse_rates(rates: LearningRates, num_epochs: int) -> None:
    """Ask for the learning rates of epochs from the first to the last."""
    for epoch in range(0, num_epochs, max(num_epochs // MOST_EPOCHS, 1)):
        rate = _called(SCHEDULE, "at", rates.at, epoch)
        if not (isinstance(rate, float | int) and rate >= 0 and isfinite(rate)):
            raise ScenarioError(
                f"{SCHEDULE}: the learning rate of epoch {epoch} is {rate!r}; must be a number, at "
                "least 0"
            )


def rehearse_task(task: Task, flat: FlatModel, inputs: Tensor, targets: Tensor) -> None:
    """Take the loss of a batch, and evaluate the batch.

    Args:
        task: of one's own.
        flat: the initial model; it is as it was afterwards.
        inputs: a batch.
        targets: of these.

    Raises:
        ScenarioError: it fails, or gives what is no loss and no measures.
    """
    metrics, key = task.metrics, TASK
    if not isinstance(metrics, Mapping) or not all(
        isinstance(word, str) for pair in metrics.items() for word in pair
    ):
        raise ScenarioError(
            f"{key}: metrics is {_shown(metrics)}; must be a dict of meanings by name"
        )
    for name in metrics:
        if not _METRIC.fullmatch(name) or name in _TAKEN:
            raise ScenarioError(
                f"{key}: a metric is called {name}; must be of a-z, 0-9 and _, and no other column "
                "of evaluations.parquet"
            )
    parameters, buffers = flat.parameters.clone(), flat.buffers.clone()
    with flat.around_step():
        outputs = _called(MODEL, "a forward pass", flat.model.train(), inputs)
    loss = _called(key, "loss", task.loss, outputs, targets)
    if not isinstance(loss, Tensor) or loss.numel() != 1 or not loss.requires_grad:
        raise ScenarioError(
            f"{key}: loss gives {_shown(loss)}; must be one number with a gradient, the mean over "
            "the batch"
        )
    with torch.no_grad():
        outputs = _called(MODEL, "a forward pass", flat.model.eval(), inputs)
    sums = _called(key, "sums", task.sums, outputs, targets)
    _check_figures("sums(outputs, targets)", sums, ("loss",))
    means = {name: total / len(targets) for name, total in sums.items()}
    summary = _called(key, "summary", task.summary, means)
    _check_figures("summary(means)", summary, ("loss", *metrics))
    if more := set(summary) - {"accuracy", "loss", *metrics}:
        raise ScenarioError(
            f"{key}: summary(means) gives {', '.join(sorted(more))} too; name it in metrics"
        )
    flat.load_(parameters, buffers)


def _check_figures(said: str, figures: object, needed: tuple[str, ...]) -> None:
    if not isinstance(figures, Mapping):
        raise ScenarioError(f"{TASK}: {said} gives {_shown(figures)}; must be a dict of numbers")
    for name in needed:
        if name not in figures:
            raise ScenarioError(f"{TASK}: {said} has no {name}")
    for name, figure in figures.items():
        if not isinstance(figure, float | int):
            raise ScenarioError(
                f"{TASK}: {said} gives {_shown(figure)} as {name}; must be a number of Python: "
                "float(...)"
            )


def _new_rng() -> np.random.Generator:
    """A generator that gives the same numbers each time."""
    return np.random.default_rng(0)


def _check_hash(key: str, part: object) -> None:
    try:
        hash(part)
    except TypeError as error:
        raise ScenarioError(
            f"{key}: {type(part).__name__} can't be hashed ({error}); make it a dataclass with "
            "frozen=True, whose fields can be hashed: tuples instead of lists"
        ) from error


def _called(key: str, name: str, method: Callable[..., Any], *arguments: object) -> Any:  # noqa: ANN401
    """What a method gives; its errors are said with their place."""
    try:
        return method(*arguments)
    except DataError:
        raise
    except EdgesimError as error:
        raise with_frames(ScenarioError(f"{key}: {name} refuses: {error}"), error) from error
    except Exception as error:
        raise with_frames(ScenarioError(f"{key}: {name} {failure(error)}"), error) from error


def _expect(key: str, said: str, found: object, kind: type) -> None:
    if not isinstance(found, kind):
        raise ScenarioError(f"{key}: {said} gives {_shown(found)}; must be a {kind.__name__}")


def _shown(value: object) -> str:
    """What a value is, shortly."""
    if isinstance(value, Tensor):
        return f"a tensor of {value.dtype} and shape {tuple(value.shape)}"
    if value is None or isinstance(value, bool | int | float | str):
        return repr(value)
    return f"an object of type {type(value).__name__}"
