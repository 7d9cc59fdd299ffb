"""Names of the gossip algorithms, as scenarios and `edgesim list` use them."""

from __future__ import annotations

ALGORITHMS: dict[str, str] = {
    "choco": (
        "CHOCO-SGD with push-sum: compressed differences of models to "
        "public copies (docs/reference.md, section 14)"
    ),
    "choco_numerator": (
        "CHOCO-SGD as published: differences of x = u z, not of "
        "the model (docs/reference.md, section 3.3)"
    ),
    "deepsqueeze": (
        "DeepSqueeze / Sparse-Push: compressed models with error "
        "feedback (docs/reference.md, section 3.4)"
    ),
    "gradient_push": (
        "SGP on directed graphs, D-PSGD on regular ones: "
        "uncompressed models (docs/reference.md, section 3.2)"
    ),
    "dcd": (
        "Bagua's low-precision decentralized SGD: weights on the "
        "compressed path (docs/reference.md, section 7)"
    ),
}
