"""Launches written down: shapes, dtypes, strides and numbers of every kernel that a run launches.

Input: a callable that launches kernels. Output: a list of plain records, and back: arguments without data for `check`
and `port`. Law: a record holds no tensor data; what JSON can't hold makes the record say so.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import jax
import torch

from bridge.diagnostics import error
from frontend_triton_compat import launch
from frontend_triton_compat.language.constexpr import unwrap
from frontend_triton_compat.types import dtype

_SHORT = {"f16": "float16", "bf16": "bfloat16", "f32": "float32", "f64": "float64", "bool": "bool"} | {
    f"{p}{b}": f"{n}{b}" for p, n in (("i", "int"), ("u", "uint")) for b in (8, 16, 32, 64)
}
_SHORT |= {"fp16": "float16", "fp32": "float32", "fp64": "float64"}


@contextmanager
def recording() -> Iterator[list[dict[str, Any]]]:
    """Collect a record of every launch in this process."""
    records: list[dict[str, Any]] = []

    def observe(kernel: launch.JITFunction, grid: tuple[int, int, int], bound: Mapping[str, Any]) -> None:
        where = kernel.where
        records.append(
            {
                "kernel": kernel.fn.__name__,
                "file": where.file if where else "",
                "line": where.line if where else 0,
                "grid": list(grid),
                "args": {name: _describe(value) for name, value in bound.items()},
            }
        )

    launch.observers.append(observe)
    try:
        yield records
    finally:
        launch.observers.remove(observe)


def _describe(value: Any) -> Any:
    value = unwrap(value)
    if isinstance(value, torch.Tensor):
        name = str(value.dtype).removeprefix("torch.")
        return {"shape": list(value.shape), "strides": list(value.stride()), "dtype": name}
    if isinstance(value, jax.Array):
        return {"shape": list(value.shape), "dtype": value.dtype.name}
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, dtype):
        return {"type": value.name}
    if isinstance(value, tuple | list):
        return [_describe(v) for v in value]
    return {"unsupported": repr(value)}


def restore(described: Any) -> Any:
    """An argument from its record; arrays come back without data.

    Raises:
        Diagnostic: the record says that it could not hold the argument.
    """
    if isinstance(described, list):
        return tuple(restore(v) for v in described)
    if not isinstance(described, dict):
        return described
    if "type" in described:
        return dtype(described["type"])
    if "shape" in described:
        kind = getattr(torch, described["dtype"])
        if "strides" in described:
            return torch.empty_strided(described["shape"], described["strides"], dtype=kind, device="meta")
        return torch.empty(described["shape"], dtype=kind, device="meta")
    raise error("bad-argument", f"a recorded argument can't be rebuilt: {described.get('unsupported')}")


def size_of(record: Mapping[str, Any]) -> int:
    """Elements of all arrays of a record: the larger launch says more about a target."""
    total = 0
    for value in record["args"].values():
        if isinstance(value, dict) and "shape" in value:
            n = 1
            for d in value["shape"]:
                n *= d
            total += n
    return total


def parse_spec(text: str) -> dict[str, Any]:
    """A launch written as a call: ``add(x=f32[4096], n=4096, BLOCK=256, grid=16)``.

    Raises:
        Diagnostic: the text is not of that form.
    """
    try:
        call = ast.parse(text.strip(), mode="eval").body
        if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name) or call.args:
            raise ValueError
        args = {str(k.arg): _spec_value(k.value) for k in call.keywords}
        grid = args.pop("grid")
        grid = list(grid) if isinstance(grid, list | tuple) else [grid]
    except (SyntaxError, ValueError, KeyError) as wrong:
        raise error(
            "bad-argument",
            f"can't read the launch {text!r}",
            do="write it as a call with keywords: kernel(x=f32[4096,4096], n=4096, BLOCK=256, grid=(16,))",
        ) from wrong
    return {"kernel": call.func.id, "file": "", "line": 0, "grid": grid, "args": args}


def _spec_value(node: ast.expr) -> Any:
    if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name):
        shape = ast.literal_eval(node.slice)
        shape = list(shape) if isinstance(shape, tuple) else [shape]
        return {"shape": shape, "dtype": _SHORT.get(node.value.id, node.value.id)}
    if isinstance(node, ast.Tuple | ast.List):
        return [_spec_value(v) for v in node.elts]
    return ast.literal_eval(node)


def run_recorded(run: Callable[[], Any]) -> tuple[list[dict[str, Any]], Exception | None]:
    """Run something and return its launches, with what it raised."""
    with recording() as records:
        try:
            run()
        except Exception as stopped:  # the launches before it are still worth checking; the caller reports it
            return records, stopped
    return records, None
