"""Triton's front end on JAX Pallas: ``import frontend_triton_compat as triton``.

Kernels decorated with `jit` become Pallas kernels: on torch tensors they run in place on the CPU, on jax arrays they
return the new arrays, and `JITFunction.check` asks the TPU's compiler about them without a TPU. What has no meaning
on a target stops with a `bridge.diagnostics.TranslationError`.
"""

import importlib
from collections.abc import Mapping, Sequence
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


def verify(
    kernel: Any,
    args: Sequence[Any] | Mapping[str, Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    grid: Any = None,
    target: str = "tpu:v5e",
    reference: Any = None,
    rtol: float | None = None,
    atol: float | None = None,
) -> Any:
    """Compare a kernel's form for a target with its CPU form and a reference.

    Args:
        kernel: a kernel of `jit`, also behind `autotune` or `heuristics`.
        args: the launch's positional arguments, with data; small ones, for every grid step is simulated. Or a dict of
            all of them by name.
        kwargs: the launch's keyword arguments.
        grid: the launch's grid; the last launch's when None.
        target: ``"tpu:v5e"`` ...; ``"cpu"`` compares the CPU form with the reference.
        reference: a function that is given the launch's arguments, or those that its own parameters name, and returns
            what the stored tensors hold afterwards (in the order of the kernel's parameters, or a dict by name) or
            writes to its arguments; tensors themselves; or ``"triton"``: the genuine package's interpreter.
        rtol: relative tolerance; by the tensor's dtype when None.
        atol: absolute tolerance; by the tensor's dtype when None, times the root mean square of its elements where
            that is more than 1.

    Returns:
        A `frontend_triton_compat.verified.Verified`; prints as a few lines.

    Raises:
        Diagnostic: ``verify-mismatch`` with the first differing element, ``kernel-race``, a broken law of the target,
            or whatever keeps the kernel from being translated.
    """
    if isinstance(args, Mapping):
        args, kwargs = (), {**args, **(kwargs or {})}
    options = {"target": target, "reference": reference, "rtol": rtol, "atol": atol}
    return kernel.verify(*args, grid=grid, **options, **(kwargs or {}))


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
    "verify",
]
