"""Flat launches that take rows and columns out of their offsets: rows of programs on a TPU, the same numbers."""

import pytest
import torch

import frontend_triton_compat as triton
import frontend_triton_compat.language as tl
from bridge.diagnostics import DiagnosticNote
from tests.frontend.on_tpu import against_cpu


@triton.jit
def add_bias(x, bias, out, n, columns, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = offs < n
    tl.store(out + offs, tl.load(x + offs, mask=inside) + tl.load(bias + offs % columns, mask=inside), mask=inside)


@triton.jit
def scale_rows(x, s, out, n, columns, BLOCK: tl.constexpr):
    start = tl.program_id(0).to(tl.int64) * BLOCK
    offs = start + tl.arange(0, BLOCK)
    inside = offs < n
    tl.store(out + offs, tl.load(x + offs, mask=inside) * tl.load(s + offs // columns, mask=inside), mask=inside)


@triton.jit
def scale_channels(x, gain, bias, out, n, channels, pixels, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = offs < n
    c = (offs // pixels) % channels
    y = tl.load(x + offs, mask=inside) * tl.load(gain + c, mask=inside) + tl.load(bias + c, mask=inside)
    tl.store(out + offs, y, mask=inside)


@triton.jit
def copy_rows(x, out, n, columns, stride, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    row = offs // columns
    column = offs - row * columns
    tl.store(out + offs, tl.load(x + row * stride + column, mask=offs < n), mask=offs < n)


@triton.jit
def add_plane(x, plane, out, height, width, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    w, h = offs % width, offs // width % height
    tl.store(out + offs, tl.load(x + offs) + tl.load(plane + h * width + w))


@triton.jit
def two_rhythms(x, a, b, out, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = offs < n
    y = tl.load(x + offs, mask=inside) + tl.load(a + offs // 6, mask=inside) * tl.load(b + offs % 4, mask=inside)
    tl.store(out + offs, y, mask=inside)


def _programs(n, block):
    return (triton.cdiv(n, block),)


@pytest.mark.parametrize("rows, columns, block", [(37, 200, 128), (5, 130, 1024), (12, 96, 64)])
def test_columns_and_rows(rows, columns, block):
    n = rows * columns
    x = torch.randn(rows, columns)
    grid, meta = _programs(n, block), {"BLOCK": block}
    args = (x, torch.randn(columns), torch.zeros(rows, columns), n, columns)
    assert "picked" not in add_bias[grid].source(*args, **meta, target="tpu:v5e")
    against_cpu(add_bias, args, meta, grid, rtol=0, atol=0)
    against_cpu(scale_rows, (x, torch.randn(rows), torch.zeros(rows, columns), n, columns), meta, grid, rtol=0, atol=0)
    wide = torch.randn(rows, columns + 24)
    args = (wide, torch.zeros(rows, columns), n, columns, columns + 24)
    against_cpu(copy_rows, args, meta, grid, rtol=0, atol=0)


@pytest.mark.parametrize("images, channels, pixels", [(3, 5, 77), (2, 16, 49)])
def test_channels(images, channels, pixels):
    n = images * channels * pixels
    x = torch.randn(images, channels, pixels)
    args = (x, torch.randn(channels), torch.randn(channels), torch.zeros_like(x), n, channels, pixels)
    against_cpu(scale_channels, args, {"BLOCK": 256}, _programs(n, 256), rtol=1e-6, atol=1e-6)


def test_a_flat_end_inside_of_a_row_and_no_mask_at_all():
    x, out = torch.randn(9, 150), torch.full((9, 150), -1.0)
    args = (x, torch.randn(150), out, 9 * 150 - 70, 150)
    got = against_cpu(add_bias, args, {"BLOCK": 256}, _programs(9 * 150 - 70, 256), rtol=0, atol=0)
    assert (got["out"].flatten()[-70:] == -1).all()
    x, out = torch.randn(9, 128), torch.full((9, 128), -1.0)
    with pytest.warns(DiagnosticNote, match="TPB259"):  # a grid too short
        against_cpu(add_bias, (x, torch.randn(128), out, 9 * 128, 128), {"BLOCK": 256}, (3,), rtol=0, atol=0)
    assert (out[6:] == -1).all() and (out[:6] != -1).all()
    x = torch.randn(4, 8, 24)
    against_cpu(add_plane, (x, torch.randn(8, 24), torch.zeros_like(x), 8, 24), {"BLOCK": 64}, (12,), rtol=0, atol=0)


def test_rows_of_two_lengths_are_compared_with():
    args = (torch.randn(90), torch.randn(15), torch.randn(4), torch.zeros(90), 90)
    against_cpu(two_rhythms, args, {"BLOCK": 32}, (3,), rtol=1e-6, atol=1e-6)


@pytest.mark.tpu_offline
def test_the_compiler_takes_them():
    of = lambda *shape: torch.empty(shape, device="meta")
    grid = _programs(2048 * 1000, 1024)
    verdict = add_bias[grid].check(
        of(2048, 1000), of(1000), of(2048, 1000), 2048 * 1000, 1000, BLOCK=1024, target="tpu:v5e"
    )
    assert verdict.verdict == "ok", verdict.message
    x, c = of(8, 64, 3136), of(64)
    verdict = scale_channels[_programs(x.numel(), 1024)].check(
        x, c, c, x, x.numel(), 64, 3136, BLOCK=1024, target="tpu:v5e"
    )
    assert verdict.verdict == "ok", verdict.message
    assert verdict.static["time_ms"] < 1.2 * 2 * x.numel() * 4 / 819e9 * 1e3
