"""A few of the damaged run directories are gone on with by actors, too."""

from __future__ import annotations

import pytest
import tiny_runs
from fuzz_run_directories import check
from thorough import some

from edgesim.fleet.run import resume_run

SEEDS = (100, 104, 105, 106)


@pytest.mark.ray
@pytest.mark.parametrize("seed", some(SEEDS, 2))
def test_a_damaged_directory_is_gone_on_with_or_refused_by_actors(seed, started_ray):
    def resumed(place):
        return resume_run(place, inline=False, console=tiny_runs.console())

    check(seed, resumed)
