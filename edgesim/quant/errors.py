"""What the 8-bit arithmetic refuses."""

from __future__ import annotations

from edgesim.errors import EdgesimError


class BackendError(EdgesimError, ValueError):
    """The chosen back end cannot work here; the message gives reason and remedy."""


class LayerInputError(EdgesimError, ValueError):
    """Inputs whose shapes an 8-bit layer can't take."""


class NonFiniteError(EdgesimError):
    """A tensor to be quantized holds NaN or infinity; the message names layer and tensor.

    8-bit codes have no NaN: without this error it would become an ordinary number.
    """

    def __init__(self, layer: str, tensor: str) -> None:
        super().__init__(f"{tensor} of layer {layer} hold NaN or infinity")
        self.layer = layer
        self.tensor = tensor
