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
from edgesim.study.tables.kinds import Names, kinds_of

_MOST_ROWS = 32
_MILLI = 1e3


def fleet_picture(costs: IterationCosts) -> Picture:
    """Device by device; of large fleets one of each kind."""
    assert costs.steady_state is not None, "asked only of fleets with clocks"
    shown = list(costs.devices)
    if len(shown) > _MOST_ROWS:
        shown = [kind.first for kind in kinds_of(costs)][:_MOST_ROWS]
    names, is_free = Names.of(costs), costs.steady_state.is_free
    cycles = [costs.steady_state.devices[device.device] for device in shown]
    scale, unit = (1.0, "s") if costs.steady_state.period_s >= 1 else (_MILLI, "ms")
    parts = [("computing", [cycle.compute_s * scale for cycle in cycles])]
    if not is_free:
        parts.append(("waiting for messages", [cycle.wait_s * scale for cycle in cycles]))
    asleep = [cycle.sleep_s * scale for cycle in cycles]
    if any(asleep):
        parts.append(("asleep", asleep))
    with drawing(7.2, 1.5 + 0.26 * len(shown)) as figure:
        axes = figure.subplots()
        labels = [f"{names.one(d.device)}: {d.profile.name if d.profile else ''}" for d in shown]
        ends = stacked_bars(axes, labels, parts)
        waits = [
            "" if cycle.waits_for is None else f"waits for {names.one(cycle.waits_for)}"
            for cycle in cycles
        ]
        write_behind(axes, ends, waits)
        pace = "at free pace" if is_free else "in lockstep"
        axes.set_title(f"A round {pace}: {costs.studied.scenario.name}")
        axes.set_xlabel(unit)
        legend_below(figure, axes, 3)
        return as_picture(
            figure,
            "fleet",
            "How long a round of each device takes; no device waits."
            if is_free
            else "Where the virtual time of a round goes once the fleet has settled, and whose "
            "message each device waits for most often.",
        )
