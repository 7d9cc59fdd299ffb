"""`gossip.averaging_rate: auto`: a search for a good averaging rate, without training.

Devices start from different random vectors and only gossip, with the scenario's graph, algorithm,
compressor and pace (`search_fleet.py`, `trial.py`). The search takes the averaging rate that brings
the devices together fastest, as the authors of CHOCO-SGD tune theirs (reference.md, section 3.7).
It passes over a rate if one of the next two larger ones, about sqrt(2) and 2 times as large, lets
the devices move apart.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

from edgesim.assembly.gossip import (
    averaging_rate,
    make_compressor,
    where_devices_disagree,
    with_rate,
)
from edgesim.assembly.parts.own_calls import is_own
from edgesim.assembly.rate_search.search_fleet import search_fleet
from edgesim.assembly.rate_search.trial import APART, Trials
from edgesim.assembly.studied_scenario import StudiedScenario, studied_scenario
from edgesim.compression.buckets import message_layout
from edgesim.compression.compilation import uncounted_calls
from edgesim.data.shape import DataShape
from edgesim.errors import ScenarioError
from edgesim.learning.parameters import ParameterLayout
from edgesim.scenario.schema import Scenario
from topologies import Schedule

# Each is about sqrt(2) times the next. reference.md, section 3.7, tabulates the distance at factors
# of 2, and it is flat around its least.
RATES = (
    *(1.0, 0.7, 0.5, 0.35, 0.25, 0.18, 0.12, 0.09, 0.06, 0.045),
    *(0.03, 0.022, 0.015, 0.011, 0.0075, 0.0055, 0.0037, 0.0027, 0.0019),
)
COARSE = 2  # step in RATES; then the neighbours of the best rate are tried
WORSE_IN_A_ROW = 2  # smaller rates than the best that are tried before the search ends
# Training disturbs consensus: gradients move the models and have large entries.
MARGIN = 2  # so many of the next larger of RATES must bring devices together, too

LEAST_ENTRIES = 1000  # of the vector that is gossiped
KEPT_ENTRIES = 20  # of it in each message, at least
MOST_ENTRIES = 40_000
FEW_ENTRIES = 4000  # a compression of up to so many takes about the same time
MOST_MESSAGES, LEAST_MESSAGES = 96, 16  # of a round, with few and with most entries
# Rounds of each rate; in most cases of reference.md, section 3.7, 60 rounds tell rates apart.
MOST_ROUNDS, LEAST_ROUNDS = 200, 60
# Growth of the distance that is told; rates that are small, or just right, stay below 1.1.
GROWN = 2.0
COMPRESSIONS = 4000  # of each rate, if these are LEAST_ROUNDS: some tenths of a second


@dataclass(frozen=True, slots=True)
class Candidate:
    """One averaging rate, and how fast it brings devices together.

    Attributes:
        rate: averaging rate eta.
        shrinks: share of the distance between devices that a round removes, mean over the trial;
            at most 0 if the distance grew.
    """

    rate: float
    shrinks: float

    def __str__(self) -> str:
        """The rate and its speed as text."""
        return f"{self.rate:g}: {f'{100 * self.shrinks:.2f} %' if self.shrinks > 0 else 'grows'}"


@dataclass(frozen=True, slots=True)
class FoundRate:
    """Result of a search.

    Attributes:
        rate: the averaging rate that was chosen.
        candidates: all rates that were tried, the largest first.
        devices: number of devices of the fleet in the search.
        fleet_devices: number of devices of the scenario.
        entries: length of the vector that was gossiped.
        floor: reason why devices do not agree at any averaging rate; empty if they do.
    """

    rate: float
    candidates: tuple[Candidate, ...]
    devices: int
    fleet_devices: int
    entries: int
    floor: str = ""

    def __str__(self) -> str:
        """One line with the rate and the reason for it."""
        if self.fleet_devices == 1:
            return f"gossip.averaging_rate: auto is {self.rate:g}: one device has no peer"
        fleet = f"{self.devices} devices"
        if self.devices < self.fleet_devices:
            fleet = f"a smaller graph of {self.devices} devices"
        return (
            f"gossip.averaging_rate: auto found {self.rate:g} by gossip without training "
            f"({fleet}, {self.entries:,} entries). A round takes from their distance, by rate: "
            + ", ".join(map(str, self.candidates))
            + (f". {self.floor}" if self.floor else "")
        )


def needs_search(scenario: Scenario) -> bool:
    """Whether the scenario leaves its averaging rate to a search."""
    return getattr(scenario.gossip, "averaging_rate", None) == "auto"


def with_found_rate(
    scenario: Scenario, shape: DataShape | None = None, schedule: Schedule | None = None
) -> tuple[Scenario, FoundRate | None]:
    """Replace `auto` by the averaging rate that a search finds; return the search's result as well.

    Args:
        scenario: the scenario; one without `auto` is returned unchanged.
        shape: shape of its data, if the data were read; else None.
        schedule: its checked graphs, if they were made; else None.

    Raises:
        ScenarioError: as for `find_rate`.
    """
    if not needs_search(scenario):
        return scenario, None
    found = find_rate(scenario, shape, schedule)
    return with_rate(scenario, found.rate), found


def find_rate(
    scenario: Scenario, shape: DataShape | None = None, schedule: Schedule | None = None
) -> FoundRate:
    """Search for the averaging rate that brings devices together fastest.

    The result depends on the scenario alone. Absent devices and batteries are left out. A fleet
    with more than 64 devices, or with many messages, is searched with a smaller one.

    Args:
        scenario: scenario with graph, pace, algorithm and compressor; its rate is ignored.
        shape: shape of its data, if the data were read; else None.
        schedule: its checked graphs, if they were made; else None.

    Raises:
        ScenarioError: no smaller graph can represent that of the scenario, or no rate brings the
            devices together.
    """
    if scenario.fleet.num_devices == 1:
        return FoundRate(1.0, (), devices=1, fleet_devices=1, entries=0)
    studied = studied_scenario(scenario, shape, schedule)
    trials = _trials(studied)
    tried = _search(trials)
    steady = [candidate for candidate in tried if _has_margin(candidate, tried)]
    if not steady:
        raise ScenarioError(
            f"gossip.averaging_rate: auto finds none: down to {tried[-1].rate:g} gossip does not "
            f"bring the devices together; {_compress_less(scenario)}, or give a number"
        )
    return FoundRate(
        rate=max(steady, key=lambda candidate: candidate.shrinks).rate,
        candidates=tuple(tried),
        devices=trials.num_devices,
        fleet_devices=scenario.fleet.num_devices,
        entries=trials.num_entries,
        floor=_floor(scenario, studied.schedule),
    )


_told: dict[str, str | None] = {}  # of what decides, so that cells of a sweep are not tried anew


def rate_notice(studied: StudiedScenario) -> str | None:
    """What to say of a given averaging rate at which gossip alone moves devices apart.

    Not tried are own algorithms and compressors, messages without error, and fleets for which there
    is no smaller one.

    Args:
        studied: the scenario as objects, with a number as its averaging rate.

    Returns:
        The notice; None if devices come together, or if that is not tried.
    """
    scenario = studied.scenario
    parts = {"fleet", "topology", "network", "gossip", "model"}
    decides = [
        scenario.model_dump_json(include=parts),
        scenario.data.batch_size,
        studied.algorithm.layout.sizes,
    ]
    key = str(decides)
    if key not in _told:
        _told[key] = _notice_of_trial(studied)
    return _told[key]


def _notice_of_trial(studied: StudiedScenario) -> str | None:
    scenario = studied.scenario
    rate, compressor = averaging_rate(scenario), getattr(scenario.gossip, "compressor", None)
    if rate is None or compressor is None or scenario.fleet.num_devices < 2:
        return None
    # One's own parts need not stand such a trial.
    if is_own(scenario.gossip.algorithm) or is_own(compressor.kind):
        return None
    if make_compressor(scenario).form(studied.algorithm.layout).is_exact:
        return None
    try:
        trials = _trials(studied)
    except ScenarioError:
        return None
    with uncounted_calls():  # for a command must not load numba for a notice
        growth = trials.growth(rate)
        if growth < GROWN:
            return None
        helps = trials.growth(RATES[-1]) < GROWN
    least = APART if growth == inf else GROWN  # not the growth itself, which the seed changes
    remedy = "lower it, or set it to auto"
    if not helps:
        remedy = f"so does {RATES[-1]:g}: {_compress_less(scenario)}"
    return (
        f"gossip.averaging_rate: {rate:g} lets devices move apart with {compressor.kind}, "
        f"more than {least:g}-fold within {trials.num_rounds} rounds of gossip without training; "
        f"{remedy}"
    )


def _compress_less(scenario: Scenario) -> str:
    """What helps where devices come together at no rate."""
    compressor, remedies = scenario.gossip.compressor, ["compress less"]
    if getattr(compressor, "bucket_size", 0) is None:
        remedies.append("set gossip.compressor.bucket_size")
    if not getattr(compressor, "biased", True):
        remedies.append("set gossip.compressor.biased to true")
    *first, last = remedies
    return f"{', '.join(first)}, or {last}" if first else last


def _trials(studied: StudiedScenario) -> Trials:
    """Trials of the scenario's fleet, or of a smaller one.

    Raises:
        ScenarioError: no smaller graph can represent that of the scenario.
    """
    scenario = studied.scenario
    entries = _num_entries(scenario, studied.algorithm.layout)
    load = max(1.0, entries / FEW_ENTRIES)
    fleet = search_fleet(scenario, max(int(MOST_MESSAGES / load), LEAST_MESSAGES))
    num_rounds = int(COMPRESSIONS / load / fleet.messages)
    return Trials(
        studied,
        fleet,
        ParameterLayout.from_shapes([(entries,)]),
        num_rounds=min(max(num_rounds, LEAST_ROUNDS), MOST_ROUNDS),
    )


def _floor(scenario: Scenario, schedule: Schedule) -> str:
    """Notice about an algorithm whose devices agree at no averaging rate (docs/choco.md)."""
    layout = ParameterLayout.from_shapes([(LEAST_ENTRIES,)])
    place = where_devices_disagree(scenario, schedule)
    if not place or make_compressor(scenario).form(layout).is_exact:
        return ""
    where = "" if place == "everywhere" else f" {place}"
    return (
        f"At no rate does {scenario.gossip.algorithm} bring devices together for good{where}: "
        "a distance remains, which gossip.algorithm: choco does not have"
    )


def _num_entries(scenario: Scenario, layout: ParameterLayout) -> int:
    """Length of the gossiped vector: one tensor, long enough for the compressor."""
    compressor = make_compressor(scenario)
    wanted = max(LEAST_ENTRIES, round(KEPT_ENTRIES / compressor.keep))
    if compressor.error_grows:
        wanted = max(LEAST_ENTRIES, *message_layout(compressor, layout).sizes)
    return min(wanted, max(layout.sizes), MOST_ENTRIES)


def _search(trials: Trials) -> list[Candidate]:
    """Candidates around the best one, the largest rate first."""
    tried: dict[int, Candidate] = {}

    def attempt(place: int) -> Candidate:
        if place not in tried:
            tried[place] = Candidate(RATES[place], trials.shrinks(RATES[place]))
        return tried[place]

    best, worse = 0, 0
    for place in range(0, len(RATES), COARSE):
        if attempt(place).shrinks > tried[best].shrinks or not place:
            best, worse = place, 0
        elif tried[best].shrinks > 0:
            worse += 1
            if worse == WORSE_IN_A_ROW:
                break
    if tried[best].shrinks > 0:
        for place in (best - 1, best + 1):
            if 0 <= place < len(RATES):
                attempt(place)
        if best - 1 - MARGIN >= 0 and attempt(best - 1).shrinks > tried[best].shrinks:
            attempt(best - 1 - MARGIN)  # to find out whether the best rate has a margin
    return [tried[place] for place in sorted(tried)]


def _has_margin(candidate: Candidate, tried: list[Candidate]) -> bool:
    """Whether the rate and the next MARGIN larger ones, as far as tried, bring devices together."""
    place = RATES.index(candidate.rate)
    needed = RATES[max(place - MARGIN, 0) : place + 1]
    return all(other.shrinks > 0 for other in tried if other.rate in needed)
