"""What padding does to an operator: one rule a kind of operator, in files by family.

Input: the rewriter at a node whose operands' dimensions are known. Output: the dimensions of its result, after operands
were masked where the operator reads across a padded dimension. Law: a rule that doesn't hold raises `Refused`; an
operator without a rule is refused as soon as it meets a padded dimension.
"""

from __future__ import annotations

import operator
from typing import Any

import torch

from inductor_backend.buckets.rewrite import Rewriter, constant
from inductor_backend.buckets.rules import (  # noqa: F401  (importing a family registers its rules)
    indexing,
    products,
    random,
    reductions,
    views,
)
from inductor_backend.buckets.rules.elementwise import by_element, elementwise
from inductor_backend.buckets.rules.table import RULES
from inductor_backend.graph import is_mutable, name_of, row_of


def apply(r: Rewriter, node: Any) -> None:
    """Find the dimensions of a node's result.

    Raises:
        Refused: the node has no rule, or its rule does not hold.
    """
    if node.target is operator.getitem:
        source, position = node.args
        r.dims[node] = None if r.dims[source] is None else r.dims[source][position]
        if source in r.clean:
            r.clean.add(node)
        return
    name, entry = name_of(node.target), row_of(node)
    if constant(r, node):
        values = node.meta.get("val")
        several = isinstance(values, (list, tuple))
        dims = [
            r.given_dims(node, v) if isinstance(v, torch.Tensor) else None for v in (values if several else [values])
        ]
        r.dims[node] = dims if several else dims[0]
        return
    if entry is None or is_mutable(node):
        raise r.refuse("it runs in ATen")
    found = RULES.get(name)
    if found is None and by_element(entry):
        found = elementwise
    if found is None:
        raise r.refuse("what it does with padding is not known")
    before = node
    dims = found(r, node)
    if dims is not None:
        r.dims[before] = dims


__all__ = ["RULES", "apply"]
