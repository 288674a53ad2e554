"""What operators of fla-core compute, in torch at the caller's precision, written from the mathematics.

Input: tensors, time on axis 1 and heads on axis 2. Output: tensors with gradients by autograd. Law: one step of time is
one line; nothing of the package is used.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F


def recurrence(q, k, v, gk=None, gv=None, a=None, b=None, u=None, scale=None, state=None):
    """``S = diag(e^gk) S diag(e^gv) + b (a^T S) + k v^T`` and ``o = scale q^T S``; with `u`, before the update."""
    batch, steps, heads, keys = q.shape
    scale = keys**-0.5 if scale is None else scale
    s = q.new_zeros(batch, heads, keys, v.shape[-1]) if state is None else state
    outs = []
    for t in range(steps):
        old, update = s, k[:, t, :, :, None] * v[:, t, :, None, :]
        if u is not None:
            outs.append(torch.einsum("bhk,bhkv->bhv", q[:, t] * scale, s + u[..., None] * update))
        s = s if gk is None else s * gk[:, t].exp()[..., None]
        s = s if gv is None else s * gv[:, t].exp()[..., None, :]
        if a is not None:
            s = s + b[:, t][..., None] * torch.einsum("bhk,bhkv->bhv", a[:, t], old)[..., None, :]
        s = s + update
        if u is None:
            outs.append(torch.einsum("bhk,bhkv->bhv", q[:, t] * scale, s))
    return torch.stack(outs, 1), s


def by_sequence(formula, bounds, tensors, states=None):
    """A formula on every sequence of a packed batch; its outputs joined along time, its states along the batch."""
    outs, finals = [], []
    for i, (low, high) in enumerate(zip(bounds[:-1], bounds[1:])):
        part = {n: x[:, low:high] if x.ndim > 2 else x for n, x in tensors.items()}
        state = {} if states is None else {"state": states[i : i + 1]}
        out, final = formula(**part, **state)
        outs.append(out)
        finals.append(final)
    return torch.cat(outs, 1), torch.cat(finals, 0)


def delta_rule(q, k, v, beta, gk=None, p=None, state=None):
    """A state that is corrected: `beta` of what key `k` (or `p`) reads is replaced by the value."""
    read = k if p is None else p
    decayed = read * gk.exp() if gk is not None and p is None else read
    return recurrence(q, k * beta[..., None], v, gk=gk, a=decayed, b=-k * beta[..., None], state=state)


def delta_product(q, k, v, g, beta, count):
    """Several corrections a step, the decay before the first."""
    s, outs = q.new_zeros(q.shape[0], q.shape[2], q.shape[3], v.shape[-1]), []
    for t in range(q.shape[1]):
        s = s * g[:, t].exp()[..., None, None]
        for j in range(count * t, count * (t + 1)):
            wrong = v[:, j] - torch.einsum("bhk,bhkv->bhv", k[:, j], s)
            s = s + beta[:, j][..., None, None] * k[:, j][..., None] * wrong[..., None, :]
        outs.append(torch.einsum("bhk,bhkv->bhv", q[:, t] * q.shape[-1] ** -0.5, s))
    return torch.stack(outs, 1)


def oja(q, k, v, gv, beta):
    """The delta rule on the other side: the key is corrected by what the value reads."""
    s, outs = q.new_zeros(q.shape[0], q.shape[2], q.shape[3], v.shape[-1]), []
    for t in range(q.shape[1]):
        s = s * gv[:, t].exp()[..., None, :]
        wrong = k[:, t] - torch.einsum("bhkv,bhv->bhk", s, v[:, t])
        s = s + beta[:, t][..., None, None] * wrong[..., None] * v[:, t][..., None, :]
        outs.append(torch.einsum("bhk,bhkv->bhv", q[:, t] * q.shape[-1] ** -0.5, s))
    return torch.stack(outs, 1)


def slots(q, k, v, s, g=None):
    """Two recurrences through slots: keys into slots, a softmax over them, slots into values."""
    if g is None:
        z = s.logcumsumexp(1)
        g, s = torch.cat([z[:, :1], z[:, :-1]], 1) - z, (s - z).exp()
    read, _ = recurrence(q, k, s, gv=g)
    return recurrence(read.softmax(-1), s, v, gk=g, scale=1.0)[0]


def lightnet(q, k, v):
    """Keys normalised by a running softmax."""
    z = k.logcumsumexp(1)
    return recurrence(q, (k - z).exp(), v, gk=torch.cat([z[:, :1], z[:, :-1]], 1) - z)[0]


def mesa(q, k, v, g, beta, lamb):
    """Every step solves least squares over what it has seen."""
    covariance = q.new_zeros(q.shape[0], q.shape[2], q.shape[3], q.shape[3])
    memory, outs = covariance.clone(), []
    for t in range(q.shape[1]):
        decay, key = g[:, t].exp()[..., None, None], (k[:, t] * beta[:, t][..., None])[..., None]
        covariance, memory = covariance * decay + key * k[:, t, :, None], memory * decay + key * v[:, t, :, None]
        solved = torch.linalg.solve(covariance + torch.diag_embed(lamb), q[:, t][..., None])
        outs.append((solved * memory).sum(-2))
    return torch.stack(outs, 1)


def hgrn(x, g, state=None):
    """``h = e^g h + x``."""
    h, outs = x.new_zeros(x.shape[0], x.shape[-1]) if state is None else state, []
    for t in range(x.shape[1]):
        h = g[:, t].exp() * h + x[:, t]
        outs.append(h)
    return torch.stack(outs, 1), h


def rwkv4(w, u, k, v, state):
    """Weighted averages with a decay, kept as numerator, denominator and exponent."""
    a, b, e = (x[:, 0] for x in state.unbind(1))
    outs = []
    for t in range(k.shape[1]):
        top = torch.maximum(e, u + k[:, t])
        old, new = (e - top).exp(), (u + k[:, t] - top).exp()
        outs.append((old * a + new * v[:, t]) / (old * b + new))
        top = torch.maximum(e - w.exp(), k[:, t])
        old, new = (e - w.exp() - top).exp(), (k[:, t] - top).exp()
        a, b, e = old * a + new * v[:, t], old * b + new, top
    return torch.stack(outs, 1), torch.stack([a, b, e], 1)[:, :, None]


def attention(q, k, v, g=None, window=None, power=None):
    """Causal attention with grouped heads; `g` decays by time; `power` takes a polynomial instead of the softmax."""
    groups, steps = q.shape[2] // k.shape[2], q.shape[1]
    k, v = k.repeat_interleave(groups, 2), v.repeat_interleave(groups, 2)
    scores = torch.einsum("bthd,bshd->bhts", q, k) * q.shape[-1] ** -0.5
    if power is not None:
        weights = power(scores).tril()
        return torch.einsum("bhts,bshd->bthd", weights, v), weights.sum(-1).transpose(1, 2)[..., None]
    if g is not None:
        c = g.cumsum(1).transpose(1, 2)
        scores = scores + c[..., :, None] - c[..., None, :]
    seen = torch.ones(steps, steps, dtype=torch.bool).tril()
    if window is not None:
        seen &= ~torch.ones(steps, steps, dtype=torch.bool).tril(-window)
    return torch.einsum("bhts,bshd->bthd", scores.masked_fill(~seen, float("-inf")).softmax(-1), v)


def wall(q, k, v, g):
    """Attention whose keys decay a channel at a time."""
    groups, c, steps = q.shape[2] // k.shape[2], g.cumsum(1), q.shape[1]
    k, v = k.repeat_interleave(groups, 2), v.repeat_interleave(groups, 2)
    scores = torch.einsum("bthd,bshd,btshd->bhts", q, k, (c[:, :, None] - c[:, None]).exp()) * q.shape[-1] ** -0.5
    seen = torch.ones(steps, steps, dtype=torch.bool).tril()
    return torch.einsum("bhts,bshd->bthd", scores.masked_fill(~seen, float("-inf")).softmax(-1), v)


def causal_conv(x, w, b, state=None):
    """A short convolution along time for every channel, then SiLU."""
    width, turned = w.shape[1], x.transpose(1, 2)
    padded = F.pad(turned, (width - 1, 0)) if state is None else torch.cat([state[..., 1:], turned], -1)
    return F.silu(F.conv1d(padded, w[:, None], b, groups=w.shape[0]).transpose(1, 2))


def rotated(x, cos, sin):
    """Rotary embedding of the first channels; the others stay."""
    half = cos.shape[-1]
    a, b, rest = x[..., :half], x[..., half : 2 * half], x[..., 2 * half :]
    cos, sin = cos[: x.shape[1], None].to(x), sin[: x.shape[1], None].to(x)
    return torch.cat([a * cos - b * sin, a * sin + b * cos, rest], -1)
