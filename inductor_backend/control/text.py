"""The source of a `Flow` node in a segment.

Input: a node and the plan it belongs to. Output: `Inline`, a function of its operands; or why it runs in ATen. Law: a
subgraph is planned as a graph is, with the sizes of the graph around it; all of its operators have to be jitted.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch.fx import Node

from inductor_backend.control.flow import Flow, flow_of
from inductor_backend.emit import emit_body, example_of
from inductor_backend.graph import Graph, Spec, Unbacked, analyse, arguments, name_of, where_of
from inductor_backend.launches import Inline
from inductor_backend.ops import DTYPES

_CALLS = {
    "cond": "lambda *given: control.branch(given[0], {0}, {1}, given[1:], {checks})",
    "while_loop": "lambda *given: control.loop({0}, {1}, given[:{a}], given[{a}:], {checks})",
    "scan": "lambda *given: control.steps({0}, given[:{a}], given[{a}:{b}], given[{b}:], {count})",
    "map": "lambda *given: control.steps({0}, [], given[:{a}], given[{a}:], {count})",
}
_NAMES = {"cond": ("when_true", "when_false"), "while_loop": ("test", "body"), "scan": ("step",), "map": ("step",)}


def inline_of(
    node: Node,
    plan: Graph,
    reject: Callable[[Node, Graph], str | None],
    inline: Callable[[Node, Graph], Any],
    prepare: Callable[[Graph], None],
) -> Inline | str | None:
    """What control flow becomes in a segment, or why it runs in ATen; None for a node that is none.

    Args:
        node: of the graph.
        plan: it belongs to.
        reject: as for `graph.analyse`.
        inline: the same, of nodes inside the subgraphs.
        prepare: what a plan goes through before it is emitted.

    Raises:
        Diagnostic: of a subgraph's operators.
    """
    flow = flow_of(node)
    if flow is None:
        return node.meta.get("stays")
    lists = arguments(node)
    for operand in (o for one in lists for o in one if isinstance(o, Node) and o not in plan.static):
        spec = plan.specs.get(operand)
        if not isinstance(spec, Spec):
            return "an operand is not a strided tensor"
        if spec.dtype not in DTYPES:
            return f"jax has no dtype for {spec.dtype}"
    flat = [o for one in lists for o in one]
    given = flat[1:] if flow.kind == "cond" else flat
    name = f"{flow.kind}_{node.name}"
    texts, checks, inner, sizes = [], [], {}, []
    for which, (graph, called) in enumerate(zip(flow.graphs, _NAMES[flow.kind])):
        found = _planned(graph, given, plan, reject, inline)
        if isinstance(found, str):
            return found
        prepare(found)
        results = found.outputs
        if any(r is not None and (not isinstance(r, Node) or r in found.static) for r in results):
            return "a result is a number"
        text, asked, functions = emit_body(called, found, results, f"{name}_{which}_")
        texts.append(text)
        checks += asked
        inner |= functions
        sizes.append(len(asked))
    counts = [sum(isinstance(o, Node) and o not in plan.static for o in one) for one in lists]
    call = _CALLS[flow.kind].format(
        *_NAMES[flow.kind], a=counts[0], b=sum(counts[:2]), checks=tuple(sizes), count=sizes[0]
    )
    if flow.kind in ("while_loop", "scan") and counts[0] != len(lists[0]):
        return "what is carried is a number: a tensor would be jitted"
    pred = [o for o in lists[0] if not isinstance(o, Node) or o in plan.static] if flow.kind == "cond" else []
    if pred:
        value = plan.static[pred[0]] if isinstance(pred[0], Node) else pred[0]
        call = f"lambda *given: control.branch({bool(value)}, when_true, when_false, given, {tuple(sizes)})"
    body = "\n".join([*texts, f"return {call}"])
    operands = tuple(o for o in flat if isinstance(o, Node) and o not in plan.static)
    return Inline(
        flow.kind,
        f"torch {flow.kind}",
        "\n".join(f"    {line}".rstrip() for line in body.split("\n")),
        where_of(node),
        operands,
        specs=tuple(plan.specs[o] for o in operands),
        checks=tuple(checks),
        results=_count(node, flow),
        inner=inner,
    )


def _count(node: Node, flow: Flow) -> int:
    value: Any = node.meta.get("val")
    return len(value) if isinstance(value, (list, tuple)) else 1


def _planned(
    gm: Any,
    given: list[Any],
    plan: Graph,
    reject: Callable[[Node, Graph], str | None],
    inline: Callable[[Node, Graph], Any],
) -> Graph | str:
    """The plan of a subgraph, or what keeps it in ATen."""
    examples = []
    for operand in given:
        static = plan.static.get(operand) if isinstance(operand, Node) else operand
        examples.append(example_of(plan.specs[operand]) if static is None else static)
    placeholders = [n for n in gm.graph.nodes if n.op == "placeholder"]
    if len(placeholders) != len(examples):
        return "its functions take other operands"
    try:
        found = analyse(gm, examples, {}, reject, (), inline, plan.symbols)
    except Unbacked as unknown:
        return f"a size depends on data ({unknown})"
    for n in found.library:  # that saves a boundary's time only outside of a loop
        del found.aten[n]
    if found.writes:
        return "its functions write to their operands"
    for n, reason in found.aten.items():
        place = where_of(n)
        line = "" if place is None else f" (line {place.line})"
        if name_of(n.target).startswith("prims.inductor_"):
            return f"random numbers are drawn inside it{line}"
        return f"{name_of(n.target)} inside it{line}: {reason or 'it is no array operator'}"
    return found
