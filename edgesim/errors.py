"""Errors that a user can cause and mend, and words that their messages share.

Packages derive their own errors (`DataError`, `ModelError`, ...). An error that is also a
`ValueError` means bad input: the command line prints one or two lines and ends with status 2. All
others end with status 1.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from difflib import SequenceMatcher, get_close_matches

MOST_GUESSES = 3
MEND_OWN_CODE = (
    "mend your code and start the run anew: a run goes on only with the code that it began with"
)


class EdgesimError(Exception):
    """Root of the errors that are edgesim's own."""


class ScenarioError(EdgesimError, ValueError):
    """A scenario file or an override can't be used; the message says where, why and the remedy."""


class ScenarioWarning(UserWarning):
    """An allowed choice of a scenario has consequences that are easily overlooked."""


class ResultWarning(UserWarning):
    """Figures of a finished run are in doubt, as its `summary["warnings"]` says."""


class OwnCodeError(EdgesimError):
    """A part of one's own failed in a run; says which, where and how. Notes have its own frames."""


class RunStoppedError(EdgesimError):
    """Raised by a sink to stop the run in order, so that it can be resumed."""


def with_notes(error: EdgesimError, other: BaseException) -> EdgesimError:
    """An error that is shown in place of another one, with the notes of that."""
    for note in getattr(other, "__notes__", ()):
        error.add_note(note)
    return error


def did_you_mean(name: str, names: Iterable[str], otherwise: str) -> str:
    """`did you mean a or b?`, the best first; or other words where no name is similar."""
    guesses = similar_names(name, names)
    return f"did you mean {' or '.join(guesses)}?" if guesses else otherwise


def similar_names(name: str, names: Iterable[str]) -> list[str]:
    """A few names that may be meant by one that is not among them, the best first."""
    names = list(names)
    if same := [known for known in names if known.lower() == name.lower()]:
        return same[:MOST_GUESSES]
    guesses = [known for known in names if name in known or known in name]
    guesses += get_close_matches(name, names, n=MOST_GUESSES, cutoff=0.6)
    guesses = sorted(set(guesses), key=lambda known: (-_likeness(name, known), known))
    return guesses[:MOST_GUESSES]


def _likeness(name: str, other: str) -> float:
    return SequenceMatcher(None, name.lower(), other.lower()).ratio()


CONTROLS = r"\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069"
"""Characters that move the cursor of a terminal or turn text round, as a class of a pattern."""

_CONTROLS_OF_A_LINE = re.compile(rf"(?!\n)[{CONTROLS}]")


def printable(text: str) -> str:
    """Text for a terminal, with escapes for what would move its cursor or reverse its letters.

    Names and paths come from files that somebody else may have written. Line breaks stay.
    """
    return _CONTROLS_OF_A_LINE.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def device_label(device: int, names: Sequence[str]) -> str:
    """A device in a message: `device 3`, or where devices have names `device 3 (gateway)`."""
    return f"device {device} ({names[device]})" if names else f"device {device}"


def count(number: int, what: str) -> str:
    """A number of things: `1 round`, `2,000 rounds`."""
    return f"{number:,} {what}" if number == 1 else f"{number:,} {what}s"
