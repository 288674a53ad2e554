"""Which lines of a segment become one TPU kernel.

Input: a segment's lines, in order. Output: disjoint groups, each convex and with a layout for the chip. Law: a line
joins the kernels that it reads from when their axes agree and something is left for a grid to cut; a line without a
form, or one that the compiler refused inside a kernel, stays plain array code.
"""

from __future__ import annotations

import math
from collections.abc import Collection

from torch.fx import Node

from inductor_backend.emit import Line
from inductor_backend.graph import Graph, Spec, arguments, name_of
from inductor_backend.kernels.axes import Apart
from inductor_backend.kernels.forms import REDUCTIONS, Context, Shapes, entry_of
from inductor_backend.kernels.layout import Layout

#: Bytes up to which a group whose axes are all reduced is one block.
SMALL = 1 << 20
#: Lines of a group: more take long to compile.
_MOST_LINES = 160
_WORK = ("map", "reduce", "rowwise", "pick", "product", "attention")


class Former:
    """Forms the groups of one segment.

    Args:
        lines: of the segment.
        plan: it belongs to.
        flipped: see `forms.Context`.
        chip: ``v5e`` ...
        refused: nodes that may not be inside a kernel.
        wanted: names of values that leave the segment.
        small: see `SMALL`.
    """

    def __init__(
        self,
        lines: list[Line],
        plan: Graph,
        flipped: dict[Node, str],
        chip: str,
        refused: Collection[str],
        small: int | None = None,
    ):
        self.lines, self.plan, self.chip, self.refused = lines, plan, chip, refused
        small = self.small = SMALL if small is None else small
        self.place = {line.name: i for i, line in enumerate(lines)}
        self.readers: dict[str, set[str]] = {}
        for line in lines:
            for name in line.reads:
                self.readers.setdefault(name, set()).add(line.name)
        shapes, dtypes = {}, {}
        for node, spec in plan.specs.items():
            one = spec[0] if isinstance(spec, list) and spec else spec
            if isinstance(one, Spec):
                shapes[node.name], dtypes[node.name] = one.shape, one.dtype
                order = one.order()
                if order is not None:
                    shapes[f"{node.name}_stored"] = tuple(one.shape[d] for d in order)
                    dtypes[f"{node.name}_stored"] = one.dtype
        loose = {line.name for line in lines if self._loose(line)}
        self.context = Context(plan, flipped, shapes, dtypes, loose, small)

    # ------------------------------------------------------------------------------------------------- forming
    def groups(self) -> list[list[Line]]:
        """The groups, each in the order of the segment."""
        home: dict[str, int] = {}
        members: list[list[Line]] = []
        needs: list[set[int]] = []
        kernel: list[bool] = []
        dead: set[int] = set()
        for line in self.lines:
            sources = {home[r] for r in line.reads if r in home}
            joined: list[int] = []
            able = self._able(line)
            if able:
                loose = {home[r] for r in line.reads if r in self.context.loose and r in home}
                candidates = sorted((s for s in sources if kernel[s] and s not in loose), reverse=True)
                tries = [candidates] if len(candidates) < 2 else [candidates, *([c] for c in candidates)]
                for attempt in tries:
                    if not attempt or self._cyclic(set(attempt), sources, needs):
                        continue
                    together = sorted((m for s in attempt for m in members[s]), key=lambda m: self.place[m.name])
                    if len(together) < _MOST_LINES and self._plausible([*together, line]):
                        joined = attempt
                        break
            if not joined:
                home[line.name] = len(members)
                members.append([line])
                needs.append(set(sources))
                kernel.append(able and self._plausible([line]))
                continue
            first, rest = joined[0], joined[1:]
            for other in rest:
                members[first] += members[other]
                needs[first] |= needs[other]
                members[other] = []
                dead.add(other)
            members[first] = sorted([*members[first], line], key=lambda m: self.place[m.name])
            for m in members[first]:
                home[m.name] = first
            needs[first] = (needs[first] | sources) - {first, *rest}
            for need in needs:
                if need & set(rest):
                    need -= set(rest)
                    need.add(first)
            needs[first].discard(first)
        found = [self._trimmed(m) for m, k in zip(members, kernel, strict=True) if m and k]
        return [g for g in found if self._worth(g)]

    def _able(self, line: Line) -> bool:
        return (
            line.node is not None
            and not line.check
            and line.node.name not in self.refused
            and entry_of(line.node, self.plan) is not None
        )

    @staticmethod
    def _cyclic(merged: set[int], sources: set[int], needs: list[set[int]]) -> bool:
        """Whether something outside depends on a part of the merged group and is needed by another part."""
        stack = [s for s in sources - merged] + [n for m in merged for n in needs[m] - merged]
        seen: set[int] = set()
        while stack:
            group = stack.pop()
            if group in merged:
                return True
            if group not in seen:
                seen.add(group)
                stack.extend(needs[group])
        return False

    def _loose(self, line: Line) -> bool:
        """Whether a line sums, and nothing of the shape that it sums depends on the result."""
        node = line.node
        if node is None or line.check or name_of(node.target) not in REDUCTIONS:
            return False
        if not REDUCTIONS[name_of(node.target)].parts:
            return False
        spec, source = self.plan.specs[node], arguments(node)[0]
        given = self.plan.specs.get(source)
        if not isinstance(spec, Spec) or not isinstance(given, Spec) or given.numel * 4 <= self.small:
            return False
        stack, seen = [line.name], set()
        while stack:
            for reader in self.readers.get(stack.pop(), ()):
                node = self.lines[self.place[reader]].node
                result = self.plan.specs.get(node) if node is not None else None
                if isinstance(result, Spec) and result.numel > spec.numel:
                    return False
                if reader not in seen:
                    seen.add(reader)
                    stack.append(reader)
        return True

    # ------------------------------------------------------------------------------------------------- judging
    def layout(self, group: list[Line], leaving: Collection[str] | None = None, factor: float = 1.0) -> Layout:
        """The layout of a group.

        Raises:
            Apart: it can't be one kernel.
        """
        shapes = Shapes(self.context)
        for line in group:
            assert line.node is not None
            shapes.add(line.node)
        inside = {line.name for line in group}
        reads = {r for form in shapes.forms.values() for r in form.reads} - inside
        if leaving is None:
            leaving = {n for n in inside if not self.readers.get(n, set()) & inside}
        layout = Layout(shapes, reads | set(leaving))
        last = {r: i for i, line in enumerate(group) for r in shapes.forms[line.name].reads}
        layout.fit(self.chip, [line.name for line in group], last, factor)
        return layout

    def _plausible(self, group: list[Line]) -> bool:
        try:
            layout = self.layout(group)
        except Apart:
            return False
        if any(not a.whole and a.size > 1 for a in layout.axes):
            return True
        return sum(math.prod(a.shape) * 4 for n, a in layout.arrays.items() if n in layout.outside) <= self.small

    def _trimmed(self, group: list[Line]) -> list[Line]:
        """Without the views and constants at its edge that only hand something on."""
        group = list(group)
        changed = True
        while changed:
            changed = False
            inside = {line.name for line in group}
            for line in list(group):
                kind = entry_of(line.node, self.plan) if line.node is not None else None
                if kind not in ("view", "fill", "item", "iota"):
                    continue
                inner_reads, inner_users = line.reads & inside, self.readers.get(line.name, set()) & inside
                if not inner_users or (kind == "view" and not inner_reads):
                    if kind == "item" and inner_reads:
                        continue
                    group.remove(line)
                    inside.discard(line.name)
                    changed = True
        return group

    def _worth(self, group: list[Line]) -> bool:
        """Whether a group computes something."""
        if not any(line.node is not None and entry_of(line.node, self.plan) in _WORK for line in group):
            return False
        inside = {line.name for line in group}
        for line in group:  # several results leave one by one
            spec = self.plan.specs.get(line.node) if line.node is not None else None
            if isinstance(spec, list) and self.readers.get(line.name, set()) - inside:
                return False
        return self._plausible(group)
