"""Reads values in Thrift's compact protocol, as in footers and page headers of Parquet files.

Source: the Thrift compact protocol specification (doc/specs/thrift-compact-protocol.md).
"""

from __future__ import annotations

from typing import TypeAlias

Value: TypeAlias = "int | bool | bytes | list[Value] | Struct"
Struct: TypeAlias = dict[int, Value]
"""Values by the numbers of their fields; doubles, sets and maps are passed over."""

DEEPEST = 16  # values in values

_TRUE, _FALSE, _BYTE, _DOUBLE, _BINARY, _LIST, _SET, _MAP, _STRUCT = 1, 2, 3, 7, 8, 9, 10, 11, 12
_INTEGERS = (4, 5, 6)


class CompactReader:
    """Reads values one after the other from the start of `data`.

    Attributes:
        at: place of the next byte.

    Raises:
        IndexError: the data ends too early (all methods).
        ValueError: the data has no known form (all methods).
    """

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.at = 0

    def struct(self, depth: int = 0) -> Struct:
        """The struct that begins here."""
        fields: Struct = {}
        number = 0
        while head := self._byte():
            delta, kind = head >> 4, head & 0x0F
            number = number + delta if delta else self._integer()
            # The kind of a boolean field holds its value.
            value = kind == _TRUE if kind in {_TRUE, _FALSE} else self._value(kind, depth + 1)
            if value is not None:
                fields[number] = value
        return fields

    def _value(self, kind: int, depth: int) -> Value | None:
        """A value of a list, or of a struct unless it is a boolean."""
        if depth > DEEPEST:
            raise ValueError("values nested without end")
        if kind in _INTEGERS:
            return self._integer()
        if kind in {_TRUE, _FALSE, _BYTE}:
            return self._byte()
        if kind == _BINARY:
            return self._bytes(self._varint())
        if kind == _STRUCT:
            return self.struct(depth)
        if kind == _LIST:
            return [value for value in self._list(depth) if value is not None]
        self._pass_over(kind, depth)
        return None

    def _pass_over(self, kind: int, depth: int) -> None:
        if kind == _DOUBLE:
            self._bytes(8)
        elif kind == _SET:
            self._list(depth)
        elif kind == _MAP:
            if size := self._varint():
                kinds = self._byte()
                for _ in range(size):
                    self._value(kinds >> 4, depth + 1)
                    self._value(kinds & 0x0F, depth + 1)
        else:
            raise ValueError(f"a value of unknown type {kind}")

    def _list(self, depth: int) -> list[Value | None]:
        head = self._byte()
        size, kind = head >> 4, head & 0x0F
        size = self._varint() if size == 0x0F else size
        return [self._value(kind, depth + 1) for _ in range(size)]

    def _bytes(self, size: int) -> bytes:
        self.at += size
        if self.at > len(self._data):
            raise IndexError
        return self._data[self.at - size : self.at]

    def _byte(self) -> int:
        self.at += 1
        return self._data[self.at - 1]

    def _varint(self) -> int:
        """An unsigned number, seven bits a byte, low first."""
        number = 0
        for shift in range(0, 70, 7):
            byte = self._byte()
            number |= (byte & 0x7F) << shift
            if byte < 0x80:
                return number
        raise ValueError("a number above 64 bits")

    def _integer(self) -> int:
        """A signed number, zigzag."""
        number = self._varint()
        return (number >> 1) ^ -(number & 1)
