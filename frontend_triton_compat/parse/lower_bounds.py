"""Drops lower bounds that always hold: the `index >= 0` of a checked block pointer.

Input: a kernel. Output: the same kernel, with `(x >= 0) & m` replaced by `m` where x can't be negative. Law: only
facts that follow from the operations are used (program ids, aranges, constants, sums, products, loop indices);
integers are taken not to overflow, as in the address arithmetic they serve.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from frontend_triton_compat.flow import settle
from frontend_triton_compat.ir import Block, Kernel, Op, Value, walk
from frontend_triton_compat.types import dtype

_SAME = ("splat", "expand_dims", "broadcast", "trans", "reshape")
_BOTH = ("add", "mul", "idiv", "min", "and", "or", "xor", "shl", "shr")


def drop_lower_bounds(kernel: Kernel) -> None:
    """Replace conjunctions with a condition that always holds by their other side."""
    facts = _Facts(kernel.body)
    replaced: dict[Value, Value] = {}
    for op in walk(kernel.body):
        if op.kind == "map" and op.attrs["fn"] == "and":
            for sure, other in (op.operands, op.operands[::-1]):
                if facts.always(sure):
                    replaced[op.result] = other
                    break
    if replaced:
        substitute(kernel.body, replaced)


def substitute(body: Block, replaced: dict[Value, Value]) -> None:
    """Put other values in the place of these, everywhere."""

    def final(v: Value) -> Value:
        while v in replaced:
            v = replaced[v]
        return v

    for op in walk(body):
        op.operands = tuple(final(v) for v in op.operands)
        for region in op.regions:
            region.yields = tuple(final(v) for v in region.yields)


class _Facts:
    """What is known about values' signs."""

    def __init__(self, body: Block):
        self.loops: dict[Value, tuple[Op, int]] = {}
        for op in walk(body):
            if op.kind in ("for", "while"):
                skip = 1 if op.kind == "for" else 0
                for region in op.regions:
                    for i, arg in enumerate(region.args):
                        self.loops[arg] = (op, i - skip)
        self.known: dict[Value, bool] = {}

    def always(self, v: Value) -> bool:
        """Whether a condition holds in every element."""
        op = v.producer
        if op is None or op.kind != "map":
            return op is not None and op.kind in _SAME and self.always(op.operands[0])
        return op.attrs["fn"] == "ge" and self._is_zero(op.operands[1]) and self.nonnegative(op.operands[0])

    def _is_zero(self, v: Value) -> bool:
        op = v.producer
        while op is not None and op.kind in _SAME:
            op = op.operands[0].producer
        return op is not None and op.kind == "const" and op.attrs["value"] == 0

    def nonnegative(self, v: Value) -> bool:
        """Whether an integer is never negative; loops are taken by induction."""
        if v not in self.known:
            settle(v, self.known, lambda x: self._rule(x)[1], self._holds, True)
        return self.known[v]

    def _holds(self, v: Value) -> bool:
        combine, values = self._rule(v)
        return combine(self.known[x] for x in values)

    def _rule(self, v: Value) -> tuple[Callable[[Iterable[bool]], bool], tuple[Value, ...]]:
        """How the fact follows, and from which values: `all` of them, or `any`."""
        element = v.type.element
        if not isinstance(element, dtype) or not element.is_int():
            return _NO
        if element.is_int_unsigned():
            return _YES
        op = v.producer
        if v in self.loops:
            op, place = self.loops[v]
            return self._index(op) if place < 0 else self._carried(op, place)
        if op is None:
            return _NO
        if op.kind in ("for", "while"):
            return self._carried(op, op.results.index(v))
        if op.kind == "if":
            return all, tuple(region.yields[op.results.index(v)] for region in op.regions)
        if op.kind == "const":
            return _YES if op.attrs["value"] >= 0 else _NO
        if op.kind == "arange":
            return _YES if op.attrs["start"] >= 0 else _NO
        if op.kind == "cast":
            source = op.operands[0].type.element
            if not isinstance(source, dtype) or not source.is_int():
                return _NO
            room = element.primitive_bitwidth - source.primitive_bitwidth
            return (all, op.operands) if room > 0 or (room == 0 and source.is_int_signed()) else _NO
        if op.kind == "program_id":
            return _YES
        if op.kind in _SAME:
            return all, op.operands
        return self._map(op) if op.kind == "map" else _NO

    def _map(self, op: Op) -> tuple[Callable[[Iterable[bool]], bool], tuple[Value, ...]]:
        fn, xs = op.attrs["fn"], op.operands
        if fn in _BOTH:
            return all, xs
        if fn == "imod":
            return all, xs[:1]
        if fn == "max":
            return any, xs
        return (all, xs[1:]) if fn == "where" else _NO

    def _carried(self, op: Op, place: int) -> tuple[Callable[[Iterable[bool]], bool], tuple[Value, ...]]:
        first = 3 if op.kind == "for" else 0
        return all, (op.operands[first + place], op.regions[-1].yields[place])

    def _index(self, op: Op) -> tuple[Callable[[Iterable[bool]], bool], tuple[Value, ...]]:
        """A loop's index lies between its bounds: the step may be negative when only the run decides it."""
        low, high, step = op.operands[:3]
        known = step.producer is not None and step.producer.kind == "const" and step.producer.attrs["value"] > 0
        return all, (low,) if known else (low, high)


_YES: tuple[Callable[[Iterable[bool]], bool], tuple[Value, ...]] = (all, ())
_NO: tuple[Callable[[Iterable[bool]], bool], tuple[Value, ...]] = (any, ())
