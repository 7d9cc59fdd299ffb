from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgesim.hardware.energy import Activity, Energy, price
from edgesim.hardware.energy_tables import ENERGY_TABLES, EnergyTable
from edgesim.hardware.profiles import DeviceProfile, Radio
from edgesim.hardware.work import Work

HOROWITZ = ENERGY_TABLES["horowitz_45nm"]
JOUPPI = ENERGY_TABLES["jouppi_7nm"]

BOARD = DeviceProfile(
    name="board",
    description="round numbers",
    int8_macs_per_s=4e9,
    bits16_macs_per_s=2e9,
    fp32_macs_per_s=1e9,
    memory_bytes=2**30,
    memory_bandwidth=1e9,
    idle_power_w=2.0,
    active_power_w=5.0,
    radio=Radio(
        name="radio",
        bandwidth_bps=8e6,
        send_j_per_byte=3e-6,
        receive_j_per_byte=1e-6,
        is_half_duplex=True,
    ),
)

# ResNet-20, batch 32, per iteration: three times the forward pass's 40.81 M products (reference.md,
# section 6).
RESNET20_MACS = 3 * 40_810_000 * 32


def activity(**done) -> Activity:
    nothing = {
        "work": Work(),
        "sent_bytes": 0,
        "received_bytes": 0,
        "compute_s": 0.0,
        "wait_s": 0.0,
    }
    return Activity(**(nothing | done))


def step_j(table: EnergyTable, accumulate="paper", **products) -> float:
    """Energy of a step whose three thirds of MACs have these precisions."""
    work = Work(**{key: RESNET20_MACS * thirds // 3 for key, thirds in products.items()})
    return price(activity(work=work), BOARD, table, accumulate).compute_j


# -- the paper's figures (reference.md, section 6)


def test_a_step_of_resnet20_takes_18_mj_in_fp32_and_nine_tenths_of_one_in_int8():
    assert pytest.approx(3.918, abs=5e-4) == RESNET20_MACS / 1e9
    assert round(step_j(HOROWITZ, macs_fp32=3) * 1e3, 1) == 18.0
    assert round(step_j(HOROWITZ, macs_int8=3) * 1e3, 2) == 0.90


@pytest.mark.parametrize(
    ("accumulate", "all_int8", "third_fp16", "third_fp32"),
    [("paper", 20.0, 7.0, 2.73), ("int32", 15.3, 6.6, 2.65)],
)
def test_energy_ratios_are_those_of_the_reference(accumulate, all_int8, third_fp16, third_fp32):
    """Weight gradients, a third of the MACs, in int8, fp16 or fp32."""
    fp32 = step_j(HOROWITZ, accumulate, macs_fp32=3)
    assert round(fp32 / step_j(HOROWITZ, accumulate, macs_int8=3), 1) == all_int8
    ratio = fp32 / step_j(HOROWITZ, accumulate, macs_int8=2, macs_16bit=1)
    assert round(ratio, 1) == third_fp16
    ratio = fp32 / step_j(HOROWITZ, accumulate, macs_int8=2, macs_fp32=1)
    assert round(ratio, 2) == third_fp32


def test_the_newer_table_moves_the_ratio():
    # (1.31 + 0.38) / (0.07 + 0.007) and / (0.07 + 0.03)
    ratio = step_j(JOUPPI, macs_fp32=3) / step_j(JOUPPI, macs_int8=3)
    assert ratio == pytest.approx(1.69 / 0.077)
    ratio = step_j(JOUPPI, "int32", macs_fp32=3) / step_j(JOUPPI, "int32", macs_int8=3)
    assert ratio == pytest.approx(16.9)


# -- tables ----------------------------------------------------------------------------------


@pytest.mark.parametrize("table", ENERGY_TABLES.values(), ids=lambda table: table.name)
def test_tables_order_operations_as_silicon_does(table):
    assert ENERGY_TABLES[table.name] is table
    assert table.int8_add_pj < table.int32_add_pj < table.fp32_add_pj
    assert table.fp16_add_pj < table.fp32_add_pj
    assert table.int8_mul_pj < table.fp16_mul_pj < table.fp32_mul_pj
    assert table.sram_pj_per_byte < table.dram_pj_per_byte
    assert "ISSCC 2014" in table.citation or "ISCA 2021" in table.citation


def test_arithmetic_became_cheaper_and_dram_did_not():
    for precision in ("int8", "16bit", "fp32"):
        for accumulate in ("paper", "int32"):
            assert JOUPPI.mac_pj(precision, accumulate) < HOROWITZ.mac_pj(precision, accumulate)
    assert JOUPPI.byte_pj("dram") == HOROWITZ.byte_pj("dram") == 162.5  # 1300 pJ / 8 bytes


def test_the_width_of_sums_matters_to_8_bit_products_alone():
    assert HOROWITZ.mac_pj("int8", "paper") == pytest.approx(0.23)
    assert HOROWITZ.mac_pj("int8", "int32") == pytest.approx(0.3)
    for precision, picojoules in (("16bit", 1.5), ("fp32", 4.6)):
        for accumulate in ("paper", "int32"):
            assert HOROWITZ.mac_pj(precision, accumulate) == pytest.approx(picojoules)


# -- prices against hand computation ---------------------------------------------------------

BUSY = activity(
    work=Work(
        macs_int8=10**9,
        macs_16bit=2 * 10**9,
        macs_fp32=3 * 10**9,
        elementwise_ops=4 * 10**9,
        traffic_bytes=10**9,
    ),
    sent_bytes=1000,
    received_bytes=500,
    compute_s=7.0,
    wait_s=11.0,
)


def test_with_a_table_operations_and_bytes_have_their_prices():
    energy = price(BUSY, BOARD, HOROWITZ, "int32")
    # 1e9 x 0.3 + 2e9 x 1.5 + 3e9 x 4.6 + 4e9 x 0.9 pJ
    assert energy.compute_j == pytest.approx((0.3 + 3.0 + 13.8 + 3.6) * 1e-3)
    assert energy.memory_j == pytest.approx(0.1625)  # 1e9 bytes x 162.5 pJ
    assert energy.radio_j == pytest.approx(1000 * 3e-6 + 500 * 1e-6)
    assert energy.idle_j == pytest.approx(22.0)  # 2 W x 11 s
    assert energy.total_j == pytest.approx(0.0207 + 0.1625 + 0.0035 + 22.0)


def test_traffic_that_stays_on_the_chip_costs_less():
    energy = price(BUSY, BOARD, HOROWITZ, memory="sram")
    assert energy.memory_j == pytest.approx(0.0125)  # 1e9 bytes x 100 pJ / 8


def test_without_a_table_the_board_draws_its_active_power():
    energy = price(BUSY, BOARD, None)
    assert energy == Energy(
        compute_j=5.0 * 7.0,
        memory_j=0.0,  # the wall meter has it already
        radio_j=pytest.approx(0.0035),
        idle_j=22.0,
    )


def test_nothing_costs_nothing():
    for table in (None, *ENERGY_TABLES.values()):
        assert price(activity(), BOARD, table).total_j == 0


def test_a_new_table_needs_no_new_run():
    free_memory = replace(HOROWITZ, name="mine", dram_pj_per_byte=0.0)
    assert price(BUSY, BOARD, free_memory).memory_j == 0
    assert price(BUSY, BOARD, free_memory).compute_j == price(BUSY, BOARD, HOROWITZ).compute_j


# -- additivity ------------------------------------------------------------------------------

counts = st.integers(0, 10**12)
seconds = st.floats(0, 1e6)
activities = st.builds(
    Activity,
    work=st.builds(
        Work,
        macs_int8=counts,
        macs_16bit=counts,
        macs_fp32=counts,
        elementwise_ops=counts,
        traffic_bytes=counts,
    ),
    sent_bytes=counts,
    received_bytes=counts,
    compute_s=seconds,
    wait_s=seconds,
)
tables = st.sampled_from([None, *ENERGY_TABLES.values()])


@given(activities, activities, tables, st.sampled_from(["paper", "int32"]))
def test_the_price_of_a_sum_is_the_sum_of_the_prices(first, second, table, accumulate):
    together = price(first + second, BOARD, table, accumulate)
    apart = price(first, BOARD, table, accumulate) + price(second, BOARD, table, accumulate)
    # Sums of positive doubles in another order: a few units in the last place.
    for field in ("compute_j", "memory_j", "radio_j", "idle_j", "total_j"):
        assert getattr(together, field) == pytest.approx(getattr(apart, field), rel=1e-12)
