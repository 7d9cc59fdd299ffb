"""Matrix tiles (Intel AMX): 16 x 16 sums of products in one instruction.

A tile is a register of 16 rows of 64 bytes. tdpbusd adds to 16 x 16 sums of 32 bits, exactly, the
products of up to 64 unsigned bytes in each row of the first factor with as many signed bytes in
each column of the second. tdpbf16ps adds the products of up to 32 bfloat16 numbers, in float32. The
second factor has its terms in groups of four bytes, or of two numbers: row i of its tile has group
i of all 16 columns, as packed weights have them.

A process asks Linux for the tiles once. A thread sets their sizes before it uses them and releases
them afterwards.

Symbols:
    group: consecutive terms of a sum, four bytes   piece: groups of one instruction, 16 at most
"""

from __future__ import annotations

import ctypes
import platform
import sys
from functools import cache

import numpy as np
from llvmlite import ir

from edgesim.compiled import compiled
from edgesim.quant.kernels.arrays import Float32, Int8, Int16, Int32, UInt8
from edgesim.quant.kernels.instructions import I64, constant, cpu_features, instruction

ROWS = 16
ROW_BYTES = 64
MOST_GROUPS = 16  # of a piece
SUMS = (0, 1, 2, 3)  # numbers of the tiles
FIRST_FACTORS = (4, 5)
SECOND_FACTORS = (6, 7)

_REQUEST_PERMISSION, _TILE_DATA = 0x1023, 18  # ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
_ARCH_PRCTL = 158  # of x86-64
_I8 = ir.IntType(8)
_POINTER = _I8.as_pointer()
FEATURES = frozenset({"+amx-tile", "+amx-int8", "+amx-bf16", "+avx512f", "+avx512bw"})


@cache
def is_native() -> bool:
    """Whether this process may use the tiles, and they give correct results."""
    if not cpu_features() >= FEATURES:
        return False
    if sys.platform != "linux" or platform.machine() != "x86_64":
        return False
    if ctypes.CDLL(None).syscall(_ARCH_PRCTL, _REQUEST_PERMISSION, _TILE_DATA) != 0:
        return False
    return _is_exact()


def tile_sizes(groups: int) -> UInt8:
    """What `configure` takes: sums are 16 x 16.

    Args:
        groups: of a piece, 1 to 16.
    """
    sizes = np.zeros(64, np.uint8)
    sizes[0] = 1  # the palette
    row_bytes, rows = sizes[16:32].view(np.uint16), sizes[48:56]
    row_bytes[:], rows[:] = ROW_BYTES, ROWS
    row_bytes[list(FIRST_FACTORS)] = 4 * groups
    rows[list(SECOND_FACTORS)] = groups
    return sizes


@instruction
def configure(builder: ir.IRBuilder, sizes: ir.Value) -> None:
    """Set the sizes of this thread's tiles and fill them with zeros.

    Args:
        builder: of the caller's code.
        sizes: of `tile_sizes`.
    """
    _call(builder, "ldtilecfg", builder.bitcast(sizes, _POINTER))


@instruction
def release(builder: ir.IRBuilder) -> None:
    """Give the tiles back; the processor need not keep them for this thread any more."""
    _call(builder, "tilerelease")


def clear_tile(builder: ir.IRBuilder, tile: int) -> None:
    """Fill a tile with zeros."""
    _call(builder, "tilezero", _number(tile))


def load_tile(builder: ir.IRBuilder, tile: int, start: ir.Value, step: ir.Value) -> None:
    """Load a tile from rows that lie `step` bytes apart; 0: all rows are the same."""
    _call(builder, "tileloadd64", _number(tile), builder.bitcast(start, _POINTER), step)


def store_tile(builder: ir.IRBuilder, tile: int, start: ir.Value) -> None:
    """Store a tile of sums, row after row."""
    step = constant(ROW_BYTES)
    _call(builder, "tilestored64", _number(tile), builder.bitcast(start, _POINTER), step)


def add_byte_products(builder: ir.IRBuilder, sums: int, first: int, second: int) -> None:
    """Add products of unsigned with signed bytes to a tile; sums of 32 bits may wrap round."""
    _call(builder, "tdpbusd", _number(sums), _number(first), _number(second))


def add_bfloat16_products(builder: ir.IRBuilder, sums: int, first: int, second: int) -> None:
    """Add products of bfloat16 numbers to a tile of float32; denormal numbers count as zeros."""
    _call(builder, "tdpbf16ps", _number(sums), _number(first), _number(second))


def _number(tile: int) -> ir.Constant:
    return ir.Constant(_I8, tile)


def _call(builder: ir.IRBuilder, name: str, *arguments: ir.Value) -> None:
    name = f"llvm.x86.{name}"
    kind = ir.FunctionType(ir.VoidType(), [argument.type for argument in arguments])
    function = builder.module.globals.get(name) or ir.Function(builder.module, kind, name)
    builder.call(function, arguments)


def _is_exact() -> bool:
    """Multiply small whole numbers of both kinds and compare with numpy."""
    rng = np.random.default_rng(0)
    a = rng.integers(0, 256, (ROWS, ROW_BYTES), np.uint8)
    b = rng.integers(-127, 128, (ROW_BYTES, ROWS), np.int8)
    of_bytes, of_numbers = np.empty((ROWS, ROWS), np.int32), np.empty((ROWS, ROWS), np.float32)
    a_numbers, b_numbers = (_bfloat16(factor) for factor in (a[:, :32], b[:32]))
    _multiply_once(
        tile_sizes(MOST_GROUPS),
        a, np.ascontiguousarray(b.reshape(-1, 4, ROWS).transpose(0, 2, 1)), of_bytes,
        a_numbers, np.ascontiguousarray(b_numbers.reshape(-1, 2, ROWS).transpose(0, 2, 1)),
        of_numbers,
    )  # fmt: skip
    a, b = a.astype(np.int64), b.astype(np.int64)
    return bool(np.array_equal(of_bytes, a @ b) and np.array_equal(of_numbers, a[:, :32] @ b[:32]))


def _bfloat16(whole: UInt8 | Int8) -> Int16:
    """Bits of the bfloat16 numbers that equal these."""
    return (np.ascontiguousarray(whole, np.float32).view(np.uint32) >> 16).astype(np.int16)


@compiled
def _multiply_once(
    sizes: UInt8, a: UInt8, b: Int8, of_bytes: Int32, c: Int16, d: Int16, of_numbers: Float32
) -> None:
    configure(sizes)
    _multiply_tiles(a, b, of_bytes, c, d, of_numbers)
    release()


@instruction
def _multiply_tiles(
    builder: ir.IRBuilder,
    a: ir.Value,
    b: ir.Value,
    of_bytes: ir.Value,
    c: ir.Value,
    d: ir.Value,
    of_numbers: ir.Value,
) -> None:
    products = (add_byte_products, a, b, of_bytes), (add_bfloat16_products, c, d, of_numbers)
    for add_products, first, second, out in products:
        clear_tile(builder, SUMS[0])
        load_tile(builder, FIRST_FACTORS[0], first, ir.Constant(I64, ROW_BYTES))
        load_tile(builder, SECOND_FACTORS[0], second, ir.Constant(I64, ROW_BYTES))
        add_products(builder, SUMS[0], FIRST_FACTORS[0], SECOND_FACTORS[0])
        store_tile(builder, SUMS[0], out)
