"""The law of a loop whose turns may be taken several at a time: it carries running extremes, and sums beside them.

Input: a loop that stays a loop, the axes along which a turn's elements lie. Output: a `Recurrence`, or None. Law: every
carried float is one of

    top' = max(top, max over the elements of x)
    sum' = sum * exp(k * (top - top')) + sum over the elements of exp(... - k * top') * y
    sum' = sum + sum over the elements of y

with x, y and k free of what is carried, and k the same in all turns. Two turns then give what one turn over both gives,
sums grouped anew: ``exp(k (a - b)) * exp(k (b - c)) = exp(k (a - c))``. `exp` may be `exp2`, `max` may be `min`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

from frontend_triton_compat.dims import Axis
from frontend_triton_compat.ir import Op, Value
from frontend_triton_compat.schedule.plan import Schedule

_SHAPE = ("splat", "broadcast", "expand_dims", "trans", "reshape", "cast")
_ELEMENTWISE = ("map", "bitcast", "load", "arange", "const", "program_id", "ptr_add", *_SHAPE)
_EXTREMES = {"maximum": "max", "minimum": "min", "maximum_nan": "max", "minimum_nan": "min"}
_EXPONENTIALS = {"exp": ("log",), "exp2": ("log2",)}

#: A number times values that are the same in all turns.
Factor = tuple[float, tuple[Value, ...]]


@dataclass(frozen=True)
class Reduced:
    """A reduction over a turn's elements; `scaled` by a number whose sign is not known."""

    fn: str
    hidden: frozenset[Value] = frozenset()
    scaled: bool = False


@dataclass(frozen=True)
class State:
    """What a turn begins with."""

    arg: Value


@dataclass(frozen=True)
class Top:
    """The extreme at the end of a turn; `guarded`: with a number in place of an infinity."""

    arg: Value
    guarded: bool = False


@dataclass(frozen=True)
class Test:
    """Whether an extreme is still infinite, or (`negated`) no longer is."""

    arg: Value
    negated: bool


@dataclass(frozen=True)
class Exponent:
    """``sum of factor * extreme`` plus, if `free`, something free; infinite and negative where a `hidden` fails."""

    terms: tuple[tuple[Value, str, Factor], ...]
    free: bool = False
    hidden: frozenset[Value] = frozenset()
    guarded: bool = True


@dataclass(frozen=True)
class Weight:
    """The exponential `fn` of an exponent, times something free unless `pure`; `summed` over a turn's elements."""

    fn: str
    exponent: Exponent
    pure: bool
    summed: bool = False


@dataclass(frozen=True)
class Scaled:
    """A sum, rescaled; `updated` with what the turn adds. No `fn`: as it was."""

    arg: Value
    fn: str = ""
    terms: tuple[tuple[Value, str, Factor], ...] = ()
    updated: bool = False


Kind = Reduced | State | Top | Test | Exponent | Weight | Scaled


@dataclass
class Recurrence:
    """See the module.

    Attributes:
        tops: carried extremes.
        sums: carried sums -> the exponential, its extreme and the factor; None of a plain sum.
        guarded: whether an extreme that is infinite never stands in an exponent.
        scaled: extremes that are exact only if a factor is not negative.
        peaks: what the extremes are of.
        addends: operands in which an element that is left out must be neutral: (operation, position, fn, hidden).
    """

    tops: dict[Value, str] = field(default_factory=dict)
    sums: dict[Value, tuple[str, Value, Factor] | None] = field(default_factory=dict)
    guarded: bool = True
    scaled: set[Value] = field(default_factory=set)
    peaks: list[Value] = field(default_factory=list)
    addends: list[tuple[Op, int, str, frozenset[Value]]] = field(default_factory=list)


class _NoLaw(Exception):
    pass


def recurrence(plan: Schedule, op: Op, axes: Collection[Axis]) -> Recurrence | None:
    """The law that a loop keeps, its turns' elements lying along `axes`; None where none is found."""
    try:
        return _Reader(plan, op, axes).read()
    except _NoLaw:
        return None


class _Reader:
    def __init__(self, plan: Schedule, op: Op, axes: Collection[Axis]):
        self.plan, self.op, self.axes = plan, op, axes
        self.kinds: dict[Value, Kind] = {}
        self.out = Recurrence()
        body = op.regions[0]
        self.inside = {r for o in body.ops for r in o.results} | set(body.args)
        loop, demand = plan.affine.loops[op], plan.demand
        self.data = [
            (i, arg)
            for i, arg in enumerate(body.args[1:])
            if arg in demand.live and arg not in demand.indexed and arg not in loop.carried
        ]

    def read(self) -> Recurrence:
        body = self.op.regions[0]
        for _, arg in self.data:
            self.kinds[arg] = State(arg)
        for op in body.ops:
            if not any(r in self.plan.demand.live for r in op.results) and not op.regions and op.results:
                continue
            kind = self._op(op)
            if kind is not None:
                self.kinds[op.result] = kind
        for i, arg in self.data:
            kind = self.kinds.get(body.yields[i])
            if isinstance(kind, Top) and kind.arg is arg and not kind.guarded:
                continue
            if not isinstance(kind, Scaled) or kind.arg is not arg or not kind.updated:
                raise _NoLaw
            self.out.sums[arg] = self._rescaling(kind) if kind.fn else None
        if not self.out.tops or any(arg not in self.out.tops for arg in self.out.tops):
            raise _NoLaw
        return self.out

    def _rescaling(self, kind: Scaled) -> tuple[str, Value, Factor]:
        """A sum is rescaled by exactly ``exp(k * (top - top'))``."""
        (one, other) = sorted(kind.terms, key=lambda t: t[1]) if len(kind.terms) == 2 else (None, None)
        if one is None or other is None or one[0] is not other[0] or (one[1], other[1]) != ("new", "old"):
            raise _NoLaw
        if other[2] != (-one[2][0], one[2][1]) or one[0] not in self.out.tops:
            raise _NoLaw
        return kind.fn, one[0], other[2]

    # -- one operation

    def _op(self, op: Op) -> Kind | None:
        kinds = [self.kinds.get(v) for v in op.operands]
        if op.kind == "reduce" and self._gone(op, op["axis"]):
            return self._reduced(op, kinds[0])
        if op.kind == "dot":
            return self._dot(op, kinds)
        if not any(kinds):
            rests = op.kind in ("reduce", "reduce_by", "scan", "scan_by", "each") and not self._along(op)
            if op.kind in _ELEMENTWISE or rests:
                return None
            raise _NoLaw
        if op.kind in _SHAPE:
            narrow = op.kind == "cast" and not op.result.type.element.is_floating()
            if narrow or (op.kind == "cast" and isinstance(kinds[0], (State, Scaled, Top))):
                raise _NoLaw  # a state that is rounded on the way is another recurrence
            return kinds[0]
        if op.kind != "map":
            raise _NoLaw
        return self._map(op, kinds)

    def _gone(self, op: Op, position: int) -> bool:
        return self.plan.dims[op.operands[0]][position] in self.axes

    def _along(self, op: Op) -> bool:
        return "axis" in op.attrs and self._gone(op, op["axis"])

    def _lanes(self, value: Value) -> bool:
        return any(a in self.axes for a in self.plan.dims[value])

    def _reduced(self, op: Op, kind: Kind | None) -> Kind:
        fn = op["fn"]
        if fn not in ("max", "min", "sum") or "keep_nan" in op.attrs:
            raise _NoLaw
        if kind is None:
            hidden = self._hidden(op.operands[0]) if fn == "max" else frozenset()
            self.out.addends.append((op, 0, fn, hidden))
            if fn != "sum":
                self.out.peaks.append(op.operands[0])
            return Reduced(fn, hidden)
        if fn == "sum" and isinstance(kind, Weight) and not kind.summed:
            self.out.addends.append((op, 0, fn, kind.exponent.hidden))
            return replace(kind, summed=True)
        raise _NoLaw

    def _dot(self, op: Op, kinds: list[Kind | None]) -> Kind | None:
        a, _, total = op.operands
        gone = self.plan.dims[a][-1] in self.axes
        if not gone:
            if any(kinds):
                raise _NoLaw
            return None
        product: Kind
        weights = [k for k in kinds[:2] if k is not None]
        if not weights:
            product, hidden = Reduced("sum"), frozenset[Value]()
        elif len(weights) == 1 and isinstance(weights[0], Weight) and not weights[0].summed:
            product, hidden = replace(weights[0], summed=True, pure=False), weights[0].exponent.hidden
        else:
            raise _NoLaw
        for i in (0, 1):
            self.out.addends.append((op, i, "sum" if kinds[i] is not None else "factor", hidden))
        if kinds[2] is None:
            if _number(total) != 0:
                raise _NoLaw
            return product
        return self._sum(kinds[2], product)

    def _map(self, op: Op, kinds: list[Kind | None]) -> Kind:
        fn = op["fn"]
        if fn in _EXTREMES:
            return self._extreme(fn, kinds)
        if fn in ("eq", "ne", "gt", "lt"):
            return self._test(op, fn, kinds)
        if fn == "where":
            return self._where(op, kinds)
        if fn in _EXPONENTIALS and isinstance(kinds[0], Exponent):
            return Weight(fn, kinds[0], not kinds[0].free)
        if fn in ("add", "sub"):
            return self._plus(op, kinds, -1.0 if fn == "sub" else 1.0)
        if fn in ("mul", "truediv"):
            return self._times(op, kinds, fn == "truediv")
        if fn == "fma":
            if isinstance(kinds[0], State) or isinstance(kinds[1], State):
                product = self._times(op, kinds[:2], False)
                if kinds[2] is not None:
                    return self._sum(product, kinds[2])
            elif kinds[2] is not None and not any(kinds[:2]):
                return self._added(None, kinds[2], 1.0, frozenset())
        raise _NoLaw

    def _extreme(self, fn: str, kinds: list[Kind | None]) -> Kind:
        states = [k for k in kinds if isinstance(k, State)]
        found = [k for k in kinds if isinstance(k, Reduced)]
        if len(states) != 1 or len(found) != 1 or found[0].fn != _EXTREMES[fn] or states[0].arg in self.out.tops:
            raise _NoLaw
        arg = states[0].arg
        self.out.tops[arg] = found[0].fn
        if found[0].scaled:
            self.out.scaled.add(arg)
        return Top(arg)

    def _test(self, op: Op, fn: str, kinds: list[Kind | None]) -> Kind:
        if isinstance(kinds[0], Top) and not kinds[0].guarded and _number(op.operands[1]) == float("-inf"):
            if fn in ("eq", "ne", "gt"):
                return Test(kinds[0].arg, fn != "eq")
        raise _NoLaw

    def _where(self, op: Op, kinds: list[Kind | None]) -> Kind:
        test, yes, no = kinds
        if isinstance(test, Test):
            inf, rest = (op.operands[2], yes) if test.negated else (op.operands[1], no)
            number = _number(inf)
            if isinstance(rest, Top) and rest.arg is test.arg and number is not None and abs(number) < float("inf"):
                return Top(test.arg, True)
        if test is None:
            for weight, other in ((yes, op.operands[2]), (no, op.operands[1])):
                if isinstance(weight, Weight) and not weight.summed and _number(other) == 0:
                    return replace(weight, pure=False)
        raise _NoLaw

    def _plus(self, op: Op, kinds: list[Kind | None], sign: float) -> Kind:
        a, b = kinds
        if sign > 0 and (isinstance(a, (Scaled, State)) or isinstance(b, (Scaled, State))):
            for total, term in ((a, b), (b, a)):
                if isinstance(total, Scaled) or (isinstance(total, State) and isinstance(term, (Reduced, Weight))):
                    return self._sum(total, term)
        return self._added(a, b, sign, self._hidden(op.operands[0]) if a is None else frozenset())

    def _added(self, a: Kind | None, b: Kind | None, sign: float, hidden: frozenset[Value]) -> Exponent:
        one, other = self._exponent(a, hidden), self._exponent(b, frozenset())
        terms = {(v, which): factor for v, which, factor in one.terms}
        for v, which, (number, values) in other.terms:
            before = terms.pop((v, which), (0.0, values))
            if before[1] != values:
                raise _NoLaw
            number = before[0] + sign * number
            if number:
                terms[v, which] = (number, values)
        return Exponent(
            tuple((v, which, factor) for (v, which), factor in terms.items()),
            one.free or other.free,
            one.hidden | (other.hidden if sign > 0 else frozenset()),
            one.guarded and other.guarded,
        )

    def _exponent(self, kind: Kind | None, hidden: frozenset[Value]) -> Exponent:
        one: Factor = (1.0, ())
        if kind is None:
            return Exponent((), True, hidden)
        if isinstance(kind, Exponent):
            return kind
        if isinstance(kind, State):
            return Exponent(((kind.arg, "old", one),))
        if isinstance(kind, Top):
            return Exponent(((kind.arg, "new", one),), guarded=kind.guarded)
        raise _NoLaw

    def _times(self, op: Op, kinds: list[Kind | None], divides: bool) -> Kind:
        a, b = kinds[:2]
        for state, ratio in ((a, b), (b, a)):
            if isinstance(state, State) and isinstance(ratio, Weight) and not divides:
                if not ratio.pure or ratio.summed or self._ratio_lanes(op):
                    raise _NoLaw
                self.out.guarded &= ratio.exponent.guarded
                return Scaled(state.arg, ratio.fn, ratio.exponent.terms)
        for kind, free in ((a, op.operands[1]), (b, op.operands[0])):
            if kind is None or (divides and kind is b) or (a is not None and b is not None):
                continue
            if isinstance(kind, Weight) and not kind.summed:
                return replace(kind, pure=False)
            if isinstance(kind, Reduced) and kind.fn != "sum":
                number, values = self._factor(free, divides)
                if values and kind.fn in ("max", "min"):
                    return replace(kind, scaled=True, hidden=frozenset())
                if number > 0:
                    return kind
            if isinstance(kind, (Exponent, State, Top)):
                number, values = self._factor(free, divides)
                exponent = self._exponent(kind, frozenset())
                terms = tuple(
                    (v, which, (n * number, tuple(sorted((*old, *values), key=id))))
                    for v, which, (n, old) in exponent.terms
                )
                kept = exponent.hidden if number > 0 and not values else frozenset()
                return replace(exponent, terms=terms, hidden=kept)
        raise _NoLaw

    def _ratio_lanes(self, op: Op) -> bool:
        return self._lanes(op.result)

    def _factor(self, value: Value, divides: bool) -> Factor:
        """What is the same in all turns: a number, or a value from before the loop."""
        number = _number(value)
        if number is not None:
            if not number or abs(number) == float("inf") or number != number:
                raise _NoLaw
            return (1.0 / number if divides else number), ()
        root = _root(value)
        if divides or root in self.inside or root.shape:
            raise _NoLaw
        return 1.0, (root,)

    def _sum(self, total: Kind, term: Kind | None) -> Kind:
        if isinstance(total, State):
            total = Scaled(total.arg)
        if not isinstance(total, Scaled):
            raise _NoLaw
        if isinstance(term, Reduced) and term.fn == "sum" and not term.scaled and not total.fn:
            return replace(total, updated=True)
        if not isinstance(term, Weight) or not term.summed or not total.fn or term.fn != total.fn:
            raise _NoLaw
        self.out.guarded &= term.exponent.guarded
        new = tuple(t for t in total.terms if t[1] == "new")
        if term.exponent.terms != new:
            raise _NoLaw
        return replace(total, updated=True)

    def _hidden(self, value: Value) -> frozenset[Value]:
        """Conditions that all hold wherever a free value is not negative infinity; what is found of them."""
        op = value.producer
        if op is None or value not in self.inside:
            return frozenset()
        if op.kind in ("splat", "broadcast", "cast"):
            return self._hidden(op.operands[0])
        if op.kind == "map" and op["fn"] == "where":
            rest = self._hidden(op.operands[1])
            return rest | {op.operands[0]} if _number(op.operands[2]) == float("-inf") else frozenset()
        if op.kind == "map" and op["fn"] == "add":
            return self._hidden(op.operands[0]) | self._hidden(op.operands[1])
        if op.kind == "map" and op["fn"] == "mul":
            for x, y in (op.operands, op.operands[::-1]):
                number = _number(y)
                if number is not None and number > 0:
                    return self._hidden(x)
        return frozenset()


def _root(value: Value) -> Value:
    while value.producer is not None and value.producer.kind in ("splat", "broadcast", "expand_dims"):
        value = value.producer.operands[0]
    return value


def _number(value: Value) -> float | None:
    """The constant that a value is in every element."""
    op = _root(value).producer
    return float(op["value"]) if op is not None and op.kind == "const" else None


def only_ratios(plan: Schedule, laws: Mapping[Op, Recurrence]) -> bool:
    """Whether what is stored stays the same when the extremes, and with them the sums, are any others that fit.

    An extreme moves by d, its sums by ``exp(-k d)``: quotients of sums stay, and so does an extreme plus a logarithm.
    """
    moved: dict[Value, tuple[float, Factor]] = {}  # value -> (power of the exponential, shift in units of d)
    fns: set[tuple[str, Factor]] = set()
    for op, law in laws.items():
        for result, arg in zip(op.results, op.regions[0].args[1:]):
            if arg in law.tops:
                moved[result] = (0.0, (1.0, ()))
            elif law.sums.get(arg) is not None:
                fn, _, factor = law.sums[arg]  # type: ignore[misc]
                fns.add((fn, factor))
                moved[result] = (1.0, (0.0, ()))
    if len(fns) != 1 or any(len(law.tops) != 1 for law in laws.values()):
        return False
    ((fn, factor),) = fns
    reach = _Moves(fn, factor, moved)
    return all(reach.op(op, laws) for op in plan.kernel.body.ops)


@dataclass
class _Moves:
    fn: str
    factor: Factor
    moved: dict[Value, tuple[float, Factor]]

    def op(self, op: Op, laws: Mapping[Op, Recurrence]) -> bool:
        """Follow one operation; whether that was possible."""
        mine = [self.moved.get(v) for v in op.operands]
        if op in laws:
            law = laws[op]
            for start, arg in zip(mine[3:], op.regions[0].args[1:]):
                if start is not None and (start[0] == 0.0) != (arg in law.tops):
                    return False
            return True
        if any(v in self.moved for region in op.regions for o in region.ops for v in o.operands):
            return False
        if not any(mine):
            return True
        if op.kind in _SHAPE:
            self.moved[op.result] = mine[0]  # type: ignore[assignment]
            return True
        found = self._map(op["fn"], op, mine) if op.kind == "map" else None
        if found is None:
            return False
        if found != (0.0, (0.0, ())) and (found[0] or found[1][0]):
            self.moved[op.result] = found
        return True

    def _map(self, fn: str, op: Op, mine: list[tuple[float, Factor] | None]) -> tuple[float, Factor] | None:
        none: tuple[float, Factor] = (0.0, (0.0, ()))
        if fn in _EXPONENTIALS[self.fn] and mine[0] is not None and not mine[0][1][0]:
            number, values = self.factor
            return 0.0, (-mine[0][0] * number, values)
        if fn in ("mul", "truediv"):
            a, b = (m or none for m in mine)
            if not a[1][0] and not b[1][0]:
                return (a[0] + b[0] if fn == "mul" else a[0] - b[0]), (0.0, ())
            number = _number(op.operands[1 if mine[1] is None else 0])
            shifts = [m for m in mine if m is not None]
            if len(shifts) == 1 and number and not shifts[0][0] and (fn == "mul" or mine[1] is None):
                n, values = shifts[0][1]
                return 0.0, (n * number if fn == "mul" else n / number, values)
            return None
        if fn in ("add", "sub"):
            a, b = (m or none for m in mine)
            if a[0] or b[0] or (a[1][0] and b[1][0] and a[1][1] != b[1][1]):
                return None
            number = a[1][0] + (b[1][0] if fn == "add" else -b[1][0])
            return 0.0, (0.0 if abs(number) < 1e-6 else number, a[1][1] or b[1][1])
        return None
