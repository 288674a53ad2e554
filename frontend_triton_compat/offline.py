"""A kernel on a target that is not here: translated, compiled by the target's real compiler, judged.

Input: a kernel, arguments (tensors, arrays, or specs without data), a grid and a target. Output: the emitted `Module`,
or a `Verdict` with the static figures. Law: nothing is run and nothing is written; fp16, which a TPU does not have, is
held as fp32 there, and a note says so.
"""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp

import pallas_core as pc
from bridge.devices import Target
from bridge.diagnostics import Diagnostic, Where, error, note
from frontend_triton_compat import figures
from frontend_triton_compat.access import Memory
from frontend_triton_compat.aliases import Aliases, aliases_of, flat_params, memory_of
from frontend_triton_compat.arguments import Call
from frontend_triton_compat.cheaper import cheapen
from frontend_triton_compat.compiled import load_source
from frontend_triton_compat.emit import cpu, gpu, tpu
from frontend_triton_compat.emit.module import Module
from frontend_triton_compat.flat import by_rows
from frontend_triton_compat.holding import NARROWED, held_in_memory, hold
from frontend_triton_compat.ir import Kernel, walk
from frontend_triton_compat.launch_grid import grid_of
from frontend_triton_compat.parse import parse
from frontend_triton_compat.parse.persistent import a_program_a_tile
from frontend_triton_compat.parse.starts import start_together
from frontend_triton_compat.schedule import Schedule, wider
from frontend_triton_compat.specialise import note_short_grid, plan_for
from frontend_triton_compat.types import BF16, FP16, FP32, dtype

if TYPE_CHECKING:
    from frontend_triton_compat.launch import JITFunction


#: Diagnostics that mean that what we emitted is wrong, not what the user wrote.
DEFECTS = (
    "internal-error",
    "gpu-compile-failed",
    "gpu-compiler-crash",
    "tpu-compile-failed",
    "tpu-compiler-crash",
    "kernel-trace-failed",
    "kernel-arity",
)

#: Remedies for whoever wrote a Triton kernel, where a diagnostic's own are for whoever wrote a Pallas one.
_REMEDIES = {
    "vmem-budget": (
        "let a program take a part of what it holds at once: go over long rows in chunks, with what is carried in sums",
        "store what is needed later instead of keeping it, and split the kernel where two halves hold different tiles",
    )
}


@dataclass(frozen=True)
class Verdict:
    """What a target says of a kernel.

    Attributes:
        kernel: its name.
        file, line: its ``def``.
        target: as asked for.
        verdict: ``ok`` (the real compiler took it), ``diagnosed`` (a diagnostic says why not) or ``failed`` (a defect
            of the translation).
        code, slug, message: of the diagnostic.
        where: line and column the diagnostic points at.
        static: figures of the compiler's program by name; which ones depends on the target (for a TPU time_ms, bound,
            mxu, hbm_bytes, vmem_bytes, spills, units; for a GPU bound, registers, spills, smem_bytes,
            instructions). None unless ok.
        launch: the launch as text, where a command names it.
        config: of `autotune`, where a command judges each.
        values: what `verify` said of the launch, where a command asked: verdict, launches, largest, message.
        source: the emitted module; "" when there is none.
        report: the target's own report, with more than `static` has.
        problem: the diagnostic itself.
    """

    kernel: str
    file: str
    line: int
    target: str
    verdict: str
    code: str = ""
    slug: str = ""
    message: str = ""
    where: dict[str, int] | None = None
    static: dict[str, Any] | None = None
    launch: str = ""
    config: str = ""
    values: dict[str, Any] | None = None
    source: str = field(default="", repr=False)
    report: Any = field(default=None, repr=False, compare=False)
    problem: Diagnostic | None = field(default=None, repr=False, compare=False)

    def to_dict(self) -> dict[str, Any]:
        """The verdict as plain values, without source, report and problem."""
        plain = dataclasses.asdict(dataclasses.replace(self, report=None, problem=None))
        del plain["source"], plain["report"], plain["problem"]
        return plain

    def __str__(self) -> str:
        if self.verdict != "ok":
            return f"{self.kernel} on {self.target}: {self.verdict}\n{self.message}"
        said = figures.in_words(self.static)
        return f"{self.kernel} on {self.target}: ok" + (f", the compiler took it; {said}" if said else "")


def translate(kernel: JITFunction, args: Sequence[Any], kwargs: Mapping[str, Any], grid: Any, target: str) -> Module:
    """The module that runs on `target`.

    Raises:
        TranslationError: the kernel, or its arguments, have no translation there.
    """
    where = kernel.where
    family = Target.parse(target)
    call = kernel._signature.call(args, kwargs, placeless=True)
    sizes = grid_of(grid, call.meta, where)
    memories = {name: memory_of(name, a, exact=True) for name, a in call.arrays.items()}
    aliases = aliases_of(call)
    params = {p.name: p for p in call.params}
    if family.kind == "cpu":
        return plan_for(lambda: parse(kernel.__translated__, params, sizes), memories, aliases, cpu.emit, chunked=True)[
            1
        ]
    if family.kind == "gpu":
        chip = family.chip or "sm90a"
        build = lambda: parse(kernel.__translated__, params, sizes)
        plan, module = plan_for(build, memories, aliases, lambda plan: gpu.emit(plan, chip))
        note_short_grid(plan, sizes)
        _note_int64(kernel, call, {a.param for a in plan.accesses.values()}, target)
        return module
    return on_tpu(kernel, call, sizes, memories, aliases, params, family)[1]


def on_tpu(
    kernel: JITFunction,
    call: Call,
    sizes: tuple[int, int, int],
    memories: dict[str, Memory],
    aliases: Aliases,
    params: Mapping[str, Any],
    target: Target,
) -> tuple[Schedule, Module]:
    """A launch's form for a TPU.

    Args:
        kernel: what is launched.
        call: its arguments.
        sizes: of the grid.
        memories: how its tensors lie, by parameter.
        aliases: which of them share memory.
        params: what is known of the parameters.
        target: a TPU.

    Raises:
        TranslationError: the kernel, or its arguments, have no translation there.
    """
    held = fp16_held()
    if any(p.type == FP16 for p in flat_params(call.params)):
        note(
            "fp16-on-tpu",
            f"{kernel.fn.__name__}: fp16 is held as {held} on {target}",
            where=kernel.where,
            why="the TPU compiler refuses fp16 loads and conversions",
            do="hold the tensors as bfloat16 to keep their size"
            if held == FP32
            else "set TORCH_PALLAS_TPU_FP16=fp32 to keep all digits of fp16",
        )

    def build() -> Kernel:
        return cheapen(hold(parse(kernel.__translated__, params, sizes), held))

    chip = target.chip or "v5e"
    found = _persistent(build, memories, aliases, chip)
    plan, module = found or _on_tpu(build, memories, aliases, chip)
    note_short_grid(plan, sizes)
    _note_int64(kernel, call, {a.param for a in plan.accesses.values()}, str(target))
    return plan, module


def _persistent(
    build: Callable[[], Kernel], memories: dict[str, Memory], aliases: Aliases, chip: str
) -> tuple[Schedule, Module] | None:
    """A kernel whose programs go over tiles, with a program a tile; None where that is not what it does, or no help."""

    def tiles() -> Kernel:
        kernel = build()
        a_program_a_tile(kernel)
        return kernel

    if not a_program_a_tile(build()):
        return None
    try:
        plan, module = _on_tpu(tiles, memories, aliases, chip)
    except Diagnostic:
        return None
    told = {a.param for a in plan.accesses.values() if a.form.opaques} & set(plan.written)
    if any(a.op.kind == "load" and a.param in told for a in plan.accesses.values()):
        return None  # a tile may read what the one before it wrote
    return plan, module


def _on_tpu(
    build: Callable[[], Kernel], memories: dict[str, Memory], aliases: Aliases, chip: str
) -> tuple[Schedule, Module]:
    """A kernel's schedule and module for a chip, by the first way that has a form."""
    blocks = lambda plan: tpu.emit(plan, chip)
    try:
        at_zero = lambda kernel: wider(kernel, memories, aliases.same, from_zero=True)
        for rewrite in (at_zero, lambda kernel: wider(kernel, memories, aliases.same), by_rows):
            found = _rewritten(build, rewrite, memories, aliases, blocks)
            if found is not None:
                return found
        return plan_for(build, memories, aliases, blocks, blocked=True)
    except Diagnostic as refused:
        found = _from_zero(build, memories, aliases, blocks)
        if found is None and (refused.slug not in tpu.STEERED_BY or not tpu.steered(build(), memories, aliases.same)):
            raise
        return found or _steered(build, memories, aliases, chip, refused)


def _rewritten(
    build: Callable[[], Kernel],
    rewrite: Callable[[Kernel], bool],
    memories: dict[str, Memory],
    aliases: Aliases,
    emit: Callable[[Schedule], Module],
) -> tuple[Schedule, Module] | None:
    """A kernel in another form; None where the rewrite does not apply, or where what it gives is refused."""
    first = build()
    if not rewrite(first):
        return None
    ready = [first]

    def rewritten() -> Kernel:
        if ready:
            return ready.pop()
        kernel = build()
        rewrite(kernel)
        return kernel

    try:
        return plan_for(rewritten, memories, aliases, emit, blocked=True)
    except Diagnostic:
        return None


def _from_zero(
    build: Callable[[], Kernel], memories: dict[str, Memory], aliases: Aliases, emit: Callable[[Schedule], Module]
) -> tuple[Schedule, Module] | None:
    """A kernel whose loops begin where the program says, with loops that begin at 0; None where that does not help."""

    def together() -> Kernel:
        kernel = build()
        start_together(kernel)
        return kernel

    try:
        return plan_for(together, memories, aliases, emit, blocked=True) if start_together(build()) else None
    except Diagnostic:
        return None


def _steered(
    build: Callable[[], Kernel], memories: dict[str, Memory], aliases: Aliases, chip: str, refused: Diagnostic
) -> tuple[Schedule, Module]:
    """A kernel that loaded numbers steer, one program at a time: of all programs, or of those that are steered.

    Raises:
        Diagnostic: neither has a form; `refused`, what a grid of blocks was refused for, if that says as much.
    """
    products = any(op.kind == "dot" for op in walk(build().body))  # whose tiles are large enough
    found: Diagnostic | None = None
    for which in ("all", "some") if products else ("some", "all"):
        try:
            return plan_for(
                build, memories, aliases, lambda plan: tpu.emit_steered(plan, chip), blocked=True, steered=which
            )
        except Diagnostic as again:
            found = found or again
    assert found is not None
    raise (refused if found.slug in tpu.STEERED_BY[:3] else found) from None


def fp16_held() -> dtype:
    """What fp16 is held as on a TPU: fp32, or bf16 if ``TORCH_PALLAS_TPU_FP16`` says so."""
    asked = os.environ.get("TORCH_PALLAS_TPU_FP16", "fp32")
    if asked not in ("fp32", "bf16"):
        raise error(
            "bad-argument",
            f"TORCH_PALLAS_TPU_FP16={asked}",
            why="fp16 is held as fp32 or as bf16 on a TPU",
            do="set it to fp32 or bf16",
        )
    return FP32 if asked == "fp32" else BF16


def _note_int64(kernel: JITFunction, call: Call, used: set[str], target: str) -> None:
    wide = [p for p in flat_params(call.params) if p.kind == "pointer" and p.type in NARROWED and p.name in used]
    if wide:
        note(
            "int64-on-tpu",
            f"{kernel.fn.__name__}: {', '.join(p.name for p in wide)} of {wide[0].type} held as "
            f"{NARROWED[wide[0].type]} on {target}",
            where=kernel.where,
            why=f"{'Mosaic GPU counts' if target.startswith('gpu') else 'a TPU core computes'} in 32 bits; the tensors "
            "are converted outside of the kernel",
            do="pass int32 tensors, or keep the numbers below 2**30 in size",
        )


def specs_of(module: Module, call: Call, fp16: bool = False) -> list[jax.ShapeDtypeStruct]:
    """What the module's entry takes, without data; `fp16` says whether the target has it."""
    elements = {p.name: p.type for p in flat_params(call.params)}
    out = []
    for operand in module.operands:
        element = elements[operand.param]
        element = held_in_memory(element, FP16 if fp16 else fp16_held())
        out.append(jax.ShapeDtypeStruct(operand.shape, getattr(jnp, element.numpy_name)))
    return out


def check(kernel: JITFunction, args: Sequence[Any], kwargs: Mapping[str, Any], grid: Any, target: str) -> Verdict:
    """Translate for `target` and ask its real compiler; never raises for what the kernel does."""
    where = kernel.where or Where("", 0)
    base = {"kernel": kernel.fn.__name__, "file": where.file, "line": where.line, "target": target}
    module = None
    try:
        module = translate(kernel, args, kwargs, grid, target)
        if Target.parse(target).kind == "cpu":
            return Verdict(**base, verdict="ok", static=_no_static(), source=module.source)
        fp16 = Target.parse(target).kind == "gpu"
        specs = specs_of(module, kernel._signature.call(args, kwargs, placeless=True), fp16)
        report = pc.schedule_report(load_source(module.source, module.entry), specs, target)
    except Diagnostic as refused:
        at = users_line(refused.where, module, where)
        problem = type(refused)(
            refused.slug, refused.what, where=at, why=refused.why, do=_REMEDIES.get(refused.slug, refused.do)
        )
        return Verdict(
            **base,
            verdict="failed" if refused.slug in DEFECTS else "diagnosed",
            code=refused.code,
            slug=refused.slug,
            message=str(problem),
            where={"line": at.line, "col": at.col},
            source=module.source if module else "",
            problem=problem,
        )
    static = _gpu_static(report) if isinstance(report, pc.GpuReport) else _tpu_static(report)
    return Verdict(**base, verdict="ok", static=static, source=module.source, report=report)


def users_line(found: Where | None, module: Module | None, kernel: Where) -> Where:
    """A place in emitted source as the user's line that it was written from."""
    if found is None or module is None or not found.file.startswith("<torch-pallas"):
        return found or kernel
    for line in reversed(module.source.splitlines()[: found.line]):
        match = re.search(r"# line (\d+)$", line)
        if match:
            return Where(kernel.file, int(match[1]), function=kernel.function)
    return kernel


#: Units of a TPU's core, as the compiler's listing names them -> as people do.
_UNITS = {"MXU": "MXU", "XLU": "XLU", "VALU": "VPU", "EUP": "EUP", "VLOAD": "load", "VSTORE": "store", "SALU": "scalar"}


def _tpu_static(report: pc.Report) -> dict[str, Any]:
    """The figures of a TPU's report; a kernel that is bound by issuing is bound by the unit that is busiest."""
    slowest = report.kernels[0].utilisation if report.kernels else {}
    units: dict[str, float] = {}
    for name, share in slowest.items():
        unit = _UNITS.get(name.partition(":")[0])
        if unit is not None:
            units[unit] = max(share, units.get(unit, 0.0))
    busiest = max(units, key=lambda unit: units[unit], default="issue").lower()
    return {
        "time_ms": report.time_s * 1e3,
        "bound": busiest if report.bound == "issue" else report.bound,
        "mxu": report.utilisation,
        "hbm_bytes": report.hbm_bytes,
        "vmem_bytes": report.vmem_bytes,
        "spills": report.spills,
        "units": units,
    }


def _gpu_static(report: pc.GpuReport) -> dict[str, Any]:
    """The figures of a GPU's code; no time, which nothing models."""
    return {
        "bound": report.bound or None,
        "registers": report.registers,
        "spills": report.spills,
        "smem_bytes": report.smem_bytes,
        "instructions": report.counts,
    }


def _no_static() -> dict[str, Any]:
    return dict.fromkeys(("time_ms", "bound", "mxu", "hbm_bytes", "vmem_bytes", "spills"))
