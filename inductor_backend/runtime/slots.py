"""Operands: the arrays over the memory of the tensors that a call brings.

Input: a tensor and its address. Output: an array over the same memory, or over a copy. Law: an array owns none of
torch's memory and is good for the length of the call; what jax would copy is copied into a cell that is used again.
"""

from __future__ import annotations

import ctypes
from typing import Any

import jax
import torch

from bridge.diagnostics import Where, error
from bridge.engine import ALIGNMENT, SMALL, Engine
from bridge.layout import row_major
from bridge.native import Native
from inductor_backend.compat import is_zero_tensor
from inductor_backend.emit import np_bytes
from inductor_backend.graph import Spec

_CACHE_LIMIT = 256
#: Attribute of a tensor that a forward graph saves for its backward graph: the array over the same memory.
HELD = "_torch_pallas_array"


#: An array, the tensor over the same memory, and its address.
Cell = tuple[jax.Array, torch.Tensor, int]


class Slot:
    """One tensor operand of a jitted segment: shape, dtype and strides are fixed, the address varies.

    Arrays are cached by address. They own nothing, so an address that torch reuses for another tensor of this slot is
    the same array again; a parameter keeps its address and is imported once. `set_`, `.data =` and `resize_` change the
    address, and are seen. What jax would copy at import (unaligned memory), what is not dense, and a zero tensor of
    autograd's, which has no memory at all, is copied on every call into a cell of the slot's own: an array and the
    tensor over the same memory. A cell comes back after the call, so several threads have one each.
    """

    def __init__(self, spec: Spec, engine: Engine):
        self.spec, self.engine = spec, engine
        self.nbytes = np_bytes(spec)
        order = spec.order()
        self.shape = spec.shape if order is None else tuple(spec.shape[d] for d in order)
        self.strides = row_major(self.shape)
        self.order = order
        self.cache: dict[int, jax.Array] = {}
        self.cells: list[Cell] = []
        self.seen: set[int] = set()
        self.plain = order == tuple(range(len(self.shape)))
        #: of an expanded tensor, how to see each of its elements once
        self.narrowed = (spec.shape, spec.strides) if 0 in spec.strides and spec.numel else None
        self.empty: jax.Array | None = None

    def copied(self, t: torch.Tensor, pointer: int) -> Cell:
        """A cell that holds the elements of `t`; it goes back to `cells` when the program has read it.

        Args:
            t: the operand.
            pointer: where its elements lie without a gap and in order; 0 when they don't.
        """
        try:
            cell = self.cells.pop()
        except IndexError:
            room = torch.empty(self.nbytes + ALIGNMENT, dtype=torch.uint8)
            room = room[-room.data_ptr() % ALIGNMENT :][: self.nbytes].view(self.spec.dtype)
            stored = room.as_strided(self.shape, self.strides, room.storage_offset())
            array = self.engine.share(stored)
            inverse = None if self.order is None else [self.order.index(d) for d in range(len(self.order))]
            cell = array, stored if inverse is None else stored.permute(inverse), stored.data_ptr()
        if pointer and self.nbytes <= SMALL:
            ctypes.memmove(cell[2], pointer, self.nbytes)
        else:
            cell[1].copy_(t)
        return cell

    def address(self, t: torch.Tensor, pointer: int) -> tuple[int, Cell | None]:
        """As a call, and only the address of the array."""
        self.demand_memory(t, pointer)
        if self.narrowed is not None and t.shape != self.narrowed[0]:
            t = t.as_strided(*self.narrowed)
        cell = self.copied(t, 0 if self.order is None else pointer)
        return cell[2], cell

    def demand_memory(self, t: torch.Tensor, pointer: int) -> None:
        """Refuse a tensor whose memory has been freed."""
        if pointer == 0 and not is_zero_tensor(t):
            raise error(
                "freed-storage",
                f"an input of shape {tuple(t.shape)} has no memory",
                why="its storage has been freed (untyped_storage().resize_(0)), so there is nothing to read",
                do="bring the storage back before the call",
            )

    def __call__(self, t: torch.Tensor, pointer: int) -> tuple[jax.Array, Cell | None]:
        """(the array, a cell that goes back to `cells` when the array has been read)."""
        held = getattr(t, HELD, None)
        if held is not None and pointer and held.unsafe_buffer_pointer() == pointer and held.shape == self.shape:
            return held, None
        if self.nbytes == 0:
            if self.empty is None:
                block = torch.zeros(ALIGNMENT, dtype=torch.uint8).view(self.spec.dtype)
                self.empty = self.engine.share(block.as_strided(self.shape, self.strides))
            return self.empty, None
        self.demand_memory(t, pointer)
        if self.narrowed is not None and t.shape != self.narrowed[0]:
            t = t.as_strided(*self.narrowed)
        if self.order is None or pointer == 0 or pointer % ALIGNMENT:
            cell = self.copied(t, 0 if self.order is None else pointer)
            return cell[0], cell
        if pointer not in self.seen:
            # Most addresses are seen once: a gradient's, an activation's.
            if len(self.seen) >= _CACHE_LIMIT:
                self.seen.clear()
            self.seen.add(pointer)
            if self.nbytes <= SMALL:
                cell = self.copied(t, pointer)
                return cell[0], cell
            if self.plain and self.narrowed is None:
                return self.engine.share(t.detach() if t.requires_grad else t), None
        array = self.engine.share_pointer(pointer, self.nbytes, self.spec.dtype, self.shape, self.strides)
        if array.unsafe_buffer_pointer() != pointer:
            return array, None
        if len(self.cache) >= _CACHE_LIMIT:
            self.cache.clear()
        self.cache[pointer] = array
        return array, None


class Frames:
    """The memory of calls of one segment's machine code; a frame comes back after the call, so each thread has its own.

    Attributes:
        spare: frames that nobody uses.
    """

    def __init__(self, native: Native, checks: int):
        self.native, self.checks = native, checks
        self.spare: list[tuple[Any, ...]] = []

    def __call__(self) -> tuple[Any, ...]:
        """A new frame: (words, the argument of `Native.run`, one flag for each checked operand, what these need)."""
        words, argument, memory = self.native.frame()
        room = ctypes.create_string_buffer(self.checks + ALIGNMENT)
        start = ctypes.addressof(room)
        start += -start % ALIGNMENT
        if self.checks:
            words[self.native.operands + self.native.results - 1] = start
        return words, argument, (ctypes.c_char * self.checks).from_address(start), (memory, room)


def restride(t: torch.Tensor, shape: tuple[int, ...], strides: tuple[int, ...]) -> torch.Tensor:
    """`t` with the strides that the graph was traced with."""
    dense = torch.empty_strided(shape, strides, dtype=t.dtype)
    return dense.copy_(t)


def once(t: torch.Tensor, shape: tuple[int, ...], strides: tuple[int, ...]) -> torch.Tensor:
    """`t` with the strides that the graph was traced with, of which some are zero."""
    kept = t
    for dim, stride in enumerate(strides):
        kept = kept.narrow(dim, 0, 1) if stride == 0 else kept
    if not torch.equal(kept.expand(shape), t):
        raise error(
            "internal-error",
            f"an input of shape {shape} was traced as an expanded tensor, and this call's is not one",
            where=Where.caller(),
            do="report it",
        )
    return torch.empty_strided(kept.shape, strides, dtype=t.dtype).copy_(kept).as_strided(shape, strides)
