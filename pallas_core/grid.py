"""Grids and blocks: `BlockSpec`, `GridSpec`, scalar prefetch, and what a program asks about its place.

Input: what the user writes. Output: jax's own objects, checked. Law: whatever is wrong with a grid or a block is a
diagnostic when the function is built, or at the call when it depends on the arguments; nothing has run by then.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jax.experimental import pallas as pl

from bridge.diagnostics import Where, error
from pallas_core import compat
from pallas_core.refs import MemorySpace

when = pl.when
cdiv = pl.cdiv
run_scoped = pl.run_scoped
debug_print = pl.debug_print
Buffered = pl.Buffered
Element = pl.Element
Squeezed = pl.Squeezed


#: What a TPU does with a grid axis.
SEMANTICS = ("parallel", "arbitrary", "core_parallel", "subcore_parallel")


def program_id(axis: int) -> Any:
    """The coordinate of this program along a grid axis, an int32 scalar; for kernels and index maps.

    Raises:
        Diagnostic: ``outside-pallas-kernel``.
    """
    _check_inside("program_id")
    return pl.program_id(axis)


def num_programs(axis: int) -> Any:
    """How many programs the grid has along an axis; for kernels.

    Raises:
        Diagnostic: ``outside-pallas-kernel``.
    """
    _check_inside("num_programs")
    return pl.num_programs(axis)


def _check_inside(name: str) -> None:
    if not compat.is_inside_kernel():
        raise error(
            "outside-pallas-kernel",
            f"pc.{name} is called outside a kernel",
            where=Where.caller(3),
            why="only a program of a grid has a place in it.",
            do="call it in the function that you give to pc.pallas_call",
        )


class BlockSpec(pl.BlockSpec):
    """The part of an array that one program sees.

    Args:
        block_shape: extent per dimension; None squeezes a dimension away. None instead of a tuple: the whole array.
        index_map: program ids (and prefetched Refs) -> the block's index per dimension, counted in blocks.
        memory_space: `pc.VMEM` (default on a TPU), `pc.SMEM`, `pc.ANY` ...
        pipeline_mode: `pc.Buffered(n)`: how many blocks are held.

    Raises:
        Diagnostic: ``bad-block-spec``: one of them is of another type.
    """

    def __init__(
        self,
        block_shape: Sequence[Any] | None = None,
        index_map: Callable[..., Any] | None = None,
        *,
        memory_space: Any = None,
        pipeline_mode: Any = None,
    ):
        space = memory_space.space if isinstance(memory_space, MemorySpace) else memory_space
        _check_parts(block_shape, index_map, space, pipeline_mode, Where.caller(2))
        shape = tuple(block_shape) if block_shape is not None else None
        super().__init__(shape, index_map, memory_space=space, pipeline_mode=pipeline_mode)


def _check_parts(block: Any, index_map: Any, space: Any, mode: Any, where: Where | None) -> None:
    """The types of a BlockSpec's four parts."""
    if block is not None and (
        not isinstance(block, (tuple, list)) or any(isinstance(d, (str, float, bool)) for d in block)
    ):
        what, do = f"a block_shape of {block!r}", "a tuple of ints, one a dimension: (8, 128); None squeezes one away"
    elif index_map is not None and not callable(index_map):
        what, do = f"an index_map of {index_map!r}", "a function of the program ids: lambda i: (i, 0)"
    elif space is not None and not isinstance(space, compat.MEMORY_SPACES):
        what, do = f"a memory_space of {space!r}", "memory_space=pc.VMEM, pc.SMEM, pc.HBM or pc.ANY"
    elif mode is not None and not hasattr(mode, "buffer_count"):
        what, do = f"a pipeline_mode of {mode!r}", "pipeline_mode=pc.Buffered(2)"
    else:
        return
    raise error(
        "bad-block-spec",
        f"BlockSpec got {what}",
        where=where,
        why="a block is a shape, a function that places it, and the memory that holds it.",
        do=do,
    )


@dataclass(frozen=True)
class GridSpec:
    """A grid with the blocks of every operand; ``num_scalar_prefetch`` leading arguments are read by index maps.

    Attributes:
        grid: programs per axis.
        in_specs: one `BlockSpec` an input, or None: whole arrays.
        out_specs: one an output (a single spec for a single output), or None.
        scratch_shapes: buffers such as ``pc.VMEM((8, 128), jnp.float32)``.
        num_scalar_prefetch: how many leading arguments go to SMEM before the first program; index maps get them as
            Refs after the program ids, the kernel before its inputs.
    """

    grid: Any = ()
    in_specs: Any = None
    out_specs: Any = None
    scratch_shapes: Sequence[Any] = ()
    num_scalar_prefetch: int = 0


def PrefetchScalarGridSpec(
    num_scalar_prefetch: int,
    grid: Any = (),
    in_specs: Any = None,
    out_specs: Any = None,
    scratch_shapes: Sequence[Any] = (),
) -> GridSpec:
    """A `GridSpec` whose first arguments are scalars in SMEM, with Pallas' own name and order."""
    return GridSpec(grid, in_specs, out_specs, scratch_shapes, num_scalar_prefetch)


def checked_grid(grid: Any, where: Where | None) -> tuple[int, ...]:
    """The grid as a tuple of ints.

    Raises:
        Diagnostic: ``bad-grid``.
    """
    items = (grid,) if isinstance(grid, (int, np.integer)) else grid
    ok = isinstance(items, (tuple, list)) and all(
        isinstance(g, (int, np.integer)) and not isinstance(g, bool) and g >= 0 for g in items
    )
    if not ok:
        raise error(
            "bad-grid",
            f"grid={grid!r}",
            where=where,
            why="a grid is a tuple of non-negative ints: how many programs run along each axis.",
            do="for example: grid=(pc.cdiv(rows, block_rows),)",
        )
    return tuple(int(g) for g in items)


def check_semantics(semantics: Sequence[Any], axes: int, where: Where | None) -> None:
    """``dimension_semantics`` has one known word for each axis of the grid; () says nothing.

    Raises:
        Diagnostic: ``bad-grid``.
    """
    if len(semantics) in (0, axes):
        return
    raise error(
        "bad-grid",
        f"dimension_semantics has {len(semantics)} entries for a grid of {axes} axes",
        where=where,
        why="it says of each axis whether its programs may run in any order.",
        do="dimension_semantics=(" + ", ".join(["'arbitrary'"] * axes) + ("," if axes == 1 else "") + ")",
    )


def checked_specs(specs: Any, count: int | None, what: str, where: Where | None) -> tuple[Any, ...] | None:
    """`in_specs` or `out_specs` as a tuple of BlockSpecs, or None.

    Args:
        specs: as given; a single spec stands for one operand.
        count: how many operands there are, None when unknown yet.
        what: ``"in_specs"`` or ``"out_specs"``.
        where: the user's line.

    Raises:
        Diagnostic: ``bad-block-spec``.
    """
    if specs is None:
        return None
    items = (specs,) if isinstance(specs, (pl.BlockSpec, MemorySpace)) else specs
    if not isinstance(items, (tuple, list)) or not all(
        s is None or isinstance(s, (pl.BlockSpec, MemorySpace)) for s in items
    ):
        raise error(
            "bad-block-spec",
            f"{what} is not a sequence of BlockSpecs",
            where=where,
            why=f"{what} has one pc.BlockSpec for each operand; it is {type(specs).__name__}.",
            do=f"{what}=[pc.BlockSpec((8, 128), lambda i: (i, 0))]",
        )
    if count is not None and len(items) != count:
        raise error(
            "bad-block-spec",
            f"{what} has {len(items)} specs for {count} operands",
            where=where,
            why="every operand has one BlockSpec, in order.",
            do=f"give {what} {count} specs; pc.BlockSpec() stands for the whole array",
        )
    whole = lambda s: pl.BlockSpec(memory_space=s.space) if isinstance(s, MemorySpace) else s or pl.BlockSpec()
    return tuple(whole(s) for s in items)


def _plain(index_map: Any) -> Any:
    """The user's own function inside what jax makes of an index map."""
    return getattr(index_map, "index_map", inspect.unwrap(index_map) if callable(index_map) else index_map)


def check_block(
    spec: Any, shape: Sequence[int], grid: Sequence[int], prefetch: int, what: str, where: Where | None
) -> None:
    """One BlockSpec fits its array and the grid.

    Args:
        spec: the BlockSpec.
        shape: of the whole array.
        grid: of the call.
        prefetch: number of scalar prefetch arguments.
        what: names the operand in the message.
        where: the user's line.

    Raises:
        Diagnostic: ``bad-block-spec``.
    """
    place = Where.of_function(_plain(spec.index_map)) or where
    block = spec.block_shape
    if block is not None and len(block) != len(shape):
        raise error(
            "bad-block-spec",
            f"{what}: a block of rank {len(block)} for an array of rank {len(shape)}",
            where=where,
            why=f"the block {tuple(block)} has one entry per dimension of the array, whose shape is {tuple(shape)}.",
            do="add the missing dimensions to the block; None squeezes one away",
        )
    for size in block or ():
        if isinstance(size, (int, np.integer)) and size <= 0:
            raise error(
                "bad-block-spec",
                f"{what}: a block of extent {size}",
                where=where,
                why="every dimension of a block holds at least one element.",
                do="use 1, or None to squeeze the dimension away",
            )
    if spec.index_map is None:
        return
    try:
        inspect.signature(spec.index_map).bind(*range(len(grid) + prefetch))
    except TypeError:
        extra = f" and {prefetch} prefetched Refs" if prefetch else ""
        raise error(
            "bad-block-spec",
            f"{what}: the index map does not take {len(grid)} program ids{extra}",
            where=place,
            why=f"the grid {tuple(grid)} has {len(grid)} axes, and an index map gets one program id for each{extra}.",
            do="give the index map "
            + ", ".join(f"i{a}" for a in range(len(grid)))
            + (", *prefetched" if prefetch else ""),
        ) from None
    except ValueError:  # a callable without a signature: jax will call it
        return
    if prefetch or block is None:
        return
    try:
        result = spec.index_map(*(0,) * len(grid))
    except Exception:  # a map may need traced values: jax will call it, and what it raises is explained there
        return
    items = result if isinstance(result, (tuple, list)) else (result,)
    if len(items) != len(block):
        raise error(
            "bad-block-spec",
            f"{what}: the index map returns {len(items)} indices for a block of rank {len(block)}",
            where=place,
            why=f"the block {tuple(block)} needs one block index per dimension, squeezed ones included.",
            do="return " + "(" + ", ".join(["i"] + ["0"] * (len(block) - 1)) + ("," if len(block) == 1 else "") + ")",
        )
