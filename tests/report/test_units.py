"""Quantities are not rounded to what they are not, and stand in the unit that they name."""

from __future__ import annotations

import math

import pytest

from edgesim.errors import count
from edgesim.report.units import (
    bytes_axis,
    count_axis,
    data_size,
    duration,
    energy,
    energy_axis,
    listed,
    percent,
    points,
    time_axis,
    watt_hours,
)


@pytest.mark.parametrize(
    ("share", "text"),
    [(0.984, "98.4 %"), (0.9949, "99.49 %"), (0.9995, "99.95 %"), (0.9999, "99.99 %"),
     (0.99999, "99.999 %"), (1.0, "100 %"), (0.99, "99 %"), (1 - 2**-53, "99.99999999999999 %"),
     (0.0, "0 %"), (12.5, "1,250 %"), (1e-5, "0.001 %"), (9.9e-6, "under 0.001 %"),
     (0.01234, "1.23 %")],
)  # fmt: skip
def test_all_but_everything_is_not_100_percent(share, text):
    assert percent(share) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.9994, "999 ms"),
        (0.9995, "1 s"),
        (0.9996, "1 s"),
        (0.99999, "1 s"),
        (0.0, "0 s"),
        (59.96, "1 min"),
    ],
)
def test_a_time_has_no_power_of_ten(seconds, text):
    assert duration(seconds) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.00085, "0.85 ms"), (0.85, "850 ms"), (12.34, "12.3 s"), (59.94, "59.9 s"),
     (61.0, "1 min 1 s"), (250.0, "4 min 10 s"), (3570.0, "59 min 30 s"),
     (3599.4, "59 min 59 s"), (3599.6, "1 h"), (3629.0, "1 h"), (3631.0, "1 h 1 min"),
     (5400.0, "1 h 30 min"), (84_600.0, "23 h 30 min"), (86_369.0, "23 h 59 min"),
     (86_371.0, "1 d"), (187_200.0, "2 d 4 h"), (1e8, "1,157 d 10 h"), (math.inf, "unknown"),
     (math.nan, "unknown")],
)  # fmt: skip
def test_a_time_has_two_units_that_suit_it(seconds, text):
    """1e8 s are 1,157 days and 35,200 s, which are 9.78 h."""
    assert duration(seconds) == text


@pytest.mark.parametrize(
    ("num_bytes", "text"),
    [(0, "0 B"), (466.7, "467 B"), (999, "999 B"), (1000, "1 kB"), (999_400, "999 kB"),
     (999_700, "1,000 kB"), (32_240_000, "32.2 MB"),
     (4.5e9, "4.5 GB"), (7e12, "7 TB"), (1.25e15, "1,250 TB")],
)  # fmt: skip
def test_sizes_of_data_have_decimal_prefixes(num_bytes, text):
    assert data_size(num_bytes) == text


@pytest.mark.parametrize(
    ("joules", "text"),
    [(0.0, "0 J"), (2e-9, "0.002 µJ"), (5e-4, "500 µJ"), (0.05, "50 mJ"), (-0.05, "-50 mJ"),
     (1.0, "1 J"), (3599.0, "3.6 kJ"), (3600.0, "3.6 kJ (1 Wh)"), (12_300.0, "12.3 kJ (3.42 Wh)"),
     (7.2e9, "7.2 GJ (2,000,000 Wh)")],
)  # fmt: skip
def test_energies_have_watt_hours_from_one_on(joules, text):
    assert energy(joules) == text


def test_watt_hours_points_and_counts():
    assert watt_hours(1800.0) == "0.5 Wh"
    assert points(0.0123) == "1.23 points"
    assert [count(number, "round") for number in (0, 1, 2000)] == [
        "0 rounds",
        "1 round",
        "2,000 rounds",
    ]


@pytest.mark.parametrize(
    ("names", "text"),
    [("a", "a"), ("ab", "a and b"), ("abcd", "a, b, c and d"), ("abcde", "a, b, c, d and 1 more"),
     ("abcdefghijk", "a, b, c, d and 7 more")],
)  # fmt: skip
def test_four_names_are_listed(names, text):
    assert listed(list(names)) == text
    assert listed(list("abc"), 2) == "a, b and 1 more"


@pytest.mark.parametrize(
    ("longest_s", "unit", "seconds"),
    [(0.9, "milliseconds", 0.001), (1.0, "seconds", 1), (179.0, "seconds", 1),
     (180.0, "minutes", 60), (7199.0, "minutes", 60), (7200.0, "hours", 3600),
     (172_799.0, "hours", 3600), (172_800.0, "days", 86_400)],
)  # fmt: skip
def test_an_axis_of_time_is_in_the_unit_of_its_title(longest_s, unit, seconds):
    axis = time_axis("end_s", "time", longest_s)
    assert (axis.field, axis.title, axis.per_unit) == ("end_s", f"time ({unit})", seconds)


def test_an_axis_has_the_prefix_of_its_title():
    axes = [
        bytes_axis("x", "sent", 1e6),
        bytes_axis("x", "sent", 0.5),
        energy_axis("x", "spent", 0.02),
        energy_axis("x", "spent", 0.0),
        count_axis("x", "work", "MAC", 2.5e9),
    ]
    assert [(axis.title, axis.per_unit) for axis in axes] == [
        ("sent (MB)", 1e6),
        ("sent (B)", 1),
        ("spent (mJ)", 1e-3),
        ("spent (µJ)", 1e-6),
        ("work (GMAC)", 1e9),
    ]
