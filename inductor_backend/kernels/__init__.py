"""Fused regions as Pallas kernels.

Input: an emitted kernel function over Refs and what it writes. Output: a function on arrays. Law: on the CPU target a
kernel has no grid: one program over whole arrays, which XLA compiles as well as it compiles plain array code.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
from jax.experimental import pallas as pl

from inductor_backend.compat import evaluated
from inductor_backend.ops import Out


def pallas(kernel: Callable[..., None], outs: Sequence[Out]) -> Callable[..., Sequence[Any]]:
    """A Pallas call of one program on the CPU target, whose Refs are whole arrays.

    Pallas traces the kernel. Its interpreter would then run the one program in a loop over a grid, around slices of
    blocks, which XLA takes apart again: the same values, at four times the time that jax takes to write the program
    down, and half a second for what the interpreter imports. So the traced kernel is evaluated here.

    Args:
        kernel: writes its outputs through the last `len(outs)` Refs.
        outs: shapes in elements and dtypes of what it writes.
    """
    shapes = [jax.ShapeDtypeStruct(o.shape, o.dtype) for o in outs]
    call = pl.pallas_call(kernel, out_shape=shapes, interpret=True, name=kernel.__name__)

    def run(*operands: Any) -> Sequence[Any]:
        traced = jax.make_jaxpr(call)(*operands)
        results = _only_program(traced.jaxpr, operands, len(outs)) if not traced.consts else None
        return call(*operands) if results is None else results

    return run


def _only_program(traced: Any, operands: Sequence[Any], count: int) -> Sequence[Any] | None:
    """What a traced call of one program writes; None where it does more with a Ref than read or write all of it.

    Args:
        traced: the jaxpr of the call.
        operands: its arguments.
        count: how many Refs are written.
    """
    if len(traced.eqns) != 1 or traced.eqns[0].primitive.name != "pallas_call":
        return None
    kernel = traced.eqns[0].params["jaxpr"]
    refs = set(kernel.invars)
    if kernel.constvars or len(refs) != len(operands) + count or not all(_plain(eqn, refs) for eqn in kernel.eqns):
        return None
    values = dict(zip(kernel.invars, operands))
    read = lambda atom: atom.val if hasattr(atom, "val") else values[atom]
    for eqn in kernel.eqns:
        name = eqn.primitive.name
        if name == "get":
            results = [values[eqn.invars[0]]]
        elif name == "swap":
            # What was there before is read by nobody: the first write finds nothing.
            results = [values.get(eqn.invars[0])]
            values[eqn.invars[0]] = read(eqn.invars[1])
        else:
            results = evaluated(eqn, [read(a) for a in eqn.invars])
        values.update(zip(eqn.outvars, results))
    written = kernel.invars[len(operands) :]
    return [values[ref] for ref in written] if all(ref in values for ref in written) else None


def _plain(eqn: Any, refs: set[Any]) -> bool:
    """Whether an equation of a kernel reads or writes a whole Ref, or touches none."""
    touched = [a for a in eqn.invars if not hasattr(a, "val") and a in refs]
    if not touched:
        return True
    plain = {"get": 1, "swap": 2}.get(eqn.primitive.name) == len(eqn.invars) and touched == [eqn.invars[0]]
    return plain and eqn.outvars[0].aval.shape == eqn.invars[0].aval.shape
