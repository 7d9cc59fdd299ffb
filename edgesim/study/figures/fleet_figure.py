"""Figure of a fleet: how devices spend the virtual time of a round."""

from __future__ import annotations

from edgesim.study.figures.charts import (
    Picture,
    as_picture,
    drawing,
    legend_below,
    stacked_bars,
    write_behind,
)
from edgesim.study.iteration import IterationCosts
from edgesim.study.tables.kinds import kinds_of

_MOST_ROWS = 32
_MILLI = 1e3


def fleet_picture(costs: IterationCosts) -> Picture:
    """Device by device; of large fleets one of each kind."""
    assert costs.steady_state is not None, "asked only of fleets with clocks"
    shown = list(costs.devices)
    if len(shown) > _MOST_ROWS:
        shown = [kind.first for kind in kinds_of(costs)][:_MOST_ROWS]
    names = costs.subject.scenario.fleet.names

    def name(device: int) -> str:
        return f"{device} {names[device]}" if names else str(device)

    cycles = [costs.steady_state.devices[device.device] for device in shown]
    parts = [
        ("computing", [cycle.compute_s * _MILLI for cycle in cycles]),
        ("waiting for messages", [cycle.wait_s * _MILLI for cycle in cycles]),
    ]
    asleep = [cycle.sleep_s * _MILLI for cycle in cycles]
    if any(asleep):
        parts.append(("asleep", asleep))
    with drawing(7.2, 1.5 + 0.26 * len(shown)) as figure:
        axes = figure.subplots()
        labels = [f"{name(d.device)}: {d.profile.name if d.profile else ''}" for d in shown]
        ends = stacked_bars(axes, labels, parts)
        waits = [
            "" if cycle.waits_for is None else f"waits for {name(cycle.waits_for)}"
            for cycle in cycles
        ]
        write_behind(axes, ends, waits)
        axes.set_title(f"A round in lockstep: {costs.subject.scenario.name}")
        axes.set_xlabel("ms")
        legend_below(figure, axes, 3)
        return as_picture(
            figure,
            "fleet",
            "Where the virtual time of a round goes once the fleet has settled, and whose message "
            "each device waits for most often.",
        )
