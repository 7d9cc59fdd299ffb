"""What the 8-bit arithmetic refuses."""

from __future__ import annotations

from edgesim.errors import EdgesimError


class BackendError(EdgesimError, ValueError):
    """A back end was asked for by name and can't work here; says why and what to choose."""


class NonFiniteError(EdgesimError):
    """NaN or infinity where a range was to be taken; names the layer and the tensor.

    8-bit codes can't express it: without this error it would turn into ordinary numbers.
    """

    def __init__(self, layer: str, tensor: str) -> None:
        super().__init__(f"{tensor} of layer {layer} hold NaN or infinity")
        self.layer = layer
        self.tensor = tensor
