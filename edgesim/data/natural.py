"""Natural partitions: by owner of the samples, or by a file."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any
from unicodedata import normalize

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
from numpy.typing import NDArray

from edgesim.data.errors import PartitionError
from edgesim.errors import device_label, did_you_mean

Shards = list[NDArray[np.int64]]
_COLUMN = "data.partition.column"


def by_owner(
    column_of: Callable[[str], NDArray[Any]],
    column: str,
    num_devices: int,
    device_names: Sequence[str] = (),
) -> Shards:
    """Each device has the samples of its owner: of a person, a place, a sensor.

    Where owners have the names of devices, each device gets its own. Otherwise owners are sorted
    and dealt in turn: owner k, from 0, to device k modulo the number of devices. Letters with
    accents are the same however Unicode composes them.

    Args:
        column_of: gives a column of the dataset, shape (N,): text, numbers or times.
        column: name of that with the owner of each sample.
        num_devices: at most as many as there are owners.
        device_names: by number; empty if devices have only numbers.

    Raises:
        PartitionError: there are fewer owners than devices, a sample has no owner, some owners
            have the name of a device and others have not, or names of an owner and a device differ
            in case or blanks alone.
    """
    owners = column_of(column)
    _check_owners(owners, "training")
    owners = _plain_names(owners)
    names, place = np.unique(owners, return_inverse=True)
    number_of = {plain_name(name): number for number, name in enumerate(device_names)}
    written = list(map(str, names))
    _check_spelling(number_of, written)
    if have_names_of(device_names, owners):
        _check_names(number_of, written)
        numbers = np.array([number_of[name] for name in written])
        return [np.flatnonzero(numbers[place.reshape(-1)] == n) for n in range(num_devices)]
    if len(names) < num_devices:
        raise PartitionError(
            f"fleet.devices is {num_devices}, but {_COLUMN} has only {len(names)} owners; lower it"
        )
    device = place.reshape(-1) % num_devices
    return [np.flatnonzero(device == number) for number in range(num_devices)]


def how_dealt(owners: NDArray[Any], num_devices: int, device_names: Sequence[str] = ()) -> str:
    """How many owners there are, and which device has the samples of which, in words.

    Args:
        owners: of each sample, as `by_owner` takes them.
        num_devices: at most as many as there are owners.
        device_names: by number; empty if devices have only numbers.
    """
    names = np.unique(_plain_names(owners))
    if have_names_of(device_names, owners):
        return f"{len(names):,}, each on the device of its name"
    labels = (device_label(n % num_devices, device_names) for n in range(2))
    first = [f"{name} on {label}" for name, label in zip(names, labels, strict=False)]
    more = ", ..." if len(names) > len(first) else ""
    turns = " in turn" if len(names) > num_devices else ""
    return f"{len(names):,}{turns}, in the order of their names: {', '.join(first)}{more}"


def plain_name(name: object) -> str:
    """A name of a device or an owner in the form in which names are compared."""
    return normalize("NFC", str(name))


def _plain_names(owners: NDArray[Any]) -> NDArray[Any]:
    """Owners in the form in which they are compared; those that are no text stay as they are."""
    if _kind_of(owners) != "text":
        return owners
    names, place = np.unique(owners, return_inverse=True)
    plain = np.array(list(map(plain_name, names)), object if owners.dtype.kind == "O" else None)
    return plain[place.reshape(-1)]


def have_names_of(device_names: Sequence[str], owners: NDArray[Any]) -> bool:
    """Whether one of the owners has the name of a device."""
    names = set(map(plain_name, device_names))
    return any(plain_name(owner) in names for owner in np.unique(owners))


def _check_spelling(devices: Collection[str], owners: Collection[str]) -> None:
    """Refuse an owner whose name is that of a device but for case and blanks around it."""
    by_letters = {device.strip().casefold(): device for device in devices}
    for owner in owners:
        device = by_letters.get(owner.strip().casefold())
        if device is not None and owner not in devices:
            raise PartitionError(
                f"{_COLUMN}: an owner is named {owner!r}, and a device {device!r}; write both "
                "names alike; or, to deal owners in turn, give devices names that no owner has"
            )


def _check_names(devices: Collection[str], owners: Collection[str]) -> None:
    """Refuse a device without samples, and an owner that is no device."""
    if missing := next(iter(sorted(set(devices) - set(owners))), None):
        raise PartitionError(
            f"{_COLUMN}: other devices are named like owners, but no sample is of {missing!r}; add "
            "samples of it, since each device trains, a gateway too; or name no device like an "
            "owner: then owners are dealt out in turn"
        )
    if surplus := next(iter(sorted(set(owners) - set(devices))), None):
        raise PartitionError(
            f"{_COLUMN}: other owners have the names of devices, but no device is named "
            f"{surplus!r}; add it, or leave its samples out"
        )


def held_out_by_owner(
    owners: NDArray[Any], shards: Sequence[NDArray[np.int64]], test_owners: NDArray[Any]
) -> Shards:
    """Give each device the test samples of its owners; test samples of other owners are left out.

    Letters with accents are the same however Unicode composes them.

    Args:
        owners: of each training sample.
        shards: positions of each device's training samples.
        test_owners: of each test sample, of the same type.

    Raises:
        PartitionError: a test sample has no owner, or owners of both splits are of two types.
    """
    _check_owners(test_owners, "test")
    kind, test_kind = (_kind_of(column) for column in (owners, test_owners))
    if kind != test_kind:
        raise PartitionError(
            f"{_COLUMN} names owners of training samples by {kind}, and of test samples by "
            f"{test_kind}; write both alike"
        )
    owners, test_owners = _plain_names(owners), _plain_names(test_owners)
    return [np.flatnonzero(np.isin(test_owners, np.unique(owners[shard]))) for shard in shards]


def _check_owners(owners: NDArray[Any], split: str) -> None:
    """Refuse missing owners, and owners that can't be put in order."""
    if owners.dtype.kind == "O":
        is_missing = np.array([_is_missing(owner) for owner in owners], bool)
    elif owners.dtype.kind in "US":
        is_missing = np.char.str_len(np.char.strip(owners)) == 0
    else:
        is_missing = owners != owners  # NaN, and times that are none
    if is_missing.any():
        raise PartitionError(
            f"{_COLUMN}: {split} sample {is_missing.argmax()} has no owner; name one, or remove "
            "the sample"
        )
    if owners.dtype.kind == "O" and len(types := {type(owner).__name__ for owner in owners}) > 1:
        raise PartitionError(
            f"{_COLUMN} holds {' and '.join(sorted(types))} in {split} samples; give one type"
        )
    if owners.dtype.kind not in "biufSUMO" or isinstance(owners[0], dict | list | np.ndarray):
        raise PartitionError(f"{_COLUMN} must hold text, numbers or times")


def _is_missing(owner: object) -> bool:
    if isinstance(owner, str | bytes):
        return not owner.strip()
    return owner is None or owner != owner  # NaN


def _kind_of(owners: NDArray[Any]) -> str:
    """What owners are named by, in words."""
    if owners.dtype.kind == "O":
        return "text" if isinstance(owners[0], str) else type(owners[0]).__name__
    kinds = {"U": "text", "S": "bytes", "M": "times", "b": "true and false"}
    return kinds.get(owners.dtype.kind, "numbers")


def by_file(
    path: str,
    num_samples: int,
    num_devices: int,
    test_path: str | None = None,
    device_names: Sequence[str] = (),
) -> Shards:
    """A file says which device has which sample; the order of its rows does not matter.

    Args:
        path: CSV or Parquet file with the columns sample, a number from 0, and device, its name, or
            where devices have none a number from 0.
        num_samples: of the training split.
        num_devices: of the fleet.
        test_path: a file like it for test samples: those that are a device's own.
        device_names: by number; empty if devices have only numbers.

    Raises:
        PartitionError: the file can't be read, names what is not there, gives a sample to two
            devices, or leaves a device without samples.
    """
    del test_path  # test samples are dealt by `held_out_by_file`
    return _by_file("path", path, num_samples, num_devices, device_names, may_lack=False)


def held_out_by_file(
    test_path: str, num_samples: int, num_devices: int, device_names: Sequence[str] = ()
) -> Shards:
    """Give each device the test samples that a file says; a device may have none.

    Args:
        test_path: CSV or Parquet file with columns as in `by_file`.
        num_samples: of the test split.
        num_devices: of the fleet.
        device_names: by number; empty if devices have only numbers.

    Raises:
        PartitionError: the file can't be read, names what is not there, or gives a sample to two
            devices.
    """
    return _by_file("test_path", test_path, num_samples, num_devices, device_names, may_lack=True)


def _by_file(
    key: str,
    path: str,
    num_samples: int,
    num_devices: int,
    device_names: Sequence[str],
    *,
    may_lack: bool,
) -> Shards:
    """Read which device has which sample."""
    where = f"data.partition.{key}: {path}"
    try:
        is_parquet = Path(path).suffix == ".parquet"
        table = pq.read_table(path) if is_parquet else _read_csv(path, named=bool(device_names))
    except (OSError, pa.ArrowException) as error:
        if "invalid UTF8" in str(error):
            raise PartitionError(
                f"{where} is not UTF-8 text; save it as UTF-8, as by `iconv -f latin1 -t utf-8`"
            ) from error
        raise PartitionError(f"{where} can't be read: {error}") from error
    samples = _numbers(where, table, "sample", num_samples)
    if device_names:
        devices = _named(where, table, device_names)
    else:
        devices = _numbers(where, table, "device", num_devices)
    numbers, counts = np.unique(samples, return_counts=True)
    if len(numbers) < len(samples):
        twice = numbers[counts > 1][0]
        raise PartitionError(f"{where} names sample {twice} twice; each sample goes to one device")
    shards = [np.sort(samples[devices == number]) for number in range(num_devices)]
    for number, shard in enumerate(shards):
        if not len(shard) and not may_lack:
            label = device_label(number, device_names)
            raise PartitionError(f"{where} gives {label} no sample; give it at least one")
    return shards


def _read_csv(path: str, *, named: bool) -> pa.Table:
    """Columns of a CSV file; names of devices stay as they are written: 007 is no number."""
    types = {"device": pa.string()} if named else {}
    return pa_csv.read_csv(path, convert_options=pa_csv.ConvertOptions(column_types=types))


def _column(where: str, table: pa.Table, name: str) -> pa.ChunkedArray:
    if name not in table.column_names:
        if any(";" in column for column in table.column_names):
            raise PartitionError(f"{where} has semicolons between its columns; write commas")
        there = ", ".join(table.column_names)
        raise PartitionError(f"{where} has the columns {there}; it must have sample and device")
    return table[name]


def _named(where: str, table: pa.Table, names: Sequence[str]) -> NDArray[np.int64]:
    """Numbers of the devices whose names a column holds."""
    column = [plain_name(name) for name in _column(where, table, "device").to_pylist()]
    number_of = {plain_name(name): number for number, name in enumerate(names)}
    for name in column:
        if name not in number_of:
            remedy = did_you_mean(name, names, f"their names are {', '.join(names[:5])}, ...")
            raise PartitionError(f"{where}: no device is named {name!r}; {remedy}")
    return np.array([number_of[name] for name in column], np.int64)


def _numbers(where: str, table: pa.Table, name: str, end: int) -> NDArray[np.int64]:
    """A column of numbers from 0 to end - 1."""
    column = _column(where, table, name)
    if not pa.types.is_integer(column.type) or column.null_count:
        raise PartitionError(f"{where}: {name} must hold a whole number in each row")
    numbers = column.to_numpy()  # maybe unsigned, and then larger than int64 can hold
    is_outside = (numbers < 0) | (numbers >= end)
    if is_outside.any():
        raise PartitionError(
            f"{where}: {name} {numbers[is_outside][0]} does not exist; "
            f"numbers go from 0 to {end - 1}"
        )
    result: NDArray[np.int64] = numbers.astype(np.int64)
    return result
