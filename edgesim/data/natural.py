"""Natural partitions: by owner of the samples, or by a file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
from numpy.typing import NDArray

from edgesim.data.errors import PartitionError

Shards = list[NDArray[np.int64]]


def by_owner(column_of: Callable[[str], NDArray[Any]], column: str, num_devices: int) -> Shards:
    """Each device has the samples of its owner: of a person, a place, a sensor.

    Owners are sorted and dealt in turn: owner k, from 0, to device k modulo the number of devices.

    Args:
        column_of: gives a column of the dataset, shape (N,), of one type that can be sorted.
        column: name of that with the owner of each sample.
        num_devices: at most as many as there are owners.

    Raises:
        PartitionError: there are fewer owners than devices.
    """
    names, place = np.unique(column_of(column), return_inverse=True)
    if len(names) < num_devices:
        raise PartitionError(
            f"fleet.devices is {num_devices}, but data.partition.column has only {len(names)} "
            "owners; lower it"
        )
    device = place.reshape(-1) % num_devices
    return [np.flatnonzero(device == number) for number in range(num_devices)]


def by_file(path: str, num_samples: int, num_devices: int) -> Shards:
    """A file says which device has which sample; the order of its rows does not matter.

    Args:
        path: CSV or Parquet file with the columns sample and device, numbers from 0.
        num_samples: of the training split.
        num_devices: of the fleet.

    Raises:
        PartitionError: the file can't be read, names what is not there, gives a sample to two
            devices, or leaves a device without samples.
    """
    where = f"data.partition.path: {path}"
    try:
        is_parquet = Path(path).suffix == ".parquet"
        table = pq.read_table(path) if is_parquet else pa_csv.read_csv(path)
    except (OSError, pa.ArrowException) as error:
        raise PartitionError(f"{where} can't be read: {error}") from error
    samples, devices = (
        _numbers(where, table, name, end)
        for name, end in (("sample", num_samples), ("device", num_devices))
    )
    numbers, counts = np.unique(samples, return_counts=True)
    if len(numbers) < len(samples):
        twice = numbers[counts > 1][0]
        raise PartitionError(f"{where} names sample {twice} twice; each sample goes to one device")
    shards = [np.sort(samples[devices == number]) for number in range(num_devices)]
    for number, shard in enumerate(shards):
        if not len(shard):
            raise PartitionError(f"{where} gives device {number} no sample; give it at least one")
    return shards


def _numbers(where: str, table: pa.Table, name: str, end: int) -> NDArray[np.int64]:
    """A column of numbers from 0 to end - 1."""
    if name not in table.column_names:
        there = ", ".join(table.column_names)
        raise PartitionError(f"{where} has the columns {there}; it must have sample and device")
    column = table[name]
    if not pa.types.is_integer(column.type) or column.null_count:
        raise PartitionError(f"{where}: {name} must hold a whole number in each row")
    numbers = column.to_numpy().astype(np.int64)
    if outside := [int(number) for number in numbers if not 0 <= number < end][:1]:
        raise PartitionError(
            f"{where}: {name} {outside[0]} does not exist; numbers go from 0 to {end - 1}"
        )
    result: NDArray[np.int64] = numbers
    return result
