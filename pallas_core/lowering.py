"""Any function with `pallas_call`s inside -> a checked trace, and from it a module for a target.

Input: a function, argument specs and a target. Output: `Program`: the described `pallas_call`s and, for a TPU, the
StableHLO bytes. Law: tracing uses the same 64-bit mode whatever the caller's is, and an exception of the user's
kernel or of jax leaves as a diagnostic with the user's line.
"""

from __future__ import annotations

import contextlib
import contextvars
import dataclasses
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax

from bridge.compat import quiet_cpu_start
from bridge.devices import Target
from bridge.diagnostics import Diagnostic, Where, error
from pallas_core import captures, compat, shapes
from pallas_core.reasons import explain_failure, where_raised
from pallas_core.targets import mosaic_gpu
from pallas_core.targets.tpu import CHIPS, TpuChip

#: While set, every pc.pallas_call traces for this target instead of its own.
_target: contextvars.ContextVar[Target | None] = contextvars.ContextVar("pallas_core_target", default=None)


def forced_target() -> Target | None:
    """The target that a surrounding compile asks for, or None."""
    return _target.get()


@contextlib.contextmanager
def force_target(target: Target) -> Iterator[None]:
    """Within this context, functions of `pallas_call` trace for `target`."""
    token = _target.set(target)
    try:
        yield
    finally:
        _target.reset(token)


@dataclass(frozen=True)
class Program:
    """A traced function.

    Attributes:
        name: of the function.
        target: what it was traced for.
        calls: its `pallas_call`s.
        traced: jax's own object.
    """

    name: str
    target: Target
    calls: tuple[compat.PallasCall, ...]
    traced: Any = field(repr=False)


@dataclass(frozen=True)
class Lowered:
    """A program lowered for a TPU: what the compiler gets.

    Attributes:
        program: the trace it came from.
        module: StableHLO as MLIR bytecode.
    """

    program: Program
    module: bytes = field(repr=False)
    _lowered: Any = field(repr=False)

    def as_text(self) -> str:
        """The StableHLO module as text; Mosaic kernels are embedded as encoded payloads."""
        return self._lowered.as_text()


def chip_of(target: Target, what: str = "this") -> TpuChip:
    """The chip a TPU target names.

    Raises:
        Diagnostic: ``unknown-target`` for another kind of target, or one without a chip.
    """
    if target.kind == "tpu" and target.chip in CHIPS:
        return CHIPS[target.chip]
    raise error(
        "unknown-target",
        f"{what} needs a TPU chip, not '{target}'",
        why="what the offline compiler produces depends on the chip.",
        do="name one of: " + ", ".join(f"tpu:{name}" for name in CHIPS),
    )


def gpu_chip_of(target: Target) -> mosaic_gpu.GpuChip:
    """The chip a GPU target names.

    Raises:
        Diagnostic: ``unknown-target`` for one without a chip.
    """
    if target.kind == "gpu" and target.chip in mosaic_gpu.CHIPS:
        return mosaic_gpu.CHIPS[target.chip]
    raise error(
        "unknown-target",
        f"this needs a GPU architecture, not '{target}'",
        why="what the offline compiler produces depends on the architecture.",
        do="name one of: " + ", ".join(f"gpu:{name}" for name in mosaic_gpu.CHIPS),
    )


def _device(target: Target) -> contextlib.AbstractContextManager[None]:
    """Within this context, jax sees the target's device."""
    if target.kind == "tpu":
        return compat.abstract_tpu(chip_of(target).device_kind)
    if target.kind == "gpu" and target.chip is not None:
        chip = gpu_chip_of(target)
        return compat.abstract_gpu(chip.board, chip.capability)
    return contextlib.nullcontext()


def check_args(args: Any) -> None:
    """Arguments come as a tuple or a list.

    Raises:
        Diagnostic: ``bad-argument``.
    """
    if not isinstance(args, (tuple, list)):
        raise error(
            "bad-argument",
            f"args is a tuple of arguments, not {type(args).__name__}",
            where=Where.caller(2),
            why="every element of it is one argument, and an array has elements too.",
            do="for one argument: (x,)",
        )


def specs_of(args: Sequence[Any]) -> tuple[Any, ...]:
    """Specs of arguments given as tensors, arrays, specs or (nested) containers of them.

    Raises:
        Diagnostic: ``bad-argument``.
    """
    is_leaf = lambda x: hasattr(x, "shape") and hasattr(x, "dtype")
    check_args(args)
    return tuple(jax.tree.map(shapes.like, tuple(args), is_leaf=is_leaf))


def trace(
    fn: Callable[..., Any],
    specs: Sequence[Any],
    target: Target,
    x64: bool = False,
    sharding: Any = None,
    kernel: Any = None,
    where: Where | None = None,
    name: str | None = None,
) -> Program:
    """Trace `fn` on specs for a target.

    Args:
        fn: a function on jax values; may be jitted.
        specs: its arguments.
        target: a chip is needed for ``tpu``.
        x64: whether 64-bit values exist while tracing.
        sharding: where the arguments live, or None.
        kernel: the kernel inside `fn`, to search for captured arrays; `fn` itself when None.
        where: the user's line that made the `pallas_call`; the line that calls it when None.
        name: for messages and the compiled program; the function's own when None.

    Raises:
        Diagnostic: the kernel or the function can't be traced.
    """
    quiet_cpu_start()
    label: str = name or getattr(fn, "__name__", None) or type(fn).__name__
    if sharding is not None:
        specs = jax.tree.map(lambda s: jax.ShapeDtypeStruct(s.shape, s.dtype, sharding=sharding), tuple(specs))
    try:
        with force_target(target), compat.x64(x64), compat.refuse_64_bit_dtypes(), _device(target):
            traced = jax.jit(compat.with_name(fn, label)).trace(*specs)
    except Diagnostic:
        raise
    except Exception as exc:  # the user's own code runs in here: whatever it raises is explained
        raise trace_failure(exc, kernel or getattr(fn, "kernel", fn), target) from exc
    calls = compat.pallas_calls(traced.jaxpr)
    if where is not None:
        calls = tuple(dataclasses.replace(call, where=where) for call in calls)
    return Program(label, target, calls, traced)


def wants_64_bits(exc: BaseException) -> bool:
    """Whether tracing failed because the kernel asks for a 64-bit value while x64 is off."""
    return compat.is_64_bit_request(exc.__cause__ or exc)


def trace_failure(exc: Exception, kernel: Any, target: Target) -> Diagnostic:
    """The diagnostic of an exception raised while a kernel was traced."""
    place = where_raised(exc) or Where.of_function(kernel)
    captured = captures.diagnose(exc, kernel)
    if captured is not None:
        return captured
    if compat.is_64_bit_request(exc):
        wanted = str(exc).split()[3]
        return error(
            "tpu-dtype",
            f"{wanted} inside a kernel for '{target}'",
            where=place,
            why=f"the TPU has no 64-bit values, so {wanted} can't exist in a tpu kernel.",
            do=f"use {wanted.replace('64', '32')}",
        )
    if isinstance(exc, ValueError) and str(exc).startswith("Out of bound"):
        return error(
            "ref-index-out-of-bounds",
            "a Ref is accessed past its end",
            where=place,
            why=str(exc).rstrip(".") + ": the kernel sees one block, and memory beside it belongs to others.",
            do="stay below the block's extent (`x_ref.shape`), or let the index map pick another block",
        )
    return error(
        "kernel-trace-failed",
        f"{type(exc).__name__} while the kernel was traced",
        where=place,
        why="\n".join(str(exc).strip().splitlines()[:3])[:600] or "no message.",
        do="a kernel sees Refs and traced values: static shapes, no Python branches on data, no numpy on Refs",
    )


def lower(program: Program) -> Lowered:
    """Lower a traced program for its TPU: Mosaic's own checks happen here.

    Raises:
        Diagnostic: an operation, a block or a dtype that has no TPU form.
    """
    chip = chip_of(program.target)
    try:
        with compat.x64(False), compat.abstract_tpu(chip.device_kind):
            lowered = program.traced.lower(lowering_platforms=("tpu",))
            module = compat.bytecode(lowered)
    except Exception as exc:  # Mosaic's lowering raises a dozen types, all of them a verdict on the kernel
        place = where_raised(exc) or next((c.where for c in program.calls), None)
        raise explain_failure(str(exc), chip, place, program.traced.jaxpr, "lower") from exc
    return Lowered(program, module, lowered)
