"""Laws of a traced kernel that are known before any compiler runs.

Input: a `Program`. Output: nothing, or a diagnostic that names the operand, the numbers and the line. The laws: every
output block is covered, no block lies outside its array, no index that is known lies outside its Ref; on a TPU also
the block rule, the dtypes and the VMEM budget.
"""

from __future__ import annotations

import math

import numpy as np

from bridge.diagnostics import Diagnostic, Where, error
from pallas_core import budget, compat, grid, index_maps
from pallas_core.lowering import Program
from pallas_core.targets.tpu import LANES, REFUSED_DTYPES, REPLACEMENTS, SUBLANES, TpuChip

#: Grids with more points than this are not walked.
MAX_POINTS = 1 << 20


def check_everywhere(program: Program) -> None:
    """The laws that hold on every target.

    Raises:
        Diagnostic: ``negative-ref-index``, ``ref-index-out-of-bounds``, ``output-not-covered``,
            ``block-out-of-bounds``, ``bad-grid``.
    """
    for call in program.calls:
        grid.check_semantics(call.semantics, len(call.grid), call.where)
        check_indices(call)
        check_blocks(call)


def check_tpu(program: Program, chip: TpuChip) -> None:
    """The laws of a TPU, without compiling.

    Raises:
        Diagnostic: those of `check_everywhere`, and ``tpu-dtype``, ``tpu-block-shape``, ``vmem-budget``.
    """
    for call in program.calls:
        check_dtypes(call)
        check_block_rule(call)
    check_everywhere(program)
    for call in program.calls:
        found = budget.of_call(call, chip)
        if found.diagnostic is not None:
            raise found.diagnostic


def check_indices(call: compat.PallasCall) -> None:
    """No index of a Ref that is known before the kernel runs is negative or past the end."""
    for eqn, values in index_maps.known_inputs(call.kernel):
        for index, reach, extent, masked in compat.ref_accesses(eqn, values):
            found = np.asarray(index)
            if not found.size or found.dtype.kind not in "iu":
                continue
            first, last = int(found.min()), int(found.max()) + reach
            if first < 0 and not masked:
                raise error(
                    "negative-ref-index",
                    f"a Ref is indexed with {first}",
                    where=compat.frame_where(eqn) or call.where,
                    why="Refs don't count from the end: a device would read outside the block, the interpreter "
                    "elsewhere.",
                    do="count from the front: `x_ref[x_ref.shape[0] - 1, :]`",
                )
            if last >= extent and not masked:
                raise error(
                    "ref-index-out-of-bounds",
                    f"a Ref is accessed at {last} in a dimension of {extent}",
                    where=compat.frame_where(eqn) or call.where,
                    why="the kernel sees one block; a device would access memory beside it, and the interpreter takes "
                    "the last element instead.",
                    do="use an index below the block's extent (`x_ref.shape`), or let the index map pick another block",
                )


def check_dtypes(call: compat.PallasCall) -> None:
    """Every operand and every value in the kernel has a dtype that a TPU has."""
    for operand in call.of_kind("prefetch", "input", "output", "scratch"):
        if str(operand.dtype) in REFUSED_DTYPES:
            raise dtype_refused(str(operand.dtype), f"{operand.kind} `{operand.name}`", call.where)
    for name, where in compat.wide_values(call):
        raise dtype_refused(name, "a value in the kernel", where or call.where)


def dtype_refused(name: str, what: str, where: Where | None) -> Diagnostic:
    """``tpu-dtype`` for one operand or value."""
    return error(
        "tpu-dtype",
        f"{what} is {name}, which a tpu kernel can't have",
        where=where,
        why=REFUSED_DTYPES[name] + ".",
        do=f"use {REPLACEMENTS[name]}; convert outside the kernel",
    )


def check_block_rule(call: compat.PallasCall) -> None:
    """The last two dimensions of a block are multiples of (8, 128) or the array's own."""
    for operand in call.of_kind("input", "output"):
        if operand.memory_space in ("any", "hbm", "smem", "semaphore", "host"):
            continue
        reason = block_rule_broken(operand)
        if reason:
            shape = (
                "(" + ", ".join(map(str, operand.block_shape)) + ("," if len(operand.block_shape) == 1 else "") + ")"
            )
            raise error(
                "tpu-block-shape",
                f"the block {shape} of {operand.kind} `{operand.name}` breaks the (8, 128) rule",
                where=call.where,
                why=reason,
                do=_block_remedy(operand),
            )


def block_rule_broken(operand: compat.Operand) -> str:
    """Why a block breaks the TPU's rule, or "" when it doesn't."""
    block, array = operand.block_shape, operand.array_shape
    if not array:
        return "a TPU block has at least one dimension; a 0-d operand belongs in SMEM (memory_space=pc.SMEM)."
    if len(array) == 1:
        bits = 8 * (operand.dtype.itemsize if operand.dtype is not None and operand.dtype != np.bool_ else 4)
        least = LANES * max(1, 32 // bits)
        size = block[0]
        if size == array[0] or size % (SUBLANES * LANES) == 0 or (size >= least and size & (size - 1) == 0):
            return ""
        return (
            f"a 1-d block is the whole array ({array[0]}), a multiple of {SUBLANES * LANES}, "
            f"or a power of two from {least} on for {operand.dtype}; this one is {size}."
        )
    rows, lanes = block[-2], block[-1]
    if (lanes == array[-1] or lanes % LANES == 0) and (rows == array[-2] or rows % SUBLANES == 0):
        return ""
    return (
        f"a TPU register holds {SUBLANES} x {LANES} values. The last two dimensions of a block are multiples of 8 "
        f"and 128, or equal the array's ({array[-2]}, {array[-1]}); these are ({rows}, {lanes})."
    )


def _block_remedy(operand: compat.Operand) -> str:
    block, array = operand.block_shape, operand.array_shape
    if len(array) < 2:
        return "use a block of 128, 256, ... 1024, or the whole array"
    fixed = list(block)
    for axis, unit in ((-2, SUBLANES), (-1, LANES)):
        if block[axis] != array[axis] and block[axis] % unit:
            fixed[axis] = min(array[axis], math.ceil(block[axis] / unit) * unit)
    return f"for example the block ({', '.join(map(str, fixed))}), with the grid and the index map to match"


def check_blocks(call: compat.PallasCall) -> None:
    """Every block lies in its array, and the blocks of an output cover it."""
    counts_of_axes = [g for g in call.grid if g is not None]
    if len(counts_of_axes) < len(call.grid):
        return
    points = math.prod(counts_of_axes)
    if points == 0:
        for output in call.of_kind("output"):
            if math.prod(output.array_shape) and not _aliased(call, output):
                raise _not_covered(call, output, f"the grid {call.grid} runs no program, so nothing is written.")
        return
    if points > MAX_POINTS:
        return
    axes = [a.ravel().astype(np.int32) for a in np.indices(counts_of_axes)] if counts_of_axes else []
    for operand in call.of_kind("input", "output"):
        if (
            not all(operand.blocked)
            or operand.memory_space in ("any", "hbm", "semaphore", "host")
            or not operand.array_shape
        ):
            continue
        counts = [-(-a // b) for a, b in zip(operand.array_shape, operand.block_shape)]
        blocks = index_maps.evaluate(operand.index_map, axes)
        if blocks is None:
            continue
        for axis, (index, count) in enumerate(zip(blocks, counts)):
            bad = (index < 0) | (index >= count)
            if bad.any() and count:
                at = int(np.argmax(bad))
                raise _out_of_bounds(call, operand, axis, int(index[at]), count, tuple(int(a[at]) for a in axes))
        if operand.kind == "output":
            _check_order(call, operand, blocks, counts, axes)
        if operand.kind == "output" and not _aliased(call, operand):
            flat = np.zeros(len(blocks[0]), np.int64)
            for index, count in zip(blocks, counts):
                flat = flat * count + index
            visited, total = np.unique(flat), math.prod(counts)
            if len(visited) < total:
                missing = int(np.setdiff1d(np.arange(min(total, len(visited) + 1)), visited)[0])
                first = tuple(int(i) for i in np.unravel_index(missing, counts))
                raise _not_covered(
                    call,
                    operand,
                    f"the grid {call.grid} visits {len(visited)} of {total} blocks of shape {operand.block_shape}; "
                    f"the first that no program writes is {first}.",
                )


def _check_order(call, output, blocks, counts, axes) -> None:
    """Programs along an axis declared "parallel" have no order, so they must not share a block of an output."""
    parallel = [a for a, kind in enumerate(call.semantics) if "parallel" in kind and call.grid[a] > 1]
    if not parallel:
        return
    block = np.zeros(len(blocks[0]), np.int64)
    for index, count in zip(blocks, counts):
        block = block * count + index
    lane = np.zeros(len(block), np.int64)
    for axis in parallel:
        lane = lane * call.grid[axis] + axes[axis]
    order = np.lexsort((lane, block))
    clash = (block[order][1:] == block[order][:-1]) & (lane[order][1:] != lane[order][:-1])
    if clash.any():
        at = int(np.argmax(clash))
        one, two = (tuple(int(a[order[i]]) for a in axes) for i in (at, at + 1))
        raise error(
            "kernel-race",
            f"programs {one} and {two} write the same block of `{output.name}`",
            where=call.where,
            why=f"dimension_semantics={call.semantics} declares grid axes {tuple(parallel)} parallel, so these "
            "programs have no order, and may run on two cores; the TPU compiler does not notice.",
            do="declare the axis 'arbitrary', or let the output's index map depend on it",
        )


def _aliased(call: compat.PallasCall, output: compat.Operand) -> bool:
    return any(o == output.index for _, o in call.aliases)


def _not_covered(call: compat.PallasCall, output: compat.Operand, why: str) -> Diagnostic:
    return error(
        "output-not-covered",
        f"part of `{output.name}` of shape {output.array_shape} is never written",
        where=call.where,
        why=why,
        do=[
            "make grid times block reach the whole output, and let the index map depend on the grid's axes",
            "if the rest should keep an input's values, alias that input: input_output_aliases={input: output}",
        ],
    )


def _out_of_bounds(call, operand, axis, index, count, point) -> Diagnostic:
    return error(
        "block-out-of-bounds",
        f"the index map of {operand.kind} `{operand.name}` picks block {index} of {count} in dimension {axis}",
        where=call.where,
        why=f"at grid point {point} that block starts outside the array of shape {operand.array_shape}: a device would "
        "read or write foreign memory.",
        do="make the grid smaller, or bound the index map. Index maps count blocks, not elements: "
        "lambda i: (i, 0), not lambda i: (i * rows, 0)",
    )
