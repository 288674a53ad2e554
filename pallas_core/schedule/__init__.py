"""The static schedule of a program on a TPU that is not here.

Input: a function, argument specs and a chip. Output: `Report`. The real compiler writes its VLIW schedule; the scalar
code that steers it (loops, predicates, copies) is run here, so that trip counts, cycles, traffic and slot use come out
exactly as scheduled. Law: deterministic, and every figure says that no hardware was asked.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

from bridge.devices import Target
from pallas_core import compat, lowering, offline
from pallas_core.schedule import listing
from pallas_core.schedule.report import Kernel, Report, caveat
from pallas_core.schedule.simulate import DELAY_SLOTS, Run, loops, simulate
from pallas_core.targets.tpu import TpuChip

__all__ = ["Kernel", "Report", "kernel_bound", "report", "schedule_report"]

_FILE = re.compile(
    r"^\d+-(.+?)-\d+-(packed-bundles-post-ra|pre-delay_hlo-static-per-bundle-utilization|deduplication-map)\.txt$"
)
_SAME = re.compile(r"key:(\S+)\nordinal:\d+\nequivalent_hlos\[size=(\d+)\]")


def schedule_report(
    f: Callable[..., Any],
    args: Sequence[Any],
    target: str | Target,
    *,
    flops: float | None = None,
    timeout: float = offline.TIMEOUT,
) -> Report | offline.GpuReport:
    """Compile `f` for a chip that need not be here and read the schedule.

    Args:
        f: as for `compile_for`.
        args: as for `compile_for`.
        target: ``"tpu:v5e"`` ...
        flops: operations of one run, for the utilisation; counted from the traced program when None.
        timeout: seconds until the compiler is stopped.

    Returns:
        A `Report`, for a GPU a `GpuReport`; prints as a table, ``.to_json()``, ``.to_html()``.

    Raises:
        Diagnostic: as `compile_for`.
    """
    return report(offline.lower_for(f, args, target), flops=flops, timeout=timeout)


def report(
    lowered: lowering.Lowered, *, flops: float | None = None, timeout: float = offline.TIMEOUT
) -> Report | offline.GpuReport:
    """The report of a lowered program.

    Args:
        lowered: of `offline.lower_for`.
        flops: operations of one run; counted when None.
        timeout: seconds.

    Raises:
        Diagnostic: the compiler refuses the program, or is not installed.
    """
    program = lowered.program
    if program.target.kind == "gpu":
        return offline.gpu.report(lowered, flops=flops, timeout=timeout)
    chip = lowering.chip_of(program.target)
    answer, files = offline.compile_lowered(lowered, dump=True, timeout=timeout)
    text: str = answer["text"]
    kernels = tuple(sorted(_kernels(files, text, chip), key=lambda k: -k.cycles * k.runs))
    cycles = sum(k.cycles * k.runs for k in kernels)
    issue = sum(k.issue_cycles * k.runs for k in kernels)
    moved = sum(k.hbm_bytes * k.runs for k in kernels)
    io = answer["memory"]["argument_size_in_bytes"] + answer["memory"]["output_size_in_bytes"]
    io = max(0, io - _picked_from(program))
    least = io / chip.hbm_bytes_per_s
    time = max(cycles / chip.clock_hz, least)
    flops = compat.count_flops(program.traced.jaxpr) if flops is None else flops
    used = [k.vmem_bytes for k in kernels if k.vmem_bytes is not None]
    return Report(
        name=program.name,
        target=str(program.target),
        time_s=time,
        bound=_bound(time, issue / chip.clock_hz, max(moved / chip.hbm_bytes_per_s, least)),
        utilisation=flops / (time * chip.peak_flops) if flops and time else None,
        hbm_utilisation=least / time if time else 0.0,
        hbm_bytes=moved,
        io_bytes=io,
        vmem_bytes=max(used) if used else None,
        spills=sum(k.spills or 0 for k in kernels),
        flops=flops,
        compile_s=answer["seconds"],
        kernels=kernels,
        caveat=caveat(chip, kernels),
    )


def _picked_from(program: lowering.Program) -> int:
    """Bytes of arguments that kernels copy parts of by themselves: no more than what they copy has to move."""
    return sum(
        math.prod(operand.array_shape) * operand.dtype.itemsize
        for call in program.calls
        for operand in call.of_kind("input")
        if operand.memory_space in ("any", "hbm") and operand.dtype is not None
    )


def _bound(time: float, issue: float, hbm: float) -> str:
    if max(issue, hbm) < 0.7 * time:
        return "latency"
    return "hbm" if hbm >= issue else "issue"


def kernel_bound(kernel: Kernel, target: str | Target) -> str:
    """What bounds one scheduled kernel: ``"hbm"``, ``"issue"`` or ``"latency"``."""
    chip = lowering.chip_of(Target.parse(target))
    return _bound(
        kernel.cycles / chip.clock_hz, kernel.issue_cycles / chip.clock_hz, kernel.hbm_bytes / chip.hbm_bytes_per_s
    )


def _kernels(files: dict[str, str], text: str, chip: TpuChip) -> list[Kernel]:
    by_kernel: dict[str, dict[str, str]] = defaultdict(dict)
    for file, content in files.items():
        if match := _FILE.match(file):
            by_kernel[match.group(1)][match.group(2)] = content
    same = dict(_SAME.findall(by_kernel.get("TLP", {}).get("deduplication-map", "")))
    times = _runs(text)
    found = []
    for name, parts in by_kernel.items():
        bundles = parts.get("packed-bundles-post-ra")
        if bundles is None or name in ("TLP", "continuation_tailcall") or name.startswith("<late"):
            continue
        line = _instruction(text, name)
        slots = listing.parse_slots(parts.get("pre-delay_hlo-static-per-bundle-utilization", ""))
        runs = times.get(name, 1) * max(1, int(same.get(name, 1)))
        found.append(_kernel(name, bundles, slots, line, runs, chip))
    return found


def _kernel(name: str, bundles: str, slots: listing.Slots, line: str, runs: float, chip: TpuChip) -> Kernel:
    program = listing.parse(bundles)
    run = simulate(program, chip.clock_hz, chip.hbm_bytes_per_s)
    issue = sum(run.visits)
    first, last = _main_loop(program, run, issue)
    weight = run.visits[first:last]
    usage: dict[str, float] = {}
    if len(slots.used) >= len(program) and sum(weight):
        for column, (unit, capacity) in enumerate(zip(slots.units, slots.capacity)):
            busy = sum(w * row[column] for w, row in zip(weight, slots.used[first:last]))
            usage[unit] = round(busy / (sum(weight) * capacity), 4) if capacity else 0.0
    vmem = re.search(r'"used_scoped_memory_configs":\[\{"memory_space":"1","offset":"\d+","size":"(\d+)"', line)
    looped = (first, last) != (0, len(program))
    return Kernel(
        name=name,
        pallas="tpu_custom_call" in line,
        runs=runs,
        cycles=round(run.cycles),
        stall_cycles=round(run.stall_cycles),
        issue_cycles=round(issue),
        bundles=len(program),
        hbm_bytes=run.hbm_bytes,
        vmem_bytes=int(vmem.group(1)) if vmem else None,
        spills=slots.total("VSTORE:SPILL"),
        fills=slots.total("VLOAD:FILL"),
        utilisation=usage,
        trips=round(run.visits[first]) if looped else 0,
        cycles_per_trip=round(sum(weight) / max(1.0, run.visits[first]), 1) if looped else 0.0,
        unknown_branches=run.unknown_branches,
        extrapolated=run.extrapolated,
    )


def _main_loop(program: tuple[tuple[listing.Op, ...], ...], run: Run, issue: float) -> tuple[int, int]:
    """The shortest loop that issues at least half of all bundles; everything when there is none."""
    spans = [(first, min(last + DELAY_SLOTS + 1, len(program))) for first, last in loops(program)]
    heavy = [s for s in spans if sum(run.visits[s[0] : s[1]]) >= 0.5 * issue]
    return min(heavy, key=lambda s: s[1] - s[0], default=(0, len(program)))


def _instruction(text: str, name: str) -> str:
    match = re.search(r"^\s+(?:ROOT )?%?" + re.escape(name) + r" = .*$", text, re.M)
    return match.group(0) if match else ""


def _runs(text: str) -> dict[str, float]:
    """Instruction -> times it runs: 1 in the entry, times the trip counts of the while loops around it."""
    bodies: dict[str, list[str]] = {}
    whiles: list[tuple[str, str, int]] = []
    entry = current = ""
    for line in text.splitlines():
        if match := re.match(r"^(ENTRY )?%?([\w.\-]+) \(.*\{\s*$", line):
            current = match.group(2)
            bodies[current] = []
            entry = current if match.group(1) else entry
        elif current and (match := re.match(r"^\s+(?:ROOT )?%?([\w.\-]+) = ", line)):
            bodies[current].append(match.group(1))
            if body := re.search(r"\bwhile\(.*body=%?([\w.\-]+)", line):
                trips = re.search(r'known_trip_count"?:\s*\{"?n"?:\s*"?(\d+)', line)
                whiles.append((current, body.group(1), int(trips.group(1)) if trips else 1))
    times: dict[str, float] = {entry: 1}
    for _ in range(len(whiles)):
        for outside, body, trips in whiles:
            if outside in times:
                times[body] = times[outside] * trips
    return {name: times[c] for c, names in bodies.items() if c in times for name in names}
