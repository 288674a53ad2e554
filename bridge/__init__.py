"""torch and jax, side by side: arrays shared without a copy, jax functions as torch operators.

`to_jax` and `to_torch` hand arrays over and say when they had to copy; `crossing` asks without crossing; `jax_op`
makes a JAX or Pallas function a torch operator; `to_device` puts a module's parameters on a device of jax. What goes
wrong is a `bridge.diagnostics.Diagnostic` with a permanent code.
"""

from bridge import diagnostics
from bridge.dlpack import Crossing, crossing, to_jax, to_torch
from bridge.ops import jax_op
from bridge.resident import to_device

__all__ = ["Crossing", "crossing", "diagnostics", "jax_op", "to_device", "to_jax", "to_torch"]
