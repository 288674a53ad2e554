"""Tensor descriptors made on the host, and ragged ones: `triton.tools.tensor_descriptor` and `triton.tools.ragged_tma`.

Input: a tensor with the block shape that a kernel moves. Output: an object that a launch takes as one argument. Law:
what Triton refuses to describe is refused when the descriptor is made.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

import frontend_triton_compat.language as tl
from bridge.diagnostics import Where, error
from frontend_triton_compat.language.constexpr import unwrap
from frontend_triton_compat.launch import jit


@dataclass(init=False)
class TensorDescriptor:
    """A tensor with the block shape that a kernel moves, made on the host.

    Attributes:
        base: the tensor.
        shape, strides: of the tensor, in elements.
        block_shape: of the block.
        padding: ``zero`` or ``nan``, for what lies outside.
        round_f32_to_tf32: accepted, without effect.
    """

    base: Any
    shape: Sequence[int]
    strides: Sequence[int]
    block_shape: Sequence[int]
    padding: str = "zero"
    round_f32_to_tf32: bool = False

    def __init__(
        self,
        base: Any,
        shape: Sequence[int],
        strides: Sequence[int],
        block_shape: Sequence[int],
        padding: str = "zero",
        round_f32_to_tf32: bool = False,
    ):
        self.base, self.shape, self.strides, self.block_shape = base, shape, strides, block_shape
        self.padding, self.round_f32_to_tf32 = padding, round_f32_to_tf32
        self.__post_init__()

    def __post_init__(self) -> None:
        """Check the parts.

        Raises:
            TranslationError: Triton would not make this descriptor.
        """
        rank, block = len(self.shape), [unwrap(n) for n in self.block_shape]
        t = getattr(self.base, "base", self.base)
        dense = isinstance(t, torch.Tensor)
        width = self.base.element_size()
        placed = (
            type(t).__name__ not in ("FakeTensor", "FunctionalTensor") and t.device.type != "meta" if dense else False
        )
        floats = t.dtype.is_floating_point if dense else True
        for wrong, what, do in (
            (rank != len(self.strides) or rank != len(block), "shape, strides and block_shape differ in length", ""),
            (not 1 <= rank <= 5, f"{rank} dimensions", "describe one to five dimensions"),
            (
                any(not isinstance(n, int) or n < 1 or n & (n - 1) for n in block),
                f"block shape {block}",
                "block sizes are powers of two",
            ),
            (any(n <= 0 for n in self.shape), f"shape {tuple(self.shape)}", "every size is positive"),
            (rank and self.strides[-1] != 1, f"strides {tuple(self.strides)}", "the last dimension is contiguous"),
            (
                any(s * width % 16 for s in self.strides[:-1]),
                f"strides {tuple(self.strides)} of {width}-byte elements",
                "all strides but the last are multiples of 16 bytes: pad the rows",
            ),
            (placed and t.data_ptr() % 16, "a tensor that starts off a multiple of 16 bytes", "copy it: x.clone()"),
            (self.padding not in ("zero", "nan"), f"padding={self.padding!r}", 'use "zero" or "nan"'),
            (self.padding == "nan" and not floats, "NaN as padding of integers", 'use padding="zero"'),
        ):
            if wrong:
                raise error(
                    "tensor-descriptor",
                    f"a descriptor of {what}",
                    where=Where.caller(),
                    why="Triton's descriptors stand for the GPU's own, which can't describe it",
                    do=do or "give each one entry a dimension",
                )

    @staticmethod
    def from_tensor(
        tensor: Any, block_shape: Sequence[int], padding: str = "zero", round_f32_to_tf32: bool = False
    ) -> TensorDescriptor:
        """The descriptor of a whole tensor."""
        return TensorDescriptor(
            tensor, list(tensor.shape), list(tensor.stride()), list(block_shape), padding, round_f32_to_tf32
        )


# -- ragged: parts of a tensor's rows as tensors of their own
#
# Two leading dimensions are added. The first one's coordinate moves the address 2**30 rows back, modulo 2**64; the
# second moves it to the end of a part; the third counts up to 2**30, which the descriptor takes for the number of rows:
# a row behind the part's end is out of bounds.

_MANY = 1 << 30


def create_ragged_descriptor(T: Any, block_shape: Sequence[int], ragged_dim: int = 0) -> TensorDescriptor:
    """A descriptor for `load_ragged` and `store_ragged`, which take a part of the rows for the whole tensor.

    Args:
        T: a tensor of two or three dimensions.
        block_shape: of the blocks.
        ragged_dim: the dimension that is cut into parts; not the last one.
    """
    rank = len(T.shape)
    dim = ragged_dim + rank if ragged_dim < 0 else ragged_dim
    sizes = list(T.shape)
    if not 2 <= rank <= 3 or not 0 <= dim < rank - 1 or len(block_shape) != rank or sizes[dim] > _MANY:
        raise error(
            "tensor-descriptor",
            f"a ragged descriptor of shape {tuple(sizes)}, blocks {tuple(block_shape)}, along dimension {ragged_dim}",
            where=Where.caller(),
            why="it has two or three dimensions, at most 2**30 rows, and is cut along any dimension but the last",
            do="give block_shape one entry a dimension, and ragged_dim a dimension before the last",
        )
    sizes[dim] = _MANY
    step = T.stride(dim)
    unlimited = 0x7FFF0000
    return TensorDescriptor(
        T,
        [unlimited, unlimited, *sizes],
        [2**34 - step, step, *(T.stride(i) for i in range(rank))],
        [1, 1, *block_shape],
    )


@jit
def to_ragged_indices(slice_off, slice_size, row):
    """The three coordinates of a row of the part that starts at `slice_off`."""
    return 1 << 30, slice_off + slice_size, (1 << 30) - slice_size + row


@jit
def load_ragged(TMA, slice_off, slice_size, coords, ragged_dim: Any = 0):
    """A block of the part of `slice_size` rows at `slice_off`; rows outside of it read as zeros."""
    back, end, row = to_ragged_indices(slice_off, slice_size, coords[ragged_dim])
    data = TMA.load([back, end, *coords[:ragged_dim], row, *coords[ragged_dim + 1 :]])
    return tl.reshape(data, data.shape[2:])


@jit
def store_ragged(TMA, slice_off, slice_size, coords, data, ragged_dim: Any = 0):
    """Write a block to the part of `slice_size` rows at `slice_off`; rows outside of it are dropped."""
    back, end, row = to_ragged_indices(slice_off, slice_size, coords[ragged_dim])
    data = tl.reshape(data, [1, 1, *data.shape])
    TMA.store([back, end, *coords[:ragged_dim], row, *coords[ragged_dim + 1 :]], data)


@jit
def atomic_add_ragged(TMA, slice_off, slice_size, coords, data, ragged_dim: Any = 0):
    """Add a block to the part of `slice_size` rows at `slice_off`; rows outside of it are dropped."""
    back, end, row = to_ragged_indices(slice_off, slice_size, coords[ragged_dim])
    data = tl.reshape(data, [1, 1, *data.shape])
    TMA.atomic_add([back, end, *coords[:ragged_dim], row, *coords[ragged_dim + 1 :]], data)
