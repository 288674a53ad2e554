"""Compiling and running array functions on the CPU, on memory that torch owns.

Input: a function and the shapes and dtypes of its arguments; tensors. Output: a callable from a list of arrays to a
list of arrays; arrays over the tensors' memory. Law: a program runs in the calling thread and is done when the call
returns.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import jax
import torch
from torch.utils.dlpack import to_dlpack  # pyright: ignore[reportPrivateImportUsage]

from bridge.compat import cpu_device, share_with_torch, x64
from inductor_backend.compat import jax_internals, storage_at

__all__ = ["Engine", "collect", "share_with_torch"]

_compiler, _jax, _xla_client = jax_internals()
_cpu = torch.device("cpu")

#: Frees the memory of results that torch has dropped. jax does so by itself, but only after it has allocated the next
#: results, so that they land on cold memory; the runner calls this first.
collect = _jax.collect_garbage


class Engine:
    """A CPU client of our own that runs a program in the calling thread.

    jax's client hands every program of some size to another thread, which costs 50 to 80 µs of CPU time a call; a
    compiled graph waits for its results anyway. Arrays of this client never leave this package. There are two engines,
    one that uses all cores and one that uses the calling thread only; `Engine.current` follows torch.get_num_threads().
    """

    _lock = threading.Lock()
    _made: ClassVar[dict[bool, Engine]] = {}

    def __init__(self, serial: bool):
        self.client = _serial_client() if serial else _xla_client.make_cpu_client(asynchronous=False)
        self.device = self.client.local_devices()[0]
        self.devices = _jax.DeviceList((self.device,))

    @classmethod
    def current(cls) -> Engine:
        """The engine for torch's present number of threads."""
        serial = torch.get_num_threads() == 1
        with cls._lock:
            if serial not in cls._made:
                if not cls._made:
                    # glibc gives freed blocks back to the kernel until a larger block has been freed once; after that
                    # the buffers of a call are recycled instead of being faulted in again, page by page.
                    del_me = torch.empty(31 << 20, dtype=torch.uint8)
                    del del_me
                cls._made[serial] = cls(serial)
            return cls._made[serial]

    def share(self, t: torch.Tensor) -> jax.Array:
        """Import a dense, aligned CPU tensor without a copy; the array keeps the tensor's memory alive."""
        return _jax.dlpack_managed_tensor_to_buffer(to_dlpack(t), self.device, None)

    def share_pointer(
        self, pointer: int, nbytes: int, dtype: torch.dtype, shape: tuple[int, ...], strides: tuple[int, ...]
    ) -> jax.Array:
        """An array over raw memory that owns nothing.

        Valid only while the tensor that owns the memory is alive and nobody writes to it: programs run in the calling
        thread, so both hold for the length of a call. `pointer` must be 64-byte aligned (jax copies otherwise).
        """
        storage = storage_at(pointer, _cpu, nbytes)
        return self.share(torch.empty(0, dtype=dtype).set_(storage, 0, shape, strides))

    def compile(self, fn: Callable[..., Any], avals: Sequence[jax.ShapeDtypeStruct]) -> Callable[[list[Any]], Any]:
        """Compile `fn` ahead of time; the result takes a list of arrays and returns a list of arrays.

        `xla_allow_excess_precision` is off, because a bf16 chain must round after every operator, as eager does.
        """
        with x64(), jax.default_device(cpu_device()):
            lowered = jax.jit(fn, keep_unused=True).trace(*avals).lower(lowering_platforms=("cpu",))
            module = lowered.compiler_ir("stablehlo")
        options = _compiler.get_compile_options(
            num_replicas=1, num_partitions=1, env_options_overrides={"xla_allow_excess_precision": False}
        )
        execute = self.client.compile_and_load(module, self.devices, options).execute_sharded

        def call(arrays: list[Any]) -> list[Any]:
            return [shards[0] for shards in execute(arrays).disassemble_into_single_device_arrays()]

        return call


def _serial_client() -> Any:
    """A client whose programs are compiled for one thread: it is made by a thread that sees one core."""
    made: list[Any] = []

    def make() -> None:
        cores = os.sched_getaffinity(0)
        before = set(os.listdir("/proc/self/task"))
        os.sched_setaffinity(0, {min(cores)})
        made.append(_xla_client.make_cpu_client(asynchronous=False))
        for task in set(os.listdir("/proc/self/task")) - before:
            # Its threads are not to stay on that one core.
            with contextlib.suppress(OSError):
                os.sched_setaffinity(int(task), cores)

    if not hasattr(os, "sched_setaffinity"):
        return _xla_client.make_cpu_client(asynchronous=False)
    worker = threading.Thread(target=make)
    worker.start()
    worker.join()
    return made[0] if made else _xla_client.make_cpu_client(asynchronous=False)
