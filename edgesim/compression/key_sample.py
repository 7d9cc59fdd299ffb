"""Samples of a tensor's keys, by which its largest keys are found with few comparisons."""

from __future__ import annotations

from math import sqrt

SAMPLE = 2048  # keys of a tensor's sample, about
SPARSE = 4  # a sample is of use where at most one of so many keys is taken
_DEVIATIONS = 5  # standard deviations by which the sample may hold too few of the largest keys


def sampled_rank(expected: float) -> int:
    """Rank of a key of a sample that is nearly always below all of the largest keys.

    Args:
        expected: how many of the largest keys are in the sample, on average.
    """
    return int(expected + _DEVIATIONS * (1 + sqrt(expected)))
