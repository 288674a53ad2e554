"""One specialisation of a kernel, ready to run on torch tensors or jax arrays.

Input: a schedule and the module emitted from it. Output: the caller's tensors written (torch) or new arrays (jax). Law:
the module's text is what runs; nothing is written before every result is there; elements that no program writes keep
their value, and views of a tensor see the result.
"""

from __future__ import annotations

import hashlib
import linecache
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from bridge import compat
from frontend_triton_compat.arguments import Call, flat_params
from frontend_triton_compat.emit import cpu
from frontend_triton_compat.schedule import Schedule


class Compiled:
    """One specialisation, ready to run."""

    def __init__(self, plan: Schedule, module: cpu.Module):
        self.plan, self.module = plan, module
        self.entry = load_source(module.source, module.entry)
        self.jitted = jax.jit(self.entry)
        self._scalar_types = {p.name: p.type.numpy_name for p in flat_params(plan.kernel.params) if p.kind == "float"}
        self.on_jax = jax.jit(self._functional)

    # -- torch

    def route(self, call: Call) -> Route:
        """How the arguments of this launch, and of every one whose tensors are laid out alike, are handed over."""
        takes: list[_Take] = []
        for operand in self.module.operands:
            if operand.scalar:
                takes.append(_Take(operand.param, np.dtype(self._scalar_types[operand.param])))
                continue
            t = call.arrays[operand.param]
            plain = t.shape == operand.shape and not operand.start and t.is_contiguous()
            view = None if plain else (operand.shape, _compact(operand.shape), t.storage_offset() + operand.start)
            takes.append(_Take(operand.param, None, view))
        puts: list[_Put] = []
        for result in self.module.results:
            t = call.arrays[result.param]
            whole = all(b == (0, n) for b, n in zip(result.box, result.shape))
            if whole and t.shape == result.shape and t.is_contiguous() and not result.start:
                puts.append(_Put(result.param))
                continue
            sizes = tuple(hi - lo for lo, hi in result.box)
            start = t.storage_offset() + result.start + sum(lo * s for (lo, _), s in zip(result.box, result.strides))
            puts.append(_Put(result.param, (sizes, result.strides, start), None if whole else result.box))
        return Route(self, tuple(takes), tuple(puts))

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
            scalars = {n: np.asarray(call.scalars[n], kind) for n, kind in self._scalar_types.items()}
            new = self.on_jax(call.arrays, scalars)
        ordered = tuple(new[name] for name in call.arrays if name in new)
        return ordered[0] if len(ordered) == 1 else ordered


@dataclass(frozen=True)
class _Take:
    """One operand: a number of some dtype, or a tensor, perhaps under another view (shape, strides, offset)."""

    param: str
    number: np.dtype[Any] | None = None
    view: tuple[Any, ...] | None = None


@dataclass(frozen=True)
class _Put:
    """One result: where in the caller's tensor (shape, strides, offset) it goes, and which part of it."""

    param: str
    view: tuple[Any, ...] | None = None
    box: tuple[tuple[int, int], ...] | None = None


@dataclass(frozen=True, eq=False)
class Route:
    """A compiled form with the way from and to tensors of one layout."""

    compiled: Compiled
    takes: tuple[_Take, ...]
    puts: tuple[_Put, ...]

    def run(self, call: Call) -> None:
        """Run and write the results into the caller's tensors."""
        arrays = call.arrays
        with compat.x64():
            operands: list[Any] = []
            for take in self.takes:
                if take.number is not None:
                    operands.append(np.array([call.scalars[take.param]], take.number))
                    continue
                t = arrays[take.param]
                operands.append(compat.share_with_jax(t if take.view is None else t.detach().as_strided(*take.view)))
            results = self.compiled.jitted(*operands)
            # The caller may change an input as soon as we return, so everything has to be computed by then.
            outputs = [compat.share_with_torch(r) for r in results]
        for put, output in zip(self.puts, outputs):
            t = arrays[put.param].detach()
            if put.box is not None:
                for axis, (lo, hi) in enumerate(put.box):
                    output = output.narrow(axis, lo, hi - lo)
            (t if put.view is None else t.as_strided(*put.view)).copy_(output)


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
