"""Texts become rows of tokens once; later runs read them from a cache.

A row is int64 of shape (2, max_length): the tokens, and a mask with 1 for each token and 0 behind
the end of the text.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import blake2b
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from edgesim.data.errors import DataError
from edgesim.data.kept import keep, kept, kept_path
from edgesim.data.text.corpus import Texts
from edgesim.data.text.hub import TOKENIZER_FILES, digest_of, folder_of, transformers
from edgesim.data.text.words import PAD, WordTokenizer

MaxLength = Annotated[int, Field(ge=4, le=8192)]
Vocabulary = Annotated[int, Field(ge=16, le=1_000_000)]
Rows = tuple[NDArray[np.int64], NDArray[np.int64]]
"""Inputs, shape (samples, 2, max_length), and classes."""

_FORMAT = "edgesim tokens 1"
_AT_A_TIME = 2048  # texts that a tokenizer gets at a time


def tokenized(
    splits: Mapping[str, Texts],
    *,
    tokenizer: str | None,
    max_length: int,
    vocabulary: int,
    cache: str | None,
    download: bool,
) -> tuple[Rows, Rows]:
    """Training and test rows.

    Args:
        splits: `train` and `test`.
        tokenizer: a name of the Hugging Face hub or the path of a folder; None: words.
        max_length: tokens of a row.
        vocabulary: most tokens of words.
        cache: folder; None: that of the user.
        download: fetch the tokenizer if it is not on disk.

    Raises:
        DataError: the tokenizer can't be read.
    """
    folder = None if tokenizer is None else folder_of(tokenizer, download=download)
    identity = (
        f"words {vocabulary}"
        if folder is None
        else f"{digest_of(folder, TOKENIZER_FILES)} {version('transformers')}"
    )
    key = _key(splits, f"{identity} {max_length}")
    path = kept_path(cache, f"tokens-{key}")
    tokens = kept(path)
    if tokens is None:
        if folder is None:
            tokens = _of_words(splits, max_length, vocabulary)
        else:
            tokens = _of_hub(splits, max_length, folder)
        keep(path, tokens)
    rows = []
    for split in ("train", "test"):
        ids, lengths = tokens[split], tokens[f"{split}_lengths"]
        mask = np.arange(max_length) < lengths[:, None]
        rows.append((np.stack([ids, mask], axis=1).astype(np.int64), splits[split].labels))
    return rows[0], rows[1]


def _key(splits: Mapping[str, Texts], identity: str) -> str:
    """Digest of all that determines the tokens."""
    digest = blake2b(f"{_FORMAT} {identity}".encode(), digest_size=16)
    for split in ("train", "test"):
        texts = splits[split].texts
        digest.update(f" {split} {len(texts)} ".encode())
        for text in texts:
            data = text.encode("utf-8", "surrogatepass")
            digest.update(len(data).to_bytes(8, "little"))
            digest.update(data)
    return digest.hexdigest()


def _of_words(
    splits: Mapping[str, Texts], max_length: int, vocabulary: int
) -> dict[str, NDArray[np.int32]]:
    words = WordTokenizer(splits["train"].texts, vocabulary)
    made: dict[str, NDArray[np.int32]] = {}
    for split in ("train", "test"):
        texts = splits[split].texts
        ids = np.full((len(texts), max_length), PAD, np.int32)
        lengths = np.empty(len(texts), np.int32)
        for row, text in enumerate(texts):
            tokens = words.tokens(text, max_length)
            ids[row, : len(tokens)], lengths[row] = tokens, len(tokens)
        made |= {split: ids, f"{split}_lengths": lengths}
    return made


def _of_hub(
    splits: Mapping[str, Texts], max_length: int, folder: Path
) -> dict[str, NDArray[np.int32]]:
    try:
        tokenizer = transformers().AutoTokenizer.from_pretrained(folder, local_files_only=True)
    except (OSError, ValueError, KeyError, ImportError) as error:
        raise DataError(
            f"{folder} holds no tokenizer that transformers can read "
            f"({str(error).strip().partition(chr(10))[0][:120]}); give a folder with tokenizer.json"
        ) from error
    if tokenizer.pad_token is None:
        raise DataError(f"{folder}: its tokenizer has no padding; give that of an encoder")
    made: dict[str, NDArray[np.int32]] = {}
    for split in ("train", "test"):
        texts = splits[split].texts
        blocks = [
            _block(tokenizer, texts[start : start + _AT_A_TIME], max_length)
            for start in range(0, len(texts), _AT_A_TIME)
        ]
        made[split] = np.concatenate([ids for ids, _ in blocks])
        made[f"{split}_lengths"] = np.concatenate([lengths for _, lengths in blocks])
    return made


def _block(
    tokenizer: Any,  # noqa: ANN401 (of transformers)
    texts: Sequence[str],
    max_length: int,
) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    encoded = tokenizer(
        list(texts),
        truncation=True,
        max_length=max_length,
        padding="max_length",
        padding_side="right",
        return_attention_mask=True,
    )
    ids = np.array(encoded["input_ids"], np.int32)
    return ids, np.array(encoded["attention_mask"], np.int32).sum(axis=1, dtype=np.int32)
