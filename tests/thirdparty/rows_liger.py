"""Rows of liger-kernel: every operator of `liger_kernel.ops`, with its options.

Input: nothing. Output: `ROWS`. Law: as in `table.py`; the formulas are in `liger_formulas.py`.
"""

from __future__ import annotations

import liger_formulas as formula
import torch
import torch.nn.functional as F
from liger_layers import LAYERS
from liger_losses import LOSSES
from table import Row

OPS = "liger_kernel.ops"
FULL = ("float32", "bfloat16", "float16")


def norm_inputs(d, rows=6, columns=300):
    return d.normal(rows, columns), d.normal(columns)


def rms(variant="", dtypes=FULL, inputs=norm_inputs, large=None, **options):
    offset = options.get("offset", 0.0)
    return Row(
        "rms_norm",
        OPS,
        inputs,
        lambda ops, x, w: ops.LigerRMSNormFunction.apply(
            x, w, 1e-6, offset, options.get("mode", "llama"), options.get("in_place", True), options.get("row_mode")
        ),
        lambda x, w: formula.rms_norm(x, w, 1e-6, offset),
        variant,
        dtypes,
        large=large,
    )


NORMS = [
    rms(large=lambda d: norm_inputs(d, 4096, 4096)),
    rms("offset 1, gemma casts", offset=1.0, mode="gemma"),
    rms("no casts", mode="none"),
    rms("not in place", in_place=False),
    rms("without weight", inputs=lambda d: (d.normal(2, 3, 128), None)),
    rms("blocks of rows", dtypes=("float32",), inputs=lambda d: norm_inputs(d, 32768, 24)),
    Row(
        "fused_add_rms_norm",
        OPS,
        lambda d: (d.normal(2, 5, 200), d.normal(2, 5, 200), d.normal(200)),
        lambda ops, x, r, w: ops.LigerFusedAddRMSNormFunction.apply(x, r, w, 1e-6),
        lambda x, r, w: (formula.rms_norm(x + r, w), x + r),
        dtypes=FULL,
        large=lambda d: (d.normal(2048, 4096), d.normal(2048, 4096), d.normal(4096)),
    ),
    Row(
        "fused_add_rms_norm",
        OPS,
        lambda d: (d.normal(7, 200), d.normal(7, 200), d.normal(200)),
        lambda ops, x, r, w: ops.LigerFusedAddRMSNormFunction.apply(x, r, w, 1e-6, 1.0, "gemma", True),
        lambda x, r, w: (formula.rms_norm(x + r, w, offset=1.0), x + r),
        "gemma casts, in place",
    ),
    *(
        Row(
            "modulated_rms_norm",
            OPS,
            lambda d, rows=rows: (d.normal(2, 4, 96), d.normal(96), d.normal(*rows, 96), d.normal(*rows, 96)),
            lambda ops, x, w, scale, shift: ops.LigerModulatedRMSNormFunction.apply(x, w, scale, shift, 1e-6),
            lambda x, w, scale, shift, rows=rows: (
                (1 + scale.reshape(*shared(rows), 96)) * formula.rms_norm(x, w) + shift.reshape(*shared(rows), 96)
            ),
            variant,
        )
        for variant, rows in (("a row a token", (2, 4)), ("a row a sequence", (2,)), ("one row", ()))
    ),
    Row(
        "layer_norm",
        OPS,
        lambda d: (d.normal(6, 300), d.normal(300), d.normal(300)),
        lambda ops, x, w, b: ops.LigerLayerNormFunction.apply(x, w, b, 1e-6),
        lambda x, w, b: F.layer_norm(x, w.shape, w, b, 1e-6),
        dtypes=FULL,
        large=lambda d: (d.normal(4096, 4096), d.normal(4096), d.normal(4096)),
    ),
    Row(
        "poly_norm",
        OPS,
        lambda d: (d.normal(6, 300), d.normal(3), d.normal(1)[0]),
        lambda ops, x, w, b: ops.LigerPolyNormFunction.apply(x, w, b, 1e-6),
        lambda x, w, b: formula.poly_norm(x, w, b),
        large=lambda d: (d.normal(2048, 4096), d.normal(3), d.normal(1)[0]),
    ),
    Row(
        "group_norm",
        OPS,
        lambda d: (d.normal(3, 6, 50), d.normal(6), d.normal(6)),
        lambda ops, x, w, b: ops.LigerGroupNormFunction.apply(x, w, b, len(w), 2, 1e-6),
        lambda x, w, b: F.group_norm(x, 2, w, b, 1e-6),
        dtypes=("float32",),
        large=lambda d: (d.normal(32, 64, 4096), d.normal(64), d.normal(64)),
    ),
    Row(
        "dyt",
        OPS,
        lambda d: (d.normal(6, 300), d.normal(1), d.normal(300), d.normal(300)),
        lambda ops, x, a, g, b: ops.LigerDyTFunction.apply(x, a, g, b),
        lambda x, a, g, b: torch.tanh(a * x) * g + b,
        grad=False,
        large=lambda d: (d.normal(4096, 4096), d.normal(1), d.normal(4096), d.normal(4096)),
        note="its backward pass counts a GPU's processors, so its kernel is launched by the next row",
    ),
    Row(
        "dyt",
        "liger_kernel.ops.dyt",
        lambda d: (d.normal(6, 300), d.normal(6, 300), d.normal(1), d.normal(300)),
        lambda dyt, dy, x, a, g: dyt_backward(dyt, dy, x, a, g),
        lambda dy, x, a, g: (
            dy * g * (1 - torch.tanh(a * x) ** 2) * a,
            (dy * g * (1 - torch.tanh(a * x) ** 2) * x).sum()[None],
            (dy * torch.tanh(a * x)).sum(0),
            dy.sum(0),
        ),
        "kernel of the backward pass",
        dtypes=("float32",),
        grad=False,
    ),
    Row(
        "attn_res",
        OPS,
        lambda d: (d.normal(5, 2, 3, 48), d.normal(48), d.normal(48)),
        lambda ops, v, q, n: ops.LigerAttnResFunction.apply(v, q, n, 1e-6),
        lambda v, q, n: formula.attn_res(v, q, n, 1e-6),
    ),
]


def shared(rows):
    """How modulation rows stand against (batch, token, hidden)."""
    return {2: rows, 1: (*rows, 1), 0: (1, 1)}[len(rows)]


def dyt_backward(dyt, dy, x, alpha, gamma, programs=4):
    rows, columns = x.shape
    da, dx = torch.zeros(programs, -(-columns // 512)), torch.empty_like(x)
    dg, db = torch.empty(programs, columns), torch.empty(programs, columns)
    grid = lambda meta: (-(-columns // meta["BLOCK_N"]), programs)
    dyt._dyt_bwd_kernel[grid](dy, dx, da, dg, db, x, alpha, gamma, True, rows, columns)
    return dx, da.sum()[None], dg.sum(0), db.sum(0)


def gated(operator, function, activation, **more):
    return Row(
        operator,
        OPS,
        lambda d: (d.normal(6, 300), d.normal(6, 300)),
        lambda ops, a, b: getattr(ops, function).apply(a, b),
        lambda a, b: activation(a) * b,
        dtypes=FULL,
        large=lambda d: (d.normal(2048, 11008), d.normal(2048, 11008)),
        **more,
    )


ACTIVATIONS = [
    gated("swiglu", "LigerSiLUMulFunction", F.silu),
    gated("geglu", "LigerGELUMulFunction", lambda a: F.gelu(a, approximate="tanh")),
    Row(
        "swiglu",
        OPS,
        lambda d: (d.normal(6, 300), d.normal(6, 300)),
        lambda ops, a, b: ops.LigerSiLUMulFunction.apply(a, b, 0.7, 1.3),
        lambda a, b: F.silu(0.7 * a) * b * 1.3,
        "multipliers",
    ),
    *(
        Row(
            "swiglu",
            OPS,
            lambda d: (d.normal(6, 300),),
            lambda ops, y, in_place=in_place: ops.LigerFusedGateUpSiLUMulFunction.apply(y, in_place),
            lambda y: F.silu(y[:, :150]) * y[:, 150:],
            f"gate and up in one tensor{', in place' * in_place}",
        )
        for in_place in (False, True)
    ),
    Row(
        "relu_squared",
        OPS,
        lambda d: (d.normal(6, 300),),
        lambda ops, x: ops.LigerReLUSquaredFunction.apply(x),
        lambda x: F.relu(x).square(),
        large=lambda d: (d.normal(4096, 4096),),
    ),
    Row(
        "tiled_mlp",
        OPS,
        lambda d: (d.normal(2, 9, 64),),
        lambda ops, x: ops.apply_tiled_mlp(lambda m, t: ops.LigerSiLUMulFunction.apply(t * 2, t + 1), None, x, 3),
        lambda x: F.silu(x * 2) * (x + 1),
    ),
    Row(
        "softmax",
        OPS,
        lambda d: (d.normal(6, 300),),
        lambda ops, x: ops.LigerSoftmaxFunction.apply(x),
        lambda x: torch.softmax(x, -1),
        dtypes=FULL,
        large=lambda d: (d.normal(4096, 4096),),
    ),
    *(
        Row(
            "sparsemax",
            OPS,
            lambda d, dim=dim: (d.normal(6, 7, 40),),
            lambda ops, x, dim=dim: ops.LigerSparsemaxFunction.apply(x, dim),
            lambda x, dim=dim: formula.sparsemax(x, dim),
            variant,
            large=(lambda d: (d.normal(2048, 4096),)) if dim == -1 else None,
        )
        for variant, dim in (("", -1), ("inner dimension", 1))
    ),
    Row(
        "embedding",
        OPS,
        lambda d: (d.normal(40, 72), d.integers(40, 3, 11)),
        lambda ops, w, i: ops.LigerEmbeddingFunction.apply(w, i),
        lambda w, i: F.embedding(i, w),
        large=lambda d: (d.normal(32000, 1024), d.integers(32000, 8, 512)),
    ),
]


def heads(d, batch=2, q_heads=4, k_heads=2, length=5, width=24):
    """Queries and keys as an attention layer has them: (batch, head, position, width) views."""
    return (
        d.normal(batch, length, q_heads, width).transpose(1, 2),
        d.normal(batch, length, k_heads, width).transpose(1, 2),
    )


def angles(d, *shape):
    """Cosines and sines, the second half of the last dimension equal to the first."""
    a = d.uniform(*shape[:-1], shape[-1] // 2, high=6.28)
    a = torch.cat([a, a], -1)
    return a.cos(), a.sin()


ROPE = [
    Row(
        "rope",
        OPS,
        lambda d: (*heads(d), *angles(d, 1, 5, 24)),
        lambda ops, q, k, cos, sin: ops.LigerRopeFunction.apply(q, k, cos, sin),
        lambda q, k, cos, sin: formula.rope(q, k, cos, sin),
        dtypes=FULL,
        constant=frozenset({2, 3}),
        large=lambda d: (*heads(d, 2, 32, 8, 1024, 128), *angles(d, 1, 1024, 128)),
    ),
    Row(
        "rope",
        OPS,
        lambda d: (*heads(d, q_heads=3, k_heads=1), *angles(d, 2, 5, 24)),
        lambda ops, q, k, cos, sin: ops.LigerRopeFunction.apply(q, k, cos, sin),
        lambda q, k, cos, sin: formula.rope(q, k, cos[:, None], sin[:, None]),
        "angles a sequence",
        constant=frozenset({2, 3}),
    ),
    Row(
        "rope",
        OPS,
        lambda d: (*heads(d, width=32), *angles(d, 1, 5, 20)),
        lambda ops, q, k, cos, sin: ops.LigerRopeFunction.apply(q, k, cos, sin),
        lambda q, k, cos, sin: formula.rope(q, k, cos, sin, 20),
        "part of the head",
        constant=frozenset({2, 3}),
    ),
    Row(
        "llama4_rope",
        OPS,
        lambda d: (
            d.normal(2, 5, 4, 32),
            d.normal(2, 5, 2, 32),
            torch.stack([t[..., :16] for t in angles(d, 5, 32)], -1),
        ),
        lambda ops, q, k, f: ops.LigerLlama4RopeFunction.apply(q, k, torch.view_as_complex(f)),
        formula.rope_complex,
        dtypes=("float32", "bfloat16"),
        constant=frozenset({2}),
        keep=frozenset({2}),
        large=lambda d: (
            d.normal(2, 1024, 32, 128),
            d.normal(2, 1024, 8, 128),
            torch.stack([t[..., :64] for t in angles(d, 1024, 128)], -1),
        ),
    ),
    Row(
        "qwen2vl_mrope",
        OPS,
        lambda d: (*heads(d, width=32), *angles(d, 3, 2, 5, 32)),
        lambda ops, q, k, cos, sin: ops.LigerQwen2VLMRopeFunction.apply(q, k, cos, sin, [4, 6, 6]),
        lambda q, k, cos, sin: formula.multimodal_rope(q, k, cos, sin, [4, 6, 6]),
        constant=frozenset({2, 3}),
        large=lambda d: (*heads(d, 2, 32, 8, 1024, 32), *angles(d, 3, 2, 1024, 32)),
    ),
]

ROWS = [*NORMS, *ACTIVATIONS, *ROPE, *LOSSES, *LAYERS]
