"""A jitted segment as readable Python source: one line per operator, Pallas kernels for the fused regions.

Input: a plan and one of its jitted segments. Output: `Source`, the text that is executed, with the line of every node.
Law: the text is what runs; a line that fails while tracing is a node that can be named.
"""

from __future__ import annotations

import math
import operator
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch
from torch.fx import Node

from inductor_backend.compat import PROMOTION, elementwise_dtypes
from inductor_backend.graph import Graph, Segment, Spec, flat, name_of, row_of, where_of
from inductor_backend.ops import DTYPES, Out, cast, functions
from inductor_backend.ops.table import BOOL_OUT, KEEP, MATMUL

_LOW = {torch.bfloat16: torch.float32, torch.float16: torch.float32}


def dtype_name(dtype: torch.dtype) -> str:
    """``'float32'``, quoted for the source."""
    return repr(jnp.dtype(DTYPES[dtype]).name)


@dataclass
class Source:
    """Emitted text, the function's name, and the node behind each line (1-based)."""

    name: str
    text: str = ""
    lines: dict[int, Node] = field(default_factory=dict)
    kernels: list[str] = field(default_factory=list)


@dataclass
class Value:
    """An operand of the segment, in the order of the function's parameters."""

    node: Node
    spec: Spec


def namespace() -> dict[str, Any]:
    """The names that emitted source may use."""
    from inductor_backend.kernels import pallas

    return {
        "aten": functions(),
        "cast": cast,
        "jax": jax,
        "jnp": jnp,
        "Out": Out,
        "inf": math.inf,
        "nan": math.nan,
        "pallas": pallas,
        "fresh": fresh,
    }


def fresh(x: Any, *inputs: Any) -> Any:
    """`x`, or a copy when it is one of the segment's own inputs: a result must never alias torch's memory."""
    return jnp.copy(x) if any(x is i for i in inputs) else jnp.asarray(x)


class Emitter:
    """Turns the nodes of one plan into source lines."""

    def __init__(self, plan: Graph):
        self.plan = plan
        self.flipped: dict[Node, str] = {}

    # ---------------------------------------------------------------------------------------------- operands
    def literal(self, value: Any) -> str:
        """A constant argument as source."""
        if isinstance(value, torch.dtype):
            return dtype_name(value)
        if isinstance(value, (torch.device, torch.layout, torch.memory_format)):
            return "None"
        if isinstance(value, (list, tuple)):
            return "[" + ", ".join(self.argument(v) for v in value) + "]"
        return repr(value)

    def argument(self, value: Any) -> str:
        """A node's argument as source."""
        if isinstance(value, Node):
            return self.literal(self.plan.static[value]) if value in self.plan.static else value.name
        return self.literal(value)

    def scalar(self, value: Any, compute: torch.dtype) -> str:
        """A Python number that meets arrays of dtype `compute`."""
        if isinstance(value, complex):
            return repr(value)
        if compute.is_complex:
            return repr(complex(value))
        if compute.is_floating_point:
            return repr(float(value))
        if compute is torch.bool:
            return repr(bool(value))
        info = torch.iinfo(compute)
        span = 1 << info.bits
        wrapped = int(value) % span
        return repr(wrapped - span if info.min < 0 and wrapped > info.max else wrapped)

    # ------------------------------------------------------------------------------------------------- lines
    def call(self, node: Node) -> str:
        """The right-hand side for one node."""
        if node.target is operator.getitem:
            return f"{node.args[0].name}[{node.args[1]}]"
        entry, spec = row_of(node), self.plan.specs[node]
        if entry.kind == MATMUL and entry.ident in ("mm", "bmm", "addmm", "baddbmm"):
            return self.product(node, entry.ident)
        compute = None
        if entry.promote == KEEP:
            args = [self.argument(a) for a in node.args]
        else:
            compute = self.compute_dtype(node, entry.promote)
            args = [self.operand(a, compute) for a in node.args]
        args += [f"{k}={self.keyword(k, v, compute)}" for k, v in node.kwargs.items() if not _placement(k)]
        if "out" in entry.wants:
            args.append(f"out={self.outs(spec)}")
        if "strides" in entry.wants:
            args.append(f"strides={self.plan.specs[node.args[0]].strides!r}")
        text = f"aten.{entry.ident}({', '.join(args)})"
        natural = {"same": compute, "bool": torch.bool}.get(entry.result)
        if natural is not None and isinstance(spec, Spec) and spec.dtype != natural:
            text = f"cast({text}, {dtype_name(spec.dtype)})"
        return text

    def outs(self, spec: Any) -> str:
        """``Out(...)`` for one result, a list of them for several."""
        if isinstance(spec, Spec):
            return repr(spec.out())
        return "[" + ", ".join("None" if s is None else repr(s.out()) for s in spec) + "]"

    def keyword(self, name: str, value: Any, compute: torch.dtype | None) -> str:
        """A keyword argument as source."""
        if isinstance(value, Node) and value not in self.plan.static and compute is not None:
            return self.operand(value, compute)
        if name in ("alpha", "beta", "value") and compute is not None and isinstance(value, (int, float)):
            return self.scalar(value, compute)
        return self.argument(value)

    def operand(self, value: Any, compute: torch.dtype) -> str:
        """An operand brought to the computing dtype."""
        if isinstance(value, Node) and value not in self.plan.static:
            spec = self.plan.specs[value]
            return value.name if spec.dtype == compute else f"cast({value.name}, {dtype_name(compute)})"
        number = self.plan.static[value] if isinstance(value, Node) else value
        if isinstance(number, (bool, int, float, complex)):
            return self.scalar(number, compute)
        return self.literal(number)

    def compute_dtype(self, node: Node, promote: str) -> torch.dtype:
        """The dtype that torch computes in for this node."""
        operands = []
        for value in (*node.args, *node.kwargs.values()):
            if isinstance(value, Node):
                operands.append(self.plan.static.get(value, value.meta.get("val")))
            elif isinstance(value, (bool, int, float, complex)) and any(value is a for a in node.args):
                operands.append(value)
        kind = getattr(PROMOTION, "INT_TO_FLOAT" if promote == "INT_TO_FLOAT" else promote)
        compute, result = elementwise_dtypes(*operands, type_promotion_kind=kind)
        return compute if promote != BOOL_OUT else _LOW.get(compute, compute)

    def product(self, node: Node, ident: str) -> str:
        """A matrix product, with transposes of its operands folded in."""
        count = 2 if ident in ("mm", "bmm") else 3
        lead = [self.argument(a) for a in node.args[: count - 2]]
        extras = []
        for side, arg in zip("ab", node.args[count - 2 : count]):
            if arg in self.flipped:
                lead.append(self.flipped[arg])
                extras.append(f"transpose_{side}=True")
            else:
                lead.append(self.argument(arg))
        kwargs = [f"{k}={self.argument(v)}" for k, v in node.kwargs.items() if k in ("alpha", "beta")]
        return f"aten.{ident}({', '.join(lead + kwargs + extras)})"

    def note_flip(self, node: Node) -> None:
        """Remember a node that swaps the last two dimensions of another."""
        target = name_of(node.target)
        if target not in ("aten.permute.default", "aten.t.default", "aten.transpose.int"):
            return
        source, rank = node.args[0], len(self.plan.specs[node].shape)
        order = list(range(rank))
        if target == "aten.permute.default":
            order = [d % rank for d in node.args[1]] if rank else []
        elif target == "aten.t.default":
            order.reverse()
        elif rank:
            a, b = node.args[1] % rank, node.args[2] % rank
            order[a], order[b] = order[b], order[a]
        if rank >= 2 and order == [*range(rank - 2), rank - 1, rank - 2]:
            self.flipped[node] = source.name


def _placement(keyword: str) -> bool:
    return keyword in ("layout", "device", "pin_memory", "memory_format", "non_blocking", "requires_grad")


def reject(node: Node, plan: Graph) -> str | None:
    """Why a node whose operator has a row can't use it here; None when it can."""
    entry = row_of(node)
    for other in (node, *flat((node.args, node.kwargs))):
        if other in plan.static:
            continue
        specs = plan.specs.get(other)
        for spec in specs if isinstance(specs, list) else [specs]:
            if spec is not None and spec.dtype not in DTYPES:
                return f"jax has no dtype for {spec.dtype}"
            if spec is None and other is not node and isinstance(other.meta.get("val"), torch.Tensor):
                return "an operand is not a strided tensor"
    value = node.meta.get("val")
    device = value.device if isinstance(value, torch.Tensor) else None
    if device is not None and device.type != "cpu":
        return f"the result lives on {device}"
    if entry.supports is not None:
        meta = lambda n: plan.static[n] if n in plan.static else n.meta.get("val")
        args = torch.fx.map_arg(node.args, meta)
        kwargs = torch.fx.map_arg(node.kwargs, meta)
        kwargs = {k: v for k, v in kwargs.items() if not _placement(k)}
        try:
            if not entry.supports(*args, **kwargs):
                return "these arguments are outside the operator's row"
        except (TypeError, AttributeError, IndexError):
            return "these arguments are outside the operator's row"
    return None


def emit_segment(
    name: str, segment: Segment, plan: Graph, inputs: list[Value], results: list[Node], regions: list[list[Node]]
) -> Source:
    """The source of one jitted segment.

    Args:
        name: the function's name.
        segment: its nodes, in order.
        plan: the plan it belongs to.
        inputs: operands from outside, in order.
        results: nodes whose values leave the segment, in order.
        regions: groups of the segment's nodes that become one Pallas kernel each, every group in order.
    """
    emitter, source = Emitter(plan), Source(name)
    head: list[str] = []
    body: list[tuple[str, Node | None]] = []
    params = []
    for value in inputs:
        order = value.spec.order()
        if order is not None and order != tuple(range(len(order))):
            params.append(f"{value.node.name}_stored")
            inverse = [order.index(d) for d in range(len(order))]
            body.append((f"{value.node.name} = jnp.transpose({value.node.name}_stored, {inverse})", None))
            if order == (*range(len(order) - 2), len(order) - 1, len(order) - 2):
                emitter.flipped[value.node] = f"{value.node.name}_stored"
        else:
            params.append(value.node.name)
    owner = {n: i for i, region in enumerate(regions) for n in region}
    done: set[int] = set()
    last_place = None
    for node in _grouped(segment.nodes, owner, regions):
        index = owner.get(node)
        if index is not None:
            if index not in done:
                done.add(index)
                text, call = _emit_kernel(f"{name}_kernel_{index}", regions[index], plan, results, emitter)
                head += [text, ""]
                source.kernels.append(text)
                body.append((call, regions[index][-1]))
            continue
        place = where_of(node)
        if place is not None and str(place) != last_place:
            last_place = str(place)
            body.append((f"# {place.file.rsplit('/', 1)[-1]}:{place.line}  {place.text().strip()[:100]}", None))
        emitter.note_flip(node)
        body.append((f"{node.name} = {emitter.call(node)}", node))
    body = _prune(body, [r.name for r in results])
    outs = []
    for node in results:
        spec = plan.specs[node]
        order = spec.order()
        text = node.name
        if order is not None and order != tuple(range(len(order))):
            text = f"jnp.transpose({text}, {list(order)})"
        outs.append(f"fresh({', '.join([text, *params])})")
    text_lines = "\n".join(head).split("\n") if head else []
    text_lines.append(f"def {name}({', '.join(params)}):")
    for line, node in body:
        text_lines.append("    " + line)
        if node is not None:
            source.lines[len(text_lines)] = node
    text_lines.append("    return [")
    for out, node in zip(outs, results, strict=True):
        text_lines.append(f"        {out},")
        source.lines[len(text_lines)] = node
    text_lines.append("    ]")
    source.text = "\n".join(text_lines) + "\n"
    return source


def _grouped(nodes: list[Node], owner: dict[Node, int], regions: list[list[Node]]) -> list[Node]:
    """The nodes in an order in which every region is contiguous."""
    if not regions:
        return nodes
    key = {n: ("region", owner[n]) if n in owner else ("node", n.name) for n in nodes}
    members: dict[Any, list[Node]] = {}
    for n in nodes:
        members.setdefault(key[n], []).append(n)
    ordered: list[Node] = []
    state: dict[Any, int] = {}
    stack = [(k, False) for k in reversed(list(members))]
    while stack:
        k, leaving = stack.pop()
        if leaving:
            state[k] = 2
            ordered.extend(members[k])
            continue
        if state.get(k):
            continue
        state[k] = 1
        stack.append((k, True))
        for n in members[k]:
            for d in flat((n.args, n.kwargs)):
                if d in key and key[d] != k and not state.get(key[d]):
                    stack.append((key[d], False))
    return ordered


def _emit_kernel(
    name: str, region: list[Node], plan: Graph, results: list[Node], emitter: Emitter
) -> tuple[str, str]:
    """(the kernel's source, the line that calls it)."""
    inside = set(region)
    for node in region:
        emitter.note_flip(node)
    exprs = [(f"{n.name} = {emitter.call(n)}", n) for n in region]
    leaving = [
        n for n in region
        if isinstance(plan.specs[n], Spec) and (n in results or any(u not in inside for u in n.users))
    ]  # fmt: skip
    used = "\n".join(e for e, _ in exprs)
    names = set(_identifiers(used))
    inputs: list[str] = []
    for n in region:
        for d in flat((n.args, n.kwargs)):
            for candidate in (d.name, emitter.flipped.get(d, "")):
                if d not in inside and d not in plan.static and candidate in names and candidate not in inputs:
                    inputs.append(candidate)
    # A flip inside the region reads its source under the source's own name.
    inputs = [i for i in inputs if i not in {n.name for n in region}]
    params = [f"{i}_ref" for i in inputs] + [f"{n.name}_out" for n in leaving]
    lines = [f"def {name}({', '.join(params)}):"]
    lines += [f"    {i} = {i}_ref[...]" for i in inputs]
    kept = _prune(list(exprs), [n.name for n in leaving])
    lines += [f"    {text}" for text, _ in kept]
    lines += [f"    {n.name}_out[...] = {n.name}" for n in leaving]
    outs = ", ".join(repr(plan.specs[n].out()) for n in leaving)
    call = f"{', '.join(n.name for n in leaving)}, = pallas({name}, [{outs}])({', '.join(inputs)})"
    return "\n".join(lines), call


def _identifiers(text: str) -> list[str]:
    import re

    return re.findall(r"[A-Za-z_]\w*", text)


def _prune(body: list[tuple[str, Node | None]], wanted: list[str]) -> list[tuple[str, Node | None]]:
    """Without the lines whose value nobody reads (transposes folded into products, mostly)."""
    needed, kept = set(wanted), []
    for text, node in reversed(body):
        if text.startswith("#"):
            kept.append((text, node))
            continue
        left, right = text.split(" = ", 1)
        if any(t.strip() in needed for t in left.split(",")):
            needed.update(_identifiers(right))
            kept.append((text, node))
    return kept[::-1]


def np_bytes(spec: Spec) -> int:
    """Bytes of a dense tensor."""
    return spec.numel * np.dtype(DTYPES[spec.dtype]).itemsize
