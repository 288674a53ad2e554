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
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import torch
from torch.fx import Node

from bridge.compat import from_capsule, to_capsule
from bridge.diagnostics import error
from bridge.engine import ALIGNMENT, SMALL, Engine, collect_results, parts
from bridge.layout import row_major
from inductor_backend.checks import Refusal
from inductor_backend.compat import copy_all, increment_version, is_zero_tensor
from inductor_backend.emit import Chooser, Value, emit_segment, namespace, np_bytes
from inductor_backend.exports import Finish, export_bases
from inductor_backend.fallback import aten_call, emitted
from inductor_backend.graph import Graph, Spec, Write, flat, imported, is_assertion, is_mutable, is_tangent, name_of
from inductor_backend.launches import on_tensors
from inductor_backend.ops import DTYPES

_CACHE_LIMIT = 256
#: Attribute of a tensor that a forward graph saves for its backward graph: the array over the same memory.
HELD = "_torch_pallas_array"
#: Larger writes are torch's, which uses its threads for them.
_MOVED = 1 << 18


class Slot:
    """One tensor operand of a jitted segment: shape, dtype and strides are fixed, the address varies.

    Arrays are cached by address. They own nothing, so an address that torch reuses for another tensor of this slot is
    the same array again; a parameter keeps its address and is imported once. `set_`, `.data =` and `resize_` change the
    address, and are seen. What jax would copy at import (unaligned memory), what is not dense, and a zero tensor of
    autograd's, which has no memory at all, is copied on every call into a cell of the slot's own: an array and the
    tensor over the same memory. A cell comes back after the call, so several threads have one each.
    """

    def __init__(self, spec: Spec, engine: Engine):
        self.spec, self.engine = spec, engine
        self.nbytes = np_bytes(spec)
        order = spec.order()
        self.shape = spec.shape if order is None else tuple(spec.shape[d] for d in order)
        self.strides = row_major(self.shape)
        self.order = order
        self.cache: dict[int, jax.Array] = {}
        self.cells: list[tuple[jax.Array, torch.Tensor, int]] = []
        self.seen: set[int] = set()
        self.plain = order == tuple(range(len(self.shape)))
        #: of an expanded tensor, how to see each of its elements once
        self.narrowed = (spec.shape, spec.strides) if 0 in spec.strides and spec.numel else None
        self.empty: jax.Array | None = None

    def copied(self, t: torch.Tensor, pointer: int) -> tuple[jax.Array, torch.Tensor, int]:
        """A cell that holds the elements of `t`; it goes back to `cells` when the program has read it.

        Args:
            t: the operand.
            pointer: where its elements lie without a gap and in order; 0 when they don't.
        """
        try:
            cell = self.cells.pop()
        except IndexError:
            room = torch.empty(self.nbytes + ALIGNMENT, dtype=torch.uint8)
            room = room[-room.data_ptr() % ALIGNMENT :][: self.nbytes].view(self.spec.dtype)
            stored = room.as_strided(self.shape, self.strides, room.storage_offset())
            array = self.engine.share(stored)
            inverse = None if self.order is None else [self.order.index(d) for d in range(len(self.order))]
            cell = array, stored if inverse is None else stored.permute(inverse), stored.data_ptr()
        if pointer and self.nbytes <= SMALL:
            ctypes.memmove(cell[2], pointer, self.nbytes)
        else:
            cell[1].copy_(t)
        return cell

    def __call__(self, t: torch.Tensor, pointer: int) -> tuple[jax.Array, tuple[jax.Array, torch.Tensor, int] | None]:
        """(the array, a cell that goes back to `cells` when the array has been read)."""
        held = getattr(t, HELD, None)
        if held is not None and pointer and held.unsafe_buffer_pointer() == pointer and held.shape == self.shape:
            return held, None
        if self.nbytes == 0:
            if self.empty is None:
                block = torch.zeros(ALIGNMENT, dtype=torch.uint8).view(self.spec.dtype)
                self.empty = self.engine.share(block.as_strided(self.shape, self.strides))
            return self.empty, None
        if pointer == 0 and not is_zero_tensor(t):
            raise error(
                "freed-storage",
                f"an input of shape {tuple(t.shape)} has no memory",
                why="its storage has been freed (untyped_storage().resize_(0)), so there is nothing to read",
                do="bring the storage back before the call",
            )
        if self.narrowed is not None and t.shape != self.narrowed[0]:
            t = t.as_strided(*self.narrowed)
        if self.order is None or pointer == 0 or pointer % ALIGNMENT:
            cell = self.copied(t, 0 if self.order is None else pointer)
            return cell[0], cell
        if pointer not in self.seen:
            # Most addresses are seen once: a gradient's, an activation's.
            if len(self.seen) >= _CACHE_LIMIT:
                self.seen.clear()
            self.seen.add(pointer)
            if self.nbytes <= SMALL:
                cell = self.copied(t, pointer)
                return cell[0], cell
            if self.plain and self.narrowed is None:
                return self.engine.share(t.detach() if t.requires_grad else t), None
        array = self.engine.share_pointer(pointer, self.nbytes, self.spec.dtype, self.shape, self.strides)
        if array.unsafe_buffer_pointer() != pointer:
            return array, None
        if len(self.cache) >= _CACHE_LIMIT:
            self.cache.clear()
        self.cache[pointer] = array
        return array, None


def restride(t: torch.Tensor, shape: tuple[int, ...], strides: tuple[int, ...]) -> torch.Tensor:
    """`t` with the strides that the graph was traced with."""
    dense = torch.empty_strided(shape, strides, dtype=t.dtype)
    return dense.copy_(t)


def once(t: torch.Tensor, shape: tuple[int, ...], strides: tuple[int, ...]) -> torch.Tensor:
    """`t` with the strides that the graph was traced with, of which some are zero."""
    kept = t
    for dim, stride in enumerate(strides):
        kept = kept.narrow(dim, 0, 1) if stride == 0 else kept
    if not torch.equal(kept.expand(shape), t):
        raise error(
            "internal-error",
            f"an input of shape {shape} was traced as an expanded tensor, and this call's is not one",
            do="report it",
        )
    return torch.empty_strided(kept.shape, strides, dtype=t.dtype).copy_(kept).as_strided(shape, strides)


_counter = 0
_lock = threading.Lock()


def _unique() -> int:
    global _counter
    with _lock:
        _counter += 1
        return _counter


@functools.cache
def our_code() -> str:
    """A digest of this package: emitted source calls into it."""
    digest = hashlib.sha256()
    for path in sorted(Path(__file__).parent.rglob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def load(text: str, name: str, scope: dict[str, Any]) -> tuple[Callable[..., Any], str]:
    """Execute emitted source; its file name is registered so that tracebacks can show the line."""
    filename = f"<torch-pallas {name} {_unique()}>"
    linecache.cache[filename] = (len(text), None, text.splitlines(True), filename)
    exec(compile(text, filename, "exec"), scope)
    return scope[name], filename


class Assembly:
    """Builds the runner of one plan."""

    def __init__(self, plan: Graph, gm: torch.fx.GraphModule, regions: Chooser):
        self.plan, self.gm, self.regions = plan, gm, regions
        self.engine = Engine.current()
        self.sources: list[Any] = []
        self.scope: dict[str, Any] = {"capsule": to_capsule, "tensor": from_capsule, "collect": collect_results}
        self.scope |= {"restride": restride, "once": once, "peek": ctypes.string_at, "move": ctypes.memmove}
        self.lines: list[str] = []
        self.text = ""
        self.tensors: dict[Node, str] = {}
        self.arrays: dict[Node, str] = {}
        self.targets: dict[Node, str] = {}
        self.checked: set[Node] = set()
        self.raw: dict[Node, str] = {}
        self.cells: list[tuple[str, str]] = []

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
        spec, t = self.plan.specs[node], self.tensors[node]
        slot = Slot(imported(node, spec), self.engine)
        slot_name, cache = self.bind("slot", slot), self.bind("cache", slot.cache)
        if node in self.plan.aten:
            self.plain_numbers(node, t)
        if node not in self.checked:
            self.checked.add(node)
            strides = self.bind("strides", spec.strides)
            how = "restride" if imported(node, spec) is spec else "once"
            self.lines.append(f"if {t}.stride() != {strides}: {t} = {how}({t}, {spec.shape!r}, {strides})")
        name = f"j_{node.name}"
        self.cells.append((f"k_{node.name}", self.bind("cells", slot.cells)))
        self.lines.append(f"p = {t}.data_ptr()")
        self.lines.append(f"{name} = {cache}.get(p)")
        self.lines.append(f"if {name} is None: {name}, k_{node.name} = {slot_name}({t}, p)")
        self.arrays[node] = name
        return name

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
            text = f"{self.bind('finish', finish)}(tensor(capsule({self.arrays[node]})))"
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
        emitted[filename] = source.lines
        self.sources.append(source)
        avals = [_aval(v.node, v.spec) for v in values]
        shapes = [_stored(self.plan.specs[n]) for n in wanted]
        if source.checks:
            shapes.append(((len(source.checks),), jnp.dtype(jnp.bool_)))
        names = [self.array(d) for d in operands]
        if place is not None:
            program = place.compile(fn, avals, [dtype for _, dtype in shapes], source)
            call = f"{self.bind('segment', program)}([{', '.join(names)}])"
        else:
            # Functions of the user's have no text: what holds one is not kept on disk.
            text = "" if named else f"{our_code()}\n{source.text}"
            program = self.engine.compile(_fresh(fn, shapes), avals, text)
            execute, handlers = parts(program, shapes, self.engine)
            call = f"{self.bind('segment', execute)}([{', '.join(names)}])"
            call += f".consume_with_handlers({self.bind('results', handlers)})"
        results = [f"j_{n.name}" for n in wanted]
        ranges = [f"ranges_{number}"] if source.checks else []
        self.lines.append(f"[{', '.join(results + ranges)}] = {call}")
        if ranges:
            refuse, count = self.bind("refuse", Refusal(source.checks)), len(source.checks)
            flags = f"peek({ranges[0]}.unsafe_buffer_pointer(), {count})"
            self.lines.append(f"if {flags} != {bytes(count)!r}: {refuse}({flags})")
        for n, name in zip(wanted, results):
            self.arrays[n] = name

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
        target = self.bind("op", on_tensors(node, self.plan) or aten_call(node))
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


def _fresh(fn: Callable[..., list[Any]], shapes: list[tuple[tuple[int, ...], Any]]) -> Callable[..., list[Any]]:
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
    lines.append("collect()")
    written = {w.target for w in plan.writes}
    for node, name in zip(plan.placeholders, names, strict=True):
        assembly.tensors[node] = name
        if node in written:
            # What is read may be a copy (another layout, a lazy conjugate computed); what is written is the caller's.
            assembly.targets[node] = f"w_{node.name}"
            lines.append(f"w_{node.name} = {name}")
        value = node.meta.get("val")
        if isinstance(value, torch.SymInt) and node not in plan.static and node.users:
            assembly.scope["number"] = torch.tensor
            lines.append(f"{name} = number({name})")
        if isinstance(value, torch.Tensor) and is_tangent(node):
            # Dynamo guards the lazy bits of a graph's inputs; a gradient arrives as whatever the loss made it.
            assembly.plain_numbers(node, name)
        elif isinstance(value, torch.Tensor) and (value.is_conj() or value.is_neg()):
            lines.append(f"{name} = {name}.resolve_conj().resolve_neg()")
    bases = export_bases(plan)
    needed = _needed(plan, bases)
    for number, segment in enumerate(plan.segments):
        if segment.jitted:
            wanted = [n for n in segment.nodes if n in needed]
            if wanted or any(is_assertion(n) for n in segment.nodes):
                assembly.jitted(number, segment.nodes, segment, wanted)
        else:
            for node in segment.nodes:
                assembly.aten(node)
    _epilogue(assembly, bases)
    text = "def run(args):\n" + "\n".join("    " + line for line in lines) + "\n"
    run, _ = load(text, "run", assembly.scope)
    assembly.text = text
    run._boxed_call = True
    return run, assembly


def _needed(plan: Graph, bases: dict[Node, Node]) -> set[Node]:
    """Values that leave the segment that computes them."""
    home = {n: i for i, s in enumerate(plan.segments) for n in s.nodes}
    needed = {b for b in bases.values() if b in home}
    for i, segment in enumerate(plan.segments):
        for n in segment.nodes:
            needed.update(d for d in flat((n.args, n.kwargs)) if d in home and home[d] != i)
    return needed


def _epilogue(assembly: Assembly, bases: dict[Node, Node]) -> None:
    """Outputs as eager's tensors, then the writes to inputs, then the return."""
    plan, lines = assembly.plan, assembly.lines
    targets = {w.target: w for w in plan.writes}
    final: dict[Node, str] = {}

    def produce(node: Node, own: bool) -> str:
        if node in final:
            return final[node]
        base, spec = bases[node], plan.specs[node]
        lies = base is not node and base in assembly.arrays and base.op != "placeholder" and base not in plan.aten
        lies = lies and plan.specs[base].dtype == spec.dtype and plan.specs[base].numel and base not in assembly.tensors
        name = assembly.exported(base) if lies else assembly.tensor(base)
        if base.op == "placeholder" and base in targets:
            name = f"{name}.clone()"
        if base is not node:
            start = plan.specs[base].offset
            view = f"v_{node.name}"
            if base.op == "placeholder" and base not in assembly.checked:
                assembly.checked.add(base)
                strides = assembly.bind("strides", plan.specs[base].strides)
                lines.append(
                    f"if {name}.stride() != {strides}: {name} = restride({name}, {plan.specs[base].shape!r}, {strides})"
                )
            if base in plan.aten:
                strides = assembly.bind("strides", plan.specs[base].strides)
                lines.append(
                    f"if {name}.stride() != {strides}: {name} = restride({name}, {plan.specs[base].shape!r}, {strides})"
                )
            if plan.specs[base].dtype != spec.dtype:
                dtype = assembly.bind("dtype", spec.dtype)
                lines.append(f"{view} = {name}.as_strided(({plan.specs[base].numel},), (1,)).view({dtype})")
                name = view
            offset = f"{spec.offset - start}"
            if base.op == "placeholder" or base in plan.aten:
                offset = f"{name}.storage_offset() + {offset}"
            lines.append(f"{view} = {name}.as_strided({spec.shape!r}, {spec.strides!r}, {offset})")
            name = view
        elif node in plan.aten and isinstance(spec, Spec):
            strides = assembly.bind("strides", spec.strides)
            lines.append(f"if {name}.stride() != {strides}: {name} = restride({name}, {spec.shape!r}, {strides})")
        if name.endswith(")"):
            lines.append(f"c_{node.name} = {name}")
            name = f"c_{node.name}"
        final[node] = name
        return name

    moved = [_moved(w, assembly, bases) for w in plan.writes]
    sources = [None if m else produce(w.source, True) for w, m in zip(plan.writes, moved, strict=True)]
    outs: list[str] = []
    for position, out in enumerate(plan.outputs):
        if isinstance(out, Node) and position in plan.saved and out not in final and _is_held(out, assembly, bases):
            lines.append(f"{produce(out, False)}.{HELD} = {assembly.arrays[out]}")
        if not isinstance(out, Node):
            outs.append(repr(out) if isinstance(out, (int, float, bool, type(None))) else assembly.bind("value", out))
        elif out in plan.static:
            outs.append(
                repr(plan.static[out])
                if not isinstance(plan.static[out], float)
                else assembly.bind("value", plan.static[out])
            )
        elif name_of(out.target) == "aten.copy_.default" and out.args[0] in targets:
            outs.append(assembly.targets[out.args[0]])
        elif isinstance(plan.specs.get(out), Spec):
            outs.append(produce(out, False))
        else:
            outs.append(assembly.tensor(out))
    copied = [(assembly.targets[w.target], s) for w, s in zip(plan.writes, sources, strict=True) if s is not None]
    lazy = any(v.is_conj() or v.is_neg() for v in (w.target.meta["val"] for w in plan.writes))
    # The sources may lie in a cell (a copy of one input that is written to another one) only until it is given back.
    if len(copied) == 1 or lazy:
        # A batched copy doesn't take lazy conjugates.
        lines.extend(f"{target}.copy_({source})" for target, source in copied)
    elif copied:
        assembly.scope["copy_all"] = copy_all
        lines.append(f"copy_all([{', '.join(t for t, _ in copied)}], [{', '.join(s for _, s in copied)}])")
    lines.extend(m[0] for m in moved if m)
    if any(moved):
        assembly.scope["changed"] = increment_version
        lines.append(f"changed([{', '.join(m[1] for m in moved if m)}])")
    lines.extend(f"if {cell} is not None: {cells}.append({cell})" for cell, cells in assembly.cells)
    if assembly.cells:
        lines.insert(0, f"{' = '.join(cell for cell, _ in assembly.cells)} = None")
    lines.append(f"return ({''.join(o + ', ' for o in outs)})")


def _is_held(node: Node, assembly: Assembly, bases: dict[Node, Node]) -> bool:
    """Whether a value that is saved for the backward graph leaves as a tensor of its own, over a result's memory."""
    plan, spec = assembly.plan, assembly.plan.specs.get(node)
    made = node.op != "placeholder" and node not in plan.aten and node in assembly.arrays and bases[node] is node
    return made and isinstance(spec, Spec) and spec.order() is not None and spec.numel > 0


def _moved(write: Write, assembly: Assembly, bases: dict[Node, Node]) -> tuple[str, str] | None:
    """A write as a move of bytes, and its target; None where the result's memory is not laid out as the target's.

    A result that only goes into an input need not become a tensor, which costs more than the write.
    """
    plan, base = assembly.plan, bases[write.source]
    source, target = plan.specs.get(write.source), plan.specs.get(write.target)
    result, meta = plan.specs.get(base), write.target.meta["val"]
    if base.op == "placeholder" or base in plan.aten or base not in assembly.arrays:
        return None
    if not (isinstance(source, Spec) and isinstance(target, Spec) and isinstance(result, Spec)):
        return None
    if meta.is_conj() or meta.is_neg():
        return None
    dense = target.order() is not None and result.order() is not None and result.numel == target.numel
    alike = target.shape == source.shape and target.dtype == source.dtype == result.dtype
    where = all(n == 1 or a == b for n, a, b in zip(target.shape, target.strides, source.strides))
    if not (dense and alike and where) or source.offset != result.offset or not 0 < np_bytes(target) <= _MOVED:
        return None
    name, array = assembly.targets[write.target], assembly.arrays[base]
    strides = assembly.bind("strides", target.strides)
    text = f"move({name}.data_ptr(), {array}.unsafe_buffer_pointer(), {np_bytes(target)})"
    copy = f"tensor(capsule({array})).as_strided({source.shape!r}, {source.strides!r})"
    return f"{text} if {name}.stride() == {strides} else {name}.copy_({copy})", name


__all__ = ["Assembly", "Finish", "Slot", "assemble", "is_mutable"]
