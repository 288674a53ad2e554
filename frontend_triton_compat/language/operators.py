"""Python's operators on tiles: `+ - * / // % & | ^ << >> ~ < <= ...`.

Input: handles and Python numbers. Output: handles. Law: Triton's rules, pointer arithmetic included.
"""

from __future__ import annotations

from typing import Any

from frontend_triton_compat.language.constexpr import unwrap
from frontend_triton_compat.language.context import fail
from frontend_triton_compat.language.semantic import (
    Operand,
    binary_operands,
    bitcast,
    broadcast,
    cast,
    emit,
    map_,
    promote_integers,
    to_tensor,
)
from frontend_triton_compat.language.tensor import is_pointer, tensor
from frontend_triton_compat.types import FP32, INT1, INT32, INT64, dtype


def add(x: Operand, y: Operand) -> tensor:
    """Sum; a pointer plus an integer is a pointer that many elements on."""
    a, b = binary_operands(x, y, "+", pointers="both")
    if is_pointer(a) and is_pointer(b):
        raise fail(
            "operand-type",
            "+ of two pointers",
            why="places in memory have no sum",
            do="add an integer offset to one pointer",
        )
    if is_pointer(b):
        a, b = b, a
    if is_pointer(a):
        return _offset(a, b)
    return map_("xor" if a.dtype.is_bool() else "add", a, b)


def _offset(p: tensor, i: tensor) -> tensor:
    if i.dtype.is_bool():
        i = cast(i, INT32)
    elif i.dtype.is_int_unsigned() and i.dtype.primitive_bitwidth < 64:
        i = cast(i, INT64)
    if i.const == 0 and not p.shape:
        return p
    return emit("ptr_add", [p, i], [p.handle.type])[0]


def sub(x: Operand, y: Operand) -> tensor:
    """Difference; a pointer minus an integer is a pointer that many elements before."""
    a, b = binary_operands(x, y, "-", pointers="left")
    if is_pointer(a):
        return _offset(a, neg(b))
    return map_("xor" if a.dtype.is_bool() else "sub", a, b)


def mul(x: Operand, y: Operand) -> tensor:
    """Product."""
    a, b = binary_operands(x, y, "*")
    return map_("and" if a.dtype.is_bool() else "mul", a, b)


def truediv(x: Operand, y: Operand) -> tensor:
    """Quotient as a float; of two integers in fp32."""
    a, b = binary_operands(x, y, "/", division=True)
    if a.dtype.is_int():
        a, b = cast(a, FP32), cast(b, FP32)
    return map_("truediv", a, b)


def _integers(a: tensor, what: str) -> None:
    if not a.dtype.is_int():
        raise fail(
            "operand-type",
            f"{what} of floats ({a.dtype})",
            why="Triton has no floor division of floats",
            do="write tl.floor(x / y)",
        )


def floordiv(x: Operand, y: Operand) -> tensor:
    """Quotient of integers, rounded towards zero as in C."""
    a, b = binary_operands(x, y, "//", division=True)
    _integers(a, "//")
    return map_("idiv", a, b)


def mod(x: Operand, y: Operand) -> tensor:
    """Remainder with the sign of the dividend, as in C."""
    a, b = binary_operands(x, y, "%", division=True)
    return map_("fmod" if a.dtype.is_floating() else "imod", a, b)


def neg(x: Operand) -> tensor:
    """Negation."""
    x = to_tensor(x)
    if is_pointer(x):
        raise fail(
            "operand-type", "negation of a pointer", why="a pointer has no sign", do="subtract an integer offset"
        )
    return x if x.dtype.is_bool() else map_("neg", x)  # in one bit, 0 - x is x


def _bits(x: Operand, y: Operand, what: str) -> tuple[tensor, tensor]:
    a, b = binary_operands(x, y, what)
    for t in (a, b):
        if is_pointer(t) or not t.dtype.is_int():
            raise fail(
                "operand-type",
                f"{what}: invalid operands of type {a.dtype} and {b.dtype}",
                why="bitwise operations are for integers and booleans",
                do="compare first (x > 0) & (y > 0), or bitcast: x.to(tl.int32, bitcast=True)",
            )
    t = promote_integers(a.dtype, b.dtype)
    return cast(a, t), cast(b, t)


def and_(x: Operand, y: Operand) -> tensor:
    """Bitwise and."""
    return map_("and", *_bits(x, y, "&"))


def or_(x: Operand, y: Operand) -> tensor:
    """Bitwise or."""
    return map_("or", *_bits(x, y, "|"))


def xor(x: Operand, y: Operand) -> tensor:
    """Bitwise exclusive or."""
    return map_("xor", *_bits(x, y, "^"))


def shl(x: Operand, y: Operand) -> tensor:
    """Shift to the left."""
    return map_("shl", *_bits(x, y, "<<"))


def shr(x: Operand, y: Operand) -> tensor:
    """Shift to the right: arithmetic when the left operand is signed."""
    signed = (
        to_tensor(x).dtype.is_int_signed() if not isinstance(unwrap(x), int) else to_tensor(y).dtype.is_int_signed()
    )
    a, b = _bits(x, y, ">>")
    t = a.dtype
    if t.is_int_signed() == signed or t.is_bool():
        return map_("shr", a, b)
    other = dtype(("int" if signed else "uint") + str(t.primitive_bitwidth))
    return bitcast(map_("shr", bitcast(a, other), bitcast(b, other)), t)


def invert(x: Operand) -> tensor:
    """Bitwise complement."""
    x = to_tensor(x)
    if is_pointer(x) or x.dtype.is_floating():
        raise fail("operand-type", f"~ of {x.dtype}", why="~ is for integers and booleans", do="negate floats with -x")
    return map_("not", x)


def truth(x: Operand) -> tensor:
    """`x != 0`, the value as a condition."""
    return cast(to_tensor(x), INT1)


def logical_not(x: Operand) -> tensor:
    """Python's ``not``, element by element."""
    return map_("not", truth(x))


def logical_and(x: Operand, y: Operand) -> tensor:
    """Python's ``and``, element by element; both sides are computed."""
    return map_("and", *broadcast(truth(x), truth(y)))


def logical_or(x: Operand, y: Operand) -> tensor:
    """Python's ``or``, element by element; both sides are computed."""
    return map_("or", *broadcast(truth(x), truth(y)))


def compare(fn: str, x: Operand, y: Operand) -> Any:
    """A comparison of row `fn`; `==` and `!=` with something that is no number are Python's."""
    x, y = unwrap(x), unwrap(y)
    symbol = {"lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "==", "ne": "!="}[fn]
    for other in (x, y):
        if fn in ("eq", "ne") and not isinstance(other, (tensor, bool, int, float)):
            return fn == "ne"
    # Triton takes a number for a tile here: `int8_tile < 300` is compared in int32.
    return map_(fn, *binary_operands(to_tensor(x), to_tensor(y), symbol))


def power(x: Operand, y: Operand) -> Any:
    """`**` has no form on tiles."""
    raise fail(
        "not-translated",
        "** on a run-time value",
        why="Triton has no power operator on tiles",
        do=("write x * x", "or import libdevice from triton.language.extra and call libdevice.pow(x, y)"),
    )


def matmul(x: Operand, y: Operand) -> Any:
    """`@` has no form on tiles."""
    raise fail("not-translated", "@ on tiles", why="Triton writes products of tiles as tl.dot", do="write tl.dot(x, y)")
