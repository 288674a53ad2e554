"""Drops lower bounds that always hold: the `index >= 0` of a checked block pointer.

Input: a kernel. Output: the same kernel, with `(x >= 0) & m` replaced by `m` where x can't be negative. Law: only
facts that follow from the operations are used (program ids, aranges, constants, sums, products, loop indices);
integers are taken not to overflow, as in the address arithmetic they serve.
"""

from __future__ import annotations

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
            self.known[v] = True  # holds for the carried values below unless a step refutes it
            self.known[v] = self._derive(v)
        return self.known[v]

    def _derive(self, v: Value) -> bool:
        element = v.type.element
        if not isinstance(element, dtype) or not element.is_int():
            return False
        if element.is_int_unsigned():
            return True
        if v in self.loops:
            op, place = self.loops[v]
            if place < 0:
                return self.nonnegative(op.operands[0])
            return self._carried(op, place)
        op = v.producer
        if op is None:
            return False
        if op.kind in ("for", "while"):
            return self._carried(op, op.results.index(v))
        if op.kind == "if":
            return all(self.nonnegative(region.yields[op.results.index(v)]) for region in op.regions)
        if op.kind == "const":
            return op.attrs["value"] >= 0
        if op.kind == "arange":
            return op.attrs["start"] >= 0
        if op.kind == "cast":
            source = op.operands[0].type.element
            return (
                source.is_int()
                and source.primitive_bitwidth <= element.primitive_bitwidth
                and self.nonnegative(op.operands[0])
            )
        if op.kind == "program_id":
            return True
        if op.kind in _SAME:
            return self.nonnegative(op.operands[0])
        if op.kind == "map":
            return self._map(op)
        return False

    def _map(self, op: Op) -> bool:
        fn, xs = op.attrs["fn"], op.operands
        if fn in _BOTH:
            return all(self.nonnegative(x) for x in xs)
        if fn == "imod":
            return self.nonnegative(xs[0])
        if fn == "max":
            return any(self.nonnegative(x) for x in xs)
        if fn == "where":
            return self.nonnegative(xs[1]) and self.nonnegative(xs[2])
        return False

    def _carried(self, op: Op, place: int) -> bool:
        first = 3 if op.kind == "for" else 0
        return self.nonnegative(op.operands[first + place]) and self.nonnegative(op.regions[-1].yields[place])
