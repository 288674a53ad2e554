"""A `triton` module for the shared kernels: launches go through the parser and the reference interpreter."""

from __future__ import annotations

import importlib.util
import inspect
import sys
import types
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import torch

import frontend_triton_compat.language as tl
from frontend_triton_compat import ir, spec
from frontend_triton_compat.parse import parse
from frontend_triton_compat.types import from_numpy_name

from . import reference

SHARED = Path(__file__).parents[2].parent / "shared"
OPTIONS = ("num_warps", "num_stages", "num_ctas", "maxnreg")


def to_numpy(t: torch.Tensor) -> np.ndarray:
    """A tensor's numbers in NumPy's or ml_dtypes' dtype of the same width; bits are shared."""
    name = str(t.dtype).removeprefix("torch.")
    wanted = reference.numpy_dtype(from_numpy_name(name))
    plain = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[t.element_size()]
    return t.detach().view(plain).numpy().view(wanted)


class Memory:
    """The storage behind a tensor from its first element on, as a flat array that is written in place."""

    def __init__(self, t: torch.Tensor):
        size = t.untyped_storage().nbytes() // t.element_size() - t.storage_offset()
        self.array = to_numpy(torch.as_strided(t.detach(), (size,), (1,), t.storage_offset()))


def make_param(name: str, index: int, value, annotation) -> ir.Param:
    """How a launcher specialises one argument."""
    constexpr = annotation is tl.constexpr or (isinstance(annotation, str) and "constexpr" in annotation)
    if constexpr or value is None or isinstance(value, (bool, str)) or callable(value):
        return ir.Param(name, index, "constexpr", None, value)
    if isinstance(value, torch.Tensor):
        return ir.Param(name, index, "pointer", from_numpy_name(str(value.dtype).removeprefix("torch.")))
    if isinstance(value, int):
        return ir.Param(name, index, "int", tl.int32 if -(2**31) <= value < 2**31 else tl.int64, value)
    if isinstance(value, float):
        return ir.Param(name, index, "float", tl.float32)
    if isinstance(value, tuple):
        return ir.Param(
            name, index, "tuple", items=tuple(make_param(f"{name}.{i}", index, v, None) for i, v in enumerate(value))
        )
    raise TypeError(type(value))


class Jit:
    """What the adapter's `triton.jit` gives."""

    def __init__(self, fn):
        self.fn = fn
        self.__name__ = fn.__name__

    def __getitem__(self, grid):
        return lambda *args, **kwargs: self.launch(grid, *args, **kwargs)

    def parse(self, grid, *args, **kwargs):
        """(kernel, arguments by name)."""
        for option in OPTIONS:
            kwargs.pop(option, None)
        signature = inspect.signature(self.fn)
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
        values = dict(bound.arguments)
        grid = grid(values) if callable(grid) else grid
        grid = (grid,) if isinstance(grid, int) else tuple(grid)
        params = {n: make_param(n, i, v, signature.parameters[n].annotation) for i, (n, v) in enumerate(values.items())}
        kernel = parse(self, params, grid)
        spec.check(kernel)
        return kernel, values

    def launch(self, grid, *args, **kwargs):
        kernel, values = self.parse(grid, *args, **kwargs)
        flat = dict(_leaves(values))
        memories = {n: Memory(v).array for n, v in flat.items() if isinstance(v, torch.Tensor)}
        floats = {n: v for n, v in flat.items() if isinstance(v, float)}
        reference.run(kernel, memories, floats)
        return kernel


def _leaves(values):
    for n, v in values.items():
        if isinstance(v, tuple):
            yield from _leaves({f"{n}.{i}": w for i, w in enumerate(v)})
        else:
            yield n, v


def jit(fn=None, **options):
    """Decorator with and without arguments."""
    return Jit(fn) if fn is not None else lambda f: Jit(f)


def cdiv(a, b):
    return -(-a // b)


@contextmanager
def installed():
    """`import triton` gives the adapter; undone afterwards."""
    module = types.ModuleType("triton")
    module.jit, module.cdiv, module.language = jit, cdiv, tl
    module.next_power_of_2 = lambda n: 1 << (n - 1).bit_length()
    module.constexpr_function = tl.constexpr_function
    names = {"triton": module, "triton.language": tl, "triton.language.extra": tl.extra}
    saved = {n: sys.modules.get(n) for n in names}
    sys.modules.update(names)
    try:
        yield module
    finally:
        for n, old in saved.items():
            if old is None:
                sys.modules.pop(n, None)
            else:
                sys.modules[n] = old


def load_file(path: Path, name: str):
    """A Python file as a module, with the adapter as its `triton`."""
    with installed() as triton:
        spec_ = importlib.util.spec_from_file_location(name, path)
        module = importlib.util.module_from_spec(spec_)
        sys.modules[name] = module
        spec_.loader.exec_module(module)
    return module, triton
