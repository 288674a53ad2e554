"""What a kernel's derivatives are: forward mode is jax's own, reverse mode a diagnostic.

Input: a kernel as a function of jax values. Output: the same function, whose forward-mode derivative is that of
`pallas_call`. Law: whoever takes the gradient, inside jit or outside, reads how to give the kernel one; jax alone fails
with a message about linearization.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from bridge.diagnostics import Diagnostic, Where, error
from pallas_core import compat


def guarded(name: str, run: Callable[[Sequence[Any]], Sequence[Any]], forward: bool) -> Callable[..., Sequence[Any]]:
    """A function of jax values that explains itself when it is differentiated in a way that Pallas can't.

    Args:
        name: the kernel's.
        run: takes all arguments as a sequence, returns all outputs.
        forward: whether jax can push tangents through the kernel (it can't with aliases or scalar prefetch).

    Raises:
        Diagnostic: ``kernel-not-differentiable``, from the function that computes a derivative.
    """

    def refuse() -> Diagnostic:
        return error(
            "kernel-not-differentiable",
            f"`{name}` is differentiated",
            where=Where.caller(),
            why="Pallas pushes derivatives forward through float operands, without aliases and scalar prefetch; it "
            "knows no kernel that takes them backward.",
            do="give it a derivative: wrap it in jax.custom_vjp, with a kernel or jax code for the backward pass",
        )

    @jax.custom_jvp
    def call(*args: Any) -> list[Any]:
        return list(run(args))

    @call.defjvp
    def push(primals: tuple[Any, ...], tangents: tuple[Any, ...]) -> tuple[list[Any], list[Any]]:
        # The outputs are computed apart from their derivatives: where jax linearizes, they must not depend on tangents.
        outputs = list(run(primals))
        if not forward or not all(jnp.issubdtype(v.dtype, jnp.inexact) for v in (*primals, *outputs)):
            raise refuse()
        _, directions = jax.jvp(lambda *values: list(run(values)), primals, tangents)
        return outputs, [compat.forward_only(d, refuse) for d in directions]

    return call
