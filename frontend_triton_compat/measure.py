"""What `autotune` measures with: copies of the arguments, a clock, keys, and timings kept on disk.

Input: the arguments of a launch, or a function. Output: arguments with memory of their own; seconds. Law: a copy keeps
what an original shares: views of one memory are views of one copy.
"""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from copy import copy as shallow_copy
from typing import Any

import torch

from bridge import compat, diskcache
from frontend_triton_compat.language.constexpr import unwrap

#: A configuration is measured so often, or for so long in seconds, whichever comes first.
_RUNS, _SECONDS = 7, 0.25


def first(timing: Any) -> float:
    """The median of a timing: a number, or quantiles with the median first."""
    return timing[0] if isinstance(timing, Sequence) else timing


def median_time(once: Callable[[], None]) -> float:
    """Seconds that a call takes, the median of a few."""
    times: list[float] = []
    begin = time.perf_counter()
    while len(times) < _RUNS and (len(times) < 2 or time.perf_counter() - begin < _SECONDS):
        start = time.perf_counter()
        once()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def in_key(value: Any) -> Any:
    """What of an argument a choice is kept for."""
    value = unwrap(value)
    if hasattr(value, "dtype") and hasattr(value, "shape"):
        return (str(value.dtype), tuple(value.shape))
    try:
        hash(value)
    except TypeError:
        return repr(value)
    return value


def copy_arguments(named: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments with memory of their own: what shared memory before shares the copy of it."""
    storages: dict[int, torch.UntypedStorage] = {}

    def copy(value: Any) -> Any:
        if isinstance(value, tuple | list):
            return type(value)(copy(v) for v in value) if type(value) in (tuple, list) else value
        base = getattr(value, "base", None)
        if hasattr(value, "block_shape"):  # a descriptor made on the host
            twin = shallow_copy(value)
            twin.base = copy(base)
            return twin
        if isinstance(base, torch.Tensor) and not isinstance(value, torch.Tensor):
            return type(value)(copy(base), value.dtype)
        if not isinstance(value, torch.Tensor) or value.device.type != "cpu" or not compat.has_storage(value):
            return value  # the launch refuses it with a reason
        storage = value.untyped_storage()
        own = storages.get(storage.data_ptr())
        if own is None:
            own = storages[storage.data_ptr()] = storage.clone()
        made = torch.empty(0, dtype=value.dtype)
        return made.set_(own, value.storage_offset(), value.shape, value.stride())

    return {name: copy(value) for name, value in named.items()}


def kept_for() -> str:
    """What timings on disk hold for, the kernel aside: this version, and this machine with this many threads."""
    return f"{diskcache.this_machine()}, {torch.get_num_threads()} threads"


def recall(name: str, count: int) -> list[Any] | None:
    """The timings kept under a name, or None: a number or a list of numbers each."""
    found = diskcache.get("autotune", name)
    try:
        timings = json.loads(found) if found is not None else None
        if not isinstance(timings, list) or len(timings) != count:
            return None
        return [[float(x) for x in t] if isinstance(t, list) else float(t) for t in timings]
    except (ValueError, TypeError):
        return None


def keep(name: str, timings: Sequence[Any]) -> None:
    """Keep timings under a name."""
    plain = [list(map(float, t)) if isinstance(t, Sequence) else float(t) for t in timings]
    diskcache.put("autotune", name, json.dumps(plain).encode())
