"""Peak of the memory of a training step, by a replay of its allocations.

A tensor counts from the operation that computes it until its last reader is done. Readers are later
layers, backward passes, and the Python frames of the modules around a layer, which hold their
arguments. Such frames hold the images (the original and the copy for the convolutions) while the
features are computed, the input of a block while its branches are computed, the output of one
branch while the other is computed, and the features until the head is done. At the end of a layer's
forward or backward pass all its inputs and outputs exist at once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from edgesim.costs.layer import Layer
from edgesim.costs.layer_memory import LayerMemory, memory_of_layer
from edgesim.costs.memory_table import Component
from edgesim.hardware.widths import FLOAT_BYTES, INDEX_BYTES
from edgesim.quant.backends import BackendName


def peak_of_step(layers: Sequence[Layer], backend: BackendName) -> Mapping[Component, int]:
    """Additional bytes at the peak of a step, by component, relative to the time before it.

    Args:
        layers: of the step, in the order of the forward pass; residual blocks named as in the
            models.
        backend: of 8-bit layers.
    """
    averages = [i for i, layer in enumerate(layers) if layer.kind == "average"]
    memories = [
        memory_of_layer(layer, backend, is_last_feature=index + 1 in averages)
        for index, layer in enumerate(layers)
    ]
    return _Replay(layers, memories).run()


@dataclass(slots=True)
class _Block:
    """One tensor, or several that are allocated and freed together."""

    component: Component
    num_bytes: int
    readers: int = 1


class _Ledger:
    """Blocks that are alive."""

    def __init__(self) -> None:
        self.now: Counter[Component] = Counter()
        self.at_peak: Mapping[Component, int] = {}
        self._peak = -1

    def allocate(self, component: Component, num_bytes: int) -> _Block:
        """A new block with one reader."""
        self.now[component] += num_bytes
        return _Block(component, num_bytes)

    def release(self, *blocks: _Block) -> None:
        """Release one reader of each block; free blocks without readers."""
        for block in blocks:
            block.readers -= 1
            if not block.readers:
                self.now[block.component] -= block.num_bytes

    def update_peak(self) -> None:
        """Update the peak; all operands and results of an operation exist now."""
        if self.now.total() > self._peak:
            self._peak, self.at_peak = self.now.total(), dict(self.now)


class _ResidualBlock:
    """A residual block between its fork and its sum, in either direction.

    Attributes:
        input: the block's input; backward: what waits to be added to the other branch's gradient.
        branch: output of the branch while the shortcut is computed.
    """

    __slots__ = ("branch", "input")

    def __init__(self, block_input: _Block) -> None:
        self.input = block_input
        self.branch: _Block | None = None


class _Replay:
    """One step."""

    def __init__(self, layers: Sequence[Layer], memories: Sequence[LayerMemory]) -> None:
        self._steps = list(zip(layers, memories, strict=True))
        self._ledger = _Ledger()
        self._kept: list[list[_Block]] = []  # by layer: what its backward pass reads
        self._residual_blocks: list[_ResidualBlock] = []

    def run(self) -> Mapping[Component, int]:
        """Both passes."""
        self._forward()
        self._backward()
        return self._ledger.at_peak

    def _forward(self) -> None:
        ledger, images = self._ledger, self._steps[0][0]
        labels = INDEX_BYTES * images.input_shape[0]
        x = ledger.allocate("activations", FLOAT_BYTES * images.input_entries + labels)
        x.readers += 1  # the caller of the model holds the batch
        in_frames: list[_Block] = []
        for layer, memory in self._steps:
            if layer.kind == "average":
                ledger.release(*in_frames)
                in_frames = [_held(x)]
            if layer.kind == "loss":
                ledger.release(*in_frames)
            x = self._forward_through(layer, memory, x)
            if layer.kind in ("copy", "average"):
                in_frames.append(_held(x))

    def _forward_through(self, layer: Layer, memory: LayerMemory, x: _Block) -> _Block:
        """Run one layer forward; return its output."""
        ledger, blocks = self._ledger, self._residual_blocks
        if layer.kind == "fork":
            blocks.append(_ResidualBlock(_held(x)))
        if layer.starts_shortcut:
            blocks[-1].branch, x = x, _held(blocks[-1].input)
        kept = [
            ledger.allocate("weights", memory.kept_weights),
            ledger.allocate("activations", memory.kept),
        ]
        passing = ledger.allocate("weights", memory.passing_weights)
        y = ledger.allocate("activations", memory.output) if memory.output else _held(x)
        ledger.update_peak()
        if memory.keeps_input:
            kept.append(_held(x))
        if memory.keeps_output:
            kept.append(_held(y))
        self._kept.append(kept)
        ledger.release(x, passing)
        if layer.kind == "residual_sum":
            block = blocks.pop()
            ledger.release(block.input, *([block.branch] if block.branch else []))
        return y

    def _backward(self) -> None:
        g: _Block | None = None
        for (layer, memory), kept in zip(reversed(self._steps), reversed(self._kept), strict=True):
            if layer.kind != "copy":
                g = self._backward_through(layer, memory, kept, g)

    def _backward_through(
        self, layer: Layer, memory: LayerMemory, kept: list[_Block], g: _Block | None
    ) -> _Block:
        """Run one layer backward; return the gradient at its input."""
        ledger = self._ledger
        if g is None:  # the loss, whose own gradient is 1
            g = ledger.allocate("layer_gradients", 0)
        if layer.kind == "fork":
            return self._join_gradients(layer, g)
        if memory.activation_gradient:
            at_norm = ledger.allocate("layer_gradients", memory.activation_gradient)
            ledger.update_peak()
            ledger.release(g, kept.pop())  # the sign of the output is not needed any more
            g = at_norm
        codes = ledger.allocate("layer_gradients", memory.gradient_codes)
        before_codes = ledger.allocate("layer_gradients", memory.before_codes)
        is_result = layer.kind == "residual_sum"  # the result of the quantizer
        g_x = ledger.allocate("layer_gradients", memory.input_gradient if is_result else 0)
        ledger.update_peak()
        ledger.release(before_codes)
        rounded = ledger.allocate("layer_gradients", memory.rounded_gradient)
        if not is_result:
            g_x = ledger.allocate("layer_gradients", memory.input_gradient)
        of_parameters = ledger.allocate("gradients", memory.parameter_gradients)
        ledger.update_peak()
        if not memory.input_gradient and layer.needs_input_gradient:  # g is passed on
            g_x = _held(g)
        ledger.release(g, codes, rounded, of_parameters, *kept)
        return self._at_block_ends(layer, g_x)

    def _at_block_ends(self, layer: Layer, g_x: _Block) -> _Block:
        """Both branches get the gradient of a sum.

        That of the shortcut is computed first and kept.
        """
        if layer.kind == "residual_sum":
            self._residual_blocks.append(_ResidualBlock(_held(g_x)))
        if layer.starts_shortcut:
            block = self._residual_blocks[-1]
            block.input, g_x = g_x, block.input
        return g_x

    def _join_gradients(self, layer: Layer, g: _Block) -> _Block:
        """The gradients of both branches, added."""
        both = self._ledger.allocate("layer_gradients", FLOAT_BYTES * layer.input_entries)
        self._ledger.release(g, self._residual_blocks.pop().input)
        return both


def _held(block: _Block) -> _Block:
    """The same block with one reader more."""
    block.readers += 1
    return block
