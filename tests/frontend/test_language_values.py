"""What operations compute, against the real Triton interpreter; and every row's jax text against its reference."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
import torch
from jax import lax

import bridge.compat
from frontend_triton_compat.emit.base import helper_names
from frontend_triton_compat.language.table import HELPERS, REDUCTIONS, ROWS

from .adapter import installed, load_file

KERNELS = Path(__file__).parent / "value_kernels.py"
EXACT = ("integers", "casts", "reductions", "small", "movers", "noise_bits", "flow")


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    pytest.importorskip("triton")
    path = tmp_path_factory.mktemp("values") / "real.pt"
    env = os.environ | {"TRITON_INTERPRET": "1"}
    done = subprocess.run([sys.executable, KERNELS, path], capture_output=True, text=True, timeout=240, env=env)
    assert done.returncode == 0, done.stderr[-3000:]
    module, _ = load_file(KERNELS, "value_kernels_on_ours")
    with installed():
        ours = module.results()
    return torch.load(path), ours


def names():
    for dtype in ("int32", "int64", "int16", "int8"):
        yield from (f"integers_torch.{dtype}_{i}" for i in range(4))
    yield from (f"casts_{i}" for i in range(5))
    yield from (
        "reductions reductions_all small_integer_sums user_combine movers maths noise noise_bits flow blocks".split()
    )


@pytest.mark.parametrize("name", list(names()))
def test_values_are_the_real_interpreters(both, name):
    real, ours = (side[name] for side in both)
    if name.startswith(EXACT):
        assert torch.equal(real, ours), (real, ours)
    else:
        torch.testing.assert_close(ours, real, rtol=2e-6, atol=2e-6)
    assert real.abs().sum() > 0


KINDS = {
    "float": ["float32", "float16", "bfloat16", "float64"],
    "wide": ["float32", "float64"],
    "fp32": ["float32"],
    "fp64": ["float64"],
    "int32": ["int32"],
    "int": ["int32", "int8", "uint32", "uint64", "int64", "bool"],
    "number": ["float32", "int32", "uint8", "float64"],
    "any": ["float32", "int32", "uint32", "bool", "bfloat16"],
    "bool": ["bool"],
}
ARITY = {"unary": 1, "binary": 2, "compare": 2, "ternary": 3}
NO_BOOL = (
    "add",
    "sub",
    "mul",
    "min",
    "max",
    "idiv",
    "imod",
    "shl",
    "shr",
    "umulhi",
    "popc",
    "clz",
)  # never emitted on int1


def sample(name: str, row, rng) -> np.ndarray:
    dtype = np.dtype(getattr(ml_dtypes, name, name))
    low, high = row.domain
    if dtype.kind == "b":
        return rng.random(64) > 0.5
    if dtype.kind in "iu":
        bound = (1 << (8 * dtype.itemsize - 1)) - 1
        return rng.integers(0 if dtype.kind == "u" else -bound, bound, 64).astype(dtype)
    x = rng.uniform(low, high, 64)
    if row.domain == (-4.0, 4.0) and row.accepts in ("any", "number"):
        x[:3] = np.nan, np.inf, -np.inf
    return x.astype(dtype)


@functools.cache
def functions(target):
    scope = {"jnp": jnp, "lax": lax, "jax": jax, "pltpu": SimpleNamespace(roll=jnp.roll)}
    for source in HELPERS.values():
        exec(source.get(target, ""), scope)
    return scope


def evaluate(code: str, operands, target="cpu", **static):
    scope = functions(target) | {"x": operands}
    return eval(code.format(*(f"x[{i}]" for i in range(len(operands))), **static), scope)


def close(actual, expected, exact: bool):
    actual, expected = np.asarray(actual), np.asarray(expected)
    assert actual.dtype == expected.dtype and actual.shape == expected.shape
    if actual.dtype == ml_dtypes.bfloat16 and exact:
        actual, expected = actual.astype(np.float32), expected.astype(np.float32)
    if exact or actual.dtype.kind in "iub":
        np.testing.assert_array_equal(actual, expected)
        return
    bits = {2: 7 if actual.dtype == ml_dtypes.bfloat16 else 10, 4: 23, 8: 52}[actual.dtype.itemsize]
    tolerance = 16 * 2.0**-bits
    np.testing.assert_allclose(actual.astype(np.float64), expected.astype(np.float64), rtol=tolerance, atol=tolerance)


MAP_CASES = [
    (name, dtype)
    for name, row in ROWS.items()
    if row.family in ARITY
    for dtype in KINDS[row.accepts]
    if not (dtype == "bool" and name in NO_BOOL) and not (name == "umulhi" and not dtype.startswith("uint"))
]


@pytest.mark.parametrize("name,dtype", MAP_CASES)
def test_row_text_means_its_reference(name, dtype):
    row, rng = ROWS[name], np.random.default_rng(7)
    operands = [sample(dtype, row, rng) for _ in range(ARITY[row.family])]
    if name == "where":
        operands[0] = rng.random(64) > 0.5
    if name in ("idiv", "imod"):
        operands[1] = np.where(operands[1] == 0, np.ones_like(operands[1]), operands[1])
    if name in ("shl", "shr"):
        operands[1] = (np.abs(operands[1].astype(np.int64)) % (8 * operands[1].itemsize)).astype(operands[1].dtype)
    kind = {"b": "bool", "i": "int", "u": "uint"}.get(operands[-1].dtype.kind, "float")
    with np.errstate(all="ignore"):
        if row.reference is not None:
            expected = row.reference(*operands)
        else:
            expected = eval(row.code.format(*(f"x[{i}]" for i in range(len(operands)))), {"jnp": np, "x": operands})
    code = row.code_for("cpu", kind)
    with bridge.compat.x64():
        run = lambda *x: evaluate(code, x)  # noqa: E731
        if helper_names().search(code):
            run = jax.jit(run)  # what XLA makes of a function as a whole
        actual = np.asarray(run(*(jnp.asarray(o) for o in operands)))
    if row.result == "bool":
        expected = np.asarray(expected, bool)
    close(
        actual,
        expected,
        exact=row.code.startswith(("{0} ", "jnp.minimum", "jnp.maximum", "jnp.fm", "jnp.where"))
        or name.endswith(("_rz", "_rd", "_ru"))
        or name in ("fma", "nextafter", "remainder", "logb", "ldexp"),
    )


TILE_CASES = [(n, d) for n in REDUCTIONS for d in ("float32", "int32", "uint32", "bfloat16")] + [
    (n, d) for n in ("cumsum", "cumprod", "cummax", "cummin") for d in ("float32", "int32")
]


@pytest.mark.parametrize("name,dtype", TILE_CASES)
def test_reduction_text_means_its_reference(name, dtype):
    row = REDUCTIONS.get(name) or ROWS[name]
    if row.accepts == "int" and dtype in ("float32", "bfloat16"):
        pytest.skip("bits only")
    rng = np.random.default_rng(3)
    x = (rng.integers(0, 3, (8, 16)) if dtype == "uint32" else rng.integers(-2, 3, (8, 16))).astype(
        np.dtype(getattr(ml_dtypes, dtype, dtype))
    )
    if name in ("max", "min") and dtype == "float32":
        x[0, 0], x[:, 3] = np.nan, np.nan
    kind = {"int32": "int", "uint32": "uint"}.get(dtype, "float")
    for axis in (0, 1):
        for reverse in (False, True) if row.family == "scan" else (None,):
            static = {"axis": axis} if reverse is None else {"axis": axis, "reverse": reverse}
            for target in ("cpu", "tpu"):
                actual = evaluate(row.code_for(target, kind), [jnp.asarray(x)], target, **static)
                expected = row.reference(x, **static)
                close(actual, np.expand_dims(expected, axis) if row.family == "reduce" else expected, exact=True)


@pytest.mark.parametrize("name", [n for n, r in ROWS.items() if r.family == "call"])
def test_call_text_means_its_reference(name):
    row, rng = ROWS[name], np.random.default_rng(5)
    x = rng.integers(0, 8, 16).astype(np.int32)
    pairs = x.reshape(8, 2)
    operands, static = {
        "join": ([x, x + 1], {}),
        "split": ([pairs], {}),
        "cat": ([pairs, pairs + 1], {"axis": 1}),
        "flip": ([pairs], {"axis": 0}),
        "sort": ([pairs], {"axis": 0, "descending": True}),
        "topk": ([x], {"k": 4}),
        "bitonic_merge": ([np.concatenate([np.sort(x), -np.sort(-x)])], {"descending": True}),
        "gather": ([x, np.arange(4, dtype=np.int32) * 3], {"axis": 0}),
        "histogram": ([x], {"num_bins": 8}),
        "histogram_masked": ([x, x > 2], {"num_bins": 8}),
    }[name]
    expected = row.reference(*operands, **static)
    for code in (row.code, row.code_for("cpu", "int")):
        actual = evaluate(code, [jnp.asarray(o) for o in operands], **static)
        pairs_of = zip(actual, expected, strict=True) if isinstance(expected, tuple) else [(actual, expected)]
        for a, e in pairs_of:
            close(a, e, exact=True)
