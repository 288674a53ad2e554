"""The TPU as a place where segments run: kernels formed and written, compiled offline, run where a TPU is.

Input: segments' lines; emitted functions. Output: source with TPU kernels; callables on CPU arrays. Law: a TPU has no
64-bit values: double precision is refused, and so is an int64 number that 32 bits can't hold, an input or a result,
where ranges don't prove that there is none; where no TPU is attached the TPU
interpreter computes the values from the same kernels, with a note, up to a bound on grid steps.
"""

from __future__ import annotations

import importlib.util
import inspect
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu
from torch.fx import Node

from bridge.compat import cpu_device
from bridge.devices import Target, jax_device
from bridge.diagnostics import Diagnostic, Where, error, note
from inductor_backend import launches, wraps
from inductor_backend.emit import Emitter, Line, Source
from inductor_backend.fallback import emitted, failed_node
from inductor_backend.graph import Graph, where_of
from inductor_backend.kernels import choose, tile
from inductor_backend.kernels.axes import Apart
from inductor_backend.kernels.groups import Former
from inductor_backend.kernels.wide import refuse_wide, reject_wide
from inductor_backend.kernels.write import Written, narrowed, write
from inductor_backend.ops import DTYPES, functions
from inductor_backend.ops.exact import unfenced
from pallas_core import compat as pallas_compat
from pallas_core import lowering, offline, schedule
from pallas_core.targets.tpu import CHIPS
from pallas_core.verify import interpret

#: Grid steps that the interpreter takes in one call: some 20 seconds.
MOST_STEPS = 4096
#: Whether a graph is compiled by the real compiler before it runs on the interpreter.
COMPILE = True


def compiler_is_here() -> bool:
    """Whether libtpu is installed."""
    return importlib.util.find_spec("libtpu") is not None


def operators() -> SimpleNamespace:
    """Every row's function as a kernel calls it: the row's own, or the one that Mosaic has a form of."""
    table = SimpleNamespace(**{name: unfenced(function) for name, function in vars(functions()).items()})
    for name, function in tile.OPERATORS.items():
        setattr(table, name, function)
    return table


def names() -> dict[str, Any]:
    """What emitted source with TPU kernels may use beyond `emit.namespace`."""
    return {"pl": pl, "pltpu": pltpu, "tile": tile, "op": operators(), "wraps": wraps}


class Refused(Exception):
    """Nodes that may not be where they are: Mosaic has no form of them there. The graph is planned again without.

    Attributes:
        nodes: name -> the reason.
        why: which dict of a `Place` they belong to.
    """

    def __init__(self, nodes: dict[str, str], why: str = "refused"):
        super().__init__(next(iter(nodes.values())))
        self.nodes, self.why = nodes, why


@dataclass
class Place:
    """The TPU as the place of one graph: its kernels are formed and written here, its segments compiled.

    Attributes:
        target: with a chip.
        kernels: "all", "profitable" or "none".
        refused: node name -> why it may not be inside a kernel.
        programs: what was compiled, in order.
        figures: whether to have the compiler's schedule read as well.
        autotune: whether to try several sizes of blocks.
        declined: node name -> why plain XLA is better for it.
        apart: node name -> why a function of the user's can't be in a segment.
    """

    target: Target
    kernels: str = "all"
    refused: dict[str, str] = field(default_factory=dict)
    programs: list[TpuProgram] = field(default_factory=list)
    figures: bool = False
    autotune: bool = False
    declined: dict[str, str] = field(default_factory=dict)
    apart: dict[str, str] = field(default_factory=dict)
    former: Former | None = None
    written: dict[str, Written] = field(default_factory=dict)

    @classmethod
    def of(cls, target: str, kernels: str, autotune: bool = False) -> Place:
        """The place that an option names; `tpu` alone is the one that is here, else v5e."""
        parsed = Target.parse(target)
        if parsed.chip is None:
            kinds = {d.device_kind for d in jax.devices("tpu")} if pallas_compat.has_platform("tpu") else set()
            found = next((name for name, chip in CHIPS.items() if chip.device_kind in kinds), "v5e")
            parsed = Target("tpu", found)
        return cls(parsed, kernels, autotune=autotune)

    def learns_from(self, failure: Exception) -> bool:
        """Whether a failure names nodes that may not be inside a kernel, which the next plan leaves out."""
        if not isinstance(failure, Refused):
            return False
        getattr(self, failure.why).update(failure.nodes)
        self.programs = []
        return True

    @property
    def chip(self) -> str:
        """``v5e`` ..."""
        return self.target.chip or "v5e"

    def __call__(self, lines: list[Line], plan: Graph, flipped: dict[Node, str]) -> list[list[Line]]:
        """The groups of a segment."""
        self.written = {}
        if self.kernels == "none":
            return []
        self.former = Former(lines, plan, flipped, self.chip, {**self.refused, **self.declined})
        return self.former.groups()

    def write(self, kernel: str, unit: list[Line], leaving: list[Line], emitter: Emitter) -> Written | None:
        """The source of one group, or None: it stays plain array code."""
        found = self._written(kernel, unit, leaving, emitter, 1.0)
        if found is None:
            return None
        if self.autotune and found.layout.grid and compiler_is_here():
            variants = [self._written(kernel, unit, leaving, emitter, factor) for factor in choose.FACTORS]
            found = choose.fastest([v for v in variants if v is not None], self.target, names())
        self.written[kernel] = found
        return found

    def _written(
        self, kernel: str, unit: list[Line], leaving: list[Line], emitter: Emitter, factor: float
    ) -> Written | None:
        assert self.former is not None
        try:
            layout = self.former.layout(unit, [line.name for line in leaving], factor)
            inside = leaving
            while shared := [line for line in inside if layout.misses(line.name)]:
                # every step would write the same: such a value is computed once more, outside
                inside = [line for line in inside if line not in shared]
                if not inside:
                    return None
                layout = self.former.layout(unit, [line.name for line in inside], factor)
            found = write(kernel, unit, inside, layout, emitter, self.chip)
        except Apart:
            return None
        found.leaving = [line.name for line in leaving]
        kept, wanted = {line.name for line in inside}, {line.name for line in leaving} - {line.name for line in inside}
        again: list[str] = []
        for line in reversed(unit):
            if line.name in wanted:
                again.insert(0, f"{line.name} = {line.text}")
                wanted |= line.reads - kept
        found.statements += again
        return found

    def weigh(self) -> None:
        """Drop the kernels of a segment whose plain form XLA schedules into less time.

        Raises:
            Refused: there are some; the graph is planned again without.
        """
        slower: dict[str, str] = {}
        for written in self.written.values():
            mine, plain = choose.verdict(written, self.target, names())
            if mine is not None and plain is not None and mine > plain:
                reason = f"XLA's own schedule takes {plain * 1e6:.3g} µs, the kernel's {mine * 1e6:.3g} µs"
                slower |= {line.name: reason for line in written.group}
        if slower:
            raise Refused(slower, "declined")

    def prepare(self, plan: Graph) -> None:
        """See `refuse_wide`."""
        refuse_wide(plan, self.target)

    def inline(self, node: Node, plan: Graph) -> Any:
        """See `launches.inline_of`."""
        return self.apart.get(node.name) or launches.inline_of(node, plan, self.target)

    reject = staticmethod(reject_wide)
    names = staticmethod(names)
    text = staticmethod(narrowed)

    def compile(
        self, fn: Callable[..., list[Any]], avals: Sequence[jax.ShapeDtypeStruct], dtypes: Sequence[Any], source: Source
    ) -> TpuProgram:
        """A segment as a callable on CPU arrays.

        Args:
            fn: the emitted function.
            avals: its arguments.
            dtypes: of its results, as torch has them.
            source: its text.

        Raises:
            Refused: something inside a kernel has no form; plan again.
            Diagnostic: the compiler is not there, or refuses what is no kernel.
        """
        if self.kernels == "profitable" and COMPILE and compiler_is_here():
            self.weigh()
        program = TpuProgram(fn, avals, dtypes, self.target, dict(self.written), source)
        program.check(self.figures)
        self.programs.append(program)
        return program


class TpuProgram:
    """A segment for a TPU: takes a list of CPU arrays, returns a list of CPU arrays."""

    def __init__(
        self,
        fn: Callable[..., list[Any]],
        avals: Sequence[jax.ShapeDtypeStruct],
        dtypes: Sequence[Any],
        target: Target,
        kernels: dict[str, Written],
        source: Source,
    ):
        self.fn, self.target, self.kernels, self.source = fn, target, kernels, source
        self.specs = [jax.ShapeDtypeStruct(a.shape, tile.narrow(a.dtype)) for a in avals]
        self.dtypes = [np.dtype(d) for d in dtypes]
        seeds = set(re.findall(r"aten\.inductor_lookup_seed\((\w+),", source.text))
        #: Positions of vectors of seeds: numbers of 64 bits, which cross as pairs of 32.
        self.seeds = {i for i, name in enumerate(inspect.signature(fn).parameters) if name in seeds}
        for i in self.seeds:
            self.specs[i] = jax.ShapeDtypeStruct((*self.specs[i].shape, 2), jnp.uint32)
        self.name = source.name
        self.report: Any = None
        #: every `pallas_call`, the user's too
        self.calls: tuple[Any, ...] = ()
        self.on_device: Callable[..., Any] | None = None

    def on_jax(self, *arrays: Any) -> list[Any]:
        """The emitted function as it is traced for a TPU."""
        with pallas_compat.narrowing(), jax.default_matmul_precision(tile.precision_name()):
            return [jnp.asarray(r) for r in self.fn(*arrays)]

    def kernel(self, name: str) -> choose.Alone:
        """One of its kernels alone."""
        written = self.kernels[name]
        specs = [jax.ShapeDtypeStruct(shape, dtype) for shape, dtype in written.operands]
        return choose.Alone(name, self.fn.__globals__[f"{name}_call"], specs, tile.precision_name())

    def check(self, figures: bool = False) -> None:
        """Compile offline for the target: with the real compiler, where that is installed.

        Args:
            figures: have the schedule read, into `report`.

        Raises:
            Refused: something inside a kernel has no form.
            Diagnostic: the compiler refuses what is no kernel; it is not installed, and figures are asked for.
        """
        try:
            lowered = offline.lower_for(self, self.specs, self.target)
            self.calls = lowered.program.calls
            if figures:
                self.report = schedule.report(lowered)
            elif COMPILE and compiler_is_here():
                offline.compile_lowered(lowered, dump=False)
        except Diagnostic as refusal:
            if refusal.slug == "missing-dependency":
                raise
            raise self.blamed(refusal) from refusal

    def blamed(self, refusal: Diagnostic) -> Exception:
        """The refusal as an order to plan again, where something inside a kernel is to blame."""
        place, cause = refusal.where, refusal.__cause__
        reason = f"{refusal.code} {refusal.what}"
        node = None
        if place is not None and place.file in emitted:
            node = emitted[place.file].lines.get(place.line)
        node = node or (failed_node(cause) if cause is not None else None)
        if node is not None:
            for written in self.kernels.values():
                if node.name in {line.name for line in written.group}:
                    return Refused({node.name: reason})
        for name, written in self.kernels.items():
            kernel = self.kernel(name)
            try:
                offline.compile_lowered(offline.lower_for(kernel, kernel.specs, self.target), dump=False)
            except Diagnostic as problem:
                return Refused({line.name: f"{problem.code} {problem.what}" for line in written.group})
        for called, inlined in self.source.inlined.items():
            specs = [jax.ShapeDtypeStruct(s.shape, tile.narrow(DTYPES[s.dtype])) for s in inlined.specs]
            alone = choose.Alone(called, self.fn.__globals__[called], specs, tile.precision_name())
            try:
                offline.compile_lowered(offline.lower_for(alone, specs, self.target), dump=False)
            except Diagnostic as problem:
                reason = f"{self.target} refuses it: {problem.code} {problem.what}"
                return Refused({called.removeprefix(f"{inlined.name}_"): reason}, "apart")
        return cause if isinstance(cause, Exception) and node is not None else refusal

    # ------------------------------------------------------------------------------------------------- running
    def __call__(self, arrays: list[Any]) -> list[Any]:
        """Run on the TPU, or on its interpreter where there is none."""
        values = [self.narrowed(i, np.asarray(a)) for i, a in enumerate(arrays)]
        results = self.run(values)
        with pallas_compat.x64(True):
            return [jax.device_put(np.asarray(r).astype(d), cpu_device()) for r, d in zip(results, self.dtypes)]

    def run(self, values: list[Any]) -> Sequence[Any]:
        """Results as the target computes them."""
        if pallas_compat.has_platform("tpu"):
            run = self.on_device = self.on_device or jax.jit(self.on_jax)
            with pallas_compat.x64(False), lowering.force_target(self.target):
                device = jax_device(self.target)
                return run(*[jax.device_put(v, device) for v in values])
        steps = sum(math.prod(n or 1 for n in call.grid) for call in self.calls)
        if steps > MOST_STEPS:
            raise error(
                "target-not-here",
                f"a graph compiled for '{self.target}' is called, and no TPU is attached",
                where=self.place() or Where.caller(),
                why=f"its kernels have {steps} grid steps; the TPU interpreter, which stands in, takes some 5 ms "
                f"a step, and does no more than {MOST_STEPS}.",
                do=[
                    f"inductor_backend.explain(model, *args, target='{self.target}') compiles it and shows the figures",
                    "run it on the CPU: leave target out",
                ],
            )
        note(
            "interpreted-target",
            f"a graph compiled for '{self.target}' runs on the TPU interpreter",
            where=self.place(),
            why="no TPU is attached, so the same kernels are simulated on the CPU: right, but slow.",
            do="leave target out to run on the CPU, or run this where a TPU is",
        )
        if not self.calls:
            return self.plainly(values)
        return interpret(self, [jnp.asarray(v) for v in values], self.target).results

    def place(self) -> Where | None:
        """The user's line of its first operator that has one."""
        return next((p for p in map(where_of, self.source.lines.values()) if p is not None), None)

    def plainly(self, values: list[Any]) -> Sequence[Any]:
        """A segment without kernels, on the CPU."""
        with pallas_compat.x64(False):
            run = self.on_device = self.on_device or jax.jit(self.on_jax)
            return run(*[jnp.asarray(v) for v in values])

    def narrowed(self, index: int, value: np.ndarray) -> np.ndarray:
        """A whole number of 64 bits in 32.

        Raises:
            Diagnostic: tpu-wide-number: it does not fit.
        """
        if index in self.seeds:
            return np.ascontiguousarray(value).view(np.uint32).reshape(*value.shape, 2)
        wanted = self.specs[index].dtype
        if value.dtype == wanted:
            return value
        short = value.astype(wanted)
        if value.dtype.kind in "iu" and not np.array_equal(short.astype(value.dtype), value):
            raise error(
                "tpu-wide-number",
                f"an input of a graph compiled for '{self.target}' holds whole numbers beyond 32 bits",
                where=self.place(),
                why="a TPU has no 64-bit values; int64 is int32 there, and these numbers would be cut.",
                do="keep such numbers out of the compiled function, or compile for the CPU",
            )
        return short
