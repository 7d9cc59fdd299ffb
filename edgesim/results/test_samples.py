"""Which settings decide on what samples models are evaluated."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from typing import Any

_CHOSEN_APART = ("partition", "batch_size")  # keys of data that test samples do not follow from


def settings_of_test_samples(scenario: Mapping[str, Any], without: Collection[str] = ()) -> str:
    """Settings that the test samples follow from, as a text that can be compared.

    Args:
        scenario: as plain values, with every default.
        without: further keys of the section `data` to leave out.
    """
    left_out = {*_CHOSEN_APART, *without}
    data = {key: value for key, value in scenario["data"].items() if key not in left_out}
    return json.dumps([data, scenario["evaluation"]["samples"]], sort_keys=True)
