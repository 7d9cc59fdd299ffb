"""Follows memory from when it is first seen to when it is freed, and remembers the peak."""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from edgesim.compression.payload import Payload
from edgesim.costs.memory_table import Component


class StorageLedger:
    """Bytes that are alive, by component, each storage once however many tensors are on it.

    A storage belongs to the component under which it was seen first, and leaves the ledger when it
    is freed: when the last tensor or array on it is gone, whoever held that.

    Attributes:
        now: bytes by component.
        at_peak: the same when they were most in all.
    """

    def __init__(self) -> None:
        self.now: Counter[Component] = Counter()
        self.at_peak: Mapping[Component, int] = {}
        self._peak = 0
        self._alive: dict[int, tuple[Component, int]] = {}  # by address

    def see(self, value: object, component: Component) -> None:
        """Follow the memory of a tensor, array, payload or bytes, or of all parts of a value."""
        match value:
            case Tensor():
                storage = value.untyped_storage()
                self._follow(storage, storage.data_ptr(), storage.nbytes(), component)
            case np.ndarray():
                self._see_array(value, component)
            case bytes():
                # Bytes can't be followed: they stay until `forget`.
                self._add(component, len(value))
            case tuple() | list():
                for part in value:
                    self.see(part, component)
            case dict():
                self.see(list(value.values()), component)
            case Payload():  # what it has decoded and encoded by now belongs to it
                for name, part in vars(value).items():
                    if name not in ("layout", "code"):
                        self.see(part, component)
            case _ if is_dataclass(value):
                for field in fields(value):
                    self.see(getattr(value, field.name), component)

    def forget(self, messages: Sequence[bytes], component: Component) -> None:
        """Messages that were seen are not held any more."""
        self.now[component] -= sum(map(len, messages))

    def _see_array(self, array: NDArray[np.generic], component: Component) -> None:
        owner: object = array
        while isinstance(owner, np.ndarray) and owner.base is not None:
            owner = owner.base
        if isinstance(owner, np.ndarray):
            self._follow(owner, owner.ctypes.data, owner.nbytes, component)
        else:
            self.see(owner, component)

    def _follow(self, owner: object, address: int, num_bytes: int, component: Component) -> None:
        if num_bytes and address not in self._alive:
            self._alive[address] = component, num_bytes
            weakref.finalize(owner, self._release, address)
            self._add(component, num_bytes)

    def _add(self, component: Component, num_bytes: int) -> None:
        self.now[component] += num_bytes
        total = self.now.total()
        if total > self._peak:
            self._peak, self.at_peak = total, dict(self.now)

    def _release(self, address: int) -> None:
        component, num_bytes = self._alive.pop(address)
        self.now[component] -= num_bytes
