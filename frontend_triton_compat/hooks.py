"""The hooks of `triton.knobs.runtime`: who is called around compiling and launching, and with what.

Input: hooks that were added or set. Output: `active`, which a launch looks at once, and a launch that calls them. Law:
without hooks nothing here runs; hooks see what Triton's see, as far as it exists here, and can't change what a kernel
computes; a cache hook that returns True stops the launch, as in Triton.
"""

from __future__ import annotations

import json
import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from frontend_triton_compat.handle import OPTIONS, spelling
from frontend_triton_compat.ir import Param
from frontend_triton_compat.language.constexpr import unwrap
from frontend_triton_compat.types import dtype

if TYPE_CHECKING:
    from frontend_triton_compat.arguments import Call
    from frontend_triton_compat.handle import CompiledKernel
    from frontend_triton_compat.launch import JITFunction


class HookChain:
    """Hooks of one kind, called in the order in which they were added, or the other way round."""

    def __init__(self, reversed: bool = False):
        self.calls: list[Callable[..., Any]] = []
        self.reversed = reversed

    def add(self, func: Callable[..., Any]) -> None:
        """Add a hook, once."""
        if func not in self.calls:
            self.calls.append(func)
        _look()

    def remove(self, func: Callable[..., Any]) -> None:
        """Remove a hook; one that is not there is no error."""
        if func in self.calls:
            self.calls.remove(func)
        _look()

    def __call__(self, *args: Any, **kwargs: Any) -> None:
        """Call every hook."""
        for call in list(self.calls)[:: -1 if self.reversed else 1]:
            call(*args, **kwargs)

    def __bool__(self) -> bool:
        return True  # as in Triton, where code asks `is not None`


class LazyDict:
    """A dict, parts of which are computed when it is asked for."""

    def __init__(self, data: dict[str, Any]):
        self.data = data
        self.extras: list[tuple[Callable[..., dict[str, Any]], tuple[Any, ...]]] = []

    def get(self) -> dict[str, Any]:
        """The dict, everything computed."""
        for func, args in self.extras:
            self.data = self.data | func(*args)
        self.extras.clear()
        return self.data

    def add(self, func: Callable[..., dict[str, Any]], args: tuple[Any, ...]) -> None:
        """Add what ``func(*args)`` will give."""
        self.extras.append((func, args))


@dataclass
class JitFunctionInfo:
    """Which kernel a hook is called for."""

    module: types.ModuleType | str | None
    name: str
    jit_function: JITFunction


@dataclass
class Hooks:
    """What was set in `triton.knobs.runtime`; the names are Triton's."""

    launch_enter_hook: HookChain
    launch_exit_hook: HookChain
    kernel_load_start_hook: HookChain
    kernel_load_end_hook: HookChain
    jit_cache_hook: Callable[..., Any] | None = None
    jit_post_compile_hook: Callable[..., Any] | None = None

    def __setattr__(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value)
        _look()


#: Whether there is any hook.
active = False


def _look() -> None:
    global active
    if "hooks" not in globals():
        return  # it is being made
    chains = (hooks.launch_enter_hook, hooks.launch_exit_hook, hooks.kernel_load_start_hook, hooks.kernel_load_end_hook)
    active = bool(hooks.jit_cache_hook or hooks.jit_post_compile_hook or any(c.calls for c in chains))


hooks = Hooks(HookChain(), HookChain(reversed=True), HookChain(), HookChain(reversed=True))


class Key(NamedTuple):
    """What Triton specialises a kernel for: (type, property) a parameter, and the launch's options."""

    specialization: tuple[tuple[Any, Any], ...]
    options: str


def key_of(kernel: JITFunction, params: Sequence[Param], values: Mapping[str, Any], options: Mapping[str, Any]) -> Key:
    """The key that Triton would keep a compiled kernel under."""
    never = {p.name for p in kernel.params if p.do_not_specialize}
    unaligned = {p.name for p in kernel.params if p.do_not_specialize_on_alignment}
    parts = []
    for param in params:
        value = unwrap(values[param.name])
        parts.append(_specialization(param, value, param.name not in never, param.name not in unaligned))
    return Key(tuple(parts), repr(sorted((k, repr(v)) for k, v in options.items())))


def _specialization(param: Param, value: Any, specialize: bool, align: bool) -> tuple[Any, Any]:
    kind = spelling(param)
    if param.kind == "constexpr":
        return ("constexpr", getattr(value, "cache_key", None) or repr(value))
    if param.kind == "tuple":
        inside = [_specialization(p, unwrap(v), True, True) for p, v in zip(param.items, value)]
        return (tuple(k for k, _ in inside), tuple(s for _, s in inside))
    if not specialize or param.kind == "float" or kind in ("i1", "u1"):
        return (kind, None)
    if param.kind == "int":
        if value == 1:
            return ("constexpr", 1)
        return (kind, "D" if align and value % 16 == 0 else "")
    address = value.data_ptr() if isinstance(value, torch.Tensor) and value.device.type == "cpu" else 0
    return (kind, "D" if align and address % 16 == 0 else "")


def compile_info(kernel: JITFunction, call: Call, key: Key, options: Mapping[str, Any], warmup: bool) -> dict[str, Any]:
    """What `jit_cache_hook` and `jit_post_compile_hook` are called with."""
    params = call.params
    given = {**OPTIONS, **options}
    extern = given["extern_libs"]
    given["extern_libs"] = tuple(extern.items()) if isinstance(extern, Mapping) else tuple(extern or ())
    signature = {p.name: s[0] for p, s in zip(params, key.specialization)}
    constants = {(p.index,): p.value for p in params if p.kind == "constexpr"}
    shown = ", ".join(f"{name}: {kind}" for name, kind in signature.items())
    name = kernel.fn.__qualname__
    told = "num_warps num_ctas num_stages enable_fp_fusion launch_cooperative_grid".split()
    return {
        "key": key,
        "repr": f"{name}[{', '.join(f'{o}={given[o]}' for o in told)}]({shown})",
        "fn": JitFunctionInfo(kernel.module, name, kernel),
        "compile": {
            "key": key,
            "signature": signature,
            "device": 0,
            "constants": constants,
            **{o: given[o] for o in (*told, "extern_libs")},
            "configs": [{(i,): [["tt.divisibility", 16]] for i, s in enumerate(key.specialization) if s[1] == "D"}],
            "specialization_data": _as_json(kernel, call, key, options),
            "is_warmup": warmup,
        },
        "is_manual_warmup": warmup,
        "already_compiled": False,
    }


def _as_json(kernel: JITFunction, call: Call, key: Key, options: Mapping[str, Any]) -> str:
    arguments = []
    for param, (kind, prop) in zip(call.params, key.specialization):
        value = param.value
        if isinstance(value, dtype):
            value = {"dtype": value.name}
        elif hasattr(value, "__translated__"):
            value = {"jit_function": f"{value.fn.__module__}:{value.fn.__qualname__}"}
        elif not (value is None or isinstance(value, bool | int | float | str)):
            value = {"repr": repr(value)}
        arguments.append({"name": param.name, "kind": kind, "property": prop, "value": value})
    plain = {k: v for k, v in options.items() if isinstance(v, bool | int | float | str)}
    return json.dumps({"name": kernel._fn_name, "target": "cpu", "arguments": arguments, "options": plain})


def around_compile(
    kernel: JITFunction, call: Call, key: Key, options: Mapping[str, Any], warmup: bool, make: Callable[[], Any]
) -> CompiledKernel | None:
    """A handle made by `make`, with the hooks before and after; None when the first one said so."""
    info = compile_info(kernel, call, key, options, warmup)
    if hooks.jit_cache_hook is not None and hooks.jit_cache_hook(**info):
        return None
    handle = make()
    if hooks.jit_post_compile_hook is not None:
        hooks.jit_post_compile_hook(**info)
    return handle


def around_launch(
    kernel: JITFunction, handle: CompiledKernel, grid: tuple[int, int, int], call: Call, run: Callable[[], Any]
) -> Any:
    """Run, with the hooks of loading (the first time) and launching around it."""
    if not handle.loaded:
        told = (handle.name, handle.metadata_group, handle.hash)
        hooks.kernel_load_start_hook(None, None, *told)
        handle.loaded = True
        hooks.kernel_load_end_hook(handle.module, handle.function, *told)
    metadata = LazyDict({"name": handle.name, "function": handle.function, "stream": 0})
    if kernel.launch_metadata is not None:
        metadata.add(kernel.launch_metadata, (grid, handle.metadata, dict(call.meta)))
    hooks.launch_enter_hook(metadata)
    result = run()
    hooks.launch_exit_hook(metadata)
    return result
