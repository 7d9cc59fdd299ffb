"""A run directory in memory, with the meaning of the real one, that can fail at any write."""

from __future__ import annotations

from dataclasses import asdict

from edgesim.results.columns import WALL_COLUMNS


class CrashError(BaseException):
    """The process ends here, as by `kill -9`."""


class MemoryArchive:
    """Shared by all hosts of a fleet, as a disk would be.

    Attributes:
        crash_before, crash_after: writes, by number from 1, at which the process dies.
        crash_in_drop: likewise, before a file is removed.
    """

    def __init__(self):
        self.parts = {}
        self.snapshots = {}
        self.checkpoints = {}
        self.since_damage = {}
        self.num_writes = 0
        self.crash_before, self.crash_after = set(), set()
        self.num_drops, self.crash_in_drop = 0, set()

    def _write(self, do):
        self.num_writes += 1
        number = self.num_writes
        if number in self.crash_before:
            raise CrashError
        do()
        if number in self.crash_after:
            raise CrashError

    def write_rounds(self, device, reports):
        key = device, reports[0].round.round
        rows = [asdict(report.round) for report in reports]
        messages = [asdict(message) for report in reports for message in report.messages]
        self._write(lambda: self.parts.__setitem__(key, (rows, messages)))

    def write_snapshot(self, snapshot):
        key = snapshot.round_index, snapshot.device
        self._write(lambda: self.snapshots.__setitem__(key, snapshot))

    def write_checkpoint(self, device, round_index, data):
        def do():
            self.checkpoints.setdefault(device, {})[round_index] = data
            self.since_damage[device] = self.since_damage.get(device, 0) + 1

        self._write(do)

    def checkpoint_rounds(self, device):
        return sorted(self.checkpoints.get(device, {}))

    def read_checkpoint(self, device, round_index):
        return self.checkpoints[device][round_index]

    def drop_checkpoints(self, device, rounds):
        own = self.checkpoints.get(device, {})
        for round_index in rounds:
            if round_index in own:
                self._drop(own, round_index)

    def drop_parts_from(self, device, round_index):
        for key in [key for key in self.parts if key[0] == device and key[1] >= round_index]:
            self._drop(self.parts, key)

    def _drop(self, files, name):
        self.num_drops += 1
        if self.num_drops in self.crash_in_drop:
            raise CrashError
        del files[name]

    def checkpoint_place(self, device, round_index):
        return f"{device}/{round_index}"

    def check_records(self, device, round_index, num_rows, evaluations):
        parts = [
            part for key, part in self.parts.items() if key[0] == device and key[1] < round_index
        ]
        assert sum(len(rows) for rows, _ in parts) == num_rows
        for rows, messages in parts:
            assert sum(row["messages_sent"] for row in rows) == len(messages)
        assert all((evaluation, device) in self.snapshots for evaluation in evaluations)

    def damage_newest(self, device, random):
        """Flip a bit of a device's newest checkpoint, if the one before it can stand in for it."""
        rounds = self.checkpoint_rounds(device)
        if not rounds or self.since_damage.get(device, 0) < 2:
            return False
        self.since_damage[device] = 0
        data = bytearray(self.checkpoints[device][rounds[-1]])
        if random.random() < 0.3:
            del data[random.randrange(len(data)) :]
        else:
            data[random.randrange(len(data))] ^= 1 << random.randrange(8)
        self.checkpoints[device][rounds[-1]] = bytes(data)
        return True

    def outcome(self):
        """All that must be the same bits however the run went."""
        rows = sorted(
            (row["device"], row["round"], repr(_without_wall_times(row)))
            for part, _ in self.parts.values()
            for row in part
        )
        messages = sorted(repr(m) for _, part in self.parts.values() for m in part)
        models = {
            key: (s.x.numpy().tobytes(), s.u, s.buffers.numpy().tobytes(), s.virtual_time_s, s.gone)
            for key, s in sorted(self.snapshots.items())
        }
        return {"rounds": rows, "messages": messages, "models": models}


def _without_wall_times(row):
    return {name: value for name, value in row.items() if name not in WALL_COLUMNS}
