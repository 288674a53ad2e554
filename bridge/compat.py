"""The private corners of jax and torch that `bridge` and the rooms right of it need, in one place.

A version bump of jax or torch touches this file (and the `compat.py` of the other packages), nothing else.
"""

from __future__ import annotations

from contextlib import AbstractContextManager

import jax
import torch
from jax._src.lib import _jax
from torch.utils.dlpack import to_dlpack

_cpu = None


def cpu_device() -> jax.Device:
    """The CPU device that shares this process' memory with torch."""
    global _cpu
    if _cpu is None:
        _cpu = jax.local_devices(backend="cpu")[0]
    return _cpu


def share_with_jax(t: torch.Tensor) -> jax.Array:
    """Import a CPU tensor into jax through the low-level DLPack entry: 4 µs instead of 78 (facts: dlpack.md).

    The caller has checked that `t` is dense, 64-byte aligned, free of grad, conj and neg bits, and that x64 is on
    when its dtype is 64 bits wide: this entry copies or narrows silently otherwise.
    """
    return _jax.dlpack_managed_tensor_to_buffer(to_dlpack(t.detach()), cpu_device(), None)


def share_with_torch(a: jax.Array) -> torch.Tensor:
    """Export a CPU jax array to torch without a copy; blocks until the array is ready."""
    return torch._C._from_dlpack(_jax.buffer_to_dlpack_managed_tensor(a, stream=None))


def x64() -> AbstractContextManager[None]:
    """Scoped 64-bit mode of jax; never flips the process-wide setting."""
    return jax.enable_x64(True)
