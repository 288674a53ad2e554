"""`pallas_call` on torch tensors and on jax arrays.

Input: a kernel and its specs. Output: a `PallasFunction`: torch in, torch out; jax in, jax out. Law: a grid, a block,
an alias or an output that can't be right is a diagnostic here, before there are arguments.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from bridge.devices import Target
from bridge.diagnostics import Where, error
from pallas_core import grid as _grid
from pallas_core import shapes
from pallas_core.function import PallasFunction, Plan

#: Parameters of the TPU compiler: ``dimension_semantics=("parallel",)``, ``vmem_limit_bytes=64 * 2**20`` ...
compiler_params = pltpu.CompilerParams


def pallas_call(
    kernel: Callable[..., Any],
    out_shape: Any = None,
    *,
    grid: Any = None,
    in_specs: Any = None,
    out_specs: Any = None,
    scratch_shapes: Any = (),
    grid_spec: Any = None,
    input_output_aliases: dict[int, int] | None = None,
    compiler_params: Any = None,
    target: str | Target = "cpu",
    name: str | None = None,
) -> PallasFunction:
    """Make a function of a Pallas kernel; it takes torch tensors or jax arrays.

    Args:
        kernel: a function of Refs: inputs, then outputs, then scratch. Closures, lambdas and partials are fine.
        out_shape: `pc.like(x)`, `pc.spec(shape, dtype)`, or a list of them for several outputs.
        grid: programs per axis, an int or a tuple; () runs one program.
        in_specs: one `pc.BlockSpec` an input; None: every program sees whole arrays.
        out_specs: likewise for outputs; a single spec for a single output.
        scratch_shapes: buffers such as ``pc.VMEM((8, 128), jnp.float32)``, a list or a dict of keyword arguments.
        grid_spec: a `pc.GridSpec` in place of the four arguments before (scalar prefetch lives there).
        input_output_aliases: input position -> output position; the output starts as that input.
        compiler_params: `pc.compiler_params(...)` for the TPU.
        target: ``"cpu"`` (default), or an accelerator that is attached.
        name: for messages; the kernel's own when None.

    Returns:
        A `PallasFunction`.

    Raises:
        Diagnostic: ``bad-argument``, ``bad-grid``, ``bad-block-spec``, ``bad-alias`` or ``unknown-target``.
    """
    where = Where.caller(2)
    parsed = Target.parse(target)
    if not callable(kernel):
        raise error(
            "bad-argument",
            f"the kernel is a {type(kernel).__name__}, not a function",
            where=where,
            why="a kernel is a function of Refs.",
            do="def kernel(x_ref, o_ref): o_ref[...] = x_ref[...] + 1",
        )
    single, outs = _outputs(out_shape, where)
    prefetch = 0
    if grid_spec is not None:
        if any(v is not None for v in (grid, in_specs, out_specs)) or scratch_shapes:
            raise error(
                "bad-argument",
                "grid_spec comes together with grid, in_specs, out_specs or scratch_shapes",
                where=where,
                why="a grid spec holds all of them.",
                do="give either the grid_spec or the single arguments",
            )
        grid, in_specs, out_specs = grid_spec.grid, grid_spec.in_specs, grid_spec.out_specs
        scratch_shapes = grid_spec.scratch_shapes
        prefetch = getattr(grid_spec, "num_scalar_prefetch", 0)
        in_specs = None if in_specs is pl.no_block_spec else in_specs
        out_specs = None if out_specs is pl.no_block_spec else out_specs
    sizes = _grid.checked_grid(() if grid is None else grid, where)
    ins = _grid.checked_specs(in_specs, None, "in_specs", where)
    out_blocks = _grid.checked_specs(out_specs, len(outs), "out_specs", where)
    for i, (block, out) in enumerate(zip(out_blocks or (), outs)):
        _grid.check_block(block, out.shape, sizes, prefetch, f"out_specs[{i}]", where)
    for i, block in enumerate(ins or ()):
        if block.block_shape is not None:
            _grid.check_block(block, block.block_shape, sizes, prefetch, f"in_specs[{i}]", where)
    aliases = dict(input_output_aliases or {})
    for source, out in aliases.items():
        if not (isinstance(source, int) and isinstance(out, int) and source >= 0 and 0 <= out < len(outs)):
            raise error(
                "bad-alias",
                f"input_output_aliases has {source!r}: {out!r}, and there are {len(outs)} outputs",
                where=where,
                why="it maps positions of inputs to positions of outputs.",
                do="for example {0: 0}",
            )
    own = getattr(kernel, "__name__", None) or getattr(getattr(kernel, "func", None), "__name__", None) or "kernel"
    scratch = scratch_shapes if isinstance(scratch_shapes, dict) else list(scratch_shapes)
    params = pltpu.CompilerParams(**compiler_params) if isinstance(compiler_params, dict) else compiler_params
    plan = Plan(sizes, ins, out_blocks, scratch, prefetch, aliases, params, parsed, name or own, where)
    return PallasFunction(kernel, outs, single, plan)


def _outputs(out_shape: Any, where: Where | None) -> tuple[bool, list[shapes.Spec]]:
    if out_shape is None:
        raise error(
            "bad-argument",
            "pallas_call has no out_shape",
            where=where,
            why="a kernel writes into its outputs, so their shapes and dtypes must be known.",
            do="out_shape=pc.like(x), or pc.spec((512, 1024), torch.float32)",
        )
    many = isinstance(out_shape, list) or (
        isinstance(out_shape, tuple) and not (len(out_shape) == 2 and isinstance(out_shape[0], (tuple, list, int)))
    )
    return not many, [shapes.like(o) for o in (out_shape if many else [out_shape])]
