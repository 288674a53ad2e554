"""Triton launches in a graph: found, and written into the jitted segment that they stand in.

Input: a graph in which AOTAutograd has made ``torch_pallas::launch`` functional, and a plan with every size known.
Output: `Inline`, the source of one launch. Law: a tensor of a launch is a window of some value's memory, so views cost
nothing and writes through them reach their base; a launch that can't be inlined runs on tensors, and says why. The
front end is imported where a launch is met: it takes as long as several first calls.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch.fx import Node

from bridge import graphs
from bridge.compat import hint_of, x64_as
from bridge.devices import Target
from bridge.diagnostics import Where
from bridge.ops import traceable
from inductor_backend import compat
from inductor_backend.graph import Graph, Spec, arguments, shared_root, spec_of

if TYPE_CHECKING:
    from frontend_triton_compat.inlined import Inlined, Part

__all__ = ["Inline", "Structural", "collected", "inline_of", "launched", "on_tensors"]


def launched(form: str, bases: Sequence[Any], roots: Sequence[Any], numbers: Any, floats: Any) -> Any:
    """A launch as a function: what the bases hold afterwards. A target of graph nodes; see `on_tensors`."""
    raise NotImplementedError("a plan says how tensors lie in the bases and roots")


launched.__name__ = "torch_pallas.launch"  # in notes


class Structural(Exception):
    """A whole number that was to enter as an array decides what a launch is."""

    def __init__(self, node: Node):
        super().__init__(node.name)
        self.node = node


@dataclass(frozen=True)
class Views:
    """How the tensors of a launch lie in the operands of its node: (which base or root, an example)."""

    written: tuple[tuple[int, Any], ...]
    read: tuple[tuple[int, Any], ...]


def collected(gm: torch.fx.GraphModule) -> torch.fx.GraphModule:
    """A graph with nodes that call `launched` in place of functional launches; `gm` itself if it has none."""
    if not any(_is_launch(node) for node in gm.graph.nodes):
        return gm
    graph = torch.fx.Graph()
    output = graph.graph_copy(gm.graph, {})
    graph.output(output)
    for node in list(graph.nodes):
        if _is_launch(node):
            _replace(graph, node)
    return torch.fx.GraphModule(gm, graph)


def _is_launch(node: Node) -> bool:
    captured = sys.modules.get("frontend_triton_compat.captured")  # it defines the operators of launches
    if captured is None or node.op != "call_function" or not compat.functional_form(node.target):
        return False
    return captured.launched_by(node.args[0])


def _replace(graph: torch.fx.Graph, node: Node) -> None:
    kwargs: dict[str, Any] = dict(node.kwargs)
    bases = list(kwargs["_all_bases"])
    examples = [b.meta["val"] for b in bases]
    written = []
    for view in compat.views_of(node.args[0], kwargs, bases):
        written.append((view.base_index, compat.regenerated(view, examples)))
    roots: list[Node] = []
    read = []
    for t in kwargs["read"]:
        root = shared_root(t)
        if compat.memory_of(root.meta.get("val")) != compat.memory_of(t.meta["val"]):
            root = t
        if root not in roots:
            roots.append(root)
        read.append((roots.index(root), t.meta["val"]))
    with graph.inserting_before(node):
        made = graph.call_function(
            launched, (kwargs["form"], bases, roots, list(kwargs["numbers"]), list(kwargs["floats"]))
        )
    made.meta.update(node.meta)
    made.meta["val"] = list(examples)
    made.meta["launch"] = Views(tuple(written), tuple(read))
    for user in list(node.users):
        user.args = (made, user.args[1] - 1)  # type: ignore[operator]
    graph.erase_node(node)


@dataclass(frozen=True)
class Inline:
    """Something of the user's that a segment calls.

    Attributes:
        name: what it is called, for readers.
        title: what it does, in a line.
        text: the body of a function without parameters that returns a function of the operands.
        where: the user's line.
        operands: the nodes that it takes.
        function: what is called, for what has no source of its own: then `text` is empty.
        specs: of the operands.
        checks: what its flags say, which come as one array after its `results` results.
        results: how many there are.
        inner: what it calls that has no source of its own, by name.
    """

    name: str
    title: str
    text: str
    where: Where | None
    operands: tuple[Node, ...]
    function: Any = None
    specs: tuple[Spec, ...] = ()
    checks: tuple[Any, ...] = ()
    results: int = 0
    inner: Mapping[str, Inline] = field(default_factory=dict)

    def definition(self, name: str) -> str:
        """The source that defines `name`."""
        if self.function is not None:
            return f"# {name} is {self.title}\n"
        place = "" if self.where is None else f", line {self.where.line} of {Path(self.where.file).name}"
        return f"def {name}():  # {self.title}{place}\n{self.text}\n\n\n{name} = {name}()\n"


def inline_of(node: Node, plan: Graph, target: Target | None = None) -> Inline | str | None:
    """What a node becomes in a segment, or why it runs on tensors; None for one that is not ours.

    Args:
        node: of the graph.
        plan: it belongs to.
        target: a TPU, or None for the CPU.

    Raises:
        Diagnostic: the launch is wrong, or its kernel refused.
    """
    if node.target is not launched:
        return _jax_op(node, plan)
    from frontend_triton_compat.inlined import Decides, Later, Lying, Part, inline

    symbols = plan.symbols
    form, bases, roots, numbers, floats = arguments(node)
    views: Views = node.meta["launch"]
    operands = [*bases, *roots]
    for value in operands:
        spec = plan.specs[value]
        if not isinstance(spec, Spec) or spec.order() is None:
            return "an operand is not dense"
    later = {i for i, n in enumerate(numbers) if isinstance(n, Node) and n in plan.later}
    values = [plan.later.get(n, plan.static.get(n)) if isinstance(n, Node) else n for n in numbers]
    given = [v for v in values if v is not None]
    if len(given) < len(values):
        return "a number is known only when the graph runs"

    def lying(entry: tuple[int, Any], first: int) -> Lying:
        which, example = entry
        value, spec = operands[first + which], spec_of(example, symbols)
        base = plan.specs[value]
        whole = value.op != "placeholder" or _fills(value.meta["val"])
        return Lying(first + which, spec.shape, spec.strides, spec.dtype, spec.offset - base.offset, base.numel, whole)

    written = [lying(v, 0) for v in views.written]
    read = [lying(v, len(bases)) for v in views.read]
    if any(plan.specs[operands[t.memory]].dtype != t.dtype or t.offset < 0 for t in (*written, *read)):
        return "a tensor is another one's memory under another dtype"
    try:
        found = inline(form, written, read, given, len(floats), frozenset(later), target)
    except Decides as decides:
        raise Structural(numbers[decides.index]) from None
    if isinstance(found, str):
        return found
    used = sorted({p.memory for p in (*found.takes, *found.gives) if isinstance(p, Part)} | set(range(len(bases))))
    coming = sorted({(t.kind, t.index) for t in found.takes if isinstance(t, Later)})
    text = _text(found, [plan.specs[v] for v in operands], used, len(bases), coming)
    extra = [numbers[i] if kind == "number" else floats[i] for kind, i in coming]
    takes = (*(operands[i] for i in used), *extra)
    specs = tuple(plan.specs[n] for n in takes if isinstance(n, Node))
    return Inline(found.name, found.launched, text, found.where, takes, specs=specs)


def _jax_op(node: Node, plan: Graph) -> Inline | None:
    """An operator of `bridge.jax_op` as a call of its function."""
    schema = getattr(node.target, "_schema", None)
    if schema is not None and schema.name == graphs.OPERATOR:
        return _kernel(node, plan)
    if schema is None or (found := traceable(schema.name)) is None:
        return None
    bound = [*node.args, *(node.kwargs[a.name] for a in schema.arguments[len(node.args) :] if a.name in node.kwargs)]
    if len(bound) != len(schema.arguments):
        bound += [a.default_value for a in schema.arguments[len(bound) :]]
    values = [plan.static.get(a, a) if isinstance(a, Node) else a for a in bound]
    places = [i for i, v in enumerate(values) if isinstance(v, Node)]
    single = len(schema.returns) == 1

    def call(*arrays: Any) -> Any:
        args = list(values)
        for place, array in zip(places, arrays, strict=True):
            args[place] = array
        results = found.function(*args)
        return results[0] if single else results

    name, takes = schema.name.replace("::", "_"), tuple(v for v in values if isinstance(v, Node))
    specs = tuple(plan.specs[n] for n in takes)
    return Inline(name, f"the function of {schema.name}", "", found.where, takes, call, specs)


def _kernel(node: Node, plan: Graph) -> Inline:
    """A function of `pallas_core.pallas_call` as a call of it."""
    key, arrays = arguments(node)
    function, specs = graphs.kept(key), tuple(plan.specs[n] for n in arrays)
    wide = any(np.dtype(s.dtype).itemsize == 8 for s in function.outputs) or any(s.dtype.itemsize == 8 for s in specs)

    def call(*values: Any) -> list[Any]:
        with x64_as(wide):
            found = function.on_jax(*values)
        return list(found) if isinstance(found, (list, tuple)) else [found]

    name = "".join(c if c.isalnum() else "_" for c in function.name).strip("_") or "kernel"
    return Inline(name, f"the kernel {function.name}", "", function.where, tuple(arrays), call, specs)


def _fills(example: torch.Tensor) -> bool:
    """Whether an input was all of its storage when the graph was traced."""
    size, count, offset = map(hint_of, (example.untyped_storage().nbytes(), example.numel(), example.storage_offset()))
    return offset == 0 and size == count * example.element_size()


def _text(found: Inlined, specs: list[Spec], used: list[int], bases: int, coming: list[tuple[str, int]]) -> str:
    """A function of the operands in `used`, and of numbers, that returns the new bases."""
    from frontend_triton_compat.inlined import Later, Part

    name = {i: f"base{i}" if i < bases else f"input{i - bases}" for i in used}
    lines = [f"def run({', '.join([*(name[i] for i in used), *(f'{kind}{i}' for kind, i in coming)])}):"]
    flat: dict[int, str] = {}

    def memory(i: int) -> str:
        """The name of an operand's memory as one dimension."""
        if i not in flat:
            lines.append(f"    {name[i]}_memory = {_stored(name[i], specs[i])}.reshape(-1)")
            flat[i] = f"{name[i]}_memory"
        return flat[i]

    takes = []
    for take in found.takes:
        if isinstance(take, Later):
            takes.append(f"jnp.reshape({take.kind}{take.index}, (1,)).astype({take.dtype!r})")
        elif not isinstance(take, Part):
            kind, value = take
            takes.append(f"jnp.full((1,), {value!r}, {kind!r})")
        elif _is_all(take, specs[take.memory]):
            takes.append(f"{name[take.memory]}.astype({take.held!r})" if take.held else name[take.memory])
        else:
            count = int(np.prod(take.shape, dtype=np.int64))
            text = memory(take.memory)
            if (take.start, count) != (0, specs[take.memory].numel):
                text = f"{text}[{take.start} : {take.start + count}]"
            held = f".astype({take.held!r})" if take.held else ""
            takes.append(f"{text}.reshape({take.shape!r}){held}")
    news = [f"new{i}" for i in range(len(found.gives))]
    call = f"{found.entry}({', '.join(takes)})"
    lines.append(f"    ({', '.join(news)},) = {call}" if news else f"    {call}")
    for new, give in zip(news, found.gives):
        base, spec = name[give.memory], specs[give.memory]
        new = f"{new}.astype({base}.dtype)" if give.held else new
        if _is_all(give, spec):
            lines.append(f"    {base} = {new}")
            flat.pop(give.memory, None)
            continue
        count = int(np.prod(give.shape, dtype=np.int64))
        if (give.start, count) != (0, spec.numel):
            text = f"jax.lax.dynamic_update_slice({memory(give.memory)}, {new}.reshape(-1), ({give.start},))"
        else:
            text = f"{new}.reshape(-1)"
        flat.pop(give.memory, None)
        lines.append(f"    {base} = {_logical(text, spec)}")
    lines.append(f"    return [{', '.join(name[i] for i in range(bases))}]")
    body = [*found.source.rstrip().split("\n"), "", "", *lines, "", "return run"]
    return "\n".join(f"    {line}".rstrip() for line in body)


def _is_all(part: Part, spec: Spec) -> bool:
    order = spec.order()
    return part.start == 0 and part.shape == spec.shape and (order is None or order == tuple(range(len(order))))


def _stored(name: str, spec: Spec) -> str:
    order = spec.order()
    plain = order is None or order == tuple(range(len(order)))
    return name if plain else f"jnp.transpose({name}, {list(order or ())})"


def _logical(flat: str, spec: Spec) -> str:
    order = spec.order()
    if order is None or order == tuple(range(len(order))):
        return f"{flat}.reshape({spec.shape!r})"
    stored = tuple(spec.shape[d] for d in order)
    inverse = [order.index(d) for d in range(len(order))]
    return f"jnp.transpose({flat}.reshape({stored!r}), {inverse})"


def on_tensors(node: Node, plan: Graph) -> Any:
    """The function that a launch is on torch tensors: copies of the bases are written. None for another node."""
    if node.target is not launched:
        return None
    from frontend_triton_compat.captured import operator

    symbols = plan.symbols
    views: Views = node.meta["launch"]
    places = [[(which, spec_of(example, symbols)) for which, example in part] for part in (views.written, views.read)]
    call = operator(len(views.written))

    taken: Any = node.args[1:3]

    def run(form: str, bases: Any, roots: Any, numbers: Any, floats: Any) -> list[torch.Tensor]:
        news = [compat.clone_as_it_lies(b) for b in bases]
        lists = [
            [_view(values[which], spec, nodes[which], symbols) for which, spec in part]
            for part, values, nodes in zip(places, (news, roots), taken)
        ]
        call(form, *lists[0], lists[1], [int(n) for n in numbers], floats)
        return news

    return run


def _view(t: torch.Tensor, spec: Spec, node: Any, symbols: Mapping[Any, Any]) -> torch.Tensor:
    base = spec_of(node.meta["val"], symbols)
    if (spec.shape, spec.strides, spec.offset) == (base.shape, base.strides, base.offset):
        return t
    return t.as_strided(spec.shape, spec.strides, t.storage_offset() + spec.offset - base.offset)
