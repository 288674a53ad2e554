"""Elementary functions in forms that XLA's CPU compiler vectorises.

It makes vector code of exp, tanh, erf and the logarithm of f32 itself; every other such function is a call of the C
library an element. Input: arrays of any dtype. Output: the same shape and dtype. Law: what is no f32 or f64 array on a
CPU gets jax's own function.
"""

from inductor_backend.ops.elementary.division import fmod
from inductor_backend.ops.elementary.hyperbolic import cosh, sinh
from inductor_backend.ops.elementary.logarithms import acosh, asinh, atanh, log, log1p, log2, log10
from inductor_backend.ops.elementary.normal import erf, erfinv
from inductor_backend.ops.elementary.powers import exp2, power, rsqrt
from inductor_backend.ops.elementary.trigonometric import acos, asin, atan, atan2, cos, sin, tan

__all__ = [
    "acos", "acosh", "asin", "asinh", "atan", "atan2", "atanh", "cos", "cosh", "erf", "erfinv", "exp2", "fmod", "log",
    "log1p", "log2", "log10", "power", "rsqrt", "sin", "sinh", "tan",
]  # fmt: skip
