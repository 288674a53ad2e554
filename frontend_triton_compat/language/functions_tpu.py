"""Functions of the emitted module on a TPU: mathematics that Mosaic does not lower, in fp32.

Input: none. Output: the TPU texts of `HELPERS`; rows of `rows_math` and `rows_special` call them. Law: fp32 within a
few units of the last place, NaN and infinities as C has them; 16-bit floats are computed in fp32 and rounded once. The
polynomial interpolates at Chebyshev points and was computed for this package.
"""

from __future__ import annotations

from frontend_triton_compat.language import functions as _functions  # noqa: F401 - whose texts are used here too
from frontend_triton_compat.language import functions_special as _special  # noqa: F401 - likewise
from frontend_triton_compat.language.table import HELPERS


def _add(name: str, text: str) -> None:
    HELPERS.setdefault(name, {})["tpu"] = text


_add(
    "in_fp32",
    '''
def in_fp32(fn, *operands):
    """A function computed in fp32, rounded to the operands' type."""
    return fn(*(x.astype(jnp.float32) for x in operands)).astype(operands[0].dtype)
''',
)
_add("horner", HELPERS["horner"]["cpu"])
_add(
    "with_sign",
    '''
def with_sign(size, x):
    """A size that is not negative, with the sign of x; fp32."""
    sign = lax.bitcast_convert_type(x, jnp.int32) & jnp.int32(-(2**31))
    return lax.bitcast_convert_type(lax.bitcast_convert_type(size, jnp.int32) | sign, jnp.float32)
''',
)
_add(
    "less_one",
    '''
def less_one(x):
    """exp(x) - 1: a series below 0.7 in size."""
    near = jnp.where(jnp.abs(x) < 0.7, x, 0.0)
    series = near + near * near * horner(
        near, 1 / 2, 1 / 6, 1 / 24, 1 / 120, 1 / 720, 1 / 5040, 1 / 40320, 1 / 362880, 1 / 3628800, 1 / 39916800
    )
    return jnp.where(jnp.abs(x) < 0.7, jnp.where(x == 0, x, series), jnp.exp(x) - 1)
''',
)
_add(
    "hyperbolic_sine",
    '''
def hyperbolic_sine(x):
    """sinh."""
    size = jnp.abs(x)
    less, root = less_one(jnp.minimum(size, 20)), jnp.exp(size / 2)
    return with_sign(jnp.where(size < 20, (less + less / (less + 1)) / 2, root / 2 * root), x)
''',
)
_add(
    "hyperbolic_cosine",
    '''
def hyperbolic_cosine(x):
    """cosh."""
    size = jnp.abs(x)
    power, root = jnp.exp(jnp.minimum(size, 20)), jnp.exp(size / 2)
    return jnp.where(size < 20, (power + 1 / power) / 2, root / 2 * root)
''',
)
_add(
    "arc_sine",
    '''
def arc_sine(x):
    """asin."""
    return jnp.where(jnp.abs(x) <= 1, jnp.arctan2(x, jnp.sqrt((1 - x) * (1 + x))), jnp.nan)
''',
)
_add(
    "arc_cosine",
    '''
def arc_cosine(x):
    """acos."""
    return jnp.where(jnp.abs(x) <= 1, jnp.arctan2(jnp.sqrt((1 - x) * (1 + x)), x), jnp.nan)
''',
)
_add(
    "arc_tangent",
    '''
def arc_tangent(x):
    """atan."""
    return jnp.arctan2(x, jnp.ones_like(x))
''',
)
_add(
    "area_sine",
    '''
def area_sine(x):
    """asinh."""
    size = jnp.abs(x)
    near = jnp.minimum(size, 1e9)
    square = near * near
    inside = jnp.log1p(near + square / (1 + jnp.sqrt(1 + square)))
    return with_sign(jnp.where(size < 1e9, inside, jnp.log(size) + 0.6931471805599453), x)
''',
)
_add(
    "area_cosine",
    '''
def area_cosine(x):
    """acosh."""
    near = jnp.minimum(x, 1e9) - 1
    return jnp.where(x < 1e9, jnp.log1p(near + jnp.sqrt(near * (near + 2))), jnp.log(x) + 0.6931471805599453)
''',
)
_add(
    "area_tangent",
    '''
def area_tangent(x):
    """atanh."""
    size = jnp.abs(x)
    return with_sign(jnp.log1p(2 * size / (1 - size)) / 2, x)
''',
)
_add(
    "cube_root",
    '''
def cube_root(x):
    """cbrt: a power, then two steps of Newton's method; numbers below the smallest normal one count as 0."""
    size = jnp.abs(x)
    regular = (size > 0) & (size < jnp.inf)
    part = jnp.where(regular, size, 1.0)
    root = jnp.exp2(jnp.log2(part) / 3)
    for _ in range(2):
        root = root - (root - part / (root * root)) / 3
    return with_sign(jnp.where(regular, root, size), x)
''',
)
_add(
    "complement_of_erf",
    '''
def complement_of_erf(x):
    """erfc: 1 - erf below 0.5, above it exp(-x * x), whose rounded part is put back, times a polynomial."""
    y = jnp.clip(jnp.abs(x), 0.5, 10.6)
    t = (y - 2.5) / (y + 2.5)
    scaled = horner(
        t, 1.264838184086967, -0.12235677398662876, -0.09902449834577479, 0.15763045156439734,
        -0.10296800897226763, 0.032753521029602474, 0.0009395509569349417, -0.004339735619736211,
        0.00046640789894076127, 0.0005224950263841073, -0.00005637309476793511,
    ) / (1 + 2 * y)
    top = lax.bitcast_convert_type(lax.bitcast_convert_type(y, jnp.int32) & jnp.int32(-4096), jnp.float32)
    power = jnp.exp(-top * top) * jnp.exp((top - y) * (top + y))
    tail = jnp.where(jnp.abs(x) > 10.6, 0.0, power * scaled)
    found = jnp.where(x < 0, 2 - tail, tail)
    return jnp.where(jnp.abs(x) < 0.5, 1 - lax.erf(x), jnp.where(x == x, found, x))
''',
)
_add(
    "log_of_gamma",
    '''
def log_of_gamma(x):
    """lgamma: a polynomial around its zeros at 1 and 2, Stirling's series above 3.5, reflected below 0.5."""
    y = jnp.where(x < 0.5, 1 - x, x)
    near = y < 3.5
    t = jnp.where(near, y - jnp.where(y < 1.5, 1.0, jnp.where(y < 2.5, 2.0, 3.0)), 0.0)
    found = t * horner(
        t, 0.42278433509846713, 0.3224670334241132, -0.06735230105319814, 0.02058080842778457,
        -0.0073855510286681535, 0.002890510330738737, -0.0011927539120010226, 0.0005096695248853096,
        -0.00022315475074520367, 0.00009945750909889392, -0.000044926351103833334, 0.00002050726741605779,
    )
    step = jnp.where(y < 1.5, -jnp.log1p(t), jnp.where(y < 2.5, 0.0, jnp.log(jnp.maximum(y, 1.5) - 1)))
    far = jnp.maximum(y, 3.5)
    u = 1 / far
    series = u * horner(u * u, 1 / 12, -1 / 360, 1 / 1260, -1 / 1680)
    log = jnp.log(far)
    whole = far * (log - 1) - 0.5 * log + (0.9189385332046727 + series)
    whole = jnp.where(far < 1e37, whole, jnp.where(far < jnp.inf, far * (log - 1), jnp.inf))
    positive = jnp.where(near, found + step, whole)
    rest = x - jnp.floor(x)
    mirrored = 1.1447298858494002 - jnp.log(jnp.sin(3.141592653589793 * jnp.minimum(rest, 1 - rest))) - positive
    mirrored = jnp.where(rest == 0, jnp.inf, mirrored)
    return jnp.where(x == x, jnp.where(jnp.abs(x) == jnp.inf, jnp.inf, jnp.where(x < 0.5, mirrored, positive)), x)
''',
)
_add(
    "sine_of_pi",
    '''
def sine_of_pi(x):
    """sin(pi * x)."""
    rest = x - 2 * lax.round(x / 2, lax.RoundingMethod.TO_NEAREST_EVEN)
    rest = jnp.where(jnp.abs(rest) > 0.5, with_sign(jnp.ones_like(rest), rest) - rest, rest)
    whole = jnp.where(jnp.abs(x) == jnp.inf, jnp.nan, 0 * x)
    return jnp.where(x == jnp.floor(x), whole, jnp.sin(3.141592653589793 * rest))
''',
)
_add(
    "cosine_of_pi",
    '''
def cosine_of_pi(x):
    """cos(pi * x)."""
    rest = jnp.abs(x - 2 * lax.round(x / 2, lax.RoundingMethod.TO_NEAREST_EVEN))
    return jnp.where(jnp.abs(x) == jnp.inf, jnp.nan, jnp.sin(3.141592653589793 * (0.5 - rest)))
''',
)
_add(
    "fused",
    '''
def fused(a, b, c):
    """a * b + c with the part of the product that fp32 rounds away put back."""
    cut = lambda v: lax.bitcast_convert_type(lax.bitcast_convert_type(v, jnp.int32) & jnp.int32(-4096), jnp.float32)
    high_a, high_b = cut(a), cut(b)
    low_a, low_b = a - high_a, b - high_b
    product = a * b
    lacks = ((high_a * high_b - product) + high_a * low_b + low_a * high_b) + low_a * low_b
    total = product + c
    part = total - product
    found = total + (((product - (total - part)) + (c - part)) + lacks)
    return jnp.where(jnp.abs(found) < jnp.inf, found, product + c)
''',
)
for _name in (
    "exponent_of",
    "exponent_as_float",
    "exponent_as_int",
    "times_power",
    "step_to",
    "next_towards",
    "ieee_remainder",
):
    _add(_name, HELPERS[_name]["cpu"])
