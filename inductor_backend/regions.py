"""Which nodes of a segment become one Pallas kernel.

Input: a jitted segment's nodes. Output: disjoint groups, each convex (no path leaves a group and comes back). Law: a group
holds pointwise operators, reductions, views between them and at most the matrix products they feed or follow.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from torch.fx import Node

from inductor_backend.graph import Graph, Spec, flat, row_of
from inductor_backend.ops.table import MATMUL, POINTWISE, REDUCTION, VIEW


def none(nodes: list[Node], plan: Graph, wanted: list[Node]) -> list[list[Node]]:
    """No kernels: plain XLA."""
    return []
