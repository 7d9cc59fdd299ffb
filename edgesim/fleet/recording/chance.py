"""Warns where the averaged model classifies no better than one that always gives one class."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from edgesim.assembly.build import make_task
from edgesim.assembly.prepared_run import PreparedRun
from edgesim.learning.tasks import Classification


def chance_warning(consensus: Mapping[str, Any], prepared: PreparedRun) -> str | None:
    """What to say of a classification that ends at chance; None if it does not.

    Args:
        consensus: the last evaluation of the averaged model.
        prepared: what was run.
    """
    accuracy, labels = consensus["accuracy"], prepared.test_labels
    if accuracy is None or type(make_task(prepared.scenario)) is not Classification:
        return None
    most_frequent = int(np.bincount(labels).max()) / len(labels)
    if accuracy > most_frequent or most_frequent == 1:
        return None
    return (
        "the averaged model is no better than a guess: it classifies "
        f"{100 * accuracy:.4g} % of the test samples correctly, and whoever always names their "
        f"most frequent class {100 * most_frequent:.4g} %; train longer, or with another "
        "learning rate"
    )
