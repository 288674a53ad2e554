"""What a dimension is made of: the parts that padding may lengthen, in the order in which they lie.

Input: sizes as sympy expressions. Output: a dimension as a tuple of parts, outermost first: whole numbers, and sizes
that vary from call to call. Law: a padded tensor holds, along every varying part, the call's own elements first; a
view that splits or joins dimensions without cutting a varying part in two keeps that true.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from typing import Any

import sympy

#: A dimension; an empty one is a dimension of 1.
Dim = tuple[Any, ...]


def plain(size: Any) -> Any:
    """A size without divisions that leave no rest."""
    if not isinstance(size, sympy.Basic) or not size.has(sympy.Function):
        return size

    def divided(term: Any) -> Any:
        quotient = sympy.cancel(term.args[0] / term.args[1])
        return quotient if sympy.fraction(quotient)[1] == 1 else term

    return size.replace(lambda term: type(term).__name__ == "FloorDiv", divided)


def canonical(parts: Iterable[Any]) -> Dim:
    """Without ones, neighbouring whole numbers as their product."""
    found: list[Any] = []
    for part in parts:
        number = int(part) if isinstance(part, int) or part.is_Integer else None
        if number == 1:
            continue
        if number is not None and found and isinstance(found[-1], int):
            found[-1] *= number
        else:
            found.append(part if number is None else number)
    return tuple(found)


def size_of(dim: Dim) -> Any:
    """The dimension's size as an expression."""
    return sympy.Mul(*[sympy.sympify(part) for part in dim])


def parts_of(size: Any) -> list[Dim]:
    """The orders in which the factors of a size may lie: leading ones first, most likely first."""
    size = sympy.sympify(size)
    if size.is_Integer:
        return [canonical([size])]
    number, factors = 1, []
    factored: Any = sympy.factor(size)
    for factor in sympy.Mul.make_args(factored):
        if factor.is_Integer:
            number *= int(factor)
        elif isinstance(factor, sympy.Pow) and factor.exp.is_Integer and factor.exp > 0:
            factors += [factor.base] * int(factor.exp)
        else:
            factors.append(factor)
    orders = [*itertools.permutations(sorted(factors, key=str))]
    found = [canonical([*order, number]) for order in orders]
    if number != 1:
        found += [canonical([number, *order]) for order in orders]
        found += [canonical([*order[:1], number, *order[1:]]) for order in orders if len(order) > 1]
    whole: Any = sympy.expand(size)
    if isinstance(whole, sympy.Add) and len(found) > 1:
        found.append((whole,))  # made by joining: its own elements are in front of all
    return list(dict.fromkeys(found))


def regrouped(dims: Sequence[Dim], sizes: Sequence[Any]) -> list[Dim] | None:
    """The same parts under other sizes, or None when a varying part would be cut in two or change its place."""
    parts = list(itertools.chain.from_iterable(dims))[::-1]
    found: list[Dim] = []
    for size in sizes:
        rest, taken = sympy.sympify(size), []
        while rest != 1:
            if not parts:
                return None
            part = parts.pop()
            quotient, left = _divided(rest, part)
            if quotient is None and isinstance(part, int) and rest.is_Integer and part % int(rest) == 0:
                quotient, part, left = sympy.Integer(1), int(rest), part // int(rest)
            if quotient is None:
                return None
            taken.append(part)
            if left != 1:
                parts.append(left)
            rest = quotient
        found.append(canonical(taken))
    return found if not parts else None


def _divided(size: Any, part: Any) -> tuple[Any, Any]:
    """(size / part, 1) when the part divides it without a rest, else (None, part)."""
    quotient = sympy.cancel(size / part)
    if sympy.fraction(quotient)[1] != 1:
        return None, part
    return quotient, 1


def same_size(dim: Dim, size: Any) -> bool:
    """Whether a dimension has this size whatever the varying parts are."""
    size = sympy.sympify(size)
    return size_of(dim) == size or sympy.expand(size_of(dim) - size) == 0
