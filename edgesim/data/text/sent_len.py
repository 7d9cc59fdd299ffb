"""SentLen: the length of a sentence as a class, from SentEval's file or built from any texts.

Sources: A. Conneau and others, arXiv 1805.01070; docs/reference.md, section 5.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from edgesim.data.errors import DataError
from edgesim.data.text.corpus import Texts, existing, open_text, read_csv, read_parquet_texts
from edgesim.data.text.tokens import MaxLength, Vocabulary, tokenized

BINS = ((5, 8), (9, 12), (13, 16), (17, 20), (21, 25), (26, 28))  # words, both ends included
FILE = "sentence_length.txt"
EXPECTS = (
    f"{FILE} (data/probing of github.com/facebookresearch/SentEval: split, class, sentence, "
    "separated by tabs), or a folder with train and test texts to build it from: "
    "train*.parquet and test*.parquet, train.csv and test.csv of AG News, or train.txt and test.txt"
)
_STARTS = [first for first, _ in BINS]
_END_OF_SENTENCE = re.compile(r"(?:(?<=[.!?])|(?<=[.!?][\"')]))\s+(?=[\"'(]*[A-Z0-9])")
_HAS_LETTER = re.compile(r"\w")

Evaluated = Literal["va", "te"]


class SentLen:
    """SentLen: sentences in six classes of length, as rows of tokens.

    Attributes:
        tokenizer: of the Hugging Face hub: a name, or a folder written ./folder; null: the most
            frequent words of the training sentences.
        max_length: tokens of a row, first and last mark included; longer sentences are cut.
        vocabulary: tokens, where tokenizer is null.
        evaluate_on: split of sentence_length.txt to test with: va, as in the paper, or te.
        balanced: take as many sentences of each class, where they are built from texts.
        cache: folder of tokenized texts; null: .cache/edgesim in the home folder.
        download: fetch the tokenizer from the Hugging Face hub if it is not on disk.
    """

    num_classes = len(BINS)

    def __init__(
        self,
        path: str = "",
        *,
        tokenizer: str | None = None,
        max_length: MaxLength = 64,
        vocabulary: Vocabulary = 8192,
        evaluate_on: Evaluated = "va",
        balanced: bool = True,
        cache: Annotated[str, Field(min_length=1)] | None = None,
        download: bool = False,
    ) -> None:
        splits = read_sent_len(existing(path, EXPECTS), evaluate_on, balanced=balanced)
        self.train, self.test = tokenized(
            splits,
            tokenizer=tokenizer,
            max_length=max_length,
            vocabulary=vocabulary,
            cache=cache,
            download=download,
        )


def read_sent_len(place: Path, evaluate_on: Evaluated, *, balanced: bool) -> dict[str, Texts]:
    """Both splits.

    Raises:
        DataError: files are missing, or hold something else.
    """
    file = place / FILE if place.is_dir() else place
    if file.is_file():
        return _read_file(file, evaluate_on)
    corpus = _read_corpus(place)
    return {split: built_from(texts, split, balanced=balanced) for split, texts in corpus.items()}


def built_from(texts: list[str], split: str, *, balanced: bool) -> Texts:
    """Sentences of texts with their classes; those of other lengths, and repeated ones, are left.

    Args:
        texts: in order, which the sentences keep.
        split: its name, for messages.
        balanced: take the first sentences of each class, as many as there are of the rarest.

    Raises:
        DataError: a class has no sentence.
    """
    sentences = dict.fromkeys(s for text in texts for s in sentences_of(text))
    by_class: dict[int, list[tuple[int, str]]] = {c: [] for c in range(len(BINS))}
    for place, sentence in enumerate(sentences):
        if (label := class_of(num_words(sentence))) is not None:
            by_class[label].append((place, sentence))
    for label, found in by_class.items():
        if not found:
            first, last = BINS[label]
            raise DataError(
                f"data.path: the {split} texts have no sentence of {first} to {last} words; give "
                "more texts"
            )
    most = min(map(len, by_class.values())) if balanced else None
    chosen = sorted((p, s, label) for label, all_ in by_class.items() for p, s in all_[:most])
    return Texts([s for _, s, _ in chosen], np.array([c for *_, c in chosen], np.int64))


def sentences_of(text: str) -> list[str]:
    """Sentences of a text: they end with . ! or ?, before a blank and a capital or a digit."""
    plain = " ".join(text.replace("\\", " ").split())
    return [sentence for sentence in _END_OF_SENTENCE.split(plain) if sentence]


def num_words(sentence: str) -> int:
    """Words of a sentence: what blanks separate, punctuation alone left out."""
    return sum(_HAS_LETTER.search(word) is not None for word in sentence.split())


def class_of(words: int) -> int | None:
    """The class of a length; None if it is of no class."""
    place = bisect_right(_STARTS, words) - 1
    return place if place >= 0 and words <= BINS[place][1] else None


def _read_file(path: Path, evaluate_on: Evaluated) -> dict[str, Texts]:
    """SentEval's file."""
    found: dict[str, tuple[list[str], list[int]]] = {s: ([], []) for s in ("tr", "va", "te")}
    with open_text(path) as file:
        for number, line in enumerate(file, 1):
            cells = line.rstrip("\r\n").split("\t")
            if cells == [""]:
                continue
            if len(cells) != 3 or cells[0] not in found or cells[1] not in set("012345"):
                raise DataError(
                    f"{path}, line {number}: is {line.strip()[:60]!r}; must be tr, va or te, a "
                    "class 0 to 5, and a sentence, separated by tabs"
                )
            texts, labels = found[cells[0]]
            texts.append(cells[2])
            labels.append(int(cells[1]))
    splits = {"train": found["tr"], "test": found[evaluate_on]}
    for split, name in (("train", "tr"), ("test", evaluate_on)):
        if not splits[split][0]:
            raise DataError(f"{path} has no line of {name}; fetch it again")
    return {s: Texts(texts, np.array(labels, np.int64)) for s, (texts, labels) in splits.items()}


def _read_corpus(folder: Path) -> dict[str, list[str]]:
    """Texts of both splits of any corpus."""
    if (folder / "train.txt").is_file():
        corpus = {}
        for split in ("train", "test"):
            with open_text(folder / f"{split}.txt") as file:
                corpus[split] = [line.strip() for line in file if line.strip()]
        return corpus
    if (folder / "train.csv").is_file():
        columns = "class, title, description"
        return {
            split: [
                f"{row[1]}. {row[2]}" for _, row in read_csv(folder / f"{split}.csv", 3, columns)
            ]
            for split in ("train", "test")
        }
    tables = read_parquet_texts(folder, None) if folder.is_dir() else None
    if tables is None:
        raise DataError(f"data.path: {folder} lacks what sent_len needs; give {EXPECTS}")
    return {split: list(table.texts) for split, table in tables.items()}
