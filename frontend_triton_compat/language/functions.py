"""Elementwise functions for the CPU where XLA's own are too far off, as source of the emitted module.

Input: none. Output: entries of `HELPERS`; rows of `rows_math` and `rows_special` call them. Law: fp32 and fp64 within
about two ulps (the tests measure them), NaN and infinities as C has them; what is slow and rarely used is computed in
fp64. The polynomials interpolate the function at Chebyshev points; they were computed for this package with 300 bits.
"""

from __future__ import annotations

from frontend_triton_compat.language.table import HELPERS


def _add(name: str, text: str) -> None:
    HELPERS.setdefault(name, {})["cpu"] = text


_add(
    "horner",
    '''
def horner(x, *coefficients):
    """A polynomial, the constant first."""
    total = coefficients[-1]
    for c in coefficients[-2::-1]:
        total = total * x + c
    return total
''',
)
_add(
    "in_fp64",
    '''
def in_fp64(fn, *operands):
    """A function computed in fp64, rounded to the operands' type."""
    return fn(*(x.astype(jnp.float64) for x in operands)).astype(operands[0].dtype)
''',
)
_add(
    "two_to_the",
    '''
def two_to_the(x):
    """2**x: the whole part as an exponent, the rest by a polynomial."""
    if x.dtype.itemsize == 2:
        return two_to_the(x.astype(jnp.float32)).astype(x.dtype)
    wide = x.dtype == jnp.float64
    most, bias, fraction, bits = (2044, 1023, 52, jnp.int64) if wide else (252, 127, 23, jnp.int32)
    x = jnp.clip(x, -most, most)
    whole = lax.round(x, lax.RoundingMethod.TO_NEAREST_EVEN)
    rest = x - whole
    if wide:
        p = horner(
            rest, 0.6931471805599453, 0.24022650695910072, 0.05550410866482158, 0.009618129107628484,
            0.0013333558146428445, 0.00015403530393362755, 1.5252733804051129e-05, 1.3215486815999978e-06,
            1.0178086021185474e-07, 7.054894386348348e-09, 4.4455303091051067e-10, 2.5733568308756892e-11,
            1.3716962392737587e-12,
        )
    else:
        p = horner(
            rest, 0.6931471824645996, 0.24022650718688965, 0.05550410971045494, 0.009618056938052177,
            0.0013333501992747188, 0.00015461444854736328, 1.529732435301412e-05,
        )
    n = whole.astype(bits)
    half = n >> 1
    power = lambda k: lax.bitcast_convert_type((k + bias) << fraction, x.dtype)
    return (1 + rest * p) * power(half) * power(n - half)
''',
)
_add(
    "error_function",
    '''
def error_function(x):
    """erf: odd below 1, a polynomial around 2.5 above."""
    if x.dtype == jnp.float64:
        return lax.erf(x)
    size, u = jnp.abs(x), x * x
    small = x + x * horner(
        u, 0.12837916612625122, -0.3761262595653534, 0.11283594369888306, -0.02685421146452427, 0.005189087241888046,
        -0.000801686430349946, 7.875874871388078e-05,
    )
    t = (jnp.minimum(size, 4) - 2.5) * (1 / 1.5)
    big = horner(
        t, 0.9995930194854736, 0.0032674253452569246, -0.012252787128090858, 0.028181681409478188,
        -0.04365212470293045, 0.046450886875391006, -0.03186476603150368, 0.009289363399147987, 0.006627765484154224,
        -0.009707038290798664, 0.004681335296481848, 0.0006245496333576739, -0.0020429003052413464,
        0.0007047926192171872, 0.0002608195645734668, -0.00016206581494770944,
    )
    return jnp.where(size < 1, small, jnp.copysign(jnp.minimum(big, 1), x))
''',
)
_add(
    "hyperbolic_tangent",
    '''
def hyperbolic_tangent(x):
    """tanh: odd below 0.6, by exp above."""
    size, u = jnp.abs(x), x * x
    if x.dtype == jnp.float64:
        small = jnp.tanh(size)
    else:
        small = size + size * (u * horner(
            u, -0.3333333134651184, 0.13332915306091309, -0.053873948752880096, 0.021110959351062775,
            -0.006269119679927826,
        ))
    big = 1 - 2 / (jnp.exp(2 * size) + 1)
    return jnp.copysign(jnp.where(size < 0.6, small, big), x)
''',
)
_add(
    "hyperbolic_sine",
    '''
def hyperbolic_sine(x):
    """sinh in fp64."""
    size = jnp.abs(x)
    less = jnp.expm1(size)
    root = jnp.exp(size / 2)
    return jnp.copysign(jnp.where(size < 20, (less + less / (less + 1)) / 2, root / 2 * root), x)
''',
)
_add(
    "hyperbolic_cosine",
    '''
def hyperbolic_cosine(x):
    """cosh in fp64."""
    size = jnp.abs(x)
    power, root = jnp.exp(size), jnp.exp(size / 2)
    return jnp.where(size < 20, (power + 1 / power) / 2, root / 2 * root)
''',
)
_add(
    "kept",
    '''
def kept(x):
    """x, in a way that XLA does not see through: it would take (y + 1) - 1 for y, and log(exp(y)) too."""
    bits = jnp.dtype(f"int{x.dtype.itemsize * 8}")
    raw = lax.bitcast_convert_type(x, bits)
    return lax.bitcast_convert_type(raw ^ ((raw & 1) >> 1), x.dtype)
''',
)
_add(
    "as_written",
    '''
def as_written(x, y):
    """x, in a way that XLA does not see through: it would take (1 + y) - 1 for y."""
    bits = jnp.dtype(f"int{x.dtype.itemsize * 8}")
    nothing = ((lax.bitcast_convert_type(y, bits) & 1) >> 1).astype(bits)
    return lax.bitcast_convert_type(lax.bitcast_convert_type(x, bits) ^ nothing, x.dtype)
''',
)
_add(
    "log_of_more",
    '''
def log_of_more(x):
    """log(1 + x): what is lost in 1 + x is put back."""
    more = as_written(1 + x, x)
    close = jnp.log(more) + (x - (more - 1)) / more
    return jnp.where(x == 0, x, jnp.where(jnp.isfinite(more) & (more > 0), close, jnp.log(more)))
''',
)
_add(
    "artanh",
    '''
def artanh(x):
    """atanh in fp64."""
    size = jnp.abs(x)
    return jnp.copysign(log_of_more(2 * size / (1 - size)) / 2, x)
''',
)
_add(
    "complement_of_erf",
    '''
def complement_of_erf(x):
    """erfc in fp64: the part of x * x that is rounded away in exp(-x * x) is put back."""
    top = lax.bitcast_convert_type(lax.bitcast_convert_type(x, jnp.int64) & ~0x7FFFFFF, jnp.float64)
    low = x - top
    lost = ((top * top - x * x) + 2 * top * low) + low * low
    return lax.erfc(x) * jnp.where((x > 1) & (x < 30), 1 - lost, 1)
''',
)
_add(
    "log_of_gamma",
    '''
def log_of_gamma(x):
    """lgamma in fp64; around its zeros at 1 and 2 by a polynomial."""
    near = (x >= 0.5) & (x < 3.5)
    t = jnp.where(near, x - jnp.where(x < 1.5, 1, jnp.where(x < 2.5, 2, 3)), 0)
    found = t * horner(
        t, 0.42278433509846713, 0.3224670334241132, -0.06735230105319814, 0.02058080842778457,
        -0.0073855510286681535, 0.002890510330738737, -0.0011927539120010226, 0.0005096695248853096,
        -0.00022315475074520367, 9.945750909889392e-05, -4.4926351103833334e-05, 2.050726741605779e-05,
        -9.438458716242811e-06, 4.374374916915131e-06, -2.0449201467015115e-06, 9.578663334114758e-07,
        -4.303558760359961e-07, 2.0304806751615227e-07, -1.3412819758517287e-07, 6.379047507619774e-08,
    )
    step = jnp.where(x < 1.5, -log_of_more(t), jnp.where(x < 2.5, 0, jnp.log(x - 1)))
    return jnp.where(near, found + step, lax.lgamma(x))
''',
)
