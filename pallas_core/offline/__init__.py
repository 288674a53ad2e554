"""Compile for a TPU or a GPU that is not here: the real compiler, in its own process.

Input: a function of `pc.pallas_call`, or any jax function with `pallas_call`s inside, and argument specs. Output:
`Compiled` with the program's text, its memory figures and its static schedule; or a diagnostic with the compiler's
reason. Law: what is static is checked first, and the user's process loads no libtpu.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from bridge.devices import Target
from bridge.diagnostics import Where, error
from bridge.progress import doing
from pallas_core import budget, laws, lowering
from pallas_core.budget import Budget
from pallas_core.offline import client, gpu
from pallas_core.offline.gpu import GpuReport
from pallas_core.reasons import explain_failure

if TYPE_CHECKING:
    from pallas_core.schedule import Report

#: Seconds until a compile is given up.
TIMEOUT = 600.0
_answers: dict[tuple[str, str, bool], tuple[dict[str, Any], dict[str, str]]] = {}


@dataclass(frozen=True)
class Compiled:
    """A program that the TPU compiler accepted.

    Attributes:
        name: of the function.
        target: as ``tpu:v5e``.
        text: the optimised HLO module.
        memory: bytes of arguments, outputs, temporaries and code, as the compiler reports them.
        cost: the compiler's roofline figures; blind to Pallas kernels.
        seconds: what the compile took.
    """

    name: str
    target: Target
    text: str = field(repr=False)
    memory: dict[str, int]
    cost: dict[str, float] = field(repr=False)
    seconds: float
    _lowered: lowering.Lowered = field(repr=False, compare=False)

    def as_text(self) -> str:
        """The optimised HLO module."""
        return self.text

    def schedule(self, flops: float | None = None, timeout: float = TIMEOUT) -> Report | GpuReport:
        """The static schedule (compiles once more, with the schedule written out); the figures of a GPU's code.

        Args:
            flops: operations of one run, for the utilisation; counted from the jaxpr when None.
            timeout: seconds.
        """
        from pallas_core.schedule import report

        return report(self._lowered, flops=flops, timeout=timeout)


def compile_for(
    f: Callable[..., Any], args: Sequence[Any], target: str | Target, *, timeout: float = TIMEOUT
) -> Compiled:
    """Compile `f` for a chip that need not be here.

    Args:
        f: a function of `pc.pallas_call`, or any jax function (jitted or not), with or without Pallas kernels.
        args: its arguments: tensors, arrays, `pc.spec(shape, dtype)` or `jax.ShapeDtypeStruct`; only shapes and dtypes
            are read.
        target: ``"tpu:v4"``, ``"tpu:v5e"``, ``"tpu:v5p"``, ``"tpu:v6e"``, ``"tpu:7x"``; for functions with kernels of
            `plgpu.kernel` also ``"gpu:sm90a"`` and ``"gpu:sm100a"``.
        timeout: seconds until the compiler is stopped.

    Raises:
        Diagnostic: the program breaks a law of the target, the compiler refuses it, or the compiler is not installed.
    """
    if isinstance(timeout, bool) or not isinstance(timeout, (int, float)) or not timeout > 0:
        raise error(
            "bad-argument",
            f"timeout={timeout!r}",
            where=Where.caller(),
            why="it is a positive number of seconds.",
            do="timeout=600",
        )
    lowered = lower_for(f, args, target)
    answer, _ = compile_lowered(lowered, dump=False, timeout=timeout)
    program = lowered.program
    return Compiled(
        program.name, program.target, answer["text"], answer["memory"], answer["cost"], answer["seconds"], lowered
    )


def lower_for(f: Callable[..., Any], args: Sequence[Any], target: str | Target) -> lowering.Lowered:
    """The part of `compile_for` before the compiler: trace, static laws, Mosaic's lowering.

    Raises:
        Diagnostic: as `compile_for`.
    """
    program = trace_for(f, args, target)
    if program.target.kind == "gpu":
        return gpu.lower(program)
    laws.check_tpu(program, lowering.chip_of(program.target))
    return lowering.lower(program)


def trace_for(f: Callable[..., Any], args: Sequence[Any], target: str | Target) -> lowering.Program:
    """Trace `f` for a TPU or a GPU; only what the arguments themselves break is refused.

    Raises:
        Diagnostic: as `compile_for`.
    """
    target = Target.parse(target)
    if target.kind != "gpu" or hasattr(f, "check_target"):  # functions of pc.pallas_call have no GPU form
        lowering.chip_of(target, "compile_for")
    else:
        lowering.gpu_chip_of(target)
    if not callable(f):
        raise error(
            "bad-argument",
            f"compile_for needs a function, not {type(f).__name__}",
            where=Where.caller(),
            why="it traces the function with arguments that have a shape and no contents.",
            do="pass the function itself, not what it returns: compile_for(f, (x,), target)",
        )
    specs = lowering.specs_of(args)
    before = getattr(f, "check_target", None)
    if before is not None:
        before(target, specs)
    kernel, where = getattr(f, "kernel", f), getattr(f, "where", None)
    return lowering.trace(
        getattr(f, "on_jax", f), specs, target, kernel=kernel, where=where, name=getattr(f, "name", None)
    )


def vmem_budget(f: Callable[..., Any], args: Sequence[Any], target: str | Target) -> Budget:
    """The VMEM that the kernel of `f` needs, before any compiling; the largest if there are several.

    Args:
        f: as for `compile_for`.
        args: as for `compile_for`.
        target: ``"tpu:v5e"`` ...

    Returns:
        A `Budget`: ``.bytes``, ``.limit``, ``.fits``, ``.operands``, ``.diagnostic``; prints as a table.

    Raises:
        Diagnostic: `f` can't be traced, or has no Pallas kernel.
    """
    program = trace_for(f, args, target)
    chip = lowering.chip_of(program.target)
    if not program.calls:
        raise error(
            "bad-argument",
            f"`{program.name}` has no Pallas kernel",
            why="only the blocks of a pallas_call have a VMEM budget.",
            do="pass a function that calls one",
        )
    return max((budget.of_call(call, chip) for call in program.calls), key=lambda b: b.bytes)


def compile_lowered(
    lowered: lowering.Lowered, *, dump: bool, timeout: float = TIMEOUT
) -> tuple[dict[str, Any], dict[str, str]]:
    """Send a lowered program to the compiler; the answer is kept in memory.

    Args:
        lowered: of `lower_for`.
        dump: whether to have the schedule written out.
        timeout: seconds.

    Returns:
        The worker's answer, and the schedule's listings by file name.

    Raises:
        Diagnostic: as `compile_for`.
    """
    program = lowered.program
    if program.target.kind == "gpu":
        return gpu.compile_lowered(lowered, texts=False, timeout=timeout), {}
    chip = lowering.chip_of(program.target)
    key = (hashlib.sha256(lowered.module).hexdigest(), chip.name, dump)
    if key not in _answers:
        with doing(f"compiling {program.name} for {program.target}"):
            _answers[key] = client.worker(dump).compile(lowered.module, chip, timeout)
    answer, listings = _answers[key]
    if not answer["ok"]:
        where = next((c.where for c in program.calls), None)
        raise explain_failure(answer["message"], chip, where, program.traced.jaxpr)
    return answer, listings
