"""A group of one process, for the tests of this folder."""

from __future__ import annotations

import pytest
from torch import distributed as dist


@pytest.fixture(scope="module")
def group():
    """A group of one process."""
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()
