"""Loops that carry values on a TPU: values on the interpreter at odd sizes, verdicts of the real compiler."""

import pytest

from tests.frontend.loop_kernels import LAUNCHES
from tests.frontend.on_tpu import against_cpu


@pytest.mark.parametrize("name,kernel,args,meta,grid", LAUNCHES, ids=[x[0] for x in LAUNCHES])
def test_values(name, kernel, args, meta, grid):
    against_cpu(kernel, args, meta, grid, rtol=1e-3, atol=1e-3)


@pytest.mark.tpu_offline
@pytest.mark.parametrize("name,kernel,args,meta,grid", LAUNCHES, ids=[x[0] for x in LAUNCHES])
def test_the_compiler_takes_it(name, kernel, args, meta, grid):
    pytest.importorskip("libtpu")
    verdict = kernel[grid].check(*args, target="tpu:v6e", **meta)
    assert verdict.verdict == "ok", str(verdict)
