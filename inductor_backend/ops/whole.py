"""Which whole numbers an operator can give, from those of its operands: what a machine with 32 bits has to know.

Input: arguments of an operator, with `Known` in place of tensors. Output: the `Range` of its result, one each for
several. Law: a range holds every number that eager gives for operands within theirs; `Growth.check` names the function
of `inductor_backend.wraps` that finds out at run time whether 32 bits were left; "" where there is none.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch


@dataclass(frozen=True)
class Range:
    """The numbers from `low` to `high`."""

    low: Any
    high: Any

    def __add__(self, other: Range) -> Range:
        return Range(self.low + other.low, self.high + other.high)

    def __sub__(self, other: Range) -> Range:
        return Range(self.low - other.high, self.high - other.low)

    def __mul__(self, other: Range) -> Range:
        corners = [a * b for a in (self.low, self.high) for b in (other.low, other.high)]
        return Range(min(corners), max(corners))

    def __or__(self, other: Range) -> Range:
        """The smallest range that holds both."""
        return Range(min(self.low, other.low), max(self.high, other.high))

    def __and__(self, other: Range) -> Range:
        """What lies in both; `other` where nothing does."""
        low, high = max(self.low, other.low), min(self.high, other.high)
        return Range(low, high) if low <= high else other

    def __le__(self, other: Range) -> bool:
        return other.low <= self.low and self.high <= other.high

    @property
    def largest(self) -> Any:
        """The largest absolute value."""
        return max(abs(self.low), abs(self.high))


#: What a whole number can be on a TPU.
INT32 = Range(-(2**31), 2**31 - 1)
_ZERO = Range(0, 0)


def of_dtype(dtype: torch.dtype) -> Range | None:
    """The numbers of a dtype on a TPU; None for one that is not of whole numbers."""
    if dtype is torch.bool:
        return Range(0, 1)
    if dtype.is_floating_point or dtype.is_complex:
        return None
    info = torch.iinfo(dtype)
    return INT32 if info.bits == 64 else Range(int(info.min), int(info.max))


@dataclass(frozen=True)
class Known:
    """A tensor: the range of its numbers (None: nothing is known), its shape and dtype."""

    range: Range | None
    shape: tuple[int, ...]
    dtype: torch.dtype

    @property
    def numel(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)


class Unproven(Exception):
    """Nothing is known of a result."""


@dataclass(frozen=True)
class Growth:
    """How an operator's whole numbers follow from its operands'.

    Attributes:
        range: takes the operator's arguments, gives the range of its result, or a list of them where its results
            have different ones. Raises `Unproven`.
        check: "approximately", "summed", "from_float" or "": see `inductor_backend.wraps`.
        data: which arguments hold the numbers (the others are indices); None: all tensors do.
        near: what computes it in f32, where the row's function takes whole numbers only.
    """

    range: Callable[..., Any]
    check: str = ""
    data: tuple[int, ...] | None = None
    near: str = ""


def known(value: Any) -> Range:
    """The range of an operand: a tensor's, or a number itself.

    Raises:
        Unproven: nothing is known of it.
    """
    if isinstance(value, Known) and value.range is not None:
        return value.range
    if isinstance(value, (int, float)) and math.isfinite(value):
        number = int(value) if isinstance(value, int) else value  # bool is an int
        return Range(number, number)
    raise Unproven


def _hull(values: Iterable[Any]) -> Range:
    ranges = [known(v) for v in values]
    if not ranges:
        return _ZERO
    found = ranges[0]
    for r in ranges[1:]:
        found = found | r
    return found


# ------------------------------------------------------------------------------------- results that don't grow
def among(*places: int, zero: bool = False) -> Growth:
    """Elements of the arguments at `places` (lists of tensors too), and zeros."""

    def rule(*args: Any, **kwargs: Any) -> Range:
        given = [args[p] for p in places if p < len(args) and args[p] is not None]
        flat = [v for g in given for v in (g if isinstance(g, (list, tuple)) else [g])]
        return _hull([*flat, 0] if zero or not flat else flat)

    return Growth(rule)


def within(low: int, high: int) -> Growth:
    """Numbers from `low` to `high`, whatever the operands."""
    return Growth(lambda *args, **kwargs: Range(low, high))


def _positions(x: Known, dim: Any = None) -> Range:
    length = x.numel if not isinstance(dim, int) or not x.shape else x.shape[dim]
    return Range(0, max(length - 1, 0))


def _position_rule(x: Known, dim: Any = None, *rest: Any, **kwargs: Any) -> Range:
    return _positions(x)


#: Places in the first operand.
POSITIONS = Growth(_position_rule)
#: Elements of the first operand, and their places.
ELEMENTS_AND_POSITIONS = Growth(lambda x, *a, **k: [x.range, _positions(x)])
#: Places in a sequence, or its length.
INSERTIONS = Growth(lambda sequence, *a, **k: Range(0, sequence.numel))
BUCKETS = Growth(lambda values, boundaries, *a, **k: Range(0, boundaries.numel))
#: Places in the last dimensions of a given size.
PLACES = Growth(lambda offsets, kernel, size, *a, **k: Range(0, math.prod(size)))
#: Elements of the first operand.
ELEMENTS = among(0)


#: The first, second or third argument, everywhere.
FILLED_FIRST, FILLED, FILLED_THIRD = among(0), among(1), among(2)


def _iota(length: int, start: int = 0, step: int = 1, **kwargs: Any) -> Range:
    last = start + max(length - 1, 0) * step
    return Range(min(start, last), max(start, last))


def _arange(start: Any, end: Any, step: Any = 1, **kwargs: Any) -> Range:
    if not all(isinstance(v, int) for v in (start, end, step)):
        raise Unproven
    return Range(min(start, end), max(start, end))


def _linspace(start: Any, end: Any, steps: int, **kwargs: Any) -> Range:
    if any(isinstance(v, Known) for v in (start, end)):
        raise Unproven
    return Range(math.floor(min(start, end)), math.ceil(max(start, end)))


IOTA, ARANGE, LINSPACE = Growth(_iota), Growth(_arange), Growth(_linspace)
#: A seed: its two halves are numbers of 32 bits.
SEED = Growth(lambda *a, **k: INT32)
RANDOM = Growth(lambda low, high, *a, **k: Range(low, max(high - 1, low)))


def _clamped(x: Any, low: Any = None, high: Any = None, **kwargs: Any) -> Range:
    low, high = kwargs.get("min", low), kwargs.get("max", high)
    found = known(x)
    if low is not None:
        found = _larger(found, low)
    return found if high is None else _smaller(found, high)


def _larger(x: Any, y: Any) -> Range:
    a, b = x if isinstance(x, Range) else known(x), known(y)
    return Range(max(a.low, b.low), max(a.high, b.high))


def _smaller(x: Any, y: Any) -> Range:
    a, b = x if isinstance(x, Range) else known(x), known(y)
    return Range(min(a.low, b.low), min(a.high, b.high))


def _limited(x: Any, low: Any = -1, high: Any = 1, **kwargs: Any) -> Range:
    return _clamped(x, kwargs.get("min_val", low), kwargs.get("max_val", high))


CLAMPED, LARGER, SMALLER = Growth(_clamped), Growth(_larger), Growth(_smaller)
RECTIFIED, LIMITED = Growth(lambda x: _larger(x, 0)), Growth(_limited)


def _modulo(x: Any, y: Any) -> Range:
    divisor = known(y)
    return Range(min(0, divisor.low), max(0, divisor.high))


def _rest(x: Any, y: Any) -> Range:
    most = known(y).largest
    given = known(x)
    return Range(max(min(given.low, 0), -most), min(max(given.high, 0), most))


MODULO, REST = Growth(_modulo), Growth(_rest)


def _bits(*values: Any) -> Range:
    """What `and`, `or` and `xor` can give: nothing with more bits than an operand has."""
    hull = _hull(values)
    width = max(hull.high.bit_length(), (~hull.low).bit_length() if hull.low < 0 else 0)
    return Range(-(1 << width) if hull.low < 0 else 0, (1 << width) - 1)


def _masked_bits(x: Any, y: Any) -> Range:
    a, b = known(x), known(y)
    kept = [r.high for r in (a, b) if r.low >= 0]  # `and` with a number that is not negative
    return Range(0, min(kept)) if kept else _bits(x, y)


BITS, MASKED_BITS = Growth(_bits), Growth(_masked_bits)
INVERTED = Growth(lambda x: Range(~known(x).high, ~known(x).low))
SHIFTED_RIGHT = Growth(lambda x, y: _hull([x, 0, -1]) if known(x).low < 0 else _hull([x, 0]))
DIVISORS = Growth(lambda x, y: Range(0, max(known(x).largest, known(y).largest)))


# ------------------------------------------------------------------------------------------ results that grow
def _added(sign: int) -> Callable[..., Range]:
    def rule(x: Any, y: Any, alpha: Any = 1) -> Range:
        return known(x) + known(y) * known(alpha) * Range(sign, sign)

    return rule


def _subtracted_from(x: Any, y: Any, alpha: Any = 1) -> Range:
    return known(y) - known(x) * known(alpha)


ADDED, SUBTRACTED = Growth(_added(1), "approximately"), Growth(_added(-1), "approximately")
SUBTRACTED_FROM = Growth(_subtracted_from, "approximately")
MULTIPLIED = Growth(lambda x, y: known(x) * known(y), "approximately")
FUSED = Growth(lambda a, b, c: known(a) * known(b) + known(c), "approximately")
PRODUCT_ADDED = Growth(lambda x, a, b, value=1: known(x) + known(a) * known(b) * known(value), "approximately")
NEGATED = Growth(lambda x: _ZERO - known(x), "approximately")
ABSOLUTE = Growth(lambda x: Range(0, known(x).largest), "approximately")
SQUARED = Growth(lambda x: Range(0, known(x).largest ** 2), "approximately")


def _quotient(x: Any, y: Any, **kwargs: Any) -> Range:
    dividend, divisor = known(x), known(y)
    if divisor.low >= 1:
        return Range(min(dividend.low, 0), max(dividend.high, 0))
    if not all(isinstance(n, int) for n in (divisor.low, divisor.high)):
        raise Unproven
    return Range(-dividend.largest, dividend.largest)


QUOTIENT = Growth(_quotient, "approximately")


def _power(x: Any, y: Any) -> Range:
    base, exponent = known(x), known(y)
    if not all(isinstance(n, int) for n in (base.low, base.high, exponent.low, exponent.high)):
        raise Unproven
    most = max(base.largest, 1) ** min(max(exponent.high, 0), 64)
    return Range(0 if base.low >= 0 else -most, most)


POWER = Growth(_power, "approximately")


def _shifted(x: Any, y: Any) -> Range:
    factor = 1 << min(max(known(y).high, 0), 64)
    return known(x) * Range(0, factor)


SHIFTED_LEFT = Growth(_shifted, "approximately", near="wraps.shifted")


def _converted(x: Any, *args: Any, **kwargs: Any) -> Range:
    found = known(x)
    return Range(math.floor(found.low), math.ceil(found.high))


CONVERTED = Growth(_converted, "from_float")


def _count(x: Known, dim: Any) -> int:
    """Elements that a reduction brings together."""
    if not x.shape:
        return 1
    if dim is None or (isinstance(dim, (list, tuple)) and not dim):
        return x.numel
    given = dim if isinstance(dim, (list, tuple)) else (dim,)
    return math.prod(x.shape[d] for d in {d % len(x.shape) for d in given})


def _summed(x: Known, dim: Any = None, *rest: Any, **kwargs: Any) -> Range:
    return known(x) * Range(0, _count(x, kwargs.get("dim", dim)))


def _scanned(x: Known, dim: Any, **kwargs: Any) -> Range:
    return known(x) * Range(0, max(_count(x, dim), 1)) | known(x)


def _all_multiplied(x: Known, dim: Any = None, *rest: Any, **kwargs: Any) -> Range:
    given, count = known(x), _count(x, dim if isinstance(dim, int) else None)
    most = given.largest ** min(count, 64) if given.largest > 1 else 1
    return Range(0 if given.low >= 0 else -most, most)


SUMMED, SCANNED = Growth(_summed, "summed"), Growth(_scanned, "summed")
ALL_MULTIPLIED = Growth(_all_multiplied, "approximately")


def _sum_of_products(a: Any, b: Any) -> Range:
    inner = a.shape[-1] if a.shape else 1
    return known(a) * known(b) * Range(0, inner)


def _product_with_addend(c: Any, a: Any, b: Any, *, beta: Any = 1, alpha: Any = 1, **kwargs: Any) -> Range:
    times = Range(0, a.shape[0]) if len(a.shape) == 3 and len(c.shape) == 2 else Range(1, 1)  # addbmm
    return known(c) * known(beta) + _sum_of_products(a, b) * known(alpha) * times


def _convolved(x: Known, weight: Known, bias: Known | None, *rest: Any, **kwargs: Any) -> Range:
    terms = math.prod(weight.shape) // max(min(weight.shape[:2]), 1)
    found = known(x) * known(weight) * Range(0, terms)
    return found if bias is None else found + known(bias)


CONVOLVED = Growth(_convolved, "summed", data=(0, 1, 2))
PRODUCT, PRODUCT_WITH_ADDEND = Growth(_sum_of_products, "summed"), Growth(_product_with_addend, "summed")


def _gathered_up(x: Known, source: Any, factor: Any = 1) -> Range:
    given = known(source) * known(factor)
    return known(x) + given * Range(0, source.numel if isinstance(source, Known) else x.numel)


def _put(x: Known, indices: Any, values: Known, accumulate: Any = False, *rest: Any) -> Range:
    if not accumulate:
        return known(x) | known(values)
    count = max([values.numel, *(i.numel for i in indices if isinstance(i, Known))])
    count = count if len([i for i in indices if i is not None]) < 2 else max(count, x.numel)
    return known(x) + known(values) * Range(0, max(count, x.numel))


def _put_masked(x: Known, mask: Any, indices: Any, values: Known) -> Range:
    return known(x) + known(values) * Range(0, max(values.numel, x.numel))


def _added_along(x: Known, dim: int, index: Known, source: Any, alpha: Any = 1) -> Range:
    return _gathered_up(x, source, alpha)


PUT = Growth(_put, "summed", data=(0, 2))
PUT_MASKED = Growth(_put_masked, "summed", data=(0, 3))
ADDED_ALONG = Growth(_added_along, "summed", data=(0, 3))


def _reduced_along(x: Known, dim: int, index: Known, source: Any, reduce: str, **kwargs: Any) -> Range:
    given = known(x) | known(source)
    if reduce in ("amax", "amin", "mean"):
        return given | _ZERO
    if reduce in ("sum", "add"):
        return _gathered_up(x, source)
    return Range(-(given.largest**65), given.largest**65) | given


REDUCED_ALONG = Growth(_reduced_along, "summed", data=(0, 3))


def _bag(*args: Any, **kwargs: Any) -> list[Range | None]:
    count = max((a.numel for a in args[:3] if isinstance(a, Known)), default=0)
    return [None, *[Range(-1, count)] * 3]


BAG = Growth(_bag)
