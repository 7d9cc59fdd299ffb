"""Models that move apart are told of; models that train are not."""

from __future__ import annotations

from math import inf, nan
from pathlib import Path

import pytest

from edgesim.assembly.build import make_schedule
from edgesim.assembly.preparation import prepare
from edgesim.fleet.recording.divergence import (
    EVALUATIONS,
    FARTHEST,
    GROWTH,
    WORST,
    divergence_warning,
    growth_warning,
    loss_warning,
)
from edgesim.results.columns import CONSENSUS
from edgesim.scenario import load_scenario

QUICKSTART = Path(__file__).parents[2] / "scenarios" / "quickstart.yaml"
EXAMPLES = Path(__file__).parents[2] / "examples"
PER_EPOCH = 10  # rounds


NORM = 1e12  # of the averaged model: so large that growth alone is told
UNLIKE_BOARDS = QUICKSTART.parent / "study" / "unlike_boards.yaml"


def evaluations(distances, every=10, norm=NORM):
    """Rows with these consensus distances, a device's own among them, which have no say."""
    rows = []
    for number, distance in enumerate(distances, start=1):
        epoch = every * number / PER_EPOCH
        row = {"round": every * number, "epoch": epoch, "model_norm": norm}
        rows.append({**row, "device": CONSENSUS, "consensus_distance": distance})
        rows.append({**row, "device": 0, "consensus_distance": 1e9 ** (number % 2)})
    return rows


def warning(distances, *overrides, every=10, norm=NORM, path=QUICKSTART):
    scenario = load_scenario(path, ("training.schedule.warmup_epochs=0", *overrides))
    rows = evaluations(distances, every, norm)
    return growth_warning(rows, scenario, make_schedule(scenario))


@pytest.mark.parametrize(
    "distances",
    [[1.5e9], [1.0, 1e20], [1e20, 1e20, 1e20, 0.9e20], [3.0, 200.0, 4.0], [inf], [nan]],
    ids=["one", "two", "large from the start", "for once", "beyond floats", "no number"],
)
def test_models_far_from_their_mean_are_told_of_from_one_evaluation_on(distances):
    text = warning(distances, norm=18.7)
    assert text is not None
    assert f"is {max(d if d == d else inf for d in distances):.4g} in round" in text
    assert "norm of the averaged model is 18.7" in text


def test_far_is_measured_by_the_averaged_model():
    for norm in (1e-3, 1.0, 1e3):
        assert warning([FARTHEST * norm * 0.999], norm=norm) is None
        assert warning([FARTHEST * norm * 1.001], norm=norm) is not None
    assert warning([0.0], norm=0.0) is None
    assert warning([1.0, 2.0], norm=nan) is None, "rows of a version that wrote no norm"


def test_far_is_far_during_a_warm_up_too():
    assert warning([1e9], "training.schedule.warmup_epochs=5", norm=1.0) is not None


def test_models_that_train_on_unlike_boards_are_not_far():
    """Distances and norms of the first five epochs of unlike_boards.yaml."""
    distances, norms = (3.98, 4.33, 4.49, 4.34, 3.73), (19.1, 17.7, 17.2, 17.9, 18.6)
    for distance, norm in zip(distances, norms, strict=True):
        assert warning([distance], norm=norm) is None


def test_the_published_form_is_told_of_the_other_where_push_weights_move():
    published = "gossip.algorithm=choco_numerator"
    text = warning([1e9], published, norm=1.0, path=UNLIKE_BOARDS)
    assert text is not None
    _, remedy = text.split("; ", 1)
    assert remedy.startswith("set gossip.algorithm to choco")
    assert "lower gossip.averaging_rate, now 0.2" in remedy
    assert "auto" not in remedy
    text = warning([1e9], published, "topology.kind=ring", norm=1.0)
    assert text is not None
    assert "gossip.algorithm" not in text, "u stays 1: the two forms are the same"


def test_growth_is_told_with_figures_key_and_value():
    text = warning([170.0, 3e4, 5e6])
    assert text is not None
    assert "from 170 in round 10 to 5e+06 in round 30" in text
    assert "lower gossip.averaging_rate, now 0.1, or set it to auto" in text


def test_dcd_has_no_averaging_rate_to_lower():
    text = warning([1, 50, 2500], "topology.kind=ring", "gossip={algorithm: dcd}")
    assert text is not None
    assert "averaging_rate" not in text
    assert "compress less" in text


@pytest.mark.parametrize(
    "distances",
    [
        [1.2**number for number in range(60)],  # slow, but without end
        [3.0, 2.9, 3.0, 2.8, 30.0, 900.0, 9000.0],
        [3.0, 2.5, 60.0, inf],
        [3.0, 2.5, 60.0, inf, inf],
        [3.0, 2.5, 60.0, nan],
        [1, 50, 40, 3000, 2000, 1e5, 8e4],
        [1.0, 50.0, 49.0, 60.0],
    ],
    ids=["slow", "late", "beyond floats", "stays", "no number", "zigzag", "stays apart"],
)
def test_growth_is_told_however_it_comes(distances):
    assert warning(distances) is not None


@pytest.mark.parametrize(
    ("distances", "every"),
    [
        # The quickstart without warm-up: distances of its own first rounds.
        ([0.47, 0.81, 1.09, 1.28, 1.39, 1.35, 1.75, 2.16, 2.46, 2.69, 2.85, 2.95, 3.03], 2),
        # Steps that add up with momentum 0.9, as if there were no gossip: sums of (1 - 0.9^t).
        ([sum(1 - 0.9 ** (t + 1) for t in range(rounds)) for rounds in range(1, 60)], 1),
        ([3.0, 2.9, 0.3, 0.31, 0.03, 0.031, 0.0312], 10),  # milestones
        ([0.0, 0.0, 0.0], 10),  # alike, as on a complete graph
        ([1.0, 500.0], 10),  # two evaluations say nothing
        ([1.0, 0.01, 0.9, 0.01, 0.8, 0.7], 10),  # up and down
        ([], 10),
    ],
    ids=["quickstart", "momentum", "milestones", "alike", "two", "up and down", "none"],
)
def test_training_is_not_taken_for_growth(distances, every):
    assert warning(distances, every=every) is None


def test_it_takes_the_growth_and_the_evaluations_that_are_stated():
    """From d / r = 1 in round 1 on, to just below and just at GROWTH."""
    assert EVALUATIONS == 3
    below = [1.0, 2.0, 3 * GROWTH * 0.999]
    assert warning(below, every=1) is None
    assert warning([*below[:2], 3 * GROWTH], every=1) is not None


def test_steps_of_a_warm_up_are_no_measure():
    """Epoch 1 trains at a tenth of the rate: after it distances grow ten times as fast."""
    distances = [0.1, 1.1, 4.0, 4.2]
    assert warning(distances) is not None
    assert warning(distances, "training.schedule.warmup_epochs=1") is None


def test_the_worst_stays_told_after_it_is_over():
    text = warning([1.0, 100.0, 5000.0, 4000.0, 3000.0])
    assert text is not None
    assert "to 5000 in round 30" in text


def of_loss(losses, *overrides, guess_loss=2.3):
    """The warning of evaluations with these losses of the averaged model; a device has 1e9."""
    rows = [
        {"round": 10 * number, "device": device, "loss": loss if device == CONSENSUS else 1e9}
        for number, loss in enumerate(losses, start=1)
        for device in (CONSENSUS, 0)
    ]
    return loss_warning(rows, load_scenario(QUICKSTART, overrides), guess_loss)


def test_an_averaged_model_much_worse_than_guesses_is_told_of():
    """Where its norm grows with the distance, as with one evaluation at the end."""
    text = of_loss([868.0])
    assert text is not None
    assert "loss is 868 in round 10, where equal guesses have 2.3; " in text
    assert text.endswith("lower gossip.averaging_rate, now 0.1, or training.optimizer.lr")


def test_of_losses_the_last_counts():
    assert of_loss([868.0, 2.0]) is None, "the start of a run that came to train"
    assert "is 900 in round 20" in str(of_loss([2.0, 900.0]))


@pytest.mark.parametrize(
    ("gossip", "remedy"),
    [
        ("{algorithm: choco, averaging_rate: 1, compressor: {kind: identity}}", "training"),
        ("{algorithm: dcd, compressor: {kind: top_k, keep: 0.5}}", "training.optimizer.lr, or"),
    ],
)
def test_its_remedy_is_of_keys_that_the_scenario_has(gossip, remedy):
    text = of_loss([868.0], "topology.kind=ring", f"gossip={gossip}")
    assert text is not None
    assert f"lower {remedy}" in text
    assert "averaging_rate" not in text


def test_bad_is_measured_by_guesses():
    for guess_loss in (0.0, 2.3):
        assert of_loss([guess_loss + WORST], guess_loss=guess_loss) is None
        assert of_loss([guess_loss + WORST + 0.001], guess_loss=guess_loss) is not None
    assert of_loss([inf]) is not None
    assert of_loss([nan]) is None, "of models that are no numbers the run itself ends"
    assert of_loss([]) is None


@pytest.mark.parametrize(
    ("place", "overrides", "is_told"),
    [
        (QUICKSTART, (), True),
        (EXAMPLES / "counting.yaml", (), True),
        (EXAMPLES / "power.yaml", (), False),
        (
            EXAMPLES / "power.yaml",
            ("training.task=regression", "training.task_options=null"),
            False,
        ),
    ],
    ids=["classes", "next token", "own task", "regression"],
)
def test_only_of_classes_a_loss_is_compared_with_guesses(place, overrides, is_told):
    """A squared error has no such measure."""
    row = {"device": CONSENSUS, "round": 10, "epoch": 1.0, "loss": 1e4}
    rows = [{**row, "model_norm": 20.0, "consensus_distance": 1.0}]
    text = divergence_warning(rows, prepare(load_scenario(place, overrides)))
    assert (text is not None) is is_told
    assert not is_told or "loss is 1e+04 in round 10, where equal guesses have" in str(text)
