"""Facts about values that follow from facts about other values, loops included.

Input: a value, the values that its fact is read from, a rule. Output: the facts of every value on the way. Law: the
facts are a fixed point of the rule, so what is assumed at first inside a loop is never believed longer than it holds;
chains of any length are followed without recursion.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

from frontend_triton_compat.ir import Value

Fact = TypeVar("Fact")


def settle(
    start: Value,
    known: dict[Value, Fact],
    sources: Callable[[Value], Iterable[Value]],
    rule: Callable[[Value], Fact],
    first: Fact,
) -> None:
    """Find the facts of a value and of all that it depends on.

    Args:
        start: the value.
        known: facts found before, which hold; the new ones are added.
        sources: the values whose facts `rule` reads for a value.
        rule: a value's fact, from `known`.
        first: what is assumed until the rule says otherwise; the rule moves facts in one direction only.
    """
    order: list[Value] = []
    path = [(start, iter(sources(start)))]
    seen = {start}
    while path:
        value, rest = path[-1]
        following = next((v for v in rest if v not in seen and v not in known), None)
        if following is None:
            order.append(value)
            path.pop()
        else:
            seen.add(following)
            path.append((following, iter(sources(following))))
    known.update(dict.fromkeys(order, first))
    changed = True
    while changed:
        changed = False
        for value in order:
            fact = rule(value)
            if fact != known[value]:
                known[value], changed = fact, True
