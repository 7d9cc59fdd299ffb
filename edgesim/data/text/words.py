"""A vocabulary of words, for encoders that are trained from nothing; needs no further package."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import chain

PAD, UNKNOWN, FIRST, LAST = range(4)
"""Tokens that are no words: behind the end of a text, of another word, its first and last mark."""

_NUM_MARKS = 4
_WORD = re.compile(r"[^\W_]+|[^\w\s]")


class WordTokenizer:
    """The most frequent words and punctuation marks of some texts, in lower case.

    Words of equal frequency are in the order of the alphabet.

    Args:
        texts: to count in.
        size: most tokens, the four marks included.
    """

    def __init__(self, texts: Sequence[str], size: int) -> None:
        counts = Counter(chain.from_iterable(map(_words, texts)))
        ordered = sorted(counts, key=lambda word: (-counts[word], word))
        words = ordered[: size - _NUM_MARKS]
        self._token_by_word = {word: _NUM_MARKS + place for place, word in enumerate(words)}

    def __len__(self) -> int:
        return _NUM_MARKS + len(self._token_by_word)

    def tokens(self, text: str, max_length: int) -> list[int]:
        """Tokens of a text between the first and the last mark, at most `max_length` in all."""
        find = self._token_by_word.get
        words = [find(word, UNKNOWN) for word in _words(text)][: max_length - 2]
        return [FIRST, *words, LAST]


def _words(text: str) -> Iterator[str]:
    return (match[0] for match in _WORD.finditer(text.lower()))
