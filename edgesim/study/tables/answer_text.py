"""The answer in sentences: a label and what is to be said of it, then a table of changes."""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import wrap
from typing import Any

from edgesim.hardware.catalog import PROFILES
from edgesim.scenario.own_parts import OwnPart
from edgesim.study.answer import Answer, Need
from edgesim.study.candidates import roomy_profiles
from edgesim.study.changes import Change, Goal
from edgesim.study.iteration import DeviceCosts
from edgesim.study.rounds.critical_path import Limit, LimitKind
from edgesim.study.rounds.steady_state import SLEEPS
from edgesim.study.tables.battery_text import batteries_text
from edgesim.study.tables.kinds import Names
from edgesim.study.tables.table import Table
from edgesim.study.tables.units import (
    brief,
    joules,
    percent,
    plain,
    share_used,
)

_KINDS: dict[LimitKind, str] = {
    "computing": "computing",
    "sending": "messages",
    "latency": "latency of links",
    "sleep": "sleep",
    "trace": "the contact trace",
}
_FULL = 0.97  # of a batch's samples, in the mean; what is closer to 1 is not told
_SMALL = 0.05  # of a round; shorter parts are not told of
_ALIKE = 1.05  # times; steps that differ less are of like devices
_MOST_NAMES = 3
_MOST_LINKS = 2
_GOALS: dict[Goal, str] = {
    "fit": "to fit",
    "batteries": "to save batteries",
    "time": "to save time",
    "bytes": "to know more",
}
WIDTH = 80  # of the answer on any terminal, in characters
_WRAP: Any = {"break_long_words": False, "break_on_hyphens": False}


def answer_lines(answer: Answer, width: int = WIDTH) -> list[str]:
    """The answer as text.

    Args:
        answer: what was found.
        width: largest length of a line; only a long word can make a line longer.
    """
    table, lines = answer_table(answer), []
    indent = max(len(label) for label, _ in table.rows) + 2
    for label, sentence in table.rows:
        first, *others = wrap(sentence, max(width - indent, 20), **_WRAP)
        lines.append(f"{label:{indent}}{first}")
        lines += [" " * indent + other for other in others]
    changes = change_table(answer)
    if changes is not None:
        lines += _change_lines(changes)
        lines += [line for note in changes.notes for line in wrap(note, width, **_WRAP)]
    return [*wrap(table.title, width, **_WRAP), *lines]


def answer_table(answer: Answer) -> Table:
    """What is asked first, a label and a sentence a row."""
    rows = (
        ("memory", _memory(answer)),
        ("time", _time(answer)),
        ("limits", _limits(answer)),
        ("waiting", _waiting(answer)),
        ("channel", _channel(answer)),
        ("sends", _sends(answer)),
        ("batteries", batteries_text(answer)),
        ("energy", _energy(answer)),
        ("change", _no_change(answer)),
    )
    return Table(_title(answer), ("", ""), tuple(row for row in rows if row[1]))


def change_table(answer: Answer) -> Table | None:
    """Settings that help most, with what the changed scenarios cost; None if there are none."""
    advice = answer.advice
    if advice is None or not advice.changes:
        return None
    has_lives = any(change.training.lives for change in advice.changes)
    changes = [(_words(answer, change), change) for change in advice.changes]
    if advice.together is not None:
        together = advice.together.candidate
        joined = [n for n, own in enumerate(advice.changes, 1) if together.has(own.candidate)]
        those = " and ".join(f"{n}." for n in joined)
        whole = f"all {len(joined)}" if len(joined) == len(changes) else those
        changes.append((f"{whole} together", advice.together))
    columns = ("training", "memory", "sends", "energy", *(("battery",) if has_lives else ()))
    return Table(
        "",
        (f"--set, {_GOALS[advice.goal]}", *columns),
        tuple((words, *_figures(change)[: len(columns)]) for words, change in changes),
        (*_skipped(answer), "Only training shows how a change affects accuracy."),
    )


def _skipped(answer: Answer) -> list[str]:
    """How many messages a change to free pace leaves, where one is named."""
    advice, state = answer.advice, answer.costs.steady_state
    if advice is None or state is None or state.is_free:
        return []
    for change in advice.changes:
        other = change.costs.steady_state
        if other is not None and other.is_free:
            now, then = (_messages(costs.devices) for costs in (answer.costs, change.costs))
            skips = f"a busy radio skips messages: {then} a round of a device, now {now}"
            return [f"At free pace {skips}. Compare at equal virtual time, not after equal rounds."]
    return []


def _messages(devices: Sequence[DeviceCosts]) -> str:
    """Messages that devices send in a round, the least and the most."""
    sent = [device.messages_sent for device in devices]
    least, most = f"{min(sent):.2g}", f"{max(sent):.2g}"
    return least if least == most else f"{least} to {most}"


def _change_lines(table: Table) -> list[str]:
    """Rows in columns; a change that is longer than its column has a line of its own."""
    widths = [
        max(map(len, column)) for column in list(zip(table.columns, *table.rows, strict=True))[1:]
    ]
    room = WIDTH - sum(widths) - 2 * len(widths)
    first = min(room, max(len(row[0]) for row in (table.columns, *table.rows)))
    lines = []
    for words, *cells in (table.columns, *table.rows):
        figures = "".join(f"  {cell:{width}}" for cell, width in zip(cells, widths, strict=True))
        if len(words) > first:
            lines += wrap(words, WIDTH, **_WRAP)
        lines.append(f"{words if len(words) <= first else '':{first}}{figures}".rstrip())
    return lines


def _title(answer: Answer) -> str:
    studied = answer.costs.studied
    scenario = studied.scenario
    name = scenario.model.name
    model = name.name if isinstance(name, OwnPart) else name
    epochs = scenario.training.epochs
    number, unit = (epochs, "epoch") if epochs else (studied.num_rounds, "round")
    length = f"{number:,} {unit}{'' if number == 1 else 's'}"
    devices = scenario.fleet.num_devices
    who = "1 device trains" if devices == 1 else f"{devices:,} devices train"
    return f"{scenario.name}: {who} {model} in {scenario.model.precision} for {length}"


def _memory(answer: Answer) -> str:
    names, needs = Names.of(answer.costs), answer.needs
    short = [need for need in needs if need.fits is False]
    if short:
        text = "DOES NOT FIT " + "; ".join(_shortage(names, need) for need in short[:2])
        if len(short) > 2:
            text += f"; nor {len(short) - 2} more kinds of devices"
        fitting = [device for need in needs if need.fits for device in need.devices]
        return text + (f"; fits {names.some(fitting, _MOST_NAMES)}" if fitting else "")
    scarcest = needs[0]
    if scarcest.available_bytes is None or scarcest.free_bytes is None:
        return _memory_without_profile(scarcest)
    needed, there, free = (
        brief(size, "MiB")
        for size in (scarcest.needed_bytes, scarcest.available_bytes, scarcest.free_bytes)
    )
    if len(needs) == 1:
        return f"fits: {needed} of {there}, {free} stay free on each {scarcest.profile}"
    who = names.some(scarcest.devices, _MOST_NAMES)
    return f"fits all; tightest on {who}: {needed} of {there}"


def _memory_without_profile(need: Need) -> str:
    text = f"{brief(need.needed_bytes, 'MiB')} a device"
    roomy = roomy_profiles(need.needed_bytes)
    if not roomy:
        return f"{text}: no device of the catalog has so much"
    has = brief(PROFILES[roomy[0]].profile.memory_bytes, "MiB")
    return (
        f"{text}: {len(roomy)} of {len(PROFILES)} devices of the catalog have so much, "
        f"from {roomy[0]} ({has}) on"
    )


def _shortage(names: Names, need: Need) -> str:
    assert need.available_bytes is not None, "asked of devices with a profile"
    missing = need.needed_bytes - need.available_bytes
    return (
        f"{names.some(need.devices, _MOST_NAMES)} ({need.profile}): "
        f"{brief(need.needed_bytes, 'MiB')} of {brief(need.available_bytes, 'MiB')}, "
        f"{brief(missing, 'MiB')} are missing"
    )


def _time(answer: Answer) -> str:
    studied, state, training = answer.costs.studied, answer.costs.steady_state, answer.training
    rounds = f"{studied.num_rounds:,} rounds"
    fill = ""
    if studied.batch_fill < _FULL:
        said = "full batches are counted, a run's are {} full"
        if studied.shard_sizes is not None:
            said = "batches are counted as each device's are, {} full in the mean"
        fill = f"; {said.format(percent(round(studied.batch_fill, 2)))}"
    if state is None or training.seconds is None:
        epoch = f"{studied.rounds_per_epoch:,} an epoch"
        return f"not known without fleet.profile; {rounds}, {epoch}"
    total, epoch = brief(training.seconds, "s"), ""
    if training.epoch_s is not None:
        up_to = "up to " if state.is_free else ""
        epoch = f"{up_to}{brief(training.epoch_s, 's')} an epoch, "
    if not state.is_free:
        period = f"{'' if state.is_settled else 'about '}{brief(state.period_s, 's')} a round"
        if studied.scenario.gossip.local_steps > 1:
            period += " in the mean"
        return f"{period}, {epoch}{total} in all ({rounds}{fill})"
    names, periods_s = Names.of(answer.costs), [cycle.period_s for cycle in state.devices]
    spread = brief(max(periods_s), "s")
    if min(periods_s) * _ALIKE < max(periods_s):
        fastest = periods_s.index(min(periods_s))
        spread = (
            f"{brief(min(periods_s), 's')} ({names.one(fastest)}) to {spread} "
            f"({names.one(state.busiest)})"
        )
    least, most = min(training.rounds), max(training.rounds)
    each = f"{most:,.0f} rounds each"
    if least * _ALIKE < most:
        each = f"{least:,.0f} to {most:,.0f} rounds each"
    return f"{spread} a round at free pace, {epoch}{total} in all ({each}{fill})"


def _limits(answer: Answer) -> str:
    """What the time of a round goes into; of links, the slowest by name."""
    state = answer.costs.steady_state
    if state is None:
        return ""
    kinds = [kind for kind, s in answer.by_kind.items() if s >= _SMALL * state.period_s]
    parts = [_part(answer, kind) for kind in kinds]
    whose = f" of {Names.of(answer.costs).one(state.busiest)}" if state.is_free else ""
    return f"{', '.join(parts)}: of {brief(state.period_s, 's')} a round{whose}"


def _part(answer: Answer, kind: LimitKind) -> str:
    """One part of a round: what it is, how long, and for links which ones."""
    text = f"{_KINDS[kind]} {brief(answer.by_kind[kind], 's')}"
    state = answer.costs.steady_state
    assert state is not None, "asked of fleets with clocks"
    own = [limit for limit in state.limits if limit.kind == kind]
    if kind == "computing":
        device = answer.costs.devices[own[0].device]
        assert device.time is not None, "devices of the path have clocks"
        seconds = brief(answer.by_kind[kind], "s")
        return f"{_KINDS[kind]} {_bound(device)}{seconds} ({device.time.limit})"
    if kind == "sleep":
        return text + _of_few_cycles(answer)
    if kind == "trace":
        return text
    if not answer.links_differ:
        return text
    links = [_link(answer, limit) for limit in own[:_MOST_LINKS]]
    return f"{text} ({', '.join(links)}{', ...' if own[_MOST_LINKS:] else ''})"


def _of_few_cycles(answer: Answer) -> str:
    """That a training may differ from the mean over cycles, if it has few of them."""
    state, seconds = answer.costs.steady_state, answer.training.seconds
    assert state is not None, "asked of fleets with clocks"
    cycle_s = state.longest_sleep_cycle_s
    if seconds is None or seconds >= SLEEPS * cycle_s or state.is_whole:
        return ""
    return (
        f" (in the mean over cycles of {brief(cycle_s, 's')}: in so short a training it may be "
        "none, or more)"
    )


def _link(answer: Answer, limit: Limit) -> str:
    assert limit.receiver is not None, "asked of links"
    return (
        f"{Names.of(answer.costs).link(limit.device, limit.receiver)} {brief(limit.seconds, 's')}"
    )


def _waiting(answer: Answer) -> str:
    """Which step is slowest, and how much of their time devices wait."""
    state = answer.costs.steady_state
    if state is None or len(answer.costs.devices) == 1:
        return ""
    names = Names.of(answer.costs)
    # Without devices that a short FedAvg never draws.
    devices = [device for device in answer.costs.devices if _step_s(device)]
    if not devices:
        return ""
    slow, fast = max(devices, key=_step_s), min(devices, key=_step_s)
    slowest = [d.device for d in devices if _step_s(d) * _ALIKE >= _step_s(slow)]
    slowness = ""
    if len(slowest) < len(devices):
        ratio = f"{_step_s(slow) / _step_s(fast):.3g} times {names.one(fast.device)}'s"
        who = names.some(slowest, _MOST_NAMES)
        slowness = f"; slowest step: {who}, {_bound(slow)}{brief(_step_s(slow), 's')}, {ratio}"
    if state.is_free:
        return f"{_last_wait(answer)}{slowness}"
    shares = [cycle.waiting for cycle in state.devices]
    least, most = min(shares), max(shares)
    if most - least <= 0.01:
        share = percent(round(most, 2))
        return f"each device waits or is on air {share} of the time{slowness}"
    longest = shares.index(most)
    awaited = state.devices[longest].waits_for
    whom = "" if awaited is None else f", for {names.one(awaited)}"
    return (
        f"{percent(round(least, 2))} ({names.one(shares.index(least))}) to "
        f"{percent(round(most, 2))} ({names.one(longest)}{whom}) of the time{slowness}"
    )


def _last_wait(answer: Answer) -> str:
    """Who waits at free pace: a device that has ended, for messages of others that train on."""
    training, names = answer.training, Names.of(answer.costs)
    longest_s = max(training.last_wait_s)
    if training.seconds is None or longest_s < _SMALL * training.seconds:
        return "nobody waits"
    who = names.one(training.last_wait_s.index(longest_s))
    return (
        "nobody waits until its last step; after it devices await messages of those that train on, "
        f"{who} for {brief(longest_s, 's')}: {brief(sum(training.last_wait_j), 'J')} of all devices"
    )


def _channel(answer: Answer) -> str:
    """How long messages take where all radios are on one channel, if that matters."""
    state, channel_s = answer.costs.steady_state, answer.channel_s
    if state is None or channel_s is None or channel_s < _ALIKE * state.period_s:
        return ""
    return f"{brief(channel_s, 's')} of messages a round, if all radios share one"


def _bound(device: DeviceCosts) -> str:
    """What stands before a time of computing: peak rates are a bound, measured times are none."""
    assert device.time is not None, "asked of fleets with clocks"
    return "" if device.time.is_by_layers else "at least "


def _step_s(device: DeviceCosts) -> float:
    assert device.time is not None, "asked of fleets with clocks"
    return device.time.roofline_s


def _sends(answer: Answer) -> str:
    names, sent = Names.of(answer.costs), answer.training.sent_bytes
    least, most = min(sent), max(sent)
    message = f"messages of {brief(answer.costs.message.encoded.total, 'MB')}"
    each = f"{brief(most, 'MB')} a device in all"
    if least * _ALIKE < most:
        each = (
            f"{brief(least, 'MB')} to {brief(most, 'MB')} a device in all "
            f"(most {names.one(sent.index(most))})"
        )
    together = f", {brief(sum(sent), 'MB')} together" if len(sent) > 1 else ""
    return f"{each}{together}, in {message}"


def _energy(answer: Answer) -> str:
    energies, names = answer.training.energy_j, Names.of(answer.costs)
    table = answer.costs.energy_table
    by = "devices' powers" if table == "profile" else f"the prices of {table}"
    if answer.costs.steady_state is None:
        by = f"{table}, for arithmetic and memory traffic alone"
    total, most = sum(energies), max(energies)
    if len(energies) == 1:
        return f"{joules(total)} in all, by {by}"
    if min(energies) * _ALIKE >= most:
        return f"{joules(most)} a device, {brief(total, 'J')} in all, by {by}"
    who = names.one(energies.index(most))
    return f"{joules(total)} in all, by {by}; most {who}, {brief(most, 'J')}"


def _no_change(answer: Answer) -> str:
    """Why no change is named, where none is."""
    advice = answer.advice
    if advice is None or advice.changes:
        return ""
    if not advice.num_tried and answer.limit == "trace":
        return "none makes rounds shorter: the contact trace says how long they last"
    tried = f"{advice.num_tried} changed scenarios were tried"
    if advice.goal == "fit":
        return f"{tried}, and none fits: take devices with more memory, or a smaller model"
    return f"{tried}, and none helps {_GOALS[advice.goal]}"


def _figures(change: Change) -> tuple[str, ...]:
    """What a changed scenario costs: time, memory, bytes of a device, energy of all, batteries."""
    training, needed = change.training, change.costs.heaviest.faithful_memory.total
    worst = max((life.used for life in training.lives), default=0.0)
    return (
        "?" if training.seconds is None else brief(training.seconds, "s"),
        brief(needed, "MiB"),
        brief(max(training.sent_bytes), "MB"),
        brief(sum(training.energy_j), "J"),
        share_used(worst, 2),
    )


def _words(answer: Answer, change: Change) -> str:
    candidate, names = change.candidate, Names.of(answer.costs)
    if candidate.wider is not None:
        sender, receiver, bps = candidate.wider
        return f"{names.link(sender, receiver)} at {plain(bps / 1e6)} Mbit/s"
    whom = f" ({names.some(candidate.whom, _MOST_NAMES)})" if candidate.whom else ""
    return " ".join(candidate.settings) + whom
