"""Figures of devices that look like a slip of units have a notice."""

import pytest
from study_scenarios import small

from edgesim.study.notices.slips import slip_notices


def noticed(folder, keys):
    return slip_notices(small(folder, f"fleet.devices=[{{profile: esp32-s3, count: 4, {keys}}}]"))


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ("memory_mib: 512", "device 0: memory_mib is 512, and esp32-s3 has 8, a factor of 64"),
        ("active_power_w: 356", "active_power_w is 356, and esp32-s3 has 0.3561"),
        ("fp32_gmacs_per_s: 0.00048", "is 0.00048, and esp32-s3 has 0.48, a factor of 1,000"),
        ("battery_wh: 3000", "battery_wh is 3,000, which is 3 kWh"),
    ],
)
def test_a_slip_of_units_is_named(tmp_path, keys, said):
    (notice,) = noticed(tmp_path, keys)
    assert said in notice


@pytest.mark.parametrize(
    "keys",
    [
        "memory_mib: 2",
        "fp32_gmacs_per_s: 0.048",
        "active_power_w: 1",
        "battery_wh: 40",
        "battery_wh: plugged_in",
        "idle_power_w: 0",
        "radio: {name: lora, bandwidth_mbps: 0.005}",
    ],
)
def test_a_board_that_is_only_another_is_not(tmp_path, keys):
    assert noticed(tmp_path, keys) == []


def test_a_battery_of_a_profile_of_ones_own_is_looked_at(tmp_path):
    own = "hardware={profiles: [{name: mine, based_on: esp32-s3, battery_wh: 5000}]}"
    (notice,) = slip_notices(small(tmp_path, own, "fleet.profile=mine"))
    assert notice.startswith("device 0: battery_wh is 5,000")
    assert notice.endswith("mAh, write mAh x volts / 1,000")
