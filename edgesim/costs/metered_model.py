"""A model that returns the work of each training step."""

from __future__ import annotations

from torch import Tensor

from edgesim.costs.work_meter import WorkMeter
from edgesim.hardware.work import Work
from edgesim.learning.flat_model import FlatModel


class MeteredModel:
    """A flat model and the meter of its steps; not for use by two threads at once.

    Attributes:
        flat: the model.
    """

    def __init__(self, flat: FlatModel) -> None:
        self.flat = flat
        self._meter = WorkMeter(flat)

    def loss_and_gradient(
        self, images_NCHW: Tensor, labels_N: Tensor
    ) -> tuple[float, Tensor, Work]:
        """Loss and gradient as of `FlatModel.loss_and_gradient`, and the work of both passes."""
        with self._meter.watch(images_NCHW.shape):
            loss, gradient = self.flat.loss_and_gradient(images_NCHW, labels_N)
        return loss, gradient, self._meter.work(images_NCHW.shape).total
