"""Matrix products and convolutions.

Input: matrices in torch's orientation; `transposed` operands when emission folded a permute into the product. Output:
torch's dtype. Law: half precision multiplies in its own dtype and accumulates in f32 (`preferred_element_type`), which
is also the only fast form on XLA:CPU; integers wrap.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from inductor_backend.ops import library, whole
from inductor_backend.ops.lanes import total
from inductor_backend.ops.table import MATMUL, OTHER, cast, row

lax = jax.lax


def dot(a, b, transpose_a: bool = False, transpose_b: bool = False):
    """A @ b over leading batch dimensions, reading an operand with its last two dimensions swapped when asked.

    Half precision comes back in f32, not yet rounded, so that an addition can follow before the one rounding.
    """
    rank = a.ndim
    batch = tuple(range(rank - 2))
    contract = (rank - 2 if transpose_a else rank - 1, rank - 1 if transpose_b else rank - 2)
    half = a.dtype in (jnp.bfloat16, jnp.float16)
    if a.dtype == jnp.bool_:
        a, b = a.astype(jnp.int32), b.astype(jnp.int32)
    return lax.dot_general(
        a, b, (((contract[0],), (contract[1],)), (batch, batch)), preferred_element_type=jnp.float32 if half else None
    )


def _alike(*operands, **_):
    """Whether operands share a dtype; torch refuses those that don't, and says so better than we could."""
    return len({x.dtype for x in operands if hasattr(x, "dtype")}) == 1


@row("aten.mm.default", "aten.bmm.default", kind=MATMUL, supports=_alike, grows=whole.PRODUCT)
def mm(a, b, transpose_a=False, transpose_b=False):
    """Matrix product, batched or not."""
    return dot(a, b, transpose_a, transpose_b).astype(a.dtype)


@row("aten.addmm.default", "aten.baddbmm.default", kind=MATMUL, supports=_alike, grows=whole.PRODUCT_WITH_ADDEND)
def addmm(c, a, b, beta=1, alpha=1, transpose_a=False, transpose_b=False):
    """Beta * c + alpha * a @ b; beta 0 ignores c, NaN included."""
    product = dot(a, b, transpose_a, transpose_b)
    if alpha != 1:
        product = product * jnp.asarray(alpha, product.dtype)
    if beta != 0:
        c = cast(c, product.dtype)
        product = product + (c if beta == 1 else c * jnp.asarray(beta, product.dtype))
    return product.astype(a.dtype)


@row("aten.mv.default", kind=MATMUL, supports=_alike, grows=whole.PRODUCT)
def mv(a, x):
    """Matrix times vector."""
    return dot(a, x[:, None])[:, 0].astype(a.dtype)


@row(
    "aten.dot.default",
    "aten.vdot.default",
    kind=MATMUL,
    supports=lambda a, b: not a.dtype.is_complex and _alike(a, b),
    grows=whole.PRODUCT,
)
def dot_vectors(a, b):
    """Inner product of two vectors."""
    return dot(a[None, :], b[:, None]).reshape(()).astype(a.dtype)


# --------------------------------------------------------------------------------------------------- convolution
def _real(x, *rest):
    return not x.dtype.is_complex and _alike(x, *rest[:1])


def _numbers(rank: int) -> tuple[str, str, str]:
    space = "DHW"[3 - rank :]
    return ("NC" + space, "OI" + space, "NC" + space)


def _each(value, rank: int) -> tuple[int, ...]:
    value = list(value)
    return tuple(value * rank if len(value) == 1 else value)


def conv(x, w, stride, padding, dilation, transposed, output_padding, groups):
    """The convolution without its bias, in f32 for half precision."""
    rank = x.ndim - 2
    stride, dilation = _each(stride, rank), _each(dilation, rank)
    padding, output_padding = _each(padding, rank), _each(output_padding, rank)
    wide = jnp.float32 if x.dtype in (jnp.bfloat16, jnp.float16) else None
    pointwise = (
        not transposed and groups == 1 and set(w.shape[2:]) == {1} and set(stride) == {1} and set(padding) == {0}
    )
    if pointwise:
        # A 1x1 convolution is a product over channels; XLA's convolution is 2.6 times slower on the CPU.
        flat = x.reshape(x.shape[0], x.shape[1], -1)
        y = jnp.einsum("oc,ncs->nos", w.reshape(w.shape[0], w.shape[1]), flat, preferred_element_type=wide)
        return y.reshape(x.shape[0], w.shape[0], *x.shape[2:])
    if not transposed:
        return lax.conv_general_dilated(
            x, w, stride, [(p, p) for p in padding], rhs_dilation=dilation, dimension_numbers=_numbers(rank),
            feature_group_count=groups, preferred_element_type=wide,
        )  # fmt: skip
    # torch's weight is (in, out / groups, ...): swap to (out, in / groups, ...), flip, and dilate the input.
    inputs, outputs = w.shape[0], w.shape[1]
    w = w.reshape(groups, inputs // groups, outputs, *w.shape[2:]).swapaxes(1, 2)
    w = w.reshape(groups * outputs, inputs // groups, *w.shape[3:])
    w = jnp.flip(w, tuple(range(2, rank + 2)))
    pads = [
        (d * (k - 1) - p, d * (k - 1) - p + o)
        for k, p, d, o in zip(w.shape[2:], padding, dilation, output_padding, strict=True)
    ]
    return lax.conv_general_dilated(
        x, w, (1,) * rank, pads, lhs_dilation=stride, rhs_dilation=dilation, dimension_numbers=_numbers(rank),
        feature_group_count=groups, preferred_element_type=wide,
    )  # fmt: skip


@row("aten.convolution.default", kind=OTHER, supports=_real, library=library.convolution, grows=whole.CONVOLVED)
def convolution(x, w, bias, stride, padding, dilation, transposed, output_padding, groups):
    """Convolution in 1, 2 or 3 dimensions, transposed or not, in groups, batched or not."""
    batched = x.ndim == w.ndim
    y = conv(x if batched else x[None], w, stride, padding, dilation, transposed, output_padding, groups)
    if bias is not None:
        y = y + cast(bias, y.dtype).reshape((1, -1) + (1,) * (y.ndim - 2))
    y = y.astype(x.dtype)
    return y if batched else y[0]


@row("aten.convolution_backward.default", kind=OTHER, supports=_real, library=library.convolution_backward)
def convolution_backward(
    grad, x, w, bias_sizes, stride, padding, dilation, transposed, output_padding, groups, output_mask
):
    """Gradients for input, weight and bias: the transposes of the forward's linear maps."""
    wide = jnp.float32 if x.dtype in (jnp.bfloat16, jnp.float16) else x.dtype
    g, xw, ww = grad.astype(wide), x.astype(wide), w.astype(wide)

    def forward(a, b):
        return conv(a, b, stride, padding, dilation, transposed, output_padding, groups)

    grad_x = grad_w = grad_b = None
    if output_mask[0]:
        (grad_x,) = jax.linear_transpose(lambda a: forward(a, ww), xw)(g)
        grad_x = grad_x.astype(x.dtype)
    if output_mask[1]:
        (grad_w,) = jax.linear_transpose(lambda b: forward(xw, b), ww)(g)
        grad_w = grad_w.astype(w.dtype)
    if output_mask[2]:
        grad_b = total(g, (0, *range(2, g.ndim))).astype(grad.dtype)
    return grad_x, grad_w, grad_b
