"""Rows of the op table as small TPU kernels: many rows in one kernel, on blocks of one shape.

Input: rows, element types, a shape. Output: `Case`s, and `run` and `compile_for` on lists of them. What is run is a
row's own text with the functions that it calls, as the emitter prints them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from frontend_triton_compat.emit.base import helper_names
from frontend_triton_compat.emit.expr import chosen
from frontend_triton_compat.language.table import HELPERS, REDUCTIONS, ROWS, Row

KINDS = {"float32": "float", "bfloat16": "float", "int32": "int", "uint32": "uint", "bool": "bool"}
#: What the front end never asks of one bit: these are computed in int32.
NOT_OF_BITS = {"sub", "idiv", "imod", "popc", "clz", "cumsum", "cumprod", "cummax", "cummin", "umulhi", "shl", "shr"}
ATTRIBUTES = {
    "cat": {"axis": 1},
    "flip": {"axis": 1},
    "sort": {"axis": 1, "descending": False},
    "topk": {"k": 8},
    "bitonic_merge": {"descending": True},
    "gather": {"axis": 1},
    "histogram": {"num_bins": 8},
    "histogram_masked": {"num_bins": 8},
}


@dataclass(frozen=True)
class Case:
    """One row on one element type.

    Attributes:
        row: the row.
        dtypes: the operands' types.
        attrs: axis, reverse and their kin.
        fn: the row's text as a function.
    """

    row: Row
    dtypes: tuple[str, ...]
    attrs: tuple[tuple[str, Any], ...]
    fn: Callable[..., Any]

    @property
    def name(self) -> str:
        return "-".join([self.row.name, self.dtypes[-1], *(f"{k}{v}" for k, v in self.attrs)])


def accepted(row: Row, dtype: str) -> bool:
    """Whether the row takes this type."""
    kind = KINDS[dtype]
    if dtype == "bool" and row.name in NOT_OF_BITS:
        return False
    if row.name == "umulhi":
        return kind == "uint"
    if row.accepts == "int32":
        return dtype == "int32"
    if row.accepts in ("wide", "fp32", "fp64"):
        return dtype == "float32" and row.accepts != "fp64"
    return {"any": True, "int": kind != "float", "number": kind != "bool"}.get(row.accepts, kind == row.accepts)


def function(code: str, count: int, attrs: dict[str, Any]) -> Callable[..., Any]:
    """A row's text as a function of its operands."""
    scope: dict[str, Any] = {"jax": jax, "jnp": jnp, "lax": lax, "pltpu": pltpu}
    seen: set[str] = set()

    def define(text: str) -> None:
        for name in helper_names().findall(text):
            if name not in seen:
                seen.add(name)
                define(HELPERS[name]["tpu"].partition("\n    ")[2])
                exec(HELPERS[name]["tpu"], scope)

    define(code)
    names = [f"a{i}" for i in range(count)]
    return eval(f"lambda {', '.join(names)}: {chosen(code.format(*names, **attrs))}", scope)


def cases(dtype: str) -> Iterator[Case]:
    """Every row that has a TPU form for an element type."""
    for row in (*ROWS.values(), *REDUCTIONS.values()):
        code = row.code_for("tpu", KINDS[dtype])
        if code.startswith("!") or not accepted(row, dtype):
            continue
        count = 1 + max(int(i) for i in re.findall(r"\{(\d)\}", code))
        dtypes = (dtype,) * count
        if row.name == "where":
            dtypes = ("bool", dtype, dtype)
        elif row.name == "gather":
            dtypes = (dtype, "int32")
        elif row.name == "histogram_masked":
            dtypes = (dtype, "bool")
        kinds: list[dict[str, Any]] = [ATTRIBUTES.get(row.name, {})]
        if row.family == "reduce":
            kinds = [{"axis": 0}, {"axis": 1}]
        elif row.family == "scan":
            kinds = [{"axis": a, "reverse": r} for a in (0, 1) for r in (False, True)]
        for attrs in kinds:
            yield Case(row, dtypes, tuple(attrs.items()), function(code, count, attrs))


def operands(case: Case, shape: tuple[int, int], seed: int = 0) -> list[np.ndarray]:
    """Numbers for a case, special ones among them."""
    rng = np.random.default_rng(seed)
    out = []
    for i, dtype in enumerate(case.dtypes):
        kind = KINDS[dtype]
        if case.row.name == "split":
            shape = (*shape[:-1], 2)
        if kind == "float":
            x = rng.uniform(*case.row.domain, shape).astype(np.float32)
            if case.row.family in ("reduce", "scan"):
                x = np.round(x * 4) / 4
            if case.row.name in ("prod", "cumprod"):
                x = np.exp2(np.round(x / 4))
            x = x.astype(jnp.dtype(dtype))
        elif kind == "bool":
            x = rng.random(shape) < 0.5
        elif case.row.name == "gather" and i == 1:
            x = rng.integers(0, shape[1], shape).astype(np.int32)
        elif case.row.name in ("shl", "shr") and i == 1:
            x = rng.integers(0, 32, shape).astype(dtype)
        elif case.row.name.startswith("histogram"):
            x = rng.integers(0, 12, shape).astype(dtype)
        else:
            info = np.iinfo(dtype)
            x = rng.integers(info.min, info.max, shape, dtype=dtype, endpoint=True)
            x.ravel()[::7] = rng.integers(0, 5, x.ravel()[::7].shape)
            if case.row.name in ("idiv", "imod") and i == 1:
                x[x == 0] = 3
        out.append(np.asarray(x))
    if case.row.name == "bitonic_merge":
        half = shape[1] // 2
        x = np.sort(out[0].astype(np.float64) if dtype == "bfloat16" else out[0], axis=1).astype(out[0].dtype)
        out[0] = np.concatenate([x[:, :half], x[:, half:][:, ::-1]], axis=1)
    return out


def program(group: Sequence[Case], specs: Sequence[jax.ShapeDtypeStruct]) -> Callable[..., Any]:
    """One kernel that does everything of a group; one-bit operands and results are int32 in memory."""
    sizes = [len(c.dtypes) for c in group]
    starts = np.cumsum([0, *sizes])
    per_case = [specs[a:b] for a, b in zip(starts, starts[1:])]

    def bits(case: Case, values: Sequence[Any]) -> list[Any]:
        return [v != 0 if d == "bool" else v for v, d in zip(values, case.dtypes)]

    shapes = []
    for case, own in zip(group, per_case):
        found = jax.eval_shape(lambda *v, case=case: case.fn(*bits(case, v)), *own)
        shapes.append(jax.tree.leaves(found))

    def kernel(*refs: Any) -> None:
        inputs, outputs = list(refs[: starts[-1]]), list(refs[starts[-1] :])
        for case in group:
            values = bits(case, [inputs.pop(0)[...] for _ in case.dtypes])
            for value in jax.tree.leaves(case.fn(*values)):
                outputs.pop(0)[...] = value.astype(jnp.int32) if value.dtype == jnp.bool_ else value

    out = [jax.ShapeDtypeStruct(s.shape, jnp.int32 if s.dtype == jnp.bool_ else s.dtype) for ss in shapes for s in ss]

    def call(*arrays: Any) -> Any:
        flat = pl.pallas_call(kernel, out_shape=out)(*arrays)
        grouped = []
        for ss in shapes:
            grouped.append([a.astype(s.dtype) if s.dtype == jnp.bool_ else a for a, s in zip(flat, ss)])
            flat = flat[len(ss) :]
        return grouped

    return call


def in_memory(x: np.ndarray) -> np.ndarray:
    """One-bit numbers are int32 in memory."""
    return x.astype(np.int32) if x.dtype == np.bool_ else x
