"""`tl.extra.libdevice`: the CUDA device library's functions, by their libdevice names.

Input: handles and Python numbers. Output: handles. Law: floats are computed in fp32 or fp64 as libdevice does; another
operand is converted to fp32 first. Where libdevice's own result is approximate (``fast_...``, ``rcp64h``), ours is the
exact one; rounding in a direction is exact. `symbol` finds a function by the name that a linker knows (``__nv_expf``).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from frontend_triton_compat.language import math as tl_math
from frontend_triton_compat.language import operators as o
from frontend_triton_compat.language.context import current, fail
from frontend_triton_compat.language.semantic import binary_operands, bitcast, broadcast, cast, map_, to_tensor
from frontend_triton_compat.language.tensor import tensor
from frontend_triton_compat.language.unsupported import unsupported
from frontend_triton_compat.types import FP32, FP64, INT32, INT64, UINT32, UINT64, dtype

_UNARY = {
    name: name
    for name in (
        "exp exp2 exp10 expm1 log log2 log10 log1p sqrt rsqrt cbrt sin cos tan asin acos atan sinh cosh tanh "
        "asinh acosh atanh erf erfc lgamma floor ceil trunc rint round j0 j1 y0 y1 tgamma erfinv erfcinv erfcx normcdf "
        "normcdfinv sinpi cospi logb ilogb sqrt_rz sqrt_rd sqrt_ru"
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
    "cyl_bessel_i0": "i0",
    "cyl_bessel_i1": "i1",
}
_TESTS = {"isnan": "isnan", "isinf": "isinf", "finitef": "isfinite", "isfinited": "isfinite"}
_BINARY = {
    "fast_powf": "pow",
    "atan2": "atan2",
    "hypot": "hypot",
    "copysign": "copysign",
    "fmod": "fmod",
    "remainder": "remainder",
    "nextafter": "nextafter",
    "fast_dividef": "truediv",
    "div_rn": "truediv",
    "add_rn": "add",
    "sub_rn": "sub",
    "mul_rn": "mul",
} | {f"{op}_{mode}": f"{op}_{mode}" for op in ("add", "mul", "div") for mode in ("rz", "rd", "ru")}
_WHOLE = {"rn": "rint", "rz": "trunc", "rd": "floor", "ru": "ceil"}
_INTEGERS = {"int": INT32, "uint": UINT32, "ll": INT64, "ull": UINT64}


def _floats(x: Any) -> tensor:
    x = to_tensor(x)
    return x if x.dtype in (FP32, FP64) else cast(x, FP32)


def _floats2(name: str, *operands: Any) -> list[tensor]:
    """Several operands as floats of one type and shape."""
    first = to_tensor(operands[0])
    for other in operands[1:]:
        _, first = binary_operands(other, first, f"libdevice.{name}")
    return [_floats(binary_operands(x, first, f"libdevice.{name}")[0]) for x in operands]


def _define(name: str, fn: Callable[..., Any], doc: str) -> None:
    def call(*operands: Any) -> Any:
        current(f"libdevice.{name}")
        return fn(*operands)

    call.__name__ = call.__qualname__ = name
    call.__doc__ = doc
    globals()[name] = call
    _NAMES.append(name)


_NAMES: list[str] = []
for _name, _row in _UNARY.items():
    _define(_name, lambda x, row=_row: map_(row, _floats(x)), f"{_row} of every element.")
for _name, _row in _TESTS.items():
    _define(_name, lambda x, row=_row: map_(row, _floats(x)), f"{_row} of every element.")
for _name, _row in _BINARY.items():
    _define(_name, lambda x, y, n=_name, row=_row: map_(row, *_floats2(n, x, y)), f"{_row} of two floats.")


# -- arithmetic rounded in a direction


def _negative(x: tensor) -> tensor:
    return map_("mul", x, broadcast(cast(to_tensor(-1.0), x.dtype), x)[0])


def _fma(mode: str) -> Callable[..., tensor]:
    def fma(x: Any, y: Any, z: Any) -> tensor:
        operands = _floats2(f"fma_{mode}", x, y, z)
        if mode == "rn":
            return map_("fma", *operands)
        if operands[0].dtype == FP64:
            raise fail(
                "not-translated",
                f"libdevice.fma_{mode} of fp64",
                why="a product plus an addend of fp64 needs more bits than there are to round in a direction",
                do="use libdevice.fma_rn, or cast the operands to tl.float32",
            )
        return map_(f"fma_{mode}", *operands)

    return fma


def _reciprocal(mode: str) -> Callable[..., tensor]:
    def rcp(x: Any) -> tensor:
        x = _floats(x)
        one = broadcast(cast(to_tensor(1.0), x.dtype), x)[0]
        return map_("truediv" if mode == "rn" else f"div_{mode}", one, x)

    return rcp


def _difference(mode: str) -> Callable[..., tensor]:
    def sub(x: Any, y: Any) -> tensor:
        a, b = _floats2(f"sub_{mode}", x, y)
        return map_(f"add_{mode}", a, _negative(b))

    return sub


for _mode in ("rn", "rz", "rd", "ru"):
    _define(f"fma_{_mode}", _fma(_mode), "x * y + z, rounded once.")
    _define(f"rcp_{_mode}", _reciprocal(_mode), "1 / x.")
    if _mode != "rn":
        _define(f"sub_{_mode}", _difference(_mode), "x - y, rounded in a direction.")


# -- conversions


def _to_integer(source: dtype, target: dtype, mode: str) -> Callable[..., tensor]:
    def convert(x: Any) -> tensor:
        whole = cast(map_(_WHOLE[mode], cast(to_tensor(x), source)), target)
        return whole if target.is_int_signed() else bitcast(whole, dtype(f"int{target.primitive_bitwidth}"))

    return convert


def _to_float(source: dtype, target: dtype, mode: str) -> Callable[..., tensor]:
    def convert(x: Any) -> tensor:
        x = cast(to_tensor(x), source)
        if mode == "rn":
            return cast(x, target)
        high, low = cast(x, FP64), cast(to_tensor(0.0), FP64)
        if source.primitive_bitwidth == 64:
            high = o.mul(cast(o.shr(x, 32), FP64), 4294967296.0)
            low = cast(o.and_(x, 0xFFFFFFFF), FP64)
        return cast(map_(f"{target}_{mode}", *broadcast(high, low)), target)

    return convert


def _narrowed(mode: str) -> Callable[..., tensor]:
    def convert(x: Any) -> tensor:
        x = cast(to_tensor(x), FP64)
        return cast(x, FP32) if mode == "rn" else cast(map_(f"fp32_{mode}", *broadcast(x, o.mul(x, 0.0))), FP32)

    return convert


def _reread(source: dtype, target: dtype) -> Callable[..., tensor]:
    return lambda x: bitcast(cast(to_tensor(x), source), target)


for _mode in ("rn", "rz", "rd", "ru"):
    for _short, _type in _INTEGERS.items():
        for _float, _wide in (("float", FP32), ("double", FP64)):
            _define(f"{_float}2{_short}_{_mode}", _to_integer(_wide, _type, _mode), f"A float as {_type}.")
            if _mode == "rn" or not (_float == "double" and _type.primitive_bitwidth == 32):
                _define(f"{_short}2{_float}_{_mode}", _to_float(_type, _wide, _mode), f"{_type} as a float.")
    _define(f"double2float_{_mode}", _narrowed(_mode), "fp64 as fp32.")
for _name, _from, _to in (
    ("int_as_float", INT32, FP32),
    ("float_as_int", FP32, INT32),
    ("uint_as_float", UINT32, FP32),
    ("float_as_uint", FP32, INT32),
    ("longlong_as_double", INT64, FP64),
    ("double_as_longlong", FP64, INT64),
):
    _define(_name, _reread(_from, _to), f"The bits of {_from} read as {_to}.")
_define("llrint", lambda x: cast(map_("rint", _floats(x)), INT64), "Rounded to the nearest int64, ties to even.")
_define("llround", lambda x: cast(map_("round", _floats(x)), INT64), "Rounded to the nearest int64, ties up.")


def _words(x: Any) -> tensor:
    return bitcast(cast(to_tensor(x), FP64), INT64)


_define("double2hiint", lambda x: cast(o.shr(_words(x), 32), INT32), "The high word of an fp64 number.")
_define("double2loint", lambda x: cast(_words(x), INT32), "The low word of an fp64 number.")
_define(
    "hiloint2double",
    lambda high, low: bitcast(
        o.or_(o.shl(cast(to_tensor(high), INT64), 32), o.and_(cast(to_tensor(low), INT64), 0xFFFFFFFF)), FP64
    ),
    "An fp64 number from its two words.",
)


# -- floats, several operands


def _norm(*operands: Any) -> tensor:
    values = [cast(x, FP64) for x in _floats2("norm", *operands)]
    largest = tl_math.abs(values[0])
    for x in values[1:]:
        largest = tl_math.maximum(largest, tl_math.abs(x))
    unit = tl_math.where(o.and_(o.compare("gt", largest, 0.0), o.compare("lt", largest, float("inf"))), largest, 1.0)
    total = None
    for x in values:
        part = o.truediv(x, unit)
        total = o.mul(part, part) if total is None else o.add(total, o.mul(part, part))
    return o.mul(unit, tl_math.sqrt(total))


def _like(x: Any, result: tensor) -> tensor:
    return cast(result, _floats(x).dtype)


_define("norm3d", lambda x, y, z: _like(x, _norm(x, y, z)), "Length of a vector.")
_define("norm4d", lambda x, y, z, w: _like(x, _norm(x, y, z, w)), "Length of a vector.")
_define("rnorm3d", lambda x, y, z: _like(x, o.truediv(1.0, _norm(x, y, z))), "1 / length of a vector.")
_define("rnorm4d", lambda x, y, z, w: _like(x, o.truediv(1.0, _norm(x, y, z, w))), "1 / length of a vector.")
_define("rhypot", lambda x, y: _like(x, o.truediv(1.0, _norm(x, y))), "1 / length of a vector.")
_define("rcbrt", lambda x: o.truediv(1.0, map_("cbrt", _floats(x))), "1 / cube root.")
_define("fdim", lambda x, y: tl_math.maximum(o.sub(x, y), 0.0, tl_math.PropagateNan.ALL), "max(x - y, 0).")
_define("fma", _fma("rn"), "x * y + z, rounded once.")
_define("max", tl_math.maximum, "Larger of two tiles; NaN is ignored.")
_define("min", tl_math.minimum, "Smaller of two tiles; NaN is ignored.")
_define("abs", tl_math.abs, "Absolute value of every element.")
_define("signbit", lambda x: cast(map_("signbit", _floats(x)), INT32), "1 where the sign bit is set, as int32.")
_define(
    "saturatef", lambda x: tl_math.minimum(tl_math.maximum(_floats(x), 0.0), 1.0), "x limited to [0, 1]; 0 for NaN."
)
_define(
    "rcp64h",
    lambda x: bitcast(o.and_(_words(o.truediv(1.0, cast(to_tensor(x), FP64))), -(2**32)), FP64),
    "1 / x, the high word of it.",
)


def _times_power(x: Any, n: Any) -> tensor:
    x = _floats(x)
    return map_("ldexp", *broadcast(x, cast(to_tensor(n), x.dtype)))


def _pow(x: Any, y: Any) -> tensor:
    x, y = to_tensor(x), to_tensor(y)
    return map_("pow", *_floats2("pow", x, cast(y, _floats(x).dtype) if y.dtype.is_int() else y))


_define("ldexp", _times_power, "x * 2**n.")
_define("scalbn", _times_power, "x * 2**n.")
_define("pow", _pow, "x to the power of a float or an integer.")


def _of_order(name: str) -> Callable[..., Any]:
    def bessel(n: Any, x: Any) -> Any:
        raise fail(
            "not-translated",
            f"libdevice.{name}",
            why="a Bessel function whose order is data has no formula here",
            do=f"use libdevice.{name[0]}0 and libdevice.{name[0]}1, and the recurrence f(n+1) = 2n/x f(n) - f(n-1)",
        )

    return bessel


_define("jn", _of_order("jn"), "Bessel function of order n: not translated.")
_define("yn", _of_order("yn"), "Bessel function of order n: not translated.")


# -- integers


def _whole(x: Any, name: str) -> tensor:
    x = to_tensor(x)
    if not x.dtype.is_int():
        raise fail(
            "operand-type", f"libdevice.{name} of {x.dtype}", why="it is for integers", do="cast to tl.int32 first"
        )
    return x if x.dtype.primitive_bitwidth >= 32 else cast(x, INT32)


def _whole2(name: str, x: Any, y: Any) -> tuple[tensor, tensor]:
    return binary_operands(_whole(x, name), _whole(y, name), f"libdevice.{name}")


def _high(x: Any, y: Any) -> tensor:
    a, b = _whole2("mulhi", x, y)
    high = tl_math.umulhi(a, b)
    if not a.dtype.is_int_signed():
        return high
    zero = cast(to_tensor(0), a.dtype)
    high = o.sub(high, tl_math.where(o.compare("lt", a, zero), b, zero))
    return o.sub(high, tl_math.where(o.compare("lt", b, zero), a, zero))


def _mul24(x: Any, y: Any) -> tensor:
    a, b = (o.shl(v, 8) for v in _whole2("mul24", x, y))
    return o.mul(o.shr(a, 8), o.shr(b, 8))


def _reversed(x: Any) -> tensor:
    x = _whole(x, "brev")
    t, bits = x.dtype, x.dtype.primitive_bitwidth
    x = bitcast(x, UINT64 if bits == 64 else UINT32)
    step = 1
    while step < bits:
        mask = sum(((1 << step) - 1) << i for i in range(0, bits, 2 * step))
        x = o.or_(o.shl(o.and_(x, mask), step), o.and_(o.shr(x, step), mask))
        step *= 2
    return bitcast(x, t)


def _first_set(x: Any) -> tensor:
    x = _whole(x, "ffs")
    low = o.and_(x, o.neg(x))
    return o.sub(x.dtype.primitive_bitwidth, cast(map_("clz", low), INT32))


def _permuted(x: Any, y: Any, s: Any) -> tensor:
    words = [cast(bitcast(cast(to_tensor(v), INT32), UINT32), UINT64) for v in (x, y)]
    both = o.or_(words[0], o.shl(words[1], 32))
    selector = bitcast(cast(to_tensor(s), INT32), UINT32)
    result = None
    for i in range(4):
        place = cast(o.mul(o.and_(o.shr(selector, 4 * i), 7), 8), UINT64)
        byte = o.shl(cast(o.and_(o.shr(both, place), 0xFF), UINT32), 8 * i)
        result = byte if result is None else o.or_(result, byte)
    assert result is not None
    return bitcast(result, INT32)


def _sad(x: Any, y: Any, z: Any) -> tensor:
    a, b = _whole2("sad", x, y)
    distance = tl_math.where(o.compare("gt", a, b), o.sub(a, b), o.sub(b, a))
    return o.add(distance, cast(to_tensor(z), distance.dtype))


def _half(join: Callable[..., tensor], combine: Callable[..., tensor], name: str) -> Callable[..., tensor]:
    def average(x: Any, y: Any) -> tensor:
        a, b = _whole2(name, x, y)
        return combine(join(a, b), o.shr(o.xor(a, b), 1))

    return average


_define("popc", lambda x: map_("popc", _whole(x, "popc")), "Number of bits set, int32.")
_define("clz", lambda x: map_("clz", _whole(x, "clz")), "Number of leading zero bits, int32.")
_define("ffs", _first_set, "Position of the lowest bit set, from 1; 0 where none is.")
_define("brev", _reversed, "Bits in reverse order.")
_define("byte_perm", _permuted, "Four bytes picked from eight.")
_define("mulhi", _high, "High half of the product.")
_define("umulhi", tl_math.umulhi, "High half of the unsigned product.")
_define("mul24", _mul24, "Product of the low 24 bits.")
_define("sad", _sad, "|x - y| + z.")
_define("hadd", _half(o.and_, o.add, "hadd"), "Average, rounded down, without overflow.")
_define("rhadd", _half(o.or_, o.sub, "rhadd"), "Average, rounded up, without overflow.")
__all__ = sorted(_NAMES)

# -- by the names that a linker knows

_SYMBOLS = {
    "llabs": "abs", "fabs": "abs", "fabsf": "abs", "fmaxf": "max", "fmax": "max", "umax": "max", "llmax": "max",
    "ullmax": "max", "fminf": "min", "fmin": "min", "umin": "min", "llmin": "min", "ullmin": "min", "clzll": "clz",
    "popcll": "popc", "ffsll": "ffs", "brevll": "brev", "mul64hi": "mulhi", "umul64hi": "mulhi", "umul24": "mul24",
    "usad": "sad", "uhadd": "hadd", "urhadd": "rhadd", "isnand": "isnan", "isinfd": "isinf", "signbitd": "signbit",
    "powi": "pow", "powif": "pow", "fast_fdividef": "fast_dividef", "fast_exp10f": "fast_exp10f",
}  # fmt: skip


def symbol(name: str) -> Callable[..., Any] | None:
    """The function behind a symbol of the device library, e.g. ``__nv_expf``; None where there is none."""
    plain = name.removeprefix("__nv_")
    rounded = plain[1:] if plain[:1] in "fd" and plain[-3:] in ("_rn", "_rz", "_rd", "_ru") else plain
    fused = plain.replace("fmaf_", "fma_")
    for known in (_SYMBOLS.get(plain), plain, plain.removesuffix("f"), rounded, fused):
        if known in _NAMES:
            return globals()[known]
    return None


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    return unsupported(f"libdevice.{name}")
