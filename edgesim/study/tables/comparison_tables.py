"""Tables of fp32 against 8 bits, of one model and of the whole catalog."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from edgesim.hardware.energy_tables import ENERGY_TABLES
from edgesim.study.comparison import COMPRESSIONS, WEIGHT_GRADIENTS, GossipRow, PrecisionComparison
from edgesim.study.tables.precision_ratios import precision_ratios
from edgesim.study.tables.ratio import Ratio, quotient_column, times
from edgesim.study.tables.table import Table
from edgesim.study.tables.units import with_one_unit

_IN_OTHER_TABLES = ("faithful_", "iteration_")


def comparison_tables(
    comparison: PrecisionComparison, ratios: Sequence[Ratio]
) -> tuple[Table, ...]:
    """fp32 against 8 bits: the ratios with their arithmetic, then every algorithm."""
    return (
        ratio_table(
            f"fp32 (evonorm_s0) / int8 (range_evonorm): {subject_line(comparison)}",
            [ratio for ratio in ratios if not ratio.key.startswith(_IN_OTHER_TABLES)],
        ),
        gossip_table(comparison),
    )


def ratio_table(title: str, ratios: Iterable[Ratio]) -> Table:
    """Ratios with the numbers that went in, under the method of each."""
    rows: list[tuple[str, str, str]] = []
    notes: list[str] = []
    heading = ""
    for ratio in ratios:
        if ratio.method != heading:
            rows.append((ratio.method, "", ""))
            heading = ratio.method
        rows.append((f"  {ratio.case}", times(ratio.value), ratio.formula))
        if ratio.source not in notes:
            notes.append(ratio.source)
    return Table(title, ("", "ratio", "arithmetic"), tuple(rows), tuple(notes))


def gossip_table(comparison: PrecisionComparison) -> Table:
    """Memory, message and energy by algorithm and compression."""
    prices, setting = next(iter(ENERGY_TABLES)), comparison.setting
    columns = _quotients(comparison.rows, prices)
    return Table(
        f"fp32 / int8 by algorithm and compression: {subject_line(comparison)}",
        ("", *columns),
        tuple(
            (f"{row.algorithm}, {row.compression}", *cells)
            for row, *cells in zip(comparison.rows, *columns.values(), strict=True)
        ),
        (
            (
                f"Messages in an exchange: {setting.out_degree} sent, {setting.in_degree} taken. "
                "Energy is that of an iteration with one: MACs, other operations, DRAM traffic."
            ),
        ),
    )


def catalog_tables(comparisons: Sequence[PrecisionComparison]) -> tuple[Table, ...]:
    """Every model: its MACs, then memory, message and energy in fp32 and 8 bits."""
    batch, prices = comparisons[0].setting.batch_size, next(iter(ENERGY_TABLES))
    names = [model_name(comparison) for comparison in comparisons]
    paper, of_paper = quotient_column(
        [(c.fp32_memory.total, c.int8_memory.total) for c in comparisons], "MiB"
    )
    tables = [
        _work_table(comparisons),
        Table(
            f"every model, fp32 / int8, batch {batch}: memory by the paper's convention",
            ("", f"memory, {paper}"),
            tuple(zip(names, of_paper, strict=True)),
        ),
    ]
    for compression in COMPRESSIONS:
        rows = [comparison.row("choco", compression) for comparison in comparisons]
        columns = _quotients(rows, prices)
        tables.append(
            Table(
                f"every model, fp32 / int8, batch {batch}: choco, {compression} compression",
                ("", *columns),
                tuple(zip(names, *columns.values(), strict=True)),
            )
        )
    return tuple(tables)


def subject_line(comparison: PrecisionComparison) -> str:
    """Model and batch."""
    return f"{model_name(comparison)}, batch {comparison.setting.batch_size}"


def model_name(comparison: PrecisionComparison) -> str:
    """Model and image."""
    _, height, width = comparison.setting.image_shape
    return f"{comparison.setting.name} {height}x{width}"


def _quotients(rows: Sequence[GossipRow], prices: str) -> dict[str, list[str]]:
    """Columns of ratios with their arithmetic, by their headers."""
    memory, of_memory = quotient_column(
        [(row.fp32.memory.total, row.int8.memory.total) for row in rows], "MiB"
    )
    message, of_message = quotient_column(
        [(row.fp32.message.encoded.total, row.int8.message.encoded.total) for row in rows], "B"
    )
    energy, of_energy = quotient_column(
        [(row.fp32.energy[prices].total_j, row.int8.energy[prices].total_j) for row in rows], "J"
    )
    return {
        f"memory held, {memory}": of_memory,
        f"message, {message}": of_message,
        f"{prices}, {energy}": of_energy,
    }


def _work_table(comparisons: Sequence[PrecisionComparison]) -> Table:
    """MACs by pass, and what 8 bits save of them by bit width."""
    rows = []
    for comparison in comparisons:
        work, ratios = comparison.fp32.step_work, {r.key: r for r in precision_ratios(comparison)}
        counts, unit = with_one_unit(
            (work.forward.macs, work.input_gradient.macs, work.weight_gradient.macs), "MAC"
        )
        saved = [
            times(ratios[f"counted_{kind}_weight_gradient"].value) for kind in WEIGHT_GRADIENTS
        ]
        parameters = f"{comparison.fp32.num_trainable:,}"
        rows.append((model_name(comparison), parameters, f"{' + '.join(counts)} {unit}", *saved))
    return Table(
        f"every model, fp32 / int8, batch {comparisons[0].setting.batch_size}: bit width of MACs",
        ("", "parameters", "forward + inputs + weights", *WEIGHT_GRADIENTS),
        tuple(rows),
        (
            (
                "MACs of the forward pass and of the gradients at inputs and weights; ratio = "
                "32 x (forward + inputs + weights) / (8 x (forward + inputs) + bits x weights), "
                "with 8, 16 or 32 bits for the gradient at weights."
            ),
        ),
    )
