"""Launches: a kernel on torch tensors, in place, or on jax arrays, functionally.

Input: a Python function and the arguments of a launch. Output: the caller's tensors written (torch) or new arrays
(jax). Law: the source that `source()` shows is what runs; every check comes before the first write; elements that no
program writes keep their value, and views of a tensor see the result.
"""

from __future__ import annotations

import functools
import hashlib
import linecache
import threading
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch

from bridge import compat
from bridge.diagnostics import Diagnostic, Where, error, note
from frontend_triton_compat.access import Memory
from frontend_triton_compat.arguments import Call, Signature, aliases_of, grid_of, memory_of, tensor_in_key
from frontend_triton_compat.emit import cpu
from frontend_triton_compat.emit.program import KeepWhole
from frontend_triton_compat.ir import Kernel
from frontend_triton_compat.parse import parse
from frontend_triton_compat.schedule import Schedule, schedule, too_small


#: Called with (kernel, grid, bound arguments) before every launch; see `record`.
observers: list[Callable[..., None]] = []


def plan_for(
    build: Callable[[], Kernel],
    memories: dict[str, Memory],
    aliases: dict[str, tuple[str, int]],
    emit: Callable[[Schedule], Any],
) -> tuple[Schedule, Any]:
    """Schedule and emit, keeping variables whole where the emitter found that it needs them."""
    compat.quiet_cpu_start()  # emitters fold constants with jax
    uncropped: frozenset[str] = frozenset()
    while True:
        plan = schedule(build(), memories, uncropped, aliases)
        try:
            return plan, emit(plan)
        except KeepWhole as refused:
            if refused.var.name in uncropped:
                raise error("internal-error", f"variable {refused.var.name} cannot be kept whole") from refused
            uncropped |= {refused.var.name}


class Compiled:
    """One specialisation, ready to run."""

    def __init__(self, plan: Schedule, module: cpu.Module, arrays: Sequence[str]):
        self.plan, self.module = plan, module
        self.entry = load_source(module.source, module.entry)
        self.jitted = jax.jit(self.entry)
        self.arrays = tuple(arrays)
        self.short = any(v.pad != (0, 0) for v in plan.views.values())
        self.on_jax = jax.jit(self._functional)

    # -- torch

    def run_torch(self, call: Call) -> None:
        """Run and write the results into the caller's tensors."""
        with compat.x64():
            operands = []
            for operand in self.module.operands:
                if operand.scalar:
                    param = next(p for p in self.plan.kernel.params if p.name == operand.param)
                    operands.append(np.array([call.scalars[operand.param]], param.type.numpy_name))
                    continue
                t = call.arrays[operand.param].detach()
                offset = t.storage_offset() + operand.start
                if t.shape != operand.shape or operand.start or not t.is_contiguous():
                    t = t.as_strided(operand.shape, _compact(operand.shape), offset)
                operands.append(compat.share_with_jax(t))
            results = self.jitted(*operands)
            # The caller may change an input as soon as we return, so everything has to be computed by then.
            outputs = [compat.share_with_torch(r) for r in results]
        for result, output in zip(self.module.results, outputs):
            t = call.arrays[result.param].detach()
            start = t.storage_offset() + result.start
            if all(b == (0, n) for b, n in zip(result.box, result.shape)):
                if t.shape == result.shape and t.is_contiguous() and not result.start:
                    t.copy_(output)
                else:
                    t.as_strided(result.shape, result.strides, start).copy_(output)
                continue
            sizes = [hi - lo for lo, hi in result.box]
            start += sum(lo * s for (lo, _), s in zip(result.box, result.strides))
            for axis, (lo, hi) in enumerate(result.box):
                output = output.narrow(axis, lo, hi - lo)
            t.as_strided(sizes, result.strides, start).copy_(output)

    # -- jax

    def _functional(self, arrays: dict[str, jax.Array], scalars: dict[str, Any]) -> dict[str, jax.Array]:
        operands = []
        for operand in self.module.operands:
            if operand.scalar:
                operands.append(jnp.reshape(scalars[operand.param], (1,)))
                continue
            flat = arrays[operand.param].reshape(-1)
            size = int(np.prod(operand.shape, dtype=np.int64))
            operands.append(flat[operand.start : operand.start + size].reshape(operand.shape))
        out = {}
        for result, new in zip(self.module.results, self.entry(*operands)):
            old = arrays[result.param]
            size = int(np.prod(result.shape, dtype=np.int64))
            flat = old.reshape(-1).at[result.start : result.start + size].set(new.reshape(-1))
            out[result.param] = flat.reshape(old.shape)
        return out

    def run_jax(self, call: Call) -> Any:
        """Run and return the new arrays: one, or a tuple in the order of the parameters."""
        with compat.x64():
            scalars = {
                p.name: np.asarray(call.scalars[p.name], p.type.numpy_name)
                for p in self.plan.kernel.params
                if p.kind == "float"
            }
            new = self.on_jax(call.arrays, scalars)
        ordered = tuple(new[name] for name in call.arrays if name in new)
        return ordered[0] if len(ordered) == 1 else ordered


def _compact(shape: tuple[int, ...]) -> tuple[int, ...]:
    out, size = [], 1
    for n in reversed(shape):
        out.append(size)
        size *= n
    return tuple(reversed(out))


def load_source(source: str, entry: str) -> Callable[..., Any]:
    """Execute emitted source and return its entry; tracebacks show its lines."""
    digest = hashlib.sha1(source.encode()).hexdigest()[:10]
    filename = f"<torch-pallas {entry} {digest}>"
    linecache.cache[filename] = (len(source), None, source.splitlines(keepends=True), filename)
    scope: dict[str, Any] = {"__name__": f"torch_pallas_{entry}"}
    exec(compile(source, filename, "exec"), scope)  # our own text
    return scope[entry]


class Launcher:
    """A kernel with its grid: call it to launch."""

    __slots__ = ("grid", "kernel")

    def __init__(self, kernel: JITFunction, grid: Any):
        self.kernel, self.grid = kernel, grid

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.kernel._launch(self.grid, *args, **kwargs)

    def source(self, *args: Any, target: str = "cpu", **kwargs: Any) -> str:
        """See `JITFunction.source`."""
        return self.kernel.source(*args, grid=self.grid, target=target, **kwargs)

    def check(self, *args: Any, target: str = "tpu:v5e", **kwargs: Any) -> Any:
        """See `JITFunction.check`."""
        return self.kernel.check(*args, grid=self.grid, target=target, **kwargs)


class JITFunction:
    """A Triton kernel: launched with ``kernel[grid](...)``, or called from another kernel.

    Attributes:
        fn: the Python function.
        arg_names: its parameters.
    """

    def __init__(self, fn: Callable[..., Any], **options: Any):
        self.fn = fn
        self.options = options
        self.pre_run_hooks: list[Callable[..., Any]] = []
        self.cache: dict[Any, Compiled | str] = {}
        self._lock = threading.Lock()
        self._last_grid: Any = None
        functools.update_wrapper(self, fn)

    @functools.cached_property
    def where(self) -> Where | None:
        """The ``def`` line (the decorator's, as Python counts)."""
        return Where.of_function(self.fn)

    @functools.cached_property
    def _signature(self) -> Signature:
        return Signature(self.fn, self.where)

    @property
    def arg_names(self) -> list[str]:
        """The parameters' names."""
        return self._signature.names

    @property
    def __globals__(self) -> dict[str, Any]:
        return self.fn.__globals__

    def __getitem__(self, grid: Any) -> Launcher:
        return Launcher(self, grid)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise error(
            "outside-kernel",
            f"{self.fn.__name__} is a kernel and was called like a function",
            where=Where.caller(2),
            do=f"launch it over a grid of programs: {self.fn.__name__}[grid](...)",
        )

    def __repr__(self) -> str:
        return f"JITFunction({self.fn.__module__}:{self.fn.__qualname__})"

    def run(self, *args: Any, grid: Any, warmup: bool = False, **kwargs: Any) -> Any:
        """Launch over `grid`; with ``warmup=True``, only translate and compile."""
        if warmup:
            return self._compiled(self._signature.call(args, kwargs), grid)[1]
        return self._launch(grid, *args, **kwargs)

    def warmup(self, *args: Any, grid: Any, **kwargs: Any) -> Any:
        """Translate and compile for these arguments without running."""
        return self.run(*args, grid=grid, warmup=True, **kwargs)

    def add_pre_run_hook(self, hook: Callable[..., Any]) -> None:
        """Call `hook` with the arguments before every launch."""
        self.pre_run_hooks.append(hook)

    # -- the launch

    def _launch(self, grid: Any, *args: Any, **kwargs: Any) -> Any:
        for hook in self.pre_run_hooks:
            hook(*args, **kwargs)
        call = self._signature.call(args, kwargs)
        for observe in observers:
            observe(self, grid_of(grid, call.meta, self.where), call.meta)
        on_jax, compiled = self._compiled(call, grid)
        self._last_grid = grid
        try:
            return compiled.run_jax(call) if on_jax else compiled.run_torch(call)
        except Diagnostic:
            raise
        except (TypeError, ValueError, NotImplementedError, RuntimeError, IndexError, KeyError) as surprise:
            raise self._defect(surprise) from surprise

    def _defect(self, surprise: Exception) -> Diagnostic:
        return error(
            "internal-error",
            f"{type(surprise).__name__} while translating {self.fn.__name__}: {str(surprise).splitlines()[0] if str(surprise) else ''}",
            where=self.where,
            why="the kernel is not at fault: torch-pallas lacks a case it should have",
            do="report it with the kernel's source; nothing was written",
        )

    def _compiled(self, call: Call, grid: Any) -> tuple[bool, Compiled]:
        kinds = {isinstance(a, torch.Tensor) for a in call.arrays.values()}
        if len(kinds) == 2:
            raise error(
                "launch-device",
                "torch tensors and jax arrays in one launch",
                where=self.where,
                why="torch tensors are written in place, jax arrays are replaced by new ones",
                do="convert with bridge.to_torch or bridge.to_jax",
            )
        sizes = grid_of(grid, call.meta, self.where)
        found = self._find(call, sizes, exact=False)
        if found is None:
            found = self._find(call, sizes, exact=True)
        assert found is not None
        return kinds == {False}, found

    def _find(self, call: Call, grid: tuple[int, int, int], exact: bool) -> Compiled | None:
        memories = {name: memory_of(name, a, exact) for name, a in call.arrays.items()}
        elements = _elements(call)
        aliases = aliases_of(call.arrays, elements, self.where) if len(call.arrays) > 1 else {}
        key = (
            exact,
            grid,
            tuple(call.key),
            tuple(tensor_in_key(a, memories[n]) for n, a in call.arrays.items()),
            tuple(aliases.items()),
        )
        found = self.cache.get(key)
        if found is None:
            with self._lock:
                found = self.cache.get(key)
                if found is None:
                    found = self.cache[key] = self._translate(call, grid, memories, aliases, exact)
        return None if isinstance(found, str) else found

    def _translate(
        self,
        call: Call,
        grid: tuple[int, int, int],
        memories: dict[str, Memory],
        aliases: dict[str, tuple[str, int]],
        exact: bool,
    ) -> Compiled | str:
        for name, memory in memories.items():
            if 0 in memory.shape:
                raise error(
                    "empty-tensor",
                    f"argument {name!r} has shape {memory.shape}: no elements",
                    where=self.where,
                    why="a pointer to an empty tensor points at no memory",
                    do=f"skip the launch when {name}.numel() == 0, or pass None for an argument that is not used",
                )
        params = {p.name: p for p in call.params}
        try:
            plan, module = plan_for(lambda: parse(self.fn, params, grid), memories, aliases, cpu.emit)
        except Diagnostic:
            raise
        except (TypeError, ValueError, NotImplementedError, RuntimeError, IndexError, KeyError, AttributeError, AssertionError) as surprise:
            raise self._defect(surprise) from surprise
        if not exact and any(v.pad != (0, 0) for v in plan.views.values()):
            cut = any(memory_of(n, a, True) != memories[n] for n, a in call.arrays.items())
            if cut:
                return "exact"  # some access goes beyond the part of the storage that the short key describes
        for name in plan.written:
            memory = memories[name]
            if any(s == 0 and n > 1 for s, n in zip(memory.strides, memory.shape)):
                raise error(
                    "overlapping-output",
                    f"argument {name!r} is stored to, but its elements share memory (strides {memory.strides})",
                    where=self.where,
                    why="several elements of an expanded tensor are one place in memory",
                    do=f"pass a tensor of its own: {name}.contiguous()",
                )
        short = too_small(plan)
        if short is not None:
            access, reached, allowed = short
            note(
                "grid-too-small",
                f"the grid {grid} reaches element {reached} of {allowed} that the mask of the store to {access.param!r} allows",
                where=access.op.where,
                why="the elements behind it keep their old values",
                do="launch enough programs: grid = (triton.cdiv(n, BLOCK),)",
            )
        return Compiled(plan, module, list(call.arrays))

    # -- what a user asks

    def source(self, *args: Any, grid: Any = None, target: str = "cpu", **kwargs: Any) -> str:
        """The Pallas source that runs for these arguments on `target`.

        Args:
            *args: the launch's arguments; arrays may be without data (meta tensors, `pc.spec`).
            grid: the launch's grid; the last launch's when None.
            target: ``cpu`` or ``tpu:v5e`` ...
            **kwargs: the launch's keyword arguments.

        Raises:
            TranslationError: the kernel has no translation for the target.
        """
        from frontend_triton_compat.offline import translate  # imported late: brings in every emitter

        return translate(self, args, kwargs, self._grid_or_last(grid), target).source

    def check(self, *args: Any, grid: Any = None, target: str = "tpu:v5e", **kwargs: Any) -> Any:
        """Ask the target's real compiler about the kernel, without the target.

        Args:
            *args: the launch's arguments; arrays may be without data (meta tensors, `pc.spec`).
            grid: the launch's grid; the last launch's when None.
            target: ``tpu:v5e``, ``tpu:v6e``, ``tpu:7x`` ...
            **kwargs: the launch's keyword arguments.

        Returns:
            A `frontend_triton_compat.offline.Verdict`; prints as a line.
        """
        from frontend_triton_compat.offline import check

        return check(self, args, kwargs, self._grid_or_last(grid), target)

    def _grid_or_last(self, grid: Any) -> Any:
        if grid is not None:
            return grid
        if self._last_grid is None:
            raise error(
                "launch-grid",
                f"{self.fn.__name__} was not launched yet, so its grid is not known",
                where=self.where,
                do="say it: kernel.check(..., grid=(16,)) or kernel[(16,)].check(...)",
            )
        return self._last_grid


def _elements(call: Call) -> dict[str, Any]:
    out = {}
    stack = list(call.params)
    while stack:
        p = stack.pop()
        stack += p.items
        if p.kind == "pointer":
            out[p.name] = p.type
    return out


def jit(fn: Callable[..., Any] | None = None, **options: Any) -> Any:
    """Decorator: a Python function becomes a Triton kernel.

    Args:
        fn: the function.
        **options: Triton's (``do_not_specialize``, ``noinline``, ``debug``, ...); accepted, and without effect on the CPU.
    """
    if fn is None:
        return lambda f: jit(f, **options)
    if isinstance(fn, JITFunction):
        return fn
    return JITFunction(fn, **options)
