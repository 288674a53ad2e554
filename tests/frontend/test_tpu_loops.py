"""Loops that carry values on a TPU: values on the interpreter at odd sizes, verdicts of the real compiler."""

import pytest
import torch

import frontend_triton_compat as triton
import frontend_triton_compat.language as tl
from tests.frontend.loop_kernels import LAUNCHES, launches
from tests.frontend.on_tpu import against_cpu, results


@pytest.mark.parametrize("name,kernel,args,meta,grid", LAUNCHES, ids=[x[0] for x in LAUNCHES])
def test_values(name, kernel, args, meta, grid):
    against_cpu(kernel, args, meta, grid, rtol=1e-3, atol=1e-3)


@pytest.mark.tpu_offline
@pytest.mark.parametrize("name,kernel,args,meta,grid", LAUNCHES, ids=[x[0] for x in LAUNCHES])
def test_the_compiler_takes_it(name, kernel, args, meta, grid):
    pytest.importorskip("libtpu")
    verdict = kernel[grid].check(*args, target="tpu:v6e", **meta)
    assert verdict.verdict == "ok", str(verdict)


@pytest.mark.parametrize("wanted", ["online", "attention-True", "argmax", "nested"])
def test_a_nan_gives_what_it_gives_on_a_cpu(wanted):
    """Maxima of rows that become NaN anyway are plain ones; others leave NaN out, as `tl.max` does."""
    name, kernel, args, meta, grid = next(x for x in launches() if x[0] == wanted)
    for tensor in args:
        if isinstance(tensor, torch.Tensor) and tensor.is_floating_point():
            tensor.view(-1)[130 % tensor.numel()] = float("nan")
    source = kernel[grid].source(*args, target="tpu:v5e", **meta)
    exact = any(form in source for form in ("fmax(", "nanmax(", "bounded_max("))
    assert exact == (name in ("argmax", "nested"))
    against_cpu(kernel, args, meta, grid, rtol=1e-3, atol=1e-3, equal_nan=True)


@triton.jit
def row_peak(x, top, share, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    c = tl.arange(0, BLOCK)
    v = tl.load(x + row * n + c, mask=c < n, other=float("-inf"))
    m = tl.max(v, 0)
    e = tl.exp(v - m)
    tl.store(share + row * n + c, e / tl.sum(e, 0), mask=c < n)
    tl.store(top + row, m)


def test_a_maximum_that_is_stored_leaves_nan_out():
    x = torch.randn(9, 70)
    x[3, 5] = float("nan")
    args = (x, torch.empty(9), torch.empty(9, 70), 70)
    got = against_cpu(row_peak, args, {"BLOCK": 128}, (9,), rtol=1e-4, atol=1e-4, equal_nan=True)
    assert not got["top"].isnan().any() and got["share"][3].isnan().all()


@triton.jit
def prefix(x, y, n, CH: tl.constexpr, BACK: tl.constexpr):
    row = tl.program_id(0)
    total = 0.0
    chunks = tl.cdiv(n, CH)
    for i in range(chunks):
        j = chunks - 1 - i if BACK else i
        c = j * CH + tl.arange(0, CH)
        v = tl.load(x + row * n + c, mask=c < n, other=0.0)
        tl.store(y + row * n + c, tl.cumsum(v, axis=0, reverse=BACK) + total, mask=c < n)
        total += tl.sum(v, axis=0)


@pytest.mark.parametrize("back", [False, True])
def test_running_sums_with_infinities_and_nan(back):
    x = torch.randn(16, 300) * 10.0 ** torch.randint(-6, 6, (16, 300))
    inf, nan = float("inf"), float("nan")
    for row, column, number in (
        (1, 5, inf), (2, 200, -inf), (3, 130, nan), (4, 7, inf), (4, 9, -inf), (5, 140, 3.39e38), (5, 20, -3.39e38),
        (9, 100, inf), (9, 250, -inf),
    ):  # fmt: skip
        x[row, column] = number
    x[6, :128], x[7, :130], x[8] = inf, -inf, nan
    got = results(prefix, (x, torch.empty(16, 300), 300), {"CH": 256, "BACK": back}, (16,))["y"].double()
    turned = x.double().flip(1) if back else x.double()
    want, scale = turned.cumsum(1), turned.abs().cumsum(1)
    want, scale = (want.flip(1), scale.flip(1)) if back else (want, scale)
    finite = want.isfinite()
    torch.testing.assert_close(got[~finite], want[~finite], equal_nan=True)
    assert ((got - want).abs() <= 1e-6 * scale)[finite].all()
