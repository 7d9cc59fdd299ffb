"""Names that a misspelt one may mean."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

MOST_GUESSES = 3


def did_you_mean(name: str, names: Iterable[str], otherwise: str) -> str:
    """`did you mean a or b?`, or other words where no name is similar."""
    names = list(names)
    guesses = [known for known in names if name in known or known in name]
    guesses += get_close_matches(name, names, n=MOST_GUESSES, cutoff=0.6)
    guesses = list(dict.fromkeys(guesses))[:MOST_GUESSES]
    return f"did you mean {' or '.join(guesses)}?" if guesses else otherwise
