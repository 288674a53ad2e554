"""The memory behind a launch's arguments: how large it is, and which arguments share it.

Input: the arguments of a launch. Output: `Memory` and `Aliases`. Law: both are part of a specialisation's key, so that
code compiled for separate memory never runs on shared memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from frontend_triton_compat.access import Memory
from frontend_triton_compat.ir import Param

if TYPE_CHECKING:
    from frontend_triton_compat.arguments import Call


def memory_of(name: str, array: Any, exact: bool) -> Memory:
    """What a pointer argument points at; far ends of a large storage are left out of it unless `exact`."""
    if isinstance(array, torch.Tensor):
        strides, shape = array.stride(), tuple(array.shape)
        before = int(array.storage_offset())
        after = int(array.untyped_storage().nbytes()) // max(1, array.element_size()) - before
        if not exact:
            span = 1 + sum(s * (n - 1) for s, n in zip(strides, shape) if n)
            slack = 2 * max((s for s, n in zip(strides, shape) if n > 1), default=1)
            before, after = min(before, slack), min(after, span + slack)
        return Memory(name, shape, strides, before, after)
    shape = tuple(array.shape)
    strides = tuple(int(np.prod(shape[i + 1 :], dtype=np.int64)) for i in range(len(shape)))
    return Memory(name, shape, strides, 0, int(np.prod(shape, dtype=np.int64)))


def flat_params(params: Sequence[Param]) -> list[Param]:
    """Every parameter, those inside tuples included."""
    out: list[Param] = []
    for p in params:
        out += [p, *flat_params(p.items)]
    return out


@dataclass(frozen=True)
class Aliases:
    """Parameters that share memory.

    Attributes:
        same: parameter -> (the parameter that stands for the memory, offset in elements from it).
        apart: pairs that share memory under different dtypes, which is fine as long as nobody writes.
    """

    same: dict[str, tuple[str, int]] = field(default_factory=dict)
    apart: tuple[tuple[str, str], ...] = ()

    def key(self) -> tuple[Any, ...]:
        """The part of a specialisation's key."""
        return (tuple(self.same.items()), self.apart)


def aliases_of(call: Call) -> Aliases:
    """The parameters of a launch whose memory overlaps, directly or through others."""
    spans = []
    for name, t in call.arrays.items():
        if isinstance(t, torch.Tensor) and t.device.type == "cpu" and t.numel():
            last = sum(s * (n - 1) for s, n in zip(t.stride(), t.shape))
            spans.append((t.data_ptr(), t.data_ptr() + t.element_size() * (1 + last), name))
    if len(spans) < 2:
        return Aliases()
    spans.sort()
    groups: list[list[str]] = []
    reach = 0
    for start, end, name in spans:
        if groups and start < reach:
            groups[-1].append(name)
        else:
            groups.append([name])
        reach = max(reach, end) if len(groups[-1]) > 1 else end
    if len(groups) == len(spans):
        return Aliases()
    elements = {p.name: p.type for p in flat_params(call.params)}
    same: dict[str, tuple[str, int]] = {}
    apart: list[tuple[str, str]] = []
    for group in groups:
        heads: dict[Any, str] = {}
        for name in group:
            t = call.arrays[name]
            kind = (elements[name], t.data_ptr() % t.element_size())
            head = heads.setdefault(kind, name)
            if head != name:
                same[name] = (head, (t.data_ptr() - call.arrays[head].data_ptr()) // t.element_size())
        first, *others = heads.values()
        apart += [(first, other) for other in others]
    return Aliases(same, tuple(apart))


def tensor_in_key(array: Any, memory: Memory) -> tuple[Any, ...]:
    """The part of a specialisation's key that an array contributes."""
    return (isinstance(array, torch.Tensor), memory.shape, memory.strides, memory.before, memory.after)
