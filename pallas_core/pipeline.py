"""A pipeline inside a kernel: copies overlap with computing over an inner grid.

Input: a body on blocks, an inner grid and BlockSpecs. Output: a function on Refs in HBM, to be called inside a kernel.
Law: the body and the specs mean the same as for `pallas_call`; what differs per target is chosen here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from jax.experimental.pallas import tpu as pltpu

from bridge.diagnostics import Where, error
from pallas_core.grid import checked_specs


def emit_pipeline(
    body: Callable[..., Any], *, grid: Sequence[Any], in_specs: Any = (), out_specs: Any = (), **options: Any
):
    """A pipelined loop over an inner grid, for use inside a TPU kernel.

    Args:
        body: function of the blocks' Refs, inputs first.
        grid: inner grid; entries may be traced values.
        in_specs: one `pc.BlockSpec` an input.
        out_specs: one an output.
        **options: passed on to Pallas (``core_axis_name``, ``dimension_semantics`` ...).

    Returns:
        A function of Refs in HBM (operands with ``memory_space=pc.ANY``).

    Raises:
        Diagnostic: ``bad-block-spec``, ``bad-argument``.
    """
    where = Where.caller()
    if not callable(body) or not isinstance(grid, (tuple, list)):
        given = f"body={body!r}, grid={grid!r}"
        raise error(
            "bad-argument",
            f"emit_pipeline got {given}"[:200],
            where=where,
            why="the body is a function of blocks, and the grid a tuple of counts.",
            do="pc.emit_pipeline(body, grid=(4,), in_specs=[...], out_specs=[...])",
        )
    ins = checked_specs(in_specs, None, "in_specs", where) or ()
    outs = checked_specs(out_specs, None, "out_specs", where) or ()
    return pltpu.emit_pipeline(body, grid=tuple(grid), in_specs=list(ins), out_specs=list(outs), **options)
