"""Maxima that need not leave NaN out: where a row with a NaN in it gives NaN whatever its maximum is.

Input: a `Schedule`. Output: the operations (reductions and `tl.maximum`, `tl.minimum`) whose plain form changes no
stored number. Law: a row with a NaN is followed through the kernel with its maximum taken as unknown; the plain form is
allowed only if all that depends on that maximum and is stored is NaN then. Softmax and attention are of this kind: the
sum of the exponentials, by which all is divided, has the NaN in it.
"""

from __future__ import annotations

from frontend_triton_compat.ir import Block, Op, Value, walk
from frontend_triton_compat.schedule import Schedule

#: Elementwise functions that give NaN for NaN, whatever the other operands are.
_STRICT = frozenset(
    "add sub mul truediv neg exp exp2 log log2 sqrt rsqrt abs sin cos tanh sigmoid erf fma floor ceil".split()
)
_MOVES = ("splat", "broadcast", "expand_dims", "trans")
_EXTREMES = {"max", "min"}
_PAIRS = {"maximum", "minimum"}


def plain_extremes(plan: Schedule) -> set[Op]:
    """The maxima and minima of floats that may carry NaN instead of leaving it out."""
    ops = list(walk(plan.kernel.body))
    live = plan.demand.live
    rows = [op for op in ops if op.kind == "reduce" and op["fn"] in _EXTREMES and op.result in live]
    found = {op for op in rows if op.operands[0].type.element.is_floating() and _Row(plan, op).harmless()}
    if not found:
        return found
    found |= {op for op in ops if op.kind == "map" and op["fn"] in _PAIRS and op.result in live}
    carried = plan.walker.carried
    while True:  # a pair's operands are NaN only where such a row's maximum is
        bad = {
            op for op in found if op.kind == "map" and not all(_clean(v, found, carried, set()) for v in op.operands)
        }
        if not bad:
            return found
        found -= bad


def _clean(value: Value, found: set[Op], carried: dict[Value, tuple[Op, int]], seen: set[Value]) -> bool:
    """Whether a value is NaN only where the maximum of a row with a NaN went into it."""
    if value in seen:
        return True
    seen.add(value)
    if value in carried:
        op, i = carried[value]
        init = op.operands[i + (3 if op.kind == "for" else 0)]
        return all(_clean(v, found, carried, seen) for v in (init, op.regions[-1].yields[i]))
    op = value.producer
    if op is None:
        return False
    if op.kind == "const":
        return op["value"] == op["value"]
    if op.kind in _MOVES:
        return _clean(op.operands[0], found, carried, seen)
    if op.kind == "for":
        i = op.results.index(value)
        return all(_clean(v, found, carried, seen) for v in (op.operands[3 + i], op.regions[0].yields[i]))
    return op in found


class _Row:
    """What becomes of a row of one reduction's operand that has a NaN in it."""

    def __init__(self, plan: Schedule, op: Op):
        self.plan, self.op = plan, op
        self.axis = plan.axes(op.operands[0])[op["axis"]]
        self.inside = _path(plan.kernel.body, op)
        self.seeds: set[Value] = set()
        value: Value | None = op.operands[0]
        while value is not None:  # a NaN before a conversion is one after it, and the other way round
            self.seeds.add(value)
            producer = value.producer
            moved = producer is not None and (producer.kind in _MOVES or _float_cast(producer))
            value = producer.operands[0] if producer is not None and moved else None
        self.tainted: set[Value] = set()
        self.lost: set[Value] = set()  # NaN in every element that belongs to the row
        self.some: set[Value] = set()  # NaN in one element along the axis, at least
        self.ok = True

    def harmless(self) -> bool:
        """Whether nothing that is stored depends on the maximum but what is NaN anyway."""
        if self.axis is None or not self._taint():
            return False
        self._block(self.plan.kernel.body)
        return self.ok

    # -- what depends on the maximum

    def _taint(self) -> bool:
        work = [self.op.result]
        carried = self.plan.walker.carried
        looped: dict[Value, list[Value]] = {}
        for arg, (loop, i) in carried.items():
            body = loop.regions[-1]
            looped.setdefault(body.yields[i], []).extend([arg, loop.results[i]])
            looped.setdefault(loop.operands[i + (3 if loop.kind == "for" else 0)], []).extend([arg, loop.results[i]])
        for op in walk(self.plan.kernel.body):
            if op.kind == "if":
                for region in op.regions:
                    for result, y in zip(op.results, region.yields):
                        looped.setdefault(y, []).append(result)
        while work:
            value = work.pop()
            if value in self.tainted:
                continue
            self.tainted.add(value)
            work += looped.get(value, [])
            for user in self.plan.demand.users.get(value, []):
                if user.kind == "store" and value is user.operands[1] and value not in user.operands[2:]:
                    continue
                if user.kind in ("for", "while", "if"):
                    if user.kind == "if" or (user.kind == "for" and value in user.operands[:3]):
                        return False
                    continue
                if not user.results:  # it decides where a store goes, or is printed
                    return False
                work += user.results
        loops = [op for op in walk(self.plan.kernel.body) if op.kind == "while"]
        return not any(loop.regions[0].yields[0] in self.tainted for loop in loops)

    # -- what is NaN

    def _block(self, block: Block) -> None:
        for op in block.ops:
            if op.kind in ("for", "while"):
                self._loop(op)
            elif op.kind == "if":
                for region in op.regions:
                    self._block(region)
                for i, result in enumerate(op.results):
                    self._both(result, [region.yields[i] for region in op.regions])
            else:
                self._op(op)

    def _both(self, result: Value, values: list[Value]) -> None:
        if all(v in self.lost for v in values):
            self.lost.add(result)

    def _loop(self, op: Op) -> None:
        body = op.regions[-1]
        first = 3 if op.kind == "for" else 0
        args = body.args[1:] if op.kind == "for" else body.args
        pairs = list(zip(args, op.operands[first:], body.yields, op.results))
        before = {id(result) for _, init, _, result in pairs if init in self.lost}
        if op in self.inside:
            self._forget(body)
            self._block(body)  # the turn in which the NaN comes
            if not any(v in self.tainted for arg, _, final, result in pairs for v in (arg, final, result)):
                return  # other turns look at other rows, and know nothing of this one
            before = {id(result) for _, _, final, result in pairs if final in self.lost}
        seeds, self.seeds = self.seeds, set()
        while True:  # later turns: what was NaN stays so
            self._forget(body)
            self.lost |= {arg for arg, _, _, result in pairs if id(result) in before}
            self.some -= set(walk_values(body))
            ok, self.ok = self.ok, True
            self._block(body)
            kept = {id(result) for _, _, final, result in pairs if id(result) in before and final in self.lost}
            if kept == before:
                self.ok = self.ok and ok
                break
            self.ok, before = ok, kept
        self.seeds = seeds
        self.lost |= {result for _, _, _, result in pairs if id(result) in before}

    def _forget(self, body: Block) -> None:
        inside = set(walk_values(body))
        self.lost -= inside
        self.some -= inside

    def _op(self, op: Op) -> None:
        if op.kind == "store":
            if op.operands[1] in self.tainted and op.operands[1] not in self.lost:
                self.ok = False
            return
        if not op.results:
            return
        result = op.results[0]
        x = op.operands
        if any(r in self.seeds for r in op.results):
            self.some.add(result)
        if op.kind in _MOVES and op not in self.plan.dims.renames:
            self._same(result, x)
        elif _float_cast(op) or (op.kind == "map" and op["fn"] in _STRICT):
            self._same(result, x)
        elif op.kind == "map" and op["fn"] == "where":
            for known in (self.lost, self.some):
                if all(v in known for v in x[1:]):
                    known.add(result)
        elif op.kind == "reduce" and op["fn"] == "sum":
            along = self.plan.axes(x[0])[op["axis"]]
            if x[0] in self.lost or (x[0] in self.some and along is self.axis):
                self.lost.add(result)
            elif x[0] in self.some:
                self.some.add(result)
        elif op.kind == "dot":
            inner = [self.plan.axes(x[0])[-1], self.plan.axes(x[1])[-2]]
            found = any(v in self.lost for v in x) or any(
                v in self.some and along is self.axis for v, along in zip(x[:2], inner)
            )
            if found and op not in self.plan.dims.renames:
                self.lost.add(result)

    def _same(self, result: Value, operands: tuple[Value, ...]) -> None:
        if any(v in self.lost for v in operands):
            self.lost.add(result)
        elif any(v in self.some for v in operands):
            self.some.add(result)


def _float_cast(op: Op) -> bool:
    return op.kind == "cast" and all(
        v.type.element.is_floating() and v.type.element.primitive_bitwidth >= 16
        for v in (op.operands[0], op.results[0])
    )


def _path(block: Block, wanted: Op) -> set[Op]:
    """The loops and ifs around an operation."""
    for op in block.ops:
        for region in op.regions:
            if wanted in region.ops:
                return {op}
            deeper = _path(region, wanted)
            if deeper:
                return {op, *deeper}
    return set()


def walk_values(block: Block) -> list[Value]:
    """Every value that a block defines."""
    out = list(block.args)
    for op in block.ops:
        out += op.results
        for region in op.regions:
            out += walk_values(region)
    return out
