"""A model that returns the work of each training step."""

from __future__ import annotations

from torch import Tensor

from edgesim.costs.work_meter import WorkMeter
from edgesim.hardware.work import Work
from edgesim.learning.flat_model import FlatModel
from edgesim.models.dropout import dropout_layers
from edgesim.quant.layers import rounding_layers


class MeteredModel:
    """A flat model and the meter of its steps; not for use by two threads at once.

    Attributes:
        flat: the model.
        dropout_layers: its modules whose masks a step needs a seed for.
        rounding_layers: its modules whose rounding noise a step needs a seed for.
    """

    def __init__(self, flat: FlatModel) -> None:
        self.flat = flat
        self.dropout_layers = dropout_layers(flat.leaf_modules)
        self.rounding_layers = rounding_layers(flat.leaf_modules)
        self._meter = WorkMeter(flat)

    def loss_and_gradient(
        self, images_NCHW: Tensor, labels_N: Tensor
    ) -> tuple[float, Tensor, Work]:
        """Loss and gradient as of `FlatModel.loss_and_gradient`, and the work of both passes."""
        with self._meter.watch(images_NCHW.shape):
            loss, gradient = self.flat.loss_and_gradient(images_NCHW, labels_N)
        return loss, gradient, self._meter.work(images_NCHW.shape).total
