"""Quotients are correctly rounded, whatever the divisor's shape: bit for bit what NumPy divides."""

import numpy as np
import pytest
import torch

import frontend_triton_compat as triton
import frontend_triton_compat.language as tl


@triton.jit
def quotients(x, by_row, by_column, out, inverse, R: tl.constexpr, C: tl.constexpr):
    r, c = tl.arange(0, R), tl.arange(0, C)
    at = r[:, None] * C + c[None, :]
    v = tl.load(x + at)
    s, t, one = tl.load(by_row + r), tl.load(by_column + c), tl.load(by_row)
    tl.store(out + at, v / s[:, None])
    tl.store(out + R * C + at, v / t[None, :])
    tl.store(out + 2 * R * C + at, v / one)
    tl.store(out + 3 * R * C + at, v / 127.0)
    tl.store(out + 4 * R * C + at, v / 8.0)
    tl.store(out + 5 * R * C + at, v / (v + s[:, None] * 0.0))
    tl.store(inverse + r, 1.0 / s)
    tl.store(inverse + R, one / 3.0)


@pytest.mark.parametrize(("rows", "columns"), [(64, 256), (1, 128), (128, 1), (1, 1)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_quotients_are_exact(rows, columns, dtype):
    torch.manual_seed(rows)
    x, s, t = torch.randn(rows, columns, dtype=dtype), torch.randn(rows, dtype=dtype), torch.randn(columns, dtype=dtype)
    out, inverse = torch.empty(6, rows, columns, dtype=dtype), torch.empty(rows + 1, dtype=dtype)
    quotients[(1,)](x, s, t, out, inverse, R=rows, C=columns)
    v, a, b = x.numpy(), s.numpy()[:, None], t.numpy()
    kind = v.dtype.type
    right = np.stack([v / a, v / b, v / a[0, 0], v / kind(127), v / kind(8), v / v])
    np.testing.assert_array_equal(out.numpy(), right)
    np.testing.assert_array_equal(inverse.numpy(), np.append(kind(1) / a[:, 0], a[0, 0] / kind(3)))


@triton.jit
def mean_of_rows(x, out, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    c = tl.arange(0, BLOCK)
    tl.store(out + row, tl.max(tl.load(x + row * n + c, mask=c < n, other=0.0)) / n)


def test_a_quotient_per_program_is_exact():
    x, out = torch.rand(333, 77), torch.empty(333)
    mean_of_rows[(333,)](x, out, 77, BLOCK=128)
    np.testing.assert_array_equal(out.numpy(), x.max(1).values.numpy() / np.float32(77))
