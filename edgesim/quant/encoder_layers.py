"""Layers of encoders in 8 bits as modules: products of activations, layer norms, embeddings."""

from __future__ import annotations

from torch import Tensor, nn

from edgesim.quant import encoder_autograd
from edgesim.quant.arithmetic import Arithmetic
from edgesim.quant.layers import InputQuantizer, QuantizedPlace
from edgesim.quant.settings import QuantizationSettings


class QuantizedMatrixProduct(nn.Module):
    """Product of two activations, each in 8 bits with a range of its own.

    Args:
        transposed: the second factor is given as its transpose: rows are multiplied with rows.
        arithmetic: back end.
        settings: of quantization.
    """

    def __init__(
        self, *, transposed: bool, arithmetic: Arithmetic, settings: QuantizationSettings
    ) -> None:
        super().__init__()
        self.transposed = transposed
        self.input = InputQuantizer(arithmetic, settings)
        self.second = InputQuantizer(arithmetic, settings)

    def forward(self, a: Tensor, b: Tensor) -> Tensor:
        """Shape (..., M, N) of a, (..., M, K), and b, (..., K, N) or transposed (..., N, K)."""
        step = self.input.layer_step()
        codes = (
            self.input.codes(a.detach().contiguous(), step),
            self.second.codes(b.detach().contiguous(), self.second.layer_step()),
        )
        return encoder_autograd.product(a, b, codes=codes, transposed=self.transposed, step=step)

    def extra_repr(self) -> str:
        """For printing the model."""
        return f"transposed={self.transposed}"


class QuantizedLayerNorm(nn.LayerNorm):
    """Layer norm over the last axis, with input, parameters, scale and gradient in 8 bits.

    The range of the input is that of the whole batch, and each row of the gradient has a grid of
    its own (docs/decisions/58-encoders-in-8-bits.md).
    """

    def __init__(
        self, size: int, eps: float, *, arithmetic: Arithmetic, settings: QuantizationSettings
    ) -> None:
        super().__init__(size, eps)
        self.input = InputQuantizer(arithmetic, settings, unclipped=True)

    def forward(self, x: Tensor) -> Tensor:
        """Shape of the input, (N, ..., size), float32."""
        step = self.input.layer_step()
        return encoder_autograd.layer_norm(
            x,
            self.weight,
            self.bias,
            codes=self.input.codes(x.detach().contiguous(), step),
            epsilon=self.eps,
            step=step,
        )


class QuantizedEmbedding(nn.Embedding):
    """Rows of a table in 8 bits, each on a scale of its own; only rows in use are quantized."""

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        padding_idx: int | None,
        *,
        arithmetic: Arithmetic,
        settings: QuantizationSettings,
    ) -> None:
        super().__init__(num_embeddings, embedding_dim, padding_idx)
        self.rows = QuantizedPlace(arithmetic, settings)

    def forward(self, tokens: Tensor) -> Tensor:
        """Rows of tokens, shape (*tokens, embedding_dim), float32."""
        step = self.rows.layer_step()
        return encoder_autograd.embedding(tokens, self.weight, self.padding_idx, step=step)
