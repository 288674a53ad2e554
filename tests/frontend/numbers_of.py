"""Numbers of every element type for the elementwise tests: edges, all bit patterns, and how two results are compared.

NumPy and ml_dtypes are the truth; torch carries the bits into kernels.
"""

from __future__ import annotations

import ml_dtypes
import numpy as np
import torch

import frontend_triton_compat as triton
import frontend_triton_compat.language as tl

INTS = ("int8", "int16", "int32", "int64")
UINTS = ("uint8", "uint16", "uint32", "uint64")
FLOATS = ("float16", "bfloat16", "float32", "float64")
FP8 = {
    "float8e4nv": ml_dtypes.float8_e4m3fn,
    "float8e5": ml_dtypes.float8_e5m2,
    "float8e4b8": ml_dtypes.float8_e4m3fnuz,
    "float8e5b16": ml_dtypes.float8_e5m2fnuz,
}
ALL = (*INTS, *UINTS, *FLOATS)


def numpy_type(name: str) -> np.dtype:
    if name == "int1":
        return np.dtype(bool)
    return np.dtype(FP8.get(name) or getattr(ml_dtypes, name, name))


def to_torch(x: np.ndarray, name: str):
    """An array as what a launch takes for elements of type `name`."""
    if name.startswith("float8"):
        return triton.reinterpret(torch.from_numpy(x.view(np.uint8).copy()), getattr(tl, name))
    if name == "bfloat16":
        return torch.from_numpy(x.view(np.int16).copy()).view(torch.bfloat16)
    return torch.from_numpy(np.ascontiguousarray(x).copy())


def empty(n: int, name: str):
    return to_torch(np.zeros(n, np.uint8 if name.startswith("float8") else numpy_type(name)), name)


def to_numpy(t, name: str) -> np.ndarray:
    if name.startswith("float8"):
        raw = t.base.numpy()
        return raw if name == "float8e4b15" else raw.view(numpy_type(name))
    if name == "bfloat16":
        return t.view(torch.int16).numpy().view(numpy_type(name))
    return t.numpy()


def edges(name: str, n: int = 64, seed: int = 0) -> np.ndarray:
    """Extreme, special, small and random numbers of a type."""
    rng, d = np.random.default_rng(seed + 11), numpy_type(name)
    if name == "int1":
        return rng.random(n) > 0.5
    if d.kind in "iu":
        info = np.iinfo(d)
        x = rng.integers(info.min, info.max, n, dtype=d, endpoint=True)
        x = np.where(rng.random(n) < 0.4, rng.integers(0 if d.kind == "u" else -9, 10, n).astype(d), x)
        special = [info.min, info.max, 0, 1, info.max - 1, info.min + 1, 2, 3, 7, 0 if d.kind == "u" else -1]
    else:
        with np.errstate(over="ignore"):
            x = (rng.normal(0, 1, n) * 10.0 ** rng.integers(-4, 5, n)).astype(d)
        special = [0.0, -0.0, np.inf, -np.inf, np.nan, 1, -1, 0.5, -2.5, 3, 1e-3]
    for i, value in enumerate(special):
        x[(5 * i + seed) % n] = value
    return x


@np.errstate(all="ignore")  # ml_dtypes signals NaN patterns
def patterns(name: str) -> np.ndarray:
    """Every bit pattern of a narrow type; of a wide one, random ones, all narrow floats and the points between them."""
    d, rng = numpy_type(name) if name != "float8e4b15" else np.dtype(np.uint8), np.random.default_rng(1)
    if name == "int1":
        return np.arange(64) % 2 == 1
    if d.itemsize <= 2:
        return np.arange(1 << 8 * d.itemsize, dtype=f"uint{8 * d.itemsize}").view(d)
    if d.kind in "iu":
        info = np.iinfo(d)
        x = rng.integers(info.min, info.max, 4096, dtype=d, endpoint=True)
        return np.concatenate([x, x >> rng.integers(0, 8 * d.itemsize, 4096).astype(d), edges(name)])
    raw = rng.integers(0, 1 << 8 * d.itemsize, 8192, dtype=f"uint{8 * d.itemsize}").view(d)
    small = (rng.normal(0, 1, 4096) * 10.0 ** rng.uniform(-46, -36, 4096)).astype(d)
    parts = [raw, small, edges(name)]
    for narrow in ("float16", "bfloat16"):
        half = patterns(narrow)[: 1 << 15]
        grid = np.sort(half[np.isfinite(half)].astype(np.float64))
        middle = (grid[:-1] + grid[1:]) / 2
        near = [grid, middle] + ([middle * (1 + 2.0**-40), middle * (1 - 2.0**-40)] if name == "float64" else [])
        parts += [np.concatenate([part, -part]).astype(d)[::7] for part in near]
    return np.concatenate(parts)


def differ(actual: np.ndarray, expected: np.ndarray, ulps: int = 0) -> np.ndarray:
    """Where two arrays of one type differ: by bits, NaN counting as one value; or by more than so many ulps."""
    assert actual.dtype == expected.dtype, (actual.dtype, expected.dtype)
    if expected.dtype.kind in "iub":
        return actual != expected
    with np.errstate(invalid="ignore"):  # NaN with a payload
        a, e = actual.astype(np.float64), expected.astype(np.float64)
    bits = 8 * expected.dtype.itemsize
    ordered = []
    for x in (actual, expected):
        raw = x.view(f"int{bits}").astype(np.int64)
        ordered.append(np.where(raw < 0, -(raw & ((1 << (bits - 1)) - 1)), raw))
    with np.errstate(all="ignore"):
        far = np.abs(ordered[0].astype(object) - ordered[1].astype(object)) > ulps if bits == 64 else (
            np.abs(ordered[0] - ordered[1]) > ulps
        )  # fmt: skip
    if ulps == 0:
        far = far.astype(bool) | (np.signbit(a) != np.signbit(e))
    return np.where(np.isnan(a) | np.isnan(e), np.isnan(a) != np.isnan(e), far.astype(bool))


def show(where: np.ndarray, *arrays: np.ndarray) -> str:
    """The first differing elements, for an assertion's message."""
    at = np.flatnonzero(where)[:3]
    return "; ".join(" ".join(repr(a[i]) for a in arrays) for i in at) + f" ({int(where.sum())} differ)"
