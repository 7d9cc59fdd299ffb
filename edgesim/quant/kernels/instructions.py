"""LLVM instructions on vectors of 256 and 512 bits, for what numba can't express."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types
from numba.core.registry import cpu_target
from numba.extending import intrinsic

LANES = 16  # output channels that are worked on together: two vectors of sums
HALF = 8  # 32-bit lanes of one vector of 256 bits

I16, I32, I64 = ir.IntType(16), ir.IntType(32), ir.IntType(64)
I16x16 = ir.VectorType(I16, 16)
I32x8 = ir.VectorType(I32, HALF)
F32x8 = ir.VectorType(ir.FloatType(), HALF)
I32x16 = ir.VectorType(I32, LANES)
F32x16 = ir.VectorType(ir.FloatType(), LANES)


def has_native_instruction() -> bool:
    """Whether numba compiles for a processor with vpmaddwd on 256 bits (AVX2)."""
    return "+avx2" in cpu_features()


def has_dot_product() -> bool:
    """Whether numba compiles for a processor with vpdpbusd on 256 bits (AVX-512 or AVX VNNI)."""
    return cpu_features() >= {"+avx512vnni", "+avx512vl"} or "+avxvnni" in cpu_features()


def has_wide_vectors() -> bool:
    """Whether numba compiles for vectors of 512 bits and 32 registers (AVX-512)."""
    return "+avx512f" in cpu_features()


def has_wide_dot_product() -> bool:
    """Whether there is vpdpbusd on 512 bits."""
    return has_wide_vectors() and "+avx512vnni" in cpu_features()


def cpu_features() -> set[str]:
    """What the processor can that numba compiles for, as LLVM writes it: `+avx2`."""
    return set(cpu_target.target_context.codegen().magic_tuple()[2].split(","))


def instruction(emit: Callable[..., None]) -> Callable[..., None]:
    """Make a function for compiled code from a function that emits its LLVM code.

    Args:
        emit: takes the builder, then one value for each argument of the call. A contiguous array is
            passed as the pointer to its first element, a number as 64 bits, a named tuple as the
            same named tuple of such values. Bounds are not checked.
    """

    def typed(_context: Any, *kinds: Any) -> tuple[Any, Callable[..., ir.Value]]:  # noqa: ANN401
        def generate(
            context: Any,  # noqa: ANN401
            builder: ir.IRBuilder,
            signature: Any,  # noqa: ANN401
            arguments: list[ir.Value],
        ) -> ir.Value:
            values = [
                _plain(context, builder, kind, value)
                for kind, value in zip(signature.args, arguments, strict=True)
            ]
            emit(builder, *values)
            return context.get_dummy_value()

        numbers_are_64_bit = [
            kind if isinstance(kind, types.Array | types.BaseNamedTuple) else types.intp
            for kind in kinds
        ]
        return types.void(*numbers_are_64_bit), generate

    typed.__name__ = emit.__name__
    typed.__doc__ = emit.__doc__
    typed.__signature__ = inspect.signature(emit)  # type: ignore[attr-defined]
    compiled: Callable[..., None] = intrinsic(typed)
    return compiled


def _plain(context: Any, builder: ir.IRBuilder, kind: Any, value: ir.Value) -> Any:  # noqa: ANN401
    """A value as `instruction` describes it."""
    if isinstance(kind, types.Array):
        return context.make_array(kind)(context, builder, value).data
    if isinstance(kind, types.NamedTuple | types.NamedUniTuple):
        values = (builder.extract_value(value, i) for i in range(len(kind)))
        fields = zip(kind.types, values, strict=True)
        return kind.instance_class(*(_plain(context, builder, *field) for field in fields))
    return context.cast(builder, value, kind, types.intp)


def constant(value: int) -> ir.Constant:
    """A 64-bit number."""
    return ir.Constant(I64, value)


def element(builder: ir.IRBuilder, pointer: ir.Value, first: ir.Value, index: int) -> ir.Value:
    """pointer[first + index]."""
    return builder.load(builder.gep(pointer, [builder.add(first, constant(index))]))


def starts(
    builder: ir.IRBuilder,
    array: ir.Value,
    positions: ir.Value,
    first: ir.Value,
    shift: ir.Value,
    count: int,
) -> list[ir.Value]:
    """Pointers to array[positions[first + i] + shift] for `count` consecutive i."""
    shifted = builder.gep(array, [shift])
    return [builder.gep(shifted, [element(builder, positions, first, i)]) for i in range(count)]


def load(builder: ir.IRBuilder, pointer: ir.Value, kind: ir.Type, align: int) -> ir.Value:
    """A vector (or a wider number) from elements of `align` bytes."""
    return builder.load(builder.bitcast(pointer, kind.as_pointer()), align=align)


def store(builder: ir.IRBuilder, value: ir.Value, pointer: ir.Value, align: int) -> None:
    """A vector into elements of `align` bytes."""
    builder.store(value, builder.bitcast(pointer, value.type.as_pointer()), align=align)


def places_of(
    builder: ir.IRBuilder, array: ir.Value, first: ir.Value, kind: ir.VectorType, count: int
) -> list[ir.Value]:
    """Pointers to consecutive vectors from array[first] on."""
    start = builder.gep(array, [first])
    return [builder.gep(start, [constant(i * kind.count)]) for i in range(count)]


def zeros(kind: ir.VectorType, count: int) -> list[ir.Value]:
    """Sums before their first term."""
    return [ir.Constant(kind, [0] * kind.count)] * count


def broadcast(builder: ir.IRBuilder, value: ir.Value, lanes: int) -> ir.Value:
    """A vector of equal numbers."""
    undefined = ir.Constant(ir.VectorType(value.type, lanes), ir.Undefined)
    first = builder.insert_element(undefined, value, ir.Constant(I32, 0))
    return builder.shuffle_vector(
        first, undefined, ir.Constant(ir.VectorType(I32, lanes), [0] * lanes)
    )


def multiply_add_pairs(builder: ir.IRBuilder, a: ir.Value, b: ir.Value) -> ir.Value:
    """The eight 32-bit sums a[2i] b[2i] + a[2i+1] b[2i+1] of two <16 x i16>."""
    if has_native_instruction():
        name = "llvm.x86.avx2.pmadd.wd"
        function = builder.module.globals.get(name) or ir.Function(
            builder.module, ir.FunctionType(I32x8, [I16x16, I16x16]), name
        )
        return builder.call(function, [a, b])
    wide = ir.VectorType(I32, 16)
    products = builder.mul(builder.sext(a, wide), builder.sext(b, wide))
    even, odd = (
        builder.shuffle_vector(
            products, products, ir.Constant(I32x8, [2 * lane + part for lane in range(HALF)])
        )
        for part in (0, 1)
    )
    return builder.add(even, odd)


def add_dot_products(builder: ir.IRBuilder, totals: ir.Value, a: ir.Value, b: ir.Value) -> ir.Value:
    """totals[i] + the sum of a[4i+j] b[4i+j] over the four j; they may wrap round.

    Args:
        builder: of the caller's code.
        totals: <8 x i32>, or <16 x i32> where there is a wide dot product.
        a: as wide, four unsigned bytes in each.
        b: as wide, four signed bytes in each.
    """
    kind, lanes = totals.type, totals.type.count
    if has_dot_product():
        name = f"llvm.x86.avx512.vpdpbusd.{32 * lanes}"
        function = builder.module.globals.get(name) or ir.Function(
            builder.module, ir.FunctionType(kind, [kind] * 3), name
        )
        return builder.call(function, [totals, a, b])
    bytes_, wide = (ir.VectorType(of, 4 * lanes) for of in (ir.IntType(8), I32))
    factors = (
        builder.zext(builder.bitcast(a, bytes_), wide),
        builder.sext(builder.bitcast(b, bytes_), wide),
    )
    products = builder.mul(*factors)
    for part in range(4):
        order = ir.Constant(kind, [4 * lane + part for lane in range(lanes)])
        totals = builder.add(totals, builder.shuffle_vector(products, products, order))
    return totals


def scaled(
    builder: ir.IRBuilder, sums: ir.Value, scale: ir.Value, bias: ir.Value, first: int
) -> ir.Value:
    """float32(sums) * scale[first + i] + bias[first + i], each operation rounded."""
    kind = ir.VectorType(ir.FloatType(), sums.type.count)
    factor, offset = (
        load(builder, builder.gep(pointer, [constant(first)]), kind, 4) for pointer in (scale, bias)
    )
    return builder.fadd(builder.fmul(builder.sitofp(sums, kind), factor), offset)


def store_scaled(
    builder: ir.IRBuilder,
    totals: list[ir.Value],
    scale: ir.Value,
    bias: ir.Value,
    places: list[ir.Value],
) -> None:
    """float32(totals) * scale + bias of 16 channels, one or two vectors for each place."""
    parts = len(totals) // len(places)
    for part in range(parts):
        first = part * (LANES // parts)
        for place, total in zip(places, totals[part::parts], strict=True):
            value = scaled(builder, total, scale, bias, first)
            store(builder, value, builder.gep(place, [constant(first)]), 4)


class Loop:
    """A counted loop that carries values, emitted between construction and `close`.

    Args:
        builder: at the place where the loop begins.
        start: first index.
        stop: index behind the last.
        values: before the first turn.

    Attributes:
        index: of the turn.
        values: at its beginning.
    """

    def __init__(
        self, builder: ir.IRBuilder, start: ir.Value, stop: ir.Value, values: list[ir.Value]
    ) -> None:
        self._builder = builder
        before = builder.block
        self._head = builder.append_basic_block("head")
        body = builder.append_basic_block("body")
        self._after = builder.append_basic_block("after")
        builder.branch(self._head)
        builder.position_at_end(self._head)
        self.index = builder.phi(I64)
        self.index.add_incoming(start, before)
        self.values = [builder.phi(value.type) for value in values]
        for phi, value in zip(self.values, values, strict=True):
            phi.add_incoming(value, before)
        builder.cbranch(builder.icmp_signed("<", self.index, stop), body, self._after)
        builder.position_at_end(body)

    def close(self, values: list[ir.Value]) -> list[ir.Value]:
        """End the turn with new values; returns those after the last turn."""
        builder = self._builder
        self.index.add_incoming(builder.add(self.index, constant(1)), builder.block)
        for phi, value in zip(self.values, values, strict=True):
            phi.add_incoming(value, builder.block)
        builder.branch(self._head)
        builder.position_at_end(self._after)
        return list(self.values)
