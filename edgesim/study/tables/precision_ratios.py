"""Ratios of the costs in fp32 to those in 8 bits, each with its arithmetic.

Source: reference.md, section 6.

Symbols:
    d: parameters   T: tensors   k: entries of a sparse message
    thirds: forward pass, input gradient and weight gradient take as many products each; in truth
    the first layer has no input gradient
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from edgesim.hardware.energy_tables import ENERGY_TABLES, Accumulate, EnergyTable, Precision
from edgesim.hardware.profiles import DeviceProfile
from edgesim.quant.settings import WeightGradient
from edgesim.study.comparison import WEIGHT_GRADIENTS, PrecisionComparison, Side
from edgesim.study.energy_costs import ACCUMULATES
from edgesim.study.tables.ratio import Ratio, quotient_text
from edgesim.study.tables.units import plain, with_one_unit

_BITS: dict[WeightGradient, int] = {"int8": 8, "fp16": 16, "fp32": 32}
_ENERGY_PRECISION: dict[WeightGradient, Precision] = {
    "int8": "int8",
    "fp16": "16bit",
    "fp32": "fp32",
}
_WIDTH: dict[Accumulate, str] = {"paper": "8-bit sums", "int32": "32-bit sums"}
_TOP: dict[str, str] = {"0 %": "dense", "90 %": "top 10 %", "99 %": "top 1 %"}


def precision_ratios(comparison: PrecisionComparison) -> tuple[Ratio, ...]:
    """All ratios of a model."""
    return (
        *_compute(comparison),
        *_memory(comparison),
        *_communication(comparison),
        *_energy(comparison),
    )


def time_ratios(
    comparison: PrecisionComparison, profiles: Iterable[DeviceProfile]
) -> tuple[Ratio, ...]:
    """Time of a step on devices, once per profile.

    Profiles with overridden figures get a number.
    """
    row = comparison.row("choco", "99 %")
    found: list[Ratio] = []
    namesakes: Counter[str] = Counter()
    for profile in dict.fromkeys(profiles):
        namesakes[profile.name] += 1
        number = namesakes[profile.name]
        name = profile.name if number == 1 else f"{profile.name}-{number}"
        fp32_s, int8_s = profile.compute_s(row.fp32.work), profile.compute_s(row.int8.work)
        found.append(
            Ratio(
                topic="time",
                key=f"step_{name}",
                method="step, choco, top 1 %",
                case=name,
                value=fp32_s / int8_s,
                formula=quotient_text(fp32_s, int8_s, "s"),
                source="step: the longer of arithmetic and memory traffic at the profile's rates",
            )
        )
    return tuple(found)


def _compute(comparison: PrecisionComparison) -> Iterator[Ratio]:
    for kind in WEIGHT_GRADIENTS:
        yield Ratio(
            topic="compute",
            key=f"by_width_{kind}_weight_gradient",
            method="bit width of MACs",
            case=_case(kind),
            value=3 * 32 / (8 + 8 + _BITS[kind]),
            formula=f"3 x 32 / (8 + 8 + {_BITS[kind]}) bit",
            source=(
                "bit width, docs/reference.md, section 6: by operand width, "
                "three passes with as many products each"
            ),
        )
    fp32 = comparison.fp32.step_work.total.macs
    for kind in WEIGHT_GRADIENTS:
        work, bits = comparison.int8[kind].step_work, _BITS[kind]
        in_codes = work.forward.macs + work.input_gradient.macs
        in_weights = work.weight_gradient.macs
        (total, codes, weights), unit = with_one_unit((fp32, in_codes, in_weights), "MAC")
        yield Ratio(
            topic="compute",
            key=f"counted_{kind}_weight_gradient",
            method="bit width of MACs counted",
            case=_case(kind),
            value=32 * fp32 / (8 * in_codes + bits * in_weights),
            formula=f"32 x {total} / (8 x {codes} + {bits} x {weights}) {unit}",
            source="MACs counted: the first layer has no input gradient",
        )


def _memory(comparison: PrecisionComparison) -> Iterator[Ratio]:
    fp32, int8 = comparison.fp32_memory.total, comparison.int8_memory.total
    yield Ratio(
        topic="memory",
        key="paper",
        method="memory, paper's convention",
        case="training step",
        value=fp32 / int8,
        formula=quotient_text(fp32, int8, "MiB"),
        source=(
            "memory, docs/reference.md, section 6: 8-bit weights and "
            "activations, fp32 gradients and momentum, "
            "no master copy, no gossip"
        ),
    )
    for row in comparison.rows:
        fp32, int8 = row.fp32.memory.total, row.int8.memory.total
        yield Ratio(
            topic="memory",
            key=f"faithful_{row.algorithm}_{_slug(row.compression)}",
            method="memory, held at the peak",
            case=f"{row.algorithm}, {_TOP[row.compression]}",
            value=fp32 / int8,
            formula=quotient_text(fp32, int8, "MiB"),
            source="memory held: all that a device of this program has (edgesim.costs.memory)",
        )


def _communication(comparison: PrecisionComparison) -> Iterator[Ratio]:
    for compression, top in _TOP.items():
        row = comparison.row("choco", compression)
        fp32 = row.fp32.message.by_convention["reference"]
        int8 = row.int8.message.by_convention["paper_8bit"]
        yield Ratio(
            topic="communication",
            key=f"conventions_{_slug(compression)}",
            method="message, by conventions",
            case=top,
            value=fp32 / int8,
            formula=quotient_text(fp32, int8, "B"),
            source=_conventions(comparison),
        )
    for compression, top in _TOP.items():
        row = comparison.row("choco", compression)
        fp32, int8 = row.fp32.message.encoded.total, row.int8.message.encoded.total
        yield Ratio(
            topic="communication",
            key=f"encoded_{_slug(compression)}",
            method="message, encoded",
            case=top,
            value=fp32 / int8,
            formula=quotient_text(fp32, int8, "B"),
            source=(
                "message, encoded: its length; sparse ones are of Gaussian noise, and the indices "
                "of another vector take some bytes more or less"
            ),
        )


def _conventions(comparison: PrecisionComparison) -> str:
    """Ratios by the conventions, with their rules and numbers."""
    d, T = comparison.fp32.num_trainable, len(comparison.fp32.parameter_shapes)
    k = [comparison.row("choco", part).fp32.message.num_kept for part in ("90 %", "99 %")]
    return (
        "message, by conventions: fp32 4 (d + 1) or 6 k + 3 "
        "(docs/reference.md, section 3.6), 8 bits d + 8 T + 4 or "
        f"3 k + 8 T + 4 (docs/reference.md, section 6), d = "
        f"{d:,}, T = {T}, k = {k[0]:,} or {k[1]:,}"
    )


def _energy(comparison: PrecisionComparison) -> Iterator[Ratio]:
    for table in ENERGY_TABLES.values():
        for accumulate in ACCUMULATES:
            for kind in WEIGHT_GRADIENTS:
                yield _mac_energy(table, kind, accumulate)
        for compression in _TOP:
            row = comparison.row("choco", compression)
            yield _iteration_energy(table, row.fp32, row.int8, compression)


def _mac_energy(table: EnergyTable, kind: WeightGradient, accumulate: Accumulate) -> Ratio:
    fp32, int8 = table.mac_pj("fp32", accumulate), table.mac_pj("int8", accumulate)
    weights = table.mac_pj(_ENERGY_PRECISION[kind], accumulate)
    a, b, c = (plain(picojoules) for picojoules in (fp32, int8, weights))
    formula = f"{a} pJ / {b} pJ" if kind == "int8" else f"3 x {a} / ({b} + {b} + {c}) pJ"
    return Ratio(
        topic="energy",
        key=f"mac_{table.name}_{accumulate}_{kind}_weight_gradient",
        method=f"{table.name}, {_WIDTH[accumulate]}",
        case=_case(kind),
        value=3 * fp32 / (2 * int8 + weights),
        formula=formula,
        source=f"{table.name}: {mac_prices(table)}",
    )


def _iteration_energy(table: EnergyTable, fp32: Side, int8: Side, compression: str) -> Ratio:
    ours, theirs = fp32.energy[table.name], int8.energy[table.name]
    parts = [
        joules
        for energy in (ours, theirs)
        for joules in (energy.mac_j, energy.elementwise_j, energy.memory_j)
    ]
    texts, unit = with_one_unit(parts, "J")
    return Ratio(
        topic="energy",
        key=f"iteration_{table.name}_{_slug(compression)}",
        method=f"{table.name}, iteration",
        case=f"choco, {_TOP[compression]}",
        value=ours.total_j / theirs.total_j,
        formula=f"({' + '.join(texts[:3])}) / ({' + '.join(texts[3:])}) {unit}",
        source=(
            f"{table.name}, iteration: MACs + other operations + DRAM traffic; "
            f"{other_prices(table)}"
        ),
    )


def mac_prices(table: EnergyTable) -> str:
    """What a multiply-accumulate costs by a table, product and sum apart."""
    product = plain(table.int8_mul_pj)
    return (
        f"MAC fp32 {plain(table.fp32_mul_pj)} + {plain(table.fp32_add_pj)} pJ, "
        f"fp16 {plain(table.fp16_mul_pj)} + {plain(table.fp16_add_pj)}, "
        f"int8 {product} + {plain(table.int8_add_pj)}, "
        f"with 32-bit sums {product} + {plain(table.int32_add_pj)}"
    )


def other_prices(table: EnergyTable) -> str:
    """What other operations and memory traffic cost by a table."""
    return (
        f"another operation {plain(table.fp32_add_pj)} pJ, "
        f"a byte of DRAM traffic {plain(table.dram_pj_per_byte)} pJ"
    )


def _case(kind: WeightGradient) -> str:
    return f"weight gradient {kind}"


def _slug(compression: str) -> str:
    return compression.replace(" %", "_percent")
