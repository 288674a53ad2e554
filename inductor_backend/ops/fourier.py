"""Fourier transforms.

Input: arrays, the transformed dimensions, torch's normalisation (0 none, 1 by the root of the size, 2 by the size).
Output: torch's dtype. Law: transforms are unscaled, the scale is one product afterwards; dimensions are transformed one
after another, the last given first, as eager does.
"""

from __future__ import annotations

import math
from typing import Any

import jax.numpy as jnp
import numpy as np

from inductor_backend.ops.table import row


def _wide(x, *rest, **kw):
    return x.dtype.itemsize >= (8 if x.dtype.is_complex else 4) and x.numel() > 0


def _scaled(x, count: int, normalization: int):
    if normalization == 0:
        return x
    factor = 1 / math.sqrt(count) if normalization == 1 else 1 / count
    return x * jnp.asarray(factor, jnp.finfo(x.dtype).dtype)


def _count(shape, dim) -> int:
    return int(np.prod([shape[d] for d in dim], dtype=np.int64))


def _complex(x, dim, forward: bool):
    for d in reversed(list(dim)):
        # Unscaled in both directions.
        x = jnp.fft.fft(x, axis=d) if forward else jnp.fft.ifft(x, axis=d, norm="forward")
    return x


@row("aten._fft_c2c.default", supports=_wide)
def fft_c2c(x, dim, normalization, forward):
    """Complex to complex."""
    return _scaled(_complex(x, dim, forward), _count(x.shape, dim), normalization)


@row("aten._fft_r2c.default", supports=_wide)
def fft_r2c(x, dim, normalization, onesided, out: Any = None):
    """Real to complex; the last dimension is halved when one side is wanted."""
    count = _count(x.shape, dim)
    if onesided:
        y = _complex(jnp.fft.rfft(x, axis=dim[-1]), list(dim)[:-1], True)
    else:
        y = _complex(x.astype(out.dtype), dim, True)
    return _scaled(y.astype(out.dtype), count, normalization)


@row("aten._fft_c2r.default", supports=_wide)
def fft_c2r(x, dim, normalization, last_dim_size, out: Any = None):
    """Half a spectrum to real numbers."""
    x = _complex(x, list(dim)[:-1], False)
    y = jnp.fft.irfft(x, n=last_dim_size, axis=dim[-1], norm="forward").astype(out.dtype)
    return _scaled(y, _count(y.shape, dim), normalization)
