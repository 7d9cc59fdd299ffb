"""Tables of what one iteration of a scenario costs its devices."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from math import isclose

from edgesim.hardware.energy_tables import ENERGY_TABLES
from edgesim.study.energy_costs import BOARD, IterationEnergy
from edgesim.study.iteration import DeviceCosts, IterationCosts
from edgesim.study.notices.notices import listed
from edgesim.study.tables.kinds import Kind, Names, kinds_of
from edgesim.study.tables.precision_ratios import mac_prices, other_prices
from edgesim.study.tables.table import Table
from edgesim.study.tables.units import percent, plain, with_unit
from edgesim.study.training import training_of

MOST_KINDS = 12  # of devices, in a table
_MOST_AWAITED = 3  # devices, in a cell
_ROUNDING = 1e-9  # of a round

_PARTS = {
    "forward": "forward pass",
    "input_gradient": "gradient at inputs",
    "weight_gradient": "gradient at weights",
    "optimizer": "optimizer",
    "gossip": "gossip",
    "measured": "measured, no closed form",
}
_CONVENTIONS = {
    "reference": "reference code's convention",
    "paper_8bit": "paper's 8-bit convention",
    "bagua": "Bagua's convention",
}


def scenario_tables(costs: IterationCosts) -> tuple[Table, ...]:
    """All tables of a scenario, one a topic."""
    tables = [
        overview_table(costs),
        work_table(costs),
        memory_table(costs),
        message_table(costs),
        energy_table(costs),
    ]
    if costs.steady_state is not None:
        tables.append(time_table(costs))
    return (*tables, fleet_table(costs))


def overview_table(costs: IterationCosts) -> Table:
    """The scenario: model, data, algorithm, message."""
    studied, message = costs.studied, costs.message
    scenario, form = studied.scenario, studied.model.form
    inputs = "x".join(map(str, form.image_shape))
    what = "images" if len(form.image_shape) == 3 else "inputs"
    sent = f"{message.num_kept:,} of {message.num_entries:,} entries"
    given = getattr(scenario.gossip, "averaging_rate", None)  # DCD has none
    rate = "" if given is None else f"; averaging rate {given}"
    norm = f", {form.norm}" if form.norm else ""
    arithmetic = f"{form.name} in {scenario.model.precision}{norm}"
    return Table(
        f"{scenario.name}: what an iteration costs",
        ("", ""),
        (
            ("fleet", f"{scenario.fleet.num_devices} devices, {scenario.topology.kind}"),
            ("model", f"{arithmetic}, {studied.model.num_trainable:,} parameters"),
            ("batch", f"{studied.model.batch_size} {what} of {inputs}"),
            ("gossip", f"{studied.algorithm.name}, {message.compressor}: {sent}{rate}"),
        ),
    )


def work_table(costs: IterationCosts) -> Table:
    """Operations and traffic by part of the iteration."""
    device = costs.heaviest
    parts = {_PARTS[name]: work for name, work in device.work.by_part.items()}
    rows = [
        (
            name,
            with_unit(work.macs_int8, "MAC"),
            with_unit(work.macs_16bit, "MAC"),
            with_unit(work.macs_fp32, "MAC"),
            with_unit(work.elementwise_ops, "ops"),
            with_unit(work.traffic_bytes, "MiB"),
        )
        for name, work in {**parts, "total": device.work.total}.items()
    ]
    return Table(
        f"computing, {_whose(costs, device)}",
        ("", "int8", "16 bits", "fp32", "other ops", "traffic"),
        tuple(rows),
        (
            "Traffic: bytes read and written. Encoding and checksums of messages are left out.",
            *measured_notes(costs, "work of"),
        ),
    )


_MASTER_COPY = (
    "Weights: what products read. Master copy: the fp32 vector that optimizer and gossip change."
)


def memory_table(costs: IterationCosts) -> Table:
    """Bytes by component in both conventions, and the devices with enough memory."""
    device = costs.heaviest
    paper, faithful = device.paper_memory, device.faithful_memory
    rows = [
        (name.replace("_", " "), with_unit(held, "MiB"), with_unit(counted, "MiB"))
        for (name, counted), held in zip(
            paper.by_component.items(), faithful.by_component.values(), strict=True
        )
        if held or counted
    ]
    rows.append(("total", with_unit(faithful.total, "MiB"), with_unit(paper.total, "MiB")))
    all_kinds = kinds_of(costs)
    return Table(
        f"memory, {_whose(costs, device)}",
        ("", "held at the peak of a round", "paper's convention"),
        tuple(rows),
        (
            *((_MASTER_COPY,) if faithful.master_copy else ()),
            *filter(None, map(_fit, all_kinds[:MOST_KINDS])),
            *_left_out(all_kinds),
            *_measured_too(costs, "activations and layer gradients of a step, for"),
        ),
    )


def message_table(costs: IterationCosts) -> Table:
    """Bytes of a message by kind, beside the conventions."""
    device, message = costs.heaviest, costs.message
    counts, times = message.encoded, device.messages_sent
    lines = [
        ("values", counts.values),
        ("indices", counts.indices),
        ("scales", counts.scales),
        ("header", counts.header),
        ("encoded, total", counts.total),
        *((_CONVENTIONS.get(name, name), size) for name, size in message.by_convention.items()),
    ]
    notes = []
    if any(name in _CONVENTIONS for name in message.by_convention):
        notes.append("Conventions: docs/reference.md, sections 3.6, 6 and 7.")
    is_only_kind = isclose(device.sent_bytes, times * counts.total)  # means of rounds
    if not is_only_kind:
        notes.append(
            f"The device sends {plain(times)} messages in an iteration, some of them within its "
            f"site in fp32: {with_unit(device.sent_bytes, 'B')} in all."
        )
    if not message.is_exact:
        notes.append(
            "Encoded was Gaussian noise: other vectors of this size take some bytes more or less. "
            f"No code of the indices can do with less than {message.index_entropy_bytes:,.0f} B "
            "on average."
        )
    return Table(
        f"messages, {_whose(costs, device)}",
        ("", "one, on one edge", *((f"an iteration, {plain(times)} sent",) * is_only_kind)),
        tuple(
            (name, with_unit(size, "B"), *((with_unit(size * times, "B"),) * is_only_kind))
            for name, size in lines
        ),
        tuple(notes),
    )


def energy_table(costs: IterationCosts) -> Table:
    """Joules by price list; the scenario's own is marked."""
    rows = []
    all_kinds = kinds_of(costs)
    for kind in all_kinds[:MOST_KINDS]:
        rows.append((kind.heading, *[""] * 5))
        for entries in zip(*map(_shown_energies, kind.members), strict=True):
            entry = entries[0]
            is_own = entry.table == costs.energy_table and entry.accumulate == "paper"
            rows.append((f"  {_price_list(entry)}{' *' if is_own else ''}", *_joules(entries)))
    notes = [
        f"{table.name}: {mac_prices(table)}; {other_prices(table)}. {table.citation}."
        for table in ENERGY_TABLES.values()
    ]
    if costs.steady_state is None:
        notes.append("?: radio and idle power are not known; name fleet.profile.")
    return Table(
        "energy of an iteration",
        ("", "computing", "DRAM", "radio", "waiting", "total"),
        tuple(rows),
        (
            "* counts below for the fleet; set hardware.energy_table to choose.",
            *notes,
            *_left_out(all_kinds),
            *_measured_too(costs, "work of"),
        ),
    )


def time_table(costs: IterationCosts) -> Table:
    """Roofline, air time and the time of a round of each kind of device."""
    all_kinds, is_free = kinds_of(costs), _is_free(costs)
    columns = ("", "arithmetic", "memory", "on air")
    how = (
        "At free pace no device waits until its last step; a radio that is busy skips messages."
        if is_free
        else "Busy: share of the time in which it computes. Awaits: whose messages end most of its "
        "waits."
    )
    return Table(
        "time of an iteration",
        (*columns, "a round", "sent") if is_free else (*columns, "waiting", "busy", "awaits"),
        tuple(_time_row(kind, is_free=is_free) for kind in all_kinds[:MOST_KINDS]),
        (
            (
                "* A step takes the longer of arithmetic and memory traffic (roofline at the "
                "profile's rates). On air: a device's own messages, repetitions included. "
            )
            + how,
            *_without_star(all_kinds),
            *_left_out(all_kinds),
            *_measured_too(costs, "work of"),
        ),
    )


def fleet_table(costs: IterationCosts) -> Table:
    """The fleet as a whole, and its whole training."""
    training = training_of(costs)
    rows = list(_steady_rows(costs))
    rows.append(("bytes sent in an iteration", with_unit(costs.sent_bytes, "B")))
    by = f"by {costs.energy_table}"
    rows.append((f"energy of an iteration, {by}", with_unit(costs.energy_j, "J")))
    rows.append(("rounds of the whole training", _span(training.rounds, _count)))
    rows.append(("bytes sent in it", with_unit(sum(training.sent_bytes), "MB")))
    rows.append((f"energy of it, {by}", with_unit(sum(training.energy_j), "J")))
    if costs.steady_state is not None and costs.steady_state.is_free:
        last_j = with_unit(sum(training.last_wait_j), "J")
        rows.append(("of that, waiting after last steps", last_j))
    if training.seconds is not None:
        rows.append(("virtual time of it", with_unit(training.seconds, "s")))
    rows += _battery_rows(costs)
    notes = [] if costs.steady_state else ["Energy is that of computing and DRAM alone."]
    notes += _measured_too(costs, "work of")
    return Table("the fleet", ("", ""), tuple(rows), tuple(notes))


def _is_free(costs: IterationCosts) -> bool:
    return costs.studied.scenario.fleet.rules.goes_by_clock


def _count(value: float) -> str:
    return f"{value:,.0f}"


def measured_notes(costs: IterationCosts, what: str) -> tuple[str, ...]:
    """A note on measured numbers, without closed form, in a table."""
    layers = costs.studied.model.measured_layers
    return (f"Measured, no closed form: {what} {listed(layers)}.",) if layers else ()


def _measured_too(costs: IterationCosts, what: str) -> tuple[str, ...]:
    """The same in a table below that of the work, which names the parts."""
    layers = costs.studied.model.measured_layers
    return (f"Measured, no closed form: {what} the same parts as above.",) if layers else ()


def _whose(costs: IterationCosts, device: DeviceCosts) -> str:
    """Description of the device of a table."""
    all_kinds = kinds_of(costs)
    if len(costs.devices) == 1:
        return "the device"
    if len({kind.messages for kind in all_kinds}) == 1:
        return "each device"
    kind = next(kind for kind in all_kinds if device in kind.members)
    return f"{kind.names.one(device.device)}, which holds the most ({kind.messages})"


def _fit(kind: Kind) -> str:
    """Whether a kind of device has enough memory, as text; empty if unknown."""
    device, profile = kind.first, kind.first.profile
    if profile is None:
        return ""
    held, there = device.faithful_memory.total, profile.memory_bytes
    verdict = "fits" if device.fits else "DOES NOT FIT"
    return f"{kind.heading}: {with_unit(held, 'MiB')} of {with_unit(there, 'MiB')}, {verdict}"


def _shown_energies(device: DeviceCosts) -> Iterator[IterationEnergy]:
    """Energies that differ in the table: with DRAM; both widths of sums only for 8-bit codes."""
    has_codes = device.work.total.macs_int8 > 0
    for entry in device.energy:
        if entry.memory == "dram" and (has_codes or entry.accumulate == "paper"):
            yield entry


def _price_list(entry: IterationEnergy) -> str:
    if entry.table == BOARD:
        return "its powers"
    return entry.table + (", 32-bit sums" if entry.accumulate == "int32" else "")


def _joules(entries: Sequence[IterationEnergy]) -> tuple[str, ...]:
    """Energies of the devices of a kind by one price list, by cause."""
    return (
        _span([entry.compute_j for entry in entries], _in_joules),
        "-"
        if entries[0].table == BOARD
        else _span([entry.memory_j for entry in entries], _in_joules),
        _span_of_known([entry.radio_j for entry in entries]),
        _span_of_known([entry.idle_j for entry in entries]),
        _span([entry.total_j for entry in entries], _in_joules),
    )


def _in_joules(value: float) -> str:
    return with_unit(value, "J")


def _span_of_known(values: Sequence[float | None]) -> str:
    known = [value for value in values if value is not None]
    return _span(known, _in_joules) if known else "?"


def _without_star(all_kinds: Sequence[Kind]) -> tuple[str, ...]:
    limits = {kind.first.time.limit for kind in all_kinds if kind.first.time is not None}
    notes = {
        "layers, as measured": "the sum of its layers' times, which the profile has as measured",
        "element-wise operations": "the time of its element-wise operations",
    }
    return tuple(f"No *: a step takes {note}." for limit, note in notes.items() if limit in limits)


def _left_out(all_kinds: Sequence[Kind]) -> tuple[str, ...]:
    more = len(all_kinds) - MOST_KINDS
    return (f"{more} more kinds of devices are left out here; --json has all.",) if more > 0 else ()


def _time_row(kind: Kind, *, is_free: bool) -> tuple[str, ...]:
    time = kind.first.time
    assert time is not None, "devices of one fleet all have clocks, or none has"
    times = [device.time for device in kind.members if device.time is not None]
    cycles = [own.cycle for own in times]
    first = (
        kind.heading,
        _span([own.arithmetic_s for own in times], _seconds)
        + (" *" if time.limit == "arithmetic" else ""),
        _span([own.memory_s for own in times], _seconds)
        + (" *" if time.limit == "memory traffic" else ""),
        _span([cycle.air_s for cycle in cycles], _seconds),
    )
    if is_free:
        sent = [device.messages_sent for device in kind.members]
        least, most = min(sent), max(sent)
        skipped = f"{plain(least)}" if plain(least) == plain(most) else f"{least:.2g} to {most:.2g}"
        periods_s = [cycle.period_s for cycle in cycles]
        return (*first, _span(periods_s, _seconds), f"{skipped} of {plain(kind.first.degrees[0])}")
    return (
        *first,
        _span([cycle.wait_s for cycle in cycles], _seconds),
        _span([cycle.utilisation for cycle in cycles], percent),
        _awaits(kind),
    )


def _awaits(kind: Kind) -> str:
    """What ends most waits of devices of a kind: one cause for all, or a few with whose they are.

    That is a neighbour's message, or a moment of the contact trace.
    """
    awaited: dict[int | None, list[int]] = {}
    for device in kind.members:
        cycle = None if device.time is None else device.time.cycle
        # Without a trace every wait in lockstep is for somebody.
        if cycle is not None and (cycle.waits_for is not None or cycle.waiting > _ROUNDING):
            awaited.setdefault(cycle.waits_for, []).append(device.device)
    if not awaited:
        return "nobody"
    if len(awaited) > _MOST_AWAITED:
        return "one neighbour each" if None not in awaited else "the trace or one neighbour each"
    causes = {
        cause: "the contact trace" if cause is None else kind.names.one(cause) for cause in awaited
    }
    if sum(map(len, awaited.values())) == len(kind.members) and len(awaited) == 1:
        return next(iter(causes.values()))
    return "; ".join(f"{kind.names.some(who)}: {causes[cause]}" for cause, who in awaited.items())


def _seconds(value: float) -> str:
    return with_unit(value, "s")


def _span(values: Sequence[float], text: Callable[[float], str]) -> str:
    """The value of all devices of a kind, or the least and the greatest value: `1.2 to 3 ms`."""
    least, most = text(min(values)), text(max(values))
    if least == most:
        return least
    number, _, unit = least.rpartition(" ")
    return f"{number if number and most.endswith(f' {unit}') else least} to {most}"


def _steady_rows(costs: IterationCosts) -> Iterator[tuple[str, str]]:
    steady_state, names = costs.steady_state, Names.of(costs)
    if steady_state is None:
        return
    busiest = costs.devices[steady_state.busiest]
    assert busiest.profile is not None, "devices with clocks have profiles"
    who = f"{names.one(busiest.device)} ({busiest.profile.name})"
    if steady_state.is_free:
        periods_s = [cycle.period_s for cycle in steady_state.devices]
        yield "a round, at free pace", _span(periods_s, _seconds)
        yield "slowest", f"{who}: {with_unit(max(periods_s), 's')} a round"
        run = f"two shorter trainings, {steady_state.num_rounds:,} rounds or more apart"
        yield "clocks run for it", "the whole training" if steady_state.is_whole else run
        return
    yield "period of a round, in lockstep", with_unit(steady_state.period_s, "s")
    state = "settled" if steady_state.is_settled else "NOT settled: devices still differ in pace"
    if steady_state.is_whole:
        yield "clocks run for it", "the whole training"
    else:
        run = f"{steady_state.num_rounds} rounds after {steady_state.warm_up_rounds}"
        yield "clocks run for it", f"{run}; {state}"
    share = percent(steady_state.devices[steady_state.busiest].utilisation)
    yield "highest utilisation", f"{who}: computes {share} of the time"


def _battery_rows(costs: IterationCosts) -> Iterator[tuple[str, str]]:
    """Rows about the battery that is empty first."""
    lives = training_of(costs).lives
    if lives:
        first = min(lives, key=lambda life: (life.rounds, life.device))
        who = Names.of(costs).one(first.device)
        yield "first empty battery", f"{who}, after {first.rounds:,} rounds"
