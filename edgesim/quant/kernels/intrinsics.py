"""Operations that numba compiles to more instructions than needed, written as LLVM intrinsics.

They are correct on every processor; on processors with vectors each is one or two instructions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import cast

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

Generator = Callable[[object, ir.IRBuilder, object, Sequence[ir.Value]], ir.Value]


def _of_two_floats(name: str) -> Callable[[np.float32, np.float32], np.float32]:
    """One of LLVM's own functions of two float32 numbers."""

    def typed(_context: object, _a: object, _b: object) -> tuple[object, Generator]:
        def generate(
            _target: object,
            builder: ir.IRBuilder,
            _signature: object,
            arguments: Sequence[ir.Value],
        ) -> ir.Value:
            kind = arguments[0].type
            signature = ir.FunctionType(kind, [kind, kind])
            function = builder.module.declare_intrinsic(name, [kind], signature)
            return builder.call(function, arguments)

        return types.float32(types.float32, types.float32), generate

    return cast("Callable[[np.float32, np.float32], np.float32]", intrinsic(typed))


def _code_and_place() -> Callable[[np.uint8, np.uint16, np.uint16], np.uint16]:
    def typed(
        _context: object, _code: object, _first: object, _place: object
    ) -> tuple[object, Generator]:
        def generate(
            _target: object,
            builder: ir.IRBuilder,
            _signature: object,
            arguments: Sequence[ir.Value],
        ) -> ir.Value:
            code, first, place = arguments
            shifted = builder.shl(builder.zext(code, first.type), ir.Constant(first.type, 8))
            return builder.or_(shifted, builder.add(first, place))

        return types.uint16(types.uint8, types.uint16, types.uint16), generate

    return cast("Callable[[np.uint8, np.uint16, np.uint16], np.uint16]", intrinsic(typed))


def _power_of_two() -> Callable[[np.float32], np.float32]:
    def typed(_context: object, _shifted: object) -> tuple[object, Generator]:
        def generate(
            _target: object,
            builder: ir.IRBuilder,
            _signature: object,
            arguments: Sequence[ir.Value],
        ) -> ir.Value:
            whole = ir.IntType(32)
            n = builder.bitcast(arguments[0], whole)  # above its 9 lowest bits, which a shift keeps
            exponent = builder.shl(n, ir.Constant(whole, 23))
            one = ir.Constant(whole, 127 << 23)
            return builder.bitcast(builder.add(exponent, one), ir.FloatType())

        return types.float32(types.float32), generate

    return cast("Callable[[np.float32], np.float32]", intrinsic(typed))


# Of NaN and a number they return the number. Python's comparisons would compile to five
# instructions instead of one.
larger = _of_two_floats("llvm.maxnum")
smaller = _of_two_floats("llvm.minnum")

# Code << 8 | first + place. Computed in 16 bits: numba would use 64 bits, with a quarter of the
# lanes.
code_and_place = _code_and_place()

# 2^n of n + 1.5 * 2^23, for whole numbers -126 <= n <= 127: so large a float32 has n in its lowest
# bits, from where it is moved into the exponent.
power_of_two = _power_of_two()
