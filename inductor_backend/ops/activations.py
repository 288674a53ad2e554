"""Elementwise operators, second half: transcendental functions, activations, selection, conversion, complex numbers.

Input and output: arrays of one dtype (the row's promotion rule has been applied), numbers for scalars. Law: as in
`pointwise.py`; a conversion is C's conversion.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from inductor_backend.ops import elementary, whole
from inductor_backend.ops.exact import exp, exp2, fence, in_double, signed
from inductor_backend.ops.pointwise import at_least, clamp
from inductor_backend.ops.table import COMPLEX_TO_FLOAT, INT_TO_FLOAT, KEEP, NO_OPMATH, POINTWISE, cast, pointwise, row

lax = jax.lax


# -------------------------------------------------------------------------------------------- transcendental
for _name, _fn in {
    "exp": exp,
    "exp2": exp2,
    "expm1": jnp.expm1,
    "log": elementary.log,
    "log2": elementary.log2,
    "log10": elementary.log10,
    "log1p": elementary.log1p,
    "sqrt": signed(jnp.sqrt, "imag", 1),
    "rsqrt": elementary.rsqrt,
    "sin": elementary.sin,
    "cos": elementary.cos,
    "tan": elementary.tan,
    "asin": signed(elementary.asin, "imag", 1),
    "acos": signed(elementary.acos, "imag", -1),
    "atan": signed(elementary.atan, "real", 1),
    "sinh": elementary.sinh,
    "cosh": elementary.cosh,
    "tanh": jnp.tanh,
    "asinh": signed(elementary.asinh, "real", 1),
    "acosh": signed(elementary.acosh, "imag", 1),
    "atanh": signed(elementary.atanh, "imag", 1),
    "erf": elementary.erf,
    "erfc": in_double(lax.erfc),
    "erfinv": elementary.erfinv,
    "sigmoid": lambda x: fence(1 / (1 + jnp.exp(-x))),
    "lgamma": in_double(lax.lgamma),
    "sinc": jnp.sinc,
    "rad2deg": lambda x: x * (180.0 / np.pi),
    "deg2rad": lambda x: x * (np.pi / 180.0),
}.items():
    pointwise(f"aten.{_name}.default", promote=INT_TO_FLOAT)(_fn)
pointwise("aten.special_i0.default", "aten.i0.default", promote=INT_TO_FLOAT)(lambda x: jax.scipy.special.i0(x))
pointwise("aten.special_i1.default", promote=INT_TO_FLOAT)(lambda x: jax.scipy.special.i1(x))
pointwise("aten.special_i0e.default", promote=INT_TO_FLOAT)(lambda x: jax.scipy.special.i0e(x))
pointwise("aten.special_i1e.default", promote=INT_TO_FLOAT)(lambda x: jax.scipy.special.i1e(x))
pointwise("aten.special_ndtri.default", promote=INT_TO_FLOAT)(lambda x: jax.scipy.special.ndtri(x))
pointwise("aten.special_log_ndtr.default", promote=INT_TO_FLOAT)(lambda x: jax.scipy.special.log_ndtr(x))


@pointwise("aten.digamma.default", promote=INT_TO_FLOAT)
def digamma(x):
    """The derivative of lgamma; -inf or inf at zero by its sign, NaN at the negative whole numbers."""
    # Near the negative whole numbers f32 would lose the distance to them.
    wide = lax.digamma(x.astype(jnp.float64)).astype(x.dtype) if x.dtype == jnp.float32 else lax.digamma(x)
    value = jnp.where((x < 0) & (x == jnp.trunc(x)), jnp.nan, wide)
    return jnp.where(x == 0, -jnp.copysign(jnp.inf, x), value)


@pointwise(
    "aten._conj.default", "aten._conj_physical.default", "aten.conj_physical.default", "aten.resolve_conj.default"
)
def conj(x):
    """The complex conjugate."""
    return jnp.conj(x)


@pointwise("aten.resolve_neg.default")
def resolve_neg(x):
    """The same values."""
    return x


@row("aten.view_as_complex.default")
def view_as_complex(x):
    """Pairs of reals as complex numbers."""
    return lax.complex(x[..., 0], x[..., 1])


@pointwise("aten.angle.default", promote=COMPLEX_TO_FLOAT)
def angle(x):
    """The angle of a complex number; 0 or pi for a real one."""
    if jnp.issubdtype(x.dtype, jnp.complexfloating):
        return jnp.angle(x)
    return jnp.where(x != x, x, jnp.where(x < 0, np.pi, 0.0)).astype(x.dtype)


@pointwise("aten.polar.default")
def polar(length, angle):
    """Length and angle as a complex number."""
    return lax.complex(length * elementary.cos(angle), length * elementary.sin(angle))


@pointwise("aten.atan2.default", promote=INT_TO_FLOAT)
def atan2(y, x):
    """The angle of (x, y)."""
    return elementary.atan2(y, x)


@pointwise("aten.logaddexp.default", promote=INT_TO_FLOAT)
def logaddexp(x, y):
    """log(exp(x) + exp(y))."""
    if jnp.issubdtype(x.dtype, jnp.complexfloating):
        return jnp.logaddexp(x, y)
    gap = x - y
    return jnp.where(gap != gap, x + y, jnp.maximum(x, y) + elementary.log1p(jnp.exp(-jnp.abs(gap))))


def _logarithm_of(log, y, dtype):
    """Rounded to half precision, where eager's product reads it."""
    value = log(y)
    return value.astype(dtype).astype(value.dtype) if dtype in (jnp.bfloat16, jnp.float16) else value


@pointwise(
    "aten.xlogy.Tensor", "aten.xlogy.Scalar_Other", "aten.xlogy.Scalar_Self", promote=INT_TO_FLOAT,
    narrow_scalars=True, undecomposed=True,
)  # fmt: skip
def xlogy(x, y, out: Any = None):
    """X * log(y), 0 where x is 0, NaN where y is."""
    y = jnp.asarray(y)
    return jnp.where(y != y, y, jnp.where(x == 0, 0, x * _logarithm_of(elementary.log, y, out.dtype)))


@pointwise(
    "aten.special_xlog1py.default", "aten.special_xlog1py.other_scalar", "aten.special_xlog1py.self_scalar",
    promote=INT_TO_FLOAT, narrow_scalars=True, undecomposed=True,
)  # fmt: skip
def xlog1py(x, y, out: Any = None):
    """X * log(1 + y), 0 where x is 0, NaN where y is."""
    y = jnp.asarray(y)
    return jnp.where(y != y, y, jnp.where(x == 0, 0, x * _logarithm_of(elementary.log1p, y, out.dtype)))


# ------------------------------------------------------------------------------------------------ activations
@pointwise("aten.relu.default", promote=NO_OPMATH, grows=whole.RECTIFIED)
def relu(x):
    """max(x, 0); NaN stays."""
    return at_least(x, 0)


@pointwise("aten.leaky_relu.default")
def leaky_relu(x, negative_slope=0.01):
    """X where positive, else x * negative_slope."""
    return jnp.where(x > 0, x, x * negative_slope)


@pointwise("aten.gelu.default")
def gelu(x, approximate="none"):
    """X times the normal distribution's mass below x."""
    if approximate == "tanh":
        return 0.5 * x * (1 + jnp.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x * x * x)))
    return 0.5 * x * (1 + elementary.erf(x * np.sqrt(0.5)))


@pointwise("aten.silu.default")
def silu(x):
    """X * sigmoid(x)."""
    return fence(x / (1 + jnp.exp(-x)))


@row("aten.glu.default")
def glu(x, dim=-1):
    """One half times the sigmoid of the other."""
    wide = x.astype(jnp.promote_types(x.dtype, jnp.float32)) if x.dtype in (jnp.bfloat16, jnp.float16) else x
    a, b = jnp.split(wide, 2, dim)
    return (a / (1 + jnp.exp(-b))).astype(x.dtype)


@pointwise("aten.softplus.default")
def softplus(x, beta=1, threshold=20):
    """log(1 + exp(beta x)) / beta, x itself above the threshold."""
    return jnp.where(x * beta > threshold, x, elementary.log1p(jnp.exp(x * beta)) / beta)


@pointwise("aten.elu.default")
def elu(x, alpha=1, scale=1, input_scale=1):
    """Exponential linear unit."""
    return jnp.where(x > 0, x * scale, alpha * scale * jnp.expm1(x * input_scale))


@pointwise("aten.hardtanh.default", promote=NO_OPMATH, grows=whole.LIMITED)
def hardtanh(x, min_val=-1, max_val=1):
    """Limit to [min_val, max_val]."""
    return clamp(x, min_val, max_val)


@pointwise("aten.where.self", promote=KEEP, result="exact", grows=whole.among(1, 2))
def where(condition, x, y, out: Any = None):
    """Choose by a bool or uint8 condition."""
    return jnp.where(condition != 0, cast(x, out.dtype), cast(y, out.dtype))


@row("prims.convert_element_type.default", kind=POINTWISE, grows=whole.CONVERTED)
def convert_element_type(x, dtype):
    """Convert as C does."""
    return cast(x, dtype)


@row("aten._to_copy.default", kind=POINTWISE, grows=whole.CONVERTED)
def to_copy(x, dtype=None, layout=None, device=None, pin_memory=None, non_blocking=False, memory_format=None):
    """Convert; the memory format is seen to where the result leaves the graph."""
    return x if dtype is None else cast(x, dtype)


@row(
    "aten.clone.default",
    "aten.alias.default",
    "aten.detach.default",
    "aten.lift_fresh_copy.default",
    kind=POINTWISE,
    grows=whole.ELEMENTS,
)
def clone(x, memory_format=None):
    """The same values; layouts are decided where a result leaves the graph."""
    return x


@row("aten.copy.default", kind=POINTWISE, grows=whole.among(1))
def copy(x, src, non_blocking=False):
    """`src` in the dtype and shape of `x`."""
    return jnp.broadcast_to(cast(src, x.dtype), x.shape)


@row("aten.masked_fill.Scalar", "aten.masked_fill.Tensor", kind=POINTWISE, grows=whole.among(0, 2))
def masked_fill(x, mask, value):
    """`value` where the mask is true."""
    return jnp.where(mask, cast(value, x.dtype), x)


@row("aten.nan_to_num.default", kind=POINTWISE, grows=whole.ELEMENTS)
def nan_to_num(x, nan=None, posinf=None, neginf=None):
    """Replace NaN and infinities."""
    if not jnp.issubdtype(x.dtype, jnp.floating):
        return x
    info = jnp.finfo(x.dtype)
    x = jnp.where(x != x, jnp.asarray(0.0 if nan is None else nan, x.dtype), x)
    x = jnp.where(x == jnp.inf, jnp.asarray(info.max if posinf is None else posinf, x.dtype), x)
    return jnp.where(x == -jnp.inf, jnp.asarray(info.min if neginf is None else neginf, x.dtype), x)


@row("aten.view_as_real.default")
def view_as_real(x):
    """A complex array as pairs of reals."""
    return jnp.stack([x.real, x.imag], -1)


@row("aten.complex.default", kind=POINTWISE)
def complex_(real, imag):
    """Real + i imag."""
    return lax.complex(*jnp.broadcast_arrays(real, imag))
