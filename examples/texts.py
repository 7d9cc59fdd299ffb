"""Texts of one's own: a CSV file with the columns text, label (a class from 0) and author.

data: {source: "./texts.py:Texts", path: texts.csv}
"""

import csv
from pathlib import Path

import numpy as np

from edgesim.data.text import corpus
from edgesim.data.text.tokens import tokenized


class Texts:
    """Rows of a CSV file, every fifth of them for tests; authors serve a partition by owner."""

    def __init__(
        self,
        path: str,
        max_length: int = 128,
        vocabulary: int = 8192,
        tokenizer: str | None = None,
        cache: str | None = None,
    ) -> None:
        with Path(path).open(encoding="utf-8", newline="") as file:
            rows = list(csv.DictReader(file))
        is_test = np.arange(len(rows)) % 5 == 0
        texts = np.array([row["text"] for row in rows], object)
        labels = np.array([int(row["label"]) for row in rows])
        authors = np.array([row["author"] for row in rows])
        self.train, self.test = tokenized(
            {
                "train": corpus.Texts(list(texts[~is_test]), labels[~is_test]),
                "test": corpus.Texts(list(texts[is_test]), labels[is_test]),
            },
            tokenizer=tokenizer,  # a name of the Hugging Face hub; None: words of the texts
            max_length=max_length,
            vocabulary=vocabulary,
            cache=cache,
            download=False,
        )
        self.columns = {"author": authors[~is_test]}
        self.test_columns = {"author": authors[is_test]}
