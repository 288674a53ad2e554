"""Random kernels: the CPU form against the real interpreter, and against the IR's own meaning in NumPy."""

from __future__ import annotations

import linecache

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, Phase, given, settings

import frontend_triton_compat as triton
import frontend_triton_compat.language as tl
from frontend_triton_compat import ir, spec
from frontend_triton_compat.parse import parse
from frontend_triton_compat.types import INT32, from_numpy_name

from . import reference
from .interpreter import Interpreter
from .programs import Program, programs


@pytest.fixture(scope="module")
def interpreter():
    pytest.importorskip("triton")
    real = Interpreter()
    yield real
    real.close()


def define(source: str):
    """The function `kernel` of a text, on our front end."""
    name = f"<program {abs(hash(source))}>"
    linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
    scope = {"triton": triton, "tl": tl}
    exec(compile(source, name, "exec"), scope)
    return scope["kernel"]


def by_the_law(kernel, program: Program) -> dict[str, np.ndarray]:
    """What the parsed kernel means, one program after the other."""
    memories = {n: t.numpy().copy() for n, t in program.tensors.items()}
    params = {}
    for i, name in enumerate(kernel.arg_names):
        if name in program.tensors:
            element = from_numpy_name(str(program.tensors[name].dtype).removeprefix("torch."))
            params[name] = ir.Param(name, i, "pointer", element)
        else:
            params[name] = ir.Param(name, i, "int", INT32, program.numbers[name])
    parsed = parse(kernel.fn, params, (*program.grid, 1, 1)[:3])
    spec.check(parsed)
    reference.run(parsed, memories)
    return memories


def check(program: Program, interpreter: Interpreter) -> None:
    """Three ways to run a program that give the same bits."""
    arguments = {**{n: t.clone() for n, t in program.tensors.items()}, **program.numbers}
    want = interpreter.run(program.source, program.grid, arguments)
    kernel = define(program.source)
    law = by_the_law(kernel, program)
    got = {n: t.clone() for n, t in program.tensors.items()}
    kernel[program.grid](**got, **program.numbers)
    for name, expected in want.items():
        np.testing.assert_array_equal(law[name], expected.numpy(), err_msg=f"{name}, by the IR's law")
        assert torch.equal(got[name], expected), f"{name}: {got[name]} is not {expected}"


CHECKS = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.function_scoped_fixture]


@settings(max_examples=25, deadline=None, derandomize=True, suppress_health_check=CHECKS, phases=[Phase.generate])
@given(program=programs())
def test_random_kernels(interpreter, program):
    check(program, interpreter)


@pytest.mark.slow
@settings(max_examples=600, deadline=None, suppress_health_check=CHECKS)
@given(program=programs())
def test_random_kernels_long(interpreter, program):
    check(program, interpreter)
