"""`pallas_call` on torch tensors and on jax arrays.

Input: a kernel and its specs. Output: a `PallasFunction`: torch in, torch out; jax in, jax out. Law: a grid, a block,
an alias or an output that can't be right is a diagnostic here, before there are arguments.
"""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Callable, Mapping
from typing import Any

import jax
import numpy as np
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from bridge.devices import Target
from bridge.diagnostics import Where, error
from pallas_core import grid as _grid
from pallas_core import shapes
from pallas_core.function import PallasFunction, Plan

_PARAMETERS = tuple(f.name for f in dataclasses.fields(pltpu.CompilerParams))


def compiler_params(**options: Any) -> pltpu.CompilerParams:
    """Parameters of the TPU compiler.

    Args:
        **options: ``dimension_semantics=("parallel",)``, ``vmem_limit_bytes=64 * 2**20`` ..., as jax's
            ``pltpu.CompilerParams`` names them.

    Raises:
        Diagnostic: ``bad-argument``: there is no such parameter, or no such kind of axis.
    """
    unknown = [name for name in options if name not in _PARAMETERS]
    if unknown:
        near = difflib.get_close_matches(str(unknown[0]), _PARAMETERS, n=1)
        raise error(
            "bad-argument",
            f"the TPU compiler has no parameter {unknown[0]!r}",
            where=Where.caller(),
            why=f"its parameters are {', '.join(_PARAMETERS)}.",
            do=f"did you mean {near[0]!r}?" if near else "pc.compiler_params(dimension_semantics=('parallel',))",
        )
    semantics = options.get("dimension_semantics")
    kinds = [getattr(s, "value", s) for s in semantics] if isinstance(semantics, (tuple, list)) else [semantics]
    if semantics is not None and (isinstance(semantics, str) or any(k not in _grid.SEMANTICS for k in kinds)):
        raise error(
            "bad-argument",
            f"dimension_semantics={semantics!r}",
            where=Where.caller(),
            why=f"it is a tuple with one of {', '.join(map(repr, _grid.SEMANTICS))} for each axis of the grid.",
            do="dimension_semantics=('parallel', 'arbitrary')",
        )
    return pltpu.CompilerParams(**options)


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
        input_output_aliases: input position -> output position; the output starts as that input, and each output as
            one input at most.
        compiler_params: `pc.compiler_params(...)` for the TPU.
        target: ``"cpu"`` (default), or an accelerator that is attached.
        name: for messages; the kernel's own when None.

    Returns:
        A `PallasFunction`.

    Raises:
        Diagnostic: ``bad-argument``, ``bad-grid``, ``bad-block-spec``, ``bad-alias`` or ``unknown-target``.

    Blocks are checked against their arrays at every grid point before the first run. An index map that reads prefetched
    scalars is known at run time only: there the CPU takes the nearest block inside the array, silently, and a device
    reads what lies at that address. `verify` runs a kernel with its data and refuses such a block
    (``block-out-of-bounds``).
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
        _check_grid_spec(grid_spec, where)
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
    aliases = _checked_aliases(input_output_aliases, len(outs), where)
    own = getattr(kernel, "__name__", None) or getattr(getattr(kernel, "func", None), "__name__", None) or "kernel"
    scratch = _checked_scratch(scratch_shapes, where)
    params = _checked_params(compiler_params, where)
    _grid.check_semantics(getattr(params, "dimension_semantics", None) or (), len(sizes), where)
    if name is not None and not isinstance(name, str):
        raise error("bad-argument", f"name={name!r}", where=where, why="it is a string, or None.", do="name='mine'")
    plan = Plan(sizes, ins, out_blocks, scratch, prefetch, aliases, params, parsed, name or own, where)
    return PallasFunction(kernel, outs, single, plan)


def _check_grid_spec(spec: Any, where: Where | None) -> None:
    prefetch = getattr(spec, "num_scalar_prefetch", 0)
    is_spec = all(hasattr(spec, name) for name in ("grid", "in_specs", "out_specs", "scratch_shapes"))
    if is_spec and isinstance(prefetch, int) and not isinstance(prefetch, bool) and prefetch >= 0:
        return
    raise error(
        "bad-argument",
        f"num_scalar_prefetch={prefetch!r}" if is_spec else f"grid_spec is a {type(spec).__name__}",
        where=where,
        why="it counts the leading arguments that index maps read." if is_spec else "it is a pc.GridSpec.",
        do="grid_spec=pc.PrefetchScalarGridSpec(1, grid=(4,), in_specs=[...], out_specs=...)",
    )


def _checked_aliases(given: Any, outputs: int, where: Where | None) -> dict[int, int]:
    """``input_output_aliases`` as a dict of ints.

    Raises:
        Diagnostic: ``bad-alias``.
    """
    if given is None:
        return {}
    problem = f"input_output_aliases is a {type(given).__name__}" if not isinstance(given, Mapping) else ""
    aliases: dict[int, int] = {}
    for source, out in {} if problem else given.items():
        numbers = all(isinstance(n, (int, np.integer)) and not isinstance(n, bool) for n in (source, out))
        if not numbers or source < 0 or not 0 <= out < outputs:
            problem = f"input_output_aliases has {source!r}: {out!r}, and there are {outputs} outputs"
        elif int(out) in aliases.values():
            problem = f"input_output_aliases gives output {out} to two inputs"
        else:
            aliases[int(source)] = int(out)
    if problem:
        raise error(
            "bad-alias",
            problem,
            where=where,
            why="it maps positions of inputs to positions of outputs, one input to one output.",
            do="for example {0: 0}",
        )
    return aliases


def _checked_scratch(given: Any, where: Where | None) -> Any:
    """``scratch_shapes`` as a list or a dict."""
    named = isinstance(given, dict)
    good = isinstance(given, (dict, list, tuple)) and (not named or all(isinstance(k, str) for k in given))
    if good and all(hasattr(s, "get_ref_aval") for s in jax.tree.leaves(given, is_leaf=_is_buffer)):
        return given if named else list(given)
    raise error(
        "bad-argument",
        f"scratch_shapes={given!r}"[:200],
        where=where,
        why="it is a list of buffers, or a dict of them by the kernel's keyword arguments.",
        do="scratch_shapes=[pc.VMEM((8, 128), jnp.float32)]",
    )


def _is_buffer(value: Any) -> bool:
    return hasattr(value, "get_ref_aval")


def _checked_params(given: Any, where: Where | None) -> Any:
    if isinstance(given, dict):
        return compiler_params(**{str(name): value for name, value in given.items()})
    if given is None or type(given).__name__ == "CompilerParams":
        return given
    raise error(
        "bad-argument",
        f"compiler_params is a {type(given).__name__}",
        where=where,
        why="it holds parameters of the TPU compiler.",
        do="compiler_params=pc.compiler_params(dimension_semantics=('parallel',))",
    )


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
    if many and not len(out_shape):
        raise error(
            "bad-argument",
            "out_shape is empty",
            where=where,
            why="a kernel without outputs has no effect that could be seen.",
            do="out_shape=pc.like(x), or a list with one spec for each output",
        )
    return not many, [shapes.like(o) for o in (out_shape if many else [out_shape])]
