"""Arguments with data, for `verify`: those that a run launched with, or random ones of a record's shapes.

Input: launches that were seen, or one as a record. Output: `Sample`: a grid and arguments with data. Law: small ones
only, for every grid step is simulated; the same record gives the same numbers; integers stay where the record says
(``i32[64] % 1000``), and are 0 or 1 where it does not, so that they are indices of something.
"""

from __future__ import annotations

import dataclasses
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from frontend_triton_compat import record as records
from frontend_triton_compat.descriptors import TensorDescriptor
from frontend_triton_compat.runtime import TensorWrapper

#: Elements of all arrays of a launch that is still simulated.
LIMIT = 1 << 20
#: So many different launches of a kernel are verified, the smallest ones.
COUNT = 8


@dataclass(frozen=True)
class Sample:
    """One launch with data.

    Attributes:
        grid: its grid.
        arguments: by name.
    """

    grid: tuple[int, ...]
    arguments: dict[str, Any]


def of_launches(seen: Sequence[records.Launch]) -> tuple[Sample, ...]:
    """The smallest different launches whose arguments were kept."""
    different = {repr((one.record["grid"], one.record["args"])): one for one in seen if one.arguments is not None}
    smallest = sorted(different.values(), key=lambda one: records.size_of(one.record))[:COUNT]
    return tuple(Sample(tuple(one.record["grid"]), dict(one.arguments or {})) for one in smallest)


def of_record(record: Mapping[str, Any], scope: Mapping[str, Any]) -> tuple[Sample, ...]:
    """Random arguments for a record; none where it is too large to be simulated."""
    if records.memory_of_record(record) > LIMIT:
        return ()
    made = {name: _filled(records.restore(v, scope), v, name) for name, v in record["args"].items()}
    return (Sample(tuple(record["grid"]), made),)


def _filled(value: Any, described: Any, name: str) -> Any:
    """A restored argument with data in place of what has none."""
    if isinstance(value, tuple):
        parts = described["items"] if isinstance(described, dict) else described
        items = [_filled(v, d, f"{name}.{i}") for i, (v, d) in enumerate(zip(value, parts))]
        return type(value)(*items) if hasattr(value, "_fields") else tuple(items)
    if isinstance(value, TensorDescriptor):
        return dataclasses.replace(value, base=_filled(value.base, described["descriptor"], name))
    if isinstance(value, TensorWrapper):
        return TensorWrapper(_filled(value.base, described, name), value.dtype)
    if not isinstance(value, torch.Tensor):
        return value
    make = torch.Generator().manual_seed(zlib.crc32(name.encode()))
    count = value.untyped_storage().nbytes() // value.element_size()
    if value.dtype.is_floating_point:
        flat = torch.randn(count, generator=make).to(value.dtype)
    else:
        below = 2 if value.dtype == torch.bool else int(described.get("below", 2))
        flat = torch.randint(0, max(1, below), (count,), generator=make)
        if described.get("sorted"):
            flat = flat.sort().values
            flat[:1], flat[-1:] = 0, below - 1
        flat = flat.to(value.dtype)
    return flat.as_strided(value.shape, value.stride(), value.storage_offset())
