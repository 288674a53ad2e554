"""Triton's rules for operands: constants, promotion, casts, broadcasts; and the emitters that obey them.

Input: handles and Python numbers. Output: handles. Law: every operation this module emits has operands of one shape
and of the type the rule gives; a rule that is broken is a diagnostic at the user's expression.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from frontend_triton_compat.ir import Value
from frontend_triton_compat.language.constexpr import unwrap
from frontend_triton_compat.language.context import current, fail
from frontend_triton_compat.language.fold import fold, fold_cast, wrap
from frontend_triton_compat.language.table import ROWS
from frontend_triton_compat.language.tensor import address, is_number, is_pointer, tensor
from frontend_triton_compat.types import (
    BF16,
    FP16,
    FP32,
    FP64,
    INT1,
    INT32,
    INT64,
    UINT32,
    UINT64,
    TileType,
    dtype,
    pointer_type,
)

#: from here on a number rounds to infinity
_OVERFLOW = {"fp16": 65520.0, "bf16": (2 - 2**-8) * 2.0**127}
_KIND_RANK = {"bool": 0, "uint": 1, "int": 1, "float": 2}
Operand = Any  # a tensor or a Python number


def emit(kind: str, operands: Sequence[tensor], types: Sequence[TileType], **attrs: Any) -> tuple[tensor, ...]:
    """Append one operation at the user's current expression and return its results."""
    ctx = current()
    made = _with_addresses(kind, operands, attrs) if any(isinstance(t, address) for t in operands) else tensor
    values = ctx.builder.emit(kind, [t.handle for t in operands], types, ctx.where, **attrs)
    return tuple(made(v) for v in values)


def _with_addresses(kind: str, operands: Sequence[tensor], attrs: dict[str, Any]) -> type[tensor]:
    """What an operation makes of pointers that were integers.

    Raises:
        Diagnostic: it would need to know where they point.
    """
    if kind in ("splat", "broadcast", "expand_dims", "trans", "reshape") or attrs.get("fn") == "where":
        return address
    if attrs.get("fn") in ("eq", "ne") or (kind == "store" and not isinstance(operands[0], address)):
        return tensor
    raise points_nowhere(attrs.get("fn", kind))


def points_nowhere(what: str) -> Exception:
    """The diagnostic for a use of a pointer that was an integer."""
    return fail(
        "not-translated",
        f"{what} of a pointer that was made from an integer",
        why="a pointer is a place in one of the kernel's tensors here, not a number",
        do="pass the tensor itself as an argument, and add offsets to it",
    )


def constant(value: Any, t: dtype, name: str = "", literal: bool = True) -> tensor:
    """A scalar constant of type `t`."""
    if t.is_fp8() and value != 0:
        return cast(constant(value, FP32), t)
    if t.is_int():
        value = wrap(int(value), t)
    elif t.is_floating():
        value = float(value)
        if t.name == "fp32":
            value = fold_cast(value, FP64, FP32)
        elif abs(value) >= _OVERFLOW.get(t.name, math.inf):
            value = math.copysign(math.inf, value)
    ctx = current()
    (out,) = ctx.builder.emit("const", [], [TileType(t)], ctx.where, value=value, name=name)
    return tensor(out, literal)


def literal_type(x: Any) -> dtype:
    """The type that Triton gives a Python number.

    Raises:
        Diagnostic: the integer needs more than 64 bits.
    """
    if isinstance(x, bool):
        return INT1
    if isinstance(x, int):
        for t, low, high in (
            (INT32, -(2**31), 2**31),
            (UINT32, 2**31, 2**32),
            (INT64, -(2**63), 2**63),
            (UINT64, 2**63, 2**64),
        ):
            if low <= x < high:
                return t
        raise fail(
            "scalar-out-of-range",
            f"the integer {x} doesn't fit 64 bits",
            why="the widest integer type of a kernel has 64 bits",
            do="keep the number below 2**64, or compute with it in Python before the launch",
        )
    size = abs(x)
    ordinary = size in (0.0, float("inf")) or x != x or 2**-126 <= size <= (2 - 2**-23) * 2**127
    return FP32 if ordinary else FP64


def to_tensor(x: Any) -> tensor:
    """A handle for a handle or a Python number.

    Raises:
        Diagnostic: `x` is neither.
    """
    x = unwrap(x)
    if isinstance(x, tensor):
        return x
    if is_number(x):
        return constant(x, literal_type(x))
    raise fail(
        "operand-type",
        f"{_describe(x)} is not a number or a tile",
        why="operations of a kernel take tiles, scalars and Python numbers",
        do="pass the argument as a tensor, an int or a float; keep Python objects in tl.constexpr parameters",
    )


def _describe(x: Any) -> str:
    if isinstance(x, tensor):
        return str(x.handle.type)
    return f"{x!r}" if isinstance(x, (str, type(None), bool, int, float)) else f"an object of type {type(x).__name__}"


# -- promotion ---------------------------------------------------------------------------------------------------


def promote_integers(a: dtype, b: dtype) -> dtype:
    """C's usual arithmetic conversion."""
    unsigned_a, unsigned_b = a.is_int_unsigned(), b.is_int_unsigned()
    if unsigned_a == unsigned_b:
        return a if a.primitive_bitwidth > b.primitive_bitwidth else b
    if unsigned_a:
        return a if a.primitive_bitwidth >= b.primitive_bitwidth else b
    return b if b.primitive_bitwidth >= a.primitive_bitwidth else a


def _rank(t: dtype) -> int:
    # Triton orders bool < integer < float when it asks whether a Python number takes part in the promotion.
    return _KIND_RANK[t.kind]


def result_type(a: dtype, a_number: bool, b: dtype, b_number: bool, division: bool, what: str) -> dtype:
    """The type in which an operation on elements of types `a` and `b` is done.

    Args:
        a: element type on the left.
        a_number: whether the left operand is a Python number.
        b: element type on the right.
        b_number: whether the right operand is a Python number.
        division: whether the operation is ``/``, ``//`` or ``%``.
        what: the operation in words, for the message.
    """
    if a_number != b_number:
        number, tile = (a, b) if a_number else (b, a)
        if _rank(number) <= _rank(tile):
            return FP32 if division and tile in (FP16, BF16) else tile
    if FP64 in (a, b):
        return FP64
    if FP32 in (a, b):
        return FP32
    if FP16 in (a, b):
        return FP32 if division else FP16
    if a == b == BF16:
        return FP32 if division else BF16
    if BF16 in (a, b):
        return FP32
    if a.is_fp8() and b.is_fp8():
        return a if a == b else FP16
    if not a.is_int() or not b.is_int():
        raise fail(
            "operand-type",
            f"{what} of {a} and {b}",
            why="no arithmetic is defined between these two types",
            do="cast both operands to one type first: x.to(tl.float32)",
        )
    if division and a.is_int_unsigned() != b.is_int_unsigned():
        raise fail(
            "operand-type",
            f"{what} of {a} and {b}: Cannot use /, // or % with {a} and {b} because they have different signedness",
            why="the quotient of a signed and an unsigned integer has no useful meaning",
            do=f"cast one of them: x.to(tl.{b})" if not b_number else f"cast the tile to a signed type: x.to(tl.{b})",
        )
    return promote_integers(a, b)


def binary_operands(
    a: Operand,
    b: Operand,
    what: str,
    *,
    pointers: str = "",
    arithmetic: bool = True,
    division: bool = False,
) -> tuple[tensor, tensor]:
    """Both operands as tiles of one shape and, unless one is a pointer, of one type.

    Args:
        a: left operand.
        b: right operand.
        what: the operation in words, for messages.
        pointers: which side may hold pointers: ``""``, ``"left"``, ``"both"``.
        arithmetic: whether the types are promoted.
        division: whether the operation is a division or remainder.
    """
    a, b = unwrap(a), unwrap(b)
    a_number, b_number = is_number(a), is_number(b)
    left, right = to_tensor(a), to_tensor(b)
    _check_pointers(left, right, what, pointers)
    if arithmetic and not is_pointer(left) and not is_pointer(right):
        t = result_type(left.dtype, a_number, right.dtype, b_number, division, what)
        left = _number_as(a, t, what) if a_number else cast(left, t)
        right = _number_as(b, t, what) if b_number else cast(right, t)
    return broadcast(left, right)


def _check_pointers(left: tensor, right: tensor, what: str, pointers: str) -> None:
    wrong = (
        (is_pointer(left) and pointers not in ("left", "both"))
        or (is_pointer(right) and pointers != "both")
        or (is_pointer(left) and is_pointer(right) and left.dtype != right.dtype)
        or (is_pointer(left) and right.dtype.is_floating())
        or (is_pointer(right) and left.dtype.is_floating())
    )
    if wrong:
        raise fail(
            "operand-type",
            f"{what}: invalid operands of type {left.dtype} and {right.dtype}",
            why="a pointer only takes integer offsets, counted in elements",
            do="load the value first with tl.load(pointer), or cast the offset to tl.int32",
        )


def _number_as(value: Any, t: dtype, what: str) -> tensor:
    if t.is_int() and not isinstance(value, float):
        if value < 0 and t.is_int_unsigned():
            raise fail(
                "scalar-out-of-range",
                f"{what} of an unsigned tile ({t}) and the negative number {value}",
                why=f"{value} is not a value of {t}",
                do="cast the tile to a signed type first: x.to(tl.int32)",
            )
        if not t.get_int_min_value() <= value <= t.get_int_max_value():
            raise fail(
                "scalar-out-of-range",
                f"{what}: {value} is out of range for {t}",
                why="a Python integer takes the type of the tile it is combined with",
                do="cast the tile to a wider type first: x.to(tl.int32)",
            )
    return constant(value, t)


# -- shapes ------------------------------------------------------------------------------------------------------


def splat(x: tensor, shape: Sequence[int]) -> tensor:
    """A scalar in every element of `shape`."""
    return emit("splat", [x], [TileType(x.dtype, tuple(shape))])[0] if shape else x


def expand_dims(x: tensor, axis: int) -> tensor:
    """A new dimension of size 1 at `axis`."""
    shape = list(x.shape)
    shape.insert(axis, 1)
    if not x.shape:
        return splat(x, shape)
    return emit("expand_dims", [x], [TileType(x.dtype, tuple(shape))], axis=axis)[0]


def broadcast_to(x: tensor, shape: Sequence[int]) -> tensor:
    """A scalar or a tile grown to `shape` (same rank; dimensions of size 1 grow)."""
    shape = tuple(shape)
    if x.shape == shape:
        return x
    if not x.shape:
        return splat(x, shape)
    if len(x.shape) != len(shape) or any(have not in (1, want) for have, want in zip(x.shape, shape)):
        raise fail(
            "shape-mismatch",
            f"a tile of shape {x.shape} can't be broadcast to {shape}",
            why="the ranks must agree, and only dimensions of size 1 grow",
            do="add dimensions with x[:, None] or x[None, :]",
        )
    return emit("broadcast", [x], [TileType(x.dtype, shape)])[0]


def broadcast(a: tensor, b: tensor) -> tuple[tensor, tensor]:
    """Both operands in their common shape; missing leading dimensions are added."""
    if a.shape == b.shape:
        return a, b
    if not a.shape:
        return splat(a, b.shape), b
    if not b.shape:
        return a, splat(b, a.shape)
    while len(a.shape) < len(b.shape):
        a = expand_dims(a, 0)
    while len(b.shape) < len(a.shape):
        b = expand_dims(b, 0)
    shape = []
    for i, (m, n) in enumerate(zip(a.shape, b.shape)):
        if m != n and 1 not in (m, n):
            raise fail(
                "shape-mismatch",
                f"shapes {a.shape} and {b.shape} differ in dimension {i}: {m} and {n}",
                why="two tiles are combined element by element; only dimensions of size 1 are repeated",
                do="add a dimension with x[:, None] or x[None, :], or give both tiles one block size",
            )
        shape.append(n if m == 1 else m)
    return broadcast_to(a, shape), broadcast_to(b, shape)


# -- casts -------------------------------------------------------------------------------------------------------


def cast(x: tensor, t: Any, rounding: str | None = None) -> tensor:
    """The same numbers in another type; what a C compiler for the GPU would do."""
    source = x.dtype
    if isinstance(t, pointer_type) and source in (INT64, UINT64):
        return address(bitcast(x, INT64).handle)
    if source == t:
        return x
    if isinstance(source, pointer_type) and t == INT1 and _is_place(x.handle):
        return splat(constant(True, INT1), x.shape)  # an argument that was given: its address is not 0
    if isinstance(source, pointer_type) or isinstance(t, pointer_type):
        raise fail(
            "not-translated",
            f"a cast from {source} to {t}",
            why="a pointer is a place in one of the kernel's tensors here, not a number",
            do="pass the tensor itself as an argument, and add offsets to it",
        )
    if t.is_fp8() and source.is_int():
        raise fail(
            "operand-type",
            f"a cast from {source} to {t}",
            why="8-bit floats are made from floats only",
            do=f"go through fp32: x.to(tl.float32).to({t!r})".replace("triton.language.", "tl."),
        )
    narrowing = source.is_floating() and t.is_floating() and t.primitive_bitwidth < source.primitive_bitwidth
    if rounding is not None and (rounding not in ("rtne", "rtz") or not narrowing):
        raise fail(
            "operand-type",
            f"fp_downcast_rounding={rounding!r} for a cast from {source} to {t}",
            why='a rounding mode ("rtne" or "rtz") is for casts to a narrower floating-point type',
            do="leave fp_downcast_rounding out",
        )
    if x.const is not None:
        value = fold_cast(x.const, source, t)
        if value is not None:
            name = x.handle.producer.attrs["name"] if x.handle.producer is not None else ""
            return constant(value, t, name=name, literal=x.literal)
    if t.is_bool():
        zero = constant(0, source)
        return map_("ne", *broadcast(x, zero))
    if source.is_floating() and t.is_int() and t.primitive_bitwidth < 32:
        # The GPU converts to a 32-bit integer and keeps the low bits.
        x = emit("cast", [x], [x.handle.type.with_element(INT32)], rounding=None)[0]
    return emit("cast", [x], [x.handle.type.with_element(t)], rounding=rounding)[0]


def _is_place(pointer: Value) -> bool:
    """Whether a pointer surely points into one of the kernel's tensors."""
    op = pointer.producer
    while op is not None and op.kind in ("ptr_add", "splat", "broadcast", "expand_dims", "trans", "reshape"):
        op = op.operands[0].producer
    return op is not None and op.kind == "arg"


def bitcast(x: tensor, t: Any) -> tensor:
    """The same bits read as another type of the same width."""
    source = x.dtype
    if source == t:
        return x
    if isinstance(source, pointer_type) or isinstance(t, pointer_type):
        return cast(x, t)
    if source.primitive_bitwidth != t.primitive_bitwidth:
        raise fail(
            "operand-type",
            f"a bitcast from {source} to {t}",
            why=f"they have {source.primitive_bitwidth} and {t.primitive_bitwidth} bits",
            do="cast the value instead: x.to(dtype)",
        )
    if x.const is not None and source.is_int() and t.is_int():
        return constant(wrap(int(x.const), t), t, literal=x.literal)
    return emit("bitcast", [x], [x.handle.type.with_element(t)])[0]


# -- map ---------------------------------------------------------------------------------------------------------


def map_(fn: str, *operands: tensor) -> tensor:
    """Append a map op of row `fn`; folds it when every operand is a known number."""
    row = ROWS[fn]
    first = operands[-1] if fn == "where" else operands[0]
    t = first.dtype
    if str(t) == "fp8e4b15" and fn != "where":
        raise fail(
            "operand-type",
            f"{fn} of {t}",
            why="fp8e4b15 is a format for storage: it is only loaded, stored, chosen from and converted",
            do="convert it first: x.to(tl.float16)",
        )
    element = INT1 if row.result == "bool" else INT32 if row.result == "int32" else t
    numbers = [x.const for x in operands]
    if all(n is not None for n in numbers) and isinstance(t, dtype):
        value = numbers[1 if numbers[0] else 2] if fn == "where" else fold(fn, tuple(numbers), operands[0].dtype)
        if value is not None:
            return constant(value, element, literal=all(x.literal for x in operands))
    return emit("map", operands, [first.handle.type.with_element(element)], fn=fn)[0]
