"""Affine forms: variables, run-time values, sums of them with integer coefficients.

Input: built by `affine`. Output: read by every pass after it. Law: a form equals its value for all values of its
variables; `simplify` turns divisions, remainders, minima and maxima into forms where the variables' ranges allow it.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from frontend_triton_compat.dims import Axis
from frontend_triton_compat.ir import Value

_ids = itertools.count()


@dataclass(eq=False)
class Var:
    """An integer variable 0, 1, ..., size - 1 that tile elements, programs or iterations are counted with.

    Attributes:
        kind: ``program``, ``atom``, ``loop``, ``axis`` or ``fused``.
        size: number of values; None for a loop whose trip count is known only at run time.
        name: for the emitted source.
        extent: number of values that matter, at most `size`; set when masks make the rest dead.
        labels: for an atom, the variable's value in every program (shape of the grid).
        outer: for a fused variable, ``outer * inner.size + inner`` is this one.
        inner: see `outer`.
        axis: for an ``axis`` variable, the axis.
        serial: whether it counts a loop that stays a loop, so that it is one number at a time.
        rank: where its dimension stands among others; batch variables come first.
    """

    kind: str
    size: int | None
    name: str
    extent: int | None = None
    labels: np.ndarray | None = None
    outer: Var | None = None
    inner: Var | None = None
    axis: Axis | None = None
    serial: bool = False
    rank: int = 0
    id: int = field(default_factory=_ids.__next__)

    @property
    def count(self) -> int | None:
        """Number of values that matter."""
        return self.size if self.extent is None else self.extent

    def parts(self) -> tuple[Var, ...]:
        """The variables this one is made of, itself included."""
        if self.outer is None or self.inner is None:
            return (self,)
        return (self, *self.outer.parts(), *self.inner.parts())

    def __repr__(self) -> str:
        return f"{self.name}<{self.count}>"


@dataclass(eq=False)
class Opaque:
    """An integer value that is not affine: computed at run time.

    Attributes:
        value: the value.
        fn: the function that made it, when ranges may still turn it into an affine form ("imod", "idiv", "min", "max").
        forms: its operands.
        size: how many such functions are nested in it, each counted as often as it occurs.
    """

    value: Value
    fn: str = ""
    forms: tuple[Form, ...] = ()
    size: int = field(init=False)

    def __post_init__(self) -> None:
        self.size = 1 + sum(o.size for f in self.forms for o in f.opaques)

    def __repr__(self) -> str:
        return f"?{self.value.name or id(self.value) % 9973}"


Symbol = Var | Opaque


@dataclass(frozen=True)
class Form:
    """``const + sum(coefficient * symbol)``; coefficients are never 0."""

    const: int = 0
    terms: Mapping[Symbol, int] = field(default_factory=dict)

    def __add__(self, other: Form) -> Form:
        terms = dict(self.terms)
        for s, c in other.terms.items():
            terms[s] = terms.get(s, 0) + c
        return Form(self.const + other.const, {s: c for s, c in terms.items() if c})

    def __sub__(self, other: Form) -> Form:
        return self + other.scale(-1)

    def scale(self, k: int) -> Form:
        """This form times an integer."""
        return Form(self.const * k, {s: c * k for s, c in self.terms.items()} if k else {})

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Form) and self.const == other.const and dict(self.terms) == dict(other.terms)

    def __hash__(self) -> int:
        return hash((self.const, frozenset((id(s), c) for s, c in self.terms.items())))

    @property
    def is_const(self) -> bool:
        """Whether no symbol occurs."""
        return not self.terms

    @property
    def vars(self) -> tuple[Var, ...]:
        """The variables in it."""
        return tuple(s for s in self.terms if isinstance(s, Var))

    @property
    def opaques(self) -> tuple[Opaque, ...]:
        """The run-time values in it."""
        return tuple(s for s in self.terms if isinstance(s, Opaque))

    def coefficient(self, symbol: Symbol) -> int:
        """The factor of a symbol, 0 if absent."""
        return self.terms.get(symbol, 0)

    def range(self) -> tuple[int, int] | None:
        """Smallest and largest value over the variables' extents; None when a symbol has no known range."""
        lo = hi = self.const
        for s, c in self.terms.items():
            if isinstance(s, Opaque) or s.count is None:
                return None
            last = c * max(0, s.count - 1)
            lo, hi = lo + min(0, last), hi + max(0, last)
        return lo, hi

    def substitute(self, table: Mapping[Symbol, Form]) -> Form:
        """Replace symbols by forms."""
        if not any(s in table for s in self.terms):
            return self
        out = Form(self.const)
        for s, c in self.terms.items():
            out = out + (table[s].scale(c) if s in table else Form(0, {s: c}))
        return out

    def __repr__(self) -> str:
        parts = [f"{c}*{s!r}" for s, c in self.terms.items()]
        return " + ".join([*parts, str(self.const)])


def _c_div(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    q = np.abs(a) // np.where(b == 0, 1, np.abs(b))  # by 0: a lane that is masked off, such as one of a loop that ended
    return np.where((a < 0) != (b < 0), -q, q)


ARRAY_FN: dict[str, Callable[..., np.ndarray]] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "idiv": _c_div,
    "imod": lambda a, b: a - _c_div(a, b) * b,
    "min": np.minimum,
    "max": np.maximum,
    "neg": np.negative,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "shl": np.left_shift,
    "shr": np.right_shift,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "eq": np.equal,
    "ne": np.not_equal,
    "where": np.where,
}


def simplify(fn: str, a: Form, b: Form) -> Form | None:
    """``a fn b`` as an affine form where the ranges of the variables allow it, else None."""
    if a.is_const and b.is_const and (b.const or fn in ("min", "max")):
        return Form(int(ARRAY_FN[fn](np.int64(a.const), np.int64(b.const))))
    if fn in ("min", "max"):
        gap = (a - b).range()
        if gap is None:
            return None
        if gap[1] <= 0:
            return a if fn == "min" else b
        if gap[0] >= 0:
            return b if fn == "min" else a
        return None
    if not b.is_const or b.const <= 0:
        return None
    n = b.const
    bounds = a.range()
    if bounds is None or bounds[0] < 0:
        return None
    if bounds[1] < n:
        return a if fn == "imod" else Form(0)
    whole = Form(a.const // n * n, {s: c for s, c in a.terms.items() if c % n == 0})
    rest = a - whole
    left = rest.range()
    if left is not None and 0 <= left[0] and left[1] < n:
        return rest if fn == "imod" else Form(whole.const // n, {s: c // n for s, c in whole.terms.items()})
    return None
