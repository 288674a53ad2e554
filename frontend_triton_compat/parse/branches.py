"""A run-time `if`: both sides are translated, and every variable gets one value behind it.

Input: a condition and the statements of the two sides. Output: one `if` operation; the frame's variables are updated.
Law: a variable that both sides can hand on has one structure and one type; one that only some side binds has no value
behind, unless the other side has left; a Python container changes on both sides or on none.
"""

from __future__ import annotations

from typing import Any

from bridge.diagnostics import Where
from frontend_triton_compat.ir import Block, Value
from frontend_triton_compat.language import operators
from frontend_triton_compat.language.context import fail
from frontend_triton_compat.language.semantic import broadcast_to, constant
from frontend_triton_compat.language.tensor import tensor
from frontend_triton_compat.parse.exits import RETURNED
from frontend_triton_compat.parse.frame import Undefined
from frontend_triton_compat.parse.statements import Statements
from frontend_triton_compat.parse.structure import Contents, Tree, describe, flatten
from frontend_triton_compat.types import TileType

ONE_TYPE = "cast to one type, or start from the right one: 0.0 instead of 0, tl.zeros(shape, tl.float32) for a tile"
MISSING = Undefined("it is bound in only one branch")


class Branches(Statements):
    """Builds `if` operations."""

    def emit(
        self, kind: str, operands: list[tensor], types: list[TileType], where: Where, blocks: Any, **attrs: Any
    ) -> list[tensor]:
        """Append an operation with regions."""
        values = self.ctx.builder.emit(kind, [t.handle for t in operands], types, where, regions=blocks, **attrs)
        return [tensor(v) for v in values]

    def rebind(self, name: str, value: Any) -> None:
        """Bind a name to a result."""
        self.env[name] = value
        if isinstance(value, tensor) and not value.handle.name and not name.startswith("$"):
            value.handle.name = name

    def in_block(self, block: Block, statements: list[Any]) -> bool:
        """Translate statements into a block; whether they never come to their end."""
        self.ctx.builder.open(block)
        try:
            return self.run(statements)
        finally:
            self.ctx.builder.close()

    def guarded(self, left: tensor, rest: list[Any], where: Where) -> bool:
        """Statements for the programs that have not left; whether these never come to their end."""
        return self.branch(operators.logical_not(left), rest, [], where, guard=True)

    def branch(self, condition: tensor, then: list[Any], other: list[Any], where: Where, guard: bool = False) -> bool:
        """An `if`; with `guard`, those on the other side have left before. Whether no side comes to its end."""
        before, contents = self.env, Contents(self.visible())
        blocks, ends, gone, states = (Block(), Block()), [], [], []
        flags = {s.flag for s in self.scopes}
        for side, (block, body) in enumerate(zip(blocks, (then, other))):
            self.env = dict(before)
            if guard and side == 0:
                self.env.update({f: False for f in flags})
            left = self.in_block(block, body) or (guard and side == 1)
            gone.append(left)
            ends.append(self.env)
            states.append(contents.now())
            contents.restore()
        returned = [self._has_returned(end, guard and side == 1) for side, end in enumerate(ends)]
        self._keep_contents(contents, states, returned, where)
        self.env = dict(before)
        merge = _Merge(self, condition, blocks, ends, gone, returned, where)
        names = {n for end in ends for n in end}
        for name in sorted(names):
            if ends[0].get(name, MISSING) is ends[1].get(name, MISSING):
                if name not in flags:
                    self.env[name] = ends[0][name]  # one value from before the `if` on both sides
            elif name in flags:
                merge.flag(name, guard)
            else:
                merge.variable(name)
        merge.emit()
        return all(gone)

    def _has_returned(self, end: dict[str, Any], guard: bool) -> bool:
        """Whether all who come out of a side have returned from the function."""
        if guard:
            return all(end[s.flag] is False for s in self.scopes[1:])
        return self.returned(end)

    def _keep_contents(self, contents: Contents, states: list[Any], returned: list[bool], where: Where) -> None:
        """Settle which side's changes of Python containers stay."""
        changed = [contents.changed(state) for state in states]
        if returned[0] != returned[1]:
            contents.restore(states[1 if returned[0] else 0])
        elif any(changed) and not returned[0]:
            name = next(c for c in changed if c)
            raise self.fail(
                "not-translated",
                f"a branch of a run-time `if` changes the Python container `{name}` in place",
                where,
                why="both branches are translated, so the change would be seen whichever is taken",
                do="bind a new value instead: in both branches `x = ...`, or choose with tl.where",
            )


class _Merge:
    """The variables behind an `if`."""

    def __init__(
        self,
        frame: Branches,
        condition: tensor,
        blocks: tuple[Block, Block],
        ends: list[dict[str, Any]],
        gone: list[bool],
        returned: list[bool],
        where: Where,
    ):
        self.frame, self.condition, self.blocks, self.ends = frame, condition, blocks, ends
        self.gone, self.returned, self.where = gone, returned, where
        self.names: list[str] = []
        self.trees: list[Tree] = []
        self.operands: tuple[list[tensor], list[tensor]] = ([], [])

    def flag(self, name: str, guard: bool) -> None:
        """Whether a scope was left, behind the `if`."""
        a, b = (end[name] for end in self.ends)
        if isinstance(a, bool) and isinstance(b, bool):
            self.frame.env[name] = self.condition if a else operators.logical_not(self.condition)
        elif guard and a is False:
            self.frame.env[name] = b
        elif guard and a is True:
            self.frame.env[name] = operators.or_(self.condition, b) if self._several() else True
        else:
            self._take(name, self._flat(0, a), self._flat(1, b))

    def _several(self) -> bool:
        return sum(self.ends[1][s.flag] is not False for s in self.frame.scopes) > 1

    def variable(self, name: str) -> None:
        """One variable's value behind the `if`."""
        a, b = (end.get(name, MISSING) for end in self.ends)
        missing = [isinstance(v, Undefined) for v in (a, b)]
        if name == RETURNED or any(self.gone):
            self._lenient(name, a, b, missing)
        elif any(missing):
            why = f"it is bound in only one branch of the `if` in line {self.where.line}"
            old = a if missing[0] else b
            kept = old is not MISSING and isinstance(old, Undefined) and all(missing)
            self.frame.env[name] = old if kept else Undefined(why)
        else:
            self._both(name, self._flat(0, a), self._flat(1, b), strict=True)

    def _lenient(self, name: str, a: Any, b: Any, missing: list[bool]) -> None:
        """A variable that one side need not hand on, since it has left; the other side's value is what counts."""
        if all(missing):
            self.frame.env[name] = a if a is not MISSING else b
        elif any(missing):
            side = 0 if missing[1] else 1
            self._from(name, side, (a, b)[side])
        else:
            self._both(name, self._flat(0, a), self._flat(1, b), strict=name == RETURNED)

    def _from(self, name: str, side: int, value: Any) -> None:
        """The value of one side; on the other anything of its type will do."""
        tiles, tree = self._flat(side, value)
        self.frame.ctx.builder.open(self.blocks[1 - side])
        nothing = [anything(t) for t in tiles]
        self.frame.ctx.builder.close()
        pair = [(tiles, tree), (nothing, tree)]
        self._take(name, *(pair if side == 0 else reversed(pair)))

    def _both(
        self, name: str, first: tuple[list[tensor], Tree], second: tuple[list[tensor], Tree], strict: bool
    ) -> None:
        shown = [describe(*side) for side in (first, second)]
        if first[1].same(second[1]) and shown[0] == shown[1]:
            self._take(name, first, second)
        elif strict:
            raise self._refused(name, shown)
        elif self.returned[0] != self.returned[1]:
            side = 1 if self.returned[0] else 0
            self._from(name, side, self.ends[side][name])
        else:
            self.frame.env[name] = Undefined(f"it is {shown[0]} on one way to this place and {shown[1]} on another")

    def _refused(self, name: str, shown: list[str]) -> Exception:
        if name == RETURNED:
            return self.frame.return_type(shown[0], shown[1], self.where)
        return self.frame.fail(
            "branch-type",
            f"`{name}` is {shown[0]} in one branch of the `if` in line {self.where.line}, {shown[1]} in the other",
            self.frame.assigned.get(name, self.where),
            why="which branch runs is known only at run time, so the variable needs one type",
            do=ONE_TYPE,
        )

    def _flat(self, side: int, value: Any) -> tuple[list[tensor], Tree]:
        self.frame.ctx.builder.open(self.blocks[side])
        try:
            return flatten(value)
        finally:
            self.frame.ctx.builder.close()

    def _take(self, name: str, first: tuple[list[tensor], Tree], second: tuple[list[tensor], Tree]) -> None:
        if not first[0]:  # the same Python object on both sides
            self.frame.env[name] = first[1].build(iter(()))
            return
        self.names.append(name)
        self.trees.append(first[1])
        self.operands[0].extend(first[0])
        self.operands[1].extend(second[0])

    def emit(self) -> None:
        """The operation, and the variables bound to its results."""
        for block, side in zip(self.blocks, self.operands):
            block.yields = tuple(t.handle for t in side)
        types = [t.handle.type for t in self.operands[0]]
        results = iter(self.frame.emit("if", [self.condition], types, self.where, self.blocks))
        for name, tree in zip(self.names, self.trees):
            self.frame.rebind(name, tree.build(results))


def anything(like: tensor) -> tensor:
    """A value of the same type, for a place that is never reached; of a pointer, the argument it points into."""
    t = like.handle.type
    if not t.is_pointer:
        return broadcast_to(constant(0, t.element), t.shape)  # type: ignore[arg-type]
    root = like.handle
    while root.producer is None or root.producer.kind != "arg":
        root = _origin(root)
    return broadcast_to(tensor(root), t.shape)


def _origin(pointer: Value) -> Value:
    """A pointer that this one was made from."""
    op = pointer.producer
    if op is not None and op.kind == "if":
        return op.regions[0].yields[op.results.index(pointer)]
    if op is not None and op.kind in ("for", "while"):
        return op.operands[op.results.index(pointer) + (3 if op.kind == "for" else 0)]
    if op is not None:
        return next(v for v in op.operands if v.type.is_pointer)
    raise fail(
        "loop-exit",
        "a pointer that the loop carries is handed on where the loop or function is left",
        why="each path needs a pointer, and those that do not take this one have none",
        do="hand on the offset, and add it to the pointer behind the loop",
    )
