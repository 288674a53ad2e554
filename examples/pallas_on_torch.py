"""Pallas kernels on torch tensors: with blocks and a grid, made by a factory, judged for a TPU that is not there."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import torch

import pallas_core as pc
from bridge.diagnostics import Diagnostic


def rowwise(function: Callable[[jax.Array], jax.Array], like: torch.Tensor, rows: int = 64) -> pc.PallasFunction:
    """A kernel that applies `function` to blocks of whole rows; any jax function of an array will do."""

    def kernel(x_ref, o_ref):
        o_ref[...] = function(x_ref[...])

    block = pc.BlockSpec((rows, like.shape[1]), lambda i: (i, 0))
    return pc.pallas_call(
        kernel, out_shape=pc.like(like), grid=(like.shape[0] // rows,), in_specs=[block], out_specs=block
    )


def main() -> None:
    """Run three kernels of one factory, count VMEM, and ask the TPU's compiler."""
    x = torch.randn(256, 512)
    for name, ours, theirs in (
        ("exp", jnp.exp, torch.exp),
        ("softmax", lambda z: jax.nn.softmax(z, axis=-1), lambda z: torch.softmax(z, -1)),
        ("square", lambda z: z * z, torch.square),
    ):
        torch.testing.assert_close(rowwise(ours, x)(x), theirs(x))
        print(f"{name}: torch in, torch out, equal to PyTorch")

    f = rowwise(lambda z: jax.nn.softmax(z, axis=-1), x)
    print(pc.vmem_budget(f, (x,), "tpu:v5e"))
    try:
        print(pc.schedule_report(f, (x,), "tpu:v5e"))
    except Diagnostic as problem:
        if problem.slug != "missing-dependency":
            raise
        print(problem)


if __name__ == "__main__":
    main()
