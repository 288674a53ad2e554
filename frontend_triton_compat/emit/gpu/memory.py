"""What a GPU kernel takes and allocates: arrays, parts of them, shared memory and barriers.

Input: filled by the emitter. Output: read by `text.py`. Law: shapes are what the kernel sees: cut and padded.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from frontend_triton_compat.forms import Var

_SIZES = {"bfloat16": 2, "bool_": 1}


@dataclass
class Array:
    """An argument as the kernel gets it.

    Attributes:
        name: in the kernel and in the entry.
        param: the parameter it comes from.
        cut: per dimension of the argument, the part that is taken: (start, stop), None for all, a number for one place.
        shape: its shape, after the cut.
        padded: the shape that the kernel needs on every machine.
        whole: the shape that the interpreter needs, which copies no part of a tile.
    """

    name: str
    param: str
    cut: tuple[tuple[int, int] | int | None, ...]
    shape: tuple[int, ...]
    padded: tuple[int, ...]
    whole: tuple[int, ...]


@dataclass(frozen=True)
class Tile:
    """What an access touches.

    Attributes:
        array: the array it is a part of.
        index: per dimension of the array, its index as source.
        dims: the tile variables that have a dimension there, in the array's order.
        boxes: elements of each that are copied; the rest of a buffer is padding.
        clean: whether what is copied beyond the tile's own elements is zero.
    """

    array: Array
    index: tuple[str, ...]
    dims: tuple[Var, ...]
    boxes: tuple[int, ...]
    clean: bool = True


@dataclass(frozen=True)
class Stored:
    """A store: the array it goes to, the parameter, and the box it writes over the whole grid; None: not known."""

    array: Array
    param: str
    region: tuple[tuple[int, int], ...] | None


@dataclass
class Memory:
    """Shared memory and barriers of a block.

    Attributes:
        buffers: name -> (shape, dtype name).
        barriers: name -> arrivals.
        others: further scratch, name -> its declaration.
        staging: buffers that operands of contractions are written to, one after the other.
    """

    buffers: dict[str, tuple[tuple[int, ...], str]] = field(default_factory=dict)
    barriers: dict[str, int] = field(default_factory=dict)
    others: dict[str, str] = field(default_factory=dict)
    staging: dict[str, tuple[tuple[int, ...], str]] = field(default_factory=dict)

    def bytes(self) -> int:
        """What the buffers take."""
        return sum(math.prod(shape) * itemsize(dt) for shape, dt in self.buffers.values())


def itemsize(dtype_name: str) -> int:
    """Bytes of an element, by the dtype's name in jax."""
    digits = "".join(c for c in dtype_name.split("_")[0] if c.isdigit())
    return _SIZES.get(dtype_name) or (int(digits) // 8 if not dtype_name.startswith("float8") else 1)
