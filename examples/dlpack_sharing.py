"""What is shared between torch and jax, what is copied, what is refused; and a jax function as a torch operator."""

import warnings

import jax.numpy as jnp
import torch

import bridge
from bridge.diagnostics import Diagnostic, DiagnosticNote, strict


def main() -> None:
    """Ask, cross, write, and differentiate."""
    t = torch.arange(6, dtype=torch.float32).reshape(2, 3)
    a = bridge.to_jax(t)
    t[0, 0] = 7.0
    print(f"shared: {a.unsafe_buffer_pointer() == t.data_ptr()}, jax sees torch's write: {float(a[0, 0])}")

    asked = {
        "contiguous": torch.zeros(4, 4),
        "transposed": torch.zeros(4, 3).t(),
        "a column": torch.zeros(4, 4)[:, 1],
        "misaligned": torch.zeros(33)[1:],
        "requires grad": torch.zeros(3, requires_grad=True),
        "64-bit": torch.zeros(3, dtype=torch.int64),
        "bfloat16": torch.zeros(3, dtype=torch.bfloat16),
    }
    for name, tensor in asked.items():
        answer = bridge.crossing(tensor)
        print(f"  {name:14s} {answer.how:8s} {answer.code}")

    with warnings.catch_warnings(record=True) as notes:
        warnings.simplefilter("always")
        bridge.to_jax(asked["misaligned"])
    print(f"a copy is never silent: {[w.message.code for w in notes if isinstance(w.message, DiagnosticNote)]}")
    try:
        with strict():  # notes become errors
            bridge.to_jax(torch.zeros(65)[1:])
    except Diagnostic as problem:
        print(problem)

    back = bridge.to_torch(jnp.ones(3))
    try:
        back.add_(1)  # the memory is a jax array's, and jax arrays don't change
    except Diagnostic as problem:
        print(problem.code, problem.slug)

    @bridge.jax_op("examples::log_cosh")
    def log_cosh(x):
        return jnp.logaddexp(x, -x) - jnp.log(2.0).astype(x.dtype)

    x = torch.linspace(-2, 2, 5, requires_grad=True)
    log_cosh(x).sum().backward()
    torch.testing.assert_close(x.grad, torch.tanh(x.detach()))
    print("a jax function as a torch operator, with its gradient")


if __name__ == "__main__":
    main()
