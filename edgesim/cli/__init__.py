"""The command line: runs a command, and makes two lines and an exit status of an error.

Only `edgesim.cli` prints.
"""

from __future__ import annotations

import asyncio
import logging
import re
import signal
import sys
import traceback

import typer

from edgesim.assembly.parts.own_errors import has_own_code
from edgesim.cli.commands import FAILED, app
from edgesim.cli.garbage import skip_last_collection
from edgesim.cli.output import OutputError, refuse_more_output
from edgesim.cli.output import err as _err
from edgesim.cli.output import output as _output
from edgesim.errors import EdgesimError, did_you_mean, printable

__all__ = ["app", "main"]

BAD_INPUT, INTERRUPTED = 2, 130
_MOST_CHARACTERS = 500  # of an error that edgesim did not foresee
_LEAST = 3  # letters of a mistyped name: fewer are in most names

# Error of a command line that cannot be parsed; typer has no public name for the base class.
_UsageError: type[typer.BadParameter] = typer.BadParameter.__mro__[1]


def main() -> None:
    """Entry point: errors become one or two lines and an exit status."""
    debug = "--debug" in sys.argv
    logging.basicConfig(level=logging.INFO, format="%(message)s", handlers=[_Lines()])
    for name in ("ray", "aiobotocore", "botocore"):  # they say where credentials were found
        logging.getLogger(name).setLevel(logging.WARNING)
    signal.signal(signal.SIGTERM, _interrupt)
    skip_last_collection()
    try:
        sys.exit(_run_command())
    except _UsageError as error:
        command = error.ctx.command_path if error.ctx else "edgesim"
        _err.print(f"{_worded(error.format_message())}\nsee {command} --help")
        sys.exit(BAD_INPUT)
    except (KeyboardInterrupt, asyncio.CancelledError):
        _err.print("interrupted")
        sys.exit(INTERRUPTED)
    except EdgesimError as error:
        if debug:
            traceback.print_exc()
        _err.print(printable(_in_lines(str(error), 2)))
        for note in getattr(error, "__notes__", ()):
            _err.print(printable(note))
        sys.exit(BAD_INPUT if isinstance(error, ValueError) else FAILED)
    except OutputError as error:
        if debug:
            traceback.print_exc()
        refuse_more_output()
        _err.print(f"can't write the answer: {error}")
        sys.exit(FAILED)
    except Exception as error:  # noqa: BLE001 (a defect, which is said to be one)
        if debug:
            traceback.print_exc()
        if _lacks_memory(error):
            _err.print(f"not enough memory: {_defect(error)}")
            _err.print("use fewer samples, a smaller model or batch, or a machine with more memory")
            sys.exit(FAILED)
        _err.print(f"internal error: {_defect(error)}")
        or_own = ", or a part of your own gives what it should not" if has_own_code() else ""
        _err.print(f"this is a defect of edgesim{or_own}; `edgesim --debug ...` shows where")
        sys.exit(FAILED)


def _run_command() -> int:
    """Run the command of this process; return its exit status.

    Raises:
        KeyboardInterrupt: it was interrupted. typer makes a status of that.
    """
    with _output.takes_over():
        status = app(sys.argv[1:] or ["--help"], standalone_mode=False)
    if status == INTERRUPTED:
        raise KeyboardInterrupt
    return status if isinstance(status, int) else 0


def _worded(message: str) -> str:
    """What is wrong with an argument; of a name that is like a known one, that one alone."""
    message = message.replace("Value error, ", "")  # which typer puts before it
    if found := re.search(r"'([^']*)' is not one of (.*)\.$", message):
        known = re.findall(r"'([^']*)'", found[2])
        if len(found[1]) >= _LEAST and (remedy := did_you_mean(found[1], known, "")):
            return f"{message[: found.start(2)].removesuffix(' one of ')} known; {remedy}"
    return message


def _lacks_memory(error: BaseException) -> bool:
    """Whether Python, NumPy or torch could not get the memory that they asked for."""
    is_torchs = isinstance(error, RuntimeError) and "DefaultCPUAllocator" in str(error)
    return isinstance(error, MemoryError) or is_torchs


def _defect(error: BaseException) -> str:
    """An unforeseen error in a line.

    Ray's errors hold the traceback of another process in their text; their cause is what counts.
    """
    while isinstance(cause := getattr(error, "cause", None), BaseException):
        error = cause
    text = str(error)
    lines = [line for line in text.splitlines() if line.strip()]
    if any("Traceback (most recent call last)" in line for line in lines):
        text = lines[-1]
    said = _in_lines(f"{type(error).__name__}: {text}", 1)
    return said if len(said) <= _MOST_CHARACTERS else f"{said[:_MOST_CHARACTERS]}..."


def _in_lines(text: str, most: int) -> str:
    """A text in at most so many lines; further lines are appended to the last one."""
    lines = [line for line in text.splitlines() if line.strip()]
    last = " ".join(map(str.strip, lines[most - 1 :]))
    return "\n".join(filter(None, [*lines[: most - 1], last]))


class _Lines(logging.Handler):
    """Prints log messages without times and without wrapping."""

    def emit(self, record: logging.LogRecord) -> None:
        _err.print(self.format(record))


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt
