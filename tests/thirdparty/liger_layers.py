"""Rows of liger-kernel's attention, mixture-of-experts and hyper-connection operators, and its int2 matmul."""

from __future__ import annotations

import liger_formulas as formula
import torch
import torch.nn.functional as F
from table import Row

OPS = "liger_kernel.ops"


def experts(d, tokens=37, experts=5, chosen=2, width=48, inner=40):
    weights = torch.softmax(d.normal(tokens, chosen), -1)
    picks = torch.stack([torch.randperm(experts, generator=d.generator)[:chosen] for _ in range(tokens)])
    return (
        d.normal(tokens, width, scale=0.5),
        d.normal(experts, 2 * inner, width, scale=0.2),
        d.normal(experts, width, inner, scale=0.2),
        picks.to(torch.int32),
        weights,
    )


def hyper(d, lanes=4, width=24):
    """Streams, projection, biases and the three gains."""
    mixes = lanes * lanes + 2 * lanes
    return (
        d.normal(3, 5, lanes, width),
        d.normal(lanes * width, mixes, scale=0.1),
        d.normal(mixes),
        d.normal(1)[0],
        d.normal(1)[0],
        d.normal(1)[0],
    )


class DescribedMLP(torch.autograd.Function):
    """`LigerMLPFunction` without its assertion that tensors are on a GPU."""

    @staticmethod
    def forward(ctx, mlp, x, gate, up, down):
        saved, ctx.config = mlp.gemm_swiglu(x, gate, up, 1.0, True)
        ctx.save_for_backward(x, gate, up, down, saved)
        ctx.mlp = mlp
        return F.linear(saved[..., : gate.shape[0]], down)

    @staticmethod
    def backward(ctx, dy):
        x, gate, up, down, saved = ctx.saved_tensors
        inner, width = gate.shape
        d_down = dy.reshape(-1, width).T @ saved[..., :inner].reshape(-1, inner)
        ctx.mlp.swiglu_backward_dGU(dy.contiguous(), down, saved, ctx.config, 1.0, 1.0)
        d_both = saved[..., inner:].reshape(-1, 2 * inner).T @ x.reshape(-1, width)
        return None, ctx.mlp.swiglu_backward_dI(gate, up, saved), d_both[:inner], d_both[inner:], d_down


LAYERS = [
    *(
        Row(
            "multi_token_attention",
            OPS,
            lambda d, bias=bias: (d.normal(2, 3, 20, 20), d.normal(3, 3, 3, 3), d.normal(3) if bias else None),
            lambda ops, s, w, b, sparse=sparse: ops.LigerMultiTokenAttentionFunction.apply(s, w, b, 1, 1, 1, 1, sparse),
            lambda s, w, b, sparse=sparse: formula.multi_token_attention(s, w, b, 1, sparse),
            variant,
            dtypes,
        )
        for variant, bias, sparse, dtypes in (
            ("", True, False, ("float32", "bfloat16")),
            ("sparse, no bias", False, True, ("float32",)),
        )
    ),
    *(
        Row(
            "fused_neighborhood_attention",
            OPS,
            lambda d, n=n: (d.normal(2, 2, n, 32), d.normal(2, 2, n, 32), d.normal(2, 2, n, 32)),
            lambda ops, q, k, v, size=size, step=step: ops.LigerFusedNeighborhoodAttentionFunction.apply(
                q, k, v, size, step
            ),
            lambda q, k, v, size=size, step=step: formula.neighborhood_attention(q, k, v, size, step),
            f"{n} positions, kernel {size}, dilation {step}",
        )
        for n, size, step in ((40, 7, 1), (100, 5, 2))
    ),
    Row(
        "fused_moe",
        OPS,
        experts,
        lambda ops, x, gu, down, picks, w: ops.LigerFusedMoEFunction.apply(x, gu, down, picks, w),
        formula.mixture_of_experts,
        keep=frozenset({4}),
    ),
    Row(
        "mhc_coefficients",
        OPS,
        hyper,
        lambda ops, x, phi, b, *gains: ops.LigerMHCCoeffsFunction.apply(
            x, phi, b, *gains, True, 5, 1e-6, 1e-3, 1e-6, 2.0
        ),
        lambda x, phi, b, *gains: formula.mhc_coefficients(x, phi, b, gains, 5, 1e-6, 1e-3, 1e-6, 2.0),
        keep=frozenset({2, 3, 4, 5}),
    ),
    Row(
        "mhc_pre",
        OPS,
        lambda d: (d.normal(3, 5, 4, 24), d.normal(3, 5, 4)),
        lambda ops, x, h: ops.LigerMHCPreFunction.apply(x, h),
        lambda x, h: torch.einsum("...i,...ic->...c", h, x),
        keep=frozenset({1}),
    ),
    Row(
        "mhc_post_res",
        OPS,
        lambda d: (d.normal(3, 5, 4, 24), d.normal(3, 5, 24), d.normal(3, 5, 4), d.normal(3, 5, 4, 4)),
        lambda ops, x, f, post, res: ops.LigerMHCPostResFunction.apply(x, f, post, res),
        formula.mhc_post_res,
        keep=frozenset({2, 3}),
    ),
    Row(
        "mlp",
        "liger_kernel.ops.mlp",
        lambda d: (
            d.normal(2, 20, 64),
            d.normal(96, 64, scale=0.2),
            d.normal(96, 64, scale=0.2),
            d.normal(64, 96, scale=0.2),
        ),
        lambda mlp, x, gate, up, down: DescribedMLP.apply(mlp, x, gate, up, down),
        lambda x, gate, up, down: F.linear(F.silu(F.linear(x, gate)) * F.linear(x, up), down),
        dtypes=("bfloat16", "float16"),
        note="its own entry asserts a GPU, so the row calls the functions behind it",
    ),
    Row(
        "mm_int8int2",
        "liger_kernel.ops.experimental.mm_int8int2",
        lambda d: (
            d.integers(127, 48, 512, low=-127).to(torch.int8),
            d.integers(256, 128, 80).to(torch.uint8),
        ),
        lambda mm, a, packed: mm.matmul(a, packed),
        lambda a, packed: a.to(torch.int32) @ formula.unpack_two_bits(packed),
        dtypes=("float32",),
        grad=False,
        note="integers",
    ),
]
