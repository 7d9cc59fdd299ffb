"""The product of two activations as a layer, so that it can be counted and replaced."""

from __future__ import annotations

from torch import Tensor, nn


class MatrixProduct(nn.Module):
    """Product of matrices, as of attention.

    Args:
        transposed: the second factor is given as its transpose: rows are multiplied with rows.
    """

    def __init__(self, *, transposed: bool = False) -> None:
        super().__init__()
        self.transposed = transposed

    def forward(self, a: Tensor, b: Tensor) -> Tensor:
        """Shape (..., M, N), of a, (..., M, K), and b, (..., K, N) or transposed (..., N, K)."""
        return a @ (b.transpose(-1, -2) if self.transposed else b)

    def extra_repr(self) -> str:
        """For printing the model."""
        return f"transposed={self.transposed}"
