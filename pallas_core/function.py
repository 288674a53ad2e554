"""`PallasFunction`: a kernel with its grid and blocks, called on torch tensors or on jax arrays.

Input: arguments of one kind. Output: results of the same kind; inside jit it inlines. On the CPU it is one compiled
XLA executable per signature. Law: everything that is wrong with a call is a diagnostic before anything runs, and
results do not depend on the caller's jax settings.
"""

from __future__ import annotations

import contextlib
import inspect
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from bridge import graphs
from bridge.compat import cpu_device
from bridge.devices import Target
from bridge.diagnostics import Diagnostic, Where, error, note
from pallas_core import compat, derivatives, handover, laws, lowering, offline, shapes
from pallas_core import grid as _grid
from pallas_core.handover import Executable
from pallas_core.targets import tpu


@dataclass(frozen=True)
class Plan:
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


class PallasFunction:
    """A kernel with its grid and blocks, ready to be called; made by `pallas_call`.

    Attributes:
        kernel: the kernel function.
        name: for messages and profiles.
        target: where it runs.
        where: the line that made it.
    """

    def __init__(self, kernel: Callable[..., Any], outs: Sequence[shapes.Spec], single: bool, plan: Plan):
        self.kernel, self._outs, self._single, self._plan = kernel, tuple(outs), single, plan
        self.name, self.target, self.where = plan.name, plan.target, plan.where
        self.__name__ = self.__qualname__ = plan.name
        self._key = graphs.keep(self, plan.name)
        self._cache: dict[Any, Executable] = {}
        self._checked: set[Any] = set()

    # ------------------------------------------------------------------------------------------------ calling
    def __call__(self, *args: Any, **named: Any) -> Any:
        """Run the kernel.

        Args:
            *args: all torch tensors or all jax arrays (or tracers).
            **named: refused: a kernel's operands have positions, not names.

        Returns:
            One result, or a list of results, of the arguments' kind.

        Raises:
            Diagnostic: something is wrong with the arguments, the kernel or the target.
        """
        if graphs.tracing() and not named:
            return self._packed(graphs.call(self._key, args))
        if named:
            raise _refuse_names(self.name, list(named))
        try:
            key = tuple([(a.dtype, a.shape) for a in args])
            entry = self._cache.get(key)
        except (AttributeError, TypeError, RuntimeError):  # not arrays, or nested ones: what follows says so
            key = entry = None
        kind = handover.kind_of(args)
        if kind != "torch" and (compat.is_tracing(args) or lowering.forced_target() is not None):
            return self._packed(
                derivatives.guarded(self.name, self._inline, not (self._plan.aliases or self._plan.prefetch))(*args)
            )
        if entry is None:
            if self.target.kind != "cpu":
                return self._run_on_device(args, kind)
            if kind == "torch":
                self._check_tensors(args)
            entry = self._prepare(args)
            if entry is None:
                return self._packed([handover.empty_result(o.shape, o.dtype, kind) for o in self._outs])
            self._cache[key] = entry
        if kind == "torch":
            results = entry.run_on_tensors(args)
        else:
            with compat.x64(True) if entry.wide else contextlib.nullcontext():
                results = list(_run_on_arrays(entry, [_on_cpu(a) for a in args]))
        return results[0] if self._single else results

    def _packed(self, results: Sequence[Any]) -> Any:
        return results[0] if self._single else list(results)

    @property
    def outputs(self) -> tuple[shapes.Spec, ...]:
        """Shapes and dtypes of the results."""
        return self._outs

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
        if any(math.prod(o.shape) for o in self._outs):
            self._refuse_empty(specs)
        if target.kind != "tpu":
            return
        named = [(f"argument {i}", s) for i, s in enumerate(specs)] + [
            (f"output {i}", s) for i, s in enumerate(self._outs)
        ]
        for what, one in named:
            if str(one.dtype) in tpu.REFUSED_DTYPES:
                raise laws.dtype_refused(str(one.dtype), what, Where.of_function(self.kernel) or self._plan.where)

    # ---------------------------------------------------------------------------------------------- the CPU
    def _prepare(self, args: Sequence[Any]) -> Executable | None:
        """Check, trace and compile for one signature; None when all outputs are empty."""
        specs = [shapes.like(a) for a in args]
        self._check_operands(specs)
        if self._outs and not any(math.prod(o.shape) for o in self._outs):
            return None
        program, wide = self._trace_checked(specs)
        return Executable(program.traced, wide)

    def _trace_checked(self, specs: Sequence[shapes.Spec]) -> tuple[lowering.Program, bool]:
        """Trace for the CPU and check the laws; 64-bit mode is on only if a value of the kernel needs it."""
        self._refuse_empty(specs)
        for i, one in enumerate(self._outs):
            if np.dtype(one.dtype).kind == "c":
                raise error(
                    "complex-result",
                    f"output {i} of `{self.name}` is {one.dtype}",
                    where=Where.of_function(self.kernel) or self.where,
                    why="Pallas has no Refs of complex numbers to write to.",
                    do="return the real and the imaginary part as two outputs; torch.complex joins them",
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

    def _check_tensors(self, args: Sequence[Any]) -> None:
        """Whether tensors can be imported and results exported, before anything is traced."""
        with compat.x64(True):
            for a in args:
                handover.check_import(a)
        for i, one in enumerate(self._outs):
            handover.check_export(one.dtype, f"output {i} of `{self.name}`", self.where)

    def _refuse_empty(self, specs: Sequence[shapes.Spec]) -> None:
        for i, one in enumerate(specs):
            if not math.prod(one.shape):
                raise error(
                    "empty-operand",
                    f"argument {i} of `{self.name}` has no elements: {shapes.text(one)}",
                    where=Where.caller(3),
                    why="a block holds at least one element, so an empty array has no block to read.",
                    do="return early for empty inputs",
                )

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


def _is_wide(one: shapes.Spec) -> bool:
    return str(one.dtype) in ("int64", "uint64", "float64", "complex128")


def _refuse_names(name: str, named: Sequence[str]) -> Diagnostic:
    return error(
        "operand-mismatch",
        f"`{name}` got the argument {named[0]!r} by name",
        where=Where.caller(2),
        why="operands have positions: inputs of the kernel in order, prefetched ones first.",
        do="pass it by position: f(x)",
    )


def _run_on_arrays(entry: Executable, arrays: Sequence[jax.Array]) -> Sequence[jax.Array]:
    """Run on jax arrays; one with a layout of its own (shared from a permuted tensor) is first brought into order."""
    try:
        return entry.run(*arrays)
    except ValueError as exc:
        if not compat.is_layout_mismatch(exc):
            raise
    note(
        "strided-import",
        "an array with permuted strides is copied into row-major order",
        why="the kernel is compiled for row-major operands, and this array shares a permuted tensor's memory.",
        do="call the kernel with the tensor, or share a contiguous one",
    )
    return entry.run(*[jax.device_put(np.ascontiguousarray(np.asarray(a)), cpu_device()) for a in arrays])


def _on_cpu(a: jax.Array) -> jax.Array:
    try:
        devices = a.devices()
    except RuntimeError:
        if not a.is_deleted():
            raise
        raise error(
            "deleted-array",
            "an argument of the kernel was deleted",
            where=Where.caller(2),
            why="it was donated to a jitted function (donate_argnums), or deleted by name.",
            do="use the function's result, or don't donate what is still needed",
        ) from None
    if cpu_device() not in devices:
        raise error(
            "operand-mismatch",
            f"an array on {next(iter(devices))} for a kernel that runs on the CPU",
            where=Where.caller(2),
            why="the target 'cpu' reads the arrays of the CPU.",
            do="jax.device_put(x, jax.devices('cpu')[0]), or give pallas_call the target where the array lives",
        )
    return a
