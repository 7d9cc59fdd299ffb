"""A torch model whose parameters and float buffers are views of flat vectors.

Devices of one process borrow the same model in turn. The state of a device is flat vectors alone,
so thousands of devices fit one machine, and a device can be moved between processes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from weakref import WeakMethod

import torch
from torch import Tensor, nn

from edgesim.learning.parameters import ParameterLayout, trainable_first
from edgesim.learning.tasks import CLASSIFICATION, Task

CPU = torch.device("cpu")

_LONG = 1 << 20  # entries of which one pass takes longer than a call for each tensor


@dataclass(frozen=True, slots=True)
class Quality:
    """Quality of one model on one set of samples.

    Attributes:
        accuracy: fraction of samples whose largest logit is the label; None in tasks without.
        loss: mean loss of the task; of a classification cross-entropy, nats.
        metrics: further figures of the task, by name.
    """

    accuracy: float | None
    loss: float
    metrics: Mapping[str, float] = field(default_factory=dict)

    @property
    def figures(self) -> dict[str, float | None]:
        """All of them, by name."""
        return {"accuracy": self.accuracy, "loss": self.loss, **self.metrics}


class FlatModel:
    """Wraps a model, taking over its tensors; not for use by two threads at once.

    Args:
        model: on the CPU.
        device: torch device of the model; vectors are copied from and to the CPU as needed.
        around_step: context manager around each training step (forward and backward pass).
        task: what the model is trained for.
        keeps_parameters: whether no pass writes to a trained parameter, as in models of the
            catalog. Such a model can use the vector of a device.

    Attributes:
        around_step: entered for each training step, forward and backward pass.
        layout: of the parameters, in the order of `named_parameters()`. Parameters that are
            statistics (no gradient, set by the forward pass) come last.
        leaf_modules: the modules without children, in the order of the model: to visit them takes
            less time than to walk the model.
        num_trainable: entries of the flat vector before the statistics.
        parameters: shape (D,), float32; of these the model is made, except between `use_` and the
            end of the next step.
        gradient: shape (D,), float32; overwritten by `loss_and_gradient`.
        buffers: all floating-point buffers (statistics of norms, ranges of quantizers), flat;
            maybe of length 0.
    """

    def __init__(
        self,
        model: nn.Module,
        device: torch.device = CPU,
        around_step: Callable[[], AbstractContextManager[None]] = nullcontext,
        task: Task = CLASSIFICATION,
        *,
        keeps_parameters: bool = False,
    ) -> None:
        self.model = model.to(device)
        self._task = task
        self.around_step = around_step
        self.leaf_modules = nn.ModuleList(m for m in model.modules() if not any(m.children()))
        self._device = device
        named = trainable_first(model)
        self.layout = ParameterLayout.of(named)
        self.num_trainable = sum(p.numel() for _, p in named if p.requires_grad)
        self.parameters = torch.cat([p.detach().reshape(-1) for _, p in named])
        self.gradient = torch.zeros_like(self.parameters)
        self._is_long = self.num_trainable >= _LONG
        self._uses_vectors = self._is_long and keeps_parameters and device == CPU
        self._parameters = [parameter for _, parameter in named]
        self._point_at(self.parameters)
        self._gradients = dict(
            zip(self._parameters, self.layout.unflatten(self.gradient), strict=True)
        )
        self._not_computed: dict[nn.Parameter, Tensor] = {}
        for parameter, gradient in self._gradients.items():
            if parameter.requires_grad and self._is_long:
                parameter.register_post_accumulate_grad_hook(_hook(WeakMethod(self._take_gradient)))
            elif parameter.requires_grad:
                parameter.grad = gradient
        self.buffers = self._take_over_buffers()

    def load_(self, parameters: Tensor, buffers: Tensor) -> None:
        """Copy a device's vectors into the model."""
        if self._is_elsewhere:
            self._point_at(self.parameters)
        self.parameters.copy_(parameters)
        self.buffers.copy_(buffers)

    def use_(self, parameters: Tensor, buffers: Tensor) -> None:
        """As `load_`, for the next step alone, which may read the parameters where they are.

        It does so where they are many and the model keeps them. Statistics are copied anyway.
        """
        if not self._uses_vectors:
            self.load_(parameters, buffers)
            return
        self._point_at(parameters)
        self.parameters[self.num_trainable :].copy_(parameters[self.num_trainable :])
        self.buffers.copy_(buffers)

    def loss_and_gradient(self, images_NCHW: Tensor, labels_N: Tensor) -> tuple[float, Tensor]:
        """Mean loss of one batch, and its gradient, shape (D,), valid until the next call.

        The gradient is on the CPU. Updates the statistics of norms and quantizers in `buffers`.
        """
        if not self.model.training:  # setting the mode visits all modules
            self.model.train()
        try:
            with self.around_step(), self.collected_gradient():
                logits = self.model(images_NCHW.to(self._device))
                loss = self._task.loss(logits, labels_N.to(self._device))
                loss.backward()
        finally:
            if self._is_elsewhere:
                self._point_at(self.parameters)
        return float(loss.detach()), self.gradient.cpu()

    @contextmanager
    def collected_gradient(self) -> Iterator[None]:
        """Context of one backward pass; afterwards `gradient` is that of the pass alone."""
        if not self._is_long:
            self.gradient.zero_()
            yield
            return
        self._not_computed = dict(self._gradients)
        yield
        for gradient in self._not_computed.values():
            gradient.zero_()

    @torch.no_grad()
    def evaluate(self, batches: Iterable[tuple[Tensor, Tensor]]) -> Quality:
        """Accuracy and loss over batches of (images, labels), in evaluation mode.

        Raises:
            ValueError: there is no sample.
        """
        self.model.eval()
        totals: dict[str, float] = {}
        samples = 0
        for images_NCHW, labels_N in batches:
            logits = self.model(images_NCHW.to(self._device)).cpu()
            for name, total in self._task.sums(logits, labels_N).items():
                totals[name] = totals.get(name, 0) + total
            samples += len(labels_N)
        if not samples:
            raise ValueError("a model was to be evaluated on no samples")
        means = {name: total / samples for name, total in totals.items()}
        figures = dict(self._task.summary(means))
        accuracy, loss = figures.pop("accuracy", None), figures.pop("loss")
        return Quality(accuracy, loss, figures)

    def _point_at(self, parameters: Tensor) -> None:
        """Make the trained parameters views of a vector, and statistics of the model's own."""
        values, own = map(self.layout.unflatten, (parameters, self.parameters))
        for parameter, value, kept in zip(self._parameters, values, own, strict=True):
            parameter.data = value if parameter.requires_grad else kept
        self._is_elsewhere = parameters is not self.parameters

    def _take_gradient(self, parameter: nn.Parameter) -> None:
        """Copy a gradient that autograd has just computed.

        To add it to zeros, as autograd does where a gradient exists, reads and writes twice as
        much.
        """
        computed = parameter.grad
        assert computed is not None, "autograd has just computed it"
        parameter.grad = None
        if (gradient := self._not_computed.pop(parameter, None)) is not None:
            gradient.copy_(computed.to_dense())
        else:  # the parameter belongs to two parts with backward passes of their own
            self._gradients[parameter].add_(computed)

    def __deepcopy__(self, _: object) -> FlatModel:
        raise TypeError("a flat model can't be copied: make another of a copied module")

    def _take_over_buffers(self) -> Tensor:
        floats = [
            (module, name, buffer)
            for module in self.model.modules()
            for name, buffer in module.named_buffers(recurse=False)
            if buffer.is_floating_point()
        ]
        flat = torch.cat([self.parameters.new_empty(0), *(b.reshape(-1) for _, _, b in floats)])
        start = 0
        for module, name, buffer in floats:
            # Through `data`: otherwise autograd would count a change of one buffer as a change of
            # all.
            part = flat[start : start + buffer.numel()].data
            module.register_buffer(name, part.view(buffer.shape))
            start += buffer.numel()
        return flat


def _hook(method: WeakMethod[Callable[[nn.Parameter], None]]) -> Callable[[nn.Parameter], None]:
    """A hook that keeps nothing alive: Python's collector does not see what hooks refer to."""

    def call(parameter: nn.Parameter) -> None:
        if (take_gradient := method()) is not None:
            take_gradient(parameter)

    return call
