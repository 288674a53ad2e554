"""One specialisation of a kernel, ready to run on torch tensors or jax arrays.

Input: a schedule and the module emitted from it. Output: the caller's tensors written (torch) or new arrays (jax). Law:
the module's text is what runs; nothing is written before every result is there; elements that no program writes keep
their value, and views of a tensor see the result.
"""

from __future__ import annotations

import hashlib
import linecache
from collections.abc import Callable
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

    def run_torch(self, call: Call) -> None:
        """Run and write the results into the caller's tensors."""
        with compat.x64():
            operands = []
            for operand in self.module.operands:
                if operand.scalar:
                    operands.append(np.array([call.scalars[operand.param]], self._scalar_types[operand.param]))
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
            scalars = {n: np.asarray(call.scalars[n], kind) for n, kind in self._scalar_types.items()}
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
