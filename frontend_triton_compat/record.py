"""Launches written down: shapes, dtypes, strides and numbers of every kernel that a run launches.

Input: a callable that launches kernels, or a launch written as text. Output: plain records that JSON can hold, and
back: arguments without data for `check` and `port`. Law: a record holds no tensor data; what it can't hold it says;
the launches that `autotune` makes to measure are not recorded, the chosen one is.
"""

from __future__ import annotations

import ast
import collections
import math
import operator
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
import torch

from bridge.diagnostics import Where, error
from frontend_triton_compat import launch
from frontend_triton_compat.autotune import is_tuning
from frontend_triton_compat.descriptors import TensorDescriptor
from frontend_triton_compat.language.constexpr import unwrap
from frontend_triton_compat.measure import copy_arguments
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
        grid: the grid as it was given, a function perhaps.
        arguments: what it was launched with, copied before it ran; None where nobody asked, or they are too large.
    """

    kernel: launch.JITFunction
    record: dict[str, Any]
    grid: Any = None
    arguments: dict[str, Any] | None = None


@contextmanager
def watching(keep: int = 0) -> Iterator[list[Launch]]:
    """Collect every launch in this process, with its kernel.

    Args:
        keep: copies are kept of the arguments of launches with at most so many elements in all arrays.
    """
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
        copies = copy_arguments(bound) if keep and _memory(bound.values()) <= keep else None
        seen.append(Launch(kernel, record, kernel._last_grid, copies))

    launch.observers.append(observe)
    try:
        yield seen
    finally:
        launch.observers.remove(observe)


def _memory(values: Iterable[Any]) -> int:
    """Elements of the memory behind arguments."""
    total = 0
    for value in values:
        if isinstance(value, tuple | list):
            total += _memory(value)
            continue
        array = getattr(value, "base", value)
        if isinstance(array, torch.Tensor) and array.layout is torch.strided:
            total += array.untyped_storage().nbytes() // array.element_size()
        elif isinstance(array, jax.Array):
            total += array.size
    return total


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
    if hasattr(value, "block_shape") and isinstance(getattr(value, "base", None), torch.Tensor):
        parts = {part: [int(unwrap(n)) for n in getattr(value, part)] for part in ("shape", "strides", "block_shape")}
        return {"descriptor": describe(value.base), **parts, "padding": str(getattr(value, "padding", "zero"))}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        fields: Any = getattr(value, "_fields")  # noqa: B009
        return {"named": type(value).__name__, "fields": list(fields), "items": [describe(v) for v in value]}
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
        if "named" in described:
            items = [restore(v, scope) for v in described["items"]]
            kind: Any = (scope or {}).get(described["named"])
            if list(getattr(kind, "_fields", ())) != described["fields"]:
                kind = collections.namedtuple(described["named"], described["fields"])
            return kind(*items)
        if "descriptor" in described:
            parts = [described[part] for part in ("shape", "strides", "block_shape", "padding")]
            return TensorDescriptor(restore(described["descriptor"], scope), *parts)
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
        if not isinstance(value, dict):
            return 0
        inner = value.get("items") or value.get("descriptor")
        return elements(inner) if inner is not None else math.prod(value["shape"]) if "shape" in value else 0

    return sum(elements(value) for value in record["args"].values())


def memory_of_record(record: Mapping[str, Any]) -> int:
    """Elements of the memory behind all arrays of a record."""

    def elements(value: Any) -> int:
        if isinstance(value, list | tuple):
            return sum(elements(v) for v in value)
        if not isinstance(value, dict):
            return 0
        inner = value.get("items") or value.get("descriptor")
        if inner is not None:
            return elements(inner)
        if "shape" not in value:
            return 0
        if "storage" in value:
            return int(value["storage"])
        if "strides" in value and math.prod(value["shape"]):
            return 1 + sum(s * (n - 1) for s, n in zip(value["strides"], value["shape"]))
        return math.prod(value["shape"])

    return sum(elements(value) for value in record["args"].values())


def parse_spec(text: str) -> dict[str, Any]:
    """A launch written as a call: ``add(x=f32[4096], n=4096, BLOCK=256, grid=16)``.

    Values are numbers, strings, True, False, None, tuples, arrays without data (``bf16[128,64]``; ``f32[]``), dtypes
    (``tl.float32``) and names of functions of the kernel's module. For `verify`, which needs data, ``i32[64] % 1000``
    holds integers below 1000, and ``sorted(i32[65] % 1000)`` such that rise from 0 to 999, as offsets do. Numbers and
    the grid may be computed from numbers before them: ``n=4096, grid=cdiv(n, 256)``. ``f32[64,100].strides(130, 1)``
    is a view, ``descriptor(f32[64,128], (16, 32))`` a tensor descriptor.

    Raises:
        Diagnostic: the text is not of that form.
    """
    try:
        call = ast.parse(_RANK_ZERO.sub(r"\1[()]", text.strip()), mode="eval").body
        if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name):
            raise ValueError("it is not a call of a kernel by its name")
        if call.args or any(k.arg is None for k in call.keywords):
            raise ValueError("every argument needs its name")
        args: dict[str, Any] = {}
        for k in call.keywords:
            args[str(k.arg)] = _spec_value(k.value, args)
        if "grid" not in args:
            raise ValueError("the grid is missing")
        grid = args.pop("grid")
        grid = list(grid) if isinstance(grid, list | tuple) else [grid]
        if not 1 <= len(grid) <= 3 or not all(type(n) is int for n in grid):
            raise ValueError("the grid is one to three integers")
    except (SyntaxError, ValueError, TypeError, ArithmeticError, LookupError) as wrong:
        raise error(
            "bad-argument",
            f"can't read the launch {text!r}",
            where=Where.caller(),
            why=wrong.msg if isinstance(wrong, SyntaxError) else str(wrong),
            do=f"write it as a call with keywords: {_FORM}",
        ) from wrong
    return {"kernel": call.func.id, "file": "", "line": 0, "grid": grid, "args": args}


def _spec_value(node: ast.expr, known: Mapping[str, Any]) -> Any:
    if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name):
        sizes = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        shape = [_number(size, known) for size in sizes]
        name = _SHORT.get(node.value.id, node.value.id)
        _torch_dtype(name)
        if not all(type(n) is int and n >= 0 for n in shape):
            raise ValueError(f"a shape is made of sizes: {ast.unparse(node)}")
        return {"shape": shape, "dtype": name}
    if isinstance(node, ast.Tuple | ast.List):
        return [_spec_value(v, known) for v in node.elts]
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "tl":
        from frontend_triton_compat import language

        if not isinstance(getattr(language, node.attr, None), dtype):
            raise ValueError(f"{ast.unparse(node)} is not a dtype")
        return describe(getattr(language, node.attr))
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "torch":
        return describe(_torch_dtype(node.attr))
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod) and isinstance(node.left, ast.Subscript):
        array, below = _spec_value(node.left, known), _number(node.right, known)
        if "int" not in array["dtype"] or type(below) is not int or below < 1:
            raise ValueError(f"a bound is of integers, and at least 1: {ast.unparse(node)}")
        return {**array, "below": below}
    if isinstance(node, ast.Call) and ast.unparse(node.func) == "sorted" and len(node.args) == 1:
        array = _spec_value(node.args[0], known)
        if not isinstance(array, dict) or "below" not in array:
            raise ValueError(f"sorted() takes integers with a bound: {ast.unparse(node)}")
        return {**array, "sorted": True}
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "strides":
        array, strides = _spec_value(node.func.value, known), [_number(a, known) for a in node.args]
        if not isinstance(array, dict) or "shape" not in array or len(strides) != len(array["shape"]):
            raise ValueError(f"an array has a stride a dimension: {ast.unparse(node)}")
        return {**array, "strides": strides}
    if isinstance(node, ast.Call) and ast.unparse(node.func) == "descriptor" and len(node.args) in (2, 3):
        array, *rest = (_spec_value(a, known) for a in node.args)
        t = _restore_tensor(array)
        block = rest[0] if isinstance(rest[0], list) else [rest[0]]
        parts = {"shape": list(t.shape), "strides": list(t.stride()), "block_shape": block}
        return {"descriptor": array, **parts, "padding": rest[1] if len(rest) > 1 else "zero"}
    if isinstance(node, ast.Name):
        return known[node.id] if isinstance(known.get(node.id), int | float) else {"function": node.id}
    if isinstance(node, ast.Call) and ast.unparse(node.func) == "float" and len(node.args) == 1:
        return {"float": str(float(ast.literal_eval(node.args[0])))}
    try:
        return ast.literal_eval(node)
    except ValueError:
        return _number(node, known)


_ARITHMETIC: dict[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Div: operator.truediv,
}


def _number(node: ast.expr, known: Mapping[str, Any]) -> Any:
    """A number computed from numbers and from arguments before it."""
    if isinstance(node, ast.Constant) and isinstance(node.value, int | float):
        return node.value
    if isinstance(node, ast.Name) and isinstance(known.get(node.id), int | float):
        return known[node.id]
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -_number(node.operand, known)
    if isinstance(node, ast.BinOp) and type(node.op) in _ARITHMETIC:
        return _ARITHMETIC[type(node.op)](_number(node.left, known), _number(node.right, known))
    if isinstance(node, ast.Call) and ast.unparse(node.func).removeprefix("triton.") in ("cdiv", "min", "max"):
        values = [_number(arg, known) for arg in node.args]
        name = ast.unparse(node.func).removeprefix("triton.")
        if name != "cdiv":
            return (min if name == "min" else max)(values)
        if len(values) == 2:
            return -(-values[0] // values[1])
    if isinstance(node, ast.Call) and ast.unparse(node.func).removeprefix("triton.") == "next_power_of_2":
        return 1 << (_number(node.args[0], known) - 1).bit_length()
    raise ValueError(f"{ast.unparse(node)!r} is no value that a launch as text can have")


def run_recorded(run: Callable[[], Any], keep: int = 0) -> tuple[list[Launch], BaseException | None]:
    """Run something and return its launches, with what it raised; `keep` as for `watching`."""
    with watching(keep) as seen:
        try:
            run()
        except (Exception, SystemExit) as stopped:  # the launches before it are still worth checking; callers tell
            return seen, stopped
    return seen, None
