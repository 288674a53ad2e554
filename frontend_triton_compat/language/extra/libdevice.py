"""`tl.extra.libdevice`: the CUDA device library's functions that have a row, by their libdevice names.

Input: handles and Python numbers. Output: handles. Law: floats are computed in fp32 or fp64 as libdevice does; an
integer operand is converted to fp32 first.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from frontend_triton_compat.language import math as tl_math
from frontend_triton_compat.language import operators
from frontend_triton_compat.language.context import current
from frontend_triton_compat.language.semantic import binary_operands, cast, map_, to_tensor
from frontend_triton_compat.language.tensor import tensor
from frontend_triton_compat.language.unsupported import unsupported
from frontend_triton_compat.types import FP32, FP64, INT32

# libdevice name -> row
_UNARY = {
    name: name
    for name in (
        "exp exp2 exp10 expm1 log log2 log10 log1p sqrt rsqrt cbrt sin cos tan asin acos atan sinh cosh tanh "
        "asinh acosh atanh erf erfc lgamma floor ceil trunc rint round"
    ).split()
} | {
    "nearbyint": "rint",
    "fast_expf": "exp",
    "fast_exp10f": "exp10",
    "fast_logf": "log",
    "fast_log2f": "log2",
    "fast_log10f": "log10",
    "fast_sinf": "sin",
    "fast_cosf": "cos",
    "fast_tanf": "tan",
    "fast_tanhf": "tanh",
    "sqrt_rn": "sqrt",
    "rsqrt_rn": "rsqrt",
}
_TESTS = {"isnan": "isnan", "isinf": "isinf", "finitef": "isfinite", "isfinited": "isfinite", "signbit": "signbit"}
_BINARY = {
    "pow": "pow",
    "fast_powf": "pow",
    "atan2": "atan2",
    "hypot": "hypot",
    "copysign": "copysign",
    "fmod": "fmod",
    "fast_dividef": "truediv",
    "div_rn": "truediv",
    "add_rn": "add",
    "sub_rn": "sub",
    "mul_rn": "mul",
}
_ROUNDED = {
    "llrint": ("rint", 64),
    "llround": ("round", 64),
    "float2int_rn": ("rint", 32),
    "float2int_rz": ("trunc", 32),
}


def _floats(x: Any) -> tensor:
    x = to_tensor(x)
    return x if x.dtype in (FP32, FP64) else cast(x, FP32)


def _named(fn: Callable[..., Any], name: str, doc: str) -> Callable[..., Any]:
    fn.__name__ = fn.__qualname__ = name
    fn.__doc__ = doc
    return fn


def _unary(name: str, row: str) -> Callable[..., Any]:
    def fn(arg0: Any) -> tensor:
        current(f"libdevice.{name}")
        return map_(row, _floats(arg0))

    return _named(fn, name, f"{row} of every element.")


def _test(name: str, row: str) -> Callable[..., Any]:
    def fn(arg0: Any) -> tensor:
        current(f"libdevice.{name}")
        return cast(map_(row, _floats(arg0)), INT32)

    return _named(fn, name, f"{row} of every element, as int32.")


def _binary(name: str, row: str) -> Callable[..., Any]:
    def fn(arg0: Any, arg1: Any) -> tensor:
        current(f"libdevice.{name}")
        a, b = binary_operands(arg0, arg1, f"libdevice.{name}")
        return map_(row, _floats(a), _floats(b))

    return _named(fn, name, f"{row} of two floats, element by element.")


def _rounded(name: str, row: str, bits: int) -> Callable[..., Any]:
    def fn(arg0: Any) -> tensor:
        from frontend_triton_compat.types import dtype

        return cast(map_(row, _floats(arg0)), dtype(f"int{bits}"))

    return _named(fn, name, f"{row} of every element, as int{bits}.")


for _name, _row in _UNARY.items():
    globals()[_name] = _unary(_name, _row)
for _name, _row in _TESTS.items():
    globals()[_name] = _test(_name, _row)
for _name, _row in _BINARY.items():
    globals()[_name] = _binary(_name, _row)
for _name, (_row, _bits) in _ROUNDED.items():
    globals()[_name] = _rounded(_name, _row, _bits)


def abs(arg0: Any) -> tensor:
    """Absolute value of every element."""
    return tl_math.abs(arg0)


def fma(arg0: Any, arg1: Any, arg2: Any) -> tensor:
    """``x * y + z``."""
    return tl_math.fma(arg0, arg1, arg2)


def max(arg0: Any, arg1: Any) -> tensor:
    """Larger of two tiles; NaN is ignored."""
    return tl_math.maximum(arg0, arg1)


def min(arg0: Any, arg1: Any) -> tensor:
    """Smaller of two tiles; NaN is ignored."""
    return tl_math.minimum(arg0, arg1)


def fdim(arg0: Any, arg1: Any) -> tensor:
    """``max(x - y, 0)``."""
    return tl_math.maximum(operators.sub(arg0, arg1), 0.0)


def popc(arg0: Any) -> tensor:
    """Number of bits set, int32."""
    return map_("popc", to_tensor(arg0))


def clz(arg0: Any) -> tensor:
    """Number of leading zero bits, int32."""
    return map_("clz", to_tensor(arg0))


def umulhi(arg0: Any, arg1: Any) -> tensor:
    """High half of the unsigned product."""
    return tl_math.umulhi(arg0, arg1)


__all__ = sorted([*_UNARY, *_TESTS, *_BINARY, *_ROUNDED, "abs", "clz", "fdim", "fma", "max", "min", "popc", "umulhi"])


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    return unsupported(f"libdevice.{name}")
