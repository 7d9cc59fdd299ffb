"""Bytes, messages and energy up to each evaluation: sums over the rounds recorded by then.

Evaluations by virtual time also count the part of a wait that has passed. At free pace a device
waits once, after its last step, and maybe for longer than it trained.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from edgesim.results.columns import CONSENSUS, TOTALS
from edgesim.results.scenario_of_run import num_devices_of

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import NDArray

_SUMMED = {
    "total_sent_bytes": "sent_bytes",
    "total_messages_sent": "messages_sent",
    "total_energy_j": "energy_j",
}
"""Column of rounds.parquet that each column of `TOTALS` sums."""


def with_totals(
    evaluations: pd.DataFrame,
    rounds: pd.DataFrame,
    scenario: Mapping[str, Any],
    *,
    is_finished: bool,
) -> pd.DataFrame:
    """Evaluations with the columns `TOTALS`, as far as rounds have what they sum.

    A total of an unfinished run is null if rounds that it sums are not written yet; its columns
    have pandas' types that know null.

    Args:
        evaluations: rows of evaluations.parquet, in order.
        rounds: rows of rounds.parquet.
        scenario: content of scenario.yaml.
        is_finished: whether the run has ended; then the last evaluation is of all rounds.
    """
    import numpy as np
    import pandas as pd

    models = evaluations["device"].to_numpy()
    number = np.cumsum(models == CONSENSUS)  # of the evaluation, from 1
    limits = _limits(evaluations, number, scenario)
    if is_finished and len(number):
        limits.until[number == number[-1]] = np.inf
    devices = rounds["device"].to_numpy()
    if limits.column in rounds.columns:
        keys = rounds[limits.column].to_numpy()
    else:  # of tables without rows, if no round is written yet
        keys = np.zeros(len(rounds))
    known = np.ones(len(models), bool)
    if not is_finished:
        num_devices = num_devices_of(scenario) or len(np.unique(devices))
        ends = _ends(devices, keys, limits.step, num_devices)
        known = limits.until <= np.array([ends.get(model, -np.inf) for model in models.tolist()])
    rows_of = rounds.groupby("device").indices
    groups = [
        (of_model, slice(None) if model == CONSENSUS else rows_of.get(model, []))
        for model, of_model in evaluations.groupby("device").indices.items()
    ]
    found = evaluations.copy()
    for column in TOTALS:
        if (summed := _SUMMED[column.name]) not in rounds.columns:
            continue
        values = rounds[summed].to_numpy()
        totals = np.zeros(len(models), column.type)
        for of_model, own in groups:
            totals[of_model] = _sums(keys[own], values[own], limits.until[of_model])
        if summed == "energy_j" and limits.column == "virtual_time_s":
            totals += _energy_of_waits(evaluations, rounds, limits.until)
        if is_finished:
            found[column.name] = totals
        elif column.type == "int64":
            found[column.name] = pd.arrays.IntegerArray(totals, ~known)
        else:
            found[column.name] = pd.arrays.FloatingArray(totals, ~known)
    return found


@dataclass(frozen=True, slots=True)
class _Limits:
    """Which rounds come before each evaluation: those whose `column` is below `until`.

    Attributes:
        column: of rounds.parquet.
        until: of each row of evaluations.parquet.
        step: what a device has reached beyond the largest value of the column: a round counts from
            0, so a device whose last round is 4 has done 5.
    """

    column: str
    until: NDArray[Any]
    step: int


def _limits(
    evaluations: pd.DataFrame, number: NDArray[Any], scenario: Mapping[str, Any]
) -> _Limits:
    section = scenario.get("evaluation", {})
    if interval_s := section.get("every_virtual_s"):
        return _Limits("virtual_time_s", number * float(interval_s), step=0)
    interval = section.get("every_rounds")
    if interval is None and (epochs := section.get("every_epochs")):
        begun = evaluations[evaluations["epoch"] > 0]
        if len(begun):
            rounds_per_epoch = round(begun["round"].iloc[0] / begun["epoch"].iloc[0])
            interval = epochs * rounds_per_epoch
    if interval is None or scenario.get("training", {}).get("virtual_time_s"):
        return _Limits("round", evaluations["round"].to_numpy(float), step=1)
    return _Limits("round", number * float(interval), step=1)


def _ends(
    devices: NDArray[Any], keys: NDArray[Any], step: int, num_devices: int
) -> dict[int, float]:
    """How far the recorded rounds of each device reach, and, as of -1, those of the slowest one."""
    ends: dict[int, float] = {}
    for device, key in zip(devices.tolist(), keys.tolist(), strict=True):
        ends[device] = max(ends.get(device, key + step), key + step)
    if ends and len(ends) == num_devices:
        ends[CONSENSUS] = min(ends.values())
    return ends


def passed_wait_j(until_s: Any, begin_s: Any, end_s: Any, idle_j: Any) -> NDArray[Any]:  # noqa: ANN401 (numbers or arrays)
    """Energy of the part of waits that has passed at a time.

    A device that sleeps meanwhile spends it while it is awake; here it is spread evenly.

    Args:
        until_s: the time, on the clock of the device, which is before the end.
        begin_s: begin of the wait: the end of the round before, and what the device computed since.
        end_s: its end, that of the round.
        idle_j: energy of the whole wait.
    """
    import numpy as np

    length_s = np.asarray(end_s - begin_s)
    passed_s = np.maximum(until_s - begin_s, 0.0)
    share = np.zeros(np.shape(passed_s))
    passed: NDArray[Any] = idle_j * np.divide(passed_s, length_s, out=share, where=length_s > 0)
    return passed


def _energy_of_waits(
    evaluations: pd.DataFrame, rounds: pd.DataFrame, until_s: NDArray[Any]
) -> NDArray[Any]:
    """What devices had spent, at each evaluation, in the waits of rounds that were under way."""
    import numpy as np

    energies = np.zeros(len(evaluations))
    columns = ["virtual_time_s", "virtual_compute_s", "energy_idle_j"]
    if any(column not in rounds.columns for column in columns):
        return energies
    rows_of = evaluations.groupby("device").indices
    of_fleet = rows_of.get(CONSENSUS, np.empty(0, int))
    for device, own_rounds in rounds.groupby("device"):
        end_s, compute_s, idle_j = (own_rounds[column].to_numpy(float) for column in columns)
        begin_s = np.concatenate([[0.0], end_s[:-1]]) + compute_s
        rows = np.concatenate([of_fleet, rows_of.get(device, np.empty(0, int))])
        under_way = np.searchsorted(end_s, until_s[rows], side="left")
        rows, place = rows[under_way < len(end_s)], under_way[under_way < len(end_s)]
        energies[rows] += passed_wait_j(until_s[rows], begin_s[place], end_s[place], idle_j[place])
    return energies


def _sums(keys: NDArray[Any], values: NDArray[Any], until: NDArray[Any]) -> NDArray[Any]:
    """Sum of the values whose key is below each limit."""
    import numpy as np

    order = np.argsort(keys, kind="stable")
    running = np.concatenate([np.zeros(1, values.dtype), np.cumsum(values[order])])
    sums: NDArray[Any] = running[np.searchsorted(keys[order], until, side="left")]
    return sums
