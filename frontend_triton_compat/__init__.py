"""Triton's front end on JAX Pallas: ``import frontend_triton_compat as triton``.

Kernels decorated with `jit` become Pallas kernels: on torch tensors they run in place on the CPU, on jax arrays they
return the new arrays, and `JITFunction.check` asks the TPU's compiler about them without a TPU. What has no meaning
on a target stops with a `bridge.diagnostics.TranslationError`.
"""

import importlib
from typing import Any

from frontend_triton_compat import language, modules
from frontend_triton_compat.autotune import Autotuner, Config, Heuristics, autotune, heuristics
from frontend_triton_compat.compiler import compile
from frontend_triton_compat.language.aggregate import aggregate
from frontend_triton_compat.language.constexpr import constexpr_function
from frontend_triton_compat.launch import JITFunction, jit
from frontend_triton_compat.retarget import retarget
from frontend_triton_compat.runtime import (
    AsyncCompileMode,
    CompilationError,
    InterpreterError,
    KernelInterface,
    MockTensor,
    OutOfResources,
    TensorWrapper,
    TritonError,
    must_use_result,
    reinterpret,
    set_allocator,
)

__version__ = "3.7.1"  # the version of Triton's language that this front end follows


def cdiv(x: int, y: int) -> int:
    """Quotient rounded up, of positive numbers."""
    return (x + y - 1) // y


def next_power_of_2(n: int) -> int:
    """The smallest power of two that is at least `n` (0 for 0)."""
    return 1 << (n - 1).bit_length() if n > 0 else 0


def __getattr__(name: str) -> Any:
    if name in ("testing", "knobs", "profiler", "shim"):  # not needed to launch a kernel
        return importlib.import_module(f"{__name__}.{name}")
    from frontend_triton_compat.absent import lookup_in

    return lookup_in("triton", name)


modules.register()

__all__ = [
    "AsyncCompileMode",
    "Autotuner",
    "CompilationError",
    "Config",
    "Heuristics",
    "InterpreterError",
    "JITFunction",
    "KernelInterface",
    "MockTensor",
    "OutOfResources",
    "TensorWrapper",
    "TritonError",
    "aggregate",
    "autotune",
    "cdiv",
    "compile",
    "constexpr_function",
    "heuristics",
    "jit",
    "language",
    "must_use_result",
    "next_power_of_2",
    "reinterpret",
    "retarget",
    "set_allocator",
]
