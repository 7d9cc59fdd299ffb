"""A torch model whose parameters, gradients and float buffers are views of flat vectors.

Devices of one process borrow the same model in turn: a device's own state is flat vectors alone,
which is what makes thousands of devices fit one machine and moves them cheaply between processes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from edgesim.learning.parameters import ParameterLayout

CPU = torch.device("cpu")


@dataclass(frozen=True, slots=True)
class Evaluation:
    """Quality of one model on one set of samples.

    Attributes:
        accuracy: fraction of samples whose largest logit is the label.
        loss: mean cross-entropy, nats.
    """

    accuracy: float
    loss: float


class FlatModel:
    """Wraps a model, taking over its tensors; not for use by two threads at once.

    Args:
        model: on the CPU.
        device: where it is to compute; vectors are copied from and to the CPU as needed.
        around_step: entered for each training step, forward and backward pass.

    Attributes:
        around_step: entered for each training step, forward and backward pass.
        layout: of the parameters, in the order of `named_parameters()`, but last those that are
            statistics: without a gradient, changed by the forward pass of training.
        leaf_modules: the modules without children, in the order of the model: to visit them takes
            less time than to walk the model.
        num_trainable: entries of the flat vector before the statistics.
        parameters: shape (D,), float32; writing to it writes to the model.
        gradient: shape (D,), float32; overwritten by `loss_and_gradient`.
        buffers: all floating-point buffers (statistics of norms, ranges of quantizers), flat;
            maybe of length 0.
    """

    def __init__(
        self,
        model: nn.Module,
        device: torch.device = CPU,
        around_step: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        self.model = model.to(device)
        self.around_step = around_step
        self.leaf_modules = nn.ModuleList(m for m in model.modules() if not any(m.children()))
        self._device = device
        named = sorted(model.named_parameters(), key=lambda pair: not pair[1].requires_grad)
        self.layout = ParameterLayout.of(named)
        self.num_trainable = sum(p.numel() for _, p in named if p.requires_grad)
        self.parameters = torch.cat([p.detach().reshape(-1) for _, p in named])
        self.gradient = torch.zeros_like(self.parameters)
        values = self.layout.unflatten(self.parameters)
        gradients = self.layout.unflatten(self.gradient)
        for (_, parameter), value, gradient in zip(named, values, gradients, strict=True):
            parameter.data = value
            if parameter.requires_grad:
                parameter.grad = gradient
        self.buffers = self._take_over_buffers()

    def load_(self, parameters: Tensor, buffers: Tensor) -> None:
        """Copy a device's vectors into the model."""
        self.parameters.copy_(parameters)
        self.buffers.copy_(buffers)

    def loss_and_gradient(self, images_NCHW: Tensor, labels_N: Tensor) -> tuple[float, Tensor]:
        """Mean cross-entropy of one batch, and its gradient, shape (D,), valid until the next call.

        The gradient is on the CPU. Updates the statistics of norms and quantizers in `buffers`.
        """
        if not self.model.training:  # setting the mode visits all modules
            self.model.train()
        self.gradient.zero_()
        with self.around_step():
            logits = self.model(images_NCHW.to(self._device))
            loss = functional.cross_entropy(logits, labels_N.to(self._device))
            loss.backward()
        return float(loss.detach()), self.gradient.cpu()

    @torch.no_grad()
    def evaluate(self, batches: Iterable[tuple[Tensor, Tensor]]) -> Evaluation:
        """Accuracy and loss over batches of (images, labels), in evaluation mode.

        Raises:
            ValueError: there is no sample.
        """
        self.model.eval()
        correct, loss, samples = 0, 0.0, 0
        for images_NCHW, labels_N in batches:
            logits = self.model(images_NCHW.to(self._device)).cpu()
            correct += int((logits.argmax(dim=1) == labels_N).sum())
            loss += float(functional.cross_entropy(logits, labels_N, reduction="sum"))
            samples += len(labels_N)
        if not samples:
            raise ValueError("a model was to be evaluated on no samples")
        return Evaluation(correct / samples, loss / samples)

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
            # Through `data`: autograd must not take a change of one buffer for one of all.
            part = flat[start : start + buffer.numel()].data
            module.register_buffer(name, part.view(buffer.shape))
            start += buffer.numel()
        return flat
