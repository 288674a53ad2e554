"""ATen operators as array functions: one row an operator, in files by family.

`ROWS` maps an overload's name (``aten.add.Tensor``) to its `Row`. A new operator is one function in the file of its
family; a duplicate raises at import. Emitted source calls the functions by `Row.ident` through `functions()`.
"""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from inductor_backend.compat import load_prims
from inductor_backend.ops import (  # noqa: F401  (importing a family registers its rows)
    activations,
    attention,
    bags,
    experts,
    fourier,
    indexing,
    linalg,
    matmul,
    order,
    pointwise,
    pooling,
    random,
    reductions,
    resampling,
    shape,
    special,
)
from inductor_backend.ops.table import DTYPES, ROWS, Out, Row, cast

load_prims()


def functions() -> SimpleNamespace:
    """Every row's function under its emitted name."""
    table: dict[str, Callable[..., Any]] = {r.ident: r.fn for r in ROWS.values()}
    return SimpleNamespace(**table)


def undecomposed() -> frozenset[str]:
    """The overloads that no decomposition may take apart before their rows see them."""
    return frozenset(name for name, entry in ROWS.items() if entry.undecomposed)


__all__ = ["DTYPES", "ROWS", "Out", "Row", "cast", "functions", "undecomposed"]
