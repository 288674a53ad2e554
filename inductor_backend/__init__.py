"""torch.compile(model, backend="pallas"): PyTorch graphs as JAX Pallas kernels.

Input: any model or function that Dynamo can trace, on CPU tensors. Output: the same results, strides, mutations and
gradients as eager. Law: one graph is one jitted function; what has no translation runs in ATen, with a coded note.
"""

from inductor_backend.compile import compile_count, pallas
from inductor_backend.register import register

register()

__all__ = ["compile_count", "pallas"]
