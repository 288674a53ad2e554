"""torch.compile(model, backend="pallas"): PyTorch graphs as JAX Pallas kernels.

Input: any model or function that Dynamo can trace, on CPU tensors. Output: the same results, strides, mutations and
gradients as eager. Law: one graph is one jitted function; what has no translation runs in ATen, with a coded note.
Importing this package registers the backend's name and stays light: Inductor is imported by the first compilation.
"""

from inductor_backend.register import compile_count, executable_count, explain, pallas, register

register()

__all__ = ["compile_count", "executable_count", "explain", "pallas"]
