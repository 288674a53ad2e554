"""The private corners of jax and torch that `bridge` and the rooms right of it need, in one place.

A version bump of jax or torch touches this file (and the `compat.py` of the other packages), nothing else.
"""

from __future__ import annotations

import glob
import os
import threading
from contextlib import AbstractContextManager

import jax
import torch
from jax._src import hardware_utils, xla_bridge
from jax._src.lib import _jax
from torch.utils.dlpack import to_dlpack

_cpu = None
_start_lock = threading.Lock()


def tpu_is_present() -> bool:
    """Whether a TPU may be attached to this machine (PCI, or the accelerator's device file)."""
    return hardware_utils.num_available_tpu_chips_and_device_id()[0] > 0 or bool(glob.glob("/dev/accel[0-9]*"))


def quiet_cpu_start() -> None:
    """Initialise jax's backends; where libtpu is installed but no TPU is attached, without loading libtpu.

    jax would load it, wait for it to fail and let it complain on stderr, with the same outcome: no TPU backend. So
    for the time of the initialisation the TPU's factory only says that there is no chip. Nothing of the process
    changes: no environment variable, no jax setting; a CUDA backend starts as ever. When the user asked for a TPU
    (``JAX_PLATFORMS``, ``JAX_FORCE_TPU_INIT``) or jax has started already, this does nothing of its own.
    """
    if xla_bridge.backends_are_initialized():
        return
    with _start_lock:
        registration = xla_bridge._backend_factories.get("tpu")
        asked = bool(jax.config.jax_platforms) or "JAX_FORCE_TPU_INIT" in os.environ
        if registration is None or asked or tpu_is_present():
            xla_bridge.backends()
            return
        factory = registration.factory
        registration.factory = _no_tpu_here
        try:
            xla_bridge.backends()
        finally:
            registration.factory = factory


def _no_tpu_here() -> None:
    raise RuntimeError("no TPU is attached to this machine")


def cpu_device() -> jax.Device:
    """The CPU device that shares this process' memory with torch; starts jax quietly when it has not started."""
    global _cpu
    if _cpu is None:
        quiet_cpu_start()
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
