"""A run that several modules report."""

from __future__ import annotations

import pytest
from reported_runs import FREE, train

from edgesim.report.report import report_page
from edgesim.report.runs import load_runs


@pytest.fixture(scope="session")
def place(tmp_path_factory):
    return train(tmp_path_factory.mktemp("reported"))


def each_time_for_mutants(fixture_name, config):
    """`make mutants` must see each test of a page call the code that makes it."""
    return "function" if config.getoption("--hypothesis-profile") == "mutants" else "session"


@pytest.fixture(scope=each_time_for_mutants)
def page(place):
    return report_page(load_runs([place]))


@pytest.fixture(scope="session")
def free(tmp_path_factory):
    """A run at free pace, with an absence, a join and two that leave."""
    return load_runs([train(tmp_path_factory.mktemp("free"), scenario=FREE)])[0]
