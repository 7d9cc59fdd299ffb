"""Where the samples of each device are known, its work is counted by its own batches."""

from __future__ import annotations

import re

import pandas as pd
import pytest
from study_scenarios import MIXED, as_if_long, ran, small

from edgesim.study.answer import answer_of
from edgesim.study.iteration import iteration_costs
from edgesim.study.notices.batteries import battery_notices
from edgesim.study.notices.notices import notices
from edgesim.study.tables.answer_text import answer_lines
from edgesim.study.training import training_of

SIZES = (100, 40, 46, 6)  # of 192 samples; batches hold 16
FILLS = (100 / 112, 40 / 48, 46 / 48, 6 / 16)
ROUNDS = 168  # as many epochs of each
MODEL = """
import numpy as np

class Windows:
    num_classes = 4
    def __init__(self):
        rng = np.random.default_rng(0)
        x, y = rng.normal(size=(200, 3, 8, 8)).astype(np.float32), np.arange(200) % 4
        self.train, self.test = (x[:192], y[:192]), (x[192:], y[192:])
        owners = np.repeat(np.array(["a", "b", "c", "d"]), [100, 40, 46, 6])
        self.columns, self.test_columns = {"owner": owners}, {"owner": owners[:8]}
"""


@pytest.fixture
def by_file(tmp_path):
    """Settings that deal 192 samples unevenly."""
    devices = [device for device, size in enumerate(SIZES) for _ in range(size)]
    path = tmp_path / "shards.csv"
    pd.DataFrame({"sample": range(192), "device": devices}).to_csv(path, index=False)
    partition = f"data.partition={{kind: file, path: '{path}'}}"
    length = ("training.epochs=null", f"training.rounds={ROUNDS}")
    return partition, "data.train_samples=null", *MIXED, *length


@pytest.mark.parametrize("pace", ["lockstep", "free"])
def test_each_device_computes_by_its_own_batches_as_in_a_run(tmp_path, by_file, pace):
    scenario = small(tmp_path, *by_file, f"fleet.pace={pace}")
    costs = iteration_costs(scenario)
    rounds = pd.read_parquet(ran(tmp_path, scenario).path / "rounds.parquet")
    found = rounds.groupby("device")[
        ["macs_fp32", "elementwise_ops", "traffic_bytes", "virtual_compute_s", "energy_j"]
    ].sum()
    for device in costs.devices:
        own, work = found.loc[device.device], device.work.total
        assert ROUNDS * work.macs_fp32 == pytest.approx(own["macs_fp32"], rel=1e-4)
        compute_s = ROUNDS * device.time.cycle.compute_s
        assert compute_s == pytest.approx(own["virtual_compute_s"], rel=0.02)
        if pace == "lockstep":  # radios at free pace skip other messages
            assert ROUNDS * work.traffic_bytes == pytest.approx(own["traffic_bytes"], rel=1e-3)
            assert ROUNDS * work.elementwise_ops == pytest.approx(own["elementwise_ops"], rel=1e-3)
    assert training_of(costs).energy_j == pytest.approx(found["energy_j"], rel=0.02)


def test_a_battery_lasts_for_the_rounds_of_its_devices_own_batches(tmp_path, by_file):
    """Full batches would have emptied it after less than half as many."""
    devices = "fleet.devices=[{profile: gap9, count: 3}, {profile: gap9, battery_wh: %s}]"
    settings = (*by_file, "fleet.pace=free")
    total_j = training_of(iteration_costs(small(tmp_path, *settings, devices % 1))).energy_j[3]
    scenario = small(tmp_path, *settings, devices % (total_j / 3600 / 2))
    (life,) = training_of(iteration_costs(scenario)).lives
    dead = ran(tmp_path, scenario).summary["dead_devices"]["3"]
    assert dead["rounds"] == pytest.approx(life.rounds, rel=0.05)
    assert dead["virtual_time_s"] == pytest.approx(life.seconds, rel=0.05)


def test_a_battery_is_short_of_the_first_round_if_it_is_of_that_devices_own_batch(
    tmp_path, by_file
):
    """Device 3 has 6 samples where a batch holds 16; the others begin with full ones."""
    board = "profile: raspberry-pi-zero-2w, count: 2"
    fleet = f"fleet.devices=[{{{board}}}, {{{board}, battery_wh: %s}}]"
    studied = [
        iteration_costs(small(tmp_path, *by_file, fleet % wh)).studied for wh in ("1.0e-6", "1")
    ]
    needed_j = [
        float(re.search(r"at least about (\S+) J", one)[1]) for one in battery_notices(studied[0])
    ]
    rounds = pd.read_parquet(ran(tmp_path, studied[1].scenario).path / "rounds.parquet")
    first_j = rounds[rounds["round"] == 1].set_index("device")["energy_compute_j"]
    assert first_j[3] < 0.8 * first_j[2]
    assert needed_j[0] - needed_j[1] == pytest.approx(first_j[2] - first_j[3], rel=0.02)


def test_the_answer_says_how_full_the_batches_are_that_it_counts(tmp_path, by_file):
    costs = iteration_costs(small(tmp_path, *by_file))
    assert costs.studied.batch_fill == pytest.approx(sum(FILLS) / 4)
    told = " ".join(" ".join(answer_lines(answer_of(costs))).split())
    assert "batches are counted as each device's are, 76 % full in the mean" in told
    assert "full batches are counted" not in told


def test_long_trainings_count_these_batches_too(tmp_path, by_file):
    for pace in ("lockstep", "free"):
        scenario = small(tmp_path, *by_file, f"fleet.pace={pace}")
        with as_if_long():
            works = [d.work.total for d in iteration_costs(scenario, most_events=800).devices]
        assert works[3].macs_fp32 / works[0].macs_fp32 == pytest.approx(FILLS[3] / FILLS[0])


def test_owners_whose_data_are_read_say_how_many_samples_each_device_has(tmp_path):
    (tmp_path / "mydata.py").write_text(MODEL)
    data = f"{{source: '{tmp_path}/mydata.py:Windows', batch_size: 16, partition: "
    owned = data + "{kind: by_owner, column: owner}}"
    length = ("training.epochs=null", "training.rounds=5")
    studied = iteration_costs(small(tmp_path, f"data={owned}", *length)).studied
    assert studied.shard_sizes == SIZES
    iid = iteration_costs(small(tmp_path, f"data={data}{{kind: iid}}}}", *length)).studied
    assert iid.shard_sizes is None


def test_small_batches_are_told_by_the_sizes_of_the_shards(tmp_path, by_file):
    studied = iteration_costs(small(tmp_path, *by_file, "data.batch_size=110")).studied
    (told,) = (one for one in notices(studied, ROUNDS) if one.startswith("data.batch_size"))
    assert told == (
        "data.batch_size is 110, and devices have 6 to 100 samples: so most batches are all "
        "samples of their device, and an epoch is one step"
    )
