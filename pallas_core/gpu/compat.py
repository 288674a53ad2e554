"""The private corners of jax's GPU interpreter, and what it lacks in jax 0.10.

Input: options of the interpreter. Output: a context in which kernels of `plgpu.kernel` run on the CPU. Law: what is
added changes no value: layouts are nothing to an array, a transposed Ref is read and written transposed, a matrix
product takes its left operand from registers too. All of it is taken back when the context ends.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np
from jax import lax
from jax._src.pallas.mosaic_gpu.interpret import gpu_callbacks, interpret_pallas_call
from jax._src.pallas.mosaic_gpu.interpret.params import InterpretGPUParams, force_gpu_interpret_mode
from jax._src.state import types as state_types
from jax.experimental.pallas import mosaic_gpu as plgpu


@contextlib.contextmanager
def interpreted(**options: Any) -> Iterator[Any]:
    """Within this context, Mosaic GPU kernels run on the CPU; gives what a kernel takes as ``interpret``."""
    params = InterpretGPUParams(**options)
    with (
        _replaced(plgpu, load=_load, layout_cast=_layout_cast, broadcasted_iota=_iota),
        _replaced(gpu_callbacks, _get=_turning_get, _swap=_turning_swap, wgmma=_wgmma),
        force_gpu_interpret_mode(params),
    ):
        yield params


def races_found() -> bool | None:
    """Whether the last run saw a race; None when this jax can't say."""
    try:
        return bool(interpret_pallas_call.get_races().races_found)
    except (AssertionError, AttributeError):
        return None


def reset() -> None:
    """Forget the interpreter's state; needed after a run that raised."""
    interpret_pallas_call.reset_gpu_interpret_mode_state()


@contextlib.contextmanager
def _replaced(module: Any, **names: Callable[..., Any]) -> Iterator[None]:
    before = {name: getattr(module, name) for name in names}
    try:
        for name, function in names.items():
            setattr(module, name, function)
        yield
    finally:
        for name, function in before.items():
            setattr(module, name, function)


# -- functions that say how a value lies in registers


def _load(source: Any, index: Any = (), *, layout: Any = None, optimized: bool = True) -> Any:
    return source[index if index != () else ...]


def _layout_cast(value: Any, layout: Any) -> Any:
    return value


def _iota(dtype: Any, shape: Any, dimension: int, *, layout: Any = None) -> Any:
    return lax.broadcasted_iota(dtype, shape, dimension)


# -- Refs that are seen transposed

_get, _swap, _multiply = gpu_callbacks._get, gpu_callbacks._swap, gpu_callbacks.wgmma


def _split(transforms: Any) -> tuple[tuple[Any, ...], tuple[int, ...] | None]:
    """The transforms without a transposition at their end, and its permutation."""
    kept = tuple(transforms)
    if kept and isinstance(kept[-1], state_types.TransposeTransform):
        return kept[:-1], kept[-1].permutation
    return kept, None


def _turning_get(*args: Any, **more: Any) -> Any:
    given = inspect.signature(_get).bind(*args, **more)
    given.arguments["transforms"], turned = _split(given.arguments["transforms"])
    token, value = _get(*given.args, **given.kwargs)
    return token, value if turned is None else jax.numpy.transpose(value, turned)


def _turning_swap(*args: Any, **more: Any) -> Any:
    given = inspect.signature(_swap).bind(*args, **more)
    given.arguments["transforms"], turned = _split(given.arguments["transforms"])
    if turned is not None:
        given.arguments["val"] = np.transpose(given.arguments["val"], np.argsort(turned))
    token, old = _swap(*given.args, **given.kwargs)
    return token, old if turned is None else jax.numpy.transpose(old, turned)


def _wgmma(**given: Any) -> Any:
    left, right = given["a_allocation_key_as_array"], given["b_allocation_key_as_array"]
    a_transforms, a_turned = _split(given["a_transforms"])
    b_transforms, b_turned = _split(given["b_transforms"])
    values = np.ndim(left) == 2
    if not values and a_turned is None and b_turned is None:
        return _multiply(**given)
    common = [given[name] for name in ("token", "device_id", "grid_point_coords", "thread_id")]
    place = {"source_info": given.get("source_info")}

    get: Any = _get
    swap: Any = _swap

    def read(key: Any, transforms: Any, turned: Any) -> np.ndarray:
        found = np.asarray(get(*common, key, transforms, **place)[1])
        return found if turned is None else np.transpose(found, turned)

    a = np.asarray(left) if values else read(left, a_transforms, a_turned)
    b = read(right, b_transforms, b_turned)
    key, transforms = given["acc_allocation_key_as_array"], given["acc_transforms"]
    kind = given["acc_dtype"]
    total = read(key, transforms, None) + np.matmul(a.astype(kind), b.astype(kind))
    swap(*common, key, transforms, total, None, **place)
    return given["token"]
