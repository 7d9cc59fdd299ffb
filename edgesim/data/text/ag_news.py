"""AG News: articles of four topics, in the original CSV files or in Parquet files.

Source: X. Zhang, J. Zhao, Y. LeCun, arXiv 1509.01626; docs/reference.md, section 5.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import numpy as np
from pydantic import Field

from edgesim.data.errors import DataError
from edgesim.data.text.corpus import Texts, existing, read_csv, read_parquet_texts
from edgesim.data.text.tokens import MaxLength, Vocabulary, tokenized

CLASS_NAMES = ("World", "Sports", "Business", "Sci/Tech")
EXPECTS = (
    "a folder with train.csv and test.csv of ag_news_csv (class 1 to 4, title, description; "
    "linked at github.com/mhjabreel/CharCnn_Keras), or with train*.parquet and test*.parquet "
    "(text, label; huggingface.co/datasets/fancyzhx/ag_news)"
)
_COLUMNS = "class 1 to 4, title, description"


class AgNews:
    """AG News: 120,000 + 7,600 articles of four topics, as rows of tokens.

    Attributes:
        tokenizer: of the Hugging Face hub: a name, or a folder written ./folder; null: the most
            frequent words of the training texts.
        max_length: tokens of a row, first and last mark included; longer texts are cut.
        vocabulary: tokens, where tokenizer is null.
        cache: folder of tokenized texts; null: .cache/edgesim in the home folder.
        download: fetch the tokenizer from the Hugging Face hub if it is not on disk.
    """

    num_classes = len(CLASS_NAMES)

    def __init__(
        self,
        path: str = "",
        *,
        tokenizer: str | None = None,
        max_length: MaxLength = 128,
        vocabulary: Vocabulary = 8192,
        cache: Annotated[str, Field(min_length=1)] | None = None,
        download: bool = False,
    ) -> None:
        splits = read_ag_news(existing(path, EXPECTS))
        self.train, self.test = tokenized(
            splits,
            tokenizer=tokenizer,
            max_length=max_length,
            vocabulary=vocabulary,
            cache=cache,
            download=download,
        )
        self.columns, self.test_columns = (splits[split].columns for split in ("train", "test"))


def read_ag_news(folder: Path) -> dict[str, Texts]:
    """Both splits; title and description of an article are one text.

    Raises:
        DataError: files are missing, or hold something else.
    """
    if (folder / "train.csv").is_file():
        return {split: _read_split(folder / f"{split}.csv") for split in ("train", "test")}
    splits = read_parquet_texts(folder, len(CLASS_NAMES)) if folder.is_dir() else None
    if splits is None:
        raise DataError(f"data.path: {folder} lacks what ag_news needs; give {EXPECTS}")
    return {
        split: Texts([_plain(text) for text in found.texts], found.labels, found.columns)
        for split, found in splits.items()
    }


def _read_split(path: Path) -> Texts:
    texts: list[str] = []
    labels: list[int] = []
    for where, (label, title, description) in read_csv(path, 3, _COLUMNS):
        if not texts and label.strip().lower() == "class index":  # some copies have a first line
            continue
        if label not in {"1", "2", "3", "4"}:
            raise DataError(f"{where}: the class is {label[:20]!r}; must be 1 to 4: {_COLUMNS}")
        texts.append(_plain(f"{title} {description}"))
        labels.append(int(label) - 1)
    if not texts:
        raise DataError(f"{path} holds no article; fetch it again")
    return Texts(texts, np.array(labels, np.int64))


def _plain(text: str) -> str:
    """A text whose line ends, written as backslashes in the original files, are blanks."""
    return text.replace("\\", " ")
