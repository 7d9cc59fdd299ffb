"""`gossip.averaging_rate: auto`: a search for a good averaging rate, without training.

Devices start from different random vectors and do nothing but gossip, with the scenario's graph,
algorithm, compressor and pace (`search_fleet.py`, `trial.py`). The averaging rate with which they
come together fastest is taken, as the authors of CHOCO-SGD tune theirs (reference.md, section 3.7),
unless one of the next two larger rates, about sqrt(2) and 2 times as large, lets them move apart.
"""

from __future__ import annotations

from dataclasses import dataclass

from edgesim.assembly.build import disagrees, kind_of_algorithm, make_compressor
from edgesim.assembly.known_data import DataShape
from edgesim.assembly.rate_search.search_fleet import search_fleet
from edgesim.assembly.rate_search.trial import Trials
from edgesim.assembly.subject import subject_of, with_rate
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
COARSE = 2  # of these rates every second is tried, then the neighbours of the best
WORSE_IN_A_ROW = 2  # smaller rates than the best that are tried before the search ends
# Training is rougher than gossip alone: gradients move the models, and have large entries.
MARGIN = 2  # so many of the next larger of RATES must bring devices together, too

LEAST_ENTRIES = 1000  # of the vector that is gossiped
KEPT_ENTRIES = 20  # of it in each message, at least
MOST_ENTRIES = 40_000
FEW_ENTRIES = 4000  # up to which a compression costs about the same
MOST_MESSAGES, LEAST_MESSAGES = 96, 16  # of a round, with few and with most entries
# Rounds of each rate; in most cases of reference.md, section 3.7, 60 rounds tell rates apart.
MOST_ROUNDS, LEAST_ROUNDS = 200, 60
COMPRESSIONS = 4000  # of each rate, if these are LEAST_ROUNDS: some tenths of a second


@dataclass(frozen=True, slots=True)
class Candidate:
    """One averaging rate and how fast it brings devices together.

    Attributes:
        rate: eta.
        shrinks: share of the distance between devices that a round removes, in the mean of the
            trial; at most 0 if the distance grew.
    """

    rate: float
    shrinks: float

    def __str__(self) -> str:
        """For people."""
        return f"{self.rate:g} {f'{self.shrinks:.2%}' if self.shrinks > 0 else 'grows'}"


@dataclass(frozen=True, slots=True)
class FoundRate:
    """What a search found.

    Attributes:
        rate: the averaging rate that was chosen.
        candidates: all that were tried, the largest first.
        devices: of the fleet that was searched with.
        fleet_devices: of the scenario.
        entries: of the vector that was gossiped.
        floor: what keeps devices from agreeing at any averaging rate; empty if nothing does.
    """

    rate: float
    candidates: tuple[Candidate, ...]
    devices: int
    fleet_devices: int
    entries: int
    floor: str = ""

    def __str__(self) -> str:
        """One line: the rate, and why."""
        fleet = f"{self.devices} devices"
        if self.devices < self.fleet_devices:
            fleet = f"a smaller graph of {self.devices} devices"
        return (
            f"gossip.averaging_rate: auto found {self.rate:g} by gossip without training "
            f"({fleet}, {self.entries:,} entries). A round takes from their distance: "
            + ", ".join(map(str, self.candidates))
            + (f". {self.floor}" if self.floor else "")
        )


def needs_search(scenario: Scenario) -> bool:
    """Whether the scenario leaves its averaging rate to a search."""
    return getattr(scenario.gossip, "averaging_rate", None) == "auto"


def with_found_rate(
    scenario: Scenario, shape: DataShape | None = None, schedule: Schedule | None = None
) -> tuple[Scenario, FoundRate | None]:
    """The scenario with a number in the place of `auto`, and how it was found.

    Args:
        scenario: that may say auto; else it comes back as it is.
        shape: of its data, where they have been read; None to find out.
        schedule: of its graphs, where it has been made and checked; None to do so.

    Raises:
        ScenarioError: as `find_rate`.
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
        scenario: graph, pace, algorithm and compressor; its own averaging rate does not matter.
        shape: of its data, where they have been read; None to find out.
        schedule: of its graphs, where it has been made and checked; None to do so.

    Raises:
        ScenarioError: no smaller graph can stand for the scenario's, or no rate brings the devices
            together.
    """
    subject = subject_of(scenario, shape, schedule)
    entries = _num_entries(scenario, max(subject.algorithm.layout.sizes))
    load = max(1.0, entries / FEW_ENTRIES)
    fleet = search_fleet(scenario, max(int(MOST_MESSAGES / load), LEAST_MESSAGES))
    num_rounds = int(COMPRESSIONS / load / fleet.messages)
    trials = Trials(
        subject,
        fleet,
        ParameterLayout.from_shapes([(entries,)]),
        num_rounds=min(max(num_rounds, LEAST_ROUNDS), MOST_ROUNDS),
    )
    tried = _search(trials)
    steady = [candidate for candidate in tried if _has_margin(candidate, tried)]
    if not steady:
        raise ScenarioError(
            f"gossip.averaging_rate: auto finds none: down to {tried[-1].rate:g} gossip does not "
            "bring the devices together; compress less, or give a number"
        )
    return FoundRate(
        rate=max(steady, key=lambda candidate: candidate.shrinks).rate,
        candidates=tuple(tried),
        devices=fleet.schedule.num_devices,
        fleet_devices=scenario.fleet.num_devices,
        entries=entries,
        floor=_floor(scenario, subject.schedule),
    )


def _floor(scenario: Scenario, schedule: Schedule) -> str:
    """What to say of an algorithm that agrees at no averaging rate (docs/choco.md)."""
    kind, compressor = kind_of_algorithm(scenario), make_compressor(scenario)
    layout = ParameterLayout.from_shapes([(LEAST_ENTRIES,)])
    if compressor.form(layout).is_exact or kind is None or not disagrees(scenario, schedule):
        return ""
    where = "" if kind.disagrees == "everywhere" else f" {kind.disagrees}"
    return (
        f"At no rate does {scenario.gossip.algorithm} bring devices together for good{where}: "
        "a distance remains, which gossip.algorithm: choco does not have"
    )


def _num_entries(scenario: Scenario, largest_tensor: int) -> int:
    """Length of the vector: one tensor, large enough for what the compressor does to it."""
    compressor = make_compressor(scenario)
    wanted = max(LEAST_ENTRIES, round(KEPT_ENTRIES / compressor.keep))
    if compressor.error_grows:
        wanted = largest_tensor
    return min(wanted, largest_tensor, MOST_ENTRIES)


def _search(trials: Trials) -> list[Candidate]:
    """Candidates around the best, the largest rate first."""
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
            attempt(best - 1 - MARGIN)  # which says whether it has a margin
    return [tried[place] for place in sorted(tried)]


def _has_margin(candidate: Candidate, tried: list[Candidate]) -> bool:
    """Whether the rate and the next MARGIN larger ones, as far as tried, bring devices together."""
    place = RATES.index(candidate.rate)
    needed = RATES[max(place - MARGIN, 0) : place + 1]
    return all(other.shrinks > 0 for other in tried if other.rate in needed)
