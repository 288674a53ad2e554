"""What the op table's rows are on Mosaic GPU, where that is not the row's own code.

Input: the rows of the other modules. Output: an entry ``gpu`` in their `targets`. Law: a row that is neither in
`_AS_IT_IS` nor in `_FORMS` has no lowering, and is refused with the user's line; conditions are never negated or
compared as such, which has no lowering, but as 0 and 1.
"""

from __future__ import annotations

from frontend_triton_compat.language import (  # noqa: F401 - the rows are there before they get a form here
    functions_tpu,
    rows_arith,
    rows_cast,
    rows_math,
    rows_move,
    rows_scan,
    rows_special,
    rows_tile,
)
from frontend_triton_compat.language.table import HELPERS, ROWS

#: Rows whose code has a lowering (compiled one by one with jax 0.10).
_AS_IT_IS = frozenset(
    "add sub mul truediv idiv imod min max minimum maximum minimum_nan maximum_nan neg and or xor not shl shr umulhi "
    "lt le gt ge eq ne where fma exp exp2 log log2 rsqrt sin cos tanh sigmoid rint abs clz "
    "low_8 signed_8 low_16 signed_16".split()
)
_FORMS = {
    "not:bool": "jnp.where({0}, 0, 1) != 0",
    "xor:bool": "jnp.where({0}, 1, 0) != jnp.where({1}, 1, 0)",
    "ne:bool": "jnp.where({0}, 1, 0) != jnp.where({1}, 1, 0)",
    "eq:bool": "jnp.where({0}, 1, 0) == jnp.where({1}, 1, 0)",
    "exp10": "in_fp32(lambda x: jnp.exp2(x * 3.321928094887362), {0})",
    "expm1": "in_fp32(exp_less_one, {0})",
    "log10": "in_fp32(lambda x: jnp.log(x) * 0.4342944819032518, {0})",
    "log1p": "in_fp32(log_of_one_more, {0})",
    "sqrt": "in_fp32(square_root, {0})",
    "tan": "in_fp32(lambda x: jnp.sin(x) / jnp.cos(x), {0})",
    "sinh": "in_fp32(lambda x: (exp_less_one(x) - exp_less_one(-x)) / 2, {0})",
    "cosh": "in_fp32(lambda x: (jnp.exp(x) + jnp.exp(-x)) / 2, {0})",
    "erf": "in_fp32(error_function, {0})",
    "floor": "in_fp32(round_down, {0})",
    "ceil": "in_fp32(lambda x: -round_down(-x), {0})",
    "trunc": "in_fp32(lambda x: with_sign(round_down(jnp.abs(x)), x), {0})",
    "round": "in_fp32(lambda x: with_sign(half_up(jnp.abs(x)), x), {0})",
    "copysign": "with_sign(jnp.abs({0}), {1})",
    "isnan": "{0} != {0}",
    "isinf": "jnp.abs({0}) == jnp.inf",
    "isfinite": "jnp.abs({0}) < jnp.inf",
    "signbit": "lax.bitcast_convert_type({0}.astype(jnp.float32), jnp.int32) < 0",
}
_SOURCES = {
    "in_fp32": '''
def in_fp32(function, x):
    """A function of fp32 on numbers of any float type."""
    return function(x.astype(jnp.float32)).astype(x.dtype)
''',
    "with_sign": '''
def with_sign(x, like):
    """x, which is not negative, with another number's sign."""
    return jnp.where(lax.bitcast_convert_type(like.astype(jnp.float32), jnp.int32) < 0, -x, x)
''',
    "round_down": '''
def round_down(x):
    """The largest whole number that is not above x."""
    whole = lax.round(x, lax.RoundingMethod.TO_NEAREST_EVEN)
    return jnp.where(whole > x, whole - 1, whole)
''',
    "half_up": '''
def half_up(x):
    """The nearest whole number, of two the larger."""
    whole = round_down(x)
    return jnp.where(x - whole >= 0.5, whole + 1, whole)
''',
    "square_root": '''
def square_root(x):
    """The root: of the reciprocal root, corrected once."""
    root = x * lax.rsqrt(x)
    root = root + (x - root * root) / (2 * root)
    return jnp.where((x == 0) | (x == jnp.inf), x, root)
''',
    "exp_less_one": '''
def exp_less_one(x):
    """exp(x) - 1, where exp rounds, corrected by what it was the exponential of."""
    e = jnp.exp(x)
    near = jnp.where(e == 1, x, (e - 1) * x / jnp.log(e))
    return jnp.where(e == jnp.inf, e, jnp.where(e - 1 == -1, -1.0, near))
''',
    "log_of_one_more": '''
def log_of_one_more(x):
    """log(1 + x), where the sum rounds, corrected by what it became."""
    u = 1 + x
    near = jnp.where(u == 1, x, jnp.log(u) * x / (u - 1))
    return jnp.where(u == jnp.inf, u, near)
''',
    "error_function": '''
def error_function(x):
    """erf: a power series near 0, elsewhere Abramowitz & Stegun 7.1.26."""
    s = x * x
    series = 1 / 10.0 - s * (1 / 42.0 - s * (1 / 216.0 - s * (1 / 1320.0 - s / 9360.0)))
    near = 1.1283791670955126 * x * (1 - s * (1 / 3.0 - s * series))
    t = 1 / (1 + 0.3275911 * jnp.abs(x))
    tail = 1.421413741 + t * (-1.453152027 + t * 1.061405429)
    far = 1 - t * (0.254829592 + t * (-0.284496736 + t * tail)) * jnp.exp(-s)
    return jnp.where(jnp.abs(x) < 0.75, near, with_sign(far, x))
''',
}

for _name, _source in _SOURCES.items():
    HELPERS.setdefault(_name, {})["gpu"] = _source
for _row in ROWS.values():
    if _row.name not in _AS_IT_IS and "gpu" not in _row.targets:
        _row.targets["gpu"] = "!gpu-unsupported-op"
for _name, _code in _FORMS.items():
    _row, _, _kind = _name.partition(":")
    ROWS[_row].targets[f"gpu:{_kind}" if _kind else "gpu"] = _code
