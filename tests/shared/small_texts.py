"""A corpus of a few words a class, and small fleets that classify it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

TOPICS = (
    "war vote treaty border minister",
    "goal match team coach season",
    "stock bank profit market oil",
    "chip software web phone space",
)


def write_ag_news(folder: Path, train: int = 96, test: int = 24) -> None:
    """CSV files in AG News' form: an article has words of its topic, and words of all."""
    rng = np.random.default_rng(0)
    for split, count in (("train", train), ("test", test)):
        lines = []
        for article in range(count):
            topic = article % 4
            own = rng.choice(TOPICS[topic].split(), 4)
            other = rng.choice(["the", "of", "said", "a", "new"], 4)
            lines.append(f'"{topic + 1}","{" ".join(own[:2])}","{" ".join([*own[2:], *other])}."')
        (folder / f"{split}.csv").write_text("\n".join(lines))


def text_scenario(folder: Path) -> dict[str, Any]:
    """Four devices with a tiny DistilBERT, written into no file."""
    return {
        "name": "texts",
        "seed": 2,
        "fleet": {"devices": 4},
        "topology": {"kind": "directed_ring"},
        "data": {
            "source": "ag_news",
            "path": str(folder),
            "options": {"max_length": 14, "vocabulary": 64, "cache": str(folder / "cache")},
            "partition": {"kind": "label_skew", "skew": 0.5},
            "batch_size": 6,
        },
        "model": {
            "name": "distilbert",
            "options": {
                "vocabulary": 64,
                "layers": 1,
                "width": 16,
                "heads": 2,
                "hidden": 24,
                "positions": 14,
            },
        },
        "training": {
            "rounds": 4,
            "optimizer": {"kind": "adam", "lr": 0.003, "options": {"beta2": 0.9}},
        },
        "gossip": {
            "algorithm": "choco",
            "averaging_rate": 0.3,
            "compressor": {"kind": "top_k", "keep": 0.2},
        },
        "evaluation": {"every_rounds": 2},
        "recovery": {"checkpoint_every_rounds": 2},
    }
