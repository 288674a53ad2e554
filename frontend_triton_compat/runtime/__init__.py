"""`triton.runtime`: kernel classes, the driver, errors and tensor wrappers that host code imports from there.

Input: what libraries ask of Triton at import time or around a launch. Output: our classes under Triton's names, and a
driver that describes the CPU. Law: what is asked for and has a meaning here is answered; figures of a GPU that the CPU
does not have are nominal, so that formulas for a number of programs give a sensible one.
Source of the names: the public ``triton.runtime`` documentation.
"""

from __future__ import annotations

import abc
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import torch

from bridge.diagnostics import Diagnostic, TranslationError, error
from frontend_triton_compat.absent import Absent, lookup_in
from frontend_triton_compat.autotune import (
    Autotuner,
    Config,
    Heuristics,
    autotune,
    heuristics,
)
from frontend_triton_compat.descriptors import TensorDescriptor
from frontend_triton_compat.handle import CompiledKernel
from frontend_triton_compat.hooks import JitFunctionInfo, LazyDict
from frontend_triton_compat.language.constexpr import constexpr_function
from frontend_triton_compat.launch import JITFunction
from frontend_triton_compat.reflection import KernelParam
from frontend_triton_compat.reflection import Reflection as JITCallable
from frontend_triton_compat.types import dtype, from_numpy_name
from frontend_triton_compat.warmup import MockTensor

# -- errors: `except triton.CompilationError` catches what our front end raises

TritonError = Diagnostic
CompilationError = CompileTimeAssertionFailure = UnsupportedLanguageConstruct = TranslationError
InterpreterError = TranslationError  # what Triton's interpreter raises for the same mistakes


class OutOfResources(Diagnostic):
    """A kernel needs more of something than there is: ``OutOfResources(required, limit, name)``."""

    def __init__(self, required: int, limit: int, name: str):
        self.required, self.limit, self.name = required, limit, name
        super().__init__(
            "vmem-budget",
            f"{name}: {required} needed, {limit} there",
            do="use smaller blocks, or fewer stages",
        )

    def __reduce__(self):
        return (OutOfResources, (self.required, self.limit, self.name))


class PTXASError(TranslationError):
    """Exists for ``except`` clauses: there is no PTX here."""


class AutotunerError(TranslationError):
    """Exists for ``except`` clauses: a configuration that can't run is left out."""


# -- kernels and wrapped tensors

_T = TypeVar("_T")


class KernelInterface(abc.ABC, Generic[_T]):
    """What can be launched: a kernel, or a kernel behind `autotune` or `heuristics`.

    A library's own wrapper derives from it and gives `run`.
    """

    run: Callable[..., Any]

    def __getitem__(self, grid: Any) -> Callable[..., Any]:
        return lambda *args, **kwargs: self.run(*args, grid=grid, warmup=False, **kwargs)

    def warmup(self, *args: Any, grid: Any, **kwargs: Any) -> Any:
        """Translate and compile for these arguments without running."""
        return self.run(*args, grid=grid, warmup=True, **kwargs)


for _kind in (JITFunction, Autotuner, Heuristics):
    KernelInterface.register(_kind)
ConstexprFunction = type(constexpr_function(lambda: None))


class TensorWrapper:
    """A tensor seen under another dtype of the same width, as `reinterpret` makes it.

    Attributes:
        base: the tensor; a kernel writes into its memory.
        data: the same memory, as `torch.Tensor.data` gives it.
        dtype: the dtype of ``triton.language`` that a kernel sees.
    """

    def __init__(self, base: torch.Tensor, dtype: dtype):
        self.base, self.dtype = base, dtype
        self.data = base.data  # an attribute of its own, as in Triton: assigning to it leaves the base alone

    @property
    def shape(self) -> torch.Size:
        """The tensor's shape."""
        return self.base.shape

    @property
    def device(self) -> torch.device:
        """The tensor's device."""
        return self.base.device

    def data_ptr(self) -> int:
        """Address of the first element."""
        return self.base.data_ptr()

    def stride(self, *dims: int) -> Any:
        """The tensor's strides, in elements."""
        return self.base.stride(*dims)

    def size(self, *dims: int) -> Any:
        """The tensor's size."""
        return self.base.size(*dims)

    def numel(self) -> int:
        """Number of elements."""
        return self.base.numel()

    def element_size(self) -> int:
        """Bytes an element takes."""
        return self.base.element_size()

    def clone(self) -> TensorWrapper:
        """A copy under the same dtype."""
        return TensorWrapper(self.base.clone(), self.dtype)

    def new_empty(self, *sizes: Any, **kwargs: Any) -> TensorWrapper:
        """A tensor of another size under the same dtype, with any contents."""
        return TensorWrapper(self.base.new_empty(*sizes, **kwargs), self.dtype)

    def to(self, *args: Any, **kwargs: Any) -> TensorWrapper:
        """The tensor elsewhere, under the same dtype."""
        return TensorWrapper(self.base.to(*args, **kwargs), self.dtype)

    def cpu(self) -> TensorWrapper:
        """The tensor on the CPU, under the same dtype."""
        return TensorWrapper(self.base.cpu(), self.dtype)

    def copy_(self, other: TensorWrapper) -> TensorWrapper:
        """Copy another wrapped tensor's elements into this one."""
        self.base.copy_(other.base)
        return self

    def __repr__(self) -> str:
        return f"TensorWrapper[{self.dtype}]({self.base})"


def reinterpret(tensor: Any, dtype: dtype) -> Any:
    """A tensor under another dtype of the same width, without a copy.

    Args:
        tensor: a torch tensor or a `TensorWrapper`.
        dtype: a dtype of ``triton.language``.

    Raises:
        TranslationError: the widths differ, or it is not a tensor.
    """
    base = tensor.base if isinstance(tensor, TensorWrapper) else tensor
    if not isinstance(base, torch.Tensor):
        raise error(
            "launch-arguments",
            f"reinterpret() was given a {type(tensor).__name__}",
            why="it looks at a tensor's memory as another type, and this has none.",
            do="pass a torch tensor: triton.reinterpret(x, tl.float8e5)",
        )
    if dtype.itemsize != base.element_size():
        raise error(
            "launch-dtype",
            f"reinterpret() of {base.element_size()}-byte elements as {dtype}, which takes {dtype.itemsize}",
            why="the memory stays as it is, so the elements must have one width",
            do=f"convert instead: x.to(torch.{dtype.numpy_name.rstrip('_')})",
        )
    try:
        same = from_numpy_name(str(base.dtype).removeprefix("torch.")) == dtype
    except KeyError:
        same = False
    return base if same else TensorWrapper(base, dtype)


def get_jit_fn_file_line(fn: Any) -> tuple[str, int]:
    """The file and the ``def`` line of a kernel, behind whatever wraps it."""
    while not isinstance(fn, JITCallable):
        fn = fn.fn
    place = fn.where
    return (place.file, place.line) if place is not None else ("", 0)


Allocator = Callable[[int, int, Any], Any]  # what `set_allocator` takes: size, alignment and stream to a buffer


class NullAllocator:
    """What is set where nothing is: nothing has to be allocated here, so it is never asked."""

    def __call__(self, size: int, alignment: int, stream: Any) -> Any:
        """Refuses, as Triton's does."""
        raise RuntimeError("no allocator was set: use triton.set_allocator")


def set_allocator(allocator: Callable[..., Any]) -> None:
    """Accepted, without effect: descriptors need no scratch memory here."""


def must_use_result(x: Any, s: bool = True) -> Any:
    """Decorator: accepted, without effect."""
    return (lambda fn: fn) if isinstance(x, str) else x


class AsyncCompileMode:
    """A region in which Triton compiles in other threads; accepted: `warmup` compiles where it is called.

    Attributes:
        executor: what would compile; it is given nothing.
    """

    def __init__(self, executor: Any, *, ignore_errors: bool = False):
        self.executor = executor

    def __enter__(self) -> AsyncCompileMode:
        return self

    def __exit__(self, *exception: object) -> None:
        return None


# -- the driver


@dataclass(frozen=True)
class GPUTarget:
    """What kernels are compiled for, in Triton's words.

    Attributes:
        backend: ``cpu`` here, so that tests for ``cuda`` and ``hip`` say no.
        arch: the target's architecture.
        warp_size: lanes of a warp.
    """

    backend: str
    arch: Any
    warp_size: int


class _Utils:
    """`driver.active.utils`."""

    def get_device_properties(self, device: Any = 0) -> dict[str, int]:
        """Figures that host code sizes its grids by.

        ``multiprocessor_count`` is the number of CPU cores. The others describe a GPU's multiprocessor, which a CPU
        has not: they are nominal, so that occupancy formulas give one program or more a core.
        """
        return {
            "multiprocessor_count": os.cpu_count() or 1,
            "max_shared_mem": 228 * 1024,
            "max_num_regs": 65536,
            "warpSize": 32,
            "sm_clock_rate": 0,
            "mem_clock_rate": 0,
            "mem_bus_width": 0,
        }


class _Active:
    """`driver.active`: the CPU."""

    utils = _Utils()

    def get_current_target(self) -> GPUTarget:
        """The CPU, as a target."""
        return GPUTarget("cpu", "cpu", 1)

    def get_active_torch_device(self) -> torch.device:
        """The CPU, as a torch device."""
        return torch.device("cpu")

    def get_current_device(self) -> int:
        """0."""
        return 0

    def set_current_device(self, device: int) -> None:
        """Accepted, without effect."""

    def get_current_stream(self, device: Any = 0) -> int:
        """0: launches run in order."""
        return 0

    def get_device_interface(self) -> Any:
        """``torch.cpu``."""
        return torch.cpu

    def get_benchmarker(self) -> Callable[..., Any]:
        """`triton.testing.do_bench`."""
        from frontend_triton_compat.testing import do_bench

        return do_bench

    def get_empty_cache_for_benchmark(self) -> torch.Tensor:
        """A tensor larger than the caches, to be overwritten between two measurements."""
        return torch.empty(64 * 2**20, dtype=torch.int8)

    def clear_cache(self, cache: torch.Tensor) -> None:
        """Overwrite `cache`, so that other data leaves the caches."""
        cache.zero_()

    def is_active(self) -> bool:
        """True."""
        return True


class _Driver:
    """`triton.runtime.driver`."""

    def __init__(self) -> None:
        self.active = self.default = _Active()

    def set_active(self, driver: Any) -> None:
        """Only the CPU's driver is here.

        Raises:
            TranslationError: another one was given.
        """
        if not isinstance(driver, _Active):
            raise error(
                "triton-name",
                "another driver can't be made active",
                why="kernels run on the CPU, or are compiled for a TPU by .check() and .source()",
                do="leave the driver as it is",
            )

    def reset_active(self) -> None:
        """Accepted: there is one driver."""


driver = _Driver()
active = driver.active  # `import triton.runtime.driver as d; d.active` sees this module


def triton_key() -> str:
    """What compiled kernels depend on: the version of this front end."""
    from frontend_triton_compat import __version__

    return f"torch-pallas {__version__}"


def get_benchmarker() -> Callable[..., Any]:
    """See `driver.active.get_benchmarker`."""
    return driver.active.get_benchmarker()


def __getattr__(name: str) -> type[Absent]:
    return lookup_in("triton.runtime", name)


__all__ = [
    "Allocator",
    "AsyncCompileMode",
    "Autotuner",
    "CompilationError",
    "CompiledKernel",
    "Config",
    "GPUTarget",
    "Heuristics",
    "InterpreterError",
    "JITCallable",
    "JITFunction",
    "JitFunctionInfo",
    "KernelInterface",
    "KernelParam",
    "LazyDict",
    "MockTensor",
    "NullAllocator",
    "OutOfResources",
    "TensorDescriptor",
    "TensorWrapper",
    "TritonError",
    "autotune",
    "driver",
    "heuristics",
    "reinterpret",
    "set_allocator",
]
