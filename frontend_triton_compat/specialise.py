"""Specialisations of one kernel: found by key, or translated and compiled.

Input: a bound `Call` and a grid. Output: a `Compiled`. Law: launches with one key run one code; a key holds dtypes,
shapes, strides, the grid, constexprs and those integers that the schedule depends on. An integer that turns out to be
data alone (a seed, a step counter) becomes a run-time argument when it changes for the first time; one that only bounds
masks does so, for launches otherwise alike, when it had `PATIENCE` values.
"""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable
from typing import Any

from bridge import compat
from bridge.diagnostics import Diagnostic, Where, error, note
from frontend_triton_compat.access import Memory
from frontend_triton_compat.aliases import Aliases, aliases_of, memory_of, tensor_in_key
from frontend_triton_compat.arguments import Call, launch_line
from frontend_triton_compat.compiled import Compiled
from frontend_triton_compat.demand import Access
from frontend_triton_compat.emit import cpu
from frontend_triton_compat.emit.program import KeepWhole
from frontend_triton_compat.express import Express
from frontend_triton_compat.ir import Kernel, Param
from frontend_triton_compat.parse import parse
from frontend_triton_compat.parse.outside import Outside
from frontend_triton_compat.schedule import Schedule, schedule, settle, too_small
from frontend_triton_compat.types import INT1

#: So many values of an integer get forms of their own, cropped to them, before one form that masks is tried for all.
PATIENCE = 4
#: So many entries of what is remembered about launches are kept; the oldest go first.
LIMIT = 1024

#: What a defect of the translation may look like from outside.
SURPRISES = (
    TypeError,
    ValueError,
    NotImplementedError,
    RuntimeError,
    LookupError,
    AttributeError,
    AssertionError,
    ArithmeticError,
)


def refuse_forked(where: Where | None) -> None:
    """Refuse to go on where jax would wait forever.

    Raises:
        TranslationError: the process was forked from one in which jax had started.
    """
    if compat.forked:
        raise error(
            "forked-process",
            "a kernel in a process that was forked after jax had started",
            where=launch_line(where),
            why="the threads that compile and run kernels stayed in the parent; this process would wait forever",
            do=(
                'start the process anew: multiprocessing.get_context("spawn"); for a DataLoader, '
                'multiprocessing_context="spawn"',
                "fork before the first kernel, jax function or bridge.to_jax() of the parent",
            ),
        )


def plan_for(
    build: Callable[[], Kernel],
    memories: dict[str, Memory],
    aliases: Aliases,
    emit: Callable[[Schedule], Any],
    chunked: bool = False,
    blocked: bool = False,
    steered: str = "",
) -> tuple[Schedule, Any]:
    """Schedule and emit, keeping variables whole where the emitter found that it needs them."""
    refuse_forked(None)
    compat.quiet_cpu_start()  # emitters fold constants with jax
    uncropped: frozenset[str] = frozenset()
    while True:
        plan = schedule(build(), memories, uncropped, aliases.same, chunked, blocked, steered)
        try:
            return plan, emit(plan)
        except KeepWhole as refused:
            if refused.var.name in uncropped:
                raise error("internal-error", f"variable {refused.var.name} cannot be kept whole") from refused
            uncropped |= {refused.var.name}


def note_short_grid(plan: Schedule, grid: tuple[int, int, int]) -> None:
    """A note where the grid does not reach what the mask of a store allows."""
    short = too_small(plan)
    if short is not None:
        access, reached, allowed = short
        note(
            "grid-too-small",
            f"the grid {grid} reaches element {reached} of {allowed} that the mask of the store to "
            f"{access.param!r} allows",
            where=access.op.where,
            why="the elements behind it keep their old values",
            do="launch enough programs: grid = (triton.cdiv(n, BLOCK),)",
        )


def no_elements(name: str, shape: tuple[int, ...], defined: Where | None) -> Diagnostic:
    """The diagnostic for a tensor of a launch that is read or written and has no elements."""
    return error(
        "empty-tensor",
        f"argument {name!r} has shape {shape}: no elements",
        where=launch_line(defined),
        why="a pointer to an empty tensor points at no memory",
        do=f"skip the launch when {name}.numel() == 0, or pass None for an argument that is not used",
    )


def happens(plan: Schedule, access: Access) -> bool:
    """Whether an access surely happens in some program: nothing that is known at run time only may shut it out."""
    for condition in access.all_conditions:
        left = settle(plan, condition)
        if left is None:
            continue
        if left.form is None or left.form.opaques:
            return False
        bounds = left.form.range()
        if bounds is None or bounds[0] >= 0:
            return False
    return True


def defect(name: str, where: Where | None, surprise: Exception) -> Diagnostic:
    """The diagnostic for an exception that the kernel is not to blame for."""
    text = [line[:200] for line in str(surprise).splitlines()]
    return error(
        "internal-error",
        f"{type(surprise).__name__} while translating {name}: {text[0] if text else ''}",
        where=where,
        why="the kernel is not at fault: torch-pallas lacks a case it should have",
        do="report it with the kernel's source; nothing was written",
    )


class Specialisations:
    """The compiled forms of one kernel."""

    def __init__(self, fn: Callable[..., Any], where: Where | None):
        self.fn, self.where = fn, where
        self.cache: dict[Any, Compiled | str] = {}
        self.outside = Outside()
        #: integer parameters that are data alone, and those that were found not to be
        self.runtime: frozenset[str] = frozenset()
        self.structural: frozenset[str] = frozenset()
        self._lock = threading.RLock()
        self._last: dict[Any, dict[str, int]] = {}
        #: per key without integers: the values an integer had, and those that only bound masks
        self._values: dict[Any, set[int]] = {}
        self._bounds: dict[Any, frozenset[str]] = {}
        self._routes: dict[Any, Compiled] = {}
        #: the way around all this for launches that were seen before
        self.express: Express | None = None

    def route(self, call: Call, grid: tuple[int, int, int]) -> Compiled:
        """As `find`, for a launch on tensors; one look-up when tensors were laid out like this before."""
        if call.empty:
            return self.find(call, grid)
        layouts, memories = [], []
        for t in call.arrays.values():
            storage = t.untyped_storage()
            size = storage.nbytes()
            layouts.append((t.shape, t.stride(), t.storage_offset(), size))
            start = storage.data_ptr()
            memories.append((start, start + size))
        memories.sort()
        reach = 0
        for start, end in memories:
            if start < reach:  # arguments may share memory: how decides too
                return self.find(call, grid)
            reach = end
        runtime = self.runtime
        key = (grid, tuple(call.key), tuple(layouts), runtime, self._static(call, runtime))
        found = self._routes.get(key)
        if found is None:
            found = self.find(call, grid)
            if runtime == self.runtime:
                _drop_oldest(self._routes)
                self._routes[key] = found
        else:
            self._pass_on(call)
        return found

    def find(self, call: Call, grid: tuple[int, int, int]) -> Compiled:
        """The compiled form for a launch, translated now if there is none."""
        found = self._find(call, grid, exact=False)
        if found is None:
            found = self._find(call, grid, exact=True)
        assert found is not None
        return found

    def _find(self, call: Call, grid: tuple[int, int, int], exact: bool) -> Compiled | None:
        memories = {name: memory_of(name, a, exact) for name, a in call.arrays.items()}
        aliases = aliases_of(call)
        base = (
            exact,
            grid,
            tuple(call.key),
            tuple(tensor_in_key(a, memories[n]) for n, a in call.arrays.items()),
            aliases.key(),
        )
        # Whether a tensor without elements is touched depends on the numbers: none of them is left to run time.
        runtime = frozenset[str]() if call.empty else self._runtime(base)
        found = self.cache.get((base, runtime, self._static(call, runtime)))
        if found is None:
            with self._lock:
                if not call.empty:
                    self._learn(base, call, grid, memories, aliases)
                    runtime = self._runtime(base)
                key = (base, runtime, self._static(call, runtime))
                found = self.cache.get(key)
                if found is None:
                    found = self._translate(call, grid, memories, aliases, exact, runtime)
                    _drop_oldest(self.cache)
                    self.cache[key] = found
        self._pass_on(call)
        return None if isinstance(found, str) else found

    def _runtime(self, base: Any) -> frozenset[str]:
        """The integers that are run-time scalars in the form for `base`."""
        bounds = self._bounds.get(base)
        return self.runtime if bounds is None else self.runtime | bounds

    def _pass_on(self, call: Call) -> None:
        """Integers go along as run-time scalars; a form takes those that it needs."""
        call.scalars.update(call.ints)

    def _static(self, call: Call, runtime: frozenset[str]) -> tuple[int, ...]:
        return tuple(v for n, v in call.ints.items() if n not in runtime)

    # -- integers that are data alone

    def _learn(
        self,
        base: Any,
        call: Call,
        grid: tuple[int, int, int],
        memories: dict[str, Memory],
        aliases: Aliases,
    ) -> None:
        """Compare with the last launch of the same shapes: try whether the integers that changed are data alone."""
        before = self._last.get(base)
        _drop_oldest(self._last)
        self._last[base] = dict(call.ints)
        if before is None:
            return
        changed = [n for n, v in call.ints.items() if before.get(n) != v]
        for name in changed:
            if name in self.runtime:
                continue
            if name in self.structural:
                self._learn_bound(base, name, call, grid, memories, aliases)
            elif self._is_data(name, call, grid, memories, aliases):
                self.runtime |= {name}
            else:
                self.structural |= {name}

    def _learn_bound(
        self,
        base: Any,
        name: str,
        call: Call,
        grid: tuple[int, int, int],
        memories: dict[str, Memory],
        aliases: Aliases,
    ) -> None:
        """Try, when an integer has had enough values, whether it only bounds masks."""
        values = self._values.get((base, name))
        if values is None:
            _drop_oldest(self._values)
            values = self._values[base, name] = set()
        values.add(call.ints[name])
        if len(values) + 1 != PATIENCE:  # the first value was not counted; asked once
            return
        bounds = self._bounds.get(base, frozenset()) | {name}
        plans = [
            self._try(call, grid, memories, aliases, runtime)
            for runtime in (self._runtime(base), bounds | self.runtime)
        ]
        own, masked = plans
        if own is not None and masked is not None and _masks_alone(own, masked):
            _drop_oldest(self._bounds)
            self._bounds[base] = bounds

    def _try(
        self,
        call: Call,
        grid: tuple[int, int, int],
        memories: dict[str, Memory],
        aliases: Aliases,
        runtime: frozenset[str],
    ) -> Schedule | None:
        """The schedule with these integers known only at run time; None if a number is needed to translate at all."""
        params = run_time(call.params, runtime)
        try:
            return plan_for(
                lambda: parse(self.fn, params, grid, self.outside, call.debug),
                memories,
                aliases,
                cpu.emit,
                chunked=True,
            )[0]
        except (Diagnostic, *SURPRISES):
            return None

    def _is_data(
        self,
        name: str,
        call: Call,
        grid: tuple[int, int, int],
        memories: dict[str, Memory],
        aliases: Aliases,
    ) -> bool:
        """Whether the schedule is the same when an integer is known only at run time."""
        outlines = []
        for runtime in (self.runtime, self.runtime | {name}):
            plan = self._try(call, grid, memories, aliases, runtime)
            if plan is None:
                return False
            outlines.append(plan.outline())
        return outlines[0] == outlines[1]

    # -- translation

    def _translate(
        self,
        call: Call,
        grid: tuple[int, int, int],
        memories: dict[str, Memory],
        aliases: Aliases,
        exact: bool,
        runtime: frozenset[str],
    ) -> Compiled | str:
        params = run_time(call.params, runtime)
        try:
            plan, module = plan_for(
                lambda: parse(self.fn, params, grid, self.outside, call.debug),
                memories,
                aliases,
                cpu.emit,
                chunked=True,
            )
        except Diagnostic:
            raise
        except SURPRISES as surprise:
            raise defect(self.fn.__name__, self.where, surprise) from surprise
        if not exact:
            far = {p for p, v in plan.views.items() if v.pad != (0, 0) or v.roams}
            if any(memory_of(p, call.arrays[p], True) != memories[p] for p in far):
                return "exact"  # some access may go beyond the part of the storage that the short key describes
        for access in plan.demand.accesses.values():
            if access.param in call.empty and happens(plan, access):
                raise no_elements(access.param, tuple(getattr(call.meta.get(access.param), "shape", (0,))), self.where)
        self._check_outputs(plan, memories, aliases)
        note_short_grid(plan, grid)
        return Compiled(plan, module)

    def _check_outputs(self, plan: Schedule, memories: dict[str, Memory], aliases: Aliases) -> None:
        for first, second in aliases.apart:
            if any(aliases.same.get(p, (p, 0))[0] in (first, second) for p in plan.written):
                raise error(
                    "aliased-arguments",
                    f"arguments {first!r} and {second!r} share memory under different dtypes, and one is stored to",
                    where=launch_line(self.where),
                    why="a write through one would have to show through the other under another dtype",
                    do=f"pass a copy: {second}.clone()",
                )
        for name in plan.written:
            memory = memories[name]
            stores = [a for a in plan.accesses.values() if a.param == name and a.op.kind != "load"]
            if memory.expanded and any(not a.form.opaques for a in stores):
                raise error(
                    "overlapping-output",
                    f"argument {name!r} is stored to, but its elements share memory (strides {memory.strides})",
                    where=launch_line(self.where),
                    why="several elements of an expanded tensor are one place in memory",
                    do=f"pass a tensor of its own: {name}.contiguous()",
                )


def _masks_alone(own: Schedule, masked: Schedule) -> bool:
    """Whether a form without some integers reaches the same memory as one with them, up to a mask.

    Its loops are the same, no access goes where a number says that is not known, and all that the masks leave out is
    real memory of the tensors.
    """
    if own.ordered != masked.ordered or own.outline()[3:] != masked.outline()[3:]:
        return False
    if any(view.roams or view.pad != (0, 0) for view in masked.views.values()):
        return False
    return all(
        window is not None and not any(piece.opaques for piece in window.slices) for window in masked.windows.values()
    )


def _drop_oldest(entries: dict[Any, Any]) -> None:
    """Make room in what is kept."""
    if len(entries) >= LIMIT:
        for old in list(entries)[: LIMIT // 4]:
            entries.pop(old, None)


def run_time(params: list[Param], names: frozenset[str]) -> dict[str, Param]:
    """The parameters by name, integers in `names` as run-time scalars."""

    def changed(p: Param) -> Param:
        if p.kind == "int" and p.name in names and p.type != INT1:  # a bool is part of the key, as in `arguments`
            return dataclasses.replace(p, kind="float", value=None)
        return dataclasses.replace(p, items=tuple(changed(q) for q in p.items)) if p.items else p

    return {p.name: changed(p) for p in params}
