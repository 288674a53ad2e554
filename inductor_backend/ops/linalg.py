"""Linear algebra with one right answer: triangular solves, LU factors and what follows from them, QR, distances.

Input: batches of matrices. Output: torch's dtype, pivots counted from 1. Law: factors that LAPACK may scale or turn
freely (eigenvectors, singular vectors) and factorisations that report where they failed stay ATen's.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch

from inductor_backend.ops import whole
from inductor_backend.ops.lanes import total
from inductor_backend.ops.matmul import addmm, dot
from inductor_backend.ops.table import MATMUL, cast, row

lax = jax.lax
factor = jax.lax.linalg


def _wide(x, *rest, **kw):
    return x.dtype.itemsize >= (8 if x.dtype.is_complex else 4) and x.numel() > 0


def _triangular(a, b, upper, left, unit, transpose=False, conjugate=False):
    lead = jnp.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    a, b = jnp.broadcast_to(a, (*lead, *a.shape[-2:])), jnp.broadcast_to(b, (*lead, *b.shape[-2:]))
    return factor.triangular_solve(
        a, b, left_side=left, lower=not upper, transpose_a=transpose, conjugate_a=conjugate, unit_diagonal=unit
    )


@row("aten.linalg_solve_triangular.default", supports=lambda a, b, **kw: _wide(a) and b.numel() > 0)
def solve_triangular(a, b, upper, left=True, unitriangular=False):
    """The solution of a x = b, or of x a = b, for a triangle a."""
    return _triangular(a, b, upper, left, unitriangular)


@row("aten.triangular_solve.default", supports=lambda b, a, *rest, **kw: _wide(a) and b.numel() > 0)
def old_triangular_solve(b, a, upper=True, transpose=False, unitriangular=False):
    """(the solution of a x = b for a triangle a, a copy of a), by the older name."""
    x = _triangular(a, b, upper, True, unitriangular, transpose=transpose)
    return x, jnp.broadcast_to(a, (*x.shape[:-2], *a.shape[-2:]))


@row("aten.cholesky_solve.default", supports=lambda b, a, *rest: _wide(a) and b.numel() > 0)
def cholesky_solve(b, a, upper=False):
    """The solution of (a a') x = b for a triangle a."""
    complex_in = jnp.issubdtype(a.dtype, jnp.complexfloating)
    first = _triangular(a, b, upper, True, False, transpose=upper, conjugate=upper and complex_in)
    return _triangular(a, first, upper, True, False, transpose=not upper, conjugate=not upper and complex_in)


def _lu(a):
    packed, pivots, _ = factor.lu(a)
    return packed, (pivots + 1).astype(jnp.int32)


def _turned(a, strides) -> bool:
    """Whether eager factors the transpose: LAPACK's matrices are column-major, and it saves the copy."""
    expected = 1
    for size, stride in zip(reversed(a.shape), reversed(strides)):
        if size != 1 and stride != expected:
            return False
        expected *= size
    return not jnp.issubdtype(a.dtype, jnp.complexfloating)


def _signs(packed, pivots):
    """(the diagonal of U, the sign of the row exchanges)."""
    diagonal = jnp.diagonal(packed, axis1=-2, axis2=-1)
    order = jnp.arange(1, pivots.shape[-1] + 1, dtype=pivots.dtype)
    odd = jnp.sum(pivots != order, -1) % 2
    return diagonal, (1 - 2 * odd).astype(packed.dtype)


@row("aten._linalg_det.default", supports=_wide)
def det(a, strides: Any = None):
    """(determinant, LU, pivots)."""
    packed, pivots = _lu(jnp.swapaxes(a, -1, -2) if _turned(a, strides) else a)
    diagonal, sign = _signs(packed, pivots)
    return jnp.prod(diagonal, -1) * sign, packed, pivots


@row("aten._linalg_slogdet.default", supports=_wide)
def slogdet(a, out: Any = None, strides: Any = None):
    """(sign, logarithm of the modulus, LU, pivots)."""
    packed, pivots = _lu(jnp.swapaxes(a, -1, -2) if _turned(a, strides) else a)
    diagonal, sign = _signs(packed, pivots)
    size = jnp.abs(diagonal)
    turns = diagonal / size if jnp.issubdtype(a.dtype, jnp.complexfloating) else jnp.sign(diagonal)
    turns = jnp.where(size == 0, 0, turns)
    return sign * jnp.prod(turns, -1), jnp.sum(jnp.log(size), -1).astype(out[1].dtype), packed, pivots


def _first_zero(packed):
    """LAPACK's info: the first zero on the diagonal of U, counted from 1; 0 for none."""
    zero = jnp.diagonal(packed, axis1=-2, axis2=-1) == 0
    return jnp.where(jnp.any(zero, -1), jnp.argmax(zero, -1) + 1, 0).astype(jnp.int32)


@row(
    "aten.linalg_lu_factor_ex.default",
    supports=lambda a, pivot=True, check_errors=False: pivot and not check_errors and _wide(a),
)
def lu_factor_ex(a, pivot=True, check_errors=False):
    """(LU, pivots, info)."""
    packed, pivots = _lu(a)
    return packed, pivots, _first_zero(packed)


def _solved(packed, pivots, b):
    """The solution of a x = b from the factors of a."""
    order = factor.lu_pivots_to_permutation(pivots - 1, packed.shape[-1])
    moved = jnp.take_along_axis(b, order[..., None], -2)
    lower = _triangular(packed, moved, False, True, True)
    return _triangular(packed, lower, True, True, False)


def _is_vector(a, b):
    return b.ndim == 1 or (a.ndim - 1 == b.ndim and b.shape == a.shape[:-1])


@row(
    "aten._linalg_solve_ex.default",
    supports=lambda a, b, left=True, check_errors=False: left and not check_errors and _wide(a) and b.numel() > 0,
)
def solve_ex(a, b, left=True, check_errors=False):
    """(the solution of a x = b, LU, pivots, info)."""
    packed, pivots = _lu(a)
    vector = _is_vector(a, b)
    right = b[..., None] if vector else b
    lead = jnp.broadcast_shapes(a.shape[:-2], right.shape[:-2])
    wide = lambda v, keep: jnp.broadcast_to(v, (*lead, *v.shape[v.ndim - keep :]))
    x = _solved(wide(packed, 2), wide(pivots, 1), wide(right, 2))
    return x[..., 0] if vector else x, packed, pivots, _first_zero(packed)


@row("aten.linalg_inv_ex.default", supports=lambda a, check_errors=False: not check_errors and _wide(a))
def inv_ex(a, check_errors=False):
    """(inverse, info)."""
    packed, pivots = _lu(a)
    identity = jnp.broadcast_to(jnp.eye(a.shape[-1], dtype=a.dtype), a.shape)
    return _solved(packed, pivots, identity), _first_zero(packed)


@row("aten.linalg_householder_product.default", supports=lambda a, tau: _wide(a) and tau.numel() > 0)
def householder_product(a, tau):
    """The columns of Q from the reflectors that a QR factorisation leaves."""
    return factor.householder_product(a, tau)


# ----------------------------------------------------------------------------------------------- sums of products
@row(
    "aten.addbmm.default",
    kind=MATMUL,
    supports=lambda c, a, b, **kw: len({x.dtype for x in (a, b, c)}) == 1,
    grows=whole.PRODUCT_WITH_ADDEND,
)
def addbmm(c, a, b, beta=1, alpha=1):
    """Beta * c + alpha * the sum of the products of a batch; half precision is rounded after every product."""
    if a.dtype in (jnp.bfloat16, jnp.float16) and a.shape[0]:
        total = addmm(c, a[0], b[0], beta, alpha)
        return lax.fori_loop(1, a.shape[0], lambda i, t: addmm(t, a[i], b[i], 1, alpha), total)
    product = jnp.sum(dot(a, b), 0)
    if alpha != 1:
        product = product * jnp.asarray(alpha, product.dtype)
    if beta != 0:
        c = cast(c, product.dtype)
        product = product + (c if beta == 1 else c * jnp.asarray(beta, product.dtype))
    return product.astype(a.dtype)


@row("aten._int_mm.default", kind=MATMUL, grows=whole.PRODUCT)
def int_mm(a, b):
    """Products of bytes summed in int32."""
    return lax.dot_general(a, b, (((1,), (0,)), ((), ())), preferred_element_type=jnp.int32)


@row("aten._trilinear.default", kind=MATMUL, supports=lambda a, *rest, **kw: a.dtype in (torch.float32, torch.float64))
def trilinear(a, b, c, expand1, expand2, expand3, sumdim, unroll_dim=1):
    """The product of three arrays broadcast against each other, summed along dimensions."""
    rank = a.ndim + len(expand1)
    letters = "abcdefghijklmnop"[:rank]
    kept = lambda gone: "".join(x for d, x in enumerate(letters) if d not in gone)
    names = [kept(e) for e in (expand1, expand2, expand3)]
    wide = jnp.float32 if a.dtype in (jnp.bfloat16, jnp.float16) else a.dtype
    parts = [x.astype(wide) for x in (a, b, c)]
    return jnp.einsum(f"{','.join(names)}->{kept([d % rank for d in sumdim])}", *parts).astype(a.dtype)


# ------------------------------------------------------------------------------------------------------ distances
def _norm(difference, p):
    size = jnp.abs(difference)
    if p == 0:
        return total((size != 0).astype(size.dtype), -1)
    if p == 1:
        return total(size, -1)
    if p == 2:
        return jnp.sqrt(total(size * size, -1))
    if p == float("inf"):
        return jnp.max(size, -1)
    return total(size**p, -1) ** (1 / p)


@row("aten._cdist_forward.default", supports=lambda a, b, p, mode=None: a.numel() > 0 and b.numel() > 0)
def cdist(a, b, p, compute_mode=None):
    """Distances of every row of `a` from every row of `b`."""
    far = a.shape[-2] > 25 or b.shape[-2] > 25
    if p == 2 and (compute_mode == 1 or (far and compute_mode in (None, 0))):
        # As eager does for many rows: one product instead of all differences.
        squares = lambda v: total(v * v, -1)
        product = jnp.matmul(a, jnp.swapaxes(b, -1, -2))
        return jnp.sqrt(jnp.maximum(squares(a)[..., :, None] + squares(b)[..., None, :] - 2 * product, 0))
    return _norm(a[..., :, None, :] - b[..., None, :, :], p)


@row("aten._pdist_forward.default", supports=lambda x, p=2: x.shape[0] > 1 and x.shape[1] > 0)
def pdist(x, p=2):
    """Distances of every row from every later row."""
    first, second = np.triu_indices(x.shape[0], 1)
    return _norm(x[first] - x[second], p)


@row("aten._cdist_backward.default", supports=lambda g, a, b, p, d: p in (1, 2) and a.numel() > 0 and b.numel() > 0)
def cdist_backward(grad, a, b, p, distances):
    """The gradient of the rows of `a`; where a distance is 0 it is 0."""
    difference = a[..., :, None, :] - b[..., None, :, :]
    if p == 1:
        return jnp.sum(grad[..., None] * jnp.sign(difference), -2)
    unit = jnp.where(distances == 0, 0, grad / jnp.where(distances == 0, 1, distances))
    return jnp.sum(unit[..., None] * difference, -2)
