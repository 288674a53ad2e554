"""Source expressions with named dimensions, and how one is brought to another's shape.

Input: jax source text plus the variables its dimensions count. Output: source text. Law: an expression's array has one
dimension an entry of `dims`; None stands for size 1. Alignment inserts, drops and transposes dimensions by name and
leaves the text alone where broadcasting already does the right thing.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Protocol

from frontend_triton_compat.forms import Var

_ATOM = re.compile(r"^-?[\w.]+$|^[\w.]+\([^()]*\)$|^[\w.]+\[[^\[\]]*\]$")


@dataclass(eq=False)
class Expr:
    """A piece of source text that stands for an array.

    Attributes:
        code: jax source.
        dims: what every dimension counts; None for size 1.
        literal: the number, when the text is a Python literal.
        fills: for a cropped variable, what the elements past the crop would be (without that dimension).
    """

    code: str
    dims: tuple[Var | None, ...] = ()
    literal: Any = None
    fills: dict[Var, Expr] = field(default_factory=dict)

    @property
    def vars(self) -> tuple[Var, ...]:
        """The named dimensions, in order."""
        return tuple(d for d in self.dims if d is not None)

    @property
    def operand(self) -> str:
        """The text, in parentheses unless it binds tightly."""
        return self.code if _ATOM.match(self.code) else f"({self.code})"


def literal(value: Any, dtype_name: str = "") -> Expr:
    """A Python number as source; with a dtype name, as a typed scalar."""
    if isinstance(value, (int, float)) and dtype_name == "float16" and 65520 <= abs(value) < math.inf:
        value = math.copysign(math.inf, value)  # what NumPy gives too, with a warning
    if isinstance(value, bool):
        text = str(value)
    elif isinstance(value, float) and (math.isinf(value) or math.isnan(value)):
        text = "jnp.nan" if math.isnan(value) else ("jnp.inf" if value > 0 else "-jnp.inf")
    else:
        text = repr(value)
    return Expr(f"jnp.{dtype_name}({text})" if dtype_name else text, (), value)


class Broadcasting(Protocol):
    """How a target brings values together that have different dimensions."""

    def union(self, exprs: Sequence[Expr]) -> tuple[Var | None, ...]:
        """See `union`."""
        ...

    def align(self, expr: Expr, target: Sequence[Var | None]) -> str:
        """See `align`."""
        ...


#: The way of the target that is being written for; None: as NumPy does it.
broadcasting: ContextVar[Broadcasting | None] = ContextVar("broadcasting", default=None)


def union(exprs: Sequence[Expr]) -> tuple[Var | None, ...]:
    """The dimensions of an elementwise result: an operand's own where they agree, else every variable once."""
    special = broadcasting.get()
    if special is not None:
        return special.union(exprs)
    shapes = [e.dims for e in exprs if e.dims]
    if not shapes:
        return ()
    if all(s == shapes[0] for s in shapes):
        return shapes[0]
    longest = max(len(s) for s in shapes)
    merged: list[Var | None] = [None] * longest
    for shape in shapes:  # right-aligned broadcasting may already do
        for i, d in enumerate(reversed(shape), 1):
            if d is not None:
                if merged[-i] not in (None, d):
                    break
                merged[-i] = d
        else:
            continue
        break
    else:
        named = [d for d in merged if d is not None]
        if len(named) == len(set(named)):
            return tuple(merged)
    return _ordered(shapes)


def _ordered(shapes: Sequence[tuple[Var | None, ...]]) -> tuple[Var, ...]:
    order: list[Var] = [d for d in max(shapes, key=lambda s: sum(d is not None for d in s)) if d is not None]
    for shape in shapes:
        named = [d for d in shape if d is not None]
        for i, d in enumerate(named):
            if d not in order:
                after = next((order.index(e) for e in named[i + 1 :] if e in order), len(order))
                if d.rank < 0:  # a batch variable stands before all that follow it in the canonical order
                    after = min(after, next((k for k, e in enumerate(order) if e.rank > d.rank), after))
                order.insert(after, d)
    return tuple(order)


def align(expr: Expr, target: Sequence[Var | None]) -> str:
    """Source of `expr` with dimensions that broadcast against `target` (which names all of its variables)."""
    special = broadcasting.get()
    if special is not None:
        return special.align(expr, target)
    code, dims = expr.code, list(expr.dims)
    if not dims:
        return code
    named = [d for d in dims if d is not None]
    if len(dims) == len(target) == 2 and len(named) == 1 and target[1 - dims.index(named[0])] is named[0]:
        return f"{expr.operand}.T"  # a row as a column, or the other way round
    wanted = [d for d in target if d in named]
    if named != wanted:
        if len(dims) != len(named):
            code = f"{expr.operand}[{', '.join(':' if d is not None else '0' for d in dims)}]"
        perm = [named.index(d) for d in wanted]
        code = f"{Expr(code).operand}.T" if perm == [1, 0] else f"jnp.transpose({code}, {tuple(perm)})"
        dims, expr = list(wanted), Expr(code, tuple(wanted))
    if len(dims) <= len(target) and all(d is None or d is t for d, t in zip(reversed(dims), reversed(target))):
        return code
    pattern: list[str] = []
    left = list(dims)
    started = False
    for t in target:
        while left and left[0] is None and t is not None:
            pattern.append("0")
            left.pop(0)
        if left and left[0] is t and t is not None:
            pattern.append(":")
            left.pop(0)
            started = True
        elif t is None and left and left[0] is None:
            pattern.append(":")
            left.pop(0)
            started = True
        elif started:
            pattern.append("None")
    pattern += ["0" for d in left if d is None]
    return f"{expr.operand}[{', '.join(pattern)}]"


def shape_of(dims: Sequence[Var | None], extent: Any) -> str:
    """A shape tuple as source."""
    sizes = ["1" if d is None else str(extent(d)) for d in dims]
    return f"({sizes[0]},)" if len(sizes) == 1 else f"({', '.join(sizes)})"


def tight(code: str) -> str:
    """The text, in parentheses unless it binds tightly."""
    return Expr(code).operand


def tuple_of(parts: list[str]) -> str:
    """A tuple display as source."""
    return f"({parts[0]},)" if len(parts) == 1 else f"({', '.join(parts)})"


def is_call(code: str) -> bool:
    """Whether an operand stands alone between commas in a row's code, so that it needs no parentheses."""
    return "({0}," in code and code.count("{0}") == 1


def chosen(code: str) -> str:
    """``(a if True else b)`` is ``a``: rows may have a branch on an attribute."""
    match = re.fullmatch(r"\((.*) if (True|False) else (.*)\)", code)
    return code if match is None else match[1] if match[2] == "True" else match[3]
