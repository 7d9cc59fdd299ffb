"""Fixtures of the tests of fleets."""

import pytest
from interrupted_runs import Runs


@pytest.fixture(scope="session")
def runs(tmp_path_factory):
    """Undisturbed and interrupted runs, each trained once by a process."""
    return Runs(tmp_path_factory.mktemp("runs"))
