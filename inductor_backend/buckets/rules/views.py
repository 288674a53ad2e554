"""Views, joins and borders.

Input: the rewriter at a node. Output: its dimensions. Law: a padded dimension stays whole, and its own elements first.
"""

from __future__ import annotations

from typing import Any

import sympy
import torch
from torch.fx import Node

from inductor_backend.buckets.lines import Dim, canonical, regrouped, size_of
from inductor_backend.buckets.rewrite import Rewriter, expression
from inductor_backend.buckets.rules.table import broadcast, operand, rule, wide
from inductor_backend.graph import name_of

aten, prims = torch.ops.aten, torch.ops.prims


def _keep_clean(r: Rewriter, node: Any) -> None:
    if node.args[0] in r.clean:
        r.clean.add(node)


@rule("aten.view.default", "aten._unsafe_view.default", "aten.reshape.default", "aten._reshape_alias.default")
def view(r: Rewriter, node: Any) -> list[Dim]:
    """Other sizes for the same parts."""
    found = regrouped(operand(r, node.args[0]), r.shape(node))
    if found is None:
        raise r.refuse("it joins or splits a padded dimension where padding is not behind everything")
    _keep_clean(r, node)
    return found


@rule("aten.permute.default")
def permute(r: Rewriter, node: Any) -> list[Dim]:
    """Dimensions in another order."""
    _keep_clean(r, node)
    dims = operand(r, node.args[0])
    return [dims[d] for d in node.args[1]]


@rule("aten.transpose.int")
def transpose(r: Rewriter, node: Any) -> list[Dim]:
    """Two dimensions swapped."""
    _keep_clean(r, node)
    dims = list(operand(r, node.args[0]))
    a, b = node.args[1:3]
    dims[a], dims[b] = dims[b], dims[a]
    return dims


@rule("aten.t.default")
def t(r: Rewriter, node: Any) -> list[Dim]:
    """A matrix transposed."""
    _keep_clean(r, node)
    return operand(r, node.args[0])[::-1]


@rule("aten.expand.default")
def expand(r: Rewriter, node: Any) -> list[Dim]:
    """Dimensions of 1 repeated."""
    dims, sizes = operand(r, node.args[0]), r.given_dims(node)
    lead = len(sizes) - len(dims)
    return [s if d < lead or dims[d - lead] == () else dims[d - lead] for d, s in enumerate(sizes)]


@rule("aten.unsqueeze.default")
def unsqueeze(r: Rewriter, node: Any) -> list[Dim]:
    """A dimension of 1 inserted."""
    _keep_clean(r, node)
    dims = list(operand(r, node.args[0]))
    dims.insert(node.args[1] % (len(dims) + 1), ())
    return dims


@rule("aten.squeeze.dim", "aten.squeeze.dims", "aten.squeeze.default")
def squeeze(r: Rewriter, node: Any) -> list[Dim]:
    """Dimensions of 1 removed."""
    _keep_clean(r, node)
    dims = operand(r, node.args[0])
    given = node.args[1] if len(node.args) > 1 else range(len(dims))
    gone = {d % len(dims) for d in (given if isinstance(given, (list, tuple, range)) else [given])}
    return [dim for d, dim in enumerate(dims) if d not in gone or dim != ()]


def _bounds(node: Any) -> tuple[Any, Any, Any]:
    given = [*node.args[2:], None, None, None][:3]
    names = ("start", "end", "step")
    return tuple(node.kwargs.get(n, g) for n, g in zip(names, given))


def _settled(argument: Any) -> Any:
    """A number that is known, whatever carries it."""
    number = expression(argument.meta.get("val") if isinstance(argument, Node) else argument)
    return int(number) if isinstance(number, sympy.Integer) else number


@rule("aten.slice.Tensor")
def slice_(r: Rewriter, node: Any) -> list[Dim] | None:
    """Every step-th element: from the front up to a size that varies too; other places are looked up one by one."""
    x, dims = node.args[0], list(operand(r, node.args[0]))
    d = (node.args[1] if len(node.args) > 1 else 0) % len(dims)
    start, end, step = map(_settled, _bounds(node))
    made = r.given_dims(node)[d]
    varies = r.varies(dims[d])
    if made == dims[d]:
        return dims
    front = start is None or (isinstance(start, int) and start >= 0)
    steady = not any(isinstance(n, sympy.Basic) and n.free_symbols & r.symbols for n in (start, end))
    if not varies and steady:
        _keep_clean(r, node)
        dims[d] = made
        return dims
    if step not in (None, 1) or (varies and len(dims[d]) != 1):
        raise r.refuse("it takes every second element, or so, of a padded dimension")
    if varies and front:
        dims[d] = made
        return dims
    length = own_length(r, dims[d]) if varies else size_of(dims[d])
    first: Any = (start or 0) if isinstance(start, int | None) else r.value(node.args[2])
    places = counted(r, made)
    if isinstance(first, Node):
        length = length if isinstance(length, Node) else int(length)
        behind = r.call(aten.add.Tensor, first, length)
        first = r.call(aten.where.self, r.call(aten.lt.Scalar, first, 0), behind, first)
    elif first < 0:
        first = r.call(aten.add.Tensor, length, first) if isinstance(length, Node) else int(length) + first
    places = r.call(aten.add.Tensor, places, first, dims=[made])
    last = r.symbolic(sympy.sympify(size_of(dims[d])) - 1)
    places = r.call(aten.clamp_min.default, places, 0, dims=[made])
    places = r.call(aten.clamp_max.default, places, last, dims=[made])
    r.replace(r.call(aten.index_select.default, x, d, places, dims=[*dims[:d], made, *dims[d + 1 :]]))
    return None


@rule("aten.select.int")
def select(r: Rewriter, node: Any) -> list[Dim] | None:
    """One element of a dimension; one that counts from the end is looked up where the call's own elements end."""
    x, d, index = node.args
    dims = operand(r, x)
    d %= len(dims)
    rest = [dim for i, dim in enumerate(dims) if i != d]
    if not r.varies(dims[d]) or (isinstance(index, int) and index >= 0 and r.single(dims[d])):
        return rest
    if len(dims[d]) != 1:
        raise r.refuse("it takes an element out of a padded dimension that is several in one")
    place = r.value(index)
    if isinstance(index, int):
        place = r.call(aten.add.Tensor, r.number(dims[d][0]), index)
    elif not isinstance(place, Node):
        raise r.refuse("its index is a number that varies")
    place = r.call(aten.view.default, place, [1], dims=[()])
    taken = r.call(aten.index_select.default, x, d, place, dims=[*dims[:d], (), *dims[d + 1 :]])
    r.replace(r.call(aten.squeeze.dim, taken, d, dims=rest))
    return None


@rule("aten.split.Tensor", "aten.split_with_sizes.default", "aten.unbind.int")
def split(r: Rewriter, node: Any) -> list[list[Dim]]:
    """Pieces of a dimension that is not padded."""
    dims = operand(r, node.args[0])
    given = node.args[-1] if name_of(node.target) == "aten.unbind.int" else (node.args[2] if len(node.args) > 2 else 0)
    d = (given if len(node.args) > 1 and isinstance(given, int) else 0) % len(dims)
    if r.varies(dims[d]):
        raise r.refuse("it takes a padded dimension apart")
    if name_of(node.target) == "aten.unbind.int":
        return [[dim for i, dim in enumerate(dims) if i != d] for _ in node.meta["val"]]
    return [[r.given_dims(node, v)[d] if i == d else dim for i, dim in enumerate(dims)] for v in node.meta["val"]]


@rule("aten.cat.default", "aten.stack.default")
def cat(r: Rewriter, node: Any) -> list[Dim] | None:
    """Arrays joined: what pads one of them goes behind all."""
    arrays = [operand(r, a) for a in node.args[0]]
    d = node.args[1] if len(node.args) > 1 else node.kwargs.get("dim", 0)
    if name_of(node.target) == "aten.stack.default":
        dims = broadcast(r, *arrays)
        dims.insert(d % (len(dims) + 1), r.given_dims(node)[d])
        return dims
    d %= len(node.meta["val"].shape)
    arrays = [a for a in arrays if len(a) == len(node.meta["val"].shape)]
    lines = [[() if i == d else dim for i, dim in enumerate(a)] for a in arrays]
    dims = broadcast(r, *lines)
    if not any(r.varies(a[d]) for a in arrays[:-1]):
        dims[d] = r.given_dims(node)[d]  # what pads the last one pads the result
        return dims
    parts = [x for x in node.args[0] if len(r.dims[x]) == len(dims)]
    dtype = node.meta["val"].dtype
    joined = wide(r, parts[0], dtype)
    for part in parts[1:]:
        joined = _behind(r, joined, wide(r, part, dtype), d)
    r.replace(joined)
    return None


def _behind(r: Rewriter, x: Any, y: Any, d: int) -> Any:
    """Two tensors joined where the own elements of the first end."""
    dims = broadcast(r, *[[() if i == d else dim for i, dim in enumerate(r.dims[a])] for a in (x, y)])
    if not r.varies(r.dims[x][d]):
        dims[d] = canonical([sympy.expand(size_of(r.dims[x][d]) + size_of(r.dims[y][d]))])
        return r.call(aten.cat.default, [x, y], d, dims=dims)
    length = own_length(r, r.dims[x][d])
    whole = canonical([sympy.expand(size_of(r.dims[x][d]) + size_of(r.dims[y][d]))])
    places, laid = counted(r, whole), [whole if i == d else () for i in range(len(dims))]
    last = lambda dim: r.symbolic(sympy.sympify(size_of(dim)) - 1)
    front = r.call(aten.clamp_max.default, places, last(r.dims[x][d]), dims=[whole])
    rest = r.call(aten.sub.Tensor, places, length, dims=[whole])
    rest = r.call(aten.clamp_min.default, rest, 0, dims=[whole])
    rest = r.call(aten.clamp_max.default, rest, last(r.dims[y][d]), dims=[whole])
    own = r.call(aten.view.default, r.call(aten.lt.Tensor, places, length, dims=[whole]),
                 [r.symbolic(size_of(dim)) for dim in laid], dims=laid)  # fmt: skip
    dims[d] = whole
    front, rest = (r.call(aten.index_select.default, a, d, i, dims=dims) for a, i in ((x, front), (y, rest)))
    return r.call(aten.where.self, own, front, rest, dims=dims)


@rule("aten.flip.default", "prims.rev.default")
def flip(r: Rewriter, node: Any) -> list[Dim] | None:
    """Dimensions reversed: a padded one from its own end."""
    x, dims = node.args[0], operand(r, node.args[0])
    varying = [d % len(dims) for d in node.args[1] if r.varies(dims[d])]
    if not varying:
        return dims
    rest = [d % len(dims) for d in node.args[1] if d % len(dims) not in varying]
    if rest:
        x = r.call(node.target, x, rest, dims=dims)
    for d in varying:
        last = r.call(aten.sub.Tensor, own_length(r, dims[d]), 1)
        places = r.call(aten.sub.Tensor, last, counted(r, dims[d]), dims=[dims[d]])
        places = r.call(aten.clamp_min.default, places, 0, dims=[dims[d]])
        x = r.call(aten.index_select.default, x, d, places, dims=dims)
    r.replace(x)
    return None


def own_length(r: Rewriter, dim: Dim) -> Any:
    """The call's own size of a padded dimension.

    Raises:
        Refused: it is several dimensions in one.
    """
    if len(dim) != 1:
        raise r.refuse("a padded dimension that is several in one is used from its end")
    return r.number(dim[0]) if r.varies(dim) else int(dim[0])


def counted(r: Rewriter, dim: Dim) -> Any:
    """The places along a dimension."""
    return r.call(prims.iota.default, r.symbolic(size_of(dim)), start=0, step=1, dtype=torch.int64,
                  device=torch.device("cpu"), requires_grad=False, dims=[dim])  # fmt: skip


@rule("aten.constant_pad_nd.default")
def constant_pad(r: Rewriter, node: Any) -> list[Dim]:
    """Borders: what pads already takes the border's value first."""
    dims = list(operand(r, node.args[0]))
    pads, made = node.args[1], r.given_dims(node)
    value = node.args[2] if len(node.args) > 2 else node.kwargs.get("value", 0)
    touched = [len(dims) - 1 - i for i in range(len(pads) // 2) if pads[2 * i] != 0 or pads[2 * i + 1] != 0]
    for d in touched:
        if r.varies(dims[d]):
            if len(dims[d]) != 1 or not all(isinstance(p, int) for p in pads):
                raise r.refuse("it borders a padded dimension that is several in one")
            r.set_argument(0, r.filled(node.args[0], value, [d]))
        dims[d] = made[d]
    return dims


@rule("aten.tril.default", "aten.triu.default")
def triangle(r: Rewriter, node: Any) -> list[Dim]:
    """A part on one side of a diagonal: which one is a matter of places counted from the front."""
    dims = operand(r, node.args[0])
    if not all(r.single(d) for d in dims[-2:]) or r.value(node.args[-1]) is not node.args[-1]:
        raise r.refuse("its diagonal crosses padding")
    return dims


@rule("aten.slice_scatter.default")
def slice_scatter(r: Rewriter, node: Any) -> list[Dim] | None:
    """A slice replaced that starts at the front, and ends where the call's own elements do."""
    x, source = node.args[:2]
    dims, given = operand(r, x), operand(r, source)
    named = dict(zip(("dim", "start", "end", "step"), node.args[2:])) | dict(node.kwargs)
    d = named.get("dim", 0) % len(dims)
    broadcast(r, *[[() if i == d else dim for i, dim in enumerate(one)] for one in (dims, given)])
    start, step = named.get("start") or 0, named.get("step", 1)
    start = _settled(start)
    if not r.varies(dims[d]) and not r.varies(given[d]):
        return dims
    if not isinstance(start, int) or start < 0 or step != 1:
        raise r.refuse("it writes to a slice that does not start at the front")
    if given[d] == dims[d]:
        r.replace(wide(r, source, x.meta["val"].dtype))
        return None
    length, places = own_length(r, given[d]), counted(r, dims[d])
    moved = r.call(aten.sub.Tensor, places, start, dims=[dims[d]])
    inside = r.call(aten.bitwise_and.Tensor, r.call(aten.ge.Scalar, moved, 0, dims=[dims[d]]),
                    r.call(aten.lt.Tensor, moved, length, dims=[dims[d]]), dims=[dims[d]])  # fmt: skip
    last = r.symbolic(sympy.sympify(size_of(given[d])) - 1)
    at = r.call(aten.clamp_min.default, r.call(aten.clamp_max.default, moved, last, dims=[dims[d]]), 0, dims=[dims[d]])
    laid = [dim if i == d else () for i, dim in enumerate(dims)]
    inside = r.call(aten.view.default, inside, [r.symbolic(size_of(dim)) for dim in laid], dims=laid)
    spread = [dims[d] if i == d else dim for i, dim in enumerate(given)]
    source = r.call(aten.index_select.default, wide(r, source, x.meta["val"].dtype), d, at, dims=spread)
    r.replace(r.call(aten.where.self, inside, source, x, dims=dims))
    return None


@rule("aten.select_scatter.default")
def select_scatter(r: Rewriter, node: Any) -> list[Dim] | None:
    """One element of a dimension replaced; one that counts from the end where the call's own elements end."""
    x, source, d, index = node.args
    dims = operand(r, x)
    d %= len(dims)
    broadcast(r, [dim for i, dim in enumerate(dims) if i != d], operand(r, source))
    if not r.varies(dims[d]) or (isinstance(index, int) and index >= 0 and r.single(dims[d])):
        return dims
    if not isinstance(index, int):
        raise r.refuse("its index is a number that varies")
    place = r.call(aten.add.Tensor, own_length(r, dims[d]), index)
    here = r.call(aten.eq.Tensor, counted(r, dims[d]), place, dims=[dims[d]])
    laid = [dim if i == d else () for i, dim in enumerate(dims)]
    here = r.call(aten.view.default, here, [r.symbolic(size_of(dim)) for dim in laid], dims=laid)
    lifted = [() if i == d else dim for i, dim in enumerate(dims)]
    source = r.call(aten.unsqueeze.default, wide(r, source, x.meta["val"].dtype), d, dims=lifted)
    r.replace(r.call(aten.where.self, here, source, x, dims=dims))
    return None
