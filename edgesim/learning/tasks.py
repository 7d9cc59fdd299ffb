"""Tasks: losses of training and figures of evaluation.

Shapes: N samples, K entries of an output (classes, numbers of a target, or tokens), T positions of
a sequence.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import exp
from typing import ClassVar, Protocol

from torch import Tensor
from torch.nn import functional


@dataclass(frozen=True, slots=True)
class Targets:
    """What the target of a sample must be.

    Attributes:
        dtype: of the array of targets.
        dimensions: that the array may have.
        description: the same for people.
    """

    dtype: str
    dimensions: tuple[int, ...]
    description: str


class Task(Protocol):
    """A frozen value: loss and measures of outputs against targets.

    Its class may also have `targets`, by which other targets are refused before a run.
    """

    @property
    def metrics(self) -> Mapping[str, str]:
        """Meaning of each figure of `summary` except loss and accuracy, by name.

        Each is a column.
        """
        ...

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """The loss that training minimises: mean over the batch, one number.

        Raises:
            ValueError: outputs and targets don't fit each other.
        """
        ...

    def sums(self, outputs: Tensor, targets: Tensor) -> Mapping[str, float]:
        """Measures of an evaluation, summed over the samples of a batch, `loss` among them."""
        ...

    def summary(self, means: Mapping[str, float]) -> Mapping[str, float]:
        """Figures of an evaluation: `loss`, maybe `accuracy`, and all of `metrics`.

        Args:
            means: of each figure of `sums`, over all samples.
        """
        ...


@dataclass(frozen=True, slots=True)
class Classification:
    """Each sample has a class: cross-entropy of outputs (N, K) at classes (N,), in nats."""

    targets: ClassVar[Targets] = Targets("int64", (1,), "one whole number, its class")

    metrics: Mapping[str, str] = field(default_factory=dict, init=False)

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Mean cross-entropy."""
        return functional.cross_entropy(outputs, targets)

    def sums(self, outputs: Tensor, targets: Tensor) -> Mapping[str, float]:
        """Cross-entropy, and number of correctly classified samples."""
        return {
            "accuracy": int((outputs.argmax(dim=1) == targets).sum()),
            "loss": float(functional.cross_entropy(outputs, targets, reduction="sum")),
        }

    def summary(self, means: Mapping[str, float]) -> Mapping[str, float]:
        """Accuracy and loss."""
        return means


@dataclass(frozen=True, slots=True)
class Regression:
    """Each sample has K numbers: mean squared error of outputs (N, K) at targets (N, K) or (N,)."""

    targets: ClassVar[Targets] = Targets("float32", (1, 2), "one float or a row of floats")

    metrics: Mapping[str, str] = field(
        default_factory=lambda: {"mean_absolute_error": "mean of |output - target|, test samples"},
        init=False,
    )

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Mean squared error."""
        return functional.mse_loss(outputs, _shaped(outputs, targets))

    def sums(self, outputs: Tensor, targets: Tensor) -> Mapping[str, float]:
        """Squared and absolute errors, each the mean over a sample's numbers."""
        errors = (outputs - _shaped(outputs, targets)).flatten(1)
        return {
            "loss": float(errors.square().mean(dim=1).sum()),
            "mean_absolute_error": float(errors.abs().mean(dim=1).sum()),
        }

    def summary(self, means: Mapping[str, float]) -> Mapping[str, float]:
        """Both errors."""
        return means


@dataclass(frozen=True, slots=True)
class NextToken:
    """The next token at each position of a sequence: outputs (N, T, K), targets (N, T)."""

    targets: ClassVar[Targets] = Targets(
        "int64", (2,), "a row of whole numbers, the words that follow"
    )

    metrics: Mapping[str, str] = field(
        default_factory=lambda: {"perplexity": "exp(loss), on the test samples"}, init=False
    )

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Mean cross-entropy over all places, nats."""
        return functional.cross_entropy(*_places(outputs, targets))

    def sums(self, outputs: Tensor, targets: Tensor) -> Mapping[str, float]:
        """Cross-entropy, and share of correctly predicted positions; means over positions."""
        flat, words = _places(outputs, targets)
        length = targets.shape[1]
        return {
            "accuracy": int((flat.argmax(dim=1) == words).sum()) / length,
            "loss": float(functional.cross_entropy(flat, words, reduction="sum")) / length,
        }

    def summary(self, means: Mapping[str, float]) -> Mapping[str, float]:
        """Accuracy, loss and perplexity."""
        return {**means, "perplexity": exp(min(means["loss"], 700.0))}  # the largest is 1e304


CLASSIFICATION = Classification()


def _shaped(outputs: Tensor, targets: Tensor) -> Tensor:
    """Targets in the shape of outputs; targets of one number may have shape (N,).

    Raises:
        ValueError: the sizes differ; torch would broadcast them.
    """
    if outputs.numel() != targets.numel() or len(outputs) != len(targets):
        raise ValueError(
            f"outputs of shape {tuple(outputs.shape)} for targets of shape {tuple(targets.shape)}; "
            "a regression needs as many numbers in both"
        )
    return targets.reshape(outputs.shape)


def _places(outputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """All places of all samples in a row.

    Raises:
        ValueError: there is no output for each place.
    """
    if outputs.dim() != 3 or outputs.shape[:2] != targets.shape:
        raise ValueError(
            f"outputs of shape {tuple(outputs.shape)} for targets of shape {tuple(targets.shape)}; "
            "next_token needs (samples, places, words) for (samples, places)"
        )
    return outputs.flatten(0, 1), targets.flatten()
