"""Rows of flag-gems: its implementations of torch's operators, called directly on CPU tensors.

Input: nothing. Output: `ROWS`. Law: as in `table.py`; the truth is torch's own operator at float64. The operators have
no backward pass of their own here; torch's autograd calls those whose names end in ``_backward``.
"""

from __future__ import annotations

import os

import gems_host
import torch
import torch.nn.functional as F
from table import Row

os.environ.setdefault("TORCH_PALLAS_AUTOTUNE", "first")
gems_host.prepare()
aten = torch.ops.aten
NOTE = """\
The package looks for a GPU's vendor when it is imported. It has a backend for ARM CPUs that its list of
vendors leaves out; `tests/thirdparty/gems_host.py` puts it there and answers what is asked of a GPU's torch
module. Operators whose host code asks for CUDA tensors are not supported. Its heuristics for that backend
lack some operators (`upsample_nearest2d`), and `argmin` over rows of 7 reads a block of 8."""
LOOSE = {"float32": 2e-4}


def gems(name, inputs, reference=None, variant="", module="flag_gems.ops", **options):
    """One operator; torch's of the same name is the truth where none is given."""
    truth = reference or getattr(torch, name, None) or getattr(F, name, None) or getattr(torch.Tensor, name)
    if isinstance(truth, str):
        raise TypeError(name)
    kwargs = options.pop("kwargs", {})
    options.setdefault("dtypes", ("float32",))
    options.setdefault("tolerance", {"float32": 5e-5})
    return Row(
        name, module, inputs, lambda m, *x: getattr(m, name)(*x, **kwargs), lambda *x: truth(*x, **kwargs), variant,
        grad=False, **options,
    )  # fmt: skip


def x(d):
    return (d.normal(5, 37),)


def positive(d):
    return (d.uniform(5, 37, low=0.1, high=1.1),)


def inside(d):
    return (d.uniform(5, 37, low=0.1, high=0.9),)


def xy(d):
    return d.normal(5, 37), d.uniform(5, 37, low=0.1, high=1.1)


def integers(d):
    return d.integers(100, 5, 37), d.integers(5, 5, 37)


def three(d):
    return d.normal(6, 50, 7)


UNARY = (
    "abs angle erf exp exp2 expm1 cos cosh sin tan tanh atan ceil round sigmoid relu neg isnan isinf isfinite isneginf "
    "signbit square reciprocal floor_ neg_ exp_ sin_ cos_ tanh_ relu_ sigmoid_ abs_ erf_ reciprocal_ square_ "
    "relu6 selu silu celu elu hardsigmoid softplus softshrink i0 nan_to_num logical_not zeros_like ones_like"
).split()
ELEMENTWISE = [
    *(gems(name, x) for name in UNARY),
    *(gems(name, positive) for name in ("log", "log10", "sqrt", "rsqrt", "log10_", "sqrt_", "log1p_")),
    *(gems(name, inside) for name in ("acos", "logit")),
    gems("gelu", x),
    gems("log_sigmoid", x, F.logsigmoid),
    *(
        gems(name, x, torch.abs, unsupported="it asks for CUDA tensors")
        for name in ("arcsinh", "special_i0e", "special_i1", "where_self", "prelu")
    ),
    *(
        gems(name, xy)
        for name in (
            "add sub mul true_divide floor_divide maximum minimum fmin hypot atan2 copysign logaddexp remainder eq ne "
            "lt le gt ge greater logical_and logical_or logical_xor isclose"
        ).split()
    ),
    gems("add", lambda d: (d.normal(3, 1, 5), d.normal(4, 1)), variant="broadcast", kwargs={"alpha": 2}),
    gems("mul", lambda d: (d.normal(5, 37).t(), d.normal(5, 37).t()), variant="transposed"),
    gems("add_", xy, lambda a, b: a.add_(b)),
    gems("mul_", xy, lambda a, b: a.mul_(b)),
    *(gems("div_mode", xy, torch.div, mode, kwargs={"rounding_mode": mode}) for mode in ("floor", "trunc")),
    gems("bitwise_and_tensor", integers, torch.bitwise_and),
    gems("bitwise_or_tensor", integers, torch.bitwise_or),
    gems("bitwise_not", lambda d: (d.integers(100, 5, 37),)),
    gems("eq_scalar", lambda d: (d.integers(5, 5, 37), 3), torch.eq),
    gems("lt_scalar", lambda d: (d.normal(5, 37), 0.5), torch.lt),
    gems("pow_tensor_tensor", lambda d: (*positive(d), *x(d)), torch.pow),
    gems("pow_tensor_scalar", lambda d: (*positive(d), 2.5), torch.pow),
    gems("pow_scalar", lambda d: (2.0, *x(d)), torch.pow),
    gems("clamp", lambda d: (*x(d), -0.5, 0.5)),
    gems("clamp_min", lambda d: (*x(d), 0.25)),
    gems("addcmul", lambda d: (*x(d), *x(d), *x(d)), kwargs={"value": 0.5}),
    gems("addcdiv", lambda d: (*x(d), *xy(d)), kwargs={"value": 0.5}),
    gems("lerp_tensor", lambda d: (*x(d), *x(d), *x(d)), torch.lerp),
    gems("threshold", lambda d: (*x(d), 0.25, -1.0), F.threshold),
    gems("glu", lambda d: (d.normal(5, 38),)),
    gems("masked_fill", lambda d: (*x(d), d.bools(5, 37), 2.0), lambda a, m, v: a.masked_fill(m, v)),
    gems("gelu_backward", lambda d: (*x(d), *x(d)), aten.gelu_backward),
    gems("silu_backward", lambda d: (*x(d), *x(d)), aten.silu_backward),
    gems("tanh_backward", lambda d: (*x(d), *inside(d)), aten.tanh_backward),
    gems("sigmoid_backward", lambda d: (*x(d), *inside(d)), aten.sigmoid_backward),
    gems("threshold_backward", lambda d: (*x(d), *x(d), 0.25), aten.threshold_backward),
]
REDUCTIONS = [
    gems("sum", lambda d: (three(d),)),
    *(
        gems("sum_dim", lambda d, dims=dims: (three(d), dims), torch.sum, f"dims {dims}")
        for dims in ([1], [0, 2], [-1])
    ),
    gems("mean", lambda d: (three(d),)),
    gems("prod", lambda d: (d.uniform(4, 9, low=0.5, high=1.5),)),
    gems("prod_dim", lambda d: (d.uniform(4, 9, low=0.5, high=1.5), 1), torch.prod),
    *(gems(name, lambda d: (three(d),)) for name in ("max", "min", "aminmax")),
    gems("max_dim", lambda d: (three(d), 1), torch.max),
    gems("min_dim", lambda d: (three(d), 2), torch.min),
    gems("amax", lambda d: (three(d), [1])),
    gems("argmax", x, unsupported="it calls torch.cuda"),
    *(gems(name, lambda d: (d.bools(5, 37),)) for name in ("all", "any")),
    gems("any_dim", lambda d: (d.bools(5, 37), 0), torch.any),
    gems("all_dim", lambda d: (d.bools(5, 37), 1), torch.all),
    gems("count_nonzero", lambda d: (d.integers(3, 5, 37), 1)),
    gems("var_mean", lambda d: (three(d), [1]), torch.var_mean),
    gems("vector_norm", lambda d: (three(d), 1, [1]), torch.linalg.vector_norm),
    gems("cumsum", lambda d: (three(d), 1)),
    gems("cummax", lambda d: (three(d), 1)),
    gems("cummin", lambda d: (three(d), 1)),
    gems("softmax", lambda d: (three(d), 1), torch.softmax),
    gems("softmax", lambda d: (three(d), -1), torch.softmax, "last dimension"),
    gems("log_softmax", lambda d: (three(d), 1), torch.log_softmax),
    gems("layer_norm", lambda d: (d.normal(6, 50), (50,), d.normal(50), d.normal(50)),
         lambda a, s, w, b: (F.layer_norm(a, s, w, b), a.mean(-1), (a.var(-1, unbiased=False) + 1e-5).rsqrt())),
    gems("group_norm", lambda d: (d.normal(3, 8, 5, 6), d.normal(8), d.normal(8), 3, 8, 30, 4, 1e-5),
         aten.native_group_norm),
    gems("rms_norm", lambda d: (d.normal(6, 50), (50,), d.normal(50), 1e-5)),
]  # fmt: skip
PRODUCTS = [
    gems("mm", lambda d: (d.normal(33, 40), d.normal(40, 50)), tolerance=LOOSE),
    gems("mm", lambda d: (d.normal(128, 64), d.normal(64, 96)), variant="even blocks", tolerance=LOOSE),
    gems("bmm", lambda d: (d.normal(3, 33, 40), d.normal(3, 40, 50)), tolerance=LOOSE),
    gems("addmm", lambda d: (d.normal(50), d.normal(33, 40), d.normal(40, 50)), kwargs={"alpha": 0.5, "beta": 2.0},
         tolerance=LOOSE),
    gems("baddbmm", lambda d: (d.normal(3, 33, 50), d.normal(3, 33, 40), d.normal(3, 40, 50)), tolerance=LOOSE),
    gems("mv", lambda d: (d.normal(33, 40), d.normal(40)), tolerance=LOOSE),
    gems("dot", lambda d: (d.normal(400), d.normal(400)), tolerance=LOOSE),
    gems("addr", lambda d: (d.normal(33, 40), d.normal(33), d.normal(40))),
    gems("kron", lambda d: (d.normal(3, 4), d.normal(5, 6))),
    gems("conv1d", lambda d: (d.normal(2, 4, 30), d.normal(6, 4, 3), d.normal(6), 1, 1), tolerance=LOOSE),
    gems("conv2d", lambda d: (d.normal(2, 4, 12, 12), d.normal(6, 4, 3, 3), d.normal(6), 1, 1), tolerance=LOOSE),
    gems("scaled_dot_product_attention", lambda d: tuple(d.normal(2, 3, 64, 32) for _ in range(3)), tolerance=LOOSE),
    gems("scaled_dot_product_attention", lambda d: tuple(d.normal(2, 3, 64, 32) for _ in range(3)), variant="causal",
         kwargs={"is_causal": True}, tolerance=LOOSE),
    gems("avg_pool2d", lambda d: (d.normal(2, 4, 12, 12), [2, 2]), F.avg_pool2d),
]  # fmt: skip
MOVES = [
    gems("flip", lambda d: (three(d), [0, 2])),
    gems("roll", lambda d: (three(d), 3, 1)),
    gems("tile", lambda d: (d.normal(3, 4), (2, 3))),
    gems("repeat_interleave_self_int", lambda d: (d.normal(3, 4), 2, 1), torch.repeat_interleave),
    gems("tril", lambda d: (d.normal(9, 12), 1)),
    gems("triu", lambda d: (d.normal(9, 12), -1)),
    gems("diag", lambda d: (d.normal(9), 1)),
    gems("trace", lambda d: (d.normal(9, 12),)),
    gems("pad", lambda d: (d.normal(3, 4, 5), (1, 2, 0, 3)), F.pad),
    gems("constant_pad_nd", lambda d: (d.normal(3, 4, 5), (1, 2, 0, 3), 1.5)),
    gems("cat", lambda d: ([d.normal(3, 5), d.normal(4, 5), d.normal(2, 5)], 0)),
    gems("stack", lambda d: ([d.normal(3, 5), d.normal(3, 5)], 1)),
    gems("vstack", lambda d: ([d.normal(3, 5), d.normal(4, 5)],)),
    gems("arange_start", lambda d: (3, 20, 2), torch.arange),
    gems("full", lambda d: ((3, 4), 2.5)),
    gems("gather", lambda d: (d.normal(5, 9), 1, d.integers(9, 5, 4))),
    gems("scatter_add_", lambda d: (d.normal(5, 9), 1, d.integers(9, 5, 4), d.normal(5, 4)),
         lambda a, dim, i, s: a.scatter_add_(dim, i, s)),
    gems("index_select", lambda d: (d.normal(9, 5), 0, d.integers(9, 4))),
    gems("index_add", lambda d: (d.normal(9, 5), 0, torch.tensor([3, 0, 7, 5]), d.normal(4, 5))),
    gems("embedding", lambda d: (d.normal(20, 8), d.integers(20, 3, 4)), aten.embedding),
    gems("masked_select", lambda d: (d.normal(5, 37), d.bools(5, 37))),
    gems("nonzero", lambda d: (d.bools(5, 37),)),
    gems("isin", lambda d: (d.integers(20, 5, 7), d.integers(20, 6))),
    gems("sort", lambda d: (d.normal(5, 37), 1)),
    gems("topk", lambda d: (d.normal(5, 64), 5)),
    gems("unique_consecutive", lambda d: (d.integers(3, 40),), lambda a: (torch.unique_consecutive(a), None, None)),
    gems("select_scatter", lambda d: (d.normal(5, 9), d.normal(5), 1, 3)),
    gems("mse_loss", lambda d: (d.normal(5, 37), d.normal(5, 37), 1), lambda a, b, mean: F.mse_loss(a, b)),
]  # fmt: skip
FUSED = [
    gems("silu_and_mul", lambda d: (*x(d), *x(d)), lambda a, b: F.silu(a) * b, module="flag_gems.fused"),
    gems("skip_layer_norm", lambda d: (d.normal(6, 50), d.normal(6, 50), (50,), d.normal(50), d.normal(50)),
         lambda a, r, s, w, b: F.layer_norm(a + r, s, w, b), module="flag_gems.fused"),
    gems("outer", lambda d: (d.normal(20), d.normal(30)), module="flag_gems.fused"),
    gems("cross_entropy_loss", lambda d: (*x(d), d.integers(37, 5)), F.cross_entropy, module="flag_gems.fused"),
]  # fmt: skip
ROWS = [*ELEMENTWISE, *REDUCTIONS, *PRODUCTS, *MOVES, *FUSED]
