"""A jitted segment as readable Python source: one line per operator, Pallas kernels for the fused regions.

Input: a plan and one of its jitted segments. Output: `Source`, the text that is executed, with the line of every node.
Law: the text is what runs; a line that fails while tracing is a node that can be named.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch
from torch.fx import Node

from bridge.diagnostics import Where
from inductor_backend.checks import Wraps
from inductor_backend.compat import PROMOTION, elementwise_dtypes
from inductor_backend.graph import (
    Graph,
    Segment,
    Spec,
    arguments,
    concrete,
    flat,
    imported,
    is_assertion,
    name_of,
    needed_row,
    row_of,
    where_of,
)
from inductor_backend.ops import DTYPES, Out, Row, cast, functions, library
from inductor_backend.ops.table import BOOL_OUT, KEEP, MATMUL, has_zero, out_of_range
from inductor_backend.spans import data_of

#: Picks groups of lines for kernels; given the nodes whose transposes products fold in. One with a `write` prints them.
Chooser = Callable[[list["Line"], Graph, dict[Node, str]], list[list["Line"]]]

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
    checks: list[Node | Wraps] = field(default_factory=list)
    inlined: dict[str, Any] = field(default_factory=dict)


@dataclass
class Value:
    """An operand of the segment, in the order of the function's parameters."""

    node: Node
    spec: Spec


def namespace() -> dict[str, Any]:
    """The names that emitted source may use."""
    from inductor_backend.control import forms
    from inductor_backend.kernels import pallas

    return {
        "aten": functions(),
        "cast": cast,
        "control": forms,
        "jax": jax,
        "has_zero": has_zero,
        "jnp": jnp,
        "Out": Out,
        "out_of_range": out_of_range,
        "inf": math.inf,
        "nan": math.nan,
        "pallas": pallas,
    }


class Emitter:
    """Turns the nodes of one plan into source lines."""

    def __init__(self, plan: Graph, prefix: str = ""):
        self.plan, self.prefix = plan, prefix
        self.flipped: dict[Node, str] = {}
        #: what the user's functions are called in the segment
        self.functions: dict[str, Any] = {}

    # ---------------------------------------------------------------------------------------------- operands
    def literal(self, value: Any) -> str:
        """A constant argument as source."""
        if isinstance(value, torch.dtype):
            return dtype_name(value)
        if isinstance(value, (torch.device, torch.layout, torch.memory_format)):
            return "None"
        if isinstance(value, (list, tuple)):
            return "[" + ", ".join(self.argument(v) for v in value) + "]"
        return repr(concrete(value, self.plan.symbols))

    def argument(self, value: Any) -> str:
        """A node's argument as source."""
        if isinstance(value, Node):
            return self.literal(self.plan.static[value]) if value in self.plan.static else value.name
        return self.literal(value)

    def scalar(self, value: Any, compute: torch.dtype, narrow: torch.dtype | None = None) -> str:
        """A Python number that meets arrays of dtype `compute`, rounded to `narrow` first when eager does."""
        if narrow is not None and isinstance(value, float):
            value = torch.tensor(value, dtype=narrow).item()
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
    def lines(self, nodes: Sequence[Node]) -> tuple[list[Line], dict[str, Node | Wraps]]:
        """The lines of nodes in order, and of those that check operands: what each checks."""
        lines: list[Line] = []
        checks: dict[str, Node | Wraps] = {}
        for node in nodes:
            self.note_flip(node)
            text = self.call(node)
            lines.append(Line(node.name, text, node, set(_identifiers(text))))
            for number, (subject, text) in enumerate(self.asked(node)):
                check = f"{node.name}_range{number}"
                checks[check] = subject
                lines.append(Line(check, text, node, set(_identifiers(text)), check=True))
        return lines, checks

    def asked(self, node: Node) -> list[tuple[Node | Wraps, str]]:
        """What is checked of a node's operands, and the expressions that are true where they are refused."""
        found = self.plan.inlined.get(node)
        if found is not None:
            return [(c, f"{node.name}[{found.results}][{i}]") for i, c in enumerate(found.checks)]
        asked: list[tuple[Node | Wraps, str]] = [(node, text) for text in self.range_checks(node)]
        if node in self.plan.wraps:
            asked.append((Wraps(node), self.wrap_check(node)))
        return asked

    def call(self, node: Node) -> str:
        """The right-hand side for one node."""
        if node.target is operator.getitem:
            source, position = arguments(node)
            return f"{source.name}[{position}]"
        if node in self.plan.inlined:
            return self.inlined(node)
        entry, spec, narrow = needed_row(node), self.plan.specs[node], None
        if isinstance(spec, Spec) and not spec.numel:
            # XLA's compiler crashes on some functions of nothing: a softmax of rows without elements.
            return f"jnp.zeros({spec.shape!r}, {dtype_name(spec.dtype)})"
        if entry.kind == MATMUL and entry.ident in ("mm", "bmm", "addmm", "baddbmm"):
            return self.product(node, entry.ident)
        compute = None
        if entry.promote == KEEP:
            args = [self.argument(a) for a in node.args]
        else:
            compute, narrow = self.compute_dtype(node, entry.promote)
            narrow = narrow if entry.narrow_scalars else None
            args = [self.operand(a, compute, narrow) for a in node.args]
        args += [f"{k}={self.keyword(k, v, compute, narrow)}" for k, v in node.kwargs.items() if not _placement(k)]
        if "out" in entry.wants:
            args.append(f"out={self.outs(spec)}")
        if "strides" in entry.wants:
            args.append(f"strides={self.plan.specs[arguments(node)[0]].strides!r}")
        text = f"aten.{entry.ident}({', '.join(args)})"
        natural = {"same": compute, "bool": torch.bool}.get(entry.result)
        if natural is not None and isinstance(spec, Spec) and spec.dtype != natural:
            text = f"cast({text}, {dtype_name(spec.dtype)})"
        return text

    def inlined(self, node: Node) -> str:
        """A call of a function of the user's, which the segment holds."""
        found = self.plan.inlined[node]
        name = f"{self.prefix}{found.name}_{node.name}"
        self.functions[name] = found
        return f"{name}({', '.join(self.argument(n) for n in found.operands)})"

    def range_checks(self, node: Node) -> list[str]:
        """Expressions that are true when eager would refuse the node's operands for the numbers that they hold."""
        entry = row_of(node)
        if node.target is operator.getitem or entry is None:
            return []
        if is_assertion(node):
            return [f"jnp.logical_not(jnp.all({self.argument(arguments(node)[0])}))"]
        if entry.divides:
            return self.zero_checks(node)
        if entry.bounds is None:
            return []
        shape = self.plan.specs[arguments(node)[0]].shape or (1,)
        kwargs = {k: v for k, v in node.kwargs.items() if not _placement(k)}
        return [
            f"out_of_range({self.argument(index)}, {shape[dim]}, {negative})"
            for index, dim, negative in entry.bounds(*node.args, **kwargs)
            if isinstance(index, Node) and self.plan.specs[index].numel and self.plan.specs[index].dtype != torch.bool
        ]

    def wrap_check(self, node: Node) -> str:
        """An expression that is true when a node's whole numbers need more than 32 bits."""
        growth = self.plan.wraps[node]
        data = [d for d in data_of(growth, node) if d not in self.plan.static]
        if growth.check == "from_float":
            return f"wraps.from_float({data[0].name})"
        text = self.call(node).replace("'int64'", "'float32'")
        if growth.near:
            text = text.replace(f"aten.{needed_row(node).ident}(", f"{growth.near}(")
        names = ", ".join(self.flipped[d] if self.flipped.get(d) in _identifiers(text) else d.name for d in data)
        return f"wraps.{growth.check}(lambda {names}: {text}, {node.name}, {names})"

    def zero_checks(self, node: Node) -> list[str]:
        """An expression that is true when a whole number is divided by zero; none for a divisor known not to be."""
        spec, divisor = self.plan.specs[node], arguments(node)[1]
        if spec.dtype.is_floating_point or not spec.numel:
            return []
        value = self.plan.static.get(divisor, divisor) if isinstance(divisor, Node) else divisor
        if isinstance(value, Node) and name_of(value.target) == "aten.full.default":
            value = self.plan.static.get(arguments(value)[1], arguments(value)[1])
        if not isinstance(value, Node) and value != 0:
            return []
        return [f"has_zero({self.argument(value)})"]

    def outs(self, spec: Any) -> str:
        """``Out(...)`` for one result, a list of them for several."""
        if isinstance(spec, Spec):
            return repr(spec.out())
        return "[" + ", ".join("None" if s is None else repr(s.out()) for s in spec) + "]"

    def keyword(self, name: str, value: Any, compute: torch.dtype | None, narrow: torch.dtype | None) -> str:
        """A keyword argument as source."""
        if isinstance(value, Node) and value not in self.plan.static and compute is not None:
            return self.operand(value, compute)
        if name in ("alpha", "beta", "value") and compute is not None and isinstance(value, (int, float)):
            return self.scalar(value, compute, narrow)
        return self.argument(value)

    def operand(self, value: Any, compute: torch.dtype, narrow: torch.dtype | None = None) -> str:
        """An operand brought to the computing dtype."""
        if isinstance(value, Node) and value not in self.plan.static:
            spec = self.plan.specs[value]
            return value.name if spec.dtype == compute else f"cast({value.name}, {dtype_name(compute)})"
        number = self.plan.static[value] if isinstance(value, Node) else value
        if isinstance(number, (bool, int, float, complex)):
            return self.scalar(number, compute, narrow)
        return self.literal(number)

    def compute_dtype(self, node: Node, promote: str) -> tuple[torch.dtype, torch.dtype | None]:
        """The dtype that torch computes in for this node, and the half-precision dtype of its operands if it is one."""
        operands = []
        for value in (*node.args, *node.kwargs.values()):
            if isinstance(value, Node):
                operands.append(self.plan.static.get(value, value.meta.get("val")))
            elif isinstance(value, (bool, int, float, complex)) and any(value is a for a in node.args):
                operands.append(value)
        compute, result = elementwise_dtypes(*operands, type_promotion_kind=getattr(PROMOTION, promote))
        if promote == BOOL_OUT:
            result = elementwise_dtypes(*operands, type_promotion_kind=PROMOTION.NO_OPMATH)[1]
        return compute, result if result in _LOW else None

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
        given, rank = arguments(node), len(self.plan.specs[node].shape)
        source = given[0]
        order = list(range(rank))
        if target == "aten.permute.default":
            order = [d % rank for d in given[1]] if rank else []
        elif target == "aten.t.default":
            order.reverse()
        elif rank:
            a, b = given[1] % rank, given[2] % rank
            order[a], order[b] = order[b], order[a]
        if rank >= 2 and order == [*range(rank - 2), rank - 1, rank - 2]:
            self.flipped[node] = source.name


def _placement(keyword: str) -> bool:
    return keyword in ("layout", "device", "pin_memory", "memory_format", "non_blocking", "requires_grad")


def reject(node: Node, plan: Graph) -> str | None:
    """Why a node whose operator has a row can't use it here; None when it can."""
    entry = needed_row(node)
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
    if entry.tied is not None and _ties_show(node, entry):
        return "equal elements are likely, and only ATen knows in which order its sort leaves them"
    if entry.supports is not None:
        try:
            try:
                supported = _supported(node, entry, lambda n: plan.static.get(n, n.meta.get("val")))
            except RuntimeError:  # a size that depended on data when the graph was traced: it is known by now
                supported = _supported(node, entry, lambda n: plan.static.get(n, example_of(plan.specs.get(n))))
        except (TypeError, AttributeError, IndexError, RuntimeError):
            supported = False
        if not supported:
            return "these arguments are outside the operator's row"
    return "" if _library_pays(node, plan, entry) else None


def _supported(node: Node, entry: Row, known: Callable[[Node], Any]) -> bool:
    args, kwargs = torch.fx.map_arg(node.args, known), torch.fx.map_arg(node.kwargs, known)
    supports = entry.supports or (lambda *args, **kwargs: True)
    return bool(supports(*args, **{k: v for k, v in kwargs.items() if not _placement(k)}))


def example_of(spec: Any) -> Any:
    """An example tensor of these sizes, without memory."""
    if not isinstance(spec, Spec):
        return None
    room = spec.offset + sum((n - 1) * s for n, s in zip(spec.shape, spec.strides)) + 1
    whole = torch.empty((max(room, 1),), dtype=spec.dtype, device="meta")
    return whole.as_strided(spec.shape, spec.strides, spec.offset)


def _library_pays(node: Node, plan: Graph, entry: Row) -> bool:
    """Whether ATen does a node faster, by more than a boundary costs; remembered in the plan."""
    if entry.library is None:
        return False
    known = lambda n: plan.static[n] if n in plan.static else plan.specs.get(n)
    args, kwargs = torch.fx.map_arg(node.args, known), torch.fx.map_arg(node.kwargs, known)
    if not library.pays(entry.library, args, kwargs):
        return False
    plan.library.add(node)
    return True


def _ties_show(node: Node, entry: Row) -> bool:
    """Whether positions of equal elements are read from a sort that isn't stable, in a dtype with few values."""
    value = arguments(node)[0].meta.get("val")
    if not isinstance(value, torch.Tensor) or value.dtype in (torch.float32, torch.float64) or value.numel() < 2:
        return False
    if entry.name.endswith(".stable") and (node.kwargs.get("stable") or (len(node.args) > 1 and node.args[1])):
        return False
    if isinstance(node.meta.get("val"), torch.Tensor):
        return True
    return any(user.target is not operator.getitem or user.args[1] == entry.tied for user in node.users)


@dataclass
class Line:
    """One assignment of the segment: its name, expression, node (None for a transposed input) and what it reads.

    A `check` computes whether the node's operands are such that eager would refuse them.
    """

    name: str
    text: str
    node: Node | None
    reads: set[str]
    check: bool = False


def emit_segment(
    name: str, segment: Segment, plan: Graph, inputs: list[Value], results: list[Node], choose: Chooser
) -> Source:
    """The source of one jitted segment.

    Args:
        name: the function's name.
        segment: its nodes, in order.
        plan: the plan it belongs to.
        inputs: operands from outside, in order.
        results: nodes whose values leave the segment, in order.
        choose: picks the groups of lines that become one Pallas kernel each.
    """
    emitter, source = Emitter(plan), Source(name)
    lines: list[Line] = []
    params = []
    for value in inputs:
        stored, given = imported(value.node, value.spec), value.node.name
        order, repeated = stored.order(), stored.shape != value.spec.shape
        if (order is None or order == tuple(range(len(order)))) and not repeated:
            params.append(given)
            continue
        params.append(f"{given}_stored")
        text = f"{given}_stored"
        if order is not None and order != tuple(range(len(order))):
            text = f"jnp.transpose({text}, {[order.index(d) for d in range(len(order))]})"
        if repeated:
            text = f"jnp.broadcast_to({text}, {value.spec.shape!r})"
        elif order == (*range(len(stored.shape) - 2), len(stored.shape) - 1, len(stored.shape) - 2):
            emitter.flipped[value.node] = f"{given}_stored"
        lines.append(Line(given, text, None, {f"{given}_stored"}))
    computed, checked = emitter.lines(segment.nodes)
    lines += computed
    checks, source.checks = list(checked), list(checked.values())
    wanted = {r.name for r in results} | set(checks)
    lines = _pruned(lines, wanted)
    known = {line.name for line in lines}
    for line in lines:
        line.reads &= known | set(params)
    regions = choose(lines, plan, emitter.flipped)
    head, body = _arrange(name, lines, regions, emitter, wanted, source, getattr(choose, "write", None))
    source.inlined = {n: f for n, f in emitter.functions.items() if any(n in _identifiers(line.text) for line in lines)}
    text_lines = [t for block in head for t in [*block.split("\n"), ""]]
    for called, function in source.inlined.items():
        text_lines += function.definition(called).split("\n")
    for function in list(source.inlined.values()):
        source.inlined |= function.inner
    text_lines.append(f"def {name}({', '.join(params)}):")
    place = None
    for text, node in body:
        place, remark = _remark(node, place)
        text_lines += remark
        text_lines.append("    " + text)
        if node is not None:
            source.lines[len(text_lines)] = node
    text_lines.append("    return [")
    for node in results:
        order, text = plan.specs[node].order(), node.name
        if order is not None and order != tuple(range(len(order))):
            text = f"jnp.transpose({text}, {list(order)})"
        text_lines.append(f"        {text},")
        source.lines[len(text_lines)] = node
    if checks:
        text_lines.append(f"        jnp.stack([{', '.join(checks)}]),")
    text_lines.append("    ]")
    source.text = "\n".join(text_lines) + "\n"
    return source


def _remark(node: Node | None, last: Where | None) -> tuple[Where | None, list[str]]:
    """(the user's line that statements come from now, a comment that shows it where it is another than the last)."""
    here = where_of(node) if node is not None else None
    if here is None or here == last:
        return last, []
    return here, [f"    # {here.file.rsplit('/', 1)[-1]}:{here.line}  {here.text().strip()[:100]}"]


def emit_body(
    name: str, plan: Graph, results: list[Any], prefix: str
) -> tuple[str, list[Node | Wraps], dict[str, Any]]:
    """The source of a subgraph: a function of its tensors, which returns its results and flags.

    Args:
        name: the function's name.
        plan: of the subgraph.
        results: nodes, or None where there is no value.
        prefix: of the names of what it calls.

    Returns:
        The source; what the flags are about; what it calls that has no source of its own, by name.
    """
    emitter = Emitter(plan, prefix)
    lines, checks = emitter.lines([n for segment in plan.segments for n in segment.nodes])
    lines = _pruned(lines, {r.name for r in results if r is not None} | set(checks))
    text = [f"def {name}({', '.join(n.name for n in plan.placeholders if n not in plan.static)}):"]
    inner: dict[str, Any] = {}
    for called, function in emitter.functions.items():
        text += [f"    {line}".rstrip() for line in function.definition(called).rstrip().split("\n")]
        inner |= function.inner
        inner |= {called: function} if function.function is not None else {}
    place = None
    for line in lines:
        place, remark = _remark(line.node, place)
        text += [*remark, f"    {line.name} = {line.text}"]
    given = ["None" if r is None else f"control.exactly({r.name}, {dtype_name(plan.specs[r].dtype)})" for r in results]
    text.append(f"    return [{', '.join(given)}], [{', '.join(checks)}]")
    return "\n".join([*text, ""]), list(checks.values()), inner


def _arrange(
    name: str,
    lines: list[Line],
    regions: list[list[Line]],
    emitter: Emitter,
    wanted: set[str],
    source: Source,
    write: Callable[..., Any] | None,
) -> tuple[list[str], list[tuple[str, Node | None]]]:
    """(kernel functions, statements): every region as one call, every value made before it is read."""
    plan = emitter.plan
    owner = {line.name: i for i, region in enumerate(regions) for line in region}
    units: dict[Any, list[Line]] = {}
    for line in lines:
        units.setdefault(("kernel", owner[line.name]) if line.name in owner else line.name, []).append(line)
    home = {line.name: key for key, unit in units.items() for line in unit}
    order: list[Any] = []
    entered: set[Any] = set()
    stack: list[tuple[Any, bool]] = [(key, False) for key in reversed(units)]
    while stack:
        key, leaving = stack.pop()
        if leaving:
            order.append(key)
        elif key not in entered:
            entered.add(key)
            stack.append((key, True))
            needs = sorted({home[r] for line in units[key] for r in line.reads if r in home} - {key}, key=str)
            stack.extend((k, False) for k in needs if k not in entered)
    outside: dict[str, set[Any]] = {}
    for line in lines:
        for r in line.reads:
            outside.setdefault(r, set()).add(home[line.name])
    head, body = [], []
    for key in order:
        unit = units[key]
        if not isinstance(key, tuple):
            body.append((f"{unit[0].name} = {unit[0].text}", unit[0].node))
            continue
        inside = {line.name for line in unit}
        leaving = [line for line in unit if line.name in wanted or outside.get(line.name, set()) - {key}]
        reads = list(dict.fromkeys(r for line in unit for r in sorted(line.reads) if r not in inside))
        kernel = f"{name}_kernel_{key[1]}"
        written = None
        if write is not None:
            written = write(kernel, unit, leaving, emitter)
            if written is None:
                body += [(f"{line.name} = {line.text}", line.node) for line in unit]
                continue
            text, first = written.text, written.lines
        else:
            text, first = _kernel_text(kernel, unit, reads, leaving)
        for offset, line in first.items():
            if line.node is not None:
                source.lines[sum(t.count("\n") + 2 for t in head) + offset] = line.node
        head.append(text)
        source.kernels.append(text)
        if written is not None:
            body += [(statement, unit[-1].node) for statement in written.statements]
            continue
        outs = ", ".join(repr(plan.specs[line.node].out()) for line in leaving if line.node is not None)
        body.append(
            (
                f"{', '.join(line.name for line in leaving)}, = pallas({kernel}, [{outs}])({', '.join(reads)})",
                unit[-1].node,
            )
        )
    return head, body


def _kernel_text(kernel: str, unit: list[Line], reads: list[str], leaving: list[Line]) -> tuple[str, dict[int, Line]]:
    """A kernel's source, and which of its lines (1-based) computes what."""
    params = [f"{r}_ref" for r in reads] + [f"{line.name}_out" for line in leaving]
    text = [f"def {kernel}({', '.join(params)}):"]
    text += [f"    {r} = {r}_ref[...]" for r in reads]
    numbered = {}
    for line in unit:
        text.append(f"    {line.name} = {line.text}")
        numbered[len(text)] = line
    for line in leaving:
        text.append(f"    {line.name}_out[...] = {line.name}")
        numbered[len(text)] = line
    return "\n".join(text), numbered


def _identifiers(text: str) -> list[str]:
    """The variables an expression reads: neither attributes nor keyword names."""
    return re.findall(r"(?<![\w.'])[A-Za-z_]\w*(?![\w=])", text)


def _pruned(lines: list[Line], wanted: set[str]) -> list[Line]:
    """Without the lines whose value nobody reads (transposes folded into products, mostly)."""
    needed, kept = set(wanted), []
    for line in reversed(lines):
        if line.name in needed:
            needed |= line.reads
            kept.append(line)
    return kept[::-1]


def np_bytes(spec: Spec) -> int:
    """Bytes of a dense tensor."""
    return spec.numel * np.dtype(DTYPES[spec.dtype]).itemsize
