"""Quantities are not rounded to what they are not."""

from __future__ import annotations

import pytest

from edgesim.report.units import duration, percent


@pytest.mark.parametrize(
    ("share", "text"),
    [(0.984, "98.4 %"), (0.9949, "99.49 %"), (0.9995, "99.95 %"), (0.9999, "99.99 %"),
     (0.99999, "99.999 %"), (1.0, "100 %"), (0.99, "99 %"), (1 - 2**-53, "99.99999999999999 %"),
     (0.0, "0 %"), (12.5, "1,250 %")],
)  # fmt: skip
def test_all_but_everything_is_not_100_percent(share, text):
    assert percent(share) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.9994, "999 ms"), (0.9996, "1 s"), (0.99999, "1 s"), (0.0, "0 s"), (59.96, "1 min")],
)
def test_a_time_has_no_power_of_ten(seconds, text):
    assert duration(seconds) == text
