"""A run that several modules report."""

from __future__ import annotations

import pytest
from reported_runs import train

from edgesim.report.report import report_page
from edgesim.report.runs import load_runs


@pytest.fixture(scope="session")
def place(tmp_path_factory):
    return train(tmp_path_factory.mktemp("reported"))


@pytest.fixture(scope="session")
def page(place):
    return report_page(load_runs([place]))
