"""Which lines of a segment become one Pallas kernel.

Input: a jitted segment's lines, in order. Output: disjoint groups, each convex (no path leaves a group and comes back).
Law: a group holds pointwise operators, reductions, matrix products, attention and the views between them; convolutions,
gathers, scatters, scans, sorts and random numbers stay plain array code.
"""

from __future__ import annotations

import operator

from torch.fx import Node

from inductor_backend.emit import Line
from inductor_backend.graph import Graph, Spec, arguments, row_of
from inductor_backend.ops.table import MATMUL, POINTWISE, REDUCTION, VIEW

_ATTENTION = "attention"
_FUSIBLE = (POINTWISE, REDUCTION, MATMUL, VIEW, _ATTENTION)
_WORK = (POINTWISE, REDUCTION, MATMUL, _ATTENTION)


def none(lines: list[Line], plan: Graph, flipped: dict[Node, str]) -> list[list[Line]]:
    """No kernels: plain XLA."""
    return []


def every(lines: list[Line], plan: Graph, flipped: dict[Node, str]) -> list[list[Line]]:
    """Every group that holds at least one operator that computes something."""
    return [g for g in _groups(lines, plan) if _work(g) >= 1]


def profitable(lines: list[Line], plan: Graph, flipped: dict[Node, str]) -> list[list[Line]]:
    """Groups that fuse something: two operators that compute, or a reduction or product with what surrounds it.

    A kernel without a grid costs on the CPU what plain array code costs, so this is about what is worth reading as a
    kernel; a single operator isn't.
    """
    return [g for g in _groups(lines, plan) if _work(g) >= 2]


def _kind(line: Line) -> str:
    if line.node is None:
        return "input"
    if line.check:
        return "check"
    if line.node.target is operator.getitem:
        return "getitem"
    entry = row_of(line.node)
    if entry is not None and entry.name.startswith("aten._scaled_dot_product_flash_attention"):
        return _ATTENTION
    return entry.kind if entry is not None else "other"


def _work(group: list[Line]) -> int:
    return sum(_kind(line) in _WORK for line in group)


def _eligible(line: Line, plan: Graph, names: dict[str, Line]) -> bool:
    kind = _kind(line)
    if line.node is None:
        return False
    if kind == "getitem":
        return _eligible(names[arguments(line.node)[0].name], plan, names)
    if kind not in _FUSIBLE:
        return False
    if kind == VIEW and not isinstance(plan.specs[line.node], Spec):
        return False
    specs = plan.specs[line.node]
    for spec in specs if isinstance(specs, list) else [specs]:
        # Pallas has no empty Refs and no complex ones.
        if spec is None or spec.numel == 0 or spec.dtype.is_complex:
            return False
    return True


def _groups(lines: list[Line], plan: Graph) -> list[list[Line]]:
    names = {line.name: line for line in lines}
    group: dict[str, int] = {}
    members: list[list[Line]] = []
    needs: list[set[int]] = []

    def reaches(start: int, goal: int) -> bool:
        seen, stack = set(), [start]
        while stack:
            g = stack.pop()
            if g == goal:
                return True
            if g not in seen:
                seen.add(g)
                stack.extend(needs[g])
        return False

    fusible: list[bool] = []
    for line in lines:
        ok = _eligible(line, plan, names)
        sources = {group[r] for r in line.reads if r in group}
        chosen = None
        if ok:
            for candidate in sorted(sources, reverse=True):
                if fusible[candidate] and not any(reaches(s, candidate) for s in sources if s != candidate):
                    chosen = candidate
                    break
        if chosen is None:
            chosen = len(members)
            members.append([])
            needs.append(set())
            fusible.append(ok)
        group[line.name] = chosen
        members[chosen].append(line)
        needs[chosen] |= sources - {chosen}
    return [_trimmed(m, lines) for m, ok in zip(members, fusible, strict=True) if ok]


def _trimmed(group: list[Line], lines: list[Line]) -> list[Line]:
    """A group without the views at its edge that only hand something on (they are free outside)."""
    inside = {line.name for line in group}
    changed = True
    while changed:
        changed = False
        for line in list(group):
            inner_reads = line.reads & inside
            inner_users = any(line.name in other.reads for other in group if other is not line)
            if _kind(line) == VIEW and (not inner_reads or not inner_users):
                group.remove(line)
                inside.discard(line.name)
                changed = True
    return group
