"""Dimensions of tiles on a GPU: one order for all of them, every broadcast written out.

Input: expressions with named dimensions. Output: their source at other dimensions. Law: Mosaic GPU has no dimension of
size 1 and no implicit broadcast, so a value has exactly the dimensions it varies along, in `Share.order`; counters are
written where they are used, at the dimensions they are used at.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from frontend_triton_compat.emit.expr import Expr
from frontend_triton_compat.emit.gpu.share import Share
from frontend_triton_compat.forms import Var

_COUNTER = re.compile("⟨(\\d+)⟩")
_NAME = re.compile(r"(?<![\w.])[A-Za-z_]\w*")


class Dimensions:
    """See the module; the `Broadcasting` of GPU emitters."""

    def __init__(self, share: Share, layout_rows: int):
        self.share = share
        self.layout_rows = layout_rows  # rows of the matrix unit's layout
        self.counters: list[Var] = []
        self.tiles: set[str] = set()  # names that are bound to tiles

    def counter(self, var: Var) -> str:
        """A counter of a tile variable's elements, to be written out later."""
        if var not in self.counters:
            self.counters.append(var)
        return f"⟨{self.counters.index(var)}⟩"

    def shape(self, dims: Sequence[Var | None]) -> str:
        """The shape of a tile, as source."""
        sizes = [str(self.share.sizes[d]) for d in dims if d is not None]
        return f"({sizes[0]},)" if len(sizes) == 1 else f"({', '.join(sizes)})"

    def layout(self, dims: Sequence[Var | None]) -> str:
        """The register layout of a tile, as source; "" where the compiler finds it."""
        if self.share.rows or not dims:
            return ""
        if len(dims) > 1:
            rows = self.share.sizes[dims[0]]  # type: ignore[index]
            return "LAYOUT" if rows % self.layout_rows == 0 else "plgpu.Layout.WGMMA"
        return f"LAYOUT.reduce({0 if self.is_column(dims[0]) else 1})"

    def is_column(self, var: Var | None) -> bool:
        """Whether a variable stands last in the tiles it shares with others."""
        return var is not None and self.share.order.index(var) > 0

    def resolve(self, expr: Expr, dims: Sequence[Var | None]) -> str:
        """The source of an expression with its counters written out at the given dimensions."""

        def written(match: re.Match[str]) -> str:
            var = self.counters[int(match[1])]
            at, layout = list(dims).index(var), self.layout(dims)
            if layout:
                return f"plgpu.broadcasted_iota(jnp.int32, {self.shape(dims)}, {at}, layout={layout})"
            return f"lax.broadcasted_iota(jnp.int32, {self.shape(dims)}, {at})"

        return _COUNTER.sub(written, expr.code)

    def union(self, exprs: Sequence[Expr]) -> tuple[Var, ...]:
        """Every variable once, in the order of all tiles."""
        found = {v for e in exprs for v in e.vars}
        return tuple(v for v in self.share.order if v in found)

    def align(self, expr: Expr, target: Sequence[Var | None]) -> str:
        """Source of an expression at exactly these dimensions; numbers and scalars are left alone."""
        if not expr.dims:
            return expr.code
        if tuple(expr.dims) == tuple(target):
            return expr.code
        if _COUNTER.search(expr.code) and self.tiles.isdisjoint(_NAME.findall(expr.code)):
            return self.resolve(expr, target)
        at = tuple(list(target).index(d) for d in expr.dims)
        return f"lax.broadcast_in_dim({self.resolve(expr, expr.dims)}, {self.shape(target)}, {at})"
