"""What a TPU holds a kernel's values as: fp16 as fp32 or bf16, 8 and 16-bit integers as int32, int64 as int32.

Input: a parsed kernel (`hold`), then its schedule (`narrow`). Output: the kernel with other types. Law: an operation on
narrow integers is done on 32 bits and wrapped where its result may leave the narrow range, so that every value is the
number it was; memory keeps its types, and blocks are converted as they are read and written. A 64-bit integer becomes
32 bits only where its range is known to fit; what comes from memory is taken to fit, with room for a sum, and a note
says so.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any

from bridge.diagnostics import error
from frontend_triton_compat.ir import Block, Kernel, Op, Value, walk
from frontend_triton_compat.schedule import Schedule
from frontend_triton_compat.types import FP16, FP32, INT32, INT64, UINT32, UINT64, TileType, dtype, pointer_type

#: 64-bit integers and what memory holds them as on a TPU
NARROWED = {INT64: INT32, UINT64: UINT32}
#: 64-bit numbers from memory are taken to be below this in size; so that a sum of two of them fits
TAKEN = 1 << 30
_SMALL = ("int8", "int16", "uint8", "uint16")
#: Functions whose result may be a number that the narrow type does not have.
_LEAVING = {"add", "sub", "mul", "neg", "shl", "not", "abs", "idiv"}

Range = tuple[int, int]


def small(element: Any) -> bool:
    """Whether this is an integer type of 8 or 16 bits."""
    return isinstance(element, dtype) and element.name in _SMALL


def held_in_memory(element: dtype, fp16: dtype = FP32) -> dtype:
    """The type of an argument's elements as the TPU module takes them."""
    return fp16 if element == FP16 else NARROWED.get(element, element)


# -- fp16 and narrow integers, before anything else is known


def hold(kernel: Kernel, fp16: dtype = FP32) -> Kernel:
    """The kernel with fp16 as `fp16` everywhere, and narrow integers as int32 outside of memory. Rewrites it."""
    _Holder(fp16).block(kernel.body)
    kernel.params = tuple(dataclasses.replace(p, type=fp16) if p.type == FP16 else p for p in kernel.params)
    return kernel


class _Holder:
    """Rewrites blocks; remembers which type a value had."""

    def __init__(self, fp16: dtype):
        self.fp16 = fp16
        self.was: dict[Value, dtype] = {}

    def block(self, block: Block) -> None:
        for value in block.args:
            self._retype(value)
        ops: list[Op] = []
        for op in block.ops:
            for value in op.results:
                self._retype(value)
            for region in (*op.regions, *([op["body"]] if "body" in op.attrs else [])):
                self.block(region)
            ops += self._narrow_operands(op)
            ops.append(op)
            for i, value in enumerate(op.results):
                if value in self.was:
                    ops += self._wrapped(op, i, self.was[value])
        block.ops[:] = ops

    def _retype(self, value: Value) -> None:
        element = value.type.element
        if isinstance(element, pointer_type):
            if element.element_ty == FP16:
                value.type = value.type.with_element(pointer_type(self.fp16))
        elif element == FP16:
            value.type = value.type.with_element(self.fp16)
        elif small(element):
            self.was[value] = element
            value.type = value.type.with_element(INT32)

    def _narrow_operands(self, op: Op) -> list[Op]:
        """Conversions in front of an operation that needs the narrow bits themselves."""
        small_at = [i for i, v in enumerate(op.operands) if v in self.was]
        if not small_at:
            return []
        first = self.was[op.operands[small_at[0]]]
        if op.kind == "bitcast" and op.result not in self.was:
            return self._replaced(op, 0, first, "cast", rounding=None)
        if op.kind == "dot":
            casts = (self._replaced(op, i, self.was[op.operands[i]], "cast", rounding=None) for i in small_at if i < 2)
            return [o for made in casts for o in made]
        if op.kind == "map" and op["fn"] in ("popc", "clz"):
            return self._replaced(op, 0, INT32, "map", fn=f"low_{first.primitive_bitwidth}")
        return []

    def _replaced(self, op: Op, i: int, element: dtype, kind: str, **attrs: Any) -> list[Op]:
        """A new operation on an operand, whose result takes the operand's place."""
        value = op.operands[i]
        made = Op(kind, (value,), attrs, op.where)
        made.results = (Value(TileType(element, value.shape), value.name, made),)
        op.operands = (*op.operands[:i], made.result, *op.operands[i + 1 :])
        return [made]

    def _wrapped(self, op: Op, i: int, element: dtype) -> list[Op]:
        """What brings a result back into its narrow type: nothing, where it can't have left it."""
        old, new = op.results[i], Value(op.results[i].type, op.results[i].name, op)
        if op.kind == "bitcast" and op.operands[0] not in self.was:  # of an 8 or 16-bit float: held as int32 afterwards
            new.type = new.type.with_element(element)
            made = Op("cast", (new,), {"rounding": None}, op.where, (old,))
        elif self._leaves(op, element):
            fn = f"{'signed' if element.kind == 'int' else 'low'}_{element.primitive_bitwidth}"
            made = Op("map", (new,), {"fn": fn}, op.where, (old,))
        else:
            return []
        op.results = (*op.results[:i], new, *op.results[i + 1 :])
        old.producer = made
        return [made]

    def _leaves(self, op: Op, element: dtype) -> bool:
        fn = op.attrs.get("fn")
        if op.kind in ("cast", "bitcast"):
            source = self.was.get(op.operands[0]) or op.operands[0].type.element
            if isinstance(source, dtype) and source.is_int() and _inside(source, element):
                return False
            least, most = float_range(op.operands[0])
            return op.kind == "bitcast" or not (_limits(element)[0] <= least and most <= _limits(element)[1])
        if op.kind == "map":
            return fn in _LEAVING
        if op.kind in ("reduce", "scan"):
            return fn in ("prod", "cumprod", "cumsum", "sum")
        return op.kind in ("reduce_by", "scan_by", "each")


def float_range(value: Value, depth: int = 16) -> tuple[float, float]:
    """Numbers between which a value lies, as far as clamps, roundings and conversions to integers tell.

    A value with a bound is no NaN: bounds begin at a `tl.maximum` or `tl.minimum` with a number, which leave NaN out.
    """
    op, everything = value.producer, (-math.inf, math.inf)
    if op is None or depth == 0:
        return everything
    if op.kind == "const":
        return float(op["value"]), float(op["value"])
    if op.kind in ("splat", "broadcast", "expand_dims", "trans", "reshape"):
        return float_range(op.operands[0], depth)
    element = value.type.element
    if op.kind == "cast" and isinstance(element, dtype) and element.name in ("int32", "int64"):
        least, most = float_range(op.operands[0], depth - 1)  # cut towards zero
        return _cut(least), _cut(most)
    if op.kind != "map":
        return everything
    parts = [float_range(v, depth - 1) for v in op.operands[1 if op["fn"] == "where" else 0 :]]
    fn, lows, highs = op["fn"], [p[0] for p in parts], [p[1] for p in parts]
    if fn == "where":
        return min(lows), max(highs)
    if fn in ("maximum", "max"):  # NaN is left out: one side alone gives the bound
        return max(lows), max(highs)
    if fn in ("minimum", "min"):
        return min(lows), min(highs)
    if fn in ("floor", "ceil", "rint", "round", "trunc"):
        return lows[0] - 1 if fn != "ceil" else lows[0], highs[0] + 1 if fn != "floor" else highs[0]
    if fn in ("add", "sub") and element.is_floating() and all(map(math.isfinite, (*lows, *highs))):
        return (lows[0] + lows[1], highs[0] + highs[1]) if fn == "add" else (lows[0] - highs[1], highs[0] - lows[1])
    return everything


def _cut(x: float) -> float:
    return float(math.trunc(x)) if math.isfinite(x) else x


def _inside(source: dtype, target: dtype) -> bool:
    if source.is_bool():
        return True
    return (
        source.get_int_min_value() >= target.get_int_min_value()
        and source.get_int_max_value() <= target.get_int_max_value()
    )


# -- int64, once it is known which values are data


def narrow(plan: Schedule) -> None:
    """Hold 64-bit integers that are data as 32 bits.

    Raises:
        Diagnostic: ``tpu-dtype``: one of them may be a number that does not fit.
    """
    ranges = _Ranges(plan)
    data = plan.demand.live - plan.demand.indexed
    found: list[tuple[Value, Op]] = []
    for op in _every(plan.kernel.body):
        for value in (*op.results, *(a for r in op.regions for a in r.args)):
            element = value.type.element
            if isinstance(element, pointer_type):
                if element.element_ty in NARROWED:
                    value.type = value.type.with_element(pointer_type(NARROWED[element.element_ty]))
            elif element in NARROWED and value in data:
                found.append((value, op))
    for value, op in found:
        ranges.check(value, op)
    for value, _ in found:
        value.type = value.type.with_element(held_in_memory(value.type.element))  # type: ignore[arg-type]


def _every(block: Block) -> list[Op]:
    out = []
    for op in walk(block):
        out.append(op)
        if "body" in op.attrs:
            out += _every(op["body"])
    return out


class _Ranges:
    """Which numbers an integer value may be; None where that is not known."""

    def __init__(self, plan: Schedule):
        self.plan = plan
        self.known: dict[Value, Range | None] = {}

    def check(self, value: Value, op: Op) -> None:
        """Refuse a 64-bit value that may not fit."""
        least, most = _limits(held_in_memory(value.type.element))  # type: ignore[arg-type]
        found = self.of(value)
        sources = [found]
        if value.producer is None and value.owner is not None:  # carried: what comes in must fit what was assumed
            sources += [self.of(v) for v in _incoming(value)]
        if all(r is not None and least <= r[0] and r[1] <= most for r in sources):
            return
        known = f"it may be anything from {found[0]} to {found[1]}" if found else "its range is not known"
        raise error(
            "tpu-dtype",
            f"{value.type.element} arithmetic{f' ({value.name!r})' if value.name else ''} on a TPU",
            where=op.where,
            why=f"a TPU core has no 64-bit registers, and {known}: 32 bits may not hold it",
            do="compute it in 32 bits, x.to(tl.int32), where the numbers fit, or outside of the kernel with torch",
        )

    def of(self, value: Value) -> Range | None:
        """The range of a value."""
        if value not in self.known:
            self.known[value] = None  # a value that depends on itself
            self.known[value] = self._find(value)
        return self.known[value]

    def _find(self, value: Value) -> Range | None:
        element = value.type.element
        if isinstance(element, pointer_type) or not element.is_int():
            return None
        form = self.plan.form(self.plan.affine.form(value))
        if not any(o.value is value for o in form.opaques):
            bounds = form.range()
            if bounds is not None:
                return bounds
        wide, most = element in NARROWED, _limits(NARROWED.get(element, element))
        found = self._result(value, value.producer, most) if value.producer is not None else self._argument(value, most)
        if not wide and not (found and most[0] <= found[0] and found[1] <= most[1]):
            return most  # 32 bits and fewer wrap by themselves
        return found

    def _argument(self, value: Value, held: Range) -> Range | None:
        """A block's argument: carried ones are taken to fit, as `check` sees to; a counter keeps to its bounds."""
        op = value.owner
        if op is not None and op.kind == "for" and op.regions[0].args[0] is value:
            return self._union([self.of(v) for v in op.operands[:2]])
        return None if op is None else held

    def _result(self, value: Value, op: Op, held: Range) -> Range | None:
        if op.kind == "const":
            return int(op["value"]), int(op["value"])
        if op.kind == "load" and value.type.element in NARROWED:
            return max(held[0], -TAKEN), TAKEN - 1
        if op.kind in ("load", "for", "while"):  # of a loop: as its carried value, which is checked
            return held
        if op.kind in ("splat", "broadcast", "expand_dims", "trans", "reshape"):
            return self.of(op.operands[0])
        if op.kind == "call":
            if op["fn"].startswith("histogram"):
                return 0, op.operands[0].type.numel
            return self._union([self.of(v) for v in op.operands[: 1 if op["fn"] == "gather" else 2]])
        if op.kind == "cast":
            source = op.operands[0].type.element
            return self.of(op.operands[0]) if isinstance(source, dtype) and source.is_int() else None
        if op.kind == "if":
            return self._union([self.of(r.yields[op.results.index(value)]) for r in op.regions])
        if op.kind == "reduce":
            return self._reduced(op)
        if op.kind == "scan":
            return self._times(self.of(op.operands[0]), op.operands[0].shape[op["axis"]], op["fn"] == "cumsum")
        if op.kind == "map":
            return self._mapped(op["fn"], [self.of(v) for v in op.operands])
        return None

    def _reduced(self, op: Op) -> Range | None:
        n = op.operands[0].shape[op["axis"]]
        if op["fn"].startswith("arg"):
            return 0, n - 1
        if op["fn"] in ("max", "min", "max_nan", "min_nan"):
            return self.of(op.operands[0])
        return self._times(self.of(op.operands[0]), n, op["fn"] == "sum")

    def _times(self, found: Range | None, n: int, adds: bool) -> Range | None:
        return (min(found[0] * n, found[0]), max(found[1] * n, found[1])) if found and adds else None

    def _union(self, ranges: list[Range | None]) -> Range | None:
        known = [r for r in ranges if r is not None]
        return (min(r[0] for r in known), max(r[1] for r in known)) if len(known) == len(ranges) else None

    def _mapped(self, fn: str, ranges: list[Range | None]) -> Range | None:
        if fn == "where":
            return self._union(ranges[1:])
        known = [r for r in ranges if r is not None]
        if len(known) != len(ranges):
            return None
        rule = _RULES.get(fn)
        return rule(*known) if rule is not None else None


def _corners(fn: Callable[[int, int], int]) -> Callable[[Range, Range], Range]:
    def rule(a: Range, b: Range) -> Range:
        found = [fn(x, y) for x in a for y in b]
        return min(found), max(found)

    return rule


def _quotient(a: Range, b: Range) -> Range | None:
    return _corners(lambda x, y: -(-x // y) if x < 0 else x // y)(a, b) if b[0] > 0 else None


def _remainder(a: Range, b: Range) -> Range | None:
    return ((0 if a[0] >= 0 else 1 - b[1]), b[1] - 1) if b[0] > 0 else None


def _shifted(a: Range, b: Range) -> Range | None:
    return _corners(lambda x, y: x << y)(a, b) if 0 <= b[0] and b[1] < 64 else None


def _shifted_back(a: Range, b: Range) -> Range | None:
    return _corners(lambda x, y: x >> y)(a, b) if 0 <= b[0] and b[1] < 64 else None


def _masked(a: Range, b: Range) -> Range | None:
    sizes = [r[1] for r in (a, b) if r[0] >= 0]
    return (0, min(sizes)) if sizes else None


_RULES: dict[str, Callable[..., Range | None]] = {
    "add": _corners(lambda x, y: x + y),
    "sub": _corners(lambda x, y: x - y),
    "mul": _corners(lambda x, y: x * y),
    "min": _corners(min),
    "max": _corners(max),
    "neg": lambda a: (-a[1], -a[0]),
    "abs": lambda a: (0 if a[0] <= 0 <= a[1] else min(map(abs, a)), max(map(abs, a))),
    "not": lambda a: (-1 - a[1], -1 - a[0]),
    "idiv": _quotient,
    "imod": _remainder,
    "shl": _shifted,
    "shr": _shifted_back,
    "and": _masked,
}


def _incoming(arg: Value) -> list[Value]:
    """What a loop's block argument may be: its start and what every turn yields."""
    op = arg.owner
    assert op is not None
    out = []
    for region in op.regions:
        if arg not in region.args:
            continue
        i = region.args.index(arg)
        if op.kind == "for":
            if i == 0:
                continue
            out += [op.operands[2 + i], region.yields[i - 1]]
        else:
            out += [op.operands[i], op.regions[-1].yields[i]]
    return out


def _limits(element: Any) -> Range:
    if element.is_bool():
        return 0, 1
    return element.get_int_min_value(), element.get_int_max_value()
