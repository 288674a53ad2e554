"""One specialisation of a kernel, ready to run on torch tensors or jax arrays.

Input: a schedule and the module emitted from it. Output: the caller's tensors written (torch) or new arrays (jax). Law:
the module's text is what runs; nothing is written before every result is there; elements that no program writes keep
their value, and views of a tensor see the result.
"""

from __future__ import annotations

import functools
import hashlib
import linecache
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch

from bridge import compat
from bridge.diagnostics import error
from bridge.engine import CallsBack, Engine, JaxEngine, Number, Program, Window, collect_results, share_with_torch
from frontend_triton_compat.aliases import flat_params
from frontend_triton_compat.arguments import Call
from frontend_triton_compat.emit import cpu
from frontend_triton_compat.schedule import Schedule


class Compiled:
    """One specialisation, ready to run."""

    def __init__(self, plan: Schedule, module: cpu.Module):
        self.plan, self.module = plan, module
        self.handle: Any = None  # what launches return, see `warmup.handle_of`: the last one, and all of them
        self.handles: list[Any] = []
        self._scalar_types = {p.name: p.type.numpy_name for p in flat_params(plan.kernel.params) if p.kind == "float"}
        self._element_types = {
            p.name: p.type.numpy_name for p in flat_params(plan.kernel.params) if p.kind == "pointer"
        }
        self.on_jax = jax.jit(self._functional)
        self._ways: dict[bool, _Way] = {}
        self._lock = threading.Lock()

    @functools.cached_property
    def entry(self) -> Callable[..., Any]:
        """The module's entry."""
        return load_source(self.module.source, self.module.entry)

    def __repr__(self) -> str:
        where = self.plan.kernel.where
        operands, results = (
            ", ".join(dict.fromkeys(o.param for o in which)) for which in (self.module.operands, self.module.results)
        )
        return f"Compiled({self.plan.kernel.name}({operands}) -> {results or 'nothing'}, from {where})"

    # -- torch

    def run(self, call: Call) -> None:
        """Run and write the results into the caller's tensors."""
        self.run_with(call.arrays, call.scalars)

    def run_with(self, arrays: Mapping[str, Any], scalars: Mapping[str, float]) -> None:
        """As `run`.

        Args:
            arrays: parameter -> tensor, and it may be more than these.
            scalars: parameter -> number, and it may be more than these.
        """
        way = self._ways.get(torch.get_num_threads() == 1)
        if way is None:
            with self._lock:
                way = self._ways.get(torch.get_num_threads() == 1) or self._way(arrays)
        collect_results()
        operands, lent = [], []
        for name, start, plain, cache, window in way.takes:
            if window is None:
                cell = cache.take(scalars[name])
                lent.append((cache, cell))
                operands.append(cell[0])
                continue
            t = arrays[name]
            pointer = t.data_ptr() + start
            array = cache.get(pointer)
            if array is None:
                cell = window.take(pointer) if window.small else None
                if cell is None:
                    array = window(pointer, t if plain else None)
                else:
                    lent.append((window, cell))
                    array = cell[0]
            operands.append(array)
        # Every result is there before the first of them is written.
        outputs = [share_with_torch(r) for r in way.program(operands)]
        for lender, cell in lent:
            lender.give(cell)
        if self.module.checks:
            self._refuse_failed(int(outputs[-1]))
        for put, output in zip(way.puts, outputs):
            t = arrays[put.param]
            if t.requires_grad:
                t = t.detach()
            if put.view is not None:
                if put.box is not None:
                    for axis, (lo, hi) in enumerate(put.box):
                        output = output.narrow(axis, lo, hi - lo)
                sizes, strides, start = put.view
                t = t.as_strided(sizes, strides, t.storage_offset() + start)
            t.copy_(output)

    def _refuse_failed(self, failed: int) -> None:
        """Refuse the results of a launch in which an assertion did not hold, or a program waited in vain."""
        if not failed:
            return
        check = self.module.checks[failed - 1]
        if check.message is not None:
            raise error(
                "device-assert",
                check.message or "an assertion of the kernel does not hold",
                where=check.where,
                why="debug is on, so assertions are checked; in at least one program this one is false. Nothing was "
                "written",
                do="launch the kernel with arguments that satisfy it; without debug=True and TRITON_DEBUG=1 assertions "
                "are left out, as in Triton",
            )
        raise error(
            "waits-forever",
            "a program waits in this loop for something that no program before it did",
            where=check.where,
            why="on the CPU, programs that see each other's writes run one after the other: a lock has to be free "
            "when the next program begins, and a flag set by an earlier one. Nothing was written",
            do="release the lock at the end of the program, wait only for programs with lower numbers, or check "
            "that the lock and the flags are zero at the launch",
        )

    def _way(self, arrays: Mapping[str, Any]) -> _Way:
        engine = Engine.current()
        avals = []
        for operand in self.module.operands:
            kinds = self._scalar_types if operand.scalar else self._element_types
            shape = (1,) if operand.scalar else operand.shape
            avals.append(jax.ShapeDtypeStruct(shape, getattr(jnp, kinds[operand.param])))

        def entry(*arrays: Any) -> Any:
            return self.entry(*arrays)

        entry.__name__ = self.module.entry
        text = f"{self.module.source}\n# entry {self.module.entry}"
        try:
            program = engine.compile(entry, avals, text)
        except CallsBack:
            engine = JaxEngine()
            program = engine.compile(entry, avals)
        takes: list[tuple[Any, ...]] = []
        for operand in self.module.operands:
            if operand.scalar:
                number = Number(engine, self._scalar_types[operand.param])
                takes.append((operand.param, 0, False, number, None))
                continue
            t = arrays[operand.param]
            plain = t.shape == operand.shape and not operand.start and t.is_contiguous()
            window = Window(engine, t.dtype, operand.shape)
            takes.append((operand.param, operand.start * t.element_size(), plain, window.cache, window))
        way = self._ways[engine.serial] = _Way(program, takes, self._results(arrays))
        return way

    def _results(self, arrays: Mapping[str, Any]) -> list[_Put]:
        puts: list[_Put] = []
        for result in self.module.results:
            t = arrays[result.param]
            whole = all(b == (0, n) for b, n in zip(result.box, result.shape))
            if whole and t.shape == result.shape and t.is_contiguous() and not result.start:
                puts.append(_Put(result.param))
                continue
            sizes = tuple(hi - lo for lo, hi in result.box)
            start = result.start + sum(lo * s for (lo, _), s in zip(result.box, result.strides))
            puts.append(_Put(result.param, (sizes, result.strides, start), None if whole else result.box))
        return puts

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
        out, news = {}, self.entry(*operands)
        if self.module.checks:
            out[""] = news[-1]
        for result, new in zip(self.module.results, news):
            old = arrays[result.param]
            size = int(np.prod(result.shape, dtype=np.int64))
            flat = old.reshape(-1).at[result.start : result.start + size].set(new.reshape(-1))
            out[result.param] = flat.reshape(old.shape)
        return out

    def run_jax(self, call: Call) -> Any:
        """Run and return the new arrays: one, or a tuple in the order of the parameters."""
        with compat.x64():
            scalars = {n: np.asarray(call.scalars[n], kind) for n, kind in self._scalar_types.items()}
            new = self.on_jax(call.arrays, scalars)
        if self.module.checks:
            self._refuse_failed(int(new[""][0]))
        ordered = tuple(new[name] for name in call.arrays if name in new)
        return ordered[0] if len(ordered) == 1 else ordered


@dataclass(frozen=True)
class _Put:
    """One result: where in the caller's tensor (shape, strides, offset) it goes, and which part of it."""

    param: str
    view: tuple[Any, ...] | None = None
    box: tuple[tuple[int, int], ...] | None = None


@dataclass(frozen=True, eq=False)
class _Way:
    """A program for one engine, with the way in and out.

    Attributes:
        program: the program.
        takes: an operand each: (parameter, first byte, whether it is the tensor itself, cache by address, `Window`),
            or for a number (parameter, 0, False, `Number`, None).
        puts: a result each.
    """

    program: Program
    takes: list[tuple[Any, ...]]
    puts: list[_Put]


def load_source(source: str, entry: str) -> Callable[..., Any]:
    """Execute emitted source and return its entry; tracebacks show its lines."""
    digest = hashlib.sha1(source.encode()).hexdigest()[:10]
    filename = f"<torch-pallas {entry} {digest}>"
    linecache.cache[filename] = (len(source), None, source.splitlines(keepends=True), filename)
    scope: dict[str, Any] = {"__name__": f"torch_pallas_{entry}"}
    exec(compile(source, filename, "exec"), scope)  # our own text
    return scope[entry]
