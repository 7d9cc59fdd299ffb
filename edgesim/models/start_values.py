"""Values that a model begins with instead of random ones, from a file of torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from errno import EINVAL, EISDIR
from functools import cached_property
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from edgesim.models.errors import ModelError

_RANGES = (".low", ".high")  # names of the ranges of 8-bit activations, which fp32 models lack
_NAMED = 3  # tensors that a message names


class StartValuesError(ModelError):
    """Values can't be read, or don't fit the model."""


@dataclass(frozen=True)
class StartValues:
    """Tensors by name.

    Attributes:
        arrays: the values.
        place: where they are from, for messages.
        mean, std: of the channels of images that the model was trained on; empty: not known.
        scenario: of the run that trained it, as YAML; empty: not known.
    """

    arrays: Mapping[str, NDArray[Any]]
    place: str
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()
    scenario: str = ""

    @cached_property
    def digest(self) -> str:
        """Digest of names and values."""
        digest = blake2b(digest_size=16)
        for name, array in sorted(self.arrays.items()):
            digest.update(f"{name} {array.dtype} {array.shape} ".encode())
            digest.update(np.ascontiguousarray(array).data)
        return digest.hexdigest()

    def begin_(self, module: nn.Module) -> None:
        """Give a module these values.

        The module must have tensors of the same names and shapes. Ranges of 8-bit activations may
        be missing on either side: the steps of training find them anew.

        Raises:
            StartValuesError: they don't fit, or one is not finite.
        """
        own = module.state_dict()
        lacking = [name for name in own if not self._has(name) and not name.endswith(_RANGES)]
        unknown = [name for name in self.arrays if name not in own and not name.endswith(_RANGES)]
        for problem, names in (("has no value of", lacking), ("has values of", unknown)):
            if names:
                but = "" if names is lacking else ", which the model lacks"
                raise StartValuesError(f"{self.place} {problem} {_listed(names)}{but}")
        for name, tensor in own.items():
            if not self._has(name):
                continue
            array = self.arrays[name]
            if array.shape != tuple(tensor.shape):
                raise StartValuesError(
                    f"{self.place}: {name} has shape {array.shape}, and the model's has "
                    f"{tuple(tensor.shape)}"
                )
            if not np.isfinite(array).all():
                raise StartValuesError(f"{self.place}: {name} has values that are not finite")
            with torch.no_grad():
                tensor.copy_(torch.from_numpy(array))

    def _has(self, name: str) -> bool:
        return name in self.arrays


def read_start_values(path: Path) -> StartValues:
    """Values of a file that `edgesim export` or `torch.save(module.state_dict(), path)` wrote.

    Raises:
        StartValuesError: there is no such file, or it has no values.
    """
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
    except MemoryError:
        raise
    except OSError as error:
        if error.errno == EINVAL:  # torch sought a place that a file cut short does not have
            raise StartValuesError(f"{path}: is damaged: a part of it is missing") from error
        if error.errno == EISDIR:
            raise StartValuesError(
                f"{path}: is a folder; of a run, write a file with `edgesim export RUN FILE.pt`"
            ) from error
        raise StartValuesError(f"{path}: can't be read: {error.strerror}") from error
    except Exception as error:  # torch reads any bytes as a pickle, which may raise anything
        raise StartValuesError(
            f"{path}: is no file of values; write one with `edgesim export RUN FILE.pt`, or with "
            "torch.save(module.state_dict(), FILE)"
        ) from error
    values = content.get("state_dict", content) if isinstance(content, dict) else None
    if not values or not all(isinstance(value, Tensor) for value in values.values()):
        keys = list(map(str, content)) if isinstance(content, dict) else []
        has = f"; it has {_listed(keys)}" if keys else ""
        raise StartValuesError(f"{path}: has no `state_dict`, nor tensors by their names{has}")
    arrays = {name: _array(value) for name, value in values.items()}
    if values is content:
        return StartValues(arrays, str(path))
    mean, std = (_floats(content.get(key)) for key in ("mean", "std"))
    if len(mean) != len(std):
        mean, std = (), ()
    scenario = content.get("scenario")
    return StartValues(arrays, str(path), mean, std, scenario if isinstance(scenario, str) else "")


def _array(value: Tensor) -> NDArray[Any]:
    """Floats as float32: NumPy has no bfloat16."""
    value = value.detach()
    array: NDArray[Any] = (value.float() if value.is_floating_point() else value).numpy()
    return array


def _floats(given: object) -> tuple[float, ...]:
    """Numbers that `edgesim export` wrote; a file of other programs may have anything there."""
    if not isinstance(given, list) or not all(isinstance(one, float) for one in given):
        return ()
    return tuple(given)


def _listed(names: list[str]) -> str:
    more = len(names) - _NAMED
    return ", ".join(names[:_NAMED]) + (f" and {more} more" if more > 0 else "")
