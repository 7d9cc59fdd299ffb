"""A real fleet beside the virtual clock's prediction: rounds a minute, and order of arrivals.

    edgesim calibrate --out machine.yaml
    python benchmarks/reality.py machine.yaml
    python benchmarks/reality.py --calibrate 2

A device is a process on a share of a core, in a network namespace whose uplink has a rate. It
trains with `edgesim.gossip_around`, over gloo and TCP. The clock gets the scenario of the same
fleet, with the profile of the machine scaled to each share (reality_scenario.py), or with one that
each device has measured in its own place (reality_calibration.py). It needs root on Linux, and
removes what it made also after Ctrl-C.

Messages have the bytes that the emulator counts. TCP, IP and Ethernet add 66 bytes to each 1448,
which the links' rates leave out: an uplink carries its rate of payload. gloo adds two notices to a
message, and acknowledgements take about 2 % of the way back.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, median
from typing import Any

from arrival_order import OrderAgreement, compare_orders, offsets
from confinement import ConfinedFleet, ConfinementError, check, ends_on_sigterm
from predicted_rounds import Arrivals, Edge, Prediction, predict
from reality_calibration import calibrate_in_place
from reality_scenario import SHAPES, Shape, machine_profile, of_share, write_scenario
from rich.console import Console
from rich.table import Table

from edgesim.errors import EdgesimError

BAR = 0.15
TIE = 0.05  # of a round: arrivals that are predicted closer together have no order
PIECE_BYTES = 65_536  # that Linux hands to an uplink at once; connections take turns
WARM_UP_ROUNDS = 5
START_S = 120.0  # until the slowest process has begun to train
DEVICE = Path(__file__).with_name("reality_device.py")


@dataclass(frozen=True, slots=True)
class DeviceTimes:
    """What one process wrote down.

    Attributes:
        starts_s: of each round.
        steps_s: forward and backward pass, on the wall.
        rounds_s: whole rounds.
        step_s: processor time of forward and backward pass.
        processor_s: processor time of the round, of all threads.
        arrivals_s: of the messages of each neighbour.
    """

    starts_s: list[float]
    steps_s: list[float]
    rounds_s: list[float]
    step_s: list[float]
    processor_s: list[float]
    arrivals_s: dict[int, list[float]]

    @property
    def num_rounds(self) -> int:
        """Rounds that are completed."""
        return len(self.starts_s)


def read_times(text: str) -> DeviceTimes:
    """Times of the lines that a process has written so far; the last one may be cut."""
    times = DeviceTimes([], [], [], [], [], {})
    for line in text.splitlines(keepends=True):
        if not line.endswith("\n"):
            break
        kind, *words = line.split()
        if kind == "a":
            times.arrivals_s.setdefault(int(words[0]), []).append(float(words[1]))
            continue
        start_s, step_end_s, end_s, step_s, processor_s = map(float, words[1:])
        times.starts_s.append(start_s)
        times.steps_s.append(step_end_s - start_s)
        times.rounds_s.append(end_s - start_s)
        times.step_s.append(step_s)
        times.processor_s.append(processor_s)
    return times


@dataclass(frozen=True, slots=True)
class Outcome:
    """A fleet, as predicted and as it was.

    Attributes:
        predicted: by the calibrated profile.
        given_steps: by the same clock, with the processor time that the steps took.
        round_s: measured, mean over rounds and devices.
        num_rounds: that were measured.
        processor_s: of a round of each device, median.
        arrivals: as measured.
        order: measured arrivals beside those of `given_steps`.
        in_pieces: the same clock, but pieces of a step's messages leave in turn, as TCP sends them.
        order_in_pieces: measured arrivals beside those.
        step_s: processor time of forward and backward pass of each device, median.
    """

    predicted: Prediction
    given_steps: Prediction
    round_s: float
    num_rounds: int
    processor_s: list[float]
    arrivals: Arrivals
    order: OrderAgreement
    in_pieces: Prediction
    order_in_pieces: OrderAgreement
    step_s: list[float]

    @property
    def deviation(self) -> float:
        """Measured rounds a minute over predicted ones, less 1."""
        return self.predicted.round_s / self.round_s - 1


def run_fleet(shape: Shape, folder: Path, seconds: float) -> list[DeviceTimes]:
    """Run the real fleet for so many seconds after its warm-up.

    Raises:
        ConfinementError: it does not start, or a process fails.
    """
    shares = [seat.share for seat in shape.seats]
    with ConfinedFleet(shares, [seat.uplink_mbps for seat in shape.seats]) as fleet:
        devices = range(len(shares))
        written = {
            "master": fleet.address(0),
            "cores": [fleet.core(d) for d in devices],
            "entrances": [str(fleet.entrance(d)) for d in devices],
        }
        (folder / "fleet.json").write_text(json.dumps(written))
        for device in devices:
            fleet.start(
                device,
                [sys.executable, str(DEVICE), str(folder), str(device)],
                folder / f"log-{device}.txt",
                GLOO_SOCKET_IFNAME=fleet.interface(),
                OMP_NUM_THREADS="1",
            )
        deadline_s = time.monotonic() + START_S
        while min(t.num_rounds for t in _times(folder, devices)) < WARM_UP_ROUNDS:
            if time.monotonic() > deadline_s:
                raise ConfinementError(f"no {WARM_UP_ROUNDS} rounds in {START_S:.0f} s")
            _pause(fleet, folder, 0.5)
        deadline_s = time.monotonic() + seconds
        while time.monotonic() < deadline_s:
            _pause(fleet, folder, min(1.0, max(0.0, deadline_s - time.monotonic())))
    return _times(folder, devices)


def _pause(fleet: ConfinedFleet, folder: Path, seconds: float) -> None:
    """Sleep, unless a process has failed."""
    for device in fleet.ended():
        said = (folder / f"log-{device}.txt").read_text().strip().splitlines()
        raise ConfinementError(f"device {device} ended: {said[-1] if said else 'it said nothing'}")
    time.sleep(seconds)


def _times(folder: Path, devices: Sequence[int]) -> list[DeviceTimes]:
    paths = [folder / f"times-{device}.txt" for device in devices]
    return [read_times(path.read_text() if path.exists() else "") for path in paths]


def measured_arrivals(
    times: Sequence[DeviceTimes], edges: Sequence[Edge], rounds: range
) -> Arrivals:
    """Arrivals of some rounds, by edge."""
    return {(j, i): times[i].arrivals_s[j][rounds.start : rounds.stop] for j, i in edges}


def judge(shape: Shape, scenario: Path, times: Sequence[DeviceTimes]) -> Outcome:
    """Set what was measured beside what the clock says.

    Raises:
        ConfinementError: there are too few rounds.
    """
    rounds = range(WARM_UP_ROUNDS, min(each.num_rounds for each in times))
    if len(rounds) < 2:
        raise ConfinementError(f"{len(rounds)} rounds were measured; give more --seconds")
    first, last = rounds.start, rounds.stop - 1
    round_s = mean((t.starts_s[last] - t.starts_s[first]) / (last - first) for t in times)
    processor_s = [median(t.processor_s[first:last]) for t in times]
    predicted = predict(scenario, 12)
    on_share_s = [p / seat.share for p, seat in zip(processor_s, shape.seats, strict=True)]
    given_steps = predict(scenario, 12, on_share_s)
    arrivals = measured_arrivals(times, shape.edges, rounds)
    in_pieces = predict(scenario, 12, on_share_s, piece_bytes=PIECE_BYTES)
    tie_s = TIE * given_steps.round_s
    return Outcome(
        predicted=predicted,
        given_steps=given_steps,
        round_s=round_s,
        num_rounds=len(rounds),
        processor_s=processor_s,
        arrivals=arrivals,
        order=compare_orders(given_steps.arrivals, arrivals, tie_s),
        in_pieces=in_pieces,
        order_in_pieces=compare_orders(in_pieces.arrivals, arrivals, tie_s),
        step_s=[median(t.step_s[first:last]) for t in times],
    )


def record(
    name: str, shape: Shape, precision: str, outcome: Outcome, *, in_place: bool
) -> dict[str, Any]:
    """Figures of a fleet, for JSON."""
    predicted = outcome.predicted
    return {
        "shape": name,
        "precision": precision,
        "model": shape.model,
        "batch": shape.batch,
        "keep": shape.keep,
        "calibrated": "by each device in its place" if in_place else "alone on the machine",
        "shares": [seat.share for seat in shape.seats],
        "uplinks_mbps": [seat.uplink_mbps for seat in shape.seats],
        "message_bytes": predicted.message_bytes,
        "num_rounds": outcome.num_rounds,
        "rounds_per_minute": {
            "predicted": _digits(60 / predicted.round_s),
            "measured": _digits(60 / outcome.round_s),
            "given_measured_steps": _digits(60 / outcome.given_steps.round_s),
        },
        "deviation": _digits(outcome.deviation),
        "processor_ms": {
            "predicted": [
                _digits(1e3 * s * seat.share)
                for s, seat in zip(predicted.compute_s, shape.seats, strict=True)
            ],
            "measured": [_digits(1e3 * s) for s in outcome.processor_s],
            "measured_passes_alone": [_digits(1e3 * s) for s in outcome.step_s],
        },
        "order": _of_order(outcome.order),
        "order_in_pieces": _of_order(outcome.order_in_pieces),
        "arrivals_ms": {  # in a round, after its first
            key: {f"{j}->{i}": _digits(1e3 * s) for (j, i), s in offsets(times).items()}
            for key, times in (
                ("predicted", predicted.arrivals),
                ("given_measured_steps", outcome.given_steps.arrivals),
                ("in_pieces", outcome.in_pieces.arrivals),
                ("measured", outcome.arrivals),
            )
        },
    }


def _of_order(order: OrderAgreement) -> dict[str, float]:
    agreement = _digits(order.share)
    return {"agreement": agreement, "pairs": order.num_pairs, "ties": order.num_ties}


def _digits(value: float) -> float:
    return float(f"{value:.4g}")


def show(records: Sequence[dict[str, Any]]) -> None:
    """Print the table of rounds, and the arrivals of each fleet."""
    console = Console(width=120)
    table = Table(title="Rounds a minute, and pairs of arrivals in the predicted order")
    columns = (
        "fleet",
        "",
        "predicted",
        "measured",
        "off",
        "given steps",
        "order",
        "in pieces",
        "rounds",
    )
    for column in columns:
        table.add_column(column)
    for each in records:
        rate, deviation = each["rounds_per_minute"], each["deviation"]
        table.add_row(
            each["shape"],
            f"{each['model']} {each['precision']}, batch {each['batch']}",
            f"{rate['predicted']:.1f}",
            f"{rate['measured']:.1f}",
            f"{100 * deviation:+.0f} %{'' if abs(deviation) <= BAR else ' *'}",
            f"{rate['given_measured_steps']:.1f}",
            f"{100 * each['order']['agreement']:.0f} %",
            f"{100 * each['order_in_pieces']['agreement']:.0f} %",
            str(each["num_rounds"]),
        )
    console.print(table)
    console.print(f"* more than {BAR:.0%} off; off: predicted over measured length of a round - 1")
    console.print("given steps: by the clock, with the processor time that rounds took")
    console.print(
        "order, in pieces: arrivals in the order of that clock; of one whose messages mix"
    )
    for each in records:
        arrivals = each["arrivals_ms"]
        console.print(f"\n{each['shape']} {each['precision']}, ms after a round's first arrival:")
        for edge, was in arrivals["measured"].items():
            clock, pieces = arrivals["given_measured_steps"][edge], arrivals["in_pieces"][edge]
            console.print(f"  {edge}  was {was:7.1f}  clock {clock:7.1f}  in pieces {pieces:7.1f}")
        for what, times in each["processor_ms"].items():
            console.print(f"  processor ms of a round, {what.replace('_', ' ')}: {times}")


def arguments_of(given: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument(
        "profile", type=Path, nargs="?", help="file of `edgesim calibrate --out`, of a whole core"
    )
    source.add_argument(
        "--calibrate",
        type=int,
        metavar="ROUNDS",
        help="instead: let each device measure itself in its place, in so many turns or more",
    )
    parser.add_argument("--shapes", nargs="+", choices=SHAPES, default=list(SHAPES))
    parser.add_argument("--precisions", nargs="+", choices=("fp32", "int8"), default=["fp32"])
    parser.add_argument("--seconds", type=float, default=60.0, help="that count, of a fleet")
    parser.add_argument("--json", type=Path, help="write all figures to this file")
    arguments = parser.parse_args(given)
    if arguments.calibrate is not None and arguments.calibrate < 1:
        parser.error(f"--calibrate {arguments.calibrate}: must be at least 1")
    return arguments


def _profiles(shape: Shape, machine: dict[str, Any] | None, rounds: int) -> list[dict[str, Any]]:
    """Of the share of each device."""
    if machine is not None:
        return [of_share(machine, seat.share) for seat in shape.seats]
    with tempfile.TemporaryDirectory() as place:
        return calibrate_in_place(shape, Path(place), rounds)


def main() -> int:
    """Run the fleets one after the other, and print the tables."""
    arguments, records = arguments_of(), []
    try:
        check()
        machine = None if arguments.profile is None else machine_profile(arguments.profile)
        for name in arguments.shapes:
            shape = SHAPES[name]
            profiles = _profiles(shape, machine, arguments.calibrate)
            for precision in arguments.precisions:
                with tempfile.TemporaryDirectory() as place:
                    folder = Path(place)
                    scenario = write_scenario(shape, profiles, folder, precision=precision)
                    times = run_fleet(shape, folder, arguments.seconds)
                    outcome = judge(shape, scenario, times)
                in_place = machine is None
                records.append(record(name, shape, precision, outcome, in_place=in_place))
                rate = records[-1]["rounds_per_minute"]
                print(f"{name} {precision}: {rate}", flush=True)
                if arguments.json:
                    arguments.json.write_text(json.dumps(records, indent=1) + "\n")
    except (ConfinementError, EdgesimError) as error:
        print(f"reality.py: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("reality.py: interrupted", file=sys.stderr)
        return 130
    show(records)
    return 0


if __name__ == "__main__":
    with ends_on_sigterm():
        sys.exit(main())
