"""A run that several modules report."""

from __future__ import annotations

import pytest
from reported_runs import train


@pytest.fixture(scope="session")
def place(tmp_path_factory):
    return train(tmp_path_factory.mktemp("reported"))
