"""Attention whose two products are layers of their own, for the models of transformers.

The models of transformers call attention by a name in their configuration. The function behind the
name here keeps its layers in the module that calls it, where costs are counted, dropout gets its
seed, and 8-bit layers take the place of products.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from torch import Tensor, nn

from edgesim.data.text.hub import transformers
from edgesim.models.matrix_product import MatrixProduct

NAME = "edgesim"
"""Of the attention, in configurations."""

_LAYERS = "attention_products"


class AttentionProducts(nn.Module):
    """softmax(q k^T scale + mask) v.

    Args:
        dropout: probability with which an entry of the softmax is left out in training.
    """

    def __init__(self, dropout: float) -> None:
        super().__init__()
        self.scores = MatrixProduct(transposed=True)
        self.dropout = nn.Dropout(dropout)
        self.context = MatrixProduct()

    def forward(
        self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, scale: float
    ) -> Tensor:
        """Shape of the query, (N, heads, T, head size)."""
        scores = self.scores(query, key) * scale
        if mask is not None:
            scores = scores + mask
        context: Tensor = self.context(self.dropout(torch.softmax(scores, dim=-1)), value)
        return context


@cache
def register_attention() -> None:
    """Let the models of transformers find the attention by its name."""
    library = transformers()
    library.AttentionInterface.register(NAME, _attend)
    library.AttentionMaskInterface.register(NAME, library.masking_utils.eager_mask)


def _attend(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    **_: Any,  # noqa: ANN401 (of models that ask for more)
) -> tuple[Tensor, None]:
    """What transformers calls; the first call of a module makes its layers."""
    if not hasattr(module, _LAYERS):
        setattr(module, _LAYERS, AttentionProducts(dropout))
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    context = getattr(module, _LAYERS)(query, key, value, attention_mask, scale)
    return context.transpose(1, 2).contiguous(), None
