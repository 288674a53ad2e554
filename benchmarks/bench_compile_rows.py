#!/usr/bin/env python
"""One operator a row: compiled by this backend beside eager and Inductor's C++, CPU time of one thread, in one process.

Input: names of families or parts of row names. Output: a table of microseconds a call and ratios, slowest against
C++ first. Law: every row is compared with eager before it is timed; backends are timed in alternation and the smallest
sample counts, so that a busy machine slows all of them alike.

    python benchmarks/bench_compile_rows.py [erf softmax conv ...] [--sizes 10000,1000000] [--rounds 12] [--json FILE]
"""

from __future__ import annotations

import argparse
import re
import statistics
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import timing

timing.one_thread()
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import torch  # noqa: E402
import torch.nn.functional as F  # noqa: E402

import inductor_backend  # noqa: E402, F401  (registers the backend when the distribution is not installed)

#: (name, function, arguments for a number of elements)
Row = tuple[str, Callable[..., Any], Callable[[int], list[Any]]]
NARROW = {torch.float32: "f32", torch.float64: "f64", torch.bfloat16: "bf16", torch.float16: "f16", torch.int32: "i32"}
NARROW |= {torch.int64: "i64"}


def numbers(*shape: int, dtype: torch.dtype = torch.float32, low: float = 0.0, high: float = 0.0) -> torch.Tensor:
    """Normal numbers, or uniform ones between two limits; whole ones where the dtype is."""
    if not dtype.is_floating_point:
        return torch.randint(int(low) or -1000, int(high) or 1000, shape, dtype=dtype)
    if low or high:
        return (torch.rand(shape, dtype=torch.float64) * (high - low) + low).to(dtype)
    return torch.randn(shape, dtype=torch.float64).to(dtype)


def square(n: int) -> int:
    """The side of a square of n elements, made odd."""
    return int(n**0.5) | 1


def whole(high: int, *shape: int) -> torch.Tensor:
    """Indices below `high`."""
    return torch.randint(0, high, shape)


# --------------------------------------------------------------------------------------------------- elementwise
#: operator -> limits of its operand; (0, 0) are normal numbers
UNARY: dict[str, tuple[float, float]] = {
    "exp": (0, 0), "exp2": (0, 0), "expm1": (0, 0), "log": (1e-3, 50), "log2": (1e-3, 50), "log10": (1e-3, 50),
    "log1p": (-0.9, 50), "sqrt": (1e-3, 50), "rsqrt": (1e-3, 50), "sin": (0, 0), "cos": (0, 0), "tan": (0, 0),
    "asin": (-1, 1), "acos": (-1, 1), "atan": (0, 0), "sinh": (0, 0), "cosh": (0, 0), "tanh": (0, 0), "asinh": (0, 0),
    "acosh": (1, 50), "atanh": (-0.99, 0.99), "erf": (0, 0), "erfc": (0, 0), "erfinv": (-0.99, 0.99), "sigmoid": (0, 0),
    "lgamma": (0.1, 20), "digamma": (0.1, 20), "abs": (0, 0), "neg": (0, 0), "floor": (0, 0), "round": (0, 0),
    "trunc": (0, 0), "sign": (0, 0), "reciprocal": (0.1, 9), "isnan": (0, 0),
}  # fmt: skip
ACTIVATIONS: dict[str, Callable[..., Any]] = {
    "silu": F.silu, "gelu": F.gelu, "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"), "mish": F.mish, "elu": F.elu,
    "softplus": F.softplus, "relu": F.relu, "leaky_relu": F.leaky_relu, "hardswish": F.hardswish, "selu": F.selu,
    "logsigmoid": F.logsigmoid, "hardsigmoid": F.hardsigmoid, "softsign": F.softsign, "relu6": F.relu6,
}  # fmt: skip
WIDE_ONLY = ("isnan", "abs", "neg", "floor", "round", "trunc", "sign", "lgamma", "digamma")


def elementwise() -> Iterator[Row]:
    for name, (low, high) in UNARY.items():
        for dtype in (torch.float32, torch.float64, torch.bfloat16, torch.float16):
            if dtype.itemsize == 2 and (name in WIDE_ONLY or (dtype == torch.float16 and name not in ("exp", "tanh"))):
                continue
            op = getattr(torch, name)
            yield (
                f"{name} {NARROW[dtype]}",
                op,
                lambda n, d=dtype, lo=low, hi=high: [numbers(n, dtype=d, low=lo, high=hi)],
            )
    for name, op in ACTIVATIONS.items():
        for dtype in (torch.float32, torch.bfloat16):
            yield f"{name} {NARROW[dtype]}", op, lambda n, d=dtype: [numbers(n, dtype=d)]
    two: dict[str, Callable[..., Any]] = {
        "add": torch.add, "div": torch.div, "atan2": torch.atan2, "fmod": torch.fmod, "remainder": torch.remainder,
        "floor_divide": torch.floor_divide, "maximum": torch.maximum, "fmax": torch.fmax, "hypot": torch.hypot,
        "copysign": torch.copysign, "logaddexp": torch.logaddexp, "lt": torch.lt,
    }  # fmt: skip
    for name, op in two.items():
        for dtype in (torch.float32, torch.float64):
            yield (
                f"{name} {NARROW[dtype]}",
                op,
                lambda n, d=dtype: [numbers(n, dtype=d), numbers(n, dtype=d, low=0.5, high=9)],
            )
    for dtype in (torch.float32, torch.float64):
        args = lambda n, d=dtype: [numbers(n, dtype=d, low=0.01, high=9), numbers(n, dtype=d)]
        yield f"pow {NARROW[dtype]}", torch.pow, args
        yield f"xlogy {NARROW[dtype]}", torch.xlogy, lambda n, a=args: a(n)[::-1]
        yield f"pow 2.5 {NARROW[dtype]}", lambda x, y: x**2.5, args
        yield f"pow 2**y {NARROW[dtype]}", lambda x, y: 2.0**y, args
    for dtype in (torch.int32, torch.int64):
        args = lambda n, d=dtype: [numbers(n, dtype=d), numbers(n, dtype=d, low=1, high=50)]
        for name in ("floor_divide", "remainder", "fmod", "mul", "bitwise_and", "maximum"):
            yield f"{name} {NARROW[dtype]}", getattr(torch, name), args
        yield f"// 7 {NARROW[dtype]}", lambda x, y: x // 7, args
        yield f"% 7 {NARROW[dtype]}", lambda x, y: x % 7, args
        yield f"div trunc {NARROW[dtype]}", lambda x, y: torch.div(x, y, rounding_mode="trunc"), args
    x = lambda n: [numbers(n)]
    yield "clamp", lambda x: x.clamp(-1, 1), x
    yield "where", lambda x: torch.where(x > 0, x, x * 0.1), x
    yield "masked_fill", lambda x: x.masked_fill(x > 0, 1.0), x
    yield "nan_to_num", torch.nan_to_num, x
    yield "lerp", torch.lerp, lambda n: [numbers(n), numbers(n), numbers(n)]
    yield "addcdiv", torch.addcdiv, lambda n: [numbers(n), numbers(n), numbers(n, low=1, high=2)]
    yield "to bf16", lambda x: x.bfloat16(), x
    yield "to i32", lambda x: (x * 100).int(), x
    yield "to u8", lambda x: (x * 100).to(torch.uint8), lambda n: [numbers(n, low=0.01, high=2.5)]
    yield "bf16 to f32", lambda x: x.float(), lambda n: [numbers(n, dtype=torch.bfloat16)]
    yield "add bf16", torch.add, lambda n: [numbers(n, dtype=torch.bfloat16)] * 2
    yield "complex mul", torch.mul, lambda n: [torch.randn(n // 2, dtype=torch.complex64)] * 2
    yield "complex abs", torch.abs, lambda n: [torch.randn(n // 2, dtype=torch.complex64)]


# ----------------------------------------------------------------------------------------- reductions, scans, order
def reductions() -> Iterator[Row]:
    plane = lambda n, d=torch.float32: [numbers(square(n), square(n), dtype=d)]
    for name in ("sum", "mean", "var", "std", "amax", "amin", "argmax", "argmin", "prod", "logsumexp", "norm"):
        op = getattr(torch, name)
        for dim in (0, 1, None):
            if dim is None and name in ("logsumexp",):
                continue
            call = op if dim is None else lambda x, o=op, d=dim: o(x, dim=d)
            yield f"{name} {'all' if dim is None else dim}", call, plane
    for name in ("sum", "amax", "mean"):
        yield f"{name} 1 bf16", lambda x, o=getattr(torch, name): o(x, dim=1), lambda n: plane(n, torch.bfloat16)
        yield f"{name} 0 bf16", lambda x, o=getattr(torch, name): o(x, dim=0), lambda n: plane(n, torch.bfloat16)
    for name in ("sum", "amax"):
        for dim in (0, 1):
            yield (
                f"{name} {dim} i64",
                lambda x, o=getattr(torch, name), d=dim: o(x, dim=d),
                lambda n: plane(n, torch.int64),
            )
            yield (
                f"{name} {dim} f64",
                lambda x, o=getattr(torch, name), d=dim: o(x, dim=d),
                lambda n: plane(n, torch.float64),
            )
    middle = lambda n: [numbers(max(n // 1600, 1), 40, 40)]
    yield "sum middle", lambda x: x.sum(1), middle
    yield "mean (0, 2)", lambda x: x.mean((0, 2)), middle
    yield "amax middle", lambda x: x.amax(1), middle
    yield "any 1", lambda x: (x > 3).any(1), plane
    yield "count_nonzero", lambda x: (x > 0).sum(), plane
    yield "max 1", lambda x: x.max(1), plane
    yield "max 0", lambda x: x.max(0), plane
    for name in ("cumsum", "cumprod", "logcumsumexp"):
        for dim in (0, 1):
            yield f"{name} {dim}", lambda x, o=getattr(torch, name), d=dim: o(x * 0.1 + (o is torch.cumprod), d), plane
        yield f"{name} flat", lambda x, o=getattr(torch, name): o(x.view(-1) * 0.01 + (o is torch.cumprod), 0), plane
        yield f"{name} middle", lambda x, o=getattr(torch, name): o(x * 0.1 + (o is torch.cumprod), 1), middle
    yield "cumsum 1 i64", lambda x: x.cumsum(1), lambda n: plane(n, torch.int64)
    yield "cumsum 0 i64", lambda x: x.cumsum(0), lambda n: plane(n, torch.int64)
    yield "cumsum 1 f64", lambda x: x.cumsum(1), lambda n: plane(n, torch.float64)
    yield "cumsum 1 mask", lambda x: (x > 0).cumsum(1), plane
    yield "cummax 1", lambda x: x.cummax(1), plane
    distinct = lambda n: [torch.randperm(square(n) ** 2).view(square(n), -1).float()]
    yield "sort 1", lambda x: x.sort(1), distinct
    yield "sort 1 values", lambda x: x.sort(1)[0], distinct
    yield "sort 0", lambda x: x.sort(0), distinct
    yield "argsort i64", lambda x: x.argsort(dim=1, stable=True), lambda n: plane(n, torch.int64)
    yield "topk 8", lambda x: x.topk(8, 1), distinct
    yield "topk 8 values", lambda x: x.topk(8, 1)[0], distinct
    yield "kthvalue", lambda x: x.kthvalue(5, 1)[0], plane
    yield "median 1", lambda x: x.median(1)[0], plane
    yield "searchsorted", torch.searchsorted, lambda n: [torch.arange(1000.0), numbers(n, low=0.1, high=999)]
    yield "bincount-like", lambda i: torch.zeros(100).index_add(0, i, torch.ones(i.shape[0])), lambda n: [whole(100, n)]


def norms() -> Iterator[Row]:
    plane = lambda n, d=torch.float32: [numbers(square(n), square(n), dtype=d)]
    for dim in (0, 1):
        yield f"softmax {dim}", lambda x, d=dim: x.softmax(d), plane
        yield f"log_softmax {dim}", lambda x, d=dim: x.log_softmax(d), plane
    yield "softmax bf16", lambda x: x.softmax(1), lambda n: plane(n, torch.bfloat16)
    yield "softmax short rows", lambda x: x.softmax(-1), lambda n: [numbers(n // 10, 10)]
    yield (
        "softmax masked",
        lambda x, m: x.masked_fill(m, float("-inf")).softmax(-1),
        lambda n: [*plane(n), plane(n)[0] > 1],
    )
    for dtype in (torch.float32, torch.bfloat16):
        args = lambda n, d=dtype: [*plane(n, d), numbers(square(n), dtype=d), numbers(square(n), dtype=d)]
        yield f"layer_norm {NARROW[dtype]}", lambda x, w, b: F.layer_norm(x, (x.shape[1],), w, b), args
    yield "rms_norm", lambda x, w: F.rms_norm(x, (x.shape[1],), w), lambda n: [*plane(n), numbers(square(n))]
    image = lambda n: [numbers(max(n // 8000, 1), 32, 15, 17), numbers(32), numbers(32)]
    yield "group_norm", lambda x, w, b: F.group_norm(x, 4, w, b), image
    yield "instance_norm", lambda x, w, b: F.instance_norm(x, weight=w, bias=b), image
    stats = lambda n: [*image(n), torch.zeros(32), torch.ones(32)]
    yield "batch_norm eval", lambda x, w, b, m, v: F.batch_norm(x, m, v, w, b), stats
    yield "batch_norm train", lambda x, w, b, m, v: F.batch_norm(x, m.clone(), v.clone(), w, b, True), stats
    yield "normalize", lambda x: F.normalize(x, dim=1), plane
    yield "cosine_similarity", lambda x, y: F.cosine_similarity(x, y), lambda n: plane(n) + plane(n)
    yield "cross_entropy", F.cross_entropy, lambda n: [numbers(n // 1000 + 1, 1000), whole(1000, n // 1000 + 1)]
    yield "cross_entropy short", F.cross_entropy, lambda n: [numbers(n // 10, 10), whole(10, n // 10)]
    yield "nll_loss", F.nll_loss, lambda n: [numbers(n // 10, 10), whole(10, n // 10)]
    yield "mse_loss", F.mse_loss, lambda n: plane(n) + plane(n)
    yield "bce_with_logits", F.binary_cross_entropy_with_logits, lambda n: [numbers(n), numbers(n, low=0.1, high=0.9)]
    yield "smooth_l1", F.smooth_l1_loss, lambda n: plane(n) + plane(n)
    yield "kl_div", F.kl_div, lambda n: [numbers(n), numbers(n, low=0.1, high=0.9)]


# ------------------------------------------------------------------------------------------------ indexing, layouts
def indexing() -> Iterator[Row]:
    rows = lambda n: max(n // 64, 4)
    table = lambda n: numbers(rows(n), 64)
    yield "index_select 0", lambda x, i: x.index_select(0, i), lambda n: [table(n), whole(rows(n), rows(n))]
    yield "index_select 1", lambda x, i: x.index_select(1, i), lambda n: [table(n), whole(64, 50)]
    yield "x[i]", lambda x, i: x[i], lambda n: [table(n), whole(rows(n), rows(n))]
    yield "x[i, j]", lambda x, i, j: x[i, j], lambda n: [table(n), whole(rows(n), n), whole(64, n)]
    yield "gather 1", lambda x, i: x.gather(1, i), lambda n: [table(n), whole(64, rows(n), 64)]
    yield "gather 0", lambda x, i: x.gather(0, i), lambda n: [table(n), whole(rows(n), rows(n), 64)]
    yield "take_along", lambda x: x.take_along_dim(x.argmax(1, keepdim=True), 1), lambda n: [table(n)]
    yield "embedding", lambda w, i: F.embedding(i, w), lambda n: [numbers(1000, 64), whole(1000, rows(n))]
    bag = lambda n: [whole(1000, rows(n) // 4 * 4), numbers(1000, 64), torch.arange(0, rows(n) // 4 * 4, 4)]
    yield "embedding_bag", lambda i, w, o: F.embedding_bag(i, w, o), bag
    values = lambda n: [table(n), whole(rows(n), rows(n)), table(n)]
    yield "index_add 0", lambda x, i, s: x.index_add(0, i, s), values
    yield "index_copy 0", lambda x, i, s: x.index_copy(0, i, s), lambda n: [table(n), torch.randperm(rows(n)), table(n)]
    yield "index_put", lambda x, i, s: x.index_put((i,), s), lambda n: [table(n), torch.randperm(rows(n)), table(n)]
    yield "index_put add", lambda x, i, s: x.index_put((i,), s, accumulate=True), values
    wide = lambda n: [table(n), whole(64, rows(n), 64), table(n)]
    yield "scatter_add 1", lambda x, i, s: x.scatter_add(1, i, s), wide
    yield (
        "scatter_add 0",
        lambda x, i, s: x.scatter_add(0, i, s),
        lambda n: [table(n), whole(rows(n), rows(n), 64), table(n)],
    )
    yield "scatter 1", lambda x, i, s: x.scatter(1, i, 1.0), wide
    yield "scatter_reduce amax", lambda x, i, s: x.scatter_reduce(1, i, s, "amax"), wide
    yield "one_hot", lambda i: F.one_hot(i, 64), lambda n: [whole(64, rows(n))]
    yield "tril", torch.tril, lambda n: [numbers(square(n), square(n))]


def layouts() -> Iterator[Row]:
    plane = lambda n: [numbers(square(n), square(n))]
    cube = lambda n: [numbers(max(n // 2048, 1), 32, 64)]
    yield "cat 0", lambda x: torch.cat([x, x * 2]), plane
    yield "cat 1", lambda x: torch.cat([x, x * 2, x], 1), plane
    yield "stack 0", lambda x: torch.stack([x, x * 2]), plane
    yield "stack -1", lambda x: torch.stack([x, x * 2], -1), plane
    yield "pad", lambda x: F.pad(x, (1, 2, 3, 4)), plane
    yield "pad reflect", lambda x: F.pad(x, (1, 2, 3, 4), mode="reflect"), lambda n: [plane(n)[0][None]]
    yield "pad replicate", lambda x: F.pad(x, (1, 2, 3, 4), mode="replicate"), lambda n: [plane(n)[0][None]]
    yield "roll 1", lambda x: x.roll(3, 1), plane
    yield "roll 0", lambda x: x.roll(3, 0), plane
    yield "flip 1", lambda x: x.flip(1), plane
    yield "flip 0", lambda x: x.flip(0), plane
    yield "t + contiguous", lambda x: x.t().contiguous(), plane
    yield "t + add", lambda x, y: x.t() + y, lambda n: plane(n) + plane(n)
    yield "t + exp", lambda x: x.t().contiguous().exp(), plane
    yield "permute 0213", lambda x: x.view(-1, 8, 4, 64).transpose(1, 2).contiguous(), cube
    yield "permute 021", lambda x: x.transpose(1, 2).contiguous(), cube
    yield "permute 102", lambda x: x.transpose(0, 1).contiguous(), cube
    yield "permute 210", lambda x: x.permute(2, 1, 0).contiguous(), cube
    yield (
        "channels_last",
        lambda x: x.permute(0, 3, 1, 2).contiguous() + 1,
        lambda n: [numbers(max(n // 3072, 1), 32, 32, 3)],
    )
    yield "x[::2]", lambda x: x[::2] + 1, plane
    yield "x[:, ::2]", lambda x: x[:, ::2] + 1, plane
    yield "repeat", lambda x: x.repeat(2, 2), plane
    yield "repeat_interleave", lambda x: x.repeat_interleave(3, 1), plane
    yield "expand add", lambda x, y: x[:, None] + y[None], lambda n: [numbers(square(n)), numbers(square(n))]
    yield "chunk swap", lambda x: torch.cat(x.chunk(2, -1)[::-1], -1), cube
    yield "unfold", lambda x: x.unfold(1, 4, 2).contiguous(), plane
    yield "meshgrid", lambda x: torch.meshgrid(x, x, indexing="ij")[0] * 2, lambda n: [numbers(square(n))]


# ------------------------------------------------------------------------------------------------- windows, products
def windows() -> Iterator[Row]:
    image = lambda n, c=16: numbers(max(n // (c * 1024), 1), c, 32, 32)
    for name, call in {
        "max_pool2d": lambda x: F.max_pool2d(x, 2), "max_pool2d 3/2/1": lambda x: F.max_pool2d(x, 3, 2, 1),
        "avg_pool2d": lambda x: F.avg_pool2d(x, 2), "avg_pool2d 3/1/1": lambda x: F.avg_pool2d(x, 3, 1, 1),
        "adaptive_avg_pool2d 1": lambda x: F.adaptive_avg_pool2d(x, 1),
        "adaptive_avg_pool2d 7": lambda x: F.adaptive_avg_pool2d(x, 7),
        "adaptive_max_pool2d 4": lambda x: F.adaptive_max_pool2d(x, 4),
        "upsample nearest": lambda x: F.interpolate(x, scale_factor=2.0),
        "upsample bilinear": lambda x: F.interpolate(x, scale_factor=2.0, mode="bilinear"),
        "upsample bicubic": lambda x: F.interpolate(x, scale_factor=1.5, mode="bicubic"),
        "pixel_shuffle": lambda x: F.pixel_shuffle(x, 2),
        "f_unfold 3": lambda x: F.unfold(x, 3, padding=1),
    }.items():  # fmt: skip
        yield name, call, lambda n: [image(n)]
    yield "max_pool1d", lambda x: F.max_pool1d(x, 2), lambda n: [image(n).flatten(2)]
    yield "grid_sample", lambda x, g: F.grid_sample(x, g, align_corners=False), lambda n: [
        image(n), numbers(image(n).shape[0], 32, 32, 2, low=-1, high=1)]  # fmt: skip
    for cin, cout in ((3, 16), (16, 16), (64, 64)):
        yield f"conv2d 3x3 {cin}-{cout}", lambda x, w: F.conv2d(x, w, padding=1), lambda n, i=cin, o=cout: [
            image(n, i), numbers(o, i, 3, 3)]  # fmt: skip
    yield (
        "conv2d 3x3/2",
        lambda x, w: F.conv2d(x, w, stride=2, padding=1),
        lambda n: [image(n, 32), numbers(64, 32, 3, 3)],
    )
    yield "conv2d 1x1", lambda x, w: F.conv2d(x, w), lambda n: [image(n, 64), numbers(64, 64, 1, 1)]
    yield "conv2d 1x1/2", lambda x, w: F.conv2d(x, w, stride=2), lambda n: [image(n, 64), numbers(64, 64, 1, 1)]
    yield (
        "conv2d 7x7/2",
        lambda x, w: F.conv2d(x, w, stride=2, padding=3),
        lambda n: [image(n, 3), numbers(16, 3, 7, 7)],
    )
    yield "conv2d patches", lambda x, w: F.conv2d(x, w, stride=8), lambda n: [image(n, 3), numbers(64, 3, 8, 8)]
    yield (
        "conv2d depthwise",
        lambda x, w: F.conv2d(x, w, padding=1, groups=32),
        lambda n: [image(n, 32), numbers(32, 1, 3, 3)],
    )
    yield (
        "conv2d grouped",
        lambda x, w: F.conv2d(x, w, padding=1, groups=4),
        lambda n: [image(n, 32), numbers(32, 8, 3, 3)],
    )
    yield "conv2d bf16", lambda x, w: F.conv2d(x, w, padding=1), lambda n: [
        image(n, 16).bfloat16(), numbers(16, 16, 3, 3).bfloat16()]  # fmt: skip
    yield "conv1d", lambda x, w: F.conv1d(x, w, padding=2), lambda n: [
        numbers(max(n // 16384, 1), 32, 512), numbers(32, 32, 5)]  # fmt: skip
    yield "conv1d causal depthwise", lambda x, w: F.conv1d(x, w, padding=3, groups=32), lambda n: [
        numbers(max(n // 16384, 1), 32, 512), numbers(32, 1, 4)]  # fmt: skip
    yield "conv3d", lambda x, w: F.conv3d(x, w, padding=1), lambda n: [
        numbers(max(n // 16384, 1), 4, 16, 16, 16), numbers(8, 4, 3, 3, 3)]  # fmt: skip
    yield "conv_transpose2d", lambda x, w: F.conv_transpose2d(x, w, stride=2), lambda n: [
        image(n, 16), numbers(16, 8, 2, 2)]  # fmt: skip
    yield "conv_transpose2d 4/2/1", lambda x, w: F.conv_transpose2d(x, w, stride=2, padding=1), lambda n: [
        image(n, 16), numbers(16, 8, 4, 4)]  # fmt: skip
    yield "conv_transpose1d", lambda x, w: F.conv_transpose1d(x, w, stride=2), lambda n: [
        numbers(max(n // 16384, 1), 32, 512), numbers(32, 16, 4)]  # fmt: skip


def products() -> Iterator[Row]:
    side = lambda n: square(n) - 1
    for dtype in (torch.float32, torch.bfloat16, torch.float64):
        s, d = NARROW[dtype], dtype
        two = lambda n, d=d: [numbers(side(n), side(n), dtype=d), numbers(side(n), side(n), dtype=d)]
        yield f"mm {s}", torch.mm, two
        yield f"mm nt {s}", lambda a, b: a @ b.t(), two
        yield f"mm tn {s}", lambda a, b: a.t() @ b, two
        linear = lambda n, d=d: [
            numbers(max(n // 256, 8), 256, dtype=d),
            numbers(512, 256, dtype=d),
            numbers(512, dtype=d),
        ]
        yield f"linear {s}", F.linear, linear
        yield f"linear + gelu {s}", lambda x, w, b: F.gelu(F.linear(x, w, b)), linear
        yield f"linear few rows {s}", lambda x, w, b: F.linear(x[:4], w, b), linear
        three = lambda n, d=d: [
            numbers(max(n // 4096, 1), 64, 64, dtype=d),
            numbers(max(n // 4096, 1), 64, 64, dtype=d),
        ]
        yield f"bmm {s}", torch.bmm, three
        yield f"bmm nt {s}", lambda a, b: a @ b.mT, three
    yield "baddbmm", lambda a, b: torch.baddbmm(a, a, b, beta=0.5), three_f32
    yield "mv", lambda a: a @ a[0], lambda n: [numbers(side(n), side(n))]
    yield "dot", lambda a: a @ a, lambda n: [numbers(n)]
    yield "outer", lambda a: torch.outer(a, a), lambda n: [numbers(side(n))]
    yield "einsum bij,bkj", lambda a, b: torch.einsum("bij,bkj->bik", a, b), three_f32
    heads = lambda n: [numbers(max(n // 8192, 1), 32, 4, 64), numbers(max(n // 8192, 1), 32, 4, 64)]
    yield "einsum heads", lambda q, k: torch.einsum("bqhd,bkhd->bhqk", q, k), heads
    yield "mm i64", lambda a, b: a @ b, lambda n: [
        numbers(side(n) // 4, side(n) // 4, dtype=torch.int64) for _ in range(2)]  # fmt: skip
    for dtype in (torch.float32, torch.bfloat16):
        qkv = lambda n, d=dtype: [numbers(1, max(n // 16384, 1), 256, 64, dtype=d) for _ in range(3)]
        s = NARROW[dtype]
        yield f"sdpa {s}", F.scaled_dot_product_attention, qkv
        yield f"sdpa causal {s}", lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True), qkv
    yield "sdpa masked", lambda q, k, v, m: F.scaled_dot_product_attention(q, k, v, m), lambda n: [
        *(numbers(1, max(n // 16384, 1), 256, 64) for _ in range(3)), numbers(256, 256)]  # fmt: skip
    yield "rand", lambda x: torch.rand_like(x), lambda n: [numbers(n)]
    yield "randn", lambda x: torch.randn_like(x), lambda n: [numbers(n)]
    yield "dropout", lambda x: F.dropout(x, 0.3), lambda n: [numbers(n)]


def three_f32(n: int) -> list[Any]:
    """Two batches of matrices."""
    return [numbers(max(n // 4096, 1), 64, 64) for _ in range(2)]


FAMILIES = {f.__name__: f for f in (elementwise, reductions, norms, indexing, layouts, windows, products)}
RANDOM = ("rand", "randn", "dropout")


def tolerance(arguments: list[Any]) -> float:
    """How far results may lie apart, beside the largest of them."""
    widths = {a.dtype for a in arguments if isinstance(a, torch.Tensor) and a.dtype.is_floating_point}
    return 2e-2 if widths & {torch.bfloat16, torch.float16} else 1e-4 if torch.float32 in widths else 1e-10


def wrong(got: Any, want: Any, limit: float) -> str | None:
    """What differs, or None."""
    for g, w in zip(*(torch.utils._pytree.tree_leaves(v) for v in (got, want)), strict=True):
        if g.dtype != w.dtype or g.shape != w.shape or g.stride() != w.stride():
            return f"{g.dtype}{tuple(g.shape)}{g.stride()}, eager {w.dtype}{tuple(w.shape)}{w.stride()}"
        g, w = (v.to(torch.complex128) if v.is_complex() else v.double() for v in (g, w))
        scale = float(w.abs().nan_to_num(0, 0, 0).max()) if w.numel() else 0.0
        if not torch.allclose(g, w, rtol=limit, atol=limit * scale, equal_nan=True):
            return f"differs by {float((g - w).abs().nan_to_num(0).max()):.2g} of {scale:.2g}"
    return None


def measure(
    name: str, fn: Callable[..., Any], arguments: list[Any], backends: list[str], rounds: int
) -> dict[str, Any]:
    """One row of the table."""
    torch._dynamo.reset()
    row: dict[str, Any] = {"row": name}
    calls = {"eager": fn}
    want = fn(*arguments)
    for b in backends:
        calls[b] = torch.compile(fn, backend=b, dynamic=False)
        try:
            problem = wrong(calls[b](*arguments), want, tolerance(arguments))
        except Exception as failure:
            problem = f"{type(failure).__name__}: {str(failure).splitlines()[0][:80]}"
            del calls[b]
        if problem and name not in RANDOM:
            row["wrong"] = f"{row.get('wrong', '')} {b} {problem}".strip()
    now = timing.clock()

    def sample(call: Callable[..., Any], inner: int) -> float:
        start = now()
        for _ in range(inner):
            call(*arguments)
        return (now() - start) / inner

    inner = max(1, min(500, int(1e-3 / max(sample(fn, 2), 1e-6))))
    times: dict[str, list[float]] = {b: [] for b in calls}
    for _ in range(rounds):
        for b, call in calls.items():
            times[b].append(sample(call, inner))
    for b, found in times.items():
        row[b] = min(found[1:] or found) * 1e6
    if "pallas" in calls:
        for b in ("inductor", "eager"):
            if b in calls:
                row[f"/{b}"] = row["pallas"] / row[b]
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("only", nargs="*", help="families, or regular expressions for names of rows")
    parser.add_argument("--sizes", default="10000,1000000")
    parser.add_argument("--backends", default="inductor,pallas")
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--json", default="")
    args = parser.parse_args()
    torch.set_num_threads(1)
    backends, rows = args.backends.split(","), []
    columns = {
        "row": "s",
        "eager": ".1f",
        **{b: ".1f" for b in backends},
        "/inductor": ".2f",
        "/eager": ".2f",
        "wrong": "s",
    }
    with torch.no_grad():
        for family, make in FAMILIES.items():
            for name, fn, arguments in make():
                if args.only and not any(o == family or re.search(o, name) for o in args.only):
                    continue
                for size in map(int, args.sizes.split(",")):
                    torch.manual_seed(0)
                    timing.progress(f"{name} {size}")
                    rows.append(
                        measure(f"{name} {size:.0e}".replace("e+0", "e"), fn, arguments(size), backends, args.rounds)
                    )
                timing.write_json(args.json, rows)
    rows.sort(key=lambda r: -r.get("/inductor", 0))
    timing.progress("")
    print(timing.table(rows, columns))
    ratios = [r["/inductor"] for r in rows if "/inductor" in r]
    if ratios:
        mean, slow = statistics.geometric_mean(ratios), sum(r > 1.8 for r in ratios)
        print(f"{len(ratios)} rows; geometric mean to Inductor's C++ {mean:.2f}; slower by more than 1.8: {slow}")


if __name__ == "__main__":
    main()
