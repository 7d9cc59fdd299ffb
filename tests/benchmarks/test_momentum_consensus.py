"""The closed form of consensus under quasi-global momentum, against edgesim's own objects."""

from __future__ import annotations

import pytest
from momentum_consensus import EPOCH, Case, growth, measured

from edgesim.compression.compressors import Identity, TopK

DIRECTED = (Case(0.003), Case(0.01), Case(0.1), Case(0.01, curvature=0.001))


@pytest.mark.parametrize("case", DIRECTED, ids=str)
def test_exact_messages_grow_as_the_closed_form_says(case):
    found = measured(case, Identity(values="fp64"), entries=40)
    assert found == pytest.approx(growth(case) ** EPOCH, rel=0.02)


def test_a_directed_ring_is_unstable_at_the_rate_of_the_paper_and_an_undirected_one_is_not():
    assert growth(Case(0.01)) > 1
    assert all(growth(Case(rate / 20, is_directed=False)) < 1 for rate in range(1, 21))


def test_few_entries_in_a_message_make_it_worse():
    case = Case(0.01)
    compressed = measured(case, TopK(keep=0.05, values="fp64"), entries=40)
    assert compressed > growth(case) ** EPOCH
