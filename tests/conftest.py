"""Settings that all tests share."""

from __future__ import annotations

import pytest
import torch
from hypothesis import Phase, settings

# Examples are the same in every run: a failure seen once can be seen again. No deadline: machines
# that run tests are noisy, and no test may assert a time.
settings.register_profile("edgesim", derandomize=True, deadline=None)
# For `make mutants`, which wants to know that a test fails, not by which smallest example.
settings.register_profile(
    "mutants",
    settings.get_profile("edgesim"),
    phases=(Phase.explicit, Phase.generate),
    report_multiple_bugs=False,
)
settings.load_profile("edgesim")


@pytest.fixture(autouse=True, scope="session")
def _one_thread():
    """As in every process of a fleet."""
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def ray_address():
    """A Ray cluster on this machine for all tests that need one."""
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 2})
    yield cluster.address
    cluster.shutdown()
