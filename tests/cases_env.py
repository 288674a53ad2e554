"""The environment that restated public bug reports run in: torch, jax, Triton's language and this project, by name.

Input: nothing; `env` is a ready object. Output: what a case file's ``case(env)`` asks for. Law: `Env.outcome` accepts
a value or one of our diagnostics with the slug that the case names and a place in the user's source; everything else
goes through.
"""

import contextlib
from collections.abc import Callable, Generator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

import bridge
import frontend_triton_compat as triton
import frontend_triton_compat.language as tl
import inductor_backend
import pallas_core as pc
from bridge.diagnostics import Diagnostic
from bridge.diagnostics.where import is_ours

TPU = "tpu:v5e"


def located(problem: Diagnostic) -> None:
    """Fail unless a diagnostic points at a line of a readable file that is not ours."""
    assert problem.where is not None, f"no source location:\n{problem}"
    assert not is_ours(problem.where.file), f"points into our own code: {problem.where}"
    assert problem.where.line > 0 and problem.where.text().strip(), f"points at no source line: {problem.where}"
    assert problem.why and problem.do, f"says neither why nor what to do:\n{problem}"


class Env:
    """Names and wiring for the cases."""

    torch, np, jax, jnp, pl, pltpu, tl = torch, np, jax, jnp, pl, pltpu, tl
    bridge = bridge
    jit = staticmethod(triton.jit)
    cdiv = staticmethod(triton.cdiv)

    def __init__(self) -> None:
        self._compiled_before = 0

    def compile(self, fn: Callable[..., Any], **kwargs: Any) -> Callable[..., Any]:
        """`torch.compile` with our backend; starts the count of `compile_count` anew."""
        torch._dynamo.reset()
        self._compiled_before = inductor_backend.compile_count()
        return torch.compile(fn, backend="pallas", **kwargs)

    def compile_count(self) -> int:
        """Graphs compiled since the last `compile`."""
        return inductor_backend.compile_count() - self._compiled_before

    def launch(self, kernel: Any, grid: Any, *args: Any, **constexprs: Any) -> Any:
        """``kernel[grid](...)``."""
        return kernel[grid](*args, **constexprs)

    def pallas_call(
        self,
        kernel: Callable[..., Any],
        out_shape: Sequence[tuple[Any, Any]],
        grid: Any = None,
        in_specs: Any = None,
        out_specs: Any = None,
        target: str = "interpret",
    ) -> Callable[..., Any]:
        """A Pallas kernel as a function of tensors; with ``target="tpu"`` it is lowered and not run."""
        outs = [pc.spec(shape, dtype) for shape, dtype in out_shape]
        single = outs[0] if len(outs) == 1 else outs
        f = pc.pallas_call(kernel, out_shape=single, grid=grid, in_specs=in_specs, out_specs=out_specs)
        if target == "interpret":
            return f
        assert target == "tpu", target
        return lambda *args: f.lower(*args, target=TPU)

    def vmem_report(self, kernel: Callable[..., Any], args: Sequence[tuple[Any, Any]], **call: Any) -> pc.Budget:
        """The static VMEM estimate of a kernel on a v5e."""
        f = self.pallas_call(kernel, **call)
        return pc.vmem_budget(f, [pc.spec(shape, dtype) for shape, dtype in args], TPU)

    @contextlib.contextmanager
    def diagnoses(self, slug: str, mentions: Sequence[str] = ()) -> Generator[None]:
        """Our diagnostic `slug` must be raised inside, with every one of `mentions` in its text."""
        with pytest.raises(Diagnostic) as caught:
            yield
        assert caught.value.slug == slug, caught.value
        located(caught.value)
        for word in mentions:
            assert word.lower() in str(caught.value).lower(), f"{word!r} is not mentioned in\n{caught.value}"

    def outcome(self, thunk: Callable[[], Any], slug: str) -> tuple[str, Any]:
        """``("value", result)``, or ``("diagnostic", exception)`` for our own diagnostic `slug`."""
        try:
            return "value", thunk()
        except Diagnostic as problem:
            assert problem.slug == slug, problem
            located(problem)
            return "diagnostic", problem

    def skip(self, reason: str) -> None:
        """Skip the running test."""
        pytest.skip(reason)


env = Env()
