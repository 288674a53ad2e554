"""One call of a compiled graph: tensors in, one dispatch per jitted segment, tensors out.

Input: a plan and its compiled segments. Output: a boxed function, generated as straight-line source. Law: jax reads the
tensors' own memory and owns none of it; every result is fresh memory; the call returns only after jax is done; inputs
are written last, after everything that can fail.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import linecache
import threading
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import torch
from torch.fx import Node

import bridge
from bridge.compat import from_capsule, to_capsule
from bridge.engine import ALIGNMENT, Engine, Program, collect_results, direct, parts
from bridge.layout import row_major
from bridge.native import Native
from inductor_backend.checks import Refusal, Wraps
from inductor_backend.compat import copy_all, empty_strided, increment_version
from inductor_backend.control import on_tensors as flow_on_tensors
from inductor_backend.emit import Chooser, Value, emit_segment, namespace
from inductor_backend.exports import Finish, export_bases
from inductor_backend.fallback import aten_call, emitted
from inductor_backend.graph import Graph, Spec, Write, flat, imported, is_assertion, is_tangent
from inductor_backend.launches import on_tensors
from inductor_backend.ops import DTYPES
from inductor_backend.runtime.epilogue import epilogue, late_writes
from inductor_backend.runtime.slots import Frames, Slot, once, restride

#: What every runner may call.
STANDARD: dict[str, Any] = {
    "capsule": to_capsule, "tensor": from_capsule, "collect": collect_results, "restride": restride, "once": once,
    "peek": ctypes.string_at, "move": ctypes.memmove, "number": torch.tensor, "copy_all": copy_all,
    "changed": increment_version, "empty": empty_strided,
}  # fmt: skip

_counter = 0
_lock = threading.Lock()


def _unique() -> int:
    global _counter
    with _lock:
        _counter += 1
        return _counter


@functools.cache
def our_code() -> str:
    """A digest of this package and of what runs its programs: emitted source calls into them."""
    digest = hashlib.sha256()
    for folder in (Path(__file__).parent.parent, Path(str(bridge.__file__)).parent):
        for path in sorted(folder.rglob("*.py")):
            digest.update(path.read_bytes())
    return digest.hexdigest()


def load(text: str, name: str, scope: dict[str, Any]) -> tuple[Callable[..., Any], str]:
    """Execute emitted source; its file name is registered so that tracebacks can show the line, while it can run."""
    filename = f"<torch-pallas {name} {_unique()}>"
    linecache.cache[filename] = (len(text), None, text.splitlines(True), filename)
    exec(compile(text, filename, "exec"), scope)
    weakref.finalize(scope[name], linecache.cache.pop, filename, None).atexit = False
    return scope[name], filename


@dataclass(frozen=True)
class Compiled:
    """One jitted segment of a runner: all that decides its program.

    Attributes:
        text: its source.
        name: the function in it.
        avals: shapes and dtypes of its arguments.
        results: the same of its results.
        checks: how many operands it checks.
        lanes: whether all reductions in it are ours, which XLA vectorises without its library.
        late: results that its machine code writes to where inputs lie, at the end.
        bound: what the runner calls its parts by: "execute" and "handlers", or "run", "frame" and "spare".
    """

    text: str
    name: str
    avals: tuple[jax.ShapeDtypeStruct, ...]
    results: tuple[tuple[tuple[int, ...], Any], ...]
    checks: int
    lanes: bool = True
    late: tuple[int, ...] = ()
    bound: dict[str, str] = field(default_factory=dict)

    def program(self, engine: Engine, fn: Callable[..., list[Any]] | None = None, kept: bool = True) -> Program:
        """The program, from disk where it is there.

        Args:
            engine: where it runs.
            fn: the function, when the text has been executed already.
            kept: whether the text alone decides the program.
        """

        def segment(*inputs: Any) -> list[Any]:
            function = fn or load(self.text, self.name, namespace())[0]
            return _fresh(function, self.results)(*inputs)

        # Where a line came from decides nothing.
        text = "\n".join(line for line in self.text.split("\n") if not line.startswith("    # "))
        text = f"{our_code()}\n{text}\n{self.results}" if kept else ""
        return engine.compile(segment, self.avals, text, self.lanes)

    def direct(self, program: Program, engine: Engine) -> Native | None:
        """The program's machine code, where it can be called."""
        return direct(program, [(a.shape, a.dtype) for a in self.avals], self.results, engine, self.late)

    def remade(self, engine: Engine) -> dict[str, Any]:
        """The parts that the runner calls, by the names that they are bound to.

        Raises:
            ValueError: the runner calls machine code, which this process can't call.
        """
        program = self.program(engine)
        if "execute" in self.bound:
            execute, handlers = parts(program, self.results, engine)
            return {self.bound["execute"]: execute, self.bound["handlers"]: handlers}
        found = self.direct(program, engine)
        if found is None:
            raise ValueError("a program is not what it was when its caller was written")
        frames = Frames(found, self.checks)
        return {self.bound["run"]: found.run, self.bound["frame"]: frames, self.bound["spare"]: frames.spare}


class Assembly:
    """Builds the runner of one plan."""

    def __init__(self, plan: Graph, gm: torch.fx.GraphModule, regions: Chooser):
        self.plan, self.gm, self.regions = plan, gm, regions
        self.engine = Engine.current()
        self.sources: list[Any] = []
        self.scope: dict[str, Any] = dict(STANDARD)
        self.programs: list[Compiled] = []
        #: whether it holds functions of the user's, or programs of a device that is not here
        self.live = False
        self.run: Callable[[list[Any]], Any] | None = None
        self.lines: list[str] = []
        self.text = ""
        self.tensors: dict[Node, str] = {}
        self.arrays: dict[Node, str] = {}
        self.targets: dict[Node, str] = {}
        self.checked: set[Node] = set()
        self.raw: dict[Node, str] = {}
        self.addresses: dict[Node, str] = {}
        self.cells: list[tuple[str, str]] = []
        self.collects = False
        #: results that may be written to inputs by machine code; those that are -> what is None if they were
        self.writes: dict[Node, Write] = {}
        self.late: dict[Node, str] = {}

    def bind(self, hint: str, value: Any) -> str:
        """A constant of the runner."""
        name = f"{hint}_{len(self.scope)}"
        self.scope[name] = value
        return name

    # ------------------------------------------------------------------------------------------------ imports
    def array(self, node: Node) -> str:
        """The name of a node's jax array, imported when it isn't one yet."""
        if node in self.arrays:
            return self.arrays[node]
        slot = self.slot(node, f"k_{node.name}")
        slot_name, cache = self.bind("slot", slot), self.bind("cache", slot.cache)
        t, name = self.tensors[node], f"j_{node.name}"
        self.lines.append(f"p = {t}.data_ptr()")
        self.lines.append(f"{name} = {cache}.get(p)")
        self.lines.append(f"if {name} is None: {name}, k_{node.name} = {slot_name}({t}, p)")
        self.arrays[node] = name
        return name

    def address(self, node: Node) -> str:
        """The name of the address of a node's elements, which lie there as a jitted segment wants them."""
        if node in self.addresses:
            return self.addresses[node]
        name = self.addresses[node] = f"p_{node.name}"
        if node in self.arrays:
            self.lines.append(f"{name} = {self.arrays[node]}.unsafe_buffer_pointer()")
            return name
        cell = f"h_{node.name}"
        slot = self.slot(node, cell)
        t, copied = self.tensors[node], self.bind("copied", slot.address)
        self.lines.append(f"{name} = {t}.data_ptr()")
        unfit = f"if {name} & {ALIGNMENT - 1} or not {name}: " if slot.order is not None else ""
        self.lines.append(f"{unfit}{name}, {cell} = {copied}({t}, {name})")
        return name

    def slot(self, node: Node, cell: str) -> Slot:
        """The slot of an operand, whose tensor is made to be what was traced; `cell` names what is given back to it."""
        spec, t = self.plan.specs[node], self.tensor(node)
        slot = Slot(imported(node, spec), self.engine)
        if node in self.plan.aten:
            self.plain_numbers(node, t)
        if node not in self.checked:
            self.checked.add(node)
            strides = self.bind("strides", spec.strides)
            how = "restride" if imported(node, spec) is spec else "once"
            self.lines.append(f"if {t}.stride() != {strides}: {t} = {how}({t}, {spec.shape!r}, {strides})")
        self.cells.append((cell, self.bind("cells", slot.cells)))
        return slot

    def plain_numbers(self, node: Node, t: str) -> None:
        """Compute a lazy conjugate or negative: its memory, which is what jax sees, holds other numbers."""
        dtype = node.meta["val"].dtype
        if dtype.is_complex:
            self.lines.append(f"if {t}.is_conj() or {t}.is_neg(): {t} = {t}.resolve_conj().resolve_neg()")
        elif dtype.is_floating_point:
            self.lines.append(f"if {t}.is_neg(): {t} = {t}.resolve_neg()")

    # ------------------------------------------------------------------------------------------------ exports
    def tensor(self, node: Node) -> str:
        """The name of a node's torch tensor, exported when it isn't one yet."""
        if node in self.tensors:
            return self.tensors[node]
        spec, name = self.plan.specs[node], f"t_{node.name}"
        finish = Finish(spec)
        if finish.dense and spec.numel:
            raw = self.exported(node)
            text = raw if finish.plain else f"{raw}.as_strided({spec.shape!r}, {spec.strides!r})"
        else:
            raw = self.raw.get(node) or f"tensor(capsule({self.arrays[node]}))"
            text = f"{self.bind('finish', finish)}({raw})"
        self.lines.append(f"{name} = {text}")
        self.tensors[node] = name
        return name

    def exported(self, node: Node) -> str:
        """The name of a tensor over a result's memory, as it lies there; its strides are not those of eager yet."""
        if node not in self.raw:
            self.raw[node] = f"e_{node.name}"
            self.lines.append(f"e_{node.name} = tensor(capsule({self.arrays[node]}))")
        return self.raw[node]

    # ----------------------------------------------------------------------------------------------- segments
    def jitted(self, number: int, nodes: list[Node], segment: Any, wanted: list[Node]) -> None:
        """Compile one segment and call it."""
        inside = set(nodes)
        operands: list[Node] = []
        for n in nodes:
            for d in flat((n.args, n.kwargs)):
                if d not in inside and d not in self.plan.static and d not in operands:
                    operands.append(d)
        values = [Value(d, self.plan.specs[d]) for d in operands]
        source = emit_segment(f"segment_{number}", segment, self.plan, values, wanted, self.regions)
        place = self.regions if hasattr(self.regions, "compile") else None
        if place is not None:
            source.text = place.text(source.text)
        named = {name: f.function for name, f in source.inlined.items() if f.function is not None}
        names = namespace() | (place.names() if place is not None else {}) | named
        fn, filename = load(source.text, source.name, names)
        emitted[filename] = source
        self.sources.append(source)
        avals = [_aval(v.node, v.spec) for v in values]
        shapes = [_stored(self.plan.specs[n]) for n in wanted]
        if source.checks:
            shapes.append(((len(source.checks),), jnp.dtype(jnp.bool_)))
        self.live = self.live or place is not None or bool(source.inlined)
        if place is not None:
            program = place.compile(fn, avals, [dtype for _, dtype in shapes], source)
            run, handlers = self.bind("segment", program), None
        else:
            # Functions of the user's have no text: what holds one is not kept on disk.
            made = Compiled(
                source.text, source.name, tuple(avals), tuple(shapes), len(source.checks), not source.inlined
            )
            if not source.checks:
                made = replace(made, late=tuple(i for i, n in enumerate(wanted) if n in self.writes))
            program = made.program(self.engine, fn, kept=not named)
            found = made.direct(program, self.engine)
            if found is not None:
                return self.directly(number, made, found, operands, wanted, source.checks)
            execute, results = parts(program, shapes, self.engine)
            run, handlers = self.bind("segment", execute), self.bind("results", results)
            self.programs.append(replace(made, bound={"execute": run, "handlers": handlers}))
        call = f"{run}([{', '.join(self.array(d) for d in operands)}])"
        call += f".consume_with_handlers({handlers})" if handlers else ""
        self.collects = True
        names = [f"j_{n.name}" for n in wanted]
        ranges = [f"ranges_{number}"] if source.checks else []
        self.lines.append(f"[{', '.join(names + ranges)}] = {call}")
        if ranges:
            refuse, count = self.bind("refuse", Refusal(source.checks)), len(source.checks)
            flags = f"peek({ranges[0]}.unsafe_buffer_pointer(), {count})"
            self.lines.append(f"if {flags} != {bytes(count)!r}: {refuse}({flags})")
        for n, name in zip(wanted, names):
            self.arrays[n] = name

    def directly(
        self,
        number: int,
        made: Compiled,
        found: Native,
        operands: list[Node],
        wanted: list[Node],
        checks: list[Node | Wraps],
    ) -> None:
        """Call the machine code of a segment: its results are torch's memory from the start."""
        frames = Frames(found, len(checks))
        frame, spare = f"f_{number}", self.bind("frames", frames.spare)
        addresses = [self.address(d) for d in operands]
        for position, n in enumerate(wanted):
            spec, name = self.plan.specs[n], f"e_{n.name}"
            if position in made.late:
                addresses.append(self.written_late(n))
                continue
            dense = spec.order() is not None
            strides = spec.strides if dense else row_major(spec.shape)
            dtype = self.bind("dtype", spec.dtype)
            self.lines.append(f"{name} = empty({spec.shape!r}, {strides!r}, {dtype})")
            self.lines.append(f"p_{n.name} = {name}.data_ptr()")
            self.addresses[n] = f"p_{n.name}"
            (self.tensors if dense else self.raw)[n] = name
            self.checked.add(n)
            addresses.append(f"p_{n.name}")
        self.lines.append(f"try: {frame} = {spare}.pop()")
        maker, run = self.bind("frame", frames), self.bind("run", found.run)
        self.programs.append(replace(made, bound={"run": run, "frame": maker, "spare": spare}))
        self.lines.append(f"except IndexError: {frame} = {maker}()")
        self.lines.append(f"words, frame, ranges_{number}, _ = {frame}")
        self.lines.extend(f"words[{i}] = {address}" for i, address in enumerate(addresses))
        self.lines.append(f"if {run}(frame): raise RuntimeError('a kernel of XLA failed')")
        if checks:
            refuse = self.bind("refuse", Refusal(checks))
            flags = f"ranges_{number}.raw"
            self.lines.append(f"if {flags} != {bytes(len(checks))!r}: {refuse}({flags})")
        self.lines.append(f"{spare}.append({frame})")

    def written_late(self, node: Node) -> str:
        """The address of a result that goes into an input: the input's, unless that has other strides than traced."""
        target, name, spare = self.writes[node].target, f"p_{node.name}", f"l_{node.name}"
        spec, w = self.plan.specs[target], self.targets[target]
        strides, dtype = self.bind("strides", spec.strides), self.bind("dtype", spec.dtype)
        self.lines.append(f"if {w}.stride() == {strides}: {name}, {spare} = {w}.data_ptr(), None")
        self.lines.append(f"else: {spare} = empty({spec.shape!r}, {strides}, {dtype}); {name} = {spare}.data_ptr()")
        self.late[node] = spare
        return name

    def aten(self, node: Node) -> None:
        """Call one operator of ATen on tensors."""
        name = f"t_{node.name}"
        if node.op == "get_attr":
            value = self.gm
            for part in str(node.target).split("."):
                value = getattr(value, part)
            self.lines.append(f"{name} = {self.bind('constant', value)}")
            self.tensors[node] = name
            return
        args, kwargs = self.torch_argument(tuple(node.args)), self.torch_kwargs(node.kwargs)
        target = self.bind("op", on_tensors(node, self.plan) or flow_on_tensors(node) or aten_call(node))
        self.lines.append(f"{name} = {target}(*{args}{', **' + kwargs if node.kwargs else ''})")
        self.tensors[node] = name

    def torch_argument(self, value: Any) -> str:
        """An argument of an ATen call as source."""
        if isinstance(value, Node):
            if value in self.plan.static:
                return repr(self.plan.static[value])
            return self.tensor(value)
        if isinstance(value, tuple):
            return "(" + "".join(self.torch_argument(v) + ", " for v in value) + ")"
        if isinstance(value, list):
            return "[" + ", ".join(self.torch_argument(v) for v in value) + "]"
        if isinstance(value, dict):
            return self.torch_kwargs(value)
        if isinstance(value, (bool, int, str, type(None))):
            return repr(value)
        return self.bind("value", value)

    def torch_kwargs(self, kwargs: dict[str, Any]) -> str:
        """Keyword arguments of an ATen call as a dict display."""
        return "{" + ", ".join(f"{k!r}: {self.torch_argument(v)}" for k, v in kwargs.items()) + "}"


def _fresh(fn: Callable[..., list[Any]], shapes: Sequence[tuple[tuple[int, ...], Any]]) -> Callable[..., list[Any]]:
    """`fn`, with a copy in place of a result that is one of its inputs: a result must never alias torch's memory.

    Results are exported as what torch says they are, so here they are made to be that.
    """

    def segment(*inputs: Any) -> list[Any]:
        results = [jnp.copy(r) if any(r is i for i in inputs) else jnp.asarray(r) for r in fn(*inputs)]
        found = [r.shape for r in results]
        if found != [shape for shape, _ in shapes]:
            raise TypeError(f"results of shapes {found}, and torch says {[shape for shape, _ in shapes]}")
        return [r.astype(dtype) for r, (_, dtype) in zip(results, shapes, strict=True)]

    return segment


def _aval(node: Node, spec: Spec) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(*_stored(imported(node, spec)))


def _stored(spec: Spec) -> tuple[tuple[int, ...], Any]:
    """Shape and dtype as a value lies in memory."""
    order = spec.order()
    return spec.shape if order is None else tuple(spec.shape[d] for d in order), jnp.dtype(DTYPES[spec.dtype])


def assemble(plan: Graph, gm: torch.fx.GraphModule, regions: Chooser) -> tuple[Any, Assembly]:
    """The boxed runner of a plan, and what was built for it.

    The runner takes a list of inputs and empties it; it returns the graph's outputs in order.
    """
    assembly = Assembly(plan, gm, regions)
    lines = assembly.lines
    names = [f"a_{n.name}" for n in plan.placeholders]
    if names:
        lines.append(f"[{', '.join(names)}] = args")
    lines.append("args.clear()")
    start = len(lines)
    written = {w.target for w in plan.writes}
    for node, name in zip(plan.placeholders, names, strict=True):
        assembly.tensors[node] = name
        if node in written:
            # What is read may be a copy (another layout, a lazy conjugate computed); what is written is the caller's.
            assembly.targets[node] = f"w_{node.name}"
            lines.append(f"w_{node.name} = {name}")
        value = node.meta.get("val")
        if isinstance(value, torch.SymInt) and node not in plan.static and node.users:
            lines.append(f"{name} = number({name})")
        if isinstance(value, torch.Tensor) and is_tangent(node):
            # Dynamo guards the lazy bits of a graph's inputs; a gradient arrives as whatever the loss made it.
            assembly.plain_numbers(node, name)
        elif isinstance(value, torch.Tensor) and (value.is_conj() or value.is_neg()):
            lines.append(f"{name} = {name}.resolve_conj().resolve_neg()")
    bases = export_bases(plan)
    needed = _needed(plan, bases)
    assembly.writes = late_writes(plan, bases)
    for number, segment in enumerate(plan.segments):
        if segment.jitted:
            wanted = [n for n in segment.nodes if n in needed]
            if wanted or any(is_assertion(n) for n in segment.nodes):
                assembly.jitted(number, segment.nodes, segment, wanted)
        else:
            for node in segment.nodes:
                assembly.aten(node)
    if assembly.collects:
        lines.insert(start, "collect()")
    epilogue(assembly, bases)
    text = "def run(args):\n" + "\n".join("    " + line for line in lines) + "\n"
    run, _ = load(text, "run", assembly.scope)
    assembly.text = text
    run._boxed_call = True
    assembly.run = run
    return run, assembly


def _needed(plan: Graph, bases: dict[Node, Node]) -> set[Node]:
    """Values that leave the segment that computes them."""
    home = {n: i for i, s in enumerate(plan.segments) for n in s.nodes}
    needed = {b for b in bases.values() if b in home}
    for i, segment in enumerate(plan.segments):
        for n in segment.nodes:
            needed.update(d for d in flat((n.args, n.kwargs)) if d in home and home[d] != i)
    return needed
