"""Peak of the memory of a training step, from its layers: the step replayed without numbers.

A tensor counts from the operation that gives it until its last reader is done. Readers are later
layers and backward passes, and the frames of the modules around a layer, which hold what they were
given: the images, as they came and as a copy for the convolutions, while the features are computed;
a block's input while its branches are, and one branch's output while the other is; the features
until the head is done. At the end of each layer's forward or backward pass all that it was given
and gives is there at once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from edgesim.costs.layer import Layer
from edgesim.costs.layer_memory import LayerMemory, memory_of_layer
from edgesim.costs.layer_work import FLOAT_BYTES, INDEX_BYTES
from edgesim.costs.memory_table import Component
from edgesim.quant.backends import BackendName


def peak_of_step(layers: Sequence[Layer], backend: BackendName) -> Mapping[Component, int]:
    """Bytes at the peak of a step, by component, beside what is there before it.

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
    """A tensor, or several that live and die together."""

    component: Component
    num_bytes: int
    readers: int = 1


class _Books:
    """Blocks that are alive."""

    def __init__(self) -> None:
        self.now: Counter[Component] = Counter()
        self.at_peak: Mapping[Component, int] = {}
        self._peak = -1

    def take(self, component: Component, num_bytes: int) -> _Block:
        """A new block with one reader."""
        self.now[component] += num_bytes
        return _Block(component, num_bytes)

    def release(self, *blocks: _Block) -> None:
        """A reader of each is done."""
        for block in blocks:
            block.readers -= 1
            if not block.readers:
                self.now[block.component] -= block.num_bytes

    def look(self) -> None:
        """All operands and results of an operation are there: is it more than ever?"""
        if self.now.total() > self._peak:
            self._peak, self.at_peak = self.now.total(), dict(self.now)


class _Replay:
    """One step."""

    def __init__(self, layers: Sequence[Layer], memories: Sequence[LayerMemory]) -> None:
        self._steps = list(zip(layers, memories, strict=True))
        self._books = _Books()
        self._kept: list[list[_Block]] = []  # by layer: what its backward pass reads
        self._block_inputs: list[_Block] = []
        self._branch_outputs: list[_Block] = []  # of blocks whose shortcut is computed

    def run(self) -> Mapping[Component, int]:
        """Both passes."""
        self._forward()
        self._backward()
        return self._books.at_peak

    def _forward(self) -> None:
        books, first = self._books, self._steps[0][0]
        labels = INDEX_BYTES * first.input_shape[0]
        x = books.take("activations", FLOAT_BYTES * first.input_entries + labels)
        x.readers += 1  # whoever gave the batch to the model
        in_frames: list[_Block] = []
        for layer, memory in self._steps:
            if layer.kind == "average":  # the features are there; their frame held the images
                books.release(*in_frames)
                in_frames = [_held(x)]
            if layer.kind == "loss":
                books.release(*in_frames)
            x = self._through(layer, memory, x)
            if layer.kind in ("copy", "average"):
                in_frames.append(_held(x))

    def _through(self, layer: Layer, memory: LayerMemory, x: _Block) -> _Block:
        """A layer's forward pass; gives its output."""
        books = self._books
        if layer.kind == "fork":
            self._block_inputs.append(_held(x))
            self._kept.append([])
            return x
        if layer.starts_shortcut:
            self._branch_outputs.append(x)
            x = _held(self._block_inputs[-1])
        kept = [books.take("weights", memory.kept_weights), books.take("activations", memory.kept)]
        passing = books.take("weights", memory.passing_weights)
        hands_on = layer.kind in ("view", "loss")
        y = _held(x) if hands_on else books.take("activations", memory.output)
        books.look()
        kept += [_held(x)] if memory.keeps_input else []
        kept += [_held(y)] if memory.keeps_output else []
        self._kept.append(kept)
        books.release(x, passing)
        if layer.kind == "residual_sum":
            self._end_block(layer)
        return y

    def _end_block(self, layer: Layer) -> None:
        """The frames of a residual block are left."""
        if self._branch_outputs and layer.has_shortcut:
            self._books.release(self._branch_outputs.pop())
        self._books.release(self._block_inputs.pop())
