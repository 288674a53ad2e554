"""`tl.math` and the elementwise functions of `tl`: exp, sqrt, maximum, where, clamp, fma, cdiv, ...

Input: handles and Python numbers. Output: handles. Law: one function a row; types that Triton refuses are refused.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Any

from frontend_triton_compat.language import operators
from frontend_triton_compat.language.constexpr import unwrap
from frontend_triton_compat.language.context import current, fail
from frontend_triton_compat.language.semantic import Operand, binary_operands, bitcast, broadcast, cast, map_, to_tensor
from frontend_triton_compat.language.tensor import is_number, is_pointer, tensor
from frontend_triton_compat.types import BF16, FP32, INT1, UINT8, UINT32, UINT64


class PropagateNan(Enum):
    """What ``maximum``, ``minimum`` and ``clamp`` do with NaN: ignore it (NONE) or carry it (ALL)."""

    NONE = 0
    ALL = 0xFFFF


def float_operand(x: Operand, name: str, allowed: tuple[str, ...] = ("fp32", "fp64")) -> tensor:
    """A handle of one of the allowed types; Triton's maths functions do not take half precision."""
    x = to_tensor(x)
    if str(x.dtype) not in allowed:
        raise fail(
            "operand-type",
            f"{name} of {x.dtype}",
            why=f"Expected dtype {list(allowed)} but got {x.dtype}",
            do=f"compute in fp32: tl.{name}(x.to(tl.float32))",
        )
    return x


def _elementwise(name: str, row: str = "", allowed: tuple[str, ...] = ("fp32", "fp64")) -> Callable[[Operand], tensor]:
    def fn(x: Operand) -> tensor:
        current(f"tl.{name}")
        return map_(row or name, float_operand(x, name, allowed))

    fn.__name__ = fn.__qualname__ = name
    fn.__doc__ = f"{name} of every element of `x` ({', '.join(allowed)})."
    return fn


exp = _elementwise("exp")
exp2 = _elementwise("exp2")
log = _elementwise("log")
log2 = _elementwise("log2")
sin = _elementwise("sin")
cos = _elementwise("cos")
sqrt = _elementwise("sqrt")
sqrt_rn = _elementwise("sqrt_rn", "sqrt", ("fp32",))
rsqrt = _elementwise("rsqrt")
erf = _elementwise("erf")
floor = _elementwise("floor")
ceil = _elementwise("ceil")


def tanh(x: Operand) -> tensor:
    """Hyperbolic tangent of every element."""
    return map_("tanh", float_operand(x, "tanh"))


def abs(x: Operand) -> tensor:
    """Absolute value of every element."""
    current("tl.abs")
    x = to_tensor(x)
    if is_pointer(x):
        raise fail("operand-type", "abs of a pointer", why="a pointer has no sign", do="load the value first")
    if x.dtype.is_fp8():
        bits = bitcast(x, UINT8)
        size = operators.and_(bits, 0x7F)
        if x.dtype.name in ("fp8e4b8", "fp8e5b16"):  # the sign of nothing is NaN there
            size = where(operators.compare("eq", bits, 0x80), bits, size)
        return bitcast(size, x.dtype)
    return x if x.dtype.is_int_unsigned() else map_("abs", x)


def sigmoid(x: Operand) -> tensor:
    """``1 / (1 + exp(-x))``; fp32 or fp64."""
    current("tl.sigmoid")
    return map_("sigmoid", float_operand(x, "sigmoid"))


def fma(x: Operand, y: Operand, z: Operand) -> tensor:
    """``x * y + z`` of floats."""
    current("tl.fma")
    x, y = binary_operands(to_tensor(x), to_tensor(y), "fma")
    z, x = binary_operands(to_tensor(z), x, "fma")
    z, y = binary_operands(z, y, "fma")
    if not z.dtype.is_floating():
        raise fail(
            "operand-type",
            f"fma of {z.dtype}",
            why="a fused multiply-add is an operation on floats",
            do="write x * y + z",
        )
    return map_("fma", x, y, z)


def fdiv(x: Operand, y: Operand, ieee_rounding: bool = False) -> tensor:
    """Quotient of two floats."""
    current("tl.fdiv")
    x, y = to_tensor(x), to_tensor(y)
    if not x.dtype.is_floating() or not y.dtype.is_floating():
        raise fail(
            "operand-type",
            f"fdiv of {x.dtype} and {y.dtype}",
            why="both operands of fdiv must be floats",
            do="write x / y, which converts integers",
        )
    x, y = binary_operands(x, y, "fdiv")
    return map_("truediv", x, y)


def div_rn(x: Operand, y: Operand) -> tensor:
    """Quotient of fp32 tiles, rounded to nearest."""
    current("tl.div_rn")
    x, y = binary_operands(float_operand(x, "div_rn", ("fp32",)), float_operand(y, "div_rn", ("fp32",)), "div_rn")
    return map_("truediv", x, y)


def umulhi(x: Operand, y: Operand) -> tensor:
    """High half of the product of two integers read as unsigned."""
    current("tl.umulhi")
    a, b = binary_operands(to_tensor(x), to_tensor(y), "umulhi")
    if str(a.dtype) not in ("int32", "int64", "uint32", "uint64"):
        raise fail(
            "operand-type",
            f"umulhi of {a.dtype}",
            why="umulhi takes 32-bit and 64-bit integers",
            do="cast both operands to tl.uint32",
        )
    t = a.dtype
    unsigned = UINT64 if t.primitive_bitwidth == 64 else UINT32
    return bitcast(map_("umulhi", bitcast(a, unsigned), bitcast(b, unsigned)), t)


def mulhi(x: Operand, y: Operand) -> tensor:
    """Another name of `umulhi`."""
    return umulhi(x, y)


# -- choosing ----------------------------------------------------------------------------------------------------


def _extreme(which: str, x: Operand, y: Operand, propagate_nan: Any) -> tensor:
    name = {"max": "maximum", "min": "minimum"}[which]
    current(f"tl.{name}")
    a, b = binary_operands(_widened(x), _widened(y), name)
    if a.dtype.is_floating():
        return map_(name + ("_nan" if carries_nan(propagate_nan) else ""), a, b)
    if a.dtype.is_bool():
        return map_("or" if which == "max" else "and", a, b)
    return map_(which, a, b)


def _widened(x: Operand) -> tensor:
    # Triton takes a number for a tile here (it promotes), and has no bf16 form of these functions.
    x = to_tensor(x)
    return cast(x, FP32) if x.dtype == BF16 else x


def carries_nan(option: Any) -> bool:
    """Whether a `propagate_nan` argument asks for NaN to be carried (ours or the genuine package's enum)."""
    return getattr(unwrap(option), "name", "NONE") == "ALL"


def maximum(x: Operand, y: Operand, propagate_nan: Any = PropagateNan.NONE) -> tensor:
    """Larger of two tiles, element by element; NaN is ignored unless `propagate_nan` is ALL."""
    return _extreme("max", x, y, propagate_nan)


def minimum(x: Operand, y: Operand, propagate_nan: Any = PropagateNan.NONE) -> tensor:
    """Smaller of two tiles, element by element; NaN is ignored unless `propagate_nan` is ALL."""
    return _extreme("min", x, y, propagate_nan)


def clamp(x: Operand, min: Operand, max: Operand, propagate_nan: Any = PropagateNan.NONE) -> tensor:
    """`x` limited to ``[min, max]``; floats only."""
    current("tl.clamp")
    low, high = binary_operands(_widened(min), _widened(max), "clamp")
    x = _widened(x)
    x, low = binary_operands(x, low, "clamp")
    x, high = binary_operands(x, high, "clamp")
    low, x = broadcast(cast(low, x.dtype), x)
    if not x.dtype.is_floating():
        raise fail(
            "operand-type",
            f"clamp of {x.dtype}",
            why="Triton's clamp takes floats only",
            do="write tl.minimum(tl.maximum(x, low), high)",
        )
    return minimum(maximum(x, low, propagate_nan), high, propagate_nan)


def where(condition: Operand, x: Operand, y: Operand) -> tensor:
    """`x` where `condition` is true, else `y`; both sides are computed."""
    current("tl.where")
    condition = cast(to_tensor(condition), INT1)
    a, b = binary_operands(x, y, "where", pointers="both")
    if is_pointer(a) != is_pointer(b):
        raise fail(
            "operand-type",
            f"where of {a.dtype} and {b.dtype}",
            why="both choices must be pointers of one type",
            do="choose between offsets: pointer + tl.where(condition, i, j)",
        )
    condition, a = broadcast(condition, a)
    condition, b = broadcast(condition, b)
    return map_("where", condition, *broadcast(a, b))


def cdiv(x: Any, div: Any) -> Any:
    """``(x + div - 1) // div``: how many blocks of size `div` cover `x`."""
    x, div = unwrap(x), unwrap(div)
    if is_number(x) and is_number(div):
        return (x + (div - 1)) // div
    current("tl.cdiv")
    less = div - 1 if is_number(div) else operators.sub(div, 1)
    return operators.floordiv(operators.add(x, less), div)


def swizzle2d(i: Operand, j: Operand, size_i: Operand, size_j: Operand, size_g: Operand) -> tuple[Any, Any]:
    """Row-major tile numbers renumbered column-major within groups of `size_g` rows."""
    current("tl.swizzle2d")
    o = operators
    flat = o.add(o.mul(i, size_j), j)
    per_group = o.mul(size_g, size_j)
    first = o.mul(o.floordiv(flat, per_group), size_g)
    height = minimum(o.sub(size_i, first), size_g)
    inside = o.mod(flat, per_group)
    return o.add(first, o.mod(inside, height)), o.floordiv(inside, height)
