"""From one program to the whole grid: which variables exist, how far they run, and where every access goes.

Input: a `Kernel` and the `Memory` of its pointer arguments. Output: `Schedule`, which a target's emitter prints. The
steps, in order: name dimensions, find affine forms, find what is live, fold loops into variables, renumber programs
when their tiles form a product grid, merge ``program * BLOCK + arange`` into one variable, crop variables to what the
masks let through, drop masks that became true, and divide accesses into windows.
Law: for every element that Triton defines, the scheduled kernel computes what the programs compute one by one.
Programs that can't see each other's writes become dimensions; programs that can (atomics whose old value is used, a
load of what another program stores) run one by one, in the order of Triton's interpreter.
"""

from __future__ import annotations

from collections.abc import Mapping

from bridge.diagnostics import Where, error
from frontend_triton_compat.access import Memory
from frontend_triton_compat.affine import Affine, Numbers
from frontend_triton_compat.demand import Walker
from frontend_triton_compat.dims import Dims, infer
from frontend_triton_compat.forms import Form
from frontend_triton_compat.ir import Kernel, walk
from frontend_triton_compat.schedule.chunks import chunk
from frontend_triton_compat.schedule.crop import crop, too_small
from frontend_triton_compat.schedule.loops import fold_loops
from frontend_triton_compat.schedule.order import needs_order, prints, races
from frontend_triton_compat.schedule.plan import Fold, Schedule, settle
from frontend_triton_compat.schedule.programs import merge, numbered_by_atoms, product_grid
from frontend_triton_compat.schedule.steered import is_steered, steering
from frontend_triton_compat.schedule.wider import start_at_zero, widen
from frontend_triton_compat.schedule.windows import finish_accesses, make_windows, order_batch

__all__ = ["Fold", "Schedule", "is_steered", "schedule", "settle", "too_small", "wider"]


def schedule(
    kernel: Kernel,
    memories: Mapping[str, Memory],
    uncropped: frozenset[str] = frozenset(),
    aliases: Mapping[str, tuple[str, int]] | None = None,
    chunked: bool = False,
    blocked: bool = False,
    steered: str = "",
) -> Schedule:
    """Schedule a kernel for the whole grid.

    Args:
        kernel: the parsed kernel; its index arithmetic is rewritten in place.
        memories: what each pointer parameter points at.
        uncropped: names of variables that must keep their full size (an emitter found that it needs all of them).
        chunked: for the CPU, where programs run a chunk at a time if all at once would take too much memory, and one at
            a time if they print.
        blocked: for targets whose grid steps are blocks of rows: programs and lanes that make an address together are
            one variable, whatever else looks at the program alone.
        steered: ``"some"``: programs that loaded numbers steer are one number at a time; ``"all"``: all programs are.
            No order among programs is kept.
        aliases: parameters that point into another one's memory: name -> (that parameter, offset in elements).

    Raises:
        TranslationError: an argument that is accessed has no elements.
    """
    dims = infer(kernel)
    plan = _analyse(kernel, dims, memories, aliases or {}, sums=blocked)
    _refuse_empty(plan)
    ordered = needs_order(plan) or (chunked and prints(kernel))
    if not ordered:
        if not product_grid(plan):
            numbers = numbered_by_atoms(plan)
            plan = _analyse(kernel, dims, memories, aliases or {}, numbers is not None, numbers=numbers, sums=blocked)
            if not product_grid(plan):
                plan = _analyse(kernel, dims, memories, aliases or {}, atoms=False, sums=blocked)
        merge(plan, blocked)
        crop(plan, uncropped)
        ordered = races(plan)
    if steered and not ordered:
        apart = _analyse(kernel, dims, memories, aliases or {}, atoms=False)
        plan = _analyse(kernel, dims, memories, aliases or {}, False, True, alone=_axes(apart, steered))
        merge(plan, blocked)
        crop(plan, uncropped)
    if ordered:
        plan = _analyse(kernel, dims, memories, aliases or {}, atoms=False, ordered=True)
        merge(plan)
        crop(plan, uncropped)
    if chunked and not plan.ordered:
        chunk(plan)
    finish_accesses(plan)
    make_windows(plan, blocked)
    order_batch(plan)
    return plan


def wider(
    kernel: Kernel, memories: Mapping[str, Memory], aliases: Mapping[str, tuple[str, int]], from_zero: bool = False
) -> bool:
    """Let loops over chunks of keys take several chunks a turn, in place; whether there was one to change.

    With `from_zero` loops that begin where the program says, as over a sliding window, begin at 0 and skip turns; there
    is something to change only if all of them can.
    """
    if not any(op.kind == "for" for op in kernel.body.ops) or not any(op.kind == "dot" for op in walk(kernel.body)):
        return False
    begins = start_at_zero(kernel) if from_zero else {}
    if from_zero and not begins:
        return False
    return widen(_analyse(kernel, infer(kernel), memories, aliases), begins)


def _analyse(
    kernel: Kernel,
    dims: Dims,
    memories: Mapping[str, Memory],
    aliases: Mapping[str, tuple[str, int]],
    atoms: bool = True,
    ordered: bool = False,
    numbers: Numbers | None = None,
    alone: frozenset[int] = frozenset((0, 1, 2)),
    sums: bool = False,
) -> Schedule:
    affine = Affine(kernel, dims, atoms, aliases, numbers)
    for axis, var in enumerate(affine.programs):
        if var is not None:
            var.serial = ordered and axis in alone
    walker = Walker(kernel, dims, affine, ordered)
    plan = Schedule(kernel, dims, affine, walker.out, walker, memories, ordered=ordered)
    fold_loops(plan, sums)
    for loop in affine.loops.values():
        if loop.var.size == 1 and loop.var.serial:
            plan.table[loop.var] = Form()  # its only turn is turn 0
    return plan


def _axes(plan: Schedule, steered: str) -> frozenset[int]:
    programs = steering(plan) if steered == "some" else plan.affine.programs
    return frozenset(i for i, v in enumerate(plan.affine.programs) if v in programs)


def _refuse_empty(plan: Schedule) -> None:
    """An empty tensor may stand for an argument that this form of the kernel leaves alone, and for nothing else."""
    for access in plan.demand.accesses.values():
        memory = plan.memories[access.param]
        if 0 in memory.shape:
            raise error(
                "empty-tensor",
                f"argument {access.param!r} has shape {memory.shape}: no elements, and {access.op.where} accesses it",
                where=Where.caller() or plan.kernel.where,
                why="a pointer to an empty tensor points at no memory",
                do=f"skip the launch when {access.param}.numel() == 0",
            )
