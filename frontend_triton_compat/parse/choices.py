"""Accesses through a pointer that a run-time condition chooses become one access a choice.

Input: a kernel. Output: the same kernel, changed in place. Law: every load and store that is left goes through one
argument; a load reads each candidate where its condition holds and picks the value, a store writes each candidate under
its condition. Choices between places of one argument stay: they are offsets.
"""

from __future__ import annotations

from dataclasses import dataclass

from frontend_triton_compat.ir import Block, Kernel, Op, Value, walk
from frontend_triton_compat.parse.lower_bounds import substitute
from frontend_triton_compat.types import INT1, TileType

_MOVES = ("splat", "broadcast", "expand_dims", "trans", "reshape")
#: Operations that give the same wherever they stand.
_PURE = ("const", "program_id", "arange", "map", "cast", "bitcast", "ptr_add", *_MOVES)


@dataclass(frozen=True)
class _Candidate:
    """A pointer without a choice, and the condition (None: always) under which it is the one."""

    pointer: Value
    condition: Value | None


def split_choices(kernel: Kernel) -> None:
    """Split accesses through chosen pointers."""
    chosen = any(op.kind in ("map", "if") and any(r.type.is_pointer for r in op.results) for op in walk(kernel.body))
    if not chosen:
        return
    replaced: dict[Value, Value] = {}
    _block(kernel.body, replaced)
    if replaced:
        substitute(kernel.body, replaced)


def _block(block: Block, replaced: dict[Value, Value]) -> None:
    ops: list[Op] = []
    for op in block.ops:
        for region in op.regions:
            _block(region, replaced)
        if op.kind not in ("load", "store"):
            ops.append(op)
            continue
        splitter = _Splitter(op, ops)
        candidates = splitter.candidates(op.operands[0])
        if len({_base(c.pointer) for c in candidates}) < 2:
            del ops[splitter.start :]
            ops.append(op)
        elif op.kind == "load":
            replaced[op.result] = splitter.load(candidates)
        else:
            splitter.store(candidates)
    block.ops[:] = ops


def _base(pointer: Value) -> Value:
    """The argument a pointer comes from, or where the trace ends."""
    while pointer.producer is not None and pointer.producer.kind in ("ptr_add", *_MOVES):
        pointer = pointer.producer.operands[0]
    return pointer


class _Splitter:
    """Writes the operations that take the place of one access."""

    def __init__(self, access: Op, ops: list[Op]):
        self.access, self.ops, self.start = access, ops, len(ops)
        self.hidden: set[Value] = set()  # values of branches, which are not there behind them
        self.copies: dict[Value, Value] = {}

    def emit(self, kind: str, operands: tuple[Value, ...], t: TileType | None, **attrs: object) -> Value | None:
        """Append an operation at the access' place."""
        op = Op(kind, operands, attrs, self.access.where)
        if t is not None:
            op.results = (Value(t, producer=op),)
        self.ops.append(op)
        return op.results[0] if op.results else None

    def value(self, kind: str, operands: tuple[Value, ...], t: TileType, **attrs: object) -> Value:
        """Append an operation with a result."""
        found = self.emit(kind, operands, t, **attrs)
        assert found is not None
        return found

    def candidates(self, pointer: Value) -> list[_Candidate]:
        """What a pointer may be."""
        op = pointer.producer
        if op is None:
            return [_Candidate(pointer, None)]
        if op.kind == "map" and op["fn"] == "where":
            condition = self._visible(op.operands[0])
            if condition is not None:
                return self._either(condition, *op.operands[1:])
        if op.kind == "if":
            yes, no = (region.yields[op.results.index(pointer)] for region in op.regions)
            self.hidden |= {r for region in op.regions for inner in walk(region) for r in inner.results}
            condition = self._visible(op.operands[0])
            if condition is not None:
                return self._either(condition, yes, no)
        if op.kind in ("ptr_add", *_MOVES):
            rest = [self._visible(v) for v in op.operands[1:]]
            inner = self.candidates(op.operands[0]) if None not in rest else []
            if len(inner) > 1:
                return [self._moved(op, c, [v for v in rest if v is not None]) for c in inner]
        return [_Candidate(self._visible(pointer) or pointer, None)]

    def _visible(self, value: Value) -> Value | None:
        """A value as it can be had at the access: itself, or a branch's arithmetic done again; None if it can't."""
        if value not in self.hidden:
            return value
        if value not in self.copies:
            op = value.producer
            if op is None or op.kind not in _PURE:
                return None
            operands = tuple(v for v in map(self._visible, op.operands) if v is not None)
            if len(operands) != len(op.operands):
                return None
            self.copies[value] = self.value(op.kind, operands, value.type, **op.attrs)
        return self.copies[value]

    def _moved(self, op: Op, c: _Candidate, rest: list[Value]) -> _Candidate:
        t = op.result.type
        pointer = self.value(op.kind, (c.pointer, *rest), t, **op.attrs)
        condition = c.condition
        if condition is not None and op.kind != "ptr_add":
            condition = self.value(op.kind, (condition,), t.with_element(INT1), **op.attrs)
        return _Candidate(pointer, condition)

    def _either(self, condition: Value, yes: Value, no: Value) -> list[_Candidate]:
        other = self.value("map", (condition,), condition.type, fn="not")
        return [
            _Candidate(c.pointer, side if c.condition is None else self._both(side, c.condition))
            for side, branch in ((condition, yes), (other, no))
            for c in self.candidates(branch)
        ]

    def _both(self, a: Value, b: Value) -> Value:
        return self.value("map", (a, b), a.type, fn="and")

    def load(self, candidates: list[_Candidate]) -> Value:
        """A load of each candidate where it is the one."""
        _, *rest = self.access.operands
        mask, other = rest[: self.access["has_mask"]], rest[self.access["has_mask"] :]
        found: Value | None = None
        for c in candidates:
            assert c.condition is not None
            allowed = self._both(c.condition, mask[0]) if mask else c.condition
            attrs = {**self.access.attrs, "has_mask": True}
            value = self.value("load", (c.pointer, allowed, *other), self.access.result.type, **attrs)
            found = value if found is None else self.value("map", (c.condition, value, found), value.type, fn="where")
        assert found is not None
        found.name = self.access.result.name
        return found

    def store(self, candidates: list[_Candidate]) -> None:
        """A store through each candidate where it is the one."""
        _, value, *mask = self.access.operands
        for c in candidates:
            assert c.condition is not None
            allowed = self._both(c.condition, mask[0]) if mask else c.condition
            attrs = {**self.access.attrs, "has_mask": True}
            self.emit("store", (c.pointer, value, allowed), None, **attrs)
