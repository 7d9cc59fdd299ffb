"""FEMNIST and Shakespeare in LEAF's JSON files, with the owner of each sample.

    train/*.json, test/*.json: {"users": [...], "user_data": {user: {"x": [...], "y": [...]}}}

Source: S. Caldas et al., LEAF: A Benchmark for Federated Settings, arXiv 1812.01097; its code,
github.com/TalwalkarLab/leaf, makes the files (data/femnist, data/shakespeare).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgesim.data.errors import DataError
from edgesim.data.folders import files_in
from edgesim.data.kept import CacheFolder, keep, kept, kept_path
from edgesim.data.limits import GIB, MOST_MEMORY, memory_bytes
from edgesim.data.published import PUBLISHED

OWNER = "owner"  # column of both datasets: the writer, or the role in a play
LETTERS = "\n !\"&'(),-.0123456789:;>?ABCDEFGHIJKLMNOPQRSTUVWXYZ[]abcdefghijklmnopqrstuvwxyz}"
"""The 80 letters of Shakespeare in LEAF, in the order of their numbers."""

SEQUENCE = 80  # letters of an input
SIDE, NUM_CLASSES = 28, 62  # of FEMNIST: pixels; digits, upper-case and lower-case letters
_FORMAT = "edgesim leaf 1"
_NUMBERS = {letter: number for number, letter in enumerate(LETTERS)}

Pair = tuple[NDArray[Any], NDArray[np.int64]]
"""Inputs and labels."""


@dataclass(frozen=True, slots=True, eq=False)
class _LeafData:
    """A dataset of LEAF, as edgesim takes datasets of arrays (docs/own-parts.md)."""

    train: Pair
    test: Pair
    num_classes: int
    columns: Mapping[str, NDArray[Any]]
    test_columns: Mapping[str, NDArray[Any]]


def femnist(path: str, *, cache: CacheFolder | None = None) -> _LeafData:
    """FEMNIST of LEAF: digits and letters, 28x28 grey, 62 classes; column owner: the writer.

    Args:
        path: folder with `train` and `test`, folders of LEAF's JSON files.
        cache: folder of read files; null: .cache/edgesim in the home folder.
    """
    return _read("femnist", path, cache, NUM_CLASSES, _images)


def shakespeare(path: str, *, cache: CacheFolder | None = None) -> _LeafData:
    """Shakespeare of LEAF: the letter after 80 letters of a play, 80 classes; column owner: role.

    Args:
        path: folder with `train` and `test`, folders of LEAF's JSON files.
        cache: folder of read files; null: .cache/edgesim in the home folder.
    """
    return _read("shakespeare", path, cache, len(LETTERS), _sequences)


def _read(
    name: str,
    path: str,
    cache: str | None,
    num_classes: int,
    convert: Callable[[Any, Any], Pair],
) -> _LeafData:
    """Both splits, from the cache if these files were read before.

    Raises:
        DataError: files are missing, are no files of LEAF, or hold more than fits into memory.
    """
    files = {split: _files(name, Path(path) / split) for split in ("train", "test")}
    place = kept_path(cache, f"{name}-{_digest(files)}")
    if (arrays := kept(place)) is None:
        arrays = {}
        for split, found in files.items():
            (inputs, labels), owners = _read_split(name, found, convert)
            arrays |= {f"{split}_x": inputs, f"{split}_y": labels, f"{split}_{OWNER}": owners}
        keep(place, arrays)
    return _LeafData(
        (arrays["train_x"], arrays["train_y"]),
        (arrays["test_x"], arrays["test_y"]),
        num_classes,
        {OWNER: arrays[f"train_{OWNER}"]},
        {OWNER: arrays[f"test_{OWNER}"]},
    )


def _files(name: str, folder: Path) -> list[Path]:
    """Files of a split, in order.

    Raises:
        DataError: there are none.
    """
    if files := files_in(folder, ".json"):
        return files
    raise DataError(
        f"data.path: {folder} holds no JSON files of LEAF\n"
        f"{PUBLISHED[name].remedy(str(folder.parent))}"
    )


def _digest(files: Mapping[str, Sequence[Path]]) -> str:
    """Digest of names, sizes and times of files: reading them all would take minutes."""
    digest = blake2b(_FORMAT.encode(), digest_size=16)
    for split, paths in files.items():
        for path in paths:
            about = path.stat()
            digest.update(f" {split}/{path.name} {about.st_size} {about.st_mtime_ns}".encode())
    return digest.hexdigest()


def _read_split(
    name: str, files: Sequence[Path], convert: Callable[[Any, Any], Pair]
) -> tuple[Pair, NDArray[Any]]:
    """Samples of a split with their owners, in the order of files and users.

    Raises:
        DataError: files are no files of LEAF, or hold more than fits into memory.
    """
    parts: list[Pair] = []
    owners: list[str] = []
    most_bytes, num_bytes = MOST_MEMORY * memory_bytes(), 0
    for file in files:
        for user, inputs, labels in _users(file):
            try:
                pair = convert(inputs, labels)
            except (ValueError, TypeError, KeyError, OverflowError) as error:
                raise _broken(file, f"samples of {user!r} are none of {name}: {error}") from error
            if len(pair[0]) != len(pair[1]):
                raise _broken(file, f"{user!r} has {len(pair[0])} inputs, {len(pair[1])} labels")
            parts.append(pair)
            owners += [user] * len(pair[1])
            num_bytes += pair[0].nbytes
        if num_bytes > most_bytes:
            raise DataError(
                f"data.path: samples of {name} up to {file} take {num_bytes / GIB:,.1f} GiB, more "
                "than a quarter of this machine's memory; let LEAF take fewer, by a smaller --sf"
            )
    if not owners:
        raise _broken(files[0], "no user has a sample")
    inputs, labels = (np.concatenate([part[place] for part in parts]) for place in (0, 1))
    return (inputs, labels), np.array(owners)


def _users(file: Path) -> list[tuple[str, Any, Any]]:
    """Users of a file that have samples, with their inputs and labels."""
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
        by_user = content["user_data"]
        found = [(str(user), by_user[user]["x"], by_user[user]["y"]) for user in content["users"]]
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        said = f"{type(error).__name__}: {error}"
        raise _broken(file, f"no users with user_data of x and y ({said})") from error
    return [user for user in found if user[2]]


def _images(inputs: Any, labels: Any) -> Pair:  # noqa: ANN401 (lists of JSON)
    """Images of FEMNIST: grey from 0 to 1, row by row."""
    pixels = np.asarray(inputs, np.float64)
    if pixels.shape[1:] != (SIDE * SIDE,):
        raise ValueError(f"an image must have {SIDE * SIDE} numbers")
    if not (pixels.min() >= 0 and pixels.max() <= 1):
        raise ValueError("greys must be from 0 to 1")
    images = np.rint(255 * pixels).astype(np.uint8).reshape(-1, SIDE, SIDE, 1)
    return images, _labels(labels, NUM_CLASSES)


def _sequences(inputs: Any, labels: Any) -> Pair:  # noqa: ANN401 (lists of JSON)
    """Sequences of Shakespeare, as numbers of letters."""
    if any(len(text) != SEQUENCE for text in inputs):
        raise ValueError(f"an input must have {SEQUENCE} letters")
    numbers = np.array([[_NUMBERS[letter] for letter in text] for text in inputs], np.int64)
    return numbers, np.array([_NUMBERS[letter] for letter in labels], np.int64)


def _labels(labels: Any, num_classes: int) -> NDArray[np.int64]:  # noqa: ANN401
    numbers = np.asarray(labels, np.int64)
    if not (numbers.min() >= 0 and numbers.max() < num_classes):
        raise ValueError(f"labels must be from 0 to {num_classes - 1}")
    return numbers


def _broken(file: Path, reason: str) -> DataError:
    return DataError(f"{file}: {reason}; make it again with LEAF")
