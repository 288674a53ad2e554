"""Rows of liger-kernel: every operator of `liger_kernel.ops`, against its formula.

Input: nothing. Output: `ROWS`. Law: as in `table.py`; the formulas are written from the papers and the operators'
documentation, in plain torch.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from table import Row

OPS = "liger_kernel.ops"


def rms_norm(x, w, eps, offset=0.0):
    y = x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps)
    return y if w is None else y * (w + offset)


ROWS = [
    Row(
        "softmax",
        OPS,
        lambda d: (d.normal(6, 300),),
        lambda ops, x: ops.LigerSoftmaxFunction.apply(x),
        lambda x: torch.softmax(x, -1),
    ),
    Row(
        "rms_norm",
        OPS,
        lambda d: (d.normal(6, 300), d.normal(300)),
        lambda ops, x, w: ops.LigerRMSNormFunction.apply(x, w, 1e-6),
        lambda x, w: rms_norm(x, w, 1e-6),
    ),
    Row(
        "layer_norm",
        OPS,
        lambda d: (d.normal(6, 300), d.normal(300), d.normal(300)),
        lambda ops, x, w, b: ops.LigerLayerNormFunction.apply(x, w, b, 1e-6),
        lambda x, w, b: F.layer_norm(x, (300,), w, b, 1e-6),
    ),
    Row(
        "swiglu",
        OPS,
        lambda d: (d.normal(6, 300), d.normal(6, 300)),
        lambda ops, a, b: ops.LigerSiLUMulFunction.apply(a, b),
        lambda a, b: F.silu(a) * b,
    ),
    Row(
        "geglu",
        OPS,
        lambda d: (d.normal(6, 300), d.normal(6, 300)),
        lambda ops, a, b: ops.LigerGELUMulFunction.apply(a, b),
        lambda a, b: F.gelu(a, approximate="tanh") * b,
    ),
]
