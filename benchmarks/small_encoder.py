"""A small part of a pretrained encoder: its first blocks, and the tokens that some texts need most.

    python benchmarks/small_encoder.py ENCODER TEXTS OUT [--layers 2] [--tokens 4096]

ENCODER and OUT are folders of the Hugging Face layout, of BERT's kind; TEXTS is AG News.
Tokens that are left out become the unknown token. Tables in docs/results/accuracy.md are from it.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from pathlib import Path

import torch

from edgesim.data.text.ag_news import read_ag_news
from edgesim.data.text.hub import transformers

MARKS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")


def main() -> None:
    """Write the small encoder with its tokenizer."""
    parser = argparse.ArgumentParser()
    for name in ("encoder", "texts", "out"):
        parser.add_argument(name, type=Path)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--tokens", type=int, default=4096)
    parser.add_argument("--positions", type=int, default=64)
    options = parser.parse_args()
    library = transformers()
    tokenizer = library.AutoTokenizer.from_pretrained(options.encoder)
    counts: Counter[int] = Counter()
    for ids in tokenizer(list(read_ag_news(options.texts)["train"].texts))["input_ids"]:
        counts.update(ids)
    marks = tokenizer.convert_tokens_to_ids(list(MARKS))
    by_count = sorted(counts, key=lambda token: (-counts[token], token))
    kept = [*marks, *[t for t in by_count if t not in marks]][: options.tokens]

    config = library.AutoConfig.from_pretrained(options.encoder)
    config.num_hidden_layers = options.layers
    model = library.AutoModel.from_pretrained(options.encoder, config=config)
    tables = model.embeddings
    with torch.no_grad():
        for table, rows in (
            ("word_embeddings", torch.tensor(kept)),
            ("position_embeddings", torch.arange(options.positions)),
        ):
            weight = getattr(tables, table).weight[rows].clone()
            padding = 0 if table == "word_embeddings" else None
            setattr(
                tables,
                table,
                torch.nn.Embedding.from_pretrained(weight, freeze=False, padding_idx=padding),
            )
    sizes = {"vocab_size": len(kept), "max_position_embeddings": options.positions}
    model.config.update(sizes | {"pad_token_id": 0})
    model.save_pretrained(options.out)
    words = tokenizer.convert_ids_to_tokens(kept)
    (options.out / "vocab.txt").write_text("\n".join(words) + "\n", encoding="utf-8")
    library.BertTokenizer(str(options.out / "vocab.txt")).save_pretrained(options.out)
    read_back = json.loads((options.out / "config.json").read_text())
    parameters = sum(p.numel() for p in model.parameters())
    print(f"{options.out}: {read_back['vocab_size']} tokens, {parameters:,} parameters")


if __name__ == "__main__":
    main()
