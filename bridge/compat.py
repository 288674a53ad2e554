"""The private corners of jax and torch that `bridge` and the rooms right of it need, in one place.

A version bump of jax or torch touches this file (and the `compat.py` of the other packages), nothing else.
"""
# pyright: reportPrivateImportUsage=false, reportAttributeAccessIssue=false

from __future__ import annotations

import glob
import os
import re
import sys
import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager
from types import FunctionType
from typing import Any

import jax
import jaxlib
import torch
from jax._src import compiler, hardware_utils, xla_bridge
from jax._src.config import enable_x64 as _enable_x64
from jax._src.config import trace_context
from jax._src.core import ShapedArray, jaxprs_in_params
from jax._src.lib import _jax, xla_client
from torch._library.custom_ops import CustomOpDef
from torch.autograd import forward_ad
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils.dlpack import from_dlpack, to_dlpack

from bridge.diagnostics import Where, error

_cpu: Any = None
_start_lock = threading.Lock()


#: Whether this process was forked from one in which jax had started: the threads that compile and run are not here.
forked = False


def _after_fork() -> None:
    global forked
    forked = forked or xla_bridge.backends_are_initialized()


os.register_at_fork(after_in_child=_after_fork)


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


def cpu_device() -> Any:
    """The CPU device that shares this process' memory with torch; starts jax quietly when it has not started."""
    global _cpu
    if _cpu is None:
        quiet_cpu_start()
        try:
            _cpu = jax.local_devices(backend="cpu")[0]
        except RuntimeError as problem:
            raise error(
                "no-such-device",
                "jax was started without its CPU backend",
                where=Where.caller(),
                why=str(problem),
                do=f"add it: JAX_PLATFORMS={jax.config.jax_platforms},cpu",
            ) from problem
    return _cpu


def share_with_jax(t: torch.Tensor) -> jax.Array:
    """Import a CPU tensor into jax through the low-level DLPack entry: 4 µs instead of 78 (facts: dlpack.md).

    The caller has checked that `t` is dense, 64-byte aligned, free of grad, conj and neg bits, and that x64 is on
    when its dtype is 64 bits wide: this entry copies or narrows silently otherwise.
    """
    return _jax.dlpack_managed_tensor_to_buffer(to_dlpack(t.detach()), cpu_device(), None)


def share_with_torch(a: jax.Array) -> torch.Tensor:
    """Export a CPU jax array to torch without a copy; blocks until the array is ready.

    For a fresh result that nobody else holds. Were the array deleted (or the last holder of its buffer dropped by name)
    while torch reads it, XLA would abort the process: an array that the user keeps goes through `export_for_good`.
    """
    return torch._C._from_dlpack(_jax.buffer_to_dlpack_managed_tensor(a, stream=None))


#: The two steps of `share_with_torch`, for callers that write them out: array -> capsule -> tensor.
to_capsule, from_capsule = _jax.buffer_to_dlpack_managed_tensor, torch._C._from_dlpack


def export_for_good(a: jax.Array) -> torch.Tensor:
    """As `share_with_torch`, and `a` may be deleted or donated while the tensor lives: the tensor keeps the memory."""
    # The shard is another jax array over the same buffer, and `delete()` of the one leaves the other's alone.
    return torch._C._from_dlpack(_jax.buffer_to_dlpack_managed_tensor(a.addressable_data(0), stream=None))


def has_memory(t: torch.Tensor) -> bool:
    """Whether the storage of a strided tensor reaches its last element (0.5 µs).

    It does not after ``untyped_storage().resize_(0)``, by which FSDP frees parameters between uses, and for the zeros
    without memory of torch's differentiation rules; the address is then null or another owner's.
    """
    count = t.numel()
    if not count:
        return True
    if not torch._C._has_storage(t) or t.data_ptr() == 0:
        return False
    if not t.is_contiguous():
        count = 1 + sum((size - 1) * stride for size, stride in zip(t.shape, t.stride()))
    return (t.storage_offset() + count) * t.itemsize <= t.untyped_storage().nbytes()


def has_storage(t: torch.Tensor) -> bool:
    """Whether a tensor has memory of its own kind: sparse tensors and those wrapped by vmap or grad have not."""
    return torch._C._has_storage(t)


def is_transformed(t: torch.Tensor) -> bool:
    """Whether a tensor stands for others inside ``torch.func`` (vmap, grad, functionalize)."""
    return torch._C._functorch.is_functorch_wrapped_tensor(t)


def modes_are_on() -> bool:
    """Whether something looks on at torch's operators in this thread: fake tensors, a tracer, a counter."""
    return torch._C._len_torch_dispatch_stack() > 0


def stands_for_another(t: torch.Tensor) -> bool:
    """Whether a tensor has no data of its own: a fake one, a functional one, one inside ``torch.func``."""
    if is_transformed(t):
        return True
    kinds = sys.modules.get("torch._subclasses.fake_tensor"), sys.modules.get("torch._subclasses.functional_tensor")
    fake, functional = (getattr(k, n, ()) for k, n in zip(kinds, ("FakeTensor", "FunctionalTensor")))
    return isinstance(t, (fake, functional)) if kinds[0] is not None else False


def memory_id(t: torch.Tensor) -> int:
    """What two tensors have in common that share a storage; fake ones too."""
    while is_transformed(t):
        t = torch._C._functorch.get_unwrapped(t)
    return t.untyped_storage()._cdata


def is_retyped(t: torch.Tensor) -> bool:
    """Whether a tensor is a view of one of another dtype."""
    while is_transformed(t):
        t = torch._C._functorch.get_unwrapped(t)
    return t._base is not None and t._base.dtype != t.dtype


def is_dense(t: torch.Tensor) -> bool:
    """Whether a tensor's elements fill a range of memory, in whatever order."""
    expected = 1
    for stride, size in sorted(zip(t.stride(), t.shape)):
        if size != 1 and stride != expected:
            return False
        expected *= size
    return True


def without_modes() -> AbstractContextManager[Any]:
    """Within it nothing looks on at torch's operators: tensors are real ones."""
    return _disable_current_modes()


def hint_of(value: Any) -> Any:
    """The number that a symbolic one has in the example it was traced with; 1 where none is known."""
    if not isinstance(value, torch.SymInt | torch.SymFloat | torch.SymBool):
        return value
    hint = value.node.hint
    return 1 if hint is None else hint


def has_tangent(t: torch.Tensor) -> bool:
    """Whether forward-mode differentiation is on and the tensor carries a tangent."""
    return forward_ad._current_level >= 0 and forward_ad.unpack_dual(t).tangent is not None


def is_lazy_zero(t: torch.Tensor) -> bool:
    """Whether a tensor is all zeros without memory behind it, as torch's differentiation rules make them."""
    return t._is_zerotensor()


def without_torch_function() -> AbstractContextManager[None]:
    """Within it, tensor subclasses take part in operations as plain tensors."""
    return torch._C.DisableTorchFunctionSubclass()


class ExplainedOp(CustomOpDef):
    """A custom operator whose refusals are explained; on the way of a call that succeeds it adds nothing."""

    explain: Callable[..., Exception | None]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the operator."""
        try:
            return self._opoverload(*args, **kwargs)
        except RuntimeError as problem:
            explained = self.explain(problem, args, kwargs)
            if explained is None:
                raise
            raise explained from problem


def explain_refusals(operator: Any, explain: Callable[..., Exception | None]) -> None:
    """Have `explain(problem, args, kwargs)` turn what a custom operator raises into something better, or None."""
    operator.__class__, operator.explain = ExplainedOp, explain


def graph_break(reason: str) -> None:
    """While Dynamo traces: end the graph here, and with ``fullgraph=True`` say why. Otherwise nothing."""
    torch._dynamo.graph_break(msg=reason)


def keep_out_of_graphs(namespace: dict[str, Any], reason: str, traced: Collection[str] = ()) -> None:
    """Make Dynamo call a module's functions as they are, without a look inside; methods it may still trace into.

    What `torch.compiler.disable` does, without its cost at every call and without importing Dynamo.

    Args:
        namespace: the module's ``globals()``.
        reason: what a user reads who asked for ``fullgraph=True``.
        traced: functions that Dynamo may trace into.
    """
    frames = torch._C._dynamo.eval_frame
    skip = frames._FrameExecStrategy(frames._FrameAction.SKIP, frames._FrameAction.SKIP)
    for value in list(namespace.values()):
        if isinstance(value, FunctionType) and value.__module__ == namespace["__name__"]:
            frames.set_code_exec_strategy(value.__code__, skip)
            if value.__name__ in traced:
                continue
            value._torchdynamo_disable = True
            value._torchdynamo_disable_msg = reason
        elif isinstance(value, type) and value.__module__ == namespace["__name__"]:
            for member in vars(value).values():
                function = getattr(member, "__func__", member)
                if isinstance(function, FunctionType):
                    frames.set_code_exec_strategy(function.__code__, skip)


def x64_is_on() -> bool:
    """Whether jax computes in 64 bits here: the process-wide setting, or this thread's scope."""
    return _enable_x64.value


def x64() -> AbstractContextManager[None]:
    """Scoped 64-bit mode of jax; never flips the process-wide setting."""
    return jax.enable_x64(True)


def x64_as(wide: bool) -> AbstractContextManager[None]:
    """64-bit mode of jax, or 32-bit mode, within a scope."""
    return jax.enable_x64(wide)


# Clients of our own --------------------------------------------------------------------------------------------

#: Frees the memory of results that torch has dropped. jax does so by itself, but only after it has allocated the next
#: results, so that they land on cold memory; who runs programs calls this first.
collect_results = _jax.collect_garbage

#: Whether this jaxlib's way to write programs down, and to call kernels, is the one that `native` was tried with.
code_is_known = jaxlib.__version__ == "0.10.2"

#: What the client raises.
JaxRuntimeError = _jax.JaxRuntimeError

#: A storage over memory that somebody else owns: (address, torch device, bytes).
storage_at = torch._C._construct_storage_from_data_pointer


def new_cpu_client() -> Any:
    """A CPU client beside jax's own, whose programs run in the calling thread."""
    return xla_client.make_cpu_client(asynchronous=False)


def device_list(device: Any) -> Any:
    """One device as a client's compile wants it."""
    return _jax.DeviceList((device,))


def share_with_device(t: torch.Tensor, device: Any) -> jax.Array:
    """As `share_with_jax`, for a device of any CPU client; 64-bit dtypes need no x64, `t` may not require grad."""
    # An array keeps the code of every frame that it was made under, out of the garbage collector's sight. A runner that
    # caches arrays would so keep Dynamo's code, which keeps the runner: nothing compiled would ever be freed.
    with _jax.TracebackScope():
        return _jax.dlpack_managed_tensor_to_buffer(to_dlpack(t), device, None)


def result_handlers(results: Sequence[tuple[tuple[int, ...], Any]], sharding: Any) -> list[Any]:
    """For the shapes and dtypes of a program's results, what makes arrays of them."""
    return [
        _jax.array_result_handler(ShapedArray(shape, dtype), sharding, committed=True, _skip_checks=True)
        for shape, dtype in results
    ]


def compile_options(excess_precision: bool = False, plain: bool = False, products: bool = False) -> Any:
    """Options of a program for one CPU device.

    Args:
        excess_precision: whether XLA may leave out the rounding between two operations on a narrow float.
        plain: whether XLA compiles all by itself, without its library of kernels; a maximum is NaN where a number is.
        products: with `plain`, whether the library computes matrix products and convolutions all the same.
    """
    changed: Any = {"xla_allow_excess_precision": excess_precision}
    if plain:
        library = ("INDIVIDUAL_DOT", "INDIVIDUAL_CONVOLUTION") if products else ()
        changed["xla_cpu_experimental_ynn_fusion_type"] = ",".join(f"LIBRARY_FUSION_TYPE_{kind}" for kind in library)
        changed["xla_cpu_enable_fast_min_max"] = False
    return compiler.get_compile_options(num_replicas=1, num_partitions=1, env_options_overrides=changed)


def equations(jaxpr: Any) -> Iterator[Any]:
    """All equations of a jaxpr, and of those inside of it."""
    for equation in jaxpr.eqns:
        yield equation
        for inner in jaxprs_in_params(equation.params):
            yield from equations(inner)


def calls_back(traced: Any, lowered: Any) -> bool:
    """Whether a program calls Python while it runs (prints, callbacks), which jax's own client alone can do."""
    return bool(traced.jaxpr.effects) or bool(lowered._lowering.compile_args.get("host_callbacks"))


def kept_arguments(lowered: Any) -> list[int] | None:
    """Positions of the arguments that a lowered program takes; None for all of them."""
    kept = sorted(lowered._lowering.compile_args["kept_var_idx"])
    return None if len(kept) == len(jax.tree.leaves(lowered.in_avals)) else kept


def tracing_state() -> str:
    """All settings of jax that change what a function is traced to, as text that is the same in every process."""
    return re.sub(r" at 0x[0-9a-f]+", "", repr(trace_context()))


# Ownership -----------------------------------------------------------------------------------------------------
#
# A DLPack capsule of torch keeps a tensor alive, and through it a storage; but a storage can drop its memory while it
# lives: `resize_`, `untyped_storage().resize_(0)`, `share_memory_()`. jax would then read freed memory. So before a
# share the memory moves to a second storage, the owner; the tensor's own storage keeps the same address and a
# reference to the owner, jax keeps another. Whatever happens to the tensor, the memory lives as long as jax needs it.
# As a side effect torch refuses to resize such a storage, as it does after `Tensor.numpy()`.

#: Attribute of a tensor's storage: the tensor over the owner that was shared last. It lives as long as the storage.
_SHARED = "_bridge_shared"
_owner_lock = threading.Lock()


def share_for_good(t: torch.Tensor) -> jax.Array:
    """As `share_with_jax`, and the memory stays valid whatever happens to `t` while the array lives.

    For an array that the user keeps; one that lives during a call only needs no more than `share_with_jax`.
    """
    storage = t.untyped_storage()
    shared = getattr(storage, _SHARED, None)
    if (
        shared is None
        or shared.dtype is not t.dtype
        or shared.data_ptr() != t.data_ptr()
        or shared.shape != t.shape
        or shared.stride() != t.stride()
    ):
        with _owner_lock:
            owner = _owner_of(storage)
            shared = torch.empty(0, dtype=t.dtype, device="cpu").set_(owner, t.storage_offset(), t.shape, t.stride())
            if owner is not storage:
                setattr(storage, _SHARED, shared)
    return _jax.dlpack_managed_tensor_to_buffer(to_dlpack(shared), cpu_device(), None)


def _owner_of(storage: torch.UntypedStorage) -> torch.UntypedStorage:
    """The storage that owns the memory of `storage`; from now on another one. `_owner_lock` is held."""
    shared = getattr(storage, _SHARED, None)
    if shared is not None and shared.untyped_storage().data_ptr() == storage.data_ptr():
        return shared.untyped_storage()
    size = storage.nbytes()
    if not size:
        return storage
    if storage.is_shared():
        # Memory shared between processes is recognised by its owner, so it stays where it is; `numpy()` makes torch
        # refuse to resize it, and `share_memory_` has nothing left to do.
        torch.empty(0, dtype=torch.uint8, device="cpu").set_(storage).numpy()
        return storage
    # Every step leaves the same address in `storage`, so that other threads may go on reading it.
    owner: Any = torch._C._construct_storage_from_data_pointer(storage.data_ptr(), torch.device("cpu"), size)
    storage._swap_data_ptr_(owner)
    try:
        alias = from_dlpack(to_dlpack(torch.empty(0, dtype=torch.uint8, device="cpu").set_(owner)))
        storage._swap_data_ptr_(alias.untyped_storage())
    except BaseException:
        storage._swap_data_ptr_(owner)
        raise
    return owner
