"""Memory of a device by component, predicted, by two conventions.

`paper_memory` counts as the paper does (reference.md, section 6): 8-bit weights and activations,
fp32 gradients and momentum, no fp32 master copy, nothing for gossip and messages. The paper does
not say which activations are stored. Here these are the inputs of all convolutions, linear layers
and norms, and the logits. The ratio of fp32 to 8 bits is then 3.58 for ResNet-20 at batch 32; with
a master copy it is 3.35. With all outputs stored it would be 3.64, with the inputs of convolutions
alone 3.60. The paper has 3.5.

`MemoryModel` counts the bytes of a device of edgesim at the peak of its round, including fp32
tensors between layers, x, and z = x/u. The meter in `tests/costs` measures the same bytes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeAlias

from edgesim.compression.message_form import MessageForm
from edgesim.costs.errors import CostError
from edgesim.costs.memory_table import Component, MemoryTable
from edgesim.gossip.algorithm import Algorithm, Buffers
from edgesim.gossip.optional_members import longest_message
from edgesim.hardware.widths import FLOAT_BYTES
from edgesim.learning.optimizers import Optimizer
from edgesim.quant.backends import BackendName

if TYPE_CHECKING:
    from edgesim.costs.closed_form import ClosedForm
    from edgesim.costs.measured_model import MeasuredModel

CountedModel: TypeAlias = "ClosedForm | MeasuredModel"
"""A model and one of its training steps, in closed form or measured."""


def paper_memory(model: CountedModel) -> MemoryTable:
    """Memory of a training step by the paper's convention."""
    is_fp32 = model.form.settings is None
    number_bytes, parameters = FLOAT_BYTES if is_fp32 else 1, model.num_trainable
    return MemoryTable(
        weights=number_bytes * parameters,
        gradients=FLOAT_BYTES * parameters,
        optimizer=FLOAT_BYTES * parameters,
        activations=number_bytes * model.paper_inputs * model.batch_size,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryModel:
    """Predicts what a device holds, from formulas alone.

    Attributes:
        model: with the batch.
        backend: of 8-bit arithmetic; None in fp32.
        optimizer: of the device.
        algorithm: of the device, with a layout of the model's shapes.
        out_degree: most messages that it sends in a round.
        in_degree: most messages that it absorbs in a round.
        message_bytes: length of an encoded message.
        kept_edges: out- and in-edges that the algorithm keeps memory for; None: those of a round.
    """

    model: CountedModel
    backend: BackendName | None
    optimizer: Optimizer
    algorithm: Algorithm[Any]
    out_degree: int
    in_degree: int
    message_bytes: int
    kept_edges: tuple[int, int] | None = None

    def __post_init__(self) -> None:
        if self.algorithm.layout.shapes != self.model.flat_shapes:
            raise CostError("the algorithm's layout has other shapes than the model")

    def faithful(self) -> MemoryTable:
        """Memory at the peak of the round."""
        moments = self.in_loading(), self.in_step(), self.in_sending()
        return max(moments, key=lambda table: table.total)

    def in_loading(self) -> MemoryTable:
        """Memory while z = x/u is computed and written into the model."""
        z = FLOAT_BYTES * self._numel * self._buffers().models
        return self._with({"master_copy": z, "activations": self.model.batch_bytes})

    def in_step(self) -> MemoryTable:
        """Memory at the peak of the forward and backward pass."""
        return self._with(self.model.peak_of_step(self.backend or "reference"))

    def in_sending(self) -> MemoryTable:
        """Memory while new messages are made and older ones may not have left yet."""
        form = self._message_form()
        buffers = self._buffers()
        payloads = buffers.payloads
        operand = FLOAT_BYTES * self._numel * buffers.operands if payloads else 0
        sections = 0
        if self.out_degree:
            sections = form.section_bytes(self.message_bytes, self.algorithm.name)
        envelopes = self.message_bytes * self.out_degree
        made = payloads * form.payload_bytes + max(operand, payloads * sections + envelopes)
        return self._with(
            {
                "optimizer": self.optimizer.kept_in_gossip * self._trained_bytes,
                "activations": self.model.batch_bytes,
                "send_buffers": made,
            }
        )

    def _with(self, held: Mapping[Component, int]) -> MemoryTable:
        """These bytes and those that are held during the whole round."""
        return MemoryTable.of(self._always() + Counter(held))

    def _always(self) -> Counter[Component]:
        vector = FLOAT_BYTES * self._numel
        is_fp32 = self.model.form.settings is None
        form = self._message_form()
        return Counter(
            {
                "weights": self.model.statistics_bytes + (vector if is_fp32 else 0),
                "master_copy": vector if is_fp32 else 2 * vector,
                "gradients": vector,
                "optimizer": self.optimizer.kept * self._trained_bytes,
                "gossip_state": self._buffers().kept * vector,
                "send_buffers": self.out_degree * self.message_bytes + form.shared_bytes,
                "receive_buffers": self.message_bytes if self.in_degree else 0,
                "mailbox": self.in_degree * form.payload_bytes,
            }
        )

    @property
    def _numel(self) -> int:
        return self.algorithm.layout.numel

    @property
    def _trained_bytes(self) -> int:
        """Bytes of a vector of the trained parameters."""
        return FLOAT_BYTES * self.model.num_trainable

    def _message_form(self) -> MessageForm:
        """Form of the algorithm's messages, of the longest ones if they differ."""
        compressor, layout = longest_message(self.algorithm)
        return compressor.form(layout)

    def _buffers(self) -> Buffers:
        """Memory of the algorithm beside x: what it makes for a round, and what it keeps."""
        made = self.algorithm.buffers(self.out_degree, self.in_degree)
        if self.kept_edges is None:
            return made
        return replace(made, kept=self.algorithm.buffers(*self.kept_edges).kept)
