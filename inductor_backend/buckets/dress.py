"""One call on padded tensors: pad the inputs, run, cut the outputs.

Input: a `Padded` graph and the inputs of one call. Output: what the graph itself would return for them: eager's sizes,
strides and aliasing. Law: the caller's tensors are read once and written last; what pads an input is zeros.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import sympy
import torch
from torch.fx import Node

from inductor_backend.buckets.lines import Dim
from inductor_backend.buckets.rewrite import Padded, expression
from inductor_backend.buckets.sizes import bucket
from inductor_backend.graph import Spec, concrete, spec_of, symbol_values, view_base


@dataclass(frozen=True)
class Frame:
    """A tensor inside a padded one: sizes by part, as they are and padded."""

    own: Spec
    whole: Spec
    parts: tuple[tuple[int, ...], ...]
    padded: tuple[tuple[int, ...], ...]

    def inside(self, t: torch.Tensor) -> torch.Tensor:
        """The own elements of a padded tensor, one dimension a part."""
        t = _unflattened(t, self.padded)
        own = [n for dim in self.parts for n in dim]
        for d, n in enumerate(own):
            if t.shape[d] != n:
                t = t.narrow(d, 0, n)
        return t

    def pad(self, t: torch.Tensor) -> torch.Tensor:
        """A tensor with zeros around it."""
        whole = torch.empty_strided(self.whole.shape, self.whole.strides, dtype=self.whole.dtype).zero_()
        self.inside(whole).copy_(_unflattened(t.detach(), self.parts))
        return whole

    def cut(self, t: torch.Tensor) -> torch.Tensor:
        """The tensor inside a padded one, in memory of its own."""
        if t.is_conj() or t.is_neg():
            t = t.resolve_conj().resolve_neg()
        own = torch.empty_strided(self.own.shape, self.own.strides, dtype=self.own.dtype)
        if self.own.numel:
            once = tuple(0 if s == 0 and n > 1 else n for s, n in zip(self.own.strides, self.own.shape))
            if 0 in once:
                self.expanded(own).copy_(self.expanded(self.inside(t).reshape(self.own.shape)))
            else:
                _unflattened(own, self.parts).copy_(self.inside(t))
        return own

    def expanded(self, t: torch.Tensor) -> torch.Tensor:
        """One of every repeated element."""
        for d, (s, n) in enumerate(zip(self.own.strides, self.own.shape)):
            t = t.narrow(d, 0, 1) if s == 0 and n > 1 else t
        return t


def _unflattened(t: torch.Tensor, parts: Sequence[Sequence[int]]) -> torch.Tensor:
    """A view with one dimension a part; a dimension of 1 has none, and goes."""
    for d in reversed(range(len(parts))):
        if len(parts[d]) != 1:
            t = t.squeeze(d) if not parts[d] else t.unflatten(d, tuple(parts[d]))
    return t


class Fit:
    """What is done around the padded graph for one set of sizes."""

    def __init__(self, graph: Padded, source: torch.fx.GraphModule, args: Sequence[Any], buckets: Any):
        placeholders = [n for n in source.graph.nodes if n.op == "placeholder"]
        self.symbols = symbol_values(placeholders, args)
        padded = {s: bucket(n, buckets) if s in graph.symbols else n for s, n in self.symbols.items()}
        self.wide: dict[Any, Any] = padded | {
            s: int(concrete_number(e, padded)) for s, e in graph.known.items() if s in padded
        }
        #: whatever differs between the call and its bucket
        self.varying = graph.symbols | {s for s, e in graph.known.items() if isinstance(e, sympy.Basic)}
        self.sizes = torch.tensor([int(concrete_number(e, self.symbols)) for e in graph.sizes], dtype=torch.int64)
        numbers = [float(concrete_number(e, self.symbols)) for e in graph.numbers]
        self.numbers = torch.tensor(numbers, dtype=torch.float64)
        self.lead = [t for t in (self.sizes, self.numbers) if t.numel()]
        self.plain = all(self.wide[s] == self.symbols[s] for s in graph.symbols)
        self.pads: list[tuple[int, Frame]] = []
        self.values: list[tuple[int, Any]] = []
        for i, (node, dims) in enumerate(zip(placeholders, graph.dims, strict=True)):
            value = node.meta.get("val")
            if isinstance(value, torch.Tensor) and dims is not None:
                if any(_depends(p, self.varying) for dim in dims for p in dim):
                    self.pads.append((i, self.frame(value, dims)))
            elif _depends(expression(value), self.varying):
                self.values.append((i, concrete(value, self.wide)))
        output = next(n for n in source.graph.nodes if n.op == "output")
        self.outputs = list(output.args[0])
        self.graph, self.placeholders = graph, placeholders
        self.position = {n: i for i, n in enumerate(placeholders)}
        self.made = self.results()

    def frame(self, value: torch.Tensor, dims: Sequence[Dim]) -> Frame:
        """How a tensor lies in a padded one."""
        return Frame(
            spec_of(value, self.symbols),
            spec_of(value, self.wide),
            tuple(tuple(int(concrete_number(p, self.symbols)) for p in dim) for dim in dims),
            tuple(tuple(int(concrete_number(p, self.wide)) for p in dim) for dim in dims),
        )

    @property
    def bucket(self) -> Any:
        """Equal for calls that the same function serves."""
        return tuple(sorted((str(s), n) for s, n in self.wide.items()))

    def dressed(self, args: Sequence[Any]) -> list[Any]:
        """The inputs of the padded graph."""
        given, lead = [*self.lead, *args], len(self.lead)
        if not self.plain:
            for i, frame in self.pads:
                given[i + lead] = frame.pad(args[i])
        for i, value in self.values:
            given[i + lead] = value
        return given

    def results(self) -> list[Any]:
        """For every output of the source graph, what makes it of the padded graph's and of the inputs."""
        made = [self.result(i, out) if isinstance(out, Node) else None for i, out in enumerate(self.outputs)]
        for root, position, members in self.graph.shared:
            frame = self.frame(root.meta["val"], self.graph.outputs[position])
            if frame.own.order() is None:
                continue
            for i in members:
                made[i] = ("piece", position, frame, spec_of(self.outputs[i].meta["val"], self.symbols))
        return made

    def result(self, i: int, out: Node) -> Any:
        """How one output is made, or None when the padded graph's is right as it is."""
        value, dims = out.meta.get("val"), self.graph.outputs[i]
        if out in self.position:
            return "input", self.position[out]
        if not isinstance(value, torch.Tensor):
            return ("number", concrete(value, self.symbols)) if _depends(expression(value), self.varying) else None
        written = out.args[0] if str(out.target) == "aten.copy_.default" else None
        if written in self.position:
            return "input", self.position[written]
        if dims is None or not any(_depends(p, self.varying) for dim in dims for p in dim):
            return None
        base = view_base(out, crop=True)
        if base in self.position:
            own, of = spec_of(value, self.symbols), spec_of(base.meta["val"], self.symbols)
            return "view", self.position[base], own, of
        return "cut", self.frame(value, dims)

    def undress(self, results: Sequence[Any], args: Sequence[Any]) -> tuple[Any, ...]:
        """The outputs of the source graph; padded inputs that it mutates are written."""
        found, whole = [], {}
        for i, how in enumerate(self.made):
            if how is not None and how[0] == "piece" and not self.plain:
                _, position, frame, own = how
                if position not in whole:
                    whole[position] = frame.cut(results[position])
                start = own.offset - frame.own.offset
                found.append(whole[position].as_strided(own.shape, own.strides, start))
            else:
                found.append(results[i] if how is None else self.one(how, results[i], args))
        self.write(results, args)
        return tuple(found)

    def write(self, results: Sequence[Any], args: Sequence[Any]) -> None:
        """Give inputs that the graph mutates their new values, after all of these are at hand."""
        theirs = {a.untyped_storage().data_ptr() for a in args if isinstance(a, torch.Tensor)}
        values = []
        for target, source in self.graph.writes:
            value, to = results[source], args[target]
            if not self.plain:
                frame = self.frame(self.placeholders[target].meta["val"], self.graph.outputs[source])
                value = frame.inside(value).reshape(to.shape)
            values.append((to, value.clone() if value.untyped_storage().data_ptr() in theirs else value))
        for to, value in values:
            to.copy_(value)

    def one(self, how: Any, result: Any, args: Sequence[Any]) -> Any:
        """One output."""
        kind = how[0]
        if kind == "input":
            return args[how[1]]
        if kind == "number":
            return how[1]
        if kind == "view":
            base, own, of = args[how[1]], how[2], how[3]
            if base.stride() != of.strides:
                base = torch.empty_strided(of.shape, of.strides, dtype=of.dtype).copy_(base)
            return base.as_strided(own.shape, own.strides, base.storage_offset() + own.offset - of.offset)
        return result if self.plain or kind == "piece" else how[1].cut(result)


def concrete_number(number: Any, symbols: Mapping[sympy.Symbol, Any]) -> Any:
    """The value of an expression."""
    return number.xreplace(dict(symbols)) if isinstance(number, sympy.Basic) else number


def _depends(number: Any, symbols: frozenset[Any]) -> bool:
    return isinstance(number, sympy.Basic) and bool(number.free_symbols & symbols)
