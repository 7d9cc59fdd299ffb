"""A few cases of every fuzzer; `make fuzz` runs as many as one likes."""

from __future__ import annotations

import pytest
from run_cases import fuzzer, kinds

BATCHES = 2  # so that two processes share a kind


@pytest.mark.parametrize("batch", range(BATCHES))
@pytest.mark.parametrize("kind", kinds())
def test_cases_of_a_fuzzer_pass(kind, batch):
    module = fuzzer(kind)
    for seed in range(batch, module.NUM_IN_TESTS, BATCHES):
        module.check(seed)
