"""Kernels compiled ahead of a launch, and the record of what was compiled.

Input: the arguments of a launch, tensors or what stands for one: a dtype, a `MockTensor`, a tensor without data.
Output: a `CompiledKernel`, and an entry in the kernel's ``device_caches``. Law: nothing runs and nothing is written;
where a shape is not known, the kernel is read and checked, and there is no module yet.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

import torch

from bridge.diagnostics import Diagnostic, Where, error, note
from frontend_triton_compat import hooks
from frontend_triton_compat.aliases import aliases_of, memory_of
from frontend_triton_compat.arguments import Call
from frontend_triton_compat.emit import cpu
from frontend_triton_compat.handle import CompiledKernel
from frontend_triton_compat.language.constexpr import unwrap
from frontend_triton_compat.launch_grid import grid_of, no_programs
from frontend_triton_compat.parse import parse
from frontend_triton_compat.specialise import plan_for
from frontend_triton_compat.types import dtype

if TYPE_CHECKING:
    from frontend_triton_compat.compiled import Compiled
    from frontend_triton_compat.launch import JITFunction


class MockTensor:
    """A tensor that is not there: a dtype, and a shape where it matters.

    Attributes:
        dtype: of torch.
        shape: of the tensor; ``[1]`` stands for an unknown one.
    """

    def __init__(self, dtype: torch.dtype, shape: Sequence[int] | None = None):
        self.dtype, self.shape = dtype, [1] if shape is None else list(shape)
        self.known = shape is not None

    @staticmethod
    def wrap_dtype(arg: Any) -> Any:
        """A mock for a dtype of torch; anything else as it is."""
        return MockTensor(arg) if isinstance(arg, torch.dtype) else arg

    def stride(self) -> tuple[int, ...]:
        """Strides of a tensor whose rows are contiguous."""
        strides = [1]
        for size in reversed(self.shape[1:]):
            strides.append(strides[-1] * size)
        return tuple(reversed(strides))

    @staticmethod
    def data_ptr() -> int:
        """0: aligned."""
        return 0

    @staticmethod
    def ptr_range() -> int:
        """0: within 32 bits."""
        return 0


def _stand_in(value: Any, constexpr: bool = False) -> tuple[Any, bool, bool]:
    """An argument as the launcher takes it; whether it has data; whether its shape is known."""
    value = value if constexpr else MockTensor.wrap_dtype(value)
    if isinstance(value, MockTensor):
        meta = torch.empty_strided(tuple(value.shape), value.stride(), dtype=value.dtype, device="meta")
        return meta, False, value.known
    if isinstance(value, torch.Tensor):
        if type(value).__name__ == "FakeTensor":  # a subclass of torch's own; the shape is all that there is
            return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device="meta"), False, True
        return value, value.device.type != "meta", True
    if type(value) in (tuple, list):
        inside = [_stand_in(v) for v in value]
        return type(value)(v for v, *_ in inside), all(d for _, d, _ in inside), all(k for *_, k in inside)
    return value, not type(value).__name__ == "ShapeDtypeStruct", True


def warm(kernel: JITFunction, grid: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> CompiledKernel | None:
    """Compile for these arguments without running.

    Returns:
        The handle; None when a hook of the user's said not to compile.

    Raises:
        TranslationError: the kernel, or its arguments, have no translation.
    """
    constexprs = {p.name for p in kernel.params if p.is_constexpr}
    given = [_stand_in(v, n in constexprs) for n, v in zip_longest(kernel.arg_names, args)][: len(args)]
    named = {k: _stand_in(v, k in constexprs) for k, v in kwargs.items()}
    every = [*given, *named.values()]
    real, known = all(d for _, d, _ in every), all(k for *_, k in every)
    options = options_of(kernel, kwargs)
    call = kernel._signature.call([v for v, *_ in given], {k: v for k, (v, *_) in named.items()}, placeless=not real)
    key = hooks.key_of(kernel, call.params, call.meta, options)

    def make() -> CompiledKernel:
        sizes = grid_of(grid, call.meta, kernel.where)
        if real:
            return handle_of(kernel, kernel._compiled(call, sizes), call, options)
        params = {p.name: p for p in call.params}
        if not known:
            return CompiledKernel(kernel, call.params, parse(kernel.__translated__, params, sizes), options)
        memories = {name: memory_of(name, a, exact=True) for name, a in call.arrays.items()}
        build = lambda: parse(kernel.__translated__, params, sizes)
        plan, module = plan_for(build, memories, aliases_of(call), cpu.emit, chunked=True)
        return CompiledKernel(kernel, call.params, plan.kernel, options, module)

    forms = kernel.device_caches[0][0]
    if key in forms:
        if real:
            forms[key] = make()  # compiled for these shapes, if it was not before
        return forms[key]
    handle = hooks.around_compile(kernel, call, key, options, True, make) if hooks.active else make()
    if handle is not None:
        forms[key] = handle
    return handle


def options_of(kernel: JITFunction, kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """The launch options among the keyword arguments."""
    known = kernel._signature.known
    return {name: value for name, value in kwargs.items() if name not in known}


def handle_of(kernel: JITFunction, compiled: Compiled, call: Call, options: Mapping[str, Any]) -> CompiledKernel:
    """The handle of a compiled form for a launch's options; a new one is entered into the kernel's record."""
    handle = compiled.handle
    if handle is not None and handle.options == options:
        return handle
    handle = next((h for h in compiled.handles if h.options == options), None)
    if handle is None:
        handle = CompiledKernel(kernel, call.params, compiled.plan.kernel, options, compiled=compiled)
        compiled.handles.append(handle)
        forms = kernel.device_caches[0][0]
        forms[hooks.key_of(kernel, call.params, call.meta, options)] = handle
    compiled.handle = handle  # looked at first the next time
    return handle


def launch_nothing(
    kernel: JITFunction, call: Call, sizes: tuple[int, int, int], kwargs: Mapping[str, Any]
) -> CompiledKernel:
    """A launch over a grid without programs, where ``import triton`` gives this package: as in Triton, nothing happens.

    Raises:
        TranslationError: the kernel has no translation, or the arrays are jax's, of which the results aren't known.
    """
    if kernel._on_jax(call):
        raise no_programs(sizes, kernel.where)
    note(
        "empty-launch",
        f"{kernel.fn.__name__} was launched over the grid {sizes}: nothing ran",
        where=Where.caller(),
        why="the grid has no programs; an empty tensor is the usual cause",
        do="skip the launch when there is nothing to do: `if x.numel(): kernel[grid](...)`",
    )
    ir = parse(kernel.__translated__, {p.name: p for p in call.params}, (1, 1, 1))
    return CompiledKernel(kernel, call.params, ir, options_of(kernel, kwargs))


class Forms(dict[Any, CompiledKernel]):
    """What was compiled for a kernel, under Triton's keys; clearing it makes the kernel forget its forms."""

    def __init__(self, kernel: JITFunction):
        super().__init__()
        self._kernel = kernel

    def clear(self) -> None:
        """Forget everything."""
        super().clear()
        self._kernel.forget()


class Devices(dict[Any, tuple[Any, ...]]):
    """`JITFunction.device_caches`: one entry, for whatever device is asked for, as there is one CPU."""

    def __init__(self, kernel: JITFunction):
        super().__init__()
        from frontend_triton_compat.runtime import driver

        self._entry = (Forms(kernel), {}, driver.active.get_current_target(), None, None)

    def __getitem__(self, device: Any) -> tuple[Any, ...]:
        return self._entry

    def __contains__(self, device: object) -> bool:
        return True


class _AnotherKernel(Diagnostic, RuntimeError):
    """TPB003, and a ``RuntimeError`` as in Triton."""


def preload(kernel: JITFunction, specialization_data: str) -> CompiledKernel | None:
    """Compile what another process compiled, from the text that it gave to `jit_cache_hook`.

    Raises:
        Diagnostic: it is of another kernel, or holds an argument that text can't.
    """
    data = json.loads(specialization_data)
    if data["name"] != kernel._fn_name:
        raise _AnotherKernel(
            "bad-argument",
            f"Specialization data is for {data['name']} but trying to preload for {kernel._fn_name}",
            do="hand it to the kernel that it was recorded for",
        )
    named = {a["name"]: _restored(kernel, a) for a in data["arguments"]}
    return warm(kernel, (1,), (), {**named, **data["options"]})


def _restored(kernel: JITFunction, argument: Mapping[str, Any]) -> Any:
    kind, value, prop = argument["kind"], argument["value"], argument["property"]
    if kind == "constexpr":
        if prop == 1:
            return 1
        if isinstance(value, dict) and "dtype" in value:
            return dtype(value["dtype"])
        if isinstance(value, dict) and "jit_function" in value:
            found = kernel.get_capture_scope().get(value["jit_function"].rsplit(":")[-1])
            if found is not None:
                return found
        elif not isinstance(value, dict):
            return unwrap(value)
    elif isinstance(kind, str) and kind.startswith("*"):
        return MockTensor(_TORCH[kind[1:]])
    elif kind in ("fp32", "fp64"):
        return 0.5
    elif isinstance(kind, str):
        wide = {"i64": 2**40, "u64": 2**63}.get(kind, 0)
        return bool(wide) if kind == "i1" else wide + (16 if prop == "D" else 3)
    raise error(
        "bad-argument",
        f"argument {argument['name']!r} can't be made from specialization data",
        why="text holds dtypes, numbers, strings, and names of functions of the kernel's module",
        do="compile it with kernel.warmup(..., grid=...)",
    )


_TORCH = {
    **{f"{k}{b}": getattr(torch, f"{n}{b}") for k, n in (("i", "int"), ("u", "uint")) for b in (8, 16, 32, 64)},
    **{"i1": torch.bool, "fp16": torch.float16, "bf16": torch.bfloat16, "fp32": torch.float32, "fp64": torch.float64},
    **{"fp8e4nv": torch.float8_e4m3fn, "fp8e5": torch.float8_e5m2},
    **{"fp8e4b8": torch.float8_e4m3fnuz, "fp8e5b16": torch.float8_e5m2fnuz},
}
