"""What an answer says of batteries."""

from __future__ import annotations

from edgesim.study.answer import Answer
from edgesim.study.rounds.steady_state import SLEEPS
from edgesim.study.tables.kinds import Names
from edgesim.study.tables.units import brief, least_watt_hours, share_used, watt_hours

_MOST_NAMES = 3


def batteries_text(answer: Answer) -> str:
    """Which batteries last, and what those that do not would need; empty without batteries."""
    lives, names = answer.training.lives, Names.of(answer.costs)
    if not lives:
        return ""
    early = answer.training.ends_early
    if not early:
        worst = max(lives, key=lambda life: life.used)
        rest = "" if len(lives) == 1 else f", the most of {len(lives):,}"
        lasts = f"{brief(worst.seconds, 's')} without a pause"
        goes_on = f"; a full one pays for {worst.rounds:,} such rounds, {lasts}"
        if not _is_typical(answer):
            goes_on = ""  # later rounds may have more sleep or less
        return (
            f"last to the end; {names.one(worst.device)} needs {share_used(worst.used, 3)} of "
            f"{watt_hours(worst.battery_j)}{_reserve(answer)}{rest}{goes_on}"
        )
    first = early[0]
    in_all = answer.training.rounds[first.device]
    text = (
        f"END EARLY: {names.one(first.device)} after about {brief(first.seconds, 's')} "
        f"({first.rounds:,} of {in_all:,.0f} rounds); it has {watt_hours(first.battery_j)} and "
        f"needs {least_watt_hours(first.needed_j)}{_reserve(answer)}"
    )
    others = [life.device for life in early[1:]]
    if others:
        do = "does" if len(others) == 1 else "do"
        text += f"; so {do} {names.some(others, _MOST_NAMES)}"
        most_j = max(life.needed_j for life in early)
        if least_watt_hours(most_j) != least_watt_hours(first.needed_j):
            text += f", up to {least_watt_hours(most_j)}"
    lasting = len(lives) - len(early)
    return text + (f"; {lasting:,} last" if lasting else "")


def _is_typical(answer: Answer) -> bool:
    """Whether the training has about as much sleep as a longer one."""
    state, seconds = answer.costs.steady_state, answer.training.seconds
    if state is None or not state.is_whole or seconds is None:
        return True
    return seconds >= SLEEPS * state.longest_sleep_cycle_s


def _reserve(answer: Answer) -> str:
    """What else a battery needs in lockstep."""
    return " with a reserve for its last rounds" if _waits_for_all(answer) else ""


def _waits_for_all(answer: Answer) -> bool:
    return answer.costs.studied.scenario.fleet.rules.waits_for_all
