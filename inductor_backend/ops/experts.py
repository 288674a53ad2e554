"""Products of groups of rows, each with a matrix of its own: mixtures of experts.

Input: rows sorted by group, a matrix a group, and where each group ends. Output: the products. Law: the sizes of the
groups are known only when the program runs, so groups are cut into tiles of rows and a loop takes one tile after the
other; the work follows the rows, not rows times groups.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from inductor_backend.ops.table import row

lax = jax.lax

_TILE = 32


def _tiles(ends, length):
    """(how many tiles there are, tile -> (its group, its rows, which of them are its own))."""
    ends = jnp.minimum(ends.astype(jnp.int64), length)
    starts = jnp.concatenate([jnp.zeros(1, ends.dtype), ends[:-1]])
    size = min(_TILE, length)
    last = jnp.cumsum((jnp.maximum(ends - starts, 0) + size - 1) // size)

    def tile(number):
        group = jnp.searchsorted(last, number, side="right")
        before = jnp.where(group > 0, last[group - 1], 0)
        rows = starts[group] + (number - before) * size + jnp.arange(size)
        return group, rows, rows < ends[group]

    return last[-1], tile


def _taken(x, rows, own):
    """Rows of `x`, zeros in the place of those that belong to another group."""
    return jnp.where(own[:, None], x[jnp.where(own, rows, 0)], jnp.zeros((), x.dtype))


def _wide(x):
    return jnp.promote_types(x.dtype, jnp.float32)


def _product(a, b, contract):
    """A product of two tiles; half precision accumulates in f32."""
    return lax.dot_general(a, b, ((contract[0:1], contract[1:2]), ((), ())), preferred_element_type=_wide(a))


def rows_by_group(x, w, ends, transposed: bool = False):
    """Each row times its group's matrix; rows behind the last group are zero."""
    columns = w.shape[1] if transposed else w.shape[2]
    out = jnp.zeros((x.shape[0], columns), x.dtype)
    if not out.size or not w.shape[0]:
        return out
    count, tile = _tiles(ends, x.shape[0])

    def step(state):
        number, out = state
        group, rows, own = tile(number)
        y = _product(_taken(x, rows, own), w[group], (1, 1 if transposed else 0)).astype(out.dtype)
        return number + 1, out.at[jnp.where(own, rows, x.shape[0])].set(y, mode="drop")

    return lax.while_loop(lambda s: s[0] < count, step, (jnp.zeros((), count.dtype), out))[1]


def matrices_by_group(x, y, ends, groups: int, dtype):
    """The sum of outer products of each group's rows of `x` and `y`: the gradient of its matrix."""
    out = jnp.zeros((groups, x.shape[1], y.shape[1]), _wide(x))
    if not out.size or not x.shape[0]:
        return out.astype(dtype)
    count, tile = _tiles(ends, x.shape[0])

    def step(state):
        number, out = state
        group, rows, own = tile(number)
        product = _product(_taken(x, rows, own), _taken(y, rows, own), (0, 0))
        return number + 1, out.at[group].add(product)

    return lax.while_loop(lambda s: s[0] < count, step, (jnp.zeros((), count.dtype), out))[1].astype(dtype)


def _ragged_rows(x, w, offs=None, bias=None, out_dtype=None):
    return offs is not None and bias is None and out_dtype in (None, x.dtype) and len({x.dtype, w.dtype}) == 1


@row("aten._grouped_mm.default", supports=_ragged_rows)
def grouped_mm(x, w, offs, bias=None, out_dtype=None):
    """Rows by group with a matrix a group, or columns by group: a matrix a group comes out."""
    if x.ndim == 2 and w.ndim == 3:
        return rows_by_group(x, w, offs)
    if x.ndim == 2:
        return matrices_by_group(x.T, w, offs, offs.shape[0], x.dtype)
    # A matrix a group times the columns of the group.
    return rows_by_group(w.T, x, offs, transposed=True).T


@row("transformers.grouped_mm_fallback.default", supports=lambda x, w, ends: x.dtype == w.dtype)
def experts(x, w, ends):
    """The operator of the package `transformers` in the place of `aten._grouped_mm`."""
    return rows_by_group(x, w, ends)


@row("transformers.grouped_mm_fallback_backward.default", supports=lambda x, w, ends, g: x.dtype == w.dtype == g.dtype)
def experts_backward(x, w, ends, grad):
    """Its gradients of the rows and of the matrices."""
    return rows_by_group(grad, w, ends, transposed=True), matrices_by_group(x, grad, ends, w.shape[0], w.dtype)
