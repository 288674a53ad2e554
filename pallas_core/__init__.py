"""JAX Pallas kernels on torch tensors and jax arrays, on the CPU and compiled offline for TPUs.

`import pallas_core as pc` is enough to write, run, check and compile a kernel.
"""

from pallas_core.offline import Compiled, compile_for
from pallas_core.spec import like, spec

__all__ = ["Compiled", "compile_for", "like", "spec"]
