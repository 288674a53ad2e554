"""Launches written down: shapes, dtypes, strides and numbers of every kernel that a run launches.

Input: a callable that launches kernels, or a launch written as text. Output: plain records that JSON can hold, and
back: arguments without data for `check` and `port`. Law: a record holds no tensor data; what it can't hold it says;
the launches that `autotune` makes to measure are not recorded, the chosen one is.
"""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
import torch

from bridge.diagnostics import Where, error
from frontend_triton_compat import launch
from frontend_triton_compat.autotune import is_tuning
from frontend_triton_compat.language.constexpr import unwrap
from frontend_triton_compat.runtime import TensorWrapper
from frontend_triton_compat.types import dtype

#: dtypes as a person writes them in ``--args`` -> as torch names them
_SHORT = {"f16": "float16", "bf16": "bfloat16", "f32": "float32", "f64": "float64", "bool": "bool"} | {
    f"{p}{b}": f"{n}{b}" for p, n in (("i", "int"), ("u", "uint")) for b in (8, 16, 32, 64)
}
_SHORT |= {"fp16": "float16", "fp32": "float32", "fp64": "float64", "i1": "bool"}
_RANK_ZERO = re.compile(r"\b([a-z]\w*)\[\s*\]")
_FORM = "kernel(x=f32[4096,4096], n=4096, BLOCK=256, grid=(16,))"


@dataclass(frozen=True)
class Launch:
    """One launch.

    Attributes:
        kernel: the kernel that was launched.
        record: the launch as plain values: kernel, file, line, grid, args.
    """

    kernel: launch.JITFunction
    record: dict[str, Any]


@contextmanager
def watching() -> Iterator[list[Launch]]:
    """Collect every launch in this process, with its kernel."""
    seen: list[Launch] = []

    def observe(kernel: launch.JITFunction, grid: tuple[int, int, int], bound: Mapping[str, Any]) -> None:
        if is_tuning():
            return
        where = kernel.where
        record = {
            "kernel": kernel.fn.__name__,
            "file": where.file if where else "",
            "line": where.line if where else 0,
            "grid": list(grid),
            "args": {name: describe(value) for name, value in bound.items()},
        }
        seen.append(Launch(kernel, record))

    launch.observers.append(observe)
    try:
        yield seen
    finally:
        launch.observers.remove(observe)


@contextmanager
def recording() -> Iterator[list[dict[str, Any]]]:
    """Collect a record of every launch in this process; the list is filled when the context ends."""
    records: list[dict[str, Any]] = []
    with watching() as seen:
        try:
            yield records
        finally:
            records.extend(one.record for one in seen)


def describe(value: Any) -> Any:
    """An argument as plain values."""
    value = unwrap(value)
    if isinstance(value, torch.Tensor):
        return _describe_tensor(value)
    if isinstance(value, TensorWrapper):
        return {**_describe_tensor(value.base), "reinterpret": value.dtype.name}
    if isinstance(value, jax.Array | jax.ShapeDtypeStruct):
        return {"shape": list(value.shape), "dtype": value.dtype.name}
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return {"float": str(value)}
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, dtype):
        return {"type": value.name}
    if isinstance(value, torch.dtype):
        return {"torch_dtype": str(value).removeprefix("torch.")}
    if isinstance(value, tuple | list):
        return [describe(v) for v in value]
    if callable(value) and getattr(value, "__name__", "<lambda>").isidentifier():
        return {"function": value.__name__}
    return {"unsupported": repr(value)}


def _describe_tensor(t: torch.Tensor) -> dict[str, Any]:
    out: dict[str, Any] = {
        "shape": list(t.shape),
        "strides": list(t.stride()),
        "dtype": str(t.dtype).removeprefix("torch."),
    }
    elements = t.untyped_storage().nbytes() // t.element_size() if t.layout is torch.strided else 0
    span = 1 + sum(s * (n - 1) for s, n in zip(t.stride(), t.shape)) if t.numel() else 0
    if elements > span:  # a view of something larger: a kernel may walk over the rest of it
        out |= {"offset": t.storage_offset(), "storage": elements}
    return out


def restore(described: Any, scope: Mapping[str, Any] | None = None) -> Any:
    """An argument from its record; arrays come back without data.

    Args:
        described: what `describe` gave, as JSON gives it back.
        scope: names that a function argument is looked up in: the globals of the kernel's module.

    Raises:
        Diagnostic: the record says that it could not hold the argument, or is not a record.
    """
    if isinstance(described, list | tuple):
        return tuple(restore(v, scope) for v in described)
    if not isinstance(described, dict):
        return described
    try:
        if "type" in described:
            return dtype(described["type"])
        if "float" in described:
            return float(described["float"])
        if "torch_dtype" in described:
            return _torch_dtype(described["torch_dtype"])
        if "function" in described:
            return (scope or {})[described["function"]]
        if "shape" in described:
            return _restore_tensor(described)
    except (KeyError, ValueError, TypeError, RuntimeError, AttributeError) as wrong:
        raise error(
            "bad-argument",
            f"a recorded argument can't be rebuilt: {described}",
            why=f"{type(wrong).__name__}: {wrong}",
            do=f"write the launch by hand: --args '{_FORM}'",
        ) from wrong
    raise error(
        "bad-argument",
        f"a recorded argument can't be rebuilt: {described.get('unsupported', described)}",
        why="a record holds shapes, dtypes, numbers, strings, and names of functions",
        do=f"write the launch by hand: --args '{_FORM}'",
    )


def _torch_dtype(name: str) -> torch.dtype:
    found = getattr(torch, name, None)
    if not isinstance(found, torch.dtype):
        raise ValueError(f"torch has no dtype {name!r}")
    return found


def _restore_tensor(described: Mapping[str, Any]) -> Any:
    kind, shape = _torch_dtype(described["dtype"]), described["shape"]
    if "storage" in described:
        whole = torch.empty(described["storage"], dtype=kind, device="meta")
        t = whole.as_strided(shape, described["strides"], described["offset"])
    elif "strides" in described:
        t = torch.empty_strided(shape, described["strides"], dtype=kind, device="meta")
    else:
        t = torch.empty(shape, dtype=kind, device="meta")
    return TensorWrapper(t, dtype(described["reinterpret"])) if "reinterpret" in described else t


def short_name(torch_name: str) -> str:
    """A torch dtype's name as a spec has it: ``f32`` for ``float32``."""
    return next((short for short, name in _SHORT.items() if name == torch_name), torch_name)


def size_of(record: Mapping[str, Any]) -> int:
    """Elements of all arrays of a record: the larger launch says more about a target."""

    def elements(value: Any) -> int:
        if isinstance(value, list | tuple):
            return sum(elements(v) for v in value)
        return math.prod(value["shape"]) if isinstance(value, dict) and "shape" in value else 0

    return sum(elements(value) for value in record["args"].values())


def parse_spec(text: str) -> dict[str, Any]:
    """A launch written as a call: ``add(x=f32[4096], n=4096, BLOCK=256, grid=16)``.

    Values are numbers, strings, True, False, None, tuples, arrays without data (``bf16[128,64]``; ``f32[]``), dtypes
    (``tl.float32``) and names of functions of the kernel's module.

    Raises:
        Diagnostic: the text is not of that form.
    """
    try:
        call = ast.parse(_RANK_ZERO.sub(r"\1[()]", text.strip()), mode="eval").body
        if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name):
            raise ValueError("it is not a call of a kernel by its name")
        if call.args or any(k.arg is None for k in call.keywords):
            raise ValueError("every argument needs its name")
        args = {str(k.arg): _spec_value(k.value) for k in call.keywords}
        if "grid" not in args:
            raise ValueError("the grid is missing")
        grid = args.pop("grid")
        grid = list(grid) if isinstance(grid, list | tuple) else [grid]
        if not 1 <= len(grid) <= 3 or not all(type(n) is int for n in grid):
            raise ValueError("the grid is one to three integers")
    except (SyntaxError, ValueError, TypeError) as wrong:
        raise error(
            "bad-argument",
            f"can't read the launch {text!r}",
            where=Where.caller(),
            why=wrong.msg if isinstance(wrong, SyntaxError) else str(wrong),
            do=f"write it as a call with keywords: {_FORM}",
        ) from wrong
    return {"kernel": call.func.id, "file": "", "line": 0, "grid": grid, "args": args}


def _spec_value(node: ast.expr) -> Any:
    if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name):
        shape = ast.literal_eval(node.slice)
        shape = list(shape) if isinstance(shape, tuple) else [shape]
        name = _SHORT.get(node.value.id, node.value.id)
        _torch_dtype(name)
        if not all(type(n) is int and n >= 0 for n in shape):
            raise ValueError(f"a shape is made of sizes: {ast.unparse(node)}")
        return {"shape": shape, "dtype": name}
    if isinstance(node, ast.Tuple | ast.List):
        return [_spec_value(v) for v in node.elts]
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "tl":
        from frontend_triton_compat import language

        if not isinstance(getattr(language, node.attr, None), dtype):
            raise ValueError(f"{ast.unparse(node)} is not a dtype")
        return describe(getattr(language, node.attr))
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "torch":
        return describe(_torch_dtype(node.attr))
    if isinstance(node, ast.Name):
        return {"function": node.id}
    if isinstance(node, ast.Call) and ast.unparse(node.func) == "float" and len(node.args) == 1:
        return {"float": str(float(ast.literal_eval(node.args[0])))}
    return ast.literal_eval(node)


def run_recorded(run: Callable[[], Any]) -> tuple[list[Launch], BaseException | None]:
    """Run something and return its launches, with what it raised."""
    with watching() as seen:
        try:
            run()
        except (Exception, SystemExit) as stopped:  # the launches before it are still worth checking; callers tell
            return seen, stopped
    return seen, None
