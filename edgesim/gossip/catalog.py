"""Names of the gossip algorithms, as scenarios and `edgesim list` use them."""

from __future__ import annotations

ALGORITHMS: dict[str, str] = {
    "choco": "CHOCO-SGD with push-sum: compressed differences of models to public copies (R§14)",
    "choco_numerator": "CHOCO-SGD as published: differences of x = u z, not of the model (R§3.3)",
    "deepsqueeze": "DeepSqueeze / Sparse-Push: compressed models with error feedback (R§3.4)",
    "gradient_push": "SGP on directed graphs, D-PSGD on regular ones: uncompressed models (R§3.2)",
    "dcd": "Bagua's low-precision decentralized SGD: weights on the compressed path (R§7)",
}
