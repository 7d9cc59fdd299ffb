"""How much the data of each device will count at free pace, before a run.

In the long run each device sends away as much mass as it gets. That gives its push weight; its
influence is its rate of steps times that (docs/free-pace.md).

Symbols:
    u: push weight   F: mass per second that goes from one device to another, where u is 1
"""

from __future__ import annotations

from itertools import islice

import networkx as nx
import numpy as np
from numpy.typing import NDArray

from edgesim.assembly.equipment import device_hardware
from edgesim.assembly.free_clocks import clocks_of
from edgesim.assembly.gossip import moves_mass
from edgesim.assembly.studied_scenario import StudiedScenario
from edgesim.errors import device_label
from edgesim.results.columns import UNLIKE_INFLUENCE

_LEAST_ROUNDS = 5000
_MOST_ROUNDS = 30_000  # of all devices together, which takes up to two seconds
_MOST_DEVICES = 100  # so that each has enough rounds
_WARM_UP = 20  # rounds of a device that are not counted
_QUICK = 1.1  # times as many steps a second
_MESSAGES = 20  # of each device that are counted, at least


def influence_notices(studied: StudiedScenario) -> list[str]:
    """What devices count at free pace, if they count unlike."""
    scenario = studied.scenario
    num_devices = scenario.fleet.num_devices
    is_free = not scenario.fleet.rules.waits_for_all
    if not is_free or num_devices > _MOST_DEVICES or not moves_mass(scenario):
        return []
    found = find_influence(studied)
    if found is None:
        return []
    influence, steps_per_s = found
    if influence.max() < UNLIKE_INFLUENCE * influence.min():
        return []
    least, most = int(influence.argmin()), int(influence.argmax())
    names = scenario.fleet.names
    # Where rounds end a training, quick devices end first, and the weights of the others change.
    ends = scenario.training.virtual_time_s is None
    are_quick = steps_per_s.max() > _QUICK * steps_per_s.min()
    here = (
        ", and less unlike than that here, where quick devices end first"
        if ends and are_quick
        else ""
    )
    said = (
        f"at free pace devices do not count alike in the averaged model: while all train, "
        f"{device_label(least, names)} counts {influence[least]:.2g} times the mean and "
        f"{device_label(most, names)} {influence[most]:.2g} times{here}; the weights of links and "
        "the steps between two messages decide it (docs/free-pace.md)"
    )
    return [said]


def find_influence(
    studied: StudiedScenario,
) -> tuple[NDArray[np.float64], NDArray[np.float64]] | None:
    """Influence of each device in the long run, 1 is the mean, and its steps a second; shape (n,).

    Absences, joins, leaves and batteries are left out.

    Returns:
        None if devices send so seldom that not all of them have sent enough, or if the messages so
        far do not connect all of them.
    """
    scenario, n = studied.scenario, studied.scenario.fleet.num_devices
    clocks = clocks_of(studied, device_hardware(scenario, studied.schedule), studied.schedule)
    sent, begin_s = np.zeros((n, n)), np.zeros(n)
    steps, seconds, messages = np.zeros(n), np.zeros(n), np.zeros(n)
    for number, ended in enumerate(islice(clocks.run(), _MOST_ROUNDS), 1):
        device = ended.device
        if ended.rounds_done <= _WARM_UP:
            begin_s[device] = ended.step_end_s
            continue
        steps[device] += 1
        messages[device] += bool(ended.sent)
        seconds[device] = ended.step_end_s - begin_s[device]
        for receiver, weight in ended.sent:
            sent[receiver, device] += weight
        if number % (n * _WARM_UP) == 0 and number >= _LEAST_ROUNDS and messages.min() >= _MESSAGES:
            break
    is_connected = nx.is_strongly_connected(nx.from_numpy_array(sent, create_using=nx.DiGraph))
    if not steps.all() or (n > 1 and not (is_connected and messages.min() >= _MESSAGES)):
        return None
    per_s = steps / seconds
    influence = per_s * _push_weights(sent / seconds) if scenario.steps_on_model else per_s
    influence /= influence.mean()
    return influence, per_s


def _push_weights(flow: NDArray[np.float64]) -> NDArray[np.float64]:
    """Push weights with which each device gets as much mass as it sends; their mean is 1.

    Args:
        flow: F, shape (n, n), from the column's device to the row's, of a connected graph.
    """
    n = len(flow)
    balance: NDArray[np.float64] = flow - np.diag(flow.sum(axis=0))
    balance[-1] = 1.0  # one equation follows from the others; the masses add up to n
    total = np.zeros(n)
    total[-1] = n
    return np.linalg.solve(balance, total).astype(np.float64)
