"""`triton.runtime.jit`: the decorator, the kernel's class, and tensors under another dtype."""

from __future__ import annotations

from frontend_triton_compat.absent import Absent, lookup_in
from frontend_triton_compat.language.constexpr import constexpr_function
from frontend_triton_compat.launch import JITFunction, jit
from frontend_triton_compat.runtime import ConstexprFunction, KernelInterface, TensorWrapper, reinterpret


def __getattr__(name: str) -> type[Absent]:
    return lookup_in("triton.runtime.jit", name)


__all__ = [
    "ConstexprFunction",
    "JITFunction",
    "KernelInterface",
    "TensorWrapper",
    "constexpr_function",
    "jit",
    "reinterpret",
]
