"""Compiling and running array functions on the CPU, on memory that torch owns.

Input: a function and the shapes and dtypes of its arguments; tensors. Output: a `Program`, which takes and gives a list
of arrays; arrays over the tensors' memory. Law: a program runs in the calling thread and is done when the call returns;
an array over somebody's memory is good for the length of that call.
"""

from __future__ import annotations

import contextlib
import ctypes
import math
import os
import threading
from collections.abc import Callable, Collection, Sequence
from contextvars import ContextVar
from typing import Any, ClassVar

import jax
import numpy as np
import torch

from bridge import compat, diskcache
from bridge.compat import collect_results, share_with_torch
from bridge.dtypes import by_jax
from bridge.layout import row_major
from bridge.native import Native, native

__all__ = [
    "CallsBack",
    "Engine",
    "JaxEngine",
    "Number",
    "Program",
    "Window",
    "collect_results",
    "direct",
    "parts",
    "plain",
    "share_with_torch",
]

#: XLA reads memory in lines of this many bytes; jax copies what does not begin at one.
ALIGNMENT = 64
#: Operands of so many bytes are copied rather than imported when their address is new: a quarter of the time.
SMALL = 1 << 15
#: Programs of more bytes are not called directly: the call is the least of what they cost.
_DIRECT = 1 << 24
#: The numbers that a program is tried on repeat after so many.
_PERIOD = 509
#: Differences of products that are rounding, beside the largest result: a wrong matrix is off by all of it.
_ROUNDING = 1e-3
#: Operations that are not kernels of their own.
_INDIRECT = {"conv_general_dilated", "sort", "while", "scan", "fft", "top_k", "custom_call", "ffi_call"}
#: So many multiply-adds take some hundreds of microseconds.
_PRODUCTS = 1 << 24
#: How many addresses of one operand are remembered.
_CACHE_LIMIT = 256

_cpu = torch.device("cpu")
_C_TYPES = {
    "float32": ctypes.c_float,
    "float64": ctypes.c_double,
    "int32": ctypes.c_int32,
    "uint32": ctypes.c_uint32,
    "int64": ctypes.c_int64,
    "uint64": ctypes.c_uint64,
}

#: Whether what is being traced is compiled without XLA's library of reductions, so that XLA's own code is to be fast.
plain: ContextVar[bool] = ContextVar("plain", default=False)

#: A compiled program: arrays of one engine in, arrays of that engine out.
Program = Callable[[list[Any]], list[Any]]


class Engine:
    """A CPU client of our own that runs a program in the calling thread.

    jax's client hands every program of some size to another thread, which costs 50 to 80 µs of CPU time a call; a
    caller with tensors waits for its results anyway. Arrays of this client never reach a user. There are two engines,
    one that uses all cores and one that uses the calling thread only; `Engine.current` follows torch.get_num_threads().

    Attributes:
        serial: whether programs use the calling thread only.
        device: the client's device.
    """

    _lock = threading.Lock()
    _made: ClassVar[dict[bool, Engine]] = {}

    def __init__(self, serial: bool):
        self.serial = serial
        self.client = _serial_client() if serial else compat.new_cpu_client()
        self.device = self.client.local_devices()[0]
        self.devices = compat.device_list(self.device)

    @classmethod
    def current(cls) -> Engine:
        """The engine for torch's present number of threads."""
        serial = torch.get_num_threads() == 1
        found = cls._made.get(serial)
        if found is not None:
            return found
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
        return compat.share_with_device(t, self.device)

    def share_pointer(
        self, pointer: int, nbytes: int, dtype: torch.dtype, shape: Sequence[int], strides: Sequence[int]
    ) -> jax.Array:
        """An array over raw memory that owns nothing.

        Valid only while the tensor that owns the memory is alive and nobody writes to it: programs run in the calling
        thread, so both hold for the length of a call. `pointer` must be 64-byte aligned (jax copies otherwise).
        """
        storage = compat.storage_at(pointer, _cpu, nbytes)
        return self.share(torch.empty(0, dtype=dtype, device=_cpu).set_(storage, 0, shape, strides))

    def compile(
        self, fn: Callable[..., Any], avals: Sequence[jax.ShapeDtypeStruct], text: str = "", lanes: bool = False
    ) -> Program:
        """Compile `fn` ahead of time; the result takes a list of arrays and returns a list of arrays.

        `xla_allow_excess_precision` is off, because a bf16 chain must round after every operator, as eager does.

        Args:
            fn: a function on jax values that returns a sequence; it is not called when the disk cache has the program.
            avals: its arguments.
            text: all that decides what `fn` computes, jax aside; with it the program is kept on disk.
            lanes: whether `fn` writes reductions as XLA's own code vectorises them where `plain` is set. Such a program
                has no need of XLA's library, whose parts can't be called directly, but for large products.

        Raises:
            CallsBack: the program calls Python while it runs: only a `JaxEngine` can run it.
        """
        options = compat.compile_options(plain=lanes)
        with compat.x64(), jax.default_device(compat.cpu_device()):
            key = self._key(text, avals, options) if text and diskcache.folder() else ""
            executable, written = self._kept(key, options) if key else (None, None)
            if executable is None:
                token = plain.set(lanes)
                try:
                    traced = jax.jit(fn, keep_unused=True).trace(*avals)
                finally:
                    plain.reset(token)
                if lanes and _is_for_the_library(traced.jaxpr, self.serial):
                    options = compat.compile_options(plain=True, products=True)
                executable, written = self._compiled(self._lowered(traced), options, key)
        program = _program(executable)
        # One that was read from disk can't be written down again.
        program.written = lambda: written or self.client.serialize_executable(executable)
        return program

    def compile_traced(self, traced: Any) -> Program:
        """Compile what jax has traced already, as jax would; kept on disk.

        Args:
            traced: of `jax.jit(...).trace(...)`, in the settings of jax that hold now.

        Raises:
            CallsBack: as `compile`.
        """
        options = compat.compile_options(excess_precision=True)
        lowered = self._lowered(traced)
        key = self._key(lowered.as_text(), (), options) if diskcache.folder() else ""
        executable, _ = self._kept(key, options) if key else (None, None)
        program = _program(executable or self._compiled(lowered, options, key)[0])
        kept = compat.kept_arguments(lowered)
        return program if kept is None else lambda arrays: program([arrays[i] for i in kept])

    def _lowered(self, traced: Any) -> Any:
        lowered = traced.lower(lowering_platforms=("cpu",))
        if compat.calls_back(traced, lowered):
            raise CallsBack
        return lowered

    def _compiled(self, lowered: Any, options: Any, key: str) -> tuple[Any, bytes | None]:
        """Compile, and keep the program on disk if it has a key: the executable, and what it was kept as."""
        module = lowered.compiler_ir("stablehlo")
        executable, kept = self.client.compile_and_load(module, self.devices, options), None
        if key:
            try:
                kept = self.client.serialize_executable(executable)
            except compat.JaxRuntimeError:  # some programs have parts that can't be written down
                return executable, None
            diskcache.put("programs", key, kept)
        return executable, kept

    def _key(self, text: str, avals: Sequence[jax.ShapeDtypeStruct], options: Any) -> str:
        """All that decides a program."""
        shapes = ", ".join(f"{a.dtype.name}{list(a.shape)}" for a in avals)
        parts = (f"serial {self.serial}", compat.tracing_state(), options.SerializeAsString().hex())
        return "\n".join((text, shapes, diskcache.this_machine(), *parts))

    def _kept(self, key: str, options: Any) -> tuple[Any, bytes | None]:
        """The program that an earlier process left, and what it was kept as; or (None, None)."""
        kept = diskcache.get("programs", key)
        if kept is None:
            return None, None
        try:
            return self.client.deserialize_executable(kept, self.devices, options), kept
        except compat.JaxRuntimeError:  # from another build of the same version, say
            diskcache.drop("programs", key)
            return None, None


def _is_for_the_library(jaxpr: Any, serial: bool) -> bool:
    """Whether products are better left to XLA's library, which multiplies large matrices faster than BLAS.

    So they are where they take much longer than a call, where numbers are of half precision, and where the program has
    other parts that can't be called directly.
    """
    work = 0
    for equation in compat.equations(jaxpr):
        name = equation.primitive.name
        if name in _INDIRECT:
            return True
        if name == "dot_general":
            left, right = (v.aval for v in equation.invars)
            if left.dtype.itemsize < 4 or not serial:  # a forked child would wait for BLAS's threads
                return True
            (summed, _), (batch, _) = equation.params["dimension_numbers"]
            shared = math.prod(left.shape[d] for d in (*summed, *batch))
            work += left.size * right.size // max(shared, 1)
    return work > _PRODUCTS


def _program(executable: Any) -> Program:
    """The executable as a function of lists.

    The first results tell what all later ones look like: handlers made from them build an array in a fifth of the time
    that jax takes to work out what it is.
    """
    execute, handlers = executable.execute_sharded, None

    def call(arrays: list[Any]) -> list[Any]:
        nonlocal handlers
        if handlers is None:
            results = [shards[0] for shards in execute(arrays).disassemble_into_single_device_arrays()]
            handlers = (
                compat.result_handlers([(r.shape, r.dtype) for r in results], results[0].sharding) if results else []
            )
            return results
        return execute(arrays).consume_with_handlers(handlers)

    call.execute = execute
    return call


def parts(program: Program, results: Sequence[tuple[tuple[int, ...], Any]], engine: Engine) -> tuple[Any, list[Any]]:
    """A program as what its caller may write out: ``execute(arrays).consume_with_handlers(handlers)``.

    Args:
        program: from `Engine.compile`.
        results: shape and dtype of everything that the program returns.
        engine: the one that compiled it.
    """
    return program.execute, compat.result_handlers(results, jax.sharding.SingleDeviceSharding(engine.device))


def direct(
    program: Program,
    operands: Sequence[tuple[tuple[int, ...], Any]],
    results: Sequence[tuple[tuple[int, ...], Any]],
    engine: Engine,
    late: Collection[int] = (),
) -> Native | None:
    """A program from `Engine.compile` as a function of addresses, or None where its caller has to go through XLA.

    Args:
        program: the program.
        operands: shape and numpy dtype of each.
        results: likewise.
        engine: the one that compiled it.
        late: positions of results that may lie where operands do: they are written when all else is done.
    """
    nbytes = sum(math.prod(shape) * dtype.itemsize for shape, dtype in (*operands, *results))
    if not compat.code_is_known or type(engine) is not Engine or nbytes > (_DIRECT if engine.serial else SMALL):
        return None
    found = native(program.written, operands, results, late)
    if found is None:
        return None
    with compat.without_modes():
        return found if _agrees(found, program, operands, results, engine) else None


def _agrees(found: Native, program: Program, operands: Any, results: Any, engine: Engine) -> bool:
    """Whether a program computes the same when it is called directly: the same bits, matrix products aside.

    On small numbers, and on numbers that are far from zero with a NaN first, which take the other way at a condition.
    """
    outputs = [torch.zeros(math.prod(s) * d.itemsize, dtype=torch.uint8, device=_cpu) for s, d in results]
    for strange in (False, True):
        inputs = [_example(shape, dtype, position, strange) for position, (shape, dtype) in enumerate(operands)]
        words, argument, _ = frame = found.frame()
        for word, t in enumerate((*inputs, *outputs)):
            words[word] = t.data_ptr()
        failed = found.run(argument)
        expected = program([engine.share(t) for t in inputs])
        del frame
        for t, e in zip(outputs, expected, strict=True):
            data = ctypes.string_at(e.unsafe_buffer_pointer(), t.numel())
            same = bytes(t.numpy()) == data
            if failed or not (same or (found.rounds and _close(t.numpy(), data, e.dtype))):
                return False
    return True


def _close(found: Any, expected: bytes, dtype: Any) -> bool:
    """Whether floats differ by rounding, beside the largest of them, and are NaN in the same places."""
    if not jax.numpy.issubdtype(dtype, jax.numpy.floating):
        return False
    a, b = (np.frombuffer(v, dtype).astype(np.float64) for v in (found, expected))
    known = np.isfinite(b)
    if not np.array_equal(a[~known], b[~known], equal_nan=True) or not np.isfinite(a[known]).all():
        return False
    scale = np.abs(b[known]).max(initial=0.0)
    return bool(np.abs(a[known] - b[known]).max(initial=0.0) <= _ROUNDING * scale)


def _example(shape: tuple[int, ...], dtype: Any, position: int, strange: bool) -> torch.Tensor:
    """An aligned operand to try a program on."""
    count, kind = math.prod(shape), by_jax(dtype).torch
    assert kind is not None
    room = torch.empty(count * dtype.itemsize + ALIGNMENT, dtype=torch.uint8, device=_cpu)
    place = room[-room.data_ptr() % ALIGNMENT :][: count * dtype.itemsize].view(kind)
    values = torch.arange(position, position + _PERIOD, device=_cpu).mul_(7919).remainder_(_PERIOD)
    if not (kind.is_floating_point or kind.is_complex):
        values = values.remainder_(3)
    else:
        values = values / 128 + (1000 if strange else -2)
    values = values.to(kind)
    whole = count // _PERIOD * _PERIOD
    place[:whole].view(-1, _PERIOD).copy_(values)
    place[whole:].copy_(values[: count - whole])
    if strange and (kind.is_floating_point or kind.is_complex):
        place[:1] = math.nan
    return place.view(shape)


class CallsBack(Exception):
    """A program calls Python while it runs, as prints do."""


class JaxEngine(Engine):
    """jax's own client, for programs that call Python: slower, and the result is not there when the call returns."""

    def __init__(self) -> None:
        self.serial = False
        self.device = compat.cpu_device()

    def compile(
        self, fn: Callable[..., Any], avals: Sequence[jax.ShapeDtypeStruct], text: str = "", lanes: bool = False
    ) -> Program:
        """As `Engine.compile`; nothing is kept on disk, and XLA's library is used."""
        jitted = jax.jit(fn)

        def call(arrays: list[Any]) -> list[Any]:
            with compat.x64():
                results = list(jitted(*arrays))
                if not results:
                    jax.effects_barrier()  # with nothing to wait for, the operands would be let go too early
                return results

        return call

    def share(self, t: torch.Tensor) -> jax.Array:
        """As `Engine.share`."""
        with compat.x64():
            return compat.share_with_device(t, self.device)


class Window:
    """One operand of a program: dtype and shape are fixed, the address of its memory varies.

    A small operand at a new address is copied to memory that is an array already: `take` gives that array, until `give`
    returns it.

    Arrays are cached by address. They own nothing, so an address that torch reuses for another tensor is the same
    array again; a tensor that keeps its address is imported once. `set_`, `.data =` and `resize_` change the address,
    and are seen. Unaligned memory is copied on every call, because jax would copy it at import.

    Attributes:
        cache: address -> array; a caller looks here first.
    """

    __slots__ = ("_dtype", "_engine", "_nbytes", "_seen", "_spare", "_strides", "cache", "shape", "small")

    def __init__(self, engine: Engine, dtype: torch.dtype, shape: tuple[int, ...]):
        self._engine, self._dtype, self.shape = engine, dtype, shape
        self._strides = row_major(shape)
        self._nbytes = math.prod(shape) * dtype.itemsize
        self.cache: dict[int, jax.Array] = {}
        self._seen: set[int] = set()
        self._spare: list[tuple[jax.Array, int, torch.Tensor]] = []
        #: whether a caller asks `take` for an address that is not in the cache
        self.small = type(engine) is Engine and 0 < self._nbytes <= SMALL

    def take(self, pointer: int) -> tuple[jax.Array, int, torch.Tensor] | None:
        """A copy of a small operand: the array, and what goes back to `give`; None for an address worth an import."""
        if not pointer % ALIGNMENT:
            if pointer in self._seen:
                return None
            if len(self._seen) >= _CACHE_LIMIT:
                self._seen.clear()
            self._seen.add(pointer)
        try:
            cell = self._spare.pop()
        except IndexError:
            room = torch.empty(self._nbytes + ALIGNMENT, dtype=torch.uint8, device=_cpu)
            room = room[-room.data_ptr() % ALIGNMENT :][: self._nbytes]
            place = room.view(self._dtype).view(self.shape)
            cell = (self._engine.share(place), place.data_ptr(), place)
        ctypes.memmove(cell[1], pointer, self._nbytes)
        return cell

    def give(self, cell: tuple[jax.Array, int, torch.Tensor]) -> None:
        """The program is done with the copy."""
        self._spare.append(cell)

    def __call__(self, pointer: int, t: torch.Tensor | None = None) -> jax.Array:
        """The array for an address that is not in the cache.

        Args:
            pointer: where the operand begins; so much memory as it needs is there.
            t: the tensor that begins there, if it has just this dtype, shape and layout.
        """
        if pointer % ALIGNMENT:
            storage = compat.storage_at(pointer, _cpu, self._nbytes)
            view = torch.empty(0, dtype=self._dtype, device=_cpu).set_(storage, 0, self.shape, self._strides)
            return self._engine.share(view.clone())
        if t is not None and pointer not in self._seen:
            # Most addresses are seen once, and this is half as dear.
            if len(self._seen) >= _CACHE_LIMIT:
                self._seen.clear()
            self._seen.add(pointer)
            return self._engine.share(t.detach() if t.requires_grad else t)
        array = self._engine.share_pointer(pointer, self._nbytes, self._dtype, self.shape, self._strides)
        if len(self.cache) >= _CACHE_LIMIT:
            self.cache.clear()
        self.cache[pointer] = array
        return array


class _Place:
    """An element of a tensor, set as ctypes' numbers are: for dtypes that C has not."""

    def __init__(self, t: torch.Tensor):
        self._tensor = t

    def _set(self, value: float) -> None:
        self._tensor.fill_(value)

    value = property(fset=_set)


class Number:
    """One run-time number of a program, as an array of shape (1,).

    `take` gives an array that holds the number until `give` returns it; each thread that is in the program has its own.
    """

    __slots__ = ("_engine", "_spare", "_type")

    def __init__(self, engine: Engine, dtype: str):
        self._engine, self._type = engine, dtype
        self._spare: list[tuple[jax.Array, Any, torch.Tensor]] = []

    def take(self, value: float) -> tuple[jax.Array, Any, torch.Tensor]:
        """The array, and what goes back to `give`; a float that is too large for float32 becomes infinite, as in C."""
        try:
            cell = self._spare.pop()
        except IndexError:
            memory = torch.zeros(ALIGNMENT, dtype=torch.uint8, device=_cpu)
            place = memory.view(getattr(torch, self._type))[:1]
            kind = _C_TYPES.get(self._type)
            number = _Place(place) if kind is None else kind.from_address(memory.data_ptr())
            cell = (self._engine.share(place), number, memory)
        cell[1].value = value
        return cell

    def give(self, cell: tuple[jax.Array, Any, torch.Tensor]) -> None:
        """The program is done with the number."""
        self._spare.append(cell)


def _serial_client() -> Any:
    """A client whose programs are compiled for one thread: it is made by a thread that sees one core."""
    made: list[Any] = []

    def make() -> None:
        cores = os.sched_getaffinity(0)
        before = set(os.listdir("/proc/self/task"))
        os.sched_setaffinity(0, {min(cores)})
        made.append(compat.new_cpu_client())
        for task in set(os.listdir("/proc/self/task")) - before:
            # Its threads are not to stay on that one core.
            with contextlib.suppress(OSError):
                os.sched_setaffinity(int(task), cores)

    if not hasattr(os, "sched_setaffinity"):
        return compat.new_cpu_client()
    worker = threading.Thread(target=make)
    worker.start()
    worker.join()
    return made[0] if made else compat.new_cpu_client()
