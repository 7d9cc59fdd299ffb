"""ResNet-20, batch 32, in fp32 and 8 bits: the figures of reference.md, section 6, each derived
here by hand."""

import re

import pytest
from study_scenarios import CIFAR10_RING8

from edgesim.assembly.studied_scenario import studied_scenario
from edgesim.compression.wire import HEADER
from edgesim.scenario import load_scenario
from edgesim.study.comparison import compare_precisions, setting_of
from edgesim.study.tables.precision_ratios import precision_ratios

PARAMETERS, TENSORS, BATCH = 273_258, 86, 32  # reference.md, sections 5 and 6
KEPT = {"90_percent": 27_290, "99_percent": 2_767}  # reference.md, section 10, check 12
HEADER_BYTES = HEADER.size + len("choco")
MIB = 2**20


@pytest.fixture(scope="module")
def comparison():
    return compare_precisions(setting_of(studied_scenario(load_scenario(CIFAR10_RING8))))


@pytest.fixture(scope="module")
def ratios(comparison):
    found = precision_ratios(comparison)
    by_key = {ratio.key: ratio for ratio in found}
    assert len(by_key) == len(found), "keys are unique"
    return by_key


def test_computing_is_4_3_and_2_times_less_by_bit_width(ratios):
    """Three passes of equal work, of which only the weight gradient may be wider than 8 bits."""
    for kind, bits in {"int8": 8, "fp16": 16, "fp32": 32}.items():
        ratio = ratios[f"by_width_{kind}_weight_gradient"]
        assert ratio.value == 96 / (16 + bits)
        assert ratio.formula == f"3 x 32 / (8 + 8 + {bits}) bit"
    values = [ratios[f"by_width_{kind}_weight_gradient"].value for kind in ("int8", "fp16", "fp32")]
    assert values == [4.0, 3.0, 2.0]


def test_counted_macs_give_nearly_the_same(ratios):
    """The first layer, 9 x 3 x 16 weights on 32 x 32 pixels, has no input gradient."""
    # reference.md, section 5: 40.81 M an image
    forward, stem = BATCH * 40_813_184, BATCH * 9 * 3 * 16 * 32 * 32
    for kind, bits in {"int8": 8, "fp16": 16, "fp32": 32}.items():
        by_hand = 32 * (3 * forward - stem) / (8 * (2 * forward - stem) + bits * forward)
        assert ratios[f"counted_{kind}_weight_gradient"].value == pytest.approx(by_hand, rel=1e-12)
    assert ratios["counted_fp16_weight_gradient"].value == pytest.approx(3.0, abs=0.01)
    assert ratios["counted_fp32_weight_gradient"].value == pytest.approx(2.0, abs=0.01)


def test_memory_is_3_58_times_less_by_the_papers_convention(comparison, ratios):
    """reference.md, section 6: inputs of convolutions, norms and the linear layer, and the logits:
    412,746 a sample."""
    held = 412_746 * BATCH
    fp32 = 4 * (held + 3 * PARAMETERS)  # weights, gradients, momentum
    int8 = held + PARAMETERS * (1 + 4 + 4)
    assert comparison.fp32_memory.total == fp32
    assert comparison.int8_memory.total == int8
    assert ratios["paper"].value == fp32 / int8
    assert ratios["paper"].formula == "53.5 MiB / 14.9 MiB"
    assert (round(fp32 / MIB, 1), round(int8 / MIB, 1)) == (53.5, 14.9)


def test_what_is_really_held_shrinks_as_much_but_other_parts_do(comparison, ratios):
    """8 bits need a master copy of the weights, and save the gates that EvoNorm-S0 keeps."""
    row = comparison.row("choco", "99 %")
    assert row.int8.memory.master_copy == 2 * 4 * PARAMETERS
    assert row.fp32.memory.activations > 4 * row.int8.memory.activations
    assert ratios["faithful_choco_99_percent"].value == pytest.approx(
        row.fp32.memory.total / row.int8.memory.total
    )
    # CHOCO's two vectors are as long in both: what it adds is not divided by four.
    assert row.fp32.memory.gossip_state == row.int8.memory.gossip_state == 2 * 4 * PARAMETERS


def test_dense_messages_are_3_99_times_shorter(ratios):
    by_convention = ratios["conventions_0_percent"]
    assert by_convention.value == 4 * (PARAMETERS + 1) / (PARAMETERS + 8 * TENSORS + 4)
    assert by_convention.formula == "1,093,036 B / 273,950 B"
    encoded = 4 * PARAMETERS + HEADER_BYTES, PARAMETERS + 4 * TENSORS + HEADER_BYTES
    assert ratios["encoded_0_percent"].value == encoded[0] / encoded[1]
    assert ratios["encoded_0_percent"].value == pytest.approx(3.99, abs=0.005)


@pytest.mark.parametrize(("compression", "keep"), [("90 %", "90_percent"), ("99 %", "99_percent")])
def test_sparse_messages_gain_less_because_indices_stay(comparison, ratios, compression, keep):
    """The same entries in both: 3 bytes less for each, but 4 more a tensor for its scale."""
    kept, row = KEPT[keep], comparison.row("choco", compression)
    fp32, int8 = row.fp32.message, row.int8.message
    assert fp32.num_kept == int8.num_kept == kept
    assert (fp32.encoded.values, int8.encoded.values) == (4 * kept, kept)
    assert (fp32.encoded.scales, int8.encoded.scales) == (0, 4 * TENSORS)
    assert fp32.encoded.indices == int8.encoded.indices > fp32.index_entropy_bytes
    assert fp32.encoded.total - int8.encoded.total == 3 * kept - 4 * TENSORS
    assert not fp32.is_exact
    ratio = ratios[f"encoded_{keep}"]
    assert ratio.value == fp32.encoded.total / int8.encoded.total
    assert 2.2 < ratio.value < 2.9
    conventions = ratios[f"conventions_{keep}"].value
    assert conventions == (6 * kept + 3) / (3 * kept + 8 * TENSORS + 4)
    if kept == 2_767:
        assert conventions == pytest.approx(1.85, abs=0.005)  # reference.md, section 6


# reference.md, section 6: pJ of products and sums; the first row of its table is 20.0 and 15.3, and
# so on.
ENERGY = {
    ("paper", "int8"): (4.6 / 0.23, 20.0),
    ("paper", "fp16"): (13.8 / (0.23 + 0.23 + 1.5), 7.0),
    ("paper", "fp32"): (13.8 / (0.23 + 0.23 + 4.6), 2.7),
    ("int32", "int8"): (4.6 / 0.3, 15.3),
    ("int32", "fp16"): (13.8 / (0.3 + 0.3 + 1.5), 6.6),
    ("int32", "fp32"): (13.8 / (0.3 + 0.3 + 4.6), 2.65),
}


@pytest.mark.parametrize(("accumulate", "kind"), ENERGY)
def test_energy_of_macs_is_that_of_the_reference(ratios, accumulate, kind):
    ratio = ratios[f"mac_horowitz_45nm_{accumulate}_{kind}_weight_gradient"]
    by_hand, printed = ENERGY[accumulate, kind]
    assert ratio.value == pytest.approx(by_hand, rel=1e-12)
    assert ratio.value == pytest.approx(printed, abs=0.05)


def test_energy_is_traceable_to_single_operations(ratios):
    assert ratios["mac_horowitz_45nm_paper_int8_weight_gradient"].formula == "4.6 pJ / 0.23 pJ"
    formula = ratios["mac_horowitz_45nm_paper_fp16_weight_gradient"].formula
    assert formula == "3 x 4.6 / (0.23 + 0.23 + 1.5) pJ"
    source = ratios["mac_horowitz_45nm_int32_int8_weight_gradient"].source
    for numbers in ("3.7 + 0.9", "1.1 + 0.4", "0.2 + 0.03", "0.2 + 0.1"):
        assert numbers in source


def test_of_a_whole_iteration_little_energy_is_saved(comparison, ratios):
    """Activations travel between layers as fp32 in both, and DRAM costs most (Horowitz 2014)."""
    row = comparison.row("choco", "99 %")
    fp32, int8 = (side.energy["horowitz_45nm"] for side in (row.fp32, row.int8))
    assert fp32.mac_j == pytest.approx(row.fp32.work.macs_fp32 * 4.6e-12)
    assert fp32.memory_j == pytest.approx(row.fp32.work.traffic_bytes * 162.5e-12)
    by_parts = row.int8.work.macs_int8 * 0.23e-12 + row.int8.work.macs_fp32 * 4.6e-12
    assert int8.mac_j == pytest.approx(by_parts)
    assert int8.elementwise_j == pytest.approx(row.int8.work.elementwise_ops * 0.9e-12)
    ratio = ratios["iteration_horowitz_45nm_99_percent"].value
    assert ratio == pytest.approx(fp32.total_j / int8.total_j)
    assert 1.1 < ratio < 1.5


def reckon(formula):
    """The value of a formula as printed: units dropped, 'x' is a product."""
    bare = re.sub(r"(?<=[\d)]) [A-Za-z]+", "", formula.replace(" x ", "*").replace(",", ""))
    assert re.fullmatch(r"[\d.()+*/ ]+", bare), formula
    return eval(bare)


def test_every_formula_gives_its_ratio_again(ratios):
    """To what three printed digits leave of it."""
    assert len(ratios) > 40
    for ratio in ratios.values():
        assert reckon(ratio.formula) == pytest.approx(ratio.value, rel=6e-3), ratio.key
        assert ratio.source


def test_every_algorithm_is_there_and_gradient_push_only_uncompressed(comparison):
    found = {(row.algorithm, row.compression) for row in comparison.rows}
    algorithms = ("choco", "deepsqueeze", "dcd")
    assert found == {
        *((a, c) for a in algorithms for c in ("0 %", "90 %", "99 %")),
        ("gradient_push", "0 %"),
    }


def test_algorithms_differ_by_their_vectors(comparison):
    """One neighbour: CHOCO holds h and S, DeepSqueeze delta, DCD its own copy and one more."""
    vectors = {"choco": 2, "deepsqueeze": 1, "gradient_push": 0, "dcd": 2}
    for name, number in vectors.items():
        row = comparison.row(name, "0 %")
        assert row.fp32.memory.gossip_state == number * 4 * PARAMETERS
        assert row.fp32.message.encoded.total == 4 * PARAMETERS + HEADER.size + len(name)
