"""`pallas_call` on torch tensors and on jax arrays.

Input: a kernel and its specs. Output: a `PallasFunction`: torch in, torch out; jax in, jax out; inside jit it inlines.
On the CPU it is one compiled XLA executable per signature. Law: everything that is wrong with a call is a diagnostic
before anything runs, and results do not depend on the caller's jax settings.
"""

from __future__ import annotations

import contextlib
import inspect
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from bridge.compat import cpu_device
from bridge.devices import Target
from bridge.diagnostics import Where, error
from pallas_core import compat, handover, laws, lowering, offline, shapes
from pallas_core import grid as _grid
from pallas_core.targets import tpu

#: Parameters of the TPU compiler: ``dimension_semantics=("parallel",)``, ``vmem_limit_bytes=64 * 2**20`` ...
compiler_params = pltpu.CompilerParams


@dataclass(frozen=True)
class _Executable:
    """One signature, compiled for the CPU."""

    run: Callable[..., Any]
    wide: bool


class PallasFunction:
    """A kernel with its grid and blocks, ready to be called; made by `pallas_call`.

    Attributes:
        kernel: the kernel function.
        name: for messages and profiles.
        target: where it runs.
        where: the line that made it.
    """

    def __init__(self, kernel: Callable[..., Any], outs: Sequence[shapes.Spec], single: bool, plan: _Plan):
        self.kernel, self._outs, self._single, self._plan = kernel, tuple(outs), single, plan
        self.name, self.target, self.where = plan.name, plan.target, plan.where
        self.__name__ = self.__qualname__ = plan.name
        self._cache: dict[Any, _Executable] = {}
        self._checked: set[Any] = set()

    # ------------------------------------------------------------------------------------------------ calling
    def __call__(self, *args: Any) -> Any:
        """Run the kernel.

        Args:
            *args: all torch tensors or all jax arrays (or tracers).

        Returns:
            One result, or a list of results, of the arguments' kind.

        Raises:
            Diagnostic: something is wrong with the arguments, the kernel or the target.
        """
        try:
            key = tuple([(a.dtype, a.shape) for a in args])
            entry = self._cache.get(key)
        except (AttributeError, TypeError):  # not arrays: `kind_of` says so
            key = entry = None
        kind = handover.kind_of(args)
        if kind != "torch" and (compat.is_tracing(args) or lowering.forced_target() is not None):
            return self._packed(self._inline(args))
        if entry is None:
            if self.target.kind != "cpu":
                return self._run_on_device(args, kind)
            entry = self._prepare(args)
            if entry is None:
                return self._packed([handover.empty_result(o.shape, o.dtype, kind) for o in self._outs])
            self._cache[key] = entry
        with compat.x64(True) if entry.wide else contextlib.nullcontext():
            if kind == "torch":
                results = [handover.export(r) for r in entry.run(*[handover.import_tensor(a) for a in args])]
            else:
                results = list(entry.run(*[_on_cpu(a) for a in args]))
        return results[0] if self._single else results

    def _packed(self, results: Sequence[Any]) -> Any:
        return results[0] if self._single else list(results)

    def on_jax(self, *args: Any) -> Any:
        """The same function on jax values only: what is traced to compile for another target."""
        return self._packed(self._inline(args))

    def lower(self, *args: Any, target: str | Target | None = None) -> lowering.Lowered:
        """Lower for a TPU without compiling; the static laws are checked.

        Args:
            *args: tensors, arrays or specs.
            target: ``"tpu:v5e"`` ...; the function's own when None. ``"tpu"`` alone means v5e.

        Returns:
            An object with ``.as_text()``.

        Raises:
            Diagnostic: as `compile_for`.
        """
        wanted = Target.parse(self.target if target is None else target)
        if wanted.kind == "tpu" and wanted.chip is None:
            wanted = Target("tpu", "v5e")
        return offline.lower_for(self, args, wanted)

    def check_target(self, target: Target, specs: Sequence[shapes.Spec]) -> None:
        """What can be refused before tracing for a target: arguments that don't fit, dtypes it has not.

        Raises:
            Diagnostic: ``operand-mismatch``, ``bad-block-spec``, ``tpu-dtype`` ...
        """
        self._check_operands(specs)
        if target.kind != "tpu":
            return
        named = [(f"argument {i}", s) for i, s in enumerate(specs)] + [
            (f"output {i}", s) for i, s in enumerate(self._outs)
        ]
        for what, one in named:
            if str(one.dtype) in tpu.REFUSED_DTYPES:
                raise laws.dtype_refused(str(one.dtype), what, Where.of_function(self.kernel) or self._plan.where)

    # ---------------------------------------------------------------------------------------------- the CPU
    def _prepare(self, args: Sequence[Any]) -> _Executable | None:
        """Check, trace and compile for one signature; None when all outputs are empty."""
        specs = [shapes.like(a) for a in args]
        self._check_operands(specs)
        if self._outs and not any(math.prod(o.shape) for o in self._outs):
            return None
        program, wide = self._trace_checked(specs)
        with compat.x64(wide):
            compiled = program.traced.lower().compile()
        return _Executable(compiled, wide)

    def _trace_checked(self, specs: Sequence[shapes.Spec]) -> tuple[lowering.Program, bool]:
        """Trace for the CPU and check the laws; 64-bit mode is on only if a value of the kernel needs it."""
        for i, one in enumerate(specs):
            if not math.prod(one.shape):
                raise error(
                    "empty-operand",
                    f"argument {i} of `{self.name}` has no elements: {shapes.text(one)}",
                    where=Where.caller(3),
                    why="a block holds at least one element, so an empty array has no block to read.",
                    do="return early for empty inputs",
                )
        where = jax.sharding.SingleDeviceSharding(cpu_device())
        wide = any(_is_wide(s) for s in (*specs, *self._outs))
        try:
            program = lowering.trace(
                self._all_outputs,
                specs,
                Target("cpu"),
                wide,
                where,
                kernel=self.kernel,
                where=self.where,
                name=self.name,
            )
        except Exception as exc:
            if wide or not lowering.wants_64_bits(exc):
                raise
            wide = True  # the kernel asks for a 64-bit value although its operands have none
            program = lowering.trace(
                self._all_outputs,
                specs,
                Target("cpu"),
                wide,
                where,
                kernel=self.kernel,
                where=self.where,
                name=self.name,
            )
        laws.check_everywhere(program)
        return program, wide

    # --------------------------------------------------------------------------------------- inside a trace
    def _inline(self, args: Sequence[Any]) -> Sequence[Any]:
        """The call on jax values, for whatever target is being traced; all outputs, as a sequence."""
        forced = lowering.forced_target()
        target = forced or self.target
        specs = [shapes.Spec(a.shape, a.dtype) for a in args]
        if forced is None:
            key = tuple((s.dtype, s.shape) for s in specs)
            if key not in self._checked:
                self._check_operands(specs)
                if target.kind == "cpu" and any(math.prod(o.shape) for o in self._outs):
                    self._trace_checked(specs)
                self._checked.add(key)
        if self._outs and not any(math.prod(o.shape) for o in self._outs):
            return [jax.numpy.zeros(o.shape, o.dtype) for o in self._outs]
        wide = any(_is_wide(s) for s in (*specs, *self._outs))
        with contextlib.nullcontext() if forced is not None else compat.x64(wide or compat.is_x64()):
            return self._plan.build(self.kernel, self._outs, interpret=self._plan.interpret(target))(*args)

    def _all_outputs(self, *args: Any) -> Sequence[Any]:
        return self._inline(args)

    def _run_on_device(self, args: Sequence[Any], kind: str) -> Any:
        self._check_operands([shapes.like(a) for a in args])
        platforms = {d.platform for d in jax.devices()} if compat.has_platform(self.target.kind) else set()
        if self.target.kind not in platforms:
            name = str(self.target) if self.target.chip else f"{self.target}:v5e"
            raise error(
                "target-not-here",
                f"`{self.name}` is for the target '{self.target}', and none is attached",
                where=Where.caller(3),
                why="jax sees no such device on this machine, so the kernel can be compiled, but not run.",
                do=[
                    f"compile it for a chip that is not here:\n    pc.compile_for(f, args, {name!r})",
                    "run it on the CPU: target='cpu'",
                ],
            )
        arrays = [handover.import_tensor(a) if kind == "torch" else a for a in args]
        device = jax.devices(self.target.kind)[0]
        results = jax.jit(self.on_jax)(*[jax.device_put(a, device) for a in arrays])
        if kind == "torch":
            back = jax.tree.map(lambda a: handover.export(jax.device_put(a, cpu_device())), results)
            return back
        return results

    # -------------------------------------------------------------------------------------------- checking
    def _check_operands(self, specs: Sequence[shapes.Spec]) -> None:
        plan = self._plan
        where = Where.caller(3)
        count = None if plan.in_specs is None else len(plan.in_specs) + plan.prefetch
        if count is not None and len(specs) != count:
            raise error(
                "operand-mismatch",
                f"`{self.name}` takes {count} arguments, not {len(specs)}",
                where=where,
                why=f"in_specs has {len(plan.in_specs or ())} specs"
                + (f", and {plan.prefetch} arguments are prefetched." if plan.prefetch else "."),
                do="pass one argument for every spec, prefetched ones first",
            )
        inputs = specs[plan.prefetch :]
        for i, (block, one) in enumerate(zip(plan.in_specs or (), inputs)):
            _grid.check_block(block, one.shape, plan.grid, plan.prefetch, f"in_specs[{i}]", plan.where)
        for source, out in plan.aliases.items():
            if source >= len(specs) or shapes.text(specs[source]) != shapes.text(self._outs[out]):
                given = shapes.text(specs[source]) if source < len(specs) else "nothing"
                raise error(
                    "bad-alias",
                    f"input {source} and output {out} of `{self.name}` are not of one shape and dtype",
                    where=plan.where,
                    why=f"input {given}, output {shapes.text(self._outs[out])}; an alias is the same memory.",
                    do="alias arrays of equal shape and dtype; positions count prefetched arguments too",
                )
        self._check_arity(len(specs))

    def _check_arity(self, operands: int) -> None:
        plan = self._plan
        positional = operands + len(self._outs)
        named: dict[str, int] = {}
        if isinstance(plan.scratch, dict):
            named = dict.fromkeys(plan.scratch, 0)
        else:
            positional += len(plan.scratch)
        try:
            signature = inspect.signature(self.kernel)
        except ValueError:  # a callable without a signature
            return
        try:
            signature.bind(*range(positional), **named)
        except TypeError:
            parts = [f"{operands} inputs", f"{len(self._outs)} outputs"]
            if plan.scratch:
                parts.append(f"{len(plan.scratch)} scratch buffers")
            raise error(
                "kernel-arity",
                f"the kernel `{self.name}` does not take {positional} Refs",
                where=Where.of_function(self.kernel) or plan.where,
                why=f"it is called with {', '.join(parts)}; its signature is {signature}.",
                do="give it one parameter for each: inputs first, then outputs, then scratch",
            ) from None

    def __repr__(self) -> str:
        ins = "whole arrays" if self._plan.in_specs is None else f"{len(self._plan.in_specs)} inputs"
        return f"<pc.pallas_call {self.name} grid={self._plan.grid} {ins} -> {', '.join(map(shapes.text, self._outs))}>"


@dataclass(frozen=True)
class _Plan:
    """Everything of a call but the kernel and the outputs."""

    grid: tuple[int, ...]
    in_specs: tuple[Any, ...] | None
    out_specs: tuple[Any, ...] | None
    scratch: Any
    prefetch: int
    aliases: dict[int, int]
    params: Any
    target: Target
    name: str
    where: Where | None = None
    interpreter: Any = field(default=None)

    def interpret(self, target: Target) -> Any:
        """Jax's ``interpret`` argument for a target."""
        return True if target.kind == "cpu" else False

    def build(self, kernel: Callable[..., Any], outs: Sequence[shapes.Spec], interpret: Any) -> Callable[..., Any]:
        """Jax's own pallas_call; results are always a sequence."""
        spec_kwargs: dict[str, Any] = {}
        if self.in_specs is not None:
            spec_kwargs["in_specs"] = list(self.in_specs)
        if self.out_specs is not None:
            spec_kwargs["out_specs"] = list(self.out_specs)
        options: dict[str, Any] = dict(
            out_shape=[jax.ShapeDtypeStruct(o.shape, o.dtype) for o in outs],
            input_output_aliases=self.aliases,
            interpret=interpret,
            name=self.name if self.name.isidentifier() else None,
        )
        if self.params is not None:
            options["compiler_params"] = self.params
        if self.prefetch:
            options["grid_spec"] = pltpu.PrefetchScalarGridSpec(
                num_scalar_prefetch=self.prefetch, grid=self.grid, scratch_shapes=self.scratch, **spec_kwargs
            )
        else:
            options |= dict(grid=self.grid, scratch_shapes=self.scratch, **spec_kwargs)
        return pl.pallas_call(kernel, **options)


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
    plan = _Plan(sizes, ins, out_blocks, scratch, prefetch, aliases, params, parsed, name or own, where)
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


def _is_wide(one: shapes.Spec) -> bool:
    return str(one.dtype) in ("int64", "uint64", "float64", "complex128")


def _on_cpu(a: jax.Array) -> jax.Array:
    if cpu_device() not in a.devices():
        raise error(
            "operand-mismatch",
            f"an array on {next(iter(a.devices()))} for a kernel that runs on the CPU",
            where=Where.caller(2),
            why="the target 'cpu' reads the arrays of the CPU.",
            do="jax.device_put(x, jax.devices('cpu')[0]), or give pallas_call the target where the array lives",
        )
    return a
