"""Named dimensions: every dimension of every tile gets an `Axis`, shared by all values that move together.

Input: a `Kernel`. Output: `Dims`, value -> tuple of axes (None for a dimension of size 1). Law: two dimensions share an
axis only if element i of one meets element i of the other in some operation; one value never has an axis twice.
With names, transposes and broadcasts cost nothing and say nothing: only loads, stores, contractions and reductions
are left. Cheap index arithmetic is first copied per use, so that one `arange` read both as rows and as columns becomes
two axes; a loaded tile that is used both ways is renamed where its dimension is expanded.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field

from frontend_triton_compat.ir import Block, Kernel, Op, Value, walk

_INDEX_OPS = ("arange", "splat", "map", "cast", "broadcast", "expand_dims", "ptr_add", "trans")
_REINDEXING = ("expand_dims", "trans")


@dataclass(eq=False)
class Axis:
    """One named dimension of the kernel's tiles.

    Attributes:
        size: number of elements.
        rigid: some operation needs all elements of it, in place: it is neither cropped nor merged with another.
    """

    size: int
    rigid: bool = False
    id: int = field(default_factory=itertools.count().__next__)

    def __repr__(self) -> str:
        return f"x{self.id}[{self.size}]"


@dataclass
class Dims:
    """The axes of every value, and the operations that rename a dimension on the way."""

    of: dict[Value, tuple[Axis | None, ...]]
    renames: set[Op]

    def __getitem__(self, value: Value) -> tuple[Axis | None, ...]:
        return self.of[value]

    def renaming(self, op: Op) -> dict[Axis, Axis]:
        """What an operation calls the axes of its operand; empty for one that keeps their names."""
        if op not in self.renames:
            return {}
        old, new = self.of[op.operands[0]], self.of[op.results[0]]
        pairs = ((old[i], new[j]) for i, j in moved(op))
        return {a: b for a, b in pairs if a is not None and b is not None}


def moved(op: Op) -> list[tuple[int, int]]:
    """Where the dimensions of an operand stand in the result: (before, after), for operations that move them only."""
    source = op.operands[0].shape
    if op.kind == "expand_dims":
        return [(i, i if i < op["axis"] else i + 1) for i in range(len(source))]
    if op.kind == "trans":
        return [(p, i) for i, p in enumerate(op["perm"])]
    if op.kind in ("reduce", "reduce_by"):
        kept = [i for i in range(len(source)) if i != op["axis"]]
        return [(i, j) for j, i in enumerate(kept)]
    assert op.kind == "reshape"
    a = [i for i, n in enumerate(source) if n != 1]
    b = [i for i, n in enumerate(op.result.shape) if n != 1]
    return list(zip(a, b))


def infer(kernel: Kernel) -> Dims:
    """Give every dimension of every value its axis. Rewrites `kernel`: index arithmetic is copied per use."""
    _copy_index_arithmetic(kernel.body)
    renames: set[Op] = set()
    while True:
        slots = _Slots(renames)
        slots.block(kernel.body)
        dims = slots.finish()
        twisted = _repeated(dims)
        if not twisted:
            return Dims(dims, renames)
        more = _touching(kernel.body, dims, twisted, _REINDEXING) - renames
        if not more:  # an axis meets itself without a reindexing in between: `dot` can do that
            more = {op for op in walk(kernel.body) if op.kind == "dot"} - renames
        if not more:  # and so can the rows' sums of a tile that meet its columns' sums
            more = _touching(kernel.body, dims, twisted, ("reduce", "reduce_by", "reshape")) - renames
        if not more:
            raise AssertionError("dimension names do not settle")
        renames |= more


def _repeated(dims: dict[Value, tuple[Axis | None, ...]]) -> set[Axis]:
    out: set[Axis] = set()
    for axes in dims.values():
        named = [a for a in axes if a is not None]
        out |= {a for a in named if named.count(a) > 1}
    return out


def _touching(
    block: Block, dims: dict[Value, tuple[Axis | None, ...]], axes: set[Axis], kinds: tuple[str, ...]
) -> set[Op]:
    return {op for op in walk(block) if op.kind in kinds and any(a in axes for a in dims[op.operands[0]])}


class _Slots:
    """Union-find over (value, dimension)."""

    def __init__(self, renames: set[Op]):
        self.parent: dict[tuple[Value, int], tuple[Value, int]] = {}
        self.rigid: set[tuple[Value, int]] = set()
        self.values: list[Value] = []
        self.renames = renames

    def add(self, value: Value) -> None:
        self.values.append(value)
        for i in range(len(value.shape)):
            self.parent[value, i] = (value, i)

    def find(self, slot: tuple[Value, int]) -> tuple[Value, int]:
        while self.parent[slot] != slot:
            self.parent[slot] = self.parent[self.parent[slot]]
            slot = self.parent[slot]
        return slot

    def join(self, a: tuple[Value, int], b: tuple[Value, int]) -> None:
        if a[0].shape[a[1]] == b[0].shape[b[1]] != 1:
            self.parent[self.find(a)] = self.find(b)

    def same(self, a: Value, b: Value) -> None:
        for i in range(len(a.shape)):
            self.join((a, i), (b, i))

    def fix(self, value: Value) -> None:
        self.rigid |= {(value, i) for i in range(len(value.shape))}

    def block(self, block: Block) -> None:
        for arg in block.args:
            self.add(arg)
        for op in block.ops:
            for result in op.results:
                self.add(result)
            self.op(op)

    def op(self, op: Op) -> None:
        x = op.operands
        if op.kind in ("map", "cast", "bitcast", "ptr_add", "load", "atomic"):
            for operand in x:
                self.same(operand, op.results[0] if op.results else x[0])
        elif op.kind == "store":
            for operand in x[1:]:
                self.same(operand, x[0])
        elif op.kind == "broadcast":
            self.same(x[0], op.result)
        elif op.kind in ("expand_dims", "trans", "reduce", "reduce_by"):
            for operand in x[1:]:
                self.same(operand, x[0])
            for result in op.results[1:]:
                self.same(result, op.results[0])
            self.link(op)
        elif op.kind in ("scan", "scan_by", "each"):
            for value in (*x, *op.results):
                self.same(value, x[0])
        elif op.kind == "reshape":
            self.reshape(op)
        elif op.kind == "dot":
            self.dot(op)
        elif op.kind == "for":
            self.loop(op.regions[0], op.regions[0].args[1:], x[3:], op.results)
        elif op.kind == "while":
            cond, body = op.regions
            self.loop(body, body.args, x, op.results)
            self.block(cond)
            for arg, init in zip(cond.args, x):
                self.same(arg, init)
        elif op.kind == "if":
            for region in op.regions:
                self.block(region)
                for y, result in zip(region.yields, op.results):
                    self.same(y, result)
        elif op.kind == "call":
            for value in (*x, *op.results):
                self.fix(value)

    def link(self, op: Op) -> None:
        source, result = op.operands[0], op.results[0]
        for i, j in moved(op):
            if op in self.renames:
                self.rigid |= {(source, i), (result, j)}
            else:
                self.join((source, i), (result, j))

    def loop(self, body: Block, args: tuple[Value, ...], inits: tuple[Value, ...], results: tuple[Value, ...]) -> None:
        self.block(body)
        for arg, init, final, result in zip(args, inits, body.yields, results):
            self.same(arg, init)
            self.same(final, arg)
            self.same(result, arg)

    def reshape(self, op: Op) -> None:
        source, result = op.operands[0], op.result
        if [n for n in source.shape if n != 1] == [n for n in result.shape if n != 1]:  # only 1s come and go
            self.link(op)
        else:
            self.fix(source)
            self.fix(result)

    def dot(self, op: Op) -> None:
        a, b, acc = op.operands
        n = len(a.shape)
        result = op.result
        self.same(acc, result)
        for i in range(n - 2):
            self.join((a, i), (result, i))
            self.join((b, i), (result, i))
        if op in self.renames:
            self.rigid |= {(a, n - 2), (result, n - 2), (b, n - 1), (result, n - 1), (a, n - 1), (b, n - 2)}
            return
        self.join((a, n - 2), (result, n - 2))
        self.join((b, n - 1), (result, n - 1))
        self.join((a, n - 1), (b, n - 2))

    def finish(self) -> dict[Value, tuple[Axis | None, ...]]:
        axes: dict[tuple[Value, int], Axis] = {}
        out: dict[Value, tuple[Axis | None, ...]] = {}
        for value in self.values:
            row: list[Axis | None] = []
            for i, n in enumerate(value.shape):
                row.append(None if n == 1 else axes.setdefault(self.find((value, i)), Axis(n)))
            out[value] = tuple(row)
        for value, i in self.rigid:
            axis = out[value][i]
            if axis is not None:
                axis.rigid = True
        return out


def _copy_index_arithmetic(block: Block) -> None:
    """Before every `expand_dims` and `trans`, insert a private copy of the index arithmetic that feeds it."""
    cheap: set[Value] = set()  # results of index arithmetic; operations are visited in their order

    def is_cheap(op: Op) -> bool:
        result = op.results[0] if op.results else None
        if op.kind not in _INDEX_OPS or result is None or not result.shape or result.type.element.is_floating():
            return False
        return op.kind in ("arange", "splat") or all(v in cheap for v in op.operands if v.shape)

    def copy(value: Value, out: list[Op]) -> Value:
        done: dict[Value, Value] = {}
        work = [value]
        while work:
            v = work[-1]
            op = v.producer
            if v in done or v not in cheap or op is None:
                work.pop()
                continue
            missing = [x for x in op.operands if x in cheap and x not in done]
            if missing:
                work += missing
                continue
            twin = Op(op.kind, tuple(done.get(x, x) for x in op.operands), op.attrs, op.where)
            twin.results = (Value(v.type, v.name, producer=twin),)
            out.append(twin)
            done[v] = twin.result
        return done.get(value, value)

    def visit(block: Block) -> None:
        ops: list[Op] = []
        for op in block.ops:
            for region in op.regions:
                visit(region)
            if op.kind in _REINDEXING and op.operands[0] in cheap:
                op.operands = (copy(op.operands[0], ops),)
            if is_cheap(op):
                cheap.add(op.results[0])
            ops.append(op)
        block.ops = ops

    visit(block)
