"""Numbers are drawn in the units of their axes."""

from __future__ import annotations

import re

import pytest
from hand_made_runs import evaluation, waiting_fleet

from edgesim.report.ends import device_table
from edgesim.report.figures.breakdowns import bytes_figure, energy_figure
from edgesim.report.figures.curves import curve_figures
from edgesim.report.figures.spending import charge_figure
from edgesim.report.figures.time_figures import time_figures
from edgesim.report.figures.training_loss import training_loss_figure

UNITS = {
    "milliseconds": 1e-3,
    "seconds": 1,
    "minutes": 60,
    "hours": 3600,
    "B": 1,
    "kB": 1e3,
    "MB": 1e6,
    "mJ": 1e-3,
    "J": 1,
    "kJ": 1e3,
}


def parts(value):
    """All objects of a drawing."""
    if isinstance(value, dict):
        yield value
        value = list(value.values())
    if isinstance(value, list):
        for item in value:
            yield from parts(item)


def drawn(spec):
    """For each calculated number its divisor, and the units in the titles of what shows it."""
    divisors, units = {}, {}
    for part in parts(spec):
        if found := re.fullmatch(r"datum\.(\w+) / (\S+)", str(part.get("calculate", ""))):
            divisors.setdefault(part["as"], set()).add((found[1], float(found[2])))
        title = str(part.get("title", ""))
        if "field" in part and (found := re.search(r"\((\w+)\)$", title)):
            units.setdefault(part["field"], set()).add(found[1])
    return divisors, units


def slowed(run, factor):
    """The run with clocks and energies times this, and bytes times whole numbers."""
    for table in (run.rounds, run.messages, run.evaluations):
        for column in table:
            if str(column).endswith(("_s", "_j")):
                table[column] = table[column] * factor
            elif str(column).endswith("bytes"):
                table[column] = table[column] * max(int(factor), 1)
    return run


@pytest.mark.parametrize("factor", [0.001, 1, 60, 3600])
def test_what_is_drawn_is_divided_by_the_unit_of_its_axis(factor):
    rows = [
        row | {"virtual_time_s": 3.5 * number, "total_sent_bytes": 700 * number,
               "total_energy_j": 14.0 * number}
        for number in (1, 2)
        for row in evaluation(number, 0.5, (0.2, 0.1, 0.3))
    ]  # fmt: skip
    run = waiting_fleet(evaluations=rows)
    run.rounds["charge_left_j"] = [9.0, 8.0, 7.0, 6.0, 5.0, 4.0]
    run.rounds["sent_value_bytes"] = run.rounds["sent_bytes"]
    run = slowed(run, factor)
    devices = device_table(run)
    figures = [
        *curve_figures([run]),
        training_loss_figure(run),
        *time_figures(run, devices),
        energy_figure(run, devices),
        bytes_figure(run, devices),
        charge_figure(run),
    ]
    pairs = set()
    for figure in figures:
        for view in figure.views:
            divisors, units = drawn(view.spec)
            for name, found in divisors.items():
                for field, divisor in found if name in units else ():
                    (unit,) = units[name]
                    assert divisor == UNITS[unit], (figure.key, view.label, field)
                    pairs.add((figure.key, field))
    assert {
        ("accuracy", "virtual_time_s"),
        ("accuracy", "fleet_sent_bytes"),
        ("accuracy", "fleet_energy_j"),
        ("training-loss", "virtual_time_s"),
        ("time-of-devices", "seconds"),
        ("time-of-fleet", "time_s"),
        ("timeline", "start_s"),
        ("waits", "waited_s"),
        ("energy", "energy_j"),
        ("bytes", "bytes"),
        ("charge", "virtual_time_s"),
        ("charge", "charge_left_j"),
    } <= pairs
