"""Datasets of arrays other than images: feature vectors, sequences of integers, and others.

Shape suffix: N samples. An input is a row of any shape; a target is a class, a number, or a row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, TypeAlias

import numpy as np
from numpy.typing import NDArray

from edgesim.data.errors import DataError
from edgesim.data.images import Dataset, LabelledImages
from edgesim.data.photographs import Photographs

Shard: TypeAlias = "LabelledImages | LabelledArrays | Photographs"
"""Samples in memory, images or other arrays."""

Transform = Callable[[NDArray[Any], np.random.Generator], NDArray[Any]]
"""Changes the inputs of a training batch at random. It returns as many inputs, of any shape."""


_MOST_CLASSES = 1_000_000
_MOST_CHANNELS = 4  # of what looks like an image
_AS_BYTES = '(255 * {}).astype("uint8") where x is from 0 to 1'


@dataclass(frozen=True, slots=True, eq=False)
class LabelledArrays:
    """Inputs with their targets, in memory; both arrays may be read-only (shared memory).

    Attributes:
        inputs: float32 or int64, C-contiguous, shape (N, ...).
        labels: int64 or float32, shape (N,) or (N, ...).
    """

    inputs: NDArray[Any]
    labels: NDArray[Any]

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def contents(self) -> tuple[NDArray[Any], NDArray[Any]]:
        """Both arrays."""
        return self.inputs, self.labels

    def take(self, indices: NDArray[np.int64]) -> LabelledArrays:
        """Copy of some samples, in the order of `indices`: a device's shard."""
        return LabelledArrays(self.inputs[indices], self.labels[indices])


@dataclass(frozen=True, eq=False)
class ArrayDataset:
    """A dataset of arrays, ready for training, with the attributes of `Dataset`.

    Attributes:
        train: samples to train on.
        test: samples to test with.
        num_classes: entries of a model's output: classes, numbers of a target, or tokens.
        name: of its source, as scenarios write it.
        columns: by name, one value per training sample, such as its owner; for partitions.
        test_columns: the same for test samples.
    """

    train: LabelledArrays
    test: LabelledArrays
    num_classes: int
    name: str
    columns: Mapping[str, NDArray[Any]] = field(default_factory=dict)
    test_columns: Mapping[str, NDArray[Any]] = field(default_factory=dict)
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()
    noun: ClassVar[str] = "samples"

    @property
    def image_shape(self) -> tuple[int, ...]:
        """Shape of one input."""
        return self.train.inputs.shape[1:]

    @property
    def input_dtype(self) -> str:
        """`float32` or `int64`."""
        return str(self.train.inputs.dtype.name)

    @property
    def bytes_per_sample(self) -> int:
        """Bytes of one input and its target."""
        return sum(array[:1].nbytes for array in self.train.contents)


def image_remedy(shape: tuple[int, ...], dtype: str) -> str:
    """How to write inputs `x` that look like images so that models of images take them.

    Args:
        shape: of one input.
        dtype: `float32` or `int64`, which bytes become that are no images.

    Returns:
        Continues the word "give"; empty if they are images as they are, or look like none.
    """
    is_plane = len(shape) == 2 and min(shape) > _MOST_CHANNELS
    if dtype == "int64":
        bytes_by_form = (
            (is_plane, "x[..., None]"),
            (_channels_last(shape), "x"),
            (_channels_first(shape), "np.moveaxis(x, 1, 3)"),
        )
        written = next((code for is_so, code in bytes_by_form if is_so), "")
        return f'images of bytes: {written}.astype("uint8")' if written else ""
    if is_plane:
        return f"images: x[:, None], or bytes: {_AS_BYTES.format('x[..., None]')}"
    if _channels_last(shape):
        return f"channels first: np.moveaxis(x, 3, 1), or bytes: {_AS_BYTES.format('x')}"
    return ""


def _check_alike(name: str, what: str, train: NDArray[Any], test: NDArray[Any]) -> None:
    """Refuse arrays for testing that are of another type or shape than those for training.

    Raises:
        DataError: they are.
    """
    if train.shape[1:] != test.shape[1:] or train.dtype != test.dtype:
        raise DataError(
            f"{name}: {what} for training is {train.dtype} of shape {train.shape[1:]}, one for "
            f"testing {test.dtype} of shape {test.shape[1:]}; they must be alike"
        )


def _channels_last(shape: tuple[int, ...]) -> bool:
    return len(shape) == 3 and shape[2] <= _MOST_CHANNELS < min(shape[:2])


def _channels_first(shape: tuple[int, ...]) -> bool:
    return len(shape) == 3 and shape[0] <= _MOST_CHANNELS < min(shape[1:])


def dataset_of(name: str, made: object) -> Dataset | ArrayDataset:
    """Make a dataset from a user's object (docs/own-parts.md).

    Args:
        name: of the object in messages.
        made: with the attributes `train` and `test`, each a pair of arrays: inputs and targets. It
            may have `num_classes`, `columns` and `test_columns`. Inputs that are bytes of shape
            (N, H, W, C) are images.

    Raises:
        DataError: an attribute is missing, or holds something else.
    """
    splits = {split: _pair(name, split, made) for split in ("train", "test")}
    _check_alike(name, "a target", *(pair[1] for pair in splits.values()))
    columns = {
        split: _columns(name, key, made, len(splits[split][1]))
        for split, key in (("train", "columns"), ("test", "test_columns"))
    }
    labels = np.concatenate([np.ravel(pair[1]) for pair in splits.values()])
    num_classes = getattr(made, "num_classes", None) or _outputs(splits["train"][1], labels)
    if not isinstance(num_classes, int | np.integer) or num_classes < 1:
        raise DataError(f"{name}: num_classes is {num_classes!r}; it must be a whole number from 1")
    if labels.dtype == np.int64 and not 0 <= labels.min() <= labels.max() < num_classes:
        least, largest = labels.min(), labels.max()
        first = ""
        if least and largest - least < num_classes:
            move = f"subtract {least} from" if least > 0 else f"add {-least} to"
            first = f"{move} all of them, or "
        elif not least and largest < _MOST_CLASSES:
            first = f"let num_classes of the dataset be {largest + 1}, or "
        raise DataError(
            f"{name}: targets go from {least} to {largest}; whole numbers are classes, here from 0 "
            f"to {num_classes - 1}; {first}give targets of a regression as floats"
        )
    if num_classes > _MOST_CLASSES:
        raise DataError(
            f"{name}: targets go to {num_classes - 1:,}, and a model has an output for each class; "
            f"at most {_MOST_CLASSES:,}: number classes from 0 without gaps, or give targets of a "
            "regression as floats"
        )
    (inputs, _), (others, _) = splits["train"], splits["test"]
    _check_alike(name, "an input", inputs, others)
    if inputs.dtype == np.uint8:
        train, test = (LabelledImages(*splits[split]) for split in ("train", "test"))
        names = tuple(map(str, range(num_classes)))
        return Dataset(
            train,
            test,
            names,
            name,
            None,
            columns=columns["train"],
            test_columns=columns["test"],
        )
    return ArrayDataset(
        LabelledArrays(*splits["train"]),
        LabelledArrays(*splits["test"]),
        int(num_classes),
        name,
        columns["train"],
        columns["test"],
    )


def _pair(name: str, split: str, made: object) -> tuple[NDArray[Any], NDArray[Any]]:
    """Inputs and targets of a split, in the types that training takes."""
    pair = getattr(made, split, None)
    if not isinstance(pair, tuple | list) or len(pair) != 2:
        raise DataError(f"{name}: {split} must be a pair of arrays: inputs and targets")
    where = f"{name}: {split}"
    inputs = _array(f"{where}, inputs", pair[0])
    labels = _array(f"{where}, targets", pair[1])
    if not inputs.ndim or not labels.ndim or len(inputs) != len(labels) or not len(labels):
        raise DataError(
            f"{where} has inputs of shape {inputs.shape} and targets of shape {labels.shape}; "
            "it must have one target for each input, at least one"
        )
    if inputs.dtype == np.uint8 and inputs.ndim == 4 and labels.ndim == 1:
        if not np.issubdtype(labels.dtype, np.integer):
            raise DataError(f"{where}: targets of images must be whole numbers: y.astype('int64')")
        if _channels_first(inputs.shape[1:]):
            raise DataError(
                f"{where}: images of bytes have shape (N, H, W, C), and these {inputs.shape}; give "
                "np.moveaxis(x, 1, 3)"
            )
        return np.ascontiguousarray(inputs), labels.astype(np.int64)
    as_numbers = 'y.astype("int64") or y.astype("float32")'
    if labels.dtype.kind in "OSTU" and labels.ndim == 1:
        as_numbers = "np.unique(y, return_inverse=True)[1] of the targets of both splits together"
    return (
        _numbers(f"{where}, inputs", inputs, 'x.astype("float32")'),
        _numbers(f"{where}, targets", labels, as_numbers),
    )


def _array(where: str, rows: Iterable[object]) -> NDArray[Any]:
    """Rows as an array; refuses windows, sentences or images of unlike lengths."""
    try:
        array = np.asarray(rows)
    except ValueError as error:
        if "inhomogeneous" not in str(error):
            raise
        raise _unlike_shapes(where, rows) from error
    if array.dtype == object and len({np.shape(row) for row in array}) > 1:
        raise _unlike_shapes(where, rows)
    return array


def _unlike_shapes(where: str, rows: Iterable[object]) -> DataError:
    shapes = list(dict.fromkeys(row.shape for row in rows if isinstance(row, np.ndarray)))
    told = f", as {shapes[0]} and {shapes[1]}" if len(shapes) > 1 else ""
    remedy = "cut, pad or resample them to one length"
    return DataError(f"{where}: samples have unlike shapes{told}; {remedy}")


def _numbers(where: str, array: NDArray[Any], remedy: str) -> NDArray[Any]:
    """The array as int64 or float32."""
    if np.issubdtype(array.dtype, np.integer):
        return np.ascontiguousarray(array, dtype=np.int64)
    if not np.issubdtype(array.dtype, np.floating):
        raise DataError(
            f"{where}: the type is {array.dtype}; give whole numbers or floats, as by {remedy}"
        )
    with np.errstate(over="ignore"):  # what becomes infinite is refused
        numbers = np.ascontiguousarray(array, dtype=np.float32)
    if not np.isfinite(numbers).all():
        place = tuple(map(int, np.argwhere(~np.isfinite(numbers))[0]))
        raise DataError(f"{where}: the value at {place} is not finite in float32; remove it")
    return numbers


def _outputs(labels: NDArray[Any], all_labels: NDArray[Any]) -> int:
    """Default for the entries of a model's output."""
    if all_labels.dtype == np.int64:
        return int(all_labels.max()) + 1
    return int(np.prod(labels.shape[1:]))


def _columns(name: str, key: str, made: object, samples: int) -> dict[str, NDArray[Any]]:
    columns = {k: np.asarray(v) for k, v in (getattr(made, key, None) or {}).items()}
    for column, values in columns.items():
        if values.shape != (samples,):
            raise DataError(
                f"{name}: {key} has {column} of shape {values.shape}; it must have one value for "
                f"each of {samples} samples"
            )
    return columns
