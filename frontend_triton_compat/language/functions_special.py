"""libdevice's less common functions for the CPU, as source of the emitted module.

Bessel and gamma functions, inverses of erf, directed rounding, exponents as numbers.

Input: none. Output: entries of `HELPERS`; the rows of `rows_special` call them, mostly through ``in_fp64``. Law: as
`functions`. The polynomials interpolate at Chebyshev points and were computed for this package with 200 bits.
"""

from __future__ import annotations

from frontend_triton_compat.language.table import HELPERS


def _add(name: str, text: str) -> None:
    HELPERS.setdefault(name, {})["cpu"] = text


# -- Bessel functions: below 8 a polynomial in x * x, above it amplitude and phase

_add(
    "bessel_far",
    '''
def bessel_far(order, x, part):
    """J or Y of order 0 or 1 beyond 8, from the two factors of its oscillation."""
    z, w = 8 / x, (8 / x) * (8 / x)
    if order == 0:
        p = horner(
            w,
            0.9999999999999991, -0.0010986328123162167, 2.7380877491848564e-05, -2.183836761789327e-06,
            3.6146388863624406e-07, -1.000570569680487e-07, 3.7694699203934e-08, -1.469031296220865e-08,
            4.347982511160637e-09, -6.512841143464485e-10,
        )
        q = z * horner(
            w,
            -0.015624999999999155, 0.00014305114729122395, -6.93078044595934e-06, 8.237677040939857e-07,
            -1.8110922873489925e-07, 6.191071126535654e-08, -2.6939269935225178e-08, 1.1432478770766383e-08,
            -3.5455366764509165e-09, 5.450746584480266e-10,
        )
    else:
        p = horner(
            w,
            1.0000000000000009, 0.0018310546873035927, -3.5203986693442935e-05, 2.5809073951753735e-06,
            -4.096968520412129e-07, 1.106808613543345e-07, -4.1108254587894925e-08, 1.589921774972917e-08,
            -4.687546685637888e-09, 7.007084778665176e-10,
        )
        q = z * horner(
            w,
            0.0468749999999991, -0.00020027160626447072, 8.470954778181539e-06, -9.50508021258053e-07,
            2.024447476228593e-07, -6.787778793486141e-08, 2.9201177335995578e-08, -1.2316943218158243e-08,
            3.807769306233302e-09, -5.843905215719686e-10,
        )
    phase = x - (2 * order + 1) * 0.7853981633974483
    sine, cosine = jnp.sin(phase), jnp.cos(phase)
    return jnp.sqrt(0.6366197723675814 / x) * (p * cosine - q * sine if part == "j" else p * sine + q * cosine)
''',
)
_add(
    "bessel_j",
    '''
def bessel_j(order, x):
    """The Bessel function of the first kind, order 0 or 1."""
    size = jnp.abs(x)
    near = jnp.minimum(size, 8)
    t = near * near / 32 - 1
    if order == 0:
        inside = horner(
            t,
            0.045829664859813754, 0.9303012472958572, -0.6484692830871821, -0.8080888076696872, 1.0383794611436883,
            -0.507468045847101, 0.14598884856785535, -0.028472718610877044, 0.00405807898810883,
            -0.0004435459224433769, 3.8473200057927604e-05, -2.717749207626176e-06, 1.595584886623164e-07,
            -7.91533375368561e-09, 3.3794624520643e-10, -1.2430166156640003e-11,
        )
    else:
        inside = near * horner(
            t,
            -0.05814382795599107, 0.08105866038589758, 0.15151665143806634, -0.2595948652859166,
            0.15858376432721896, -0.05474581821299503, 0.012456814392259903, -0.0020290394938667204,
            0.0002494945813696478, -2.4045750380319615e-05, 1.8684525891685077e-06, -1.1966856617233235e-07,
            6.431200760749394e-09, -2.9580307437711144e-10, 1.1655948480687432e-11,
        )
    found = jnp.where(size < 8, inside, bessel_far(order, jnp.maximum(size, 8), "j"))
    found = jnp.where(jnp.isinf(x), 0, found)
    return found if order == 0 else jnp.where(x < 0, -found, found)
''',
)
_add(
    "bessel_y",
    '''
def bessel_y(order, x):
    """The Bessel function of the second kind, order 0 or 1."""
    near = jnp.clip(x, 1e-300, 8)
    t, log = near * near / 32 - 1, jnp.log(near / 2)
    if order == 0:
        inside = horner(
            t,
            -0.3620273432371452, -0.4179207423206952, 1.360945659965543, -0.2124599944206596, -0.6193407826302778,
            0.44824604463563333, -0.1545367965235697, 0.03380285696398703, -0.0052350276689755,
            0.0006104345644020021, -5.581830851725728e-05, 4.122054319450062e-06, -2.51436472719399e-07,
            1.2898090169155057e-08, -5.674562050217625e-10, 2.1435468615998184e-11,
        ) + 0.6366197723675814 * log * bessel_j(0, near)
    else:
        inside = near * horner(
            t,
            0.04510266206869483, -0.20760857842830602, 0.09022750636730927, 0.12052035426888161,
            -0.12641995056569705, 0.05439011630794635, -0.014131923394262674, 0.0025271340466825557,
            -0.0003337225700557422, 3.406363375379881e-05, -2.7765056994287677e-06, 1.8524201757414394e-07,
            -1.0315248361331402e-08, 4.87102633859335e-10, -1.9850545830630388e-11, 6.991420949733099e-13,
        ) + 0.6366197723675814 * (log * bessel_j(1, near) - 1 / near)
    found = jnp.where(x < 8, inside, bessel_far(order, jnp.maximum(x, 8), "y"))
    found = jnp.where(x == 0, -jnp.inf, jnp.where(x == jnp.inf, 0, found))
    return jnp.where(x >= 0, found, jnp.nan)
''',
)
_add(
    "bessel_i",
    '''
def bessel_i(order, x):
    """The modified Bessel function of the first kind, order 0 or 1."""
    root = jnp.exp(jnp.abs(x) / 2)
    return (lax.bessel_i0e(x) if order == 0 else lax.bessel_i1e(x)) * root * root
''',
)

# -- gamma, erf's relatives

_add(
    "gamma_function",
    '''
def gamma_function(x):
    """tgamma: below 20 from its values around 2, above by its logarithm, reflected below 0.5."""
    size = jnp.where(x < 0.5, 1 - x, x)
    steps = jnp.maximum(jnp.floor(jnp.minimum(size, 20) - 1.5), 0)
    base = jnp.minimum(size, 20) - steps  # between 0.5 and 2.5
    product = jnp.exp(log_of_gamma(base))
    for i in range(18):
        product = product * jnp.where(i < steps, base + i, 1)
    half = jnp.exp(log_of_gamma(size) / 2)
    first, second = (jnp.where(size < 20, p, half) for p in (product, half))
    second = jnp.where(size < 20, 1, second)
    mirrored = jnp.pi / (sine_of_pi(x) * first) / second
    pole = jnp.where(x == 0, 1 / x, jnp.where((x < 0) & (jnp.floor(x) == x), jnp.nan, mirrored))
    return jnp.where(x < 0.5, pole, first * second)
''',
)
_add(
    "sine_of_pi",
    '''
def sine_of_pi(x):
    """sin(pi * x)."""
    rest = x - 2 * lax.round(x / 2, lax.RoundingMethod.TO_NEAREST_EVEN)
    rest = jnp.where(jnp.abs(rest) > 0.5, jnp.copysign(1, rest) - rest, rest)
    return jnp.where(x == jnp.floor(x), jnp.where(jnp.isinf(x), jnp.nan, 0 * x), jnp.sin(jnp.pi * rest))
''',
)
_add(
    "cosine_of_pi",
    '''
def cosine_of_pi(x):
    """cos(pi * x)."""
    rest = jnp.abs(x - 2 * lax.round(x / 2, lax.RoundingMethod.TO_NEAREST_EVEN))
    return jnp.where(jnp.isinf(x), jnp.nan, jnp.sin(jnp.pi * (0.5 - rest)))
''',
)
_add(
    "inverse_of_erfc",
    '''
def inverse_of_erfc(x):
    """erfcinv: a rough rational start, then steps of Halley's method."""
    less = jnp.where(x < 1, x, 2 - x)
    t = jnp.sqrt(-2 * jnp.log(less / 2))
    y = 0.70711 * (t - (2.30753 + t * 0.27061) / (1 + t * (0.99229 + t * 0.04481)))
    for _ in range(3):
        off = complement_of_erf(y) - less
        y = y + off / (1.1283791670955126 * jnp.exp(-y * y) - y * off)
    y = jnp.where(less == 0, jnp.inf, y)
    return jnp.where(x < 1, y, -y)
''',
)
_add(
    "scaled_erfc",
    '''
def scaled_erfc(x):
    """erfcx: exp(x * x) * erfc(x)."""
    u = 1 / (x * x)
    far = horner(u, 1.0, -0.5, 0.75, -1.875, 6.5625, -29.53125) * 0.5641895835477563 / x
    near = jnp.minimum(x, 26)
    top = lax.bitcast_convert_type(lax.bitcast_convert_type(near, jnp.int64) & ~0x7FFFFFF, jnp.float64)
    power = jnp.exp(top * top) * jnp.exp((near - top) * (near + top))
    return jnp.where(x < 25, power * complement_of_erf(near), far)
''',
)

# -- exponents, neighbours, remainders

_add(
    "exponent_of",
    '''
def exponent_of(x):
    """The exponent of a finite number other than 0, as an integer."""
    fraction, bits = (52, jnp.int64) if x.dtype == jnp.float64 else (23, jnp.int32)
    bias = (1 << (bits.dtype.itemsize * 8 - 2 - fraction)) - 1
    raw = lax.bitcast_convert_type(x, bits) & ((1 << (bits.dtype.itemsize * 8 - 1)) - 1)
    small = bits.dtype.itemsize * 8 - 1 - lax.clz(raw) - fraction
    return jnp.where(raw >> fraction == 0, small + 1, raw >> fraction) - bias
''',
)
_add(
    "exponent_as_float",
    '''
def exponent_as_float(x):
    """logb."""
    found = exponent_of(x).astype(x.dtype)
    zero = lax.bitcast_convert_type(x, jnp.dtype(f"int{x.dtype.itemsize * 8}")) << 1 == 0
    return jnp.where(zero, -jnp.inf, jnp.where(jnp.isfinite(x), found, x * x))
''',
)
_add(
    "exponent_as_int",
    '''
def exponent_as_int(x):
    """ilogb."""
    zero = lax.bitcast_convert_type(x, jnp.dtype(f"int{x.dtype.itemsize * 8}")) << 1 == 0
    found = jnp.where(jnp.isinf(x), 2**31 - 1, exponent_of(x))
    return jnp.where(zero | jnp.isnan(x), -(2**31), found).astype(jnp.int32)
''',
)
_add(
    "times_power",
    '''
def times_power(x, n):
    """x * 2**n for whole numbers n in x's type, in steps that don't overflow too soon."""
    fraction, bits, most = (52, jnp.int64, 1000) if x.dtype == jnp.float64 else (23, jnp.int32, 120)
    bias = (1 << (bits.dtype.itemsize * 8 - 2 - fraction)) - 1
    left = jnp.clip(n, -3 * most, 3 * most).astype(bits)
    for _ in range(3):
        part = jnp.clip(left, -most, most)
        x = x * lax.bitcast_convert_type((part + bias) << fraction, x.dtype)
        left = left - part
    return x
''',
)
_add(
    "step_to",
    '''
def step_to(x, up):
    """The next number above (or below) a finite one."""
    bits = jnp.dtype(f"int{x.dtype.itemsize * 8}")
    raw = lax.bitcast_convert_type(x, bits)
    away = (raw >= 0) == up
    beside = jnp.where(away, raw + 1, raw - 1)
    least = jnp.where(up, jnp.array(1, bits), jnp.array(1 - (1 << (x.dtype.itemsize * 8 - 1)), bits))
    return lax.bitcast_convert_type(jnp.where(raw << 1 == 0, least, beside), x.dtype)
''',
)
_add(
    "next_towards",
    '''
def next_towards(x, y):
    """nextafter."""
    bits = jnp.dtype(f"int{x.dtype.itemsize * 8}")
    least = 1 << (x.dtype.itemsize * 8 - 1)
    order = lambda v: jnp.where(v < 0, -(v & (least - 1)), v)
    a, b = (order(lax.bitcast_convert_type(v, bits)) for v in (x, y))
    near = jnp.where(a == b, y, step_to(x, b > a))
    return jnp.where(jnp.isnan(x) | jnp.isnan(y), jnp.nan, near)
''',
)
_add(
    "ieee_remainder",
    '''
def ieee_remainder(x, y):
    """remainder: what is left of x after the nearest multiple of y."""
    size, unit = jnp.abs(x), jnp.abs(y)
    left = lax.rem(size, unit + unit)
    left = jnp.where(left + left > unit, left - unit, left)
    left = jnp.where((left + left >= unit) & (size + size > unit), left - unit, left)
    return jnp.where(unit == jnp.inf, jnp.where(jnp.isfinite(x), x, jnp.nan), jnp.where(x < 0, -left, left))
''',
)

# -- rounding in a direction: the exact result as a sum of two numbers, then a neighbour

_add(
    "exact_sum",
    '''
def exact_sum(a, b):
    """The sum of two numbers as a number and what it lacks."""
    total = a + b
    part = total - a
    return total, (a - (total - part)) + (b - part)
''',
)
_add(
    "exact_product",
    '''
def exact_product(a, b):
    """The product of two fp64 numbers as a number and what it lacks."""
    cut = lambda v: lax.bitcast_convert_type(lax.bitcast_convert_type(v, jnp.int64) & ~0x7FFFFFF, jnp.float64)
    high_a, high_b = cut(a), cut(b)
    low_a, low_b = a - high_a, b - high_b
    total = a * b
    return total, ((high_a * high_b - total) + high_a * low_b + low_a * high_b) + low_a * low_b
''',
)
_add(
    "beside_exact",
    '''
def beside_exact(near, above, below, mode):
    """The number next to `near` where that is above or below the exact result and the mode wants the other side."""
    if mode == "rz":
        above, below = above & (near > 0), below & (near < 0)
    down = jnp.where(above, step_to(near, False), near) if mode in ("rd", "rz") else near
    return jnp.where(below, step_to(near, True), down) if mode in ("ru", "rz") else down
''',
)
_add(
    "sticky_sum",
    '''
def sticky_sum(whole, lacks):
    """whole + lacks (fp64) with the last bit set where they don't fit: rounding that to fp32 rounds once."""
    bits = lax.bitcast_convert_type(whole, jnp.int64)
    short = (lacks != 0) & (bits & 1 == 0) & jnp.isfinite(whole)
    step = jnp.where((lacks > 0) == (whole > 0), 1, -1)
    return lax.bitcast_convert_type(bits + jnp.where(short, step, 0), jnp.float64)
''',
)
_add(
    "directed",
    '''
def directed(whole, lacks, mode, dtype):
    """whole + lacks (fp64) rounded down, up, towards zero or to nearest."""
    if mode == "rn":
        return fp32_of(sticky_sum(whole, lacks)) if dtype == jnp.float32 else whole + lacks
    near = fp32_of(whole) if dtype == jnp.float32 else whole
    gap = (fp64_of(near) if dtype == jnp.float32 else near) - whole
    return beside_exact(near, gap > lacks, gap < lacks, mode)
''',
)
_add(
    "directed_sum",
    '''
def directed_sum(a, b, mode):
    """a + b rounded in a direction."""
    return directed(*exact_sum(a.astype(jnp.float64), b.astype(jnp.float64)), mode, a.dtype)
''',
)
_add(
    "directed_product",
    '''
def directed_product(a, b, mode):
    """a * b rounded in a direction."""
    if a.dtype == jnp.float64:
        return directed(*exact_product(a, b), mode, a.dtype)
    whole = a.astype(jnp.float64) * b.astype(jnp.float64)
    return directed(whole, 0 * whole, mode, a.dtype)
''',
)
_add(
    "directed_quotient",
    '''
def directed_quotient(a, b, mode):
    """a / b rounded in a direction."""
    x, y = a.astype(jnp.float64), b.astype(jnp.float64)
    near = x / y if a.dtype == jnp.float64 else fp32_of(x / y)
    total, lacks = exact_product(near.astype(jnp.float64), y)
    left = ((x - total) - lacks) * jnp.sign(y)
    regular = jnp.isfinite(x / y) & jnp.isfinite(y)
    above, below = (left < 0) | (near == jnp.inf), (left > 0) | (near == -jnp.inf)
    return beside_exact(near, regular & above, regular & below, mode)
''',
)
_add(
    "directed_root",
    '''
def directed_root(a, mode):
    """sqrt(a) rounded in a direction."""
    x = a.astype(jnp.float64)
    near = jnp.sqrt(a)
    total, lacks = exact_product(near.astype(jnp.float64), near.astype(jnp.float64))
    left = (x - total) - lacks
    return beside_exact(near, left < 0, left > 0, mode)
''',
)
_add(
    "fused",
    '''
def fused(a, b, c, mode="rn"):
    """a * b + c, rounded once."""
    x, y, z = (v.astype(jnp.float64) for v in (a, b, c))
    if a.dtype == jnp.float64:
        total, lacks = exact_product(x, y)
        whole, rest = exact_sum(total, z)
        found = whole + (rest + lacks)
        return jnp.where(jnp.isfinite(found), found, x * y + z)
    whole, rest = exact_sum(x * y, z)
    rest = jnp.where(jnp.isfinite(whole), rest, 0)
    if a.dtype == jnp.float32:
        return directed(whole, rest, mode, a.dtype)
    return fp32_odd(sticky_sum(whole, rest)).astype(a.dtype)
''',
)
