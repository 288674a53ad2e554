"""An FX graph from the partitioner, with every size known: who computes what, and in which order.

Input: the functional ATen graph and the sizes of one call. Output: a `Graph` of segments, jitted and ATen in
alternation. Law: a value is computed once; writes to inputs are collected at the end; nothing here
touches jax or runs an operator.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

import sympy
import torch
from torch.fx import Node

from bridge.diagnostics import Where, error
from inductor_backend.compat import OpOverload, pytree
from inductor_backend.ops import DTYPES, ROWS, Out, Row
from inductor_backend.ops.table import KEEP, POINTWISE, VIEW
from inductor_backend.ops.whole import Growth
from inductor_backend.states import draws

#: Views that alias their operand in eager: an output that is one is handed out as a view of the operand's base.
_ALIASING = {
    "aten.view.default", "aten.permute.default", "aten.t.default", "aten.transpose.int", "aten.expand.default",
    "aten.unsqueeze.default", "aten.squeeze.dim", "aten.squeeze.dims", "aten.squeeze.default", "aten.alias.default",
    "aten.detach.default",
}  # fmt: skip
#: These compute nothing that a segment could hold: seeds and the state of torch's generator, the order of effects.
_HOST = (
    "get_rng_state",
    "prims.inductor_seeds.default",
    "prims.inductor_seed.default",
    "prims._make_token.default",
    "prims._sink_tokens.default",
)
#: Of these, elements may be left out: only followed when the base is an input, which exists anyway.
_CROPPING = {"aten.slice.Tensor", "aten.select.int"}
#: Of a computed value, these share its memory as well.
_SHARING = _ALIASING | _CROPPING | {
    "aten.diagonal.default", "aten.unfold.default", "aten.as_strided.default", "aten.split.Tensor",
    "aten.split_with_sizes.default", "aten.unbind.int", "aten.view_as_real.default", "aten.view_as_complex.default",
    "aten.view.dtype",
}  # fmt: skip


@dataclass(frozen=True)
class Spec:
    """A tensor's shape and strides in elements, dtype, and offset in its storage."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: torch.dtype
    offset: int = 0

    @property
    def numel(self) -> int:
        """Number of elements."""
        count = 1
        for n in self.shape:
            count *= n
        return count

    def order(self) -> tuple[int, ...] | None:
        """The dimensions from the widest stride to the narrowest when storage is dense in that order, else None."""
        order = sorted(range(len(self.shape)), key=lambda d: (-self.strides[d], self.shape[d] == 1, d))
        expected = 1
        for d in reversed(order):
            if self.shape[d] == 1:
                continue
            if self.strides[d] != expected:
                return None
            expected *= self.shape[d]
        # Dimensions of 1 have no place of their own: keep them where a row-major array has them.
        wide = [d for d in order if self.shape[d] != 1]
        if wide == sorted(wide):
            return tuple(range(len(self.shape)))
        return tuple([d for d in range(len(self.shape)) if self.shape[d] == 1] + wide)

    def narrow(self) -> Spec:
        """Without the repetitions of an expanded dimension: its elements are one."""
        if 0 not in self.strides:
            return self
        shape = tuple(1 if stride == 0 else n for n, stride in zip(self.shape, self.strides))
        return self if 0 in self.shape else Spec(shape, self.strides, self.dtype, self.offset)

    def out(self) -> Out:
        """The same for an operator's function."""
        return Out(self.shape, DTYPES[self.dtype], self.strides)


@dataclass
class Segment:
    """Nodes that run together: one jitted function, or ATen calls one after another."""

    jitted: bool
    nodes: list[Node] = field(default_factory=list)


@dataclass(frozen=True)
class Write:
    """An input that the graph mutates, and its new value."""

    target: Node
    source: Node


@dataclass
class Graph:
    """The plan of one call with fixed sizes."""

    placeholders: list[Node]
    specs: dict[Node, Any]
    static: dict[Node, Any]
    segments: list[Segment]
    outputs: list[Any]
    writes: list[Write]
    aten: dict[Node, str]
    symbols: Mapping[sympy.Symbol, Any] = field(default_factory=dict)
    inlined: dict[Node, Any] = field(default_factory=dict)
    later: dict[Node, Any] = field(default_factory=dict)
    #: nodes whose whole numbers may need more bits than the target has, and how that is found out
    wraps: dict[Node, Growth] = field(default_factory=dict)
    #: nodes that ATen does faster than a jitted segment would (see `ops/library.py`): in `aten` too, without a reason
    library: set[Node] = field(default_factory=set)
    #: nodes whose sizes, or values, are known only after an operator before them has run: why
    unsized: dict[Node, str] = field(default_factory=dict)
    #: positions of outputs that only a backward graph sees
    saved: frozenset[int] = frozenset()

    def spec(self, node: Node) -> Any:
        """`Spec` of a tensor node; a list of them for a node with several results."""
        return self.specs[node]


def is_tangent(node: Node) -> bool:
    """Whether a placeholder is a gradient: Dynamo guards the layout of a graph's inputs, but not that of gradients."""
    return node.op == "placeholder" and "tangents" in node.name


def imported(node: Node, spec: Spec) -> Spec:
    """What is handed to jax of a tensor from outside: an expanded input is handed over once and repeated there."""
    return spec.narrow() if node.op == "placeholder" and not is_tangent(node) else spec


class Unbacked(Exception):
    """A size depends on data: it is not known before the graph runs."""


def name_of(target: Any) -> str:
    """``aten.add.Tensor`` for an overload, the plain name for anything else."""
    return str(target) if isinstance(target, OpOverload) else getattr(target, "__name__", str(target))


def row_of(node: Node) -> Row | None:
    """The row of a node's operator."""
    return ROWS.get(name_of(node.target)) if isinstance(node.target, OpOverload) else None


def arguments(node: Node) -> tuple[Any, ...]:
    """A node's positional arguments; what each may be is the operator's business, not the type checker's."""
    return node.args


def needed_row(node: Node) -> Row:
    """The row of a node that is known to have one."""
    entry = row_of(node)
    if entry is None:
        raise error("internal-error", f"{name_of(node.target)} was planned for a jitted segment and has no row")
    return entry


def where_of(node: Node) -> Where | None:
    """The user's source line that a node came from; None in a library's module: who tells of it names what calls."""
    return Where.of_trace(node.meta.get("stack_trace") or "")


def symbol_values(placeholders: Iterable[Node], actual: Iterable[Any]) -> dict[sympy.Symbol, Any]:
    """Which number each free symbol of the graph's sizes has in this call."""
    values: dict[sympy.Symbol, Any] = {}

    def bind(symbolic: Any, number: Any) -> None:
        if isinstance(symbolic, (torch.SymInt, torch.SymFloat, torch.SymBool)):
            expr = symbolic.node.expr
            if isinstance(number, (torch.SymInt, torch.SymFloat, torch.SymBool)):
                # The ragged size of a nested tensor has no number: what depends on it is not known before the run.
                number = getattr(number.node, "hint", None)
                if number is None:
                    return
            if isinstance(expr, sympy.Symbol):
                values.setdefault(expr, number)

    for node, value in zip(placeholders, actual, strict=True):
        meta = node.meta.get("val")
        if isinstance(value, torch.Tensor) and isinstance(meta, torch.Tensor):
            for symbolic, number in zip((*meta.shape, *meta.stride()), (*value.shape, *value.stride())):
                bind(symbolic, number)
        else:
            bind(meta, value)
    return values


def concrete(value: Any, symbols: Mapping[sympy.Symbol, Any]) -> Any:
    """A number for a possibly symbolic one.

    Raises:
        Unbacked: a symbol has no value yet.
    """
    if isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)):
        expr = value.node.expr
        result = expr.xreplace(dict(symbols)) if isinstance(expr, sympy.Basic) else expr
        if isinstance(result, sympy.Basic) and result.free_symbols:
            raise Unbacked(str(expr))
        kind: Any = int if isinstance(value, torch.SymInt) else float if isinstance(value, torch.SymFloat) else bool
        return kind(result)
    return int(cast(Any, value.xreplace(dict(symbols)))) if isinstance(value, sympy.Basic) else value


def spec_of(value: Any, symbols: Mapping[sympy.Symbol, Any]) -> Any:
    """`Spec` of a meta tensor, lists of them for lists, None for anything else."""
    if isinstance(value, torch.Tensor):
        if value.layout is not torch.strided:
            return None
        shape = tuple(concrete(s, symbols) for s in value.shape)
        strides = tuple(concrete(s, symbols) for s in value.stride())
        return Spec(shape, strides, value.dtype, concrete(value.storage_offset(), symbols))
    if isinstance(value, (list, tuple)):
        return [spec_of(v, symbols) for v in value]
    return None


def flat(args: Any) -> list[Node]:
    """Every node inside nested arguments."""
    found: list[Node] = []
    torch.fx.map_arg(args, found.append)
    return found


def is_write(node: Node) -> bool:
    """An epilogue `copy_` into an input whose result nobody but the output reads."""
    return (
        name_of(node.target) == "aten.copy_.default"
        and isinstance(node.args[0], Node)
        and node.args[0].op == "placeholder"
        and isinstance(node.args[1], Node)
        and all(user.op == "output" for user in node.users)
    )


def is_mutable(node: Node) -> bool:
    """Whether an operator writes to an argument."""
    return isinstance(node.target, OpOverload) and node.target._schema.is_mutable


def _numbers_only(node: Node) -> bool:
    return isinstance(node.meta.get("val"), (int, float, bool, torch.SymInt, torch.SymFloat, torch.SymBool))


def operand_numbers(gm: torch.fx.GraphModule) -> set[Node]:
    """Symbolic whole numbers that are only ever operands of pointwise operators: no size depends on them.

    They enter as 0-d arrays, so that a counter that changes on every call doesn't build a function on every call.
    """
    sized: set[sympy.Symbol] = set()
    for node in gm.graph.nodes:
        for value in pytree.tree_leaves(node.meta.get("val")):
            numbers = (*value.shape, *value.stride()) if isinstance(value, torch.Tensor) else ()
            for n in numbers:
                if isinstance(n, torch.SymInt):
                    sized |= n.node.expr.free_symbols
    found = set()
    for node in gm.graph.nodes:
        value = node.meta.get("val")
        if node.op != "placeholder" or not isinstance(value, torch.SymInt) or not value.node.expr.is_Symbol:
            continue
        if value.node.expr not in sized and all(_only_an_operand(node, user) for user in node.users):
            found.add(node)
    return found


def _only_an_operand(node: Node, user: Node) -> bool:
    """Whether a number is an operand of a pointwise operator, or one of a launch that it may not decide."""
    if "launch" in user.meta:
        return node in arguments(user)[3]
    entry = row_of(user) if user.op == "call_function" else None
    return entry is not None and entry.kind == POINTWISE and entry.promote != KEEP and node in user.args


def analyse(
    gm: torch.fx.GraphModule,
    actual: list[Any],
    refused: Mapping[str, str],
    reject: Callable[[Node, Graph], str | None],
    numbers: Collection[Node] = (),
    inline: Callable[[Node, Graph], Any] = lambda node, plan: None,
    around: Mapping[sympy.Symbol, Any] | None = None,
) -> Graph:
    """Plan one call.

    Args:
        gm: the graph.
        actual: this call's inputs (tensors or numbers), for the sizes only.
        refused: node names that a previous attempt could not jit, with the reason.
        reject: why a node with a row can't use it here, or None.
        numbers: placeholders of whole numbers that enter as 0-d arrays.
        inline: what a node without a row becomes in a segment (see `launches.Inline`), or text: why it runs on
            tensors; None for a node that it knows nothing of.
        around: of a subgraph, the symbols of the graph that it stands in.

    Raises:
        Unbacked: a size depends on data.
    """
    nodes = sorted_nodes(gm.graph)
    placeholders = [n for n in nodes if n.op == "placeholder"]
    symbols = {**symbol_values(placeholders, actual), **(around or {})}
    output = next(n for n in nodes if n.op == "output")
    results = arguments(output)[0]
    several = isinstance(results, (list, tuple))
    plan = Graph(placeholders, {}, {}, [], list(results) if several else [results], [], {}, symbols)

    visible = output.meta.get("user_visible_output_idxs")
    if visible and not any(is_tangent(n) for n in placeholders):
        plan.saved = frozenset(range(max(visible) + 1, len(plan.outputs)))

    live = _live(nodes, output, symbols)
    body: list[Node] = []
    for node in nodes:
        if node.op == "placeholder":
            plan.specs[node] = spec_of(node.meta.get("val"), symbols)
            continue
        if node not in live or node.op == "output":
            continue
        if node.op == "call_function" and is_write(node):
            plan.writes.append(Write(*arguments(node)[:2]))
            continue
        try:
            plan.specs[node] = spec_of(node.meta.get("val"), symbols)
            if node.op == "call_function" and _numbers_only(node):
                plan.static[node] = concrete(node.meta["val"], symbols)
                continue
        except Unbacked as unknown:
            plan.specs[node] = None
            plan.unsized[node] = f"a size depends on data ({unknown})"
        body.append(node)
    for node, value in zip(placeholders, actual, strict=True):
        if node in numbers:
            plan.specs[node] = Spec((), (), torch.int64)
            plan.later[node] = value
        elif not isinstance(value, torch.Tensor):
            plan.static[node] = concrete(value, symbols)

    for node in body:
        reason = _why_aten(node, plan, refused, reject, inline)
        if reason is not None:
            plan.aten[node] = reason
    plan.segments = _schedule(body, plan)
    return plan


def sorted_nodes(graph: torch.fx.Graph) -> list[Node]:
    """The nodes with every definition before its uses: Inductor's joint-graph passes leave some the other way round."""
    done: set[Node] = set()
    ordered: list[Node] = []
    for root in graph.nodes:
        stack = [(root, False)]
        while stack:
            node, leaving = stack.pop()
            if leaving:
                ordered.append(node)
            elif node not in done:
                done.add(node)
                stack.append((node, True))
                stack.extend((d, False) for d in reversed(flat((node.args, node.kwargs))) if d not in done)
    return ordered


def _live(nodes: list[Node], output: Node, symbols: Mapping[sympy.Symbol, Any]) -> set[Node]:
    live: set[Node] = {output}
    for node in reversed(nodes):
        kept = _effect(node) or is_assertion(node) or _asserts_number(node, symbols)
        if node in live or (node.op == "call_function" and is_mutable(node)) or kept:
            live.add(node)
            live.update(flat((node.args, node.kwargs)))
    return live


def is_assertion(node: Node) -> bool:
    """Whether a node only looks at a condition, and raises."""
    return node.op == "call_function" and name_of(node.target).startswith("aten._assert_async.")


def _asserts_number(node: Node, symbols: Mapping[sympy.Symbol, Any]) -> bool:
    """Whether a node asserts something of a number that depends on data; of other numbers Dynamo's guards know."""
    if node.op != "call_function" or name_of(node.target) != "aten._assert_scalar.default":
        return False
    condition = arguments(node)[0]
    try:
        concrete(condition.meta.get("val") if isinstance(condition, Node) else condition, symbols)
    except Unbacked:
        return True
    return False


def _effect(node: Node) -> bool:
    return node.op == "call_function" and getattr(node.target, "__name__", "") in ("with_effects", "print")


def _why_aten(
    node: Node,
    plan: Graph,
    refused: Mapping[str, str],
    reject: Callable[[Node, Graph], str | None],
    inline: Callable[[Node, Graph], Any],
) -> str | None:
    """Why a node runs in ATen; "" when that needs no note; None when it is jitted."""
    if node.op == "get_attr":
        return ""
    if node in plan.unsized or any(n in plan.unsized for n in flat((node.args, node.kwargs))):
        return _why_unsized(node, plan)
    if node.target is operator.getitem:
        return "" if node.args[0] in plan.aten else None
    if node.name in refused:
        return refused[node.name]
    if name_of(node.target) in _HOST:
        return ""
    if row_of(node) is None:
        found = inline(node, plan)
        if found is None or isinstance(found, str):
            return found or "the operator has no row in the table"
        plan.inlined[node] = found
        return None
    return reject(node, plan)


def _why_unsized(node: Node, plan: Graph) -> str:
    """Why a node that makes or reads something of unknown size runs in ATen; numbers and pieces need no note."""
    if _numbers_only(node) or node.target is operator.getitem or node.meta.get("val") is None:
        return ""
    read = [plan.unsized[n] for n in flat((node.args, node.kwargs)) if n in plan.unsized]
    return plan.unsized.get(node, read[0] if read else "")


def _schedule(body: list[Node], plan: Graph) -> list[Segment]:
    """As few alternations as the dependences allow; the given order when an operator writes in place."""
    if any(is_mutable(n) or _effect(n) for n in body):
        segments: list[Segment] = []
        for node in body:
            jitted = node not in plan.aten
            if not segments or segments[-1].jitted != jitted:
                segments.append(Segment(jitted))
            segments[-1].nodes.append(node)
        return segments
    waiting = {n: {d for d in flat((n.args, n.kwargs)) if d in plan.specs} for n in body}
    inside = set(body)
    drawn: Node | None = None
    for node, dependences in waiting.items():
        dependences &= inside
        # Draws from torch's generator stay in order, as eager's are.
        if draws(node):
            dependences.update({drawn} if drawn else ())
            drawn = node
    done: set[Node] = set()
    segments, jitted, pending = [], not body or body[0] not in plan.aten, list(body)
    # ATen nodes without inputs (seeds, constants) go first, so that they don't split what follows.
    if any(n in plan.aten and not waiting[n] for n in body):
        jitted = False
    while pending:
        segment, rest = Segment(jitted), []
        for node in pending:
            if (node not in plan.aten) == jitted and waiting[node] <= done:
                segment.nodes.append(node)
                done.add(node)
            else:
                rest.append(node)
        if segment.nodes:
            segments.append(segment)
        pending, jitted = rest, not jitted
    return segments


def view_base(node: Node, crop: bool = False) -> Node:
    """The node whose storage an output shares in eager, walking back through pure views."""
    while (
        node.op == "call_function"
        and (name_of(node.target) in _ALIASING or (crop and name_of(node.target) in _CROPPING))
        and isinstance(node.args[0], Node)
    ):
        node = node.args[0]
    return node


def shared_root(node: Node) -> Node:
    """The value in whose memory an output lies in eager, walking back through every view."""
    while node.op == "call_function":
        source = node.args[0] if node.args else None
        if not isinstance(source, Node) or not (node.target is operator.getitem or name_of(node.target) in _SHARING):
            break
        if node.target is operator.getitem and name_of(source.target) not in _SHARING:
            break
        node = source
    return node


def is_view(node: Node) -> bool:
    """Whether a node's operator only moves elements."""
    entry = row_of(node)
    return entry is not None and entry.kind == VIEW
