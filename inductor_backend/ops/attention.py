"""Fused attention and normalisation operators that arrive undecomposed.

Input: (batch, heads, length, width) arrays. Output: the attended values and the log-sum-exp of the scores. Law: softmax
in f32 for half precision; a fully masked row gives 0.
"""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp

from inductor_backend.ops.lanes import highest, total
from inductor_backend.ops.table import row

lax = jax.lax


def _scores(q, k, causal, mask, scale):
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    wide = jnp.float64 if q.dtype == jnp.float64 else jnp.float32
    batch = ((0, 1), (0, 1))
    s = lax.dot_general(q, k, (((3,), (3,)), batch), preferred_element_type=wide) * jnp.asarray(scale, wide)
    if causal:
        i = lax.broadcasted_iota(jnp.int32, s.shape[-2:], 0)
        j = lax.broadcasted_iota(jnp.int32, s.shape[-2:], 1)
        s = jnp.where(j <= i, s, -jnp.inf)
    if mask is not None:
        s = jnp.where(mask, s, -jnp.inf) if mask.dtype == jnp.bool_ else s + mask.astype(wide)
    return s, scale


def _heads(q, k, v, *rest, **kw):
    """Whether every head of keys serves as many heads of queries, and nothing is dropped."""
    alike = q.shape[0] == k.shape[0] and k.shape[:2] == v.shape[:2] and q.shape[-1] == k.shape[-1]
    return alike and k.shape[1] > 0 and q.shape[1] % k.shape[1] == 0 and (rest[0] if rest else 0) == 0


def _spread(q, *shared):
    """Keys and values once for each head of queries that they serve."""
    groups = q.shape[1] // shared[0].shape[1]
    return [jnp.repeat(x, groups, 1) if groups > 1 else x for x in shared]


def _gathered(gradient, like):
    """A gradient per head of queries, summed over the heads that share keys."""
    heads = like.shape[1]
    if gradient.shape[1] == heads:
        return gradient
    return total(gradient.reshape(gradient.shape[0], heads, -1, *gradient.shape[2:]), 2)


@row("aten._scaled_dot_product_flash_attention_for_cpu.default", supports=_heads)
def flash_attention(q, k, v, dropout_p=0.0, is_causal=False, attn_mask=None, scale=None):
    """softmax(q k' scale + mask) v, and the log-sum-exp of every row."""
    k, v = _spread(q, k, v)
    s, _ = _scores(q, k, is_causal, attn_mask, scale)
    best = highest(s, -1, True)
    best = jnp.where(jnp.isfinite(best), best, 0)
    p = jnp.exp(s - best)
    sums = total(p, -1, True)
    weights = p.astype(v.dtype)
    y = lax.dot_general(weights, v, (((3,), (2,)), ((0, 1), (0, 1))), preferred_element_type=s.dtype)
    y = jnp.where(sums == 0, 0, y / sums)
    return y.astype(q.dtype), (jnp.log(sums) + best)[..., 0]


@row(
    "aten._scaled_dot_product_flash_attention_for_cpu_backward.default",
    supports=lambda g, q, k, v, *a, **kw: _heads(q, k, v),
)
def flash_attention_backward(grad, q, k, v, y, lse, dropout_p, is_causal, attn_mask=None, scale=None):
    """Gradients for q, k and v."""
    shared = k
    k, v = _spread(q, k, v)
    s, scale = _scores(q, k, is_causal, attn_mask, scale)
    wide = s.dtype
    p = jnp.exp(s - lse.astype(wide)[..., None])
    p = jnp.where(jnp.isfinite(lse)[..., None], p, 0)
    g, kw, qw, vw = (a.astype(wide) for a in (grad, k, q, v))
    batch = ((0, 1), (0, 1))
    grad_v = lax.dot_general(p, g, (((2,), (2,)), batch))
    grad_p = lax.dot_general(g, vw, (((3,), (3,)), batch))
    delta = total(g * y.astype(wide), -1, True)
    grad_s = p * (grad_p - delta) * jnp.asarray(scale, wide)
    grad_q = lax.dot_general(grad_s, kw, (((3,), (2,)), batch))
    grad_k = lax.dot_general(grad_s, qw, (((2,), (2,)), batch))
    grad_k, grad_v = _gathered(grad_k, shared), _gathered(grad_v, shared)
    return grad_q.astype(q.dtype), grad_k.astype(k.dtype), grad_v.astype(v.dtype)


@row("aten.native_layer_norm.default")
def native_layer_norm(x, normalized_shape, weight, bias, eps, out: Any = None):
    """Layer norm, its mean and its reciprocal deviation."""
    axes = tuple(range(x.ndim - len(normalized_shape), x.ndim))
    wide = jnp.float32 if x.dtype in (jnp.bfloat16, jnp.float16) else x.dtype
    xw = x.astype(wide)
    count = math.prod(x.shape[a] for a in axes)
    mu = total(xw, axes, True) / count
    centred = xw - mu
    scale = lax.rsqrt(total(centred * centred, axes, True) / count + eps)
    y = centred * scale
    y = y if weight is None else y * weight.astype(wide)
    y = y if bias is None else y + bias.astype(wide)
    return y.astype(x.dtype), mu.astype(out[1].dtype), scale.astype(out[2].dtype)
