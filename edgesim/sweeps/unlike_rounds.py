"""Tells of seeds of one row that are trained for unlike numbers of rounds.

An epoch has as many rounds as the mean shard has batches, and the seed says which samples a
partition leaves to nobody.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable

from edgesim.scenario.schema import Scenario


def rounds_follow(scenario: Scenario) -> bool:
    """Whether the rounds of a training follow from its samples."""
    return scenario.training.epochs is not None and scenario.training.virtual_time_s is None


def notice_of_rounds(rounds: Iterable[tuple[Hashable, int]]) -> list[str]:
    """A notice if cells of one row have unlike numbers of rounds; of several rows, the first one.

    Args:
        rounds: of each cell whose rounds follow from its samples: its settings but for the seed,
            and how many it is trained for.
    """
    of_rows: dict[Hashable, set[int]] = {}
    for row, number in rounds:
        of_rows.setdefault(row, set()).add(number)
    unlike = [sorted(numbers) for numbers in of_rows.values() if len(numbers) > 1]
    if not unlike:
        return []
    *others, last = map("{:,}".format, unlike[0])
    more = f", and so in {len(unlike)} of {len(of_rows)} rows" if len(of_rows) > 1 else ""
    said = (
        f"seeds of one row do {', '.join(others)} and {last} rounds{more}, since an epoch goes by "
        "the samples that devices have; training.rounds gives all the same"
    )
    return [said]
