"""No file of a run is read back as something else than was written, whatever happened to it.

One case is one damaged file, of any kind that a run writes: a flipped bit, a file cut short, or
another one's content. Its reader says so in at most two lines that name it.
"""

from __future__ import annotations

import random
from functools import cache
from tempfile import TemporaryFile

import pyarrow as pa
import tiny_runs

import edgesim
from edgesim.errors import EdgesimError
from edgesim.fleet.recovery.checkpoints import Checkpoints, CheckpointSettings
from edgesim.results.part_merge import Part, merge_parts
from edgesim.results.run_directory import RunDirectory
from edgesim.results.run_files import number_of
from edgesim.storage.lease import Lease, LeaseError
from edgesim.storage.store import Store

NUM_IN_TESTS = 300


def _load(place, name):
    edgesim.load_run(place)


def _open(place, name):
    """Another run's description is sound in itself; then the other files are of another run."""
    try:
        RunDirectory.open_existing(place).read_text("scenario.yaml")
    except EdgesimError as error:
        raise EdgesimError(f"{name}: {error}") from error


def _text(place, name):
    RunDirectory(place).read_text(name)


def _json(place, name):
    RunDirectory(place).read_json(name)


def _table(place, name):
    RunDirectory(place).read_rows(name)


def _part(place, name):
    with TemporaryFile() as file:
        directory = RunDirectory(place)
        parts = [Part(number_of(name), name)]
        merge_parts(parts, directory.read_table, ["round"], pa.schema([]), file)


def _snapshot(place, name):
    RunDirectory(place).read_snapshot(int(name.split("-")[1]), number_of(name))


def _final_model(place, name):
    last = tiny_runs.prepared("lockstep").training.num_rounds
    RunDirectory(place).read_final_model(last, int(name[-10:-4]))


def _checkpoint(place, name):
    directory = RunDirectory(place)
    checkpoints = Checkpoints(directory, CheckpointSettings(directory.run_digest, 1.0), 1)
    checkpoints.envelopes(int(name.split("/")[1][-6:]), number_of(name))


def _lease(place, name):
    """A damaged lease is waited for as any other, or refused; nothing else depends on it."""
    Lease(Store.at(place), still_s=0.002)._await_end()
    raise LeaseError(f"{name}: stood still")  # which is what a lease does that nobody renews


FINISHED = {
    "run.json": _open,
    "scenario.yaml": _text,
    "environment.json": _json,
    "rounds.parquet": _load,
    "messages.parquet": _load,
    "evaluations.parquet": _load,
    "devices.parquet": _load,
    "summary.json": _load,
    "models/device-000000.npz": _final_model,
    "models/device-000001.npz": _final_model,
}
INTERRUPTED = {
    "run.json": _open,
    "scenario.yaml": _text,
    "environment.json": _json,
    "evaluations.parquet": _table,
    "parts/device-000000/rounds-000000000.parquet": _part,
    "parts/device-000001/rounds-000000001.parquet": _part,
    "parts/device-000001/messages-000000001.parquet": _part,
    "snapshots/round-000000004-device-000000.npz": _snapshot,
    "snapshots/round-000000004-device-000001.npz": _snapshot,
    "checkpoints/device-000000/round-000000003.ckpt": _checkpoint,
    "checkpoints/device-000000/round-000000004.ckpt": _checkpoint,
    "leases/000000.json": _lease,
}


@cache
def places():
    """A finished run's folder and an interrupted one's, and the same with another seed."""
    found = []
    for seed in (5, 6):
        interrupted = tiny_runs.interrupted("lockstep", 6, 1, seed=seed)
        (interrupted / "leases").mkdir()
        (interrupted / "leases" / "000000.json").write_bytes(
            b'{"name": "%d", "host": "here", "pid": 1, "renewals": 3}' % seed
        )
        found.append((tiny_runs.finished("lockstep", seed), interrupted))
    return found


def _damaged(data, others, chance):
    """Other content than a file's."""
    match chance.choice(["flip"] * 7 + ["cut", "other", "other"]):
        case "flip":
            changed = bytearray(data)
            changed[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
            return bytes(changed)
        case "cut":
            return data[: chance.randrange(len(data))]
        case _:
            return chance.choice([other for other in others if other != data])


def check(seed):
    """One damaged file."""
    chance = random.Random(seed)
    kind, readers = chance.choice([(0, FINISHED), (1, INTERRUPTED)])
    name = chance.choice(sorted(readers))
    (own, others) = (pair[kind] for pair in places())
    path = own / name
    data = path.read_bytes()
    alike = [p for p in path.parent.glob(f"*{path.suffix}") if p != path]
    damaged = _damaged(
        data, [(others / name).read_bytes(), *(p.read_bytes() for p in alike)], chance
    )
    path.write_bytes(damaged)
    try:
        readers[name](own, name)
    except EdgesimError as error:
        said = str(error)
        assert said.count("\n") <= 1, said
        assert name in said, (name, said)
    else:
        raise AssertionError(f"{name}: was read as if nothing had happened")
    finally:
        path.write_bytes(data)
