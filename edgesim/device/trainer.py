"""The local part of a device's round: batch, forward and backward pass, optimizer step."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import isfinite
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor

from edgesim.costs.metered_model import MeteredModel
from edgesim.data.batches import BatchStream
from edgesim.errors import EdgesimError
from edgesim.gossip.algorithm import GossipState
from edgesim.hardware.work import Work
from edgesim.learning.optimizers import LearningRates, Optimizer
from edgesim.models.dropout import seed_dropout_
from edgesim.quant.errors import NonFiniteError
from edgesim.quant.layers import seed_rounding_
from edgesim.storage.state_tree import Arrays, pack, restore_, unpack
from edgesim.streams import StreamPurpose, torch_seed


class DivergedError(EdgesimError):
    """A number of the training is not finite; the message names device, round and remedy."""

    @classmethod
    def of(cls, device: str, round_index: int, what: str) -> DivergedError:
        """Error of a device, such as `device 3`, in a round."""
        return cls(
            f"{device} diverged in round {round_index}: {what}; "
            "lower training.optimizer.lr or gossip.averaging_rate"
        )


class ZeroRateError(EdgesimError):
    """A learning rate is 0 where the algorithm or the optimizer needs it above."""


def rate_of_0(epoch: int, use: str) -> str:
    """That the learning rate of an epoch is 0, why it may not be, and the remedy, in words."""
    return (
        f"the learning rate of epoch {epoch} is 0, but {use}: let all rates be above 0, or choose "
        "another optimizer or gossip.algorithm"
    )


class Trainer:
    """Takes a device's local steps.

    Args:
        device: number of the device whose random streams it uses: its own, or one that all share.
        seed: of the scenario.
        batches: mini-batches of the device's shard, a pure function of the round.
        optimizer: a frozen object.
        learning_rates: by epoch.
        rounds_per_epoch: rounds that the fleet calls an epoch.
        x: initial parameters, shape (D,).
        num_trainable: entries of x that have a gradient; the others, at its end, are statistics.
        buffers: initial local statistics of the model; taken over.
        steps_on_model: a step moves z = x/u by gamma d, whatever u is, instead of x. At free pace u
            is proportional to the time between two sends of a device, so it is small on quick
            devices. A step on x would move their models by gamma d / u, which is too far. A step on
            z moves sum(x) by gamma u d (docs/free-pace.md, "How much a device counts").
        use_of_rate: what needs learning rates above 0, in words; empty if nothing does.
        label: of the device in messages; None: its number.
        step_of: number of the step of a round; by default each round has one.

    Attributes:
        buffers: the model's local statistics, flat.
        label: of the device in messages.
    """

    def __init__(
        self,
        *,
        device: int,
        seed: int,
        batches: BatchStream,
        optimizer: Optimizer,
        learning_rates: LearningRates,
        rounds_per_epoch: int,
        x: Tensor,
        num_trainable: int,
        buffers: Tensor,
        steps_on_model: bool,
        use_of_rate: str = "",
        label: str | None = None,
        step_of: Callable[[int], int] = int,
    ) -> None:
        self.buffers = buffers
        self.label = label or f"device {device}"
        self._device = device
        self._seed = seed
        self._batches = batches
        self._optimizer = optimizer
        self._optimizer_state = optimizer.init(x[:num_trainable])
        self._learning_rates = learning_rates
        self._rounds_per_epoch = rounds_per_epoch
        self._num_trainable = num_trainable
        self._steps_on_model = steps_on_model
        self._use_of_rate = use_of_rate
        self._step_of = step_of
        self._push_weight = 1.0  # at the newest step
        self._works: dict[int, Work] = {}  # of a step, by the size of its batch

    @property
    def num_samples(self) -> int:
        """Training samples of the device."""
        return self._batches.num_samples

    @property
    def num_trained(self) -> int:
        """Entries of x that have a gradient."""
        return self._num_trainable

    def epoch(self, round_index: int) -> int:
        """Epoch of a round."""
        return round_index // self._rounds_per_epoch

    def learning_rate(self, round_index: int) -> float:
        """Learning rate of a round."""
        return self._learning_rates.at(self.epoch(round_index))

    def step_(
        self, state: GossipState, model: MeteredModel, round_index: int
    ) -> tuple[float, Work]:
        """One step at z = x/u, in place in `state.x`; its loss and its work.

        Raises:
            DivergedError: the loss, an activation, a gradient or a parameter is not finite.
            ZeroRateError: the learning rate is 0, which the optimizer or the algorithm can't use.
        """
        flat, trainable = model.flat, self._num_trainable
        if (rate := self.learning_rate(round_index)) == 0 and self._use_of_rate:
            said = rate_of_0(self.epoch(round_index), self._use_of_rate)
            raise ZeroRateError(f"training.schedule.kind: {said}")
        self._seed_layers_(model, round_index)
        images_NCHW, labels_N = self._batches.batch(self._step_of(round_index))
        # A quotient would be kept through the step beside the model's own vector.
        (flat.use_ if state.u == 1.0 else flat.load_)(state.debiased(), self.buffers)
        try:
            loss, gradient, work = model.loss_and_gradient(images_NCHW, labels_N)
        except NonFiniteError as error:
            raise DivergedError.of(self.label, round_index, str(error)) from error
        if not isfinite(loss):
            raise DivergedError.of(self.label, round_index, f"the loss is {loss}")
        self.buffers.copy_(flat.buffers)
        self._push_weight = state.u
        x, u = state.x[:trainable], state.u
        moved = x / u if self._steps_on_model else x
        self._optimizer.step_(self._optimizer_state, moved, gradient[:trainable], rate)
        state.take_rate_(rate)
        if self._steps_on_model:
            torch.mul(moved, u, out=x)
        if trainable < len(state.x):
            state.x[trainable:] = flat.parameters[trainable:] * state.u
        size = len(labels_N)
        if size not in self._works:
            self._works[size] = work + self._optimizer.work(trainable)
        return loss, self._works[size]

    def after_gossip_(self, state: GossipState, round_index: int) -> None:
        """Tell the optimizer how gossip has moved the model since the step.

        A change of u alone is not a movement: x is rescaled to the u of the step.
        """
        if state.u == 0:  # the device has given its model away
            return
        x, u = state.x[: self._num_trainable], self._push_weight
        if self._steps_on_model:
            x, u = x / state.u, 1.0
        elif state.u != u:
            x = x * (u / state.u)
        rate = self.learning_rate(round_index)
        self._optimizer.after_gossip_(self._optimizer_state, x, u, rate)

    def step_work(self, model: MeteredModel, round_index: int) -> Work:
        """Work of a round's step; if it is unknown, a step is computed and its result dropped."""
        size = self._batches.size(self._step_of(round_index))
        if size not in self._works:
            images_NCHW, labels_N = self._batches.batch(self._step_of(round_index))
            self._seed_layers_(model, round_index)
            _, _, work = model.loss_and_gradient(images_NCHW, labels_N)
            self._works[size] = work + self._optimizer.work(self._num_trainable)
        return self._works[size]

    def known_work(self, round_index: int) -> Work:
        """Work of a round's step, or zero if no step of its batch size was taken yet."""
        return self._works.get(self._batches.size(self._step_of(round_index)), Work())

    def state(self, arrays: Arrays) -> dict[str, Any]:
        """State of the trainer between two rounds; vectors go into `arrays`."""
        return {
            "optimizer": pack(self._optimizer_state, arrays, "optimizer"),
            "buffers": pack(self.buffers, arrays, "buffers"),
        }

    def restore(self, state: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> None:
        """Restore the state that `state` returned."""
        restore_(self._optimizer_state, state["optimizer"], arrays)
        self.buffers = unpack(state["buffers"], arrays)

    def _seed_layers_(self, model: MeteredModel, round_index: int) -> None:
        """Give layers that draw random numbers, if there are any, the seeds of a round."""
        if model.dropout_layers:
            seed = self._seed_of(StreamPurpose.DROPOUT, round_index)
            seed_dropout_(model.dropout_layers, seed)
        if model.rounding_layers:
            seed = self._seed_of(StreamPurpose.ROUNDING, round_index)
            seed_rounding_(model.rounding_layers, seed)

    def _seed_of(self, purpose: StreamPurpose, round_index: int) -> int:
        return torch_seed(self._seed, purpose, self._device, round_index)
