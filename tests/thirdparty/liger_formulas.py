"""What liger-kernel's operators compute, in plain torch; differentiable, at any precision.

Written from the papers and the operators' documentation.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F


def rms_norm(x, w=None, eps=1e-6, offset=0.0):
    y = x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps)
    return y if w is None else y * (w + offset)


def poly_norm(x, w, b, eps=1e-6):
    def normed(u):
        return u * torch.rsqrt(u.square().mean(-1, keepdim=True) + eps)

    return w[0] * normed(x**3) + w[1] * normed(x**2) + w[2] * normed(x) + b


def attn_res(v, query, norm, eps):
    """Softmax over depth of a learned query against normalised blocks."""
    scores = (query * rms_norm(v, norm, eps)).sum(-1)
    return (torch.softmax(scores, 0)[..., None] * v).sum(0)


def rotate(x, cos, sin):
    half = x.shape[-1] // 2
    return x * cos + torch.cat([-x[..., half:], x[..., :half]], -1) * sin


def rope(q, k, cos, sin, width=None):
    """Halves rotated against each other; entries behind `width` stay."""
    width = width or q.shape[-1]

    def one(x):
        return torch.cat([rotate(x[..., :width], cos[..., :width], sin[..., :width]), x[..., width:]], -1)

    return one(q), one(k)


def rope_complex(q, k, freqs):
    """Neighbouring entries are real and imaginary parts."""

    def one(x):
        z = torch.view_as_complex(x.reshape(*x.shape[:-1], -1, 2).contiguous())
        return torch.view_as_real(z * torch.view_as_complex(freqs)[None, :, None, :]).flatten(-2)

    return one(q), one(k)


def multimodal_rope(q, k, cos, sin, sections):
    """Time, height and width each turn their own section of the head."""

    def pick(table):
        half = table.shape[-1] // 2
        parts = table[..., :half].split([sections[0], sections[1], half - sections[0] - sections[1]], -1)
        joined = torch.cat([part[i] for i, part in enumerate(parts)], -1)
        return torch.cat([joined, joined], -1)[:, None]

    return rotate(q, pick(cos), pick(sin)), rotate(k, pick(cos), pick(sin))


def cross_entropy(
    x, target, weight=None, ignore=-100, z_scale=0.0, smoothing=0.0, reduction="mean", softcap=None, scaled=False
):
    """Loss and z-loss; the z-loss is part of the loss and has no gradient of its own."""
    if softcap is not None:
        x = softcap * torch.tanh(x / softcap)
    keep = target != ignore
    count = keep.sum()
    loss = F.cross_entropy(x, target, weight, ignore_index=ignore, label_smoothing=smoothing, reduction="none")
    z = z_scale * torch.logsumexp(x, -1).square() * keep
    if scaled:  # each token by its own probability, as a constant
        p = torch.softmax(x, -1).gather(-1, target.clamp_min(0)[:, None])[:, 0].detach()
        loss, z = loss * p, z * p
    if reduction == "none":
        return loss + z, z.detach()
    if reduction == "sum":
        return (loss + z).sum(), z.sum().detach()
    total = weight[target[keep]].sum() if weight is not None else count
    return loss.sum() / total + z.sum() / count, z.sum().detach() / count


def kl_div(log_p, target, reduction, log_target=False):
    terms = F.kl_div(log_p, target, reduction="none", log_target=log_target)
    return (
        terms
        if reduction == "none"
        else terms.sum() / {"sum": 1, "batchmean": len(terms), "mean": terms.numel()}[reduction]
    )


def jsd(log_q, log_p, labels=None, beta=0.5, ignore=-100):
    """Generalised Jensen-Shannon divergence, averaged over the rows that count."""
    if beta == 0.0:
        terms = log_p.exp() * (log_p - log_q)
    elif beta == 1.0:
        terms = log_q.exp() * (log_q - log_p)
    else:
        p, q = log_p.exp(), log_q.exp()
        log_m = (beta * p + (1 - beta) * q).log()
        terms = beta * p * (log_p - log_m) + (1 - beta) * q * (log_q - log_m)
    if labels is None:
        return terms.sum() / len(terms)
    keep = labels != ignore
    return terms[keep].sum() / keep.sum()


def tvd(p, q, labels=None, reduction="batchmean", ignore=-100):
    terms = 0.5 * (p - q).abs()
    count = len(p)
    if labels is not None:
        keep = labels != ignore
        terms, count = terms * keep[:, None], keep.sum()
    if reduction == "none":
        return terms
    divisor = {"sum": 1, "batchmean": count, "mean": count * p.shape[1]}[reduction]
    return terms.sum() / divisor


def ce_tvd(student, teacher, target, ignore=-100):
    keep = target != ignore
    ce = F.cross_entropy(student, target, ignore_index=ignore, reduction="none")
    distance = 0.5 * (torch.softmax(student, -1) - torch.softmax(teacher, -1).detach()).abs().sum(-1)
    return ce, distance * keep


def sparsemax(x, dim=-1):
    """Projection onto the simplex: what is above a threshold, with the threshold from the sorted row."""
    z = x.sort(dim, descending=True).values
    count = torch.arange(1, x.shape[dim] + 1, dtype=x.dtype)
    count = count.reshape([-1 if i == dim % x.dim() else 1 for i in range(x.dim())])
    size = (count * z > z.cumsum(dim) - 1).sum(dim, keepdim=True)
    tau = (z.cumsum(dim).gather(dim, size - 1) - 1) / size
    return F.relu(x - tau)  # an element exactly at the threshold is out, and has no gradient


def multi_token_attention(scores, weight, bias, padding, sparse=False, groups=1):
    length = scores.shape[-1]
    future = torch.ones(length, length, dtype=torch.bool).triu(1)
    x = scores.masked_fill(future, -1e9)
    probabilities = sparsemax(x) if sparse else torch.softmax(x, -1)
    return F.conv2d(probabilities, weight, bias, padding=padding, groups=groups).masked_fill(future, 0.0)


def neighborhood_attention(q, k, v, kernel, dilation):
    n = q.shape[-2]
    i = torch.arange(n)
    apart = i[None, :] - i[:, None]
    near = (apart.abs() <= kernel // 2 * dilation) & (apart % dilation == 0)
    scores = (q @ k.transpose(-1, -2)) * q.shape[-1] ** -0.5
    return torch.softmax(scores.masked_fill(~near, float("-inf")), -1) @ v


def per_token_logp(logits, ids, temperature):
    return torch.log_softmax(logits[:, :-1] / temperature, -1).gather(-1, ids[..., None])[..., 0]


def grpo(
    logits,
    old,
    ref,
    ids,
    advantages,
    mask,
    temperature=0.9,
    beta=0.04,
    low=0.2,
    high=0.4,
    kind="grpo",
    level="token",
    delta=None,
    ratio=None,
    corrected=False,
    phi=None,
):
    """The family of clipped policy losses: (loss, mean KL or None, share of clipped tokens)."""
    logp = per_token_logp(logits, ids, temperature)
    mask = torch.ones_like(logp) if mask is None else mask.to(logp.dtype)
    lengths = mask.sum(-1, keepdim=True).clamp_min(1.0)
    log_ratio = logp - (logp.detach() if old is None else old)
    if level == "sequence":
        log_ratio = ((log_ratio * mask).sum(-1, keepdim=True) / lengths).expand_as(logp)
    coefficient, a = log_ratio.exp(), advantages[:, None]
    clipped = torch.zeros_like(logp)
    if kind == "cispo":
        loss = -coefficient.clamp(max=high).detach() * a * logp
        clipped = (coefficient > high) & (a > 0)
    elif kind == "sapo":
        sharpness = torch.where(a > 0, 1.0, 1.05)
        loss = -torch.sigmoid(sharpness * (coefficient - 1)) * 4 / sharpness * a
    elif kind == "vespo":
        loss = -phi[:, None] * a * logp
    else:
        bounded = coefficient if delta is None else coefficient.clamp(max=delta)
        loss = -torch.minimum(bounded * a, coefficient.clamp(1 - low, 1 + high) * a)
        clipped = ((coefficient < 1 - low) & (a < 0)) | ((coefficient > 1 + high) & (a > 0))
    if ratio is not None and kind != "vespo":
        loss = loss * ratio.reshape(len(ratio), -1)
    kl = None
    if beta:
        kl = (ref - logp).exp() - (ref - logp) - 1
        if corrected:
            kl = kl * coefficient
        loss = loss + beta * kl
    total = mask.sum().clamp_min(1.0)
    if kind in ("grpo", "sapo"):
        reduced = ((loss * mask).sum(-1) / lengths[:, 0]).mean()
    elif kind == "dr_grpo":
        reduced = (loss * mask).sum() / mask.numel()
    elif kind == "luspo":
        reduced = (loss * mask * lengths).mean()
    else:
        reduced = (loss * mask).sum() / total
    share = (clipped.to(logp.dtype) * mask).sum() / total
    return reduced, None if kl is None else ((kl * mask).sum() / total).detach(), share.detach()


def mhc_coefficients(x, phi, b, alphas, steps, rms_eps, pre_eps, sinkhorn_eps, post_scale):
    """Mixing weights of hyper-connections: two gates, and a matrix made doubly stochastic by Sinkhorn's iteration."""
    lanes = x.shape[-2]
    flat = x.flatten(-2)
    mix = (flat @ phi) * torch.rsqrt(flat.square().mean(-1, keepdim=True) + rms_eps)
    pre, post, rest = mix.split([lanes, lanes, lanes * lanes], -1)
    b_pre, b_post, b_rest = b.split([lanes, lanes, lanes * lanes])
    m = torch.softmax((rest * alphas[2] + b_rest).unflatten(-1, (lanes, lanes)), -1) + sinkhorn_eps
    m = m / (m.sum(-2, keepdim=True) + sinkhorn_eps)
    for _ in range(steps - 1):
        m = m / (m.sum(-1, keepdim=True) + sinkhorn_eps)
        m = m / (m.sum(-2, keepdim=True) + sinkhorn_eps)
    return (
        torch.sigmoid(pre * alphas[0] + b_pre) + pre_eps,
        torch.sigmoid(post * alphas[1] + b_post) * post_scale,
        m,
    )


def mhc_post_res(x, f, post, res):
    return torch.einsum("...oi,...ic->...oc", res, x) + post[..., None] * f[..., None, :]


def mixture_of_experts(x, gate_up, down, chosen, weights):
    out = torch.zeros_like(x)
    for k in range(chosen.shape[1]):
        for e in range(len(gate_up)):
            rows = (chosen[:, k] == e).nonzero()[:, 0]
            gate, up = (x[rows] @ gate_up[e].T).chunk(2, -1)
            out = out.index_add(0, rows, (F.silu(gate) * up) @ down[e].T * weights[rows, k, None])
    return out


def unpack_two_bits(packed):
    """Four weights of -1, 0, 1 or 2 a byte, the first quarter of the rows in the lowest bits."""
    return torch.cat([(packed >> (2 * i)) & 3 for i in range(4)]).to(torch.int32) - 1
