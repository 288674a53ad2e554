"""A captured launch for one set of sizes, as source that a larger program can hold.

Input: the key of a `Form` and how its tensors lie in memory. Output: an `Inlined`: the emitted module, for the CPU or
for a TPU, and which windows of which memory go in and come out; or the reason why the launch stays an operator of its
own. Law: what is inlined computes what the operator would; a kernel that is refused is a diagnostic with the user's
line, but one that only a TPU refuses stays an operator.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from bridge import compat
from bridge.devices import Target
from bridge.diagnostics import Diagnostic, Where, error
from frontend_triton_compat import hooks
from frontend_triton_compat.access import Memory
from frontend_triton_compat.aliases import Aliases, flat_params
from frontend_triton_compat.arguments import Call, placed
from frontend_triton_compat.autotune import Autotuner, Heuristics
from frontend_triton_compat.captured import Form, Given, Slot, form_of, slots
from frontend_triton_compat.emit import cpu
from frontend_triton_compat.emit.module import Module
from frontend_triton_compat.holding import held_in_memory
from frontend_triton_compat.ir import walk
from frontend_triton_compat.launch import JITFunction, debugging, observers
from frontend_triton_compat.launch_grid import grid_of
from frontend_triton_compat.offline import fp16_held, on_tpu
from frontend_triton_compat.parse import parse
from frontend_triton_compat.schedule import Schedule
from frontend_triton_compat.specialise import SURPRISES, defect, note_short_grid, plan_for, run_time


@dataclass(frozen=True)
class Lying:
    """How a tensor of the launch lies in memory.

    Attributes:
        memory: which memory; what is stored to in one is seen through the other tensors of that memory.
        shape, strides, dtype: the tensor's, strides in elements.
        offset: elements of the memory before its first.
        room: elements of the memory.
        whole: whether that is all that there is in a call without a graph.
    """

    memory: Any
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: torch.dtype
    offset: int
    room: int
    whole: bool = True


@dataclass(frozen=True)
class Part:
    """A window of a memory, as an array: ``memory[start : start + count].reshape(shape)``.

    Attributes:
        held: the dtype that the module holds it in, where that is another; "" otherwise.
    """

    memory: Any
    start: int
    shape: tuple[int, ...]
    held: str = ""


@dataclass(frozen=True)
class Later:
    """A number that is known when the program runs: ``number`` or ``float``, which of them, the dtype it gets."""

    kind: str
    index: int
    dtype: str


class Decides(Exception):
    """A number that was to be known when the program runs decides what the program is."""

    def __init__(self, index: int):
        super().__init__(index)
        self.index = index


@dataclass(frozen=True)
class Inlined:
    """A launch as source.

    Attributes:
        name: the kernel's.
        launched: the launch in a line, for readers.
        where: the user's line that launches.
        source: a standalone module.
        entry: its function, which takes `takes` and returns a tuple of `gives`.
        takes: windows, and for a number its dtype and value, or that it comes later.
        gives: windows that are new.
    """

    name: str
    launched: str
    where: Where | None
    source: str
    entry: str
    takes: tuple[Part | Later | tuple[str, float], ...]
    gives: tuple[Part, ...]


def inline(
    key: str,
    written: Sequence[Lying],
    read: Sequence[Lying],
    numbers: Sequence[int],
    floats: int,
    later: frozenset[int] = frozenset(),
    target: Target | None = None,
) -> Inlined | str:
    """A launch as source, or why it can't be inlined.

    Args:
        key: of its form.
        written: the tensors that are stored to.
        read: the others.
        numbers: symbolic integers, as they are now.
        floats: how many symbolic floats there are; all are known when the program runs.
        later: which of the integers are known when the program runs.
        target: a TPU, or None for the CPU.

    Raises:
        Decides: one of `later` can't be.
        Diagnostic: the launch is wrong, or its kernel has no translation.
    """
    form = form_of(key)
    if form.problem is not None:
        raise form.problem
    jitted = form.kernel if isinstance(form.kernel, JITFunction) else form.kernel.kernel
    if jitted.pre_run_hooks or hooks.active or observers:
        return "hooks are called around the launch"
    if any(math.prod(t.shape) == 0 for t in (*written, *read)):
        return "a tensor of the launch has no elements"
    task = _Task(form, jitted, written, read, numbers, floats, later)
    with placed(form.where), compat.without_modes():
        try:
            return _inline(task) if target is None else _inline_on(target, task)
        except SURPRISES as surprise:
            raise defect(jitted.fn.__name__, form.where or jitted.where, surprise) from surprise


@dataclass(frozen=True)
class _Task:
    """What `inline` was asked for."""

    form: Form
    jitted: JITFunction
    written: Sequence[Lying]
    read: Sequence[Lying]
    numbers: Sequence[int]
    floats: int
    later: frozenset[int]


def _inline_on(target: Target, task: _Task) -> Inlined | str:
    """As `_inline`, for a TPU: what has a form on the CPU only is not inlined, for the target's reason."""
    if task.later:
        raise Decides(min(task.later))  # sizes of blocks follow from the numbers
    try:
        return _inline(task, target)
    except Diagnostic as refused:
        found = _inline(task)  # refused here too: that is the user's
        if isinstance(found, str):
            return found
        line = "" if refused.where is None else f" (line {refused.where.line} of {Path(refused.where.file).name})"
        why = f": {refused.why.rstrip('.')}" if refused.why else ""
        return f"{target} refuses the kernel: {refused.code} {refused.what}{line}{why}"


def _inline(task: _Task, target: Target | None = None) -> Inlined | str:
    form, jitted, later, floats = task.form, task.jitted, task.later, task.floats
    written, read = task.written, task.read
    names = _names(form, jitted)
    for index in later:
        if ("number", index) not in names or form.kernel is not jitted:
            raise Decides(index)
    if any(("float", index) not in names for index in range(floats)):
        return "a tuple holds a number that is known only when the graph runs"
    stands = [[_stand_in(t, form.kernel) for t in part] for part in (written, read)]
    given = Given(stands[0], stands[1], task.numbers, [0.5] * floats)
    args = tuple(given.fill(a) for a in form.args)
    kwargs = {n: given.fill(v) for n, v in form.kwargs.items()}
    grid = form.grid(given)
    chosen = _configured(form.kernel, args, kwargs, grid)
    if isinstance(chosen, str):
        return chosen
    call = jitted._signature.call(args, chosen, placeless=True)
    if chosen.get("debug") or jitted.options.get("debug") or debugging():
        call.debug = True
    sizes = grid_of(grid, call.meta, jitted.where)
    if 0 in sizes:
        return "the grid has no programs"
    lying: dict[str, Lying] = {}
    for name, stand in call.arrays.items():
        found = next((t for s, t in zip((*stands[0], *stands[1]), (*written, *read)) if s is stand), None)
        if found is None:
            return f"argument {name!r} is a tensor seen as another dtype"
        lying[name] = found
    plan, module = _emitted(jitted, call, sizes, lying, {}, target)
    if later:
        own = plan.outline()
        try:
            plan, module = _emitted(jitted, call, sizes, lying, {n for i in later for n in names["number", i]})
        except (Diagnostic, *SURPRISES):
            raise Decides(min(later)) from None
        if plan.outline() != own:
            raise Decides(min(later))
    declared = {id(t) for t in written}
    for name in plan.written:
        if id(lying[name]) not in declared:
            raise error("internal-error", f"{jitted.fn.__name__} stores to {name!r}, which was not known when traced")
    reason = _why_alone(plan, module, lying)
    if reason:
        return reason
    note_short_grid(plan, sizes)
    kinds = {p.name: p.type.numpy_name for p in flat_params(plan.kernel.params) if p.kind in ("float", "int")}
    scalars = {**call.ints, **call.scalars}
    held: dict[str, str] = {}
    if target is not None:
        for p in flat_params(call.params):
            element = held_in_memory(p.type, fp16_held())
            if p.kind == "pointer" and element != p.type:
                held[p.name] = element.numpy_name
    later_slots = {("number", i) for i in later} | {("float", i) for i in range(floats)}
    coming = {name: slot for slot in later_slots for name in names[slot]}
    takes = tuple(
        Later(*coming[o.param], kinds[o.param])
        if o.param in coming
        else (kinds[o.param], scalars[o.param])
        if o.scalar
        else _part(lying[o.param], o.start, o.shape, held.get(o.param, ""))
        for o in module.operands
    )
    gives = tuple(_part(lying[r.param], r.start, r.shape, held.get(r.param, "")) for r in module.results)
    launched = f"{jitted.fn.__name__}[{', '.join(map(str, _trimmed(sizes)))}]"
    return Inlined(jitted.fn.__name__, launched, form.where, module.source, module.entry, takes, gives)


def _emitted(
    jitted: JITFunction,
    call: Call,
    sizes: tuple[int, int, int],
    lying: Mapping[str, Lying],
    runtime: Collection[str],
    target: Target | None = None,
) -> tuple[Schedule, Module]:
    forms = jitted._specialised
    memories = {n: Memory(n, t.shape, t.strides, t.offset, t.room - t.offset) for n, t in lying.items()}
    aliases = _aliases(lying)
    params = run_time(call.params, frozenset(runtime))
    if target is not None:
        plan, module = on_tpu(jitted, call, sizes, memories, aliases, params, target)
        forms._check_outputs(plan, memories, aliases)
        return plan, module
    build = lambda: parse(jitted.__translated__, params, sizes, None, call.debug)
    plan, module = plan_for(build, memories, aliases, cpu.emit, chunked=True)
    forms._check_outputs(plan, memories, aliases)
    return plan, module


def _names(form: Form, jitted: JITFunction) -> dict[tuple[str, int], list[str]]:
    """The parameters that take a symbolic number, by (kind, index); empty for one that goes elsewhere too."""
    named = [*zip(jitted._signature.names, form.args), *form.kwargs.items()]
    names: dict[tuple[str, int], list[str]] = {}
    for name, value in named:
        if isinstance(value, Slot):
            names.setdefault((value.kind, value.index), []).append(name)
    for slot in slots((*(v for _, v in named if not isinstance(v, Slot)), *(g for _, g in form.grids))):
        names.pop((slot.kind, slot.index), None)
    return names


def _why_alone(plan: Schedule, module: Module, lying: Mapping[str, Lying]) -> str:
    """Why a kernel can't be part of a larger program; "" when it can."""
    if module.checks:
        return "its assertions are checked, or it waits for what another program does"
    if any(op.kind == "print_" for op in walk(plan.kernel.body)):
        return "it prints while it runs"
    for name, view in plan.views.items():
        if (view.roams or view.pad != (0, 0)) and not lying[name].whole:
            return f"{name!r} is a part of a tensor, and the kernel may look beyond it"
    return ""


def _aliases(lying: Mapping[str, Lying]) -> Aliases:
    """The parameters that share memory, as `aliases.aliases_of` has them."""
    heads: dict[Any, str] = {}
    first: dict[Any, str] = {}
    same: dict[str, tuple[str, int]] = {}
    apart: list[tuple[str, str]] = []
    for name, t in sorted(lying.items(), key=lambda item: item[1].offset):
        head = heads.setdefault((t.memory, t.dtype), name)
        if head != name:
            same[name] = (head, t.offset - lying[head].offset)
        elif first.setdefault(t.memory, name) != name:
            apart.append((first[t.memory], name))
    return Aliases(same, tuple(apart))


def _part(t: Lying, start: int, shape: Sequence[int], held: str) -> Part:
    return Part(t.memory, t.offset + start, tuple(shape), held)


def _trimmed(sizes: tuple[int, int, int]) -> tuple[int, ...]:
    kept = [*sizes]
    while len(kept) > 1 and kept[-1] == 1:
        kept.pop()
    return tuple(kept)


def _stand_in(t: Lying, kernel: Any) -> torch.Tensor:
    """A tensor of the launch's shape and dtype: without memory, or of zeros where configurations are measured."""
    if isinstance(kernel, JITFunction):
        return torch.empty_strided(t.shape, t.strides, dtype=t.dtype, device="meta")
    return torch.zeros(t.room, dtype=t.dtype).as_strided(t.shape, t.strides, t.offset)


def _configured(kernel: Any, args: tuple[Any, ...], kwargs: dict[str, Any], grid: Any) -> dict[str, Any] | str:
    """The keyword arguments of the kernel itself, with what `autotune` and `heuristics` add."""
    while not isinstance(kernel, JITFunction):
        if isinstance(kernel, Autotuner):
            with kernel._lock:
                config = kernel._known(args, kwargs) or kernel._choose(args, {**kwargs, "grid": grid})
            kernel.best_config = config
            kernel._refuse_conflicts(config, args, kwargs)
            if config.pre_hook is not None:
                return "the configuration's pre_hook is called before every launch"
            kwargs = {**kwargs, **config.all_kwargs()}
        elif isinstance(kernel, Heuristics):
            kwargs = kernel._chosen(args, kwargs)
        else:
            return f"{type(kernel).__name__} is a wrapper of a library's own"
        kernel = kernel.fn
    return kwargs
