"""Evaluations of a run, with what the fleet had sent and spent until each of them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from edgesim.report.frames import Frame
from edgesim.report.reported_run import CONSENSUS, ReportedRun
from edgesim.results.columns import EVALUATION_NAMES

MOST_LINES = 32  # devices whose own curves are drawn; of more there are bands

BEST, WORST, AVERAGED = "best device", "worst device", "averaged model"
OTHERS = "other devices"

_NO_METRICS = EVALUATION_NAMES | {"name"}


def evaluations_of(run: ReportedRun) -> Frame:
    """Rows of evaluations.parquet with their number and what the fleet had sent and spent by then.

    The columns are `run`, `evaluation` (a number from 0), those of the file, then `series` (the
    averaged model, the best, the worst and other devices by the last evaluation of devices),
    `fleet_sent_bytes` and, with a clock, `fleet_energy_j`: totals of the averaged model's row.
    """
    table = run.evaluations.copy()
    table.insert(0, "run", run.label)
    is_consensus = table["model"] == CONSENSUS
    table.insert(1, "evaluation", is_consensus.cumsum() - 1)
    table["series"] = np.where(is_consensus, AVERAGED, OTHERS)
    table = with_extremes(table, extremes(run))
    totals = {"total_sent_bytes": "fleet_sent_bytes", "total_energy_j": "fleet_energy_j"}
    for column, name in totals.items():
        if column in table:
            of_fleet = table.loc[is_consensus, column]
            if of_fleet.isna().any():  # of an unfinished run
                of_fleet = of_fleet.astype("float64")
            table[name] = of_fleet.to_numpy()[table["evaluation"]]
    return table


@dataclass(frozen=True, slots=True)
class Extremes:
    """The devices whose own models are the worst and the best.

    Attributes:
        by: the measure in which they differ, `accuracy` or `loss`.
        worst: number of the worst device.
        best: number of the best one.
    """

    by: str
    worst: int
    best: int


def extremes(run: ReportedRun, measure: str = "accuracy") -> Extremes | None:
    """The worst and the best device in the last evaluation of devices; None where all are alike.

    Args:
        run: the run.
        measure: `accuracy`, whose ties the loss breaks; or `loss`. Without accuracies the loss
            decides.
    """
    last = last_of_devices(run)
    measures = [name for name in dict.fromkeys((measure, "loss")) if last[name].notna().any()]
    ascending = [name == "accuracy" for name in measures]
    order = last.dropna(subset=measures).sort_values(
        [*measures, "device"], ascending=[*ascending, True]
    )
    for name in measures:
        if len(order) and order[name].iloc[0] != order[name].iloc[-1]:
            worst, best = (int(order["device"].iloc[place]) for place in (0, -1))
            return Extremes(name, worst, best)
    return None


def with_extremes(table: Frame, found: Extremes | None) -> Frame:
    """Evaluations in whose column `series` these devices are the worst and the best."""
    series = table["series"].where(~table["series"].isin((BEST, WORST)), OTHERS)
    if found is not None:
        series[table["device"] == found.worst] = WORST
        series[table["device"] == found.best] = BEST
    return table if series.equals(table["series"]) else table.assign(series=series)


def last_of_devices(run: ReportedRun) -> Frame:
    """Rows of the last evaluation that tested devices' own models; none if there was none."""
    table = run.evaluations
    number = (table["model"] == CONSENSUS).cumsum()
    of_devices = table["model"] != CONSENSUS
    if not of_devices.any():
        return table[of_devices]
    return table[of_devices & (number == number[of_devices].iloc[-1])]


def own_metrics(run: ReportedRun) -> list[str]:
    """Further measures: those of the run's task, on devices' own samples, after further gossip."""
    table = run.evaluations
    return [str(c) for c in table.columns if c not in _NO_METRICS and table[c].notna().any()]


def quantile_bands(table: Frame, keys: list[str], measures: list[str]) -> Frame:
    """Spread of measures over devices, for each value of the keys.

    Returns:
        The keys, `measure`, and `lowest`, `p10`, `p25`, `median`, `p75`, `p90`, `highest`.
    """
    import pandas as pd

    shares = {
        "lowest": 0.0,
        "p10": 0.1,
        "p25": 0.25,
        "median": 0.5,
        "p75": 0.75,
        "p90": 0.9,
        "highest": 1.0,
    }
    parts = []
    for measure in measures:
        if measure not in table or not table[measure].notna().any():
            continue
        quantiles = table.groupby(keys, sort=True)[measure].quantile(list(shares.values()))
        part = quantiles.unstack().set_axis(list(shares), axis=1).reset_index()
        part.insert(len(keys), "measure", measure)
        parts.append(part)
    if not parts:
        return pd.DataFrame(columns=[*keys, "measure", *shares])
    return pd.concat(parts, ignore_index=True)
