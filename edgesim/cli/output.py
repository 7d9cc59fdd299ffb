"""Standard output and standard error of the command line, and handling of their errors."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout, suppress
from typing import IO, TextIO, cast

from rich.console import Console


class OutputError(Exception):
    """Standard output cannot be written; the message gives the reason."""


class _Output(io.TextIOBase):
    """Standard output while `main` runs. Errors of writing to it become `OutputError`."""

    def __init__(self) -> None:
        self._stream: TextIO | None = None
        self._errors: list[OutputError] = []
        self._is_dispensable = self._is_terminal = False

    @contextmanager
    def takes_over(self) -> Iterator[None]:
        """Redirect standard output, also of typer's help and rich's displays, to this object."""
        self._stream = sys.stdout
        try:
            with redirect_stdout(self):
                yield
        finally:
            self._stream = None

    @contextmanager
    def dispensable(self) -> Iterator[None]:
        """Context in which text that cannot be written is dropped and ends nothing.

        Raises:
            OutputError: at the end, if a file could not be written. A closed terminal or pipe is no
                error.
        """
        self._errors, self._is_dispensable, self._is_terminal = [], True, self.isatty()
        try:
            yield
        finally:
            self._is_dispensable = False
        if self._errors and not self._is_terminal:
            raise self._errors[0]

    @property
    def stream(self) -> TextIO:
        """Stream that the text is written to."""
        return sys.stdout if self._stream is None else self._stream

    def write(self, text: str) -> int:
        with self._told_apart():
            self.stream.write(text)
        return len(text)

    def flush(self) -> None:
        with self._told_apart():
            self.stream.flush()

    def __del__(self) -> None:
        """Close nothing: the stream is the caller's.

        The base class would flush it, when an interpreter that ends has no modules any more.
        """

    def writable(self) -> bool:
        return True

    def isatty(self) -> bool:
        return self.stream.isatty()

    def fileno(self) -> int:
        return self.stream.fileno()

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return self.stream.encoding or "utf-8"

    @contextmanager
    def _told_apart(self) -> Iterator[None]:
        try:
            yield
        except BrokenPipeError:
            refuse_more_output()
            if not self._is_dispensable:
                raise  # the reader has closed the pipe: console and typer end without a message
        except OSError as error:
            reason = error.strerror or str(error)
            told = OutputError(reason[:1].lower() + reason[1:])
            if not self._is_dispensable:
                raise told from error
            refuse_more_output()
            self._errors.append(told)


class _Diagnostics(io.TextIOBase):
    """Standard error. Text that cannot be written is dropped."""

    def write(self, text: str) -> int:
        with suppress(OSError, ValueError):
            sys.stderr.write(text)
        return len(text)

    def flush(self) -> None:
        with suppress(OSError, ValueError):
            sys.stderr.flush()

    def __del__(self) -> None:
        """Close nothing: the stream is the caller's.

        The base class would flush it, when an interpreter that ends has no modules any more.
        """

    def writable(self) -> bool:
        return True

    def isatty(self) -> bool:
        return sys.stderr.isatty()

    def fileno(self) -> int:
        return sys.stderr.fileno()

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return sys.stderr.encoding or "utf-8"


def refuse_more_output() -> None:
    """Drop text that could not be written; otherwise Python would write it again at its end."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), output.fileno())


output = _Output()
# Text is neither wrapped nor cut, and [name] or :name: in a path is no markup.
out = Console(
    file=cast("IO[str]", output), soft_wrap=True, highlight=False, markup=False, emoji=False
)
err = Console(
    file=cast("IO[str]", _Diagnostics()), soft_wrap=True, highlight=False, markup=False, emoji=False
)
