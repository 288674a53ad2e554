"""The Triton kernels of `bench_tpu.py`, and how each is launched.

Each is written as Triton code usually is: masks for ragged ends, pointers from strides, integers as arguments. What is
good for a TPU (block sizes, programs a grid step) is left to the translation, so `BLOCK` and its like are a GPU's.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

import frontend_triton_compat as triton
import frontend_triton_compat.language as tl


@triton.jit
def vector_add(x, y, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = i < n
    tl.store(out + i, tl.load(x + i, mask=inside) + tl.load(y + i, mask=inside), mask=inside)


@triton.jit
def row_softmax(out, x, out_stride, x_stride, rows, columns, WIDTH: tl.constexpr, STAGES: tl.constexpr):
    lane = tl.arange(0, WIDTH)
    for row in tl.range(tl.program_id(0), rows, tl.num_programs(0), num_stages=STAGES):
        z = tl.load(x + row * x_stride + lane, mask=lane < columns, other=-float("inf")).to(tl.float32)
        e = tl.exp(z - tl.max(z, axis=0))
        tl.store(out + row * out_stride + lane, (e / tl.sum(e, axis=0)).to(out.dtype.element_ty), mask=lane < columns)


@triton.jit
def rms_norm(out, x, gain, scale, x_stride, out_stride, columns, eps, WIDTH: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    lane = tl.arange(0, WIDTH)
    inside = lane < columns
    z = tl.load(x + row * x_stride + lane, mask=inside, other=0).to(tl.float32)
    g = tl.load(gain + lane, mask=inside, other=0).to(tl.float32)
    inverse = tl.rsqrt(tl.sum(z * z, axis=0) / columns + eps)
    tl.store(scale + row, inverse)
    tl.store(out + row * out_stride + lane, (z * inverse * g).to(out.dtype.element_ty), mask=inside)


@triton.jit
def layer_norm(out, x, gain, bias, columns, eps, WIDTH: tl.constexpr):
    row = tl.program_id(0)
    lane = tl.arange(0, WIDTH)
    inside = lane < columns
    z = tl.load(x + row * columns + lane, mask=inside, other=0.0)
    mean = tl.sum(z, axis=0) / columns
    d = tl.where(inside, z - mean, 0.0)
    inverse = tl.rsqrt(tl.sum(d * d, axis=0) / columns + eps)
    y = d * inverse * tl.load(gain + lane, mask=inside) + tl.load(bias + lane, mask=inside)
    tl.store(out + row * columns + lane, y, mask=inside)


@triton.jit
def rotate_half(q, cos, sin, token_stride, heads, HEAD: tl.constexpr, PADDED: tl.constexpr, BACKWARD: tl.constexpr):
    half: tl.constexpr = HEAD // 2
    token = tl.program_id(0)
    head = tl.arange(0, PADDED)[:, None]
    d = tl.arange(0, half)[None, :]
    there = head < heads
    c = tl.load(cos + token * half + d)
    s = tl.load(sin + token * half + d)
    s = -s if BACKWARD else s
    first = q + token * token_stride + head * HEAD + d
    second = first + half
    a = tl.load(first, mask=there, other=0.0)
    b = tl.load(second, mask=there, other=0.0)
    tl.store(first, a * c - b * s, mask=there)
    tl.store(second, b * c + a * s, mask=there)


@triton.jit
def swiglu_forward(gate, up, out, stride, n, BLOCK: tl.constexpr):
    lane = tl.arange(0, BLOCK)
    at = tl.program_id(0) * stride + lane
    inside = lane < n
    g = tl.load(gate + at, mask=inside, other=0.0).to(tl.float32)
    u = tl.load(up + at, mask=inside, other=0.0)
    tl.store(out + at, g * tl.sigmoid(g) * u, mask=inside)


@triton.jit
def swiglu_backward(grad, gate, up, stride, n, BLOCK: tl.constexpr):
    lane = tl.arange(0, BLOCK)
    at = tl.program_id(0) * stride + lane
    inside = lane < n
    dy = tl.load(grad + at, mask=inside, other=0.0)
    g = tl.load(gate + at, mask=inside, other=0.0).to(tl.float32)
    u = tl.load(up + at, mask=inside, other=0.0)
    s = tl.sigmoid(g)
    tl.store(up + at, dy * g * s, mask=inside)
    tl.store(gate + at, dy * u * (s + g * s * (1 - s)), mask=inside)


@triton.jit
def cross_entropy(logits, labels, loss, row_stride, vocabulary, ignored, weight, CHUNK: tl.constexpr):
    row = tl.program_id(0)
    logits += row * row_stride
    label = tl.load(labels + row)
    if label == ignored:
        for start in range(0, vocabulary, CHUNK):
            c = start + tl.arange(0, CHUNK)
            tl.store(logits + c, 0.0, mask=c < vocabulary)
        tl.store(loss + row, 0.0)
        return
    top = float("-inf")
    total = 0.0
    target = tl.load(logits + label).to(tl.float32)
    for start in range(0, vocabulary, CHUNK):
        c = start + tl.arange(0, CHUNK)
        z = tl.load(logits + c, mask=c < vocabulary, other=float("-inf")).to(tl.float32)
        higher = tl.maximum(top, tl.max(z))
        total = total * tl.exp(top - higher) + tl.sum(tl.exp(z - higher))
        top = higher
    tl.store(loss + row, top + tl.log(total) - target)
    for start in range(0, vocabulary, CHUNK):
        c = start + tl.arange(0, CHUNK)
        z = tl.load(logits + c, mask=c < vocabulary, other=float("-inf")).to(tl.float32)
        p = tl.exp(z - top) / total
        p = tl.where(c == label, p - 1.0, p)
        tl.store(logits + c, p * weight, mask=c < vocabulary)


@triton.jit
def grouped_matmul(
    a, b, c, M, N, K, am, ak, bk, bn, cm, cn, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr
):
    program = tl.program_id(0)
    tiles_m = tl.cdiv(M, BM)
    per_group = GROUP * tl.cdiv(N, BN)
    first = program // per_group * GROUP
    height = min(tiles_m - first, GROUP)
    tile_m = first + program % per_group % height
    tile_n = program % per_group // height
    rows = (tile_m * BM + tl.arange(0, BM)) % M
    columns = (tile_n * BN + tl.arange(0, BN)) % N
    inner = tl.arange(0, BK)
    at_a = a + rows[:, None] * am + inner[None, :] * ak
    at_b = b + inner[:, None] * bk + columns[None, :] * bn
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for step in range(0, tl.cdiv(K, BK)):
        left = K - step * BK
        tile_a = tl.load(at_a, mask=inner[None, :] < left, other=0.0)
        tile_b = tl.load(at_b, mask=inner[:, None] < left, other=0.0)
        total = tl.dot(tile_a, tile_b, total)
        at_a += BK * ak
        at_b += BK * bk
    rows = tile_m * BM + tl.arange(0, BM)
    columns = tile_n * BN + tl.arange(0, BN)
    inside = (rows[:, None] < M) & (columns[None, :] < N)
    tl.store(c + rows[:, None] * cm + columns[None, :] * cn, total.to(c.dtype.element_ty), mask=inside)


@triton.jit
def pointer_matmul(a, b, c, M, N, K, am, ak, bk, bn, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    row = tl.program_id(0) * BM
    column = tl.program_id(1) * BN
    at_a = tl.make_block_ptr(a, (M, K), (am, ak), (row, 0), (BM, BK), (1, 0))
    at_b = tl.make_block_ptr(b, (K, N), (bk, bn), (0, column), (BK, BN), (1, 0))
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for _ in range(0, K, BK):
        tile_a = tl.load(at_a, boundary_check=(0, 1), padding_option="zero")
        tile_b = tl.load(at_b, boundary_check=(0, 1), padding_option="zero")
        total += tl.dot(tile_a, tile_b)
        at_a = tl.advance(at_a, (0, BK))
        at_b = tl.advance(at_b, (BK, 0))
    at_c = tl.make_block_ptr(c, (M, N), (N, 1), (row, column), (BM, BN), (1, 0))
    tl.store(at_c, total.to(c.dtype.element_ty), boundary_check=(0, 1))


@triton.jit
def attention(
    q, k, v, out, head_stride, length, scale_log2, BQ: tl.constexpr, BK: tl.constexpr, D: tl.constexpr,
    CAUSAL: tl.constexpr,
):  # fmt: skip
    tile = tl.program_id(0)
    base = tl.program_id(1).to(tl.int64) * head_stride
    rq = tile * BQ + tl.arange(0, BQ)
    d = tl.arange(0, D)
    tq = tl.load(q + base + rq[:, None] * D + d[None, :], mask=rq[:, None] < length, other=0.0)
    highest = tl.full([BQ], float("-inf"), dtype=tl.float32)
    total = tl.zeros([BQ], dtype=tl.float32)
    acc = tl.zeros([BQ, D], dtype=tl.float32)
    end = tl.minimum((tile + 1) * BQ, length) if CAUSAL else length
    for start in range(0, end, BK):
        rk = start + tl.arange(0, BK)
        there = rk < length
        tk = tl.load(k + base + rk[:, None] * D + d[None, :], mask=there[:, None], other=0.0)
        s = tl.dot(tq, tl.trans(tk)) * scale_log2
        seen = (rq[:, None] >= rk[None, :]) & there[None, :] if CAUSAL else there[None, :]
        s = tl.where(seen, s, float("-inf"))
        higher = tl.maximum(highest, tl.max(s, 1))
        p = tl.exp2(s - higher[:, None])
        shrink = tl.exp2(highest - higher)
        total = total * shrink + tl.sum(p, 1)
        tv = tl.load(v + base + rk[:, None] * D + d[None, :], mask=there[:, None], other=0.0)
        acc = acc * shrink[:, None] + tl.dot(p.to(tv.dtype), tv)
        highest = higher
    y = acc / total[:, None]
    tl.store(out + base + rq[:, None] * D + d[None, :], y.to(out.dtype.element_ty), mask=rq[:, None] < length)


@triton.jit
def embedding(ids, table, out, width, padding, BLOCK: tl.constexpr):
    token = tl.program_id(0)
    row = tl.load(ids + token)
    c = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = c < width
    vector = tl.load(table + row * width + c, mask=inside & (row != padding), other=0.0)
    tl.store(out + token * width + c, vector, mask=inside)


@triton.jit
def running_sum(x, out, n, CHUNK: tl.constexpr, BACKWARDS: tl.constexpr):
    row = tl.program_id(0)
    before = 0.0
    chunks = tl.cdiv(n, CHUNK)
    for step in range(chunks):
        which = chunks - 1 - step if BACKWARDS else step
        c = which * CHUNK + tl.arange(0, CHUNK)
        z = tl.load(x + row * n + c, mask=c < n, other=0.0)
        tl.store(out + row * n + c, tl.cumsum(z, axis=0, reverse=BACKWARDS) + before, mask=c < n)
        before += tl.sum(z, axis=0)


@triton.jit
def row_argmax(x, value, index, n, CHUNK: tl.constexpr):
    row = tl.program_id(0)
    best = float("-inf")
    at = 0
    for start in range(0, n, CHUNK):
        c = start + tl.arange(0, CHUNK)
        z = tl.load(x + row * n + c, mask=c < n, other=float("-inf"))
        m, i = tl.max(z, axis=0, return_indices=True)
        at = tl.where(m > best, i + start, at)
        best = tl.maximum(best, m)
    tl.store(value + row, best)
    tl.store(index + row, at)


@triton.jit
def quantise_rows(x, q, scale, total, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    c = tl.arange(0, BLOCK)
    inside = c < n
    z = tl.load(x + row * n + c, mask=inside, other=0.0)
    s = tl.max(tl.abs(z)) / 127.0
    t = tl.clamp(z / s, -127.0, 127.0)
    r = tl.where(t >= 0, tl.floor(t + 0.5), tl.ceil(t - 0.5)).to(tl.int8)
    tl.store(q + row * n + c, r, mask=inside)
    tl.store(scale + row, s)
    tl.store(total + row, tl.sum(r))


@triton.jit
def transpose(x, out, M, N, xm, xn, om, on, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    j = tl.program_id(1) * B + tl.arange(0, B)
    t = tl.load(x + i[:, None] * xm + j[None, :] * xn, mask=(i[:, None] < M) & (j[None, :] < N))
    tl.store(out + j[:, None] * om + i[None, :] * on, tl.trans(t), mask=(j[:, None] < N) & (i[None, :] < M))


@dataclass(frozen=True)
class Launch:
    """A kernel at the size of its figure.

    Attributes:
        name: the row's name; the kernel of an acceptance file has it as its prefix.
        size: in words.
        kernel: ours.
        args: tensors on the ``meta`` device and numbers.
        grid: the launch grid.
        meta: keyword arguments.
        function: name of the kernel function in the acceptance file.
        acceptance_args, acceptance_meta: where that one's launch differs.
        flops: of its products; 0 where memory is the bound.
        xla: the same mathematics in jax, as a function of arrays; None where compiling it takes minutes.
        xla_args: shapes of these arrays.
    """

    name: str
    size: str
    kernel: Any
    args: tuple[Any, ...]
    grid: tuple[int, ...]
    meta: dict[str, Any]
    function: str = ""
    acceptance_args: tuple[Any, ...] | None = None
    acceptance_meta: dict[str, Any] | None = None
    flops: float = 0.0
    xla: Callable[..., Any] | None = field(default=None, repr=False)
    xla_args: tuple[tuple[tuple[int, ...], str], ...] = ()


def _of(dtype: torch.dtype, *shape: int) -> torch.Tensor:
    return torch.empty(shape, dtype=dtype, device="meta")


def launches() -> list[Launch]:
    """Every row of the table, at its size."""
    import xla_forms as xla

    f32, bf16, i32, i8 = torch.float32, torch.bfloat16, torch.int32, torch.int8
    rows, columns = 8192, 4096
    flat, n = 2**26 - 1, 4096
    x, xb, row = _of(f32, rows, columns), _of(bf16, rows, columns), _of(f32, rows)
    wide = ((rows, columns), "float32")
    short = ((rows, columns), "bfloat16")
    out = [
        Launch(
            "s01", "add, 2^26 - 1 f32", vector_add, (_of(f32, flat),) * 3 + (flat,), (triton.cdiv(flat, 1024),),
            {"BLOCK": 1024}, "add_tail", acceptance_meta={"TILE": 1024},
            xla=xla.add, xla_args=(((flat,), "float32"),) * 2,
        )
    ]  # fmt: skip
    for name, t, args in (("s02", x, (wide,)), ("s02-bf16", xb, (short,))):
        out.append(
            Launch(
                name, f"softmax 8192 x 4096 {'f32' if t is x else 'bf16'}", row_softmax,
                (t, t, columns, columns, rows, columns), (256,), {"WIDTH": 4096, "STAGES": 2},
                "softmax_rows", acceptance_meta={"W": 4096, "STAGES": 2}, xla=xla.softmax, xla_args=args,
            )
        )  # fmt: skip
    gain = ((columns,), "bfloat16")
    out += [
        Launch(
            "s03", "RMS norm 8192 x 4096 bf16", rms_norm,
            (xb, xb, _of(bf16, columns), row, columns, columns, columns, 1e-5), (rows,), {"WIDTH": 4096},
            "rms_fwd", acceptance_meta={"BLOCK": 4096}, xla=xla.rms_norm, xla_args=(short, gain),
        ),
        Launch(
            "layer-norm", "layer norm 8192 x 4096 f32", layer_norm,
            (x, x, _of(f32, columns), _of(f32, columns), columns, 1e-5), (rows,), {"WIDTH": 4096},
            xla=xla.layer_norm, xla_args=(wide, ((columns,), "float32"), ((columns,), "float32")),
        ),
        Launch(
            "s04", "rotary embedding 4096 x 32 x 128 f32, in place", rotate_half,
            (_of(f32, n, 32, 128), _of(f32, n, 64), _of(f32, n, 64), 32 * 128, 32), (n,),
            {"HEAD": 128, "PADDED": 32, "BACKWARD": False}, "rope",
            acceptance_meta={"HEAD": 128, "PAD_H": 32, "BACKWARD": False},
            xla=xla.rotate_half, xla_args=(((n, 32, 128), "float32"), ((n, 64), "float32"), ((n, 64), "float32")),
        ),
        Launch(
            "s05", "SwiGLU forward 8192 x 4096 f32", swiglu_forward, (x, x, x, columns, columns), (rows,),
            {"BLOCK": 4096}, "glu_fwd", xla=xla.swiglu, xla_args=(wide, wide),
        ),
        Launch(
            "s05-backward", "SwiGLU backward 8192 x 4096 f32, in place", swiglu_backward,
            (x, x, x, columns, columns), (rows,), {"BLOCK": 4096}, "glu_bwd",
            xla=xla.swiglu_backward, xla_args=(wide, wide, wide),
        ),
        Launch(
            "s06", "cross entropy and gradient 4096 x 32000 f32", cross_entropy,
            (_of(f32, n, 32000), _of(i32, n), _of(f32, n), 32000, 32000, -100, 0.25), (n,), {"CHUNK": 4096},
            "xent", xla=xla.cross_entropy, xla_args=(((n, 32000), "float32"), ((n,), "int32")),
        ),
    ]  # fmt: skip
    a = _of(bf16, n, n)
    square = ((n, n), "bfloat16")
    tiles = triton.cdiv(n, 128)
    blocks = {"BM": 128, "BN": 128, "BK": 32}
    out += [
        Launch(
            "s07", "matmul 4096^3 bf16, grouped program ids", grouped_matmul, (a, a, a, n, n, n, n, 1, n, 1, n, 1),
            (tiles * tiles,), {**blocks, "GROUP": 8}, "mm",
            acceptance_meta={**blocks, "GROUP": 8, "ACT": ""}, flops=2 * n**3,
            xla=xla.matmul, xla_args=(square, square),
        ),
        Launch(
            "s18", "matmul 4096^3 bf16, block pointers", pointer_matmul, (a, a, a, n, n, n, n, 1, n, 1),
            (tiles, tiles), blocks, "mm_bp", flops=2 * n**3,
        ),
    ]  # fmt: skip
    head = _of(bf16, 1, 8, n, 128)
    for causal, keys in ((False, 512), (True, 512), (False, 16), (True, 64)):
        queries = 32 if keys == 16 else 128
        name = ("s09-causal" if causal else "s09") + (f"-by-{keys}" if keys < 512 else "")
        words = f"{'causal ' if causal else ''}attention 8 x 4096 x 128 bf16{f', {keys} keys a turn' * (keys < 512)}"
        out.append(
            Launch(
                name, words, attention, (head, head, head, head, n * 128, n, 1.44269504 / 128**0.5),
                (triton.cdiv(n, queries), 8), {"BQ": queries, "BK": keys, "D": 128, "CAUSAL": causal},
                flops=4 * 8 * n * n * 128 / (2 if causal else 1),
            )
        )  # fmt: skip
    out += [
        Launch(
            "s10", "embedding, 8192 of 32768 x 4096 f32", embedding, (_of(i32, rows), _of(f32, 32768, n), x, n, 4),
            (rows, 4), {"BLOCK": 1024}, "lookup", xla=xla.embedding,
            xla_args=(((rows,), "int32"), ((32768, n), "float32")),
        ),
        Launch(
            "s12", "cumulative sum 8192 x 4096 f32", running_sum, (x, x, columns), (rows,),
            {"CHUNK": 1024, "BACKWARDS": False}, "prefix", acceptance_meta={"CH": 1024, "BACK": False},
        ),
        Launch(
            "s13", "argmax of rows 8192 x 4096 f32", row_argmax, (x, row, _of(i32, rows), columns), (rows,),
            {"CHUNK": 1024}, "row_argmax", acceptance_meta={"CH": 1024}, xla=xla.row_argmax, xla_args=(wide,),
        ),
        Launch(
            "s15", "int8 rows 8192 x 4096", quantise_rows, (x, _of(i8, rows, columns), row, _of(i32, rows), columns),
            (rows,), {"BLOCK": 4096}, "quant", xla=xla.quantise_rows, xla_args=(wide,),
        ),
        Launch(
            "s17", "transpose 8192 x 8192 f32", transpose,
            (_of(f32, rows, rows), _of(f32, rows, rows), rows, rows, rows, 1, rows, 1), (256, 256), {"B": 32},
            "flip_axes", acceptance_meta={"B": 32, "VIA_TRANS": True}, xla=xla.transpose,
            xla_args=(((rows, rows), "float32"),),
        ),
    ]  # fmt: skip
    return out
