"""Settings that all tests share."""

from __future__ import annotations

import sys
from contextlib import ExitStack, nullcontext
from io import StringIO

import pytest
import torch
from hypothesis import Phase, settings
from rich.console import Console
from thorough import examples

# Examples are the same in every run: a failure seen once can be seen again. No deadline: machines
# that run tests are noisy, and no test may assert a time.
settings.register_profile(
    "edgesim", derandomize=True, deadline=None, max_examples=examples(100, 40)
)
# For `make mutants`, which wants to know that a test fails, not by which smallest example.
settings.register_profile(
    "mutants",
    settings.get_profile("edgesim"),
    max_examples=100,
    phases=(Phase.explicit, Phase.generate),
    report_multiple_bugs=False,
)
settings.load_profile("edgesim")


def pytest_collection_modifyitems(items):
    """Tests with Ray come first, so that one of the three processes of `make test` runs them all.

    That process starts one Ray for them and waits a lot, while the other two are at work, one on
    each core, which in the end take over what is left. Tests that need another Ray in the process
    come before it is started. Long tests follow, so that none is the last.
    """

    def place(item):
        is_ray, is_long = (item.get_closest_marker(name) is not None for name in ("ray", "long"))
        return not is_ray, is_ray and "no_ray" not in item.fixturenames, not is_long

    items.sort(key=place)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item, nextitem):
    """The Ray of tests ends with the last of them: its processes are busy while it waits."""
    result = yield
    if item.get_closest_marker("ray") and not (nextitem and nextitem.get_closest_marker("ray")):
        ray_of_tests.end()
    return result


@pytest.fixture(autouse=True, scope="session")
def _one_thread():
    """As in every process of a fleet; and fleets of this process compute one device at a time.

    Threads of small models wait for each other's Python: two take half as much time again as one.
    """
    torch.set_num_threads(1)
    with pytest.MonkeyPatch.context() as patch:
        if "edgesim.fleet.run" in sys.modules:  # tests that need no fleet need not import it
            patch.setattr("edgesim.fleet.run.num_cores", lambda: 1)
        yield


@pytest.fixture
def two_threads(monkeypatch):
    """Fleets of this process compute two devices at a time, as on a machine with two cores."""
    monkeypatch.setattr("edgesim.fleet.run.num_cores", lambda: 2)


@pytest.fixture
def started_ray(monkeypatch):
    """Fleets of this process run on a Ray that is started once for all tests."""
    ray_of_tests.start()
    monkeypatch.setattr("edgesim.fleet.on_ray.launch.ray_session", lambda *_, **__: nullcontext())


@pytest.fixture
def no_ray():
    """For a test that joins or starts a Ray of its own in this process, which can have one."""
    ray_of_tests.end()


class RayOfTests:
    """Ray as `edgesim run` starts it, with its fork server.

    It is started when a test first needs it, and again after it was ended.
    """

    def __init__(self):
        self._stack = ExitStack()
        self._is_started = False

    def start(self):
        """Start it unless it is there; a worker takes milliseconds then."""
        if self._is_started:
            return
        from ray._private import ray_constants

        from edgesim.fleet.on_ray.own_ray import own_ray

        with pytest.MonkeyPatch.context() as patch:
            # A token would stay in the environment of all later tests and of their processes.
            patch.setenv("RAY_AUTH_MODE", "disabled")
            # Tests look at standard error, where Ray would print at any later time.
            patch.setattr(ray_constants, "RAY_LOG_TO_DRIVER", False)
            self._stack.enter_context(own_ray(dashboard=False, console=Console(file=StringIO())))
        self._is_started = True

    def end(self):
        self._stack.close()
        self._is_started = False


ray_of_tests = RayOfTests()
