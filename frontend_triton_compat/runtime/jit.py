"""`triton.runtime.jit`: the decorator, the kernel's class, and tensors under another dtype."""

from __future__ import annotations

from frontend_triton_compat.absent import Absent, lookup_in
from frontend_triton_compat.language.constexpr import constexpr_function
from frontend_triton_compat.launch import JITFunction, jit
from frontend_triton_compat.runtime import (
    ConstexprFunction,
    JITCallable,
    JitFunctionInfo,
    KernelInterface,
    KernelParam,
    MockTensor,
    TensorWrapper,
    get_jit_fn_file_line,
    reinterpret,
)


def __getattr__(name: str) -> type[Absent]:
    return lookup_in("triton.runtime.jit", name)


__all__ = [
    "ConstexprFunction",
    "JITCallable",
    "JITFunction",
    "JitFunctionInfo",
    "KernelInterface",
    "KernelParam",
    "MockTensor",
    "TensorWrapper",
    "constexpr_function",
    "get_jit_fn_file_line",
    "jit",
    "reinterpret",
]
