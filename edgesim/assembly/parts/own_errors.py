"""Errors that one's own code raises: said in a line with its place, and its frames alone below.

A part of one's own may fail anywhere: while it is made, in a round on a thread of a Ray actor, in
an evaluation. The frames of a traceback tell such errors from defects of edgesim: one of them is
of a file or package that a scenario names.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import FrozenInstanceError
from types import FrameType

from edgesim.errors import MEND_OWN_CODE, EdgesimError, OwnCodeError, RunStoppedError

MOST_CHARACTERS = 500  # of an error's own text

_GENERATED = "<string>"  # file of methods that Python writes, as those of a frozen dataclass
_FROZEN = "a part is frozen: values that change belong in the state of the algorithm or optimizer"
_FILE_MODULE = "edgesim_own_"  # begins the names of modules that are made of files
_SHARED = frozenset({"edgesim", "topologies", "torch", "numpy"})  # their frames say nothing
_OWN_MODEL = ("edgesim.models.own", "OwnModel._called")  # calls a module of one's own

_keys: dict[str, dict[str, str]] = {}
"""Keys of a scenario by the names that stand there, by the module of a file or by package."""


def file_module(digest: str) -> str:
    """Name of the module that is made of a file."""
    return f"{_FILE_MODULE}{digest}"


def remember(module: str, name: str, key: str) -> None:
    """Note that errors raised in a module are those of a part that a scenario names.

    Args:
        module: that was made or imported.
        name: of the part in it.
        key: of the scenario.
    """
    package = module.partition(".")[0]
    if package not in _SHARED:
        _keys.setdefault(package, {})[name] = key


def has_own_code() -> bool:
    """Whether a part of one's own was loaded in this process."""
    return bool(_keys)


def failure(error: BaseException) -> str:
    """What an error says and where in one's own code it was raised, in one line."""
    kind, text = type(error).__name__, " ".join(str(error).split())
    if len(text) > MOST_CHARACTERS:
        text = f"{text[:MOST_CHARACTERS]}..."
    where = place_of(error)
    if isinstance(error, SyntaxError):
        text = error.msg
    elif isinstance(error, FrozenInstanceError) and _is_of_own_class(error):
        text = f"{text}; {_FROZEN}"
    return f"fails{where and f' at {where}'}: {kind}{text and ': '}{text}"


def place_of(error: BaseException) -> str:
    """File and line of one's own code that raised an error; empty for another one's."""
    if isinstance(error, SyntaxError) and error.lineno:
        return f"{error.filename}:{error.lineno}"
    if not (frames := _own_frames(error)):
        return ""
    frame, line = frames[-1]
    return f"{frame.f_code.co_filename}:{line}"


def key_of(error: BaseException) -> str | None:
    """Key of the part whose code raised an error; None if no part's did."""
    frames = _own_frames(error)
    return _key_and_function(frames)[0] if frames else None


def with_frames(shown: EdgesimError, error: BaseException) -> EdgesimError:
    """An error with a note: the frames of another one that are of one's own code."""
    if frames := _own_frames(error):
        lines = traceback.StackSummary.extract(iter(frames)).format()
        shown.add_note("in your code:\n" + "".join(lines).rstrip("\n"))
    return shown


def own_code_error(error: BaseException, doing: str) -> OwnCodeError | None:
    """What to show for an error that was raised in one's own code; None for any other.

    A model of one's own may be made of torch's modules alone: what they raise is the model's error.

    Args:
        error: with its traceback.
        doing: when it was raised: `on device 2 in round 5`; may be empty.
    """
    frames = _own_frames(error)
    if frames:
        key, function = _key_and_function(frames)
    elif name := _failed_model(error):
        key, function = "model.name", name
    else:
        return None
    when = f" {doing}" if doing else ""
    shown = OwnCodeError(f"{key}: {function}{when} {failure(error)}\n{MEND_OWN_CODE}")
    with_frames(shown, error)
    return shown


@contextmanager
def own_code(doing: str | Callable[[], str] = "") -> Iterator[None]:
    """Within it errors raised in one's own code, or in what that calls, become `OwnCodeError`.

    So does `SystemExit`, which would end a process without a word.

    Args:
        doing: see `own_code_error`; or gives it once there is an error.
    """
    try:
        yield
    except (OwnCodeError, RunStoppedError):
        raise
    except (Exception, SystemExit) as error:
        shown = own_code_error(error, doing if isinstance(doing, str) else doing())
        if shown is None:
            raise
        raise shown from error


def _own_frames(error: BaseException) -> list[tuple[FrameType, int]]:
    """Frames of own code in an error's traceback, the innermost last, each with its line.

    Those of methods that Python has generated have no line that anybody wrote.
    """
    walked = traceback.walk_tb(error.__traceback__)
    own = [(frame, line) for frame, line in walked if _package_of(frame) in _keys]
    written = [each for each in own if each[0].f_code.co_filename != _GENERATED]
    return written or own


def _is_of_own_class(error: FrozenInstanceError) -> bool:
    """Whether an object of a class of one's own refused to be changed; the class raises it."""
    *_, (innermost, _) = traceback.walk_tb(error.__traceback__)
    return _package_of(innermost) in _keys


def _failed_model(error: BaseException) -> str:
    """Name of the model of one's own in which torch raised an error; empty for any other error."""
    if isinstance(error, EdgesimError):  # says itself what is wrong
        return ""
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    for place, frame in reversed(list(enumerate(frames))):
        if (frame.f_globals.get("__name__"), frame.f_code.co_qualname) == _OWN_MODEL:
            in_edgesim = any(_package_of(inner) == "edgesim" for inner in frames[place + 1 :])
            return "" if in_edgesim else str(frame.f_locals["self"].kind.name)
    return ""


def _key_and_function(frames: list[tuple[FrameType, int]]) -> tuple[str, str]:
    """The key whose part was called, and the function of it that edgesim called."""
    outermost = frames[0][0]
    function = outermost.f_code.co_qualname
    keys = _keys[_package_of(outermost)]
    part = function.partition(".")[0]
    return keys.get(part) or " or ".join(dict.fromkeys(keys.values())), function


def _package_of(frame: FrameType) -> str:
    name: str = frame.f_globals.get("__name__", "")
    return name.partition(".")[0]
