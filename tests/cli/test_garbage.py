"""When commands look for garbage."""

from __future__ import annotations

import gc
import subprocess
import sys

import pytest

from edgesim.cli.garbage import uncollected

PROGRAM = """
import gc, sys
from edgesim.cli import main
sys.argv[1:] = ["list", "models"]
class AtTheEnd:  # found only by a search for garbage
    def __init__(self): self.me = self
    def __del__(self): print("searched", file=sys.stderr, flush=True)
AtTheEnd()
gc.disable()
{call}
"""


def unfrozen(action):
    """Run an action, and let nothing stay frozen."""
    try:
        action()
    finally:
        gc.unfreeze()


def test_no_collection_looks_through_what_was_there_after_an_import():
    def action():
        sys.modules.pop("colorsys", None)
        with uncollected():
            assert not gc.isenabled()
            import colorsys  # noqa: F401
        assert gc.isenabled()
        assert gc.get_freeze_count() > 0

    unfrozen(action)


def test_where_nothing_is_imported_nothing_is_frozen():
    def action():
        before = gc.get_freeze_count()
        with uncollected():
            pass
        assert gc.get_freeze_count() == before

    unfrozen(action)


@pytest.mark.parametrize("was_enabled", [True, False])
def test_collections_are_as_they_were_after_an_error(was_enabled):
    def action():
        if not was_enabled:
            gc.disable()
        try:
            with pytest.raises(ImportError), uncollected():
                raise ImportError
            assert gc.isenabled() == was_enabled
        finally:
            gc.enable()

    unfrozen(action)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        ("main()", ""),
        ("pass", "searched\n"),
        ("sys.modules['triton'] = sys; gc.freeze(); main()", "searched\n"),
    ],
)
def test_the_end_of_a_command_does_not_search_for_garbage(call, said):
    program = [sys.executable, "-c", PROGRAM.format(call=call)]
    ended = subprocess.run(program, capture_output=True, text=True, check=False)
    assert ended.stderr == said
