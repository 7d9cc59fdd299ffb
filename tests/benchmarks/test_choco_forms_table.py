"""The table of the two forms of CHOCO (benchmarks/choco_forms.py) against the event loop."""

from __future__ import annotations

import sys
from pathlib import Path

import choco_forms
import numpy as np
import pytest

sys.path.append(str(Path(__file__).parents[1] / "gossip"))
import choco_forms_oracle as oracle
import gossip_oracle

TIME = 120.0  # of 1,500 in the table, where `compare` gives the same


def compare(case, form, *, equal=False, time=TIME):
    """Largest differences of models and of push weights between the two, relative to the models."""
    _, fleet = choco_forms.run(case, form, equal=equal, time=time)
    select = gossip_oracle.top_k([choco_forms.ENTRIES], case.keep)
    theirs = oracle.Fleet(
        choco_forms.starts(equal),
        form,
        case.eta,
        lambda v, _: select(v),
        lambda _, z: 0 * z,
        0.0,
    )
    for turn in choco_forms.turns(case, time):
        i = turn.device
        theirs.follow(oracle.Send(i, {(i, k): w for k, w in turn.weights.items()}, (0,)))
        theirs.follow(oracle.Absorb(i, tuple((j, i) for j in turn.senders)))
    models = theirs.x / theirs.u[:, None]
    scale = max(1.0, np.abs(models).max())
    ours_u = np.array([state.u for state in fleet.states])
    return np.abs(fleet.models() - models).max() / scale, np.abs(ours_u - theirs.u).max()


@pytest.mark.parametrize("form", ["model", "numerator"])
@pytest.mark.parametrize("case", choco_forms.CASES, ids=lambda case: case.name)
def test_the_table_is_that_of_the_event_loop(case, form):
    models, push_weights = compare(case, form)
    assert models < 1e-9
    assert push_weights < 1e-12


def test_the_forms_come_apart_where_the_table_says_so():
    """At free pace on an irregular digraph the published form stalls, and grows at eta 0.4."""
    gentle = choco_forms.Case("irregular", "free", 0.1, 0.1)
    eager = choco_forms.Case("irregular", "free", 0.4, 0.1)
    ends = {
        (case.eta, form): choco_forms.run(case, form, time=400.0)[0]
        for case in (gentle, eager)
        for form in ("model", "numerator")
    }
    assert ends[0.1, "model"][-1] < 1e-3 < ends[0.1, "numerator"][-1]
    assert ends[0.4, "model"][-1] < 1.0 < ends[0.4, "numerator"][-1]
