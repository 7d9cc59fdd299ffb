"""Models in the directory of a run: those that wait to be evaluated, and the final ones."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from math import isnan, nan
from shlex import quote
from typing import TYPE_CHECKING, Any, Literal

import torch

from edgesim.results.run_files import REMEDY, RunDirectoryError, RunFiles, number_of
from edgesim.results.snapshot import Snapshot
from edgesim.storage.state_tree import Packed
from edgesim.storage.store import StorageError

if TYPE_CHECKING:
    from numpy.typing import NDArray

_GOSSIP = "gossip"  # of a model's file: the state of its gossip algorithm


class RunModels(RunFiles):
    """Readers and writers of the models of one run; `RunDirectory` says what they raise."""

    def write_snapshot(self, snapshot: Snapshot) -> None:
        """Write a model that waits to be evaluated."""
        time_s = nan if snapshot.virtual_time_s is None else snapshot.virtual_time_s
        arrays = {
            "device": snapshot.device,
            "round_index": snapshot.round_index,
            "rounds_done": snapshot.rounds_done,
            "x": snapshot.x.cpu().numpy(),
            "u": snapshot.u,
            "buffers": snapshot.buffers.cpu().numpy(),
            "virtual_time_s": time_s,
            "gone": snapshot.gone or "",
            "sent_bytes": -1 if snapshot.sent_bytes is None else snapshot.sent_bytes,
            "energy_j": nan if snapshot.energy_j is None else snapshot.energy_j,
        }
        if snapshot.gossip is not None:
            arrays |= {_GOSSIP: json.dumps(snapshot.gossip.content), **snapshot.gossip.arrays}
        name = _snapshot_name(snapshot.round_index, f"{snapshot.device:06d}")
        self.write_arrays(name, arrays)

    def has_snapshots(self, round_index: int, num_devices: int) -> bool:
        """Whether the models of all devices after `round_index` rounds are there."""
        return not self._missing_snapshots(round_index, num_devices)

    def refuse_missing_snapshots(self, round_index: int, num_devices: int) -> None:
        """Raise an error that names the missing models after `round_index` rounds.

        Raises:
            RunDirectoryError: always.
        """
        first, *others = self._missing_snapshots(round_index, num_devices)
        and_others = f" and {len(others)} like it" if others else ""
        raise RunDirectoryError(
            f"{self.place}/{first}{and_others}: missing: evaluation {round_index} can't be made; "
            f"bring it back from a copy, or let `edgesim resume {quote(self.place)}` train it again"
        )

    def _missing_snapshots(self, round_index: int, num_devices: int) -> list[str]:
        """Names of the models after `round_index` rounds that are not there."""
        there = set(self._store.names(_snapshot_name(round_index, "*")))
        wanted = (_snapshot_name(round_index, f"{device:06d}") for device in range(num_devices))
        return [name for name in wanted if name not in there]

    def read_snapshot(self, round_index: int, device: int) -> Snapshot:
        """Read the model of a device that waits to be evaluated."""
        name = _snapshot_name(round_index, f"{device:06d}")
        return self._read_model(name, name)

    def read_final_model(self, round_index: int, device: int) -> Snapshot:
        """Read the model of the last round, whether or not it was moved to models/ already."""
        return self._read_model(*self._names_of_final_model(round_index, device))

    def rounds_of_final_model(self, round_index: int, device: int) -> int:
        """Rounds that a device has done by its model of the last round, which is checked.

        It is read in a fifth of the time of the whole model.
        """
        names = self._names_of_final_model(round_index, device)
        return int(self.read_arrays(*names, only=("rounds_done",))["rounds_done"])

    def _names_of_final_model(self, round_index: int, device: int) -> tuple[str, str]:
        """Where the model of the last round is, and where it was written."""
        name = _snapshot_name(round_index, f"{device:06d}")
        return name if self.has(name) else _final_model_name(device), name

    def check_final_model(self, device: int) -> None:
        """Make sure that the final model of a device is there and sound.

        Raises:
            RunDirectoryError: the model is missing or damaged.
        """
        name = _final_model_name(device)
        if not self.has(name):
            raise RunDirectoryError(f"{self.place}/{name}: missing; {REMEDY}")
        self.read_final_model_arrays(name)

    def check_model(self, round_index: int, device: int) -> None:
        """Make sure that the model of a device for an evaluation is there and sound.

        Raises:
            RunDirectoryError: the model is missing or damaged.
        """
        name = _snapshot_name(round_index, f"{device:06d}")
        if self.has(name):
            try:
                self.read(name)
            except StorageError:
                if self.has(name):
                    raise
                # The monitor has evaluated it meanwhile, and removed it.
            else:
                return
        if self.has(kept := _final_model_name(device)):
            self.read(kept, name)
        else:
            raise RunDirectoryError(f"{self.place}/{name}: missing")

    def _read_model(self, name: str, first_name: str) -> Snapshot:
        arrays = self.read_arrays(name, first_name)
        virtual_time_s = float(arrays["virtual_time_s"])
        # Earlier versions lack what the device had sent and spent.
        sent_bytes, energy_j = int(arrays.get("sent_bytes", -1)), float(arrays.get("energy_j", nan))
        return Snapshot(
            device=int(arrays["device"]),
            round_index=int(arrays["round_index"]),
            rounds_done=int(arrays["rounds_done"]),
            x=torch.from_numpy(arrays["x"]),
            u=float(arrays["u"]),
            buffers=torch.from_numpy(arrays["buffers"]),
            virtual_time_s=None if isnan(virtual_time_s) else virtual_time_s,
            gone=_gone(str(arrays["gone"])),
            gossip=_gossip(arrays),
            sent_bytes=None if sent_bytes < 0 else sent_bytes,
            energy_j=None if isnan(energy_j) else energy_j,
        )

    def drop_snapshots(self, round_index: int) -> None:
        """Remove the models of an evaluation."""
        self._store.delete(self.own_names(_snapshot_name(round_index, "*")))

    def keep_final_models(self, round_index: int, *, with_gossip: bool = False) -> None:
        """Move the models of the last round to models/device-<index>.npz; remove snapshots/.

        Args:
            round_index: number of the last evaluation.
            with_gossip: whether its snapshots hold states of gossip, which are left out then.
        """
        names = self.own_names(_snapshot_name(round_index, "*"))
        for name in names if with_gossip else ():
            snapshot = self._read_model(name, name)
            self.write_snapshot(replace(snapshot, gossip=None))
        self._store.move({name: _final_model_name(number_of(name)) for name in names})
        self._store.delete_tree("snapshots")


def _gone(word: str) -> Literal["died", "left"] | None:
    """Why a device has gone, from the word in its model's file."""
    return "died" if word == "died" else "left" if word == "left" else None


def _gossip(arrays: Mapping[str, NDArray[Any]]) -> Packed | None:
    """State of the gossip algorithm in a model's file, if it has one."""
    if _GOSSIP not in arrays:
        return None
    vectors = {name: array for name, array in arrays.items() if name.startswith(f"{_GOSSIP}/")}
    return Packed(json.loads(str(arrays[_GOSSIP])), vectors)


def _snapshot_name(round_index: int, device: str) -> str:
    return f"snapshots/round-{round_index:09d}-device-{device}.npz"


def _final_model_name(device: int) -> str:
    return f"models/device-{device:06d}.npz"
