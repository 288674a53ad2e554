"""Generated kernels: the emitted CPU form against the reference interpreter of the IR."""

import linecache

import numpy as np
import pytest

import frontend_triton_compat as triton
import frontend_triton_compat.language as tl
from frontend_triton_compat import ir
from frontend_triton_compat.parse import parse
from frontend_triton_compat.types import FP32, INT32, from_numpy_name

from . import reference
from .generated import generate


def _define(source, name):
    filename = f"<{name}>"
    linecache.cache[filename] = (len(source), None, source.splitlines(keepends=True), filename)
    scope = {"triton": triton, "tl": tl}
    exec(compile(source, filename, "exec"), scope)
    return scope["kernel"]


def _params(kernel, case):
    out = {}
    for i, name in enumerate(kernel.arg_names):
        if name in case.tensors:
            element = from_numpy_name(str(case.tensors[name].dtype).removeprefix("torch."))
            out[name] = ir.Param(name, i, "pointer", element)
        elif name in case.floats:
            out[name] = ir.Param(name, i, "float", FP32)
        elif name.isupper():
            out[name] = ir.Param(name, i, "constexpr", value=case.ints[name])
        else:
            out[name] = ir.Param(name, i, "int", INT32, case.ints[name])
    return out


def check(seed):
    case = generate(seed)
    kernel = _define(case.source, f"generated {seed}")
    memories = {name: t.numpy().copy() for name, t in case.tensors.items()}
    grid = (*case.grid, 1, 1)[:3]
    reference.run(parse(kernel.fn, _params(kernel, case), grid), memories, case.floats)
    kernel[case.grid](**case.tensors, **case.ints, **case.floats)
    for name, t in case.tensors.items():
        got, want = t.numpy(), memories[name]
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4, err_msg=f"{name} of seed {seed}\n{case.source}")


@pytest.mark.parametrize("seed", range(120))
def test_generated_kernel(seed):
    check(seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1000, 1400))
def test_generated_kernel_long(seed):
    check(seed)
