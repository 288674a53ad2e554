"""Rows of fla-core: tools of its operators, and the modules beside them.

Input: nothing. Output: `TOOLS` and `MODULES`. Law: as in `table.py`.
"""

from __future__ import annotations

import fla_formulas as formula
import torch
import torch.nn.functional as F
from fla_attention import ops, packed, whole
from fla_states import LENGTHS, PACKED, row, same


def chunked_sum(x, size, reverse=False):
    parts = [p.flip(1).cumsum(1).flip(1) if reverse else p.cumsum(1) for p in x.split(size, 1)]
    return torch.cat(parts, 1)


def triangle(d, size):
    steps = torch.arange(100) % size
    lower = d.normal(2, 100, 3, size) * 0.3 * (steps[:, None] > torch.arange(size))[None, :, None, :]
    return {"A": lower}


def inverse(A):
    size = A.shape[-1]
    tiles = F.pad(A, (0, 0, 0, 0, 0, -A.shape[1] % size)).unflatten(1, (-1, size)).transpose(2, 3)
    out = torch.linalg.inv(tiles.tril(-1) + torch.eye(size).to(A)).transpose(2, 3).flatten(1, 2)
    return out[:, : A.shape[1]]


ALONE = {"grad": False}
TOOLS = [
    ops("softmax_fwd", "utils", lambda d: {"x": d.normal(7, 100)}, whole("softmax_fwd"), lambda x: x.softmax(-1),
        **ALONE),
    ops("logsumexp_fwd", "utils", lambda d: {"x": d.normal(7, 100)}, lambda m, x: m.logsumexp_fwd(x, 0.5),
        lambda x: (x * 0.5).logsumexp(-1), **ALONE),
    ops("chunk_local_cumsum", "utils", lambda d: {"g": d.normal(2, 100, 3, 40), "h": d.normal(2, 100, 3)},
        lambda m, g, h: (m.chunk_local_cumsum(g, 64, reverse=True), m.chunk_local_cumsum(h, 64)),
        lambda g, h: (chunked_sum(g, 64, True), chunked_sum(h, 64)), **ALONE),
    ops("chunk_global_cumsum", "utils", lambda d: {"g": d.normal(1, 150, 3, 40)},
        lambda m, g: (m.chunk_global_cumsum(g), m.chunk_global_cumsum(g, cu_seqlens=PACKED)),
        lambda g: (g.cumsum(1), torch.cat([p.cumsum(1) for p in g.split(LENGTHS, 1)], 1)), **ALONE),
    ops("mean_pooling", "utils", lambda d: {"x": d.normal(2, 100, 3, 40)}, lambda m, x: m.mean_pooling(x, 32),
        lambda x: torch.cat([p.mean(1, keepdim=True) for p in x.split(32, 1)], 1)),
    *(ops("solve_tril", "utils", lambda d, n=n: triangle(d, n), whole("solve_tril"), inverse, f"tiles of {n}", **ALONE)
      for n in (16, 32, 64)),
    ops("matmul", "utils", lambda d: {"a": d.normal(50, 70), "b": d.normal(70, 90)},
        lambda m, a, b: m.matmul(a, b, activation="sigmoid"), lambda a, b: (a @ b).sigmoid(), **ALONE),
    ops("sinkhorn", "utils", variant="", make=same, call=same, reference=same,
        unsupported="it asks for CUDA tensors of NVIDIA"),
]  # fmt: skip


def modules(operator, part, make, call, reference, variant="", **options):
    return row(operator, f"fla.modules.{part}", make, call, reference, variant, **options)


def norm_inputs(d, residual=False, gated=False):
    made = {"x": d.normal(4, 37, 80), "w": d.normal(80), "b": d.normal(80)}
    made |= {"residual": d.normal(4, 37, 80)} if residual else {}
    return made | ({"gate": d.normal(4, 37, 80)} if gated else {})


def layer(x, w, b):
    return F.layer_norm(x, (80,), w, b, 1e-5)


def rms(x, w, b=0.0):
    return F.rms_norm(x, (80,), w, 1e-5) + b


def angles(d):
    table = torch.outer(torch.arange(150.0), 1 / 10000 ** (torch.arange(0, 32, 2) / 32))
    return table.cos(), table.sin()


def conv_inputs(d, batch=2, steps=50):
    return {"x": d.normal(batch, steps, 48), "w": d.normal(48, 4), "b": d.normal(48)}


def shifted(x):
    return F.pad(x, (0, 0, 1, -1)) - x


def labels(d, rows, classes):
    out = d.integers(classes, rows)
    out[3] = -100
    return out


ACTIVATIONS = {
    "SigmoidFunction": torch.sigmoid,
    "LogSigmoidFunction": F.logsigmoid,
    "SwishFunction": F.silu,
    "SquaredReLUFunction": lambda x: F.relu(x).square(),
    "ELUPlusOneFunction": lambda x: F.elu(x) + 1,
}
MODULES = [
    *(modules(name, "activations", lambda d: {"x": d.normal(5, 300)},
        lambda m, x, name=name: getattr(m, name).apply(x, *([1.0] if name == "LogSigmoidFunction" else [])),
        lambda x, fn=fn: fn(x)) for name, fn in ACTIVATIONS.items()),
    modules("GeLUFunction", "activations", lambda d: {"x": d.normal(5, 300), "b": d.normal(300)},
        lambda m, x, b: m.GeLUFunction.apply(x, b), lambda x, b: F.gelu(x + b, approximate="tanh")),
    modules("swiglu", "activations", lambda d: {"x": d.normal(5, 300), "y": d.normal(5, 300)},
        lambda m, x, y: m.swiglu(x, y), lambda x, y: F.silu(x) * y),
    modules("swiglu_linear", "activations", lambda d: {
            "x": d.normal(5, 300), "y": d.normal(5, 300), "weight": d.normal(70, 300), "bias": d.normal(70)},
        whole("swiglu_linear"), lambda x, y, weight, bias: F.linear(F.silu(x) * y, weight, bias)),
    modules("layer_norm", "norm.layernorm", norm_inputs, lambda m, x, w, b: m.layer_norm(x, w, b), layer),
    modules("layer_norm", "norm.layernorm", lambda d: norm_inputs(d, True),
        lambda m, x, w, b, residual: m.layer_norm(x, w, b, residual=residual, prenorm=True),
        lambda x, w, b, residual: (layer(x + residual, w, b), x + residual), "residual"),
    modules("rms_norm", "norm.layernorm", norm_inputs, lambda m, x, w, b: m.rms_norm(x, w, b, eps=1e-5), rms),
    modules("group_norm", "norm.layernorm", norm_inputs, lambda m, x, w, b: m.group_norm(x, w, b, num_groups=4),
        lambda x, w, b: F.group_norm(x.reshape(-1, 80), 4, w, b, 1e-5).view_as(x)),
    modules("l2norm", "norm.l2norm", lambda d: {"x": d.normal(4, 37, 80)}, whole("l2norm"),
        lambda x: x * torch.rsqrt(x.square().sum(-1, keepdim=True) + 1e-6)),
    modules("rms_norm_gated", "norm.fused_norm_gate", lambda d: norm_inputs(d, gated=True),
        lambda m, x, w, b, gate: m.rms_norm_gated(x, gate, w, b, activation="swish", eps=1e-5),
        lambda x, w, b, gate: rms(x, w, b) * F.silu(gate)),
    modules("layer_norm_gated", "norm.fused_norm_gate", lambda d: norm_inputs(d, gated=True),
        lambda m, x, w, b, gate: m.layer_norm_gated(x, gate, w, b, activation="sigmoid"),
        lambda x, w, b, gate: layer(x, w, b) * gate.sigmoid()),
    modules("rotary_embedding", "rotary", lambda d: {"x": d.normal(2, 50, 3, 40)},
        lambda m, x: m.rotary_embedding(x, *angles(None)), lambda x: formula.rotated(x, *angles(None))),
    modules("rotary_embedding", "rotary", lambda d: {"x": d.normal(1, 150, 3, 40)},
        lambda m, x: m.rotary_embedding(x, *angles(None), cu_seqlens=PACKED),
        lambda x: packed(lambda x: formula.rotated(x, *angles(None)), x=x), "packed"),
    modules("cross_entropy_loss", "fused_cross_entropy", lambda d: {
            "logits": d.normal(60, 300), "target": labels(d, 60, 300)},
        lambda m, **x: m.cross_entropy_loss(**x, label_smoothing=0.1)[0],
        lambda logits, target: F.cross_entropy(logits, target, label_smoothing=0.1, reduction="none")),
    modules("fused_linear_cross_entropy_loss", "fused_linear_cross_entropy", lambda d: {
            "x": d.normal(60, 40), "target": labels(d, 60, 300), "weight": d.normal(300, 40), "bias": d.normal(300)},
        whole("fused_linear_cross_entropy_loss"),
        lambda x, target, weight, bias: F.cross_entropy(F.linear(x, weight, bias), target)),
    modules("causal_conv1d", "causal_conv1d", conv_inputs,
        lambda m, x, w, b: m.causal_conv1d(x, w, b, activation="swish")[0], formula.causal_conv),
    modules("causal_conv1d", "causal_conv1d", lambda d: {**conv_inputs(d), "state": d.normal(2, 48, 4)},
        lambda m, x, w, b, state: m.causal_conv1d(x, w, b, initial_state=state, activation="swish")[0],
        formula.causal_conv, "state"),
    modules("causal_conv1d", "causal_conv1d", lambda d: conv_inputs(d, 1, 150),
        lambda m, x, w, b: m.causal_conv1d(x, w, b, activation="swish", cu_seqlens=PACKED)[0],
        lambda x, w, b: packed(lambda x: formula.causal_conv(x, w, b), x=x), "packed"),
    modules("token_shift", "token_shift", lambda d: {"x": d.normal(2, 50, 40)}, whole("token_shift"), shifted),
    modules("token_shift", "token_shift", lambda d: {"x": d.normal(1, 150, 40)},
        lambda m, x: m.token_shift(x, cu_seqlens=PACKED), lambda x: packed(shifted, x=x), "packed"),
]  # fmt: skip
