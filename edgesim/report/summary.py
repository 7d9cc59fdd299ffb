"""A run in a person's units: a few sentences, and the table of its figures."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import PurePath
from typing import Any

from edgesim.assembly.equipment import device_profiles
from edgesim.errors import count
from edgesim.report.activity import ABSENT, ASLEEP, AWAY, away_name
from edgesim.report.evaluated import ALL_SAMPLES, devices_evaluated, test_samples
from edgesim.report.frames import Frame
from edgesim.report.reported_run import ReportedRun
from edgesim.report.run_settings import differing_settings
from edgesim.report.units import data_size, duration, energy, listed, percent
from edgesim.report.waiting import pace_setters, waits
from edgesim.results.columns import GOSSIPED_PREFIX
from edgesim.study.tables.table import Table

_FEW = 64  # devices that have a row each
_MUCH = 0.1  # of the time of a run, that is worth a place in a sentence
_NAMED = 3  # devices or links in a sentence
_UNLIKE = 1.1  # times as long: devices of unlike speed
_ENDS = 8  # of more: the first by each reason
_AWAY_WORDS = {ASLEEP: "sleep", ABSENT: "absences", AWAY: "sleep and absences"}


def in_short(run: ReportedRun, devices: Frame) -> list[str]:
    """What happened, in a few sentences.

    Args:
        run: the run.
        devices: its table of `device_table`.
    """
    return [*_training(run), *_quality(run, devices), *_traffic(run, devices), *_pace(run, devices)]


def _training(run: ReportedRun) -> Iterator[str]:
    settings = run.settings
    rounds = int(run.rounds["round"].max()) + 1
    model, algorithm = settings["model"]["name"], settings["gossip"]["algorithm"]
    precision = settings["model"].get("precision", "fp32")
    file = settings["model"].get("start_from")
    start = f" from the values of {PurePath(file).name}" if file else ""
    yield (
        f"{count(run.num_devices, 'device')} trained {_last_part(model)} in {precision}{start} on "
        f"{_last_part(settings['data']['source'])} with {_last_part(algorithm)} "
        f"for {'up to ' if run.is_free else ''}{count(rounds, 'round')}."
    )


def _last_part(name: object) -> str:
    """One's own part without its folder."""
    text = name if isinstance(name, str) else str(name)
    return text.rsplit("/", 1)[-1]


def _quality(run: ReportedRun, devices: Frame) -> Iterator[str]:
    consensus = run.consensus
    if consensus.empty:
        return
    last = consensus.iloc[-1]
    own = devices["accuracy"].dropna().astype(float)
    if last["accuracy"] is not None and last["accuracy"] == last["accuracy"]:
        right = percent(last["accuracy"])
        text = f"The averaged model classifies {right} of {test_samples(run)} correctly"
        best = consensus["accuracy"].astype(float)
        if best.max() > last["accuracy"] + 0.005:
            at = consensus["round"][best.idxmax()]
            text += f" (its best was {percent(best.max())} in round {at})"
        if len(own):
            some = devices_evaluated(run)
            whose = f"the own models of {some} devices" if some else "devices' own models"
            text += f"; {whose} {percent(own.min())} to {percent(own.max())}"
        yield f"{text}."
    else:
        yield f"The loss of the averaged model is {last['loss']:.4g}."
    yield from _own_samples(run, devices)


def _own_samples(run: ReportedRun, devices: Frame) -> Iterator[str]:
    """How good models are on devices' own held-out samples, where there are such."""
    last = run.consensus.iloc[-1]
    for name in ("own_accuracy", "own_loss"):
        if name not in devices or last[name] != last[name]:
            continue
        text = (
            f"On devices' own held-out samples the averaged model has {_figure(name, last[name])}"
        )
        own = devices.dropna(subset=[name]).sort_values([name, "device"])
        if len(own):
            low, high = (
                f"{_figure(name, row[name])} ({run.device(int(row['device']))})"
                for row in (own.iloc[0], own.iloc[-1])
            )
            text += f", devices' own models from {low} to {high}"
        yield f"{text}."
        return


def _figure(name: str, value: float) -> str:
    return f"{percent(value)} right" if name == "own_accuracy" else f"a loss of {value:.4g}"


def _traffic(run: ReportedRun, devices: Frame) -> Iterator[str]:
    sent, messages = int(devices["sent_bytes"].sum()), int(devices["messages_sent"].sum())
    again = devices["retransmitted_bytes"].sum() if "retransmitted_bytes" in devices else 0
    lost = f"; {data_size(again)} of lost packets were sent again" if again else ""
    first = devices.loc[devices["sent_bytes"].idxmax()]
    by_first, in_mean = data_size(first["sent_bytes"]), data_size(sent / run.num_devices)
    most = ""
    if by_first != in_mean:
        most = f", the most, {by_first}, by {run.device(int(first['device']))}"
    yield (
        f"The fleet sent {data_size(sent)} in {count(messages, 'message')}, "
        f"{in_mean} a device{most}{lost}."
    )
    if run.has_clock:
        spent = devices["energy_j"]
        if not run.is_finished:
            fewest, largest = int(devices["rounds"].min()), int(devices["rounds"].max())
            if fewest < largest:
                yield (
                    f"So far: devices have done {fewest:,} to {largest:,} rounds, and the next "
                    "figures add them up as they are."
                )
        takes = "That takes" if run.is_finished else "That took"
        most = ""
        if energy(spent.max()) != energy(spent.mean()):
            who = run.device(int(devices["device"][spent.idxmax()]))
            most = f"; the most, {energy(spent.max())}, is spent by {who}"
        yield (
            f"{takes} the real fleet {duration(devices['virtual_time_s'].max())} and "
            f"{energy(spent.sum())}{_by_table(run)}{most}."
        )
        if (on := _bounded_boards(run)) is not None:
            yield (
                f"At least that: times and energies of computing{on} are lower bounds, by rates "
                "of processors and not by measured times of layers (docs/calibrate.md)."
            )


def _by_table(run: ReportedRun) -> str:
    """What energies are reckoned by, where it is not the boards' power."""
    table = run.settings["hardware"]["energy_table"]
    return "" if table == "profile" else f" (computing by the energies of operations of {table})"


def _bounded_boards(run: ReportedRun) -> str | None:
    """On which boards computing is a lower bound: empty for all of them, None if on none."""
    profiles = {one.name: one for one in device_profiles(run.scenario)} if run.scenario else {}
    bounds = [name for name, profile in profiles.items() if not profile.layer_times]
    if not bounds:
        return None
    return "" if len(bounds) == len(profiles) else f" on {listed(bounds)}"


def _pace(run: ReportedRun, devices: Frame) -> Iterator[str]:
    """Who is slow, and who waits for whom."""
    if not run.has_clock:
        return
    per_round = devices["step_rounds_s"] / devices["steps"].where(devices["steps"] > 0)
    longest_s, shortest_s = per_round.max(), per_round.min()
    if longest_s > _UNLIKE * shortest_s:
        slow = devices["device"][per_round > longest_s / _UNLIKE]
        names = [run.device(int(device)) for device in slow]
        are, they = ("is", "it computes") if len(slow) == 1 else ("are", "they compute")
        yield (
            f"Slowest {are} {listed(names)}: {they} {duration(longest_s)} a round with a step, "
            f"{longest_s / shortest_s:.3g} times as long as "
            f"{run.device(int(devices['device'][per_round.idxmin()]))}."
        )
    waited = waits(run)
    if waited is None or (waited.empty and not pace_setters(run).trace_s):
        return
    share = devices["virtual_wait_s"].sum() / devices["virtual_time_s"].sum()
    yield f"Devices wait for {percent(share)} of their time."
    if parts := _parts_of_pace(run):
        yield f"What set the pace of the fleet: {parts} of the time."


def _parts_of_pace(run: ReportedRun) -> str:
    """What the critical path consists of; devices and links by name where they stand out."""
    found = pace_setters(run)
    seconds, whole_s = found.links, found.whole_s
    if not whole_s:
        return ""
    steps = {device: own_s for (device, receiver), own_s in seconds.items() if device == receiver}
    kinds = {
        "steps": {run.device(device): own_s for device, own_s in steps.items()},
        "messages": {
            f"{run.labels[sender]} -> {run.labels[receiver]}": own_s
            for (sender, receiver), own_s in seconds.items()
            if sender != receiver
        },
    }
    shares = {
        _AWAY_WORDS[away_name(run)]: (found.away_s / whole_s, ""),
        "the contact trace": (found.trace_s / whole_s, ""),
    }
    for kind, parts in kinds.items():
        much = [f"{who} {percent(s / whole_s)}" for who, s in parts.items() if s > _MUCH * whole_s]
        whose = f" ({', '.join(much[:_NAMED])})" if much else ""
        shares[kind] = sum(parts.values()) / whole_s, whose
    longest_first = sorted(shares.items(), key=lambda item: -item[1][0])
    texts = [f"{kind} {percent(share)}{whose}" for kind, (share, whose) in longest_first if share]
    return ", ".join(texts)


def settings_table(runs: Sequence[ReportedRun]) -> Table | None:
    """Settings that differ between runs; None where all are the same."""
    differing = differing_settings(runs)
    if not differing:
        return None
    rows = tuple((key, *values) for key, values in differing.items())
    return Table("Settings that differ", ("key", *(run.label for run in runs)), rows)


def turned(table: Table) -> Table:
    """A table with its rows as columns."""
    heads = tuple(row[0].strip() for row in table.rows)
    rows = tuple(
        (name, *(row[place + 1] for row in table.rows))
        for place, name in enumerate(table.columns[1:])
    )
    return Table(table.title, (table.columns[0], *heads), rows, table.notes)


def results_table(runs: Sequence[ReportedRun], devices_of_runs: Sequence[Frame]) -> Table:
    """Closing figures, one column a run."""
    columns = [_figures(run, devices) for run, devices in zip(runs, devices_of_runs, strict=True)]
    if len(runs) > 1:  # a single run has it in short
        columns = [
            {**column, "what set the pace": parts} if (parts := _parts_of_pace(run)) else column
            for run, column in zip(runs, columns, strict=True)
        ]
    labels = list(dict.fromkeys(label for column in columns for label in column))
    rows = tuple((label, *(column.get(label, "") for column in columns)) for label in labels)
    heads = ("", *(run.label for run in runs)) if len(runs) > 1 else ("", "")
    return Table("", heads, rows)


def _figures(run: ReportedRun, devices: Frame) -> dict[str, str]:
    found = _qualities(run, devices) if len(run.consensus) else {}
    if (rate := run.run.summary.get("averaging_rate")) is not None:
        found["averaging rate"] = f"{rate:g}"
    found["rounds, most" if run.is_free else "rounds"] = f"{int(run.rounds['round'].max()) + 1:,}"
    if run.run.summary.get("parameters"):
        found["parameters"] = f"{run.run.summary['parameters']:,}"
    found["bytes sent"] = data_size(devices["sent_bytes"].sum())
    found["  by a device, most"] = data_size(devices["sent_bytes"].max())
    if run.has_clock:
        found["virtual time"] = duration(devices["virtual_time_s"].max())
        found |= _energies(devices)
    if (wall_s := run.run.summary.get("wall_s")) is not None:
        found["time of this machine"] = duration(wall_s)
    found["seed"] = str(run.settings["seed"])
    found["files"] = run.place
    return found


def _qualities(run: ReportedRun, devices: Frame) -> dict[str, str]:
    """How good models are in the last evaluation."""
    found: dict[str, str] = {}
    last = run.consensus.iloc[-1]
    if last["accuracy"] is not None and last["accuracy"] == last["accuracy"]:
        found["accuracy of the averaged model"] = percent(last["accuracy"])
    found["loss of the averaged model"] = f"{last['loss']:.4g}"
    if (samples := test_samples(run)) != ALL_SAMPLES:
        found["  evaluated on"] = samples
    own = devices["accuracy"].dropna().astype(float)
    if len(own):
        found["accuracy of devices, mean"] = percent(own.mean())
        found["  worst to best"] = f"{percent(own.min())} to {percent(own.max())}"
        if some := devices_evaluated(run):
            found["  devices evaluated"] = some
    found |= _after_gossip(last, run.settings["evaluation"].get("gossip_rounds"))
    for name, form in (("own_accuracy", percent), ("own_loss", lambda value: f"{value:.4g}")):
        if name in last and last[name] == last[name]:
            label = f"{name.removeprefix('own_')} on devices' own samples"
            found[label] = form(last[name])
            values = devices[name].dropna().astype(float)
            if len(values):
                found[f"  of single devices, {label}"] = (
                    f"{form(values.min())} to {form(values.max())}"
                )
    return found | {"consensus distance": f"{last['consensus_distance']:.4g}"}


def _after_gossip(last: Mapping[str, Any], rounds: int | None) -> dict[str, str]:
    """Accuracy of devices' models after further rounds of gossip; the loss in a task without."""
    for name, form in (("accuracy", percent), ("loss", lambda value: f"{value:.4g}")):
        value = last.get(f"{GOSSIPED_PREFIX}{name}")
        if value is not None and value == value:
            further = count(rounds or 0, "further round")
            return {f"{name} after {further} of gossip, mean": form(value)}
    return {}


def _energies(devices: Frame) -> dict[str, str]:
    """Energy of the fleet by what it was spent on."""
    found = {"energy": energy(devices["energy_j"].sum())}
    parts = {"computing": "compute", "memory": "memory", "radio": "radio", "waiting": "idle"}
    for name, part in parts.items():
        spent_j = devices[f"energy_{part}_j"].sum()
        if part != "memory" or spent_j:  # a board's active power has that of its memory
            found[f"  {name}"] = energy(spent_j)
    return found


def device_rows(run: ReportedRun, devices: Frame) -> Table:
    """What each device used and how it ended; of large fleets those that stand out."""
    shown, notes = devices, list[str]()
    if len(devices) > _FEW:
        shown = _outstanding(devices)
        notes.append(
            f"{len(shown)} of {len(devices):,} devices: those with the most and the least work, "
            "waiting, bytes, energy and accuracy. The data of the figures have all."
        )
    empty = {"asleep_s"} if not shown.get("asleep_s", shown["rounds"]).any() else set()
    empty |= set() if shown["end"].any() else {"end"}
    empty |= {"loss", "own_loss"} if shown["accuracy"].notna().any() else set()
    empty |= {column for column in ("own_accuracy", "own_loss") if not _has(shown, column)}
    columns = [column for column in _COLUMNS if column[1] in shown and column[1] not in empty]
    rows = tuple(
        (run.labels[int(row["device"])], *(_cell(form, row[name]) for _, name, form in columns))
        for _, row in shown.iterrows()
    )
    named = {"asleep_s": away_name(run)}
    heads = ("device", *(named.get(column, head) for head, column, _ in columns))
    return Table("What each device did and used", heads, rows, tuple(notes))


_COLUMNS: tuple[tuple[str, str, Callable[[Any], str]], ...] = (
    ("board", "profile", str),
    ("rounds", "rounds", lambda value: f"{int(value):,}"),
    ("computed", "virtual_compute_s", duration),
    ("waited", "virtual_wait_s", duration),
    ("asleep", "asleep_s", duration),
    ("radio sent", "radio_busy_s", duration),
    ("sent", "sent_bytes", data_size),
    ("received", "received_bytes", data_size),
    ("energy", "energy_j", energy),
    ("charge left", "charge_left_j", energy),
    ("accuracy", "accuracy", percent),
    ("loss", "loss", lambda value: f"{value:.4g}"),
    ("accuracy on own samples", "own_accuracy", percent),
    ("loss on own samples", "own_loss", lambda value: f"{value:.4g}"),
    ("at the end", "end", str),
)


def _has(table: Frame, column: str) -> bool:
    return column in table and bool(table[column].notna().any())


def _cell(form: Callable[[Any], str], value: Any) -> str:  # noqa: ANN401 (a cell of any column)
    return "" if value is None or value != value else form(value)


def _outstanding(devices: Frame) -> Frame:
    """Devices with the largest and the smallest figures."""
    chosen: set[int] = set()
    for column in ("virtual_compute_s", "virtual_wait_s", "sent_bytes", "energy_j", "accuracy"):
        if column in devices and devices[column].notna().any():
            order = devices.dropna(subset=[column]).sort_values([column, "device"])["device"]
            chosen |= {*order.head(2), *order.tail(2)}
    chosen |= set(devices.loc[~devices["end"].isin(["there", ""]), "device"].head(_ENDS))
    return devices[devices["device"].isin(sorted(chosen))]
