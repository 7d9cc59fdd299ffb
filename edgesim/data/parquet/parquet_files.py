"""Finds and opens Parquet files in the layout of the Hugging Face hub.

A split is one file (`train.parquet`), several (`train-00000-of-00002.parquet`) or a folder of them,
in the dataset's folder or in one below it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from edgesim.data.errors import DataError
from edgesim.data.folders import files_in

TEST_NAMES = ("test", "validation", "valid", "val")
_OF_SEVERAL = re.compile(r"(.*-)([0-9]{5})-of-([0-9]{5})")


def find_splits(folder: Path) -> dict[str, list[Path]] | None:
    """Files of "train" and "test", in the folder or in the one below it that has both."""
    if not folder.is_dir():
        return None
    if (splits := _splits_in(folder)) is not None:
        return splits
    below = [s for f in sorted(folder.iterdir()) if f.is_dir() and (s := _splits_in(f)) is not None]
    if len(below) > 1:
        names = " and ".join(splits["train"][0].parent.name for splits in below[:2])
        raise DataError(f"data.path: {folder} has Parquet files in {names}; give one of them")
    return below[0] if below else None


def _splits_in(folder: Path) -> dict[str, list[Path]] | None:
    train = _split_files(folder, "train")
    test = next((files for name in TEST_NAMES if (files := _split_files(folder, name))), [])
    return {"train": train, "test": test} if train and test else None


def _split_files(folder: Path, split: str) -> list[Path]:
    name = re.compile(rf"{split}([-_.].*)?\.parquet")
    files = [path for path in files_in(folder, ".parquet") if name.fullmatch(path.name)]
    files = files or files_in(folder / split, ".parquet")
    _check_all_there(files)
    return files


def _check_all_there(files: Sequence[Path]) -> None:
    """Refuse files whose names count more of them than there are, as after half a download.

    Each may end in a fingerprint of its own.

    Raises:
        DataError: one is missing; the message says which.
    """
    counted = [match.groups() for path in files if (match := _OF_SEVERAL.match(path.name))]
    there = set(counted)
    for before, _, of in counted:
        for number in (f"{place:05}" for place in range(int(of))):
            if (before, number, of) not in there:
                raise DataError(
                    f"{files[0].parent}: {before}{number}-of-{of} is missing beside "
                    f"{files[0].name}; fetch it"
                )


@contextmanager
def reading(path: Path) -> Iterator[pq.ParquetFile]:
    """Open a file; errors while it is read become a `DataError`."""
    try:
        with pq.ParquetFile(path, page_checksum_verification=True) as file:
            yield file
    except DataError:
        raise
    except (pa.ArrowException, OSError, ValueError) as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise DataError(
            f"{path}: not a readable Parquet file ({reason}); fetch it again"
        ) from error
