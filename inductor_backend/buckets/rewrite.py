"""A graph with sizes that vary as one that computes on padded tensors.

Input: an ATen graph. Output: `Padded`: the same graph with masks where an operator would read what lies behind a
tensor's own elements, and what to pad and to cut around it. Law: along a padded dimension every value holds its own
elements first; what follows them may be anything, and no element that leaves depends on it. An operator whose rule is
not known raises `Refused`, and the graph is not padded.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import sympy
import torch
from torch.fx import Node

from inductor_backend.buckets.lines import Dim, parts_of, plain, same_size, size_of
from inductor_backend.compat import fake_mode_of, pytree
from inductor_backend.graph import flat, is_write, shared_root, sorted_nodes

aten, prims = torch.ops.aten, torch.ops.prims
_TRIES = 24
_NUMBERS = (int, float, bool, torch.SymInt, torch.SymFloat, torch.SymBool)


class Refused(Exception):
    """A graph can't be padded: at which node, and why."""

    def __init__(self, node: Node | None, why: str):
        super().__init__(why)
        self.node, self.why = node, why
        #: how many nodes were understood before
        self.depth = -1


@dataclass
class Padded:
    """A graph that computes on padded tensors.

    Attributes:
        gm: the graph; its first inputs are `sizes` and `numbers`, where there are any.
        symbols: the sizes that are padded.
        known: what other sizes are: numbers, or as large as one of `symbols`.
        dims: of every input of the original graph, its dimensions (None for a number).
        sizes: expressions whose values in a call the first input holds, one int64 each.
        numbers: expressions whose values the second input holds, one float64 each.
        outputs: of every output of the original graph, its dimensions (None where nothing is cut).
        writes: inputs that the graph mutates and that are padded: position of the input, and of the output that holds
            its new value.
        shared: values of the original graph in whose memory several outputs lie: position of the output that holds
            the value, and those of the outputs.
    """

    gm: torch.fx.GraphModule
    symbols: frozenset[Any]
    known: Mapping[Any, Any]
    dims: list[Any]
    sizes: list[Any]
    numbers: list[Any]
    outputs: list[Any] = field(default_factory=list)
    writes: list[tuple[int, int]] = field(default_factory=list)
    shared: list[tuple[Node, int, list[int]]] = field(default_factory=list)


def expression(number: Any) -> Any:
    """A size or number as a sympy expression."""
    return plain(number.node.expr) if isinstance(number, (torch.SymInt, torch.SymFloat, torch.SymBool)) else number


def shape_symbols(gm: torch.fx.GraphModule) -> frozenset[Any]:
    """The symbols that sizes of a graph's inputs are made of."""
    values = [n.meta.get("val") for n in gm.graph.nodes if n.op == "placeholder"]
    sizes = [expression(size) for v in values if isinstance(v, torch.Tensor) for size in v.shape]
    return frozenset(s for e in sizes if isinstance(e, sympy.Basic) for s in e.free_symbols)


def padded(gm: torch.fx.GraphModule, symbols: frozenset[Any], known: Mapping[Any, Any]) -> Padded:
    """The graph on padded tensors.

    Args:
        gm: the graph.
        symbols: the sizes that are padded.
        known: what the other sizes are: numbers, or in terms of `symbols`.

    Raises:
        Refused: an operator would mix a tensor's own elements with what pads it.
    """
    found = [plain(e.xreplace(known)) for n in gm.graph.nodes for e in _varying(n, symbols)]
    sizes = dict.fromkeys(e for e in found if len(parts_of(e)) > 1)
    tried = itertools.islice(itertools.product(*[parts_of(e) for e in sizes]), _TRIES)
    refusal: Refused | None = None
    for orders in tried:
        try:
            return Rewriter(gm, symbols, known, dict(zip(sizes, orders, strict=True))).result()
        except Refused as refused:
            refusal = refused if refusal is None or refused.depth > refusal.depth else refusal
    raise refusal or Refused(None, "it has no sizes that vary")


def _varying(node: Any, symbols: frozenset[Any]) -> list[Any]:
    """The sizes of an input, or of what an operator without tensors makes, that vary from call to call."""
    value = node.meta.get("val")
    made = node.op == "placeholder" or (node.op == "call_function" and not _tensors(node))
    if not made or not isinstance(value, torch.Tensor):
        return []
    return [e for e in map(expression, value.shape) if isinstance(e, sympy.Basic) and e.free_symbols & symbols]


def _tensors(node: Any) -> list[Node]:
    return [n for n in flat((node.args, node.kwargs)) if not isinstance(n.meta.get("val"), _NUMBERS)]


class Rewriter:
    """Follows the dimensions through a copy of the graph, and puts masks into it."""

    def __init__(
        self, gm: torch.fx.GraphModule, symbols: frozenset[Any], known: Mapping[Any, Any], orders: Mapping[Any, Dim]
    ):
        graph = torch.fx.Graph()
        copies: dict[Node, Node] = {}
        output = graph.graph_copy(gm.graph, copies)
        made = graph.output(output)
        made.meta = dict(next(n for n in gm.graph.nodes if n.op == "output").meta)
        self.source, self.copies = gm, copies
        self.gm = torch.fx.GraphModule(gm, graph)
        self.graph, self.orders = self.gm.graph, orders
        self.inputs = [n for n in self.graph.nodes if n.op == "placeholder"]
        self.dims: dict[Node, Any] = {}
        #: values whose padding is zeros
        self.clean: set[Node] = set()
        self.masks: dict[Any, Node] = {}
        #: expressions of whole numbers, and of other numbers, as 0-d tensors
        self.numbers: tuple[dict[Any, Node], dict[Any, Node]] = {}, {}
        self.writes: list[tuple[Node, Node]] = []
        self.here: Node = next(iter(self.graph.nodes))
        self.mode = fake_mode_of([n.meta.get("val") for n in self.graph.nodes])
        self.symbols, self.sizes, self.known = symbols, shape_symbols(gm), known
        for node in self.graph.nodes if known and self.mode is not None else ():
            if "val" in node.meta:
                node.meta["val"] = pytree.tree_map(functools.partial(self.settled, known), node.meta["val"])
        with self.graph.inserting_before(self.here):
            self.given = [self.graph.placeholder("true_sizes"), self.graph.placeholder("true_numbers")]

    def settled(self, known: Mapping[Any, Any], value: Any) -> Any:
        """An example value with the sizes that are known."""
        if isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)):
            number = expression(value)
            if not number.free_symbols & known.keys():
                return value
            found = plain(number.xreplace(known))
            if isinstance(value, torch.SymInt):
                return self.symbolic(found)
            if found.free_symbols:
                env = self.mode.shape_env
                made = env.create_symfloatnode if isinstance(value, torch.SymFloat) else env.create_symboolnode
                return made(found, **({"hint": None} if isinstance(value, torch.SymFloat) else {}))
            return float(found) if isinstance(value, torch.SymFloat) else bool(found)
        if not isinstance(value, torch.Tensor) or value.layout is not torch.strided:
            return value
        numbers = [*value.shape, *value.stride(), value.storage_offset()]
        if not any(expression(n).free_symbols & known.keys() for n in numbers if isinstance(n, torch.SymInt)):
            return value
        found = [n if isinstance(n, int) else self.symbolic(plain(expression(n).xreplace(known))) for n in numbers]
        shape, strides, offset = found[: value.dim()], found[value.dim() : -1], found[-1]
        with self.mode:
            room = offset + sum((n - 1) * s for n, s in zip(shape, strides)) + 1
            return torch.empty((room,), dtype=value.dtype).as_strided(shape, strides, offset)

    # ---------------------------------------------------------------------------------------------- dimensions
    def varies(self, dim: Dim) -> bool:
        """Whether a dimension is padded."""
        return any(self.part_varies(part) for part in dim)

    def part_varies(self, part: Any) -> bool:
        """Whether a part of a dimension is padded."""
        return isinstance(part, sympy.Basic) and bool(part.free_symbols & self.symbols)

    def padded_dims(self, node: Any) -> list[int]:
        """The positions of a value's padded dimensions."""
        return [d for d, dim in enumerate(self.dims[node]) if self.varies(dim)]

    def single(self, dim: Dim) -> bool:
        """Whether a dimension's own elements come first, and all that pads it behind them."""
        return not any(self.part_varies(part) for part in dim[1:])

    def shape(self, node: Any, value: Any = None) -> list[Any]:
        """A value's sizes as expressions."""
        return [expression(n) for n in (node.meta["val"] if value is None else value).shape]

    def given_dims(self, node: Any, value: Any = None) -> list[Dim]:
        """The dimensions of an input, or of what an operator makes of nothing."""
        found = []
        for size in self.shape(node, value):
            dim = self.orders.get(size) if isinstance(size, sympy.Basic) else None
            found.append(parts_of(size)[0] if dim is None else dim)
        return found

    def refuse(self, why: str) -> Refused:
        """What a rule raises."""
        return Refused(self.here, why)

    # --------------------------------------------------------------------------------------------- new nodes
    def call(self, target: Any, *args: Any, dims: Sequence[Dim] = (), **kwargs: Any) -> Node:
        """A new node before the one that is looked at."""
        stored = pytree.tree_map(expression, (args, kwargs), is_leaf=lambda x: isinstance(x, Node))
        with self.graph.inserting_before(self.here):
            node = self.graph.call_function(target, *stored)
        value = lambda n: n.meta["val"]
        with self.mode:
            node.meta["val"] = target(*torch.fx.map_arg(args, value), **torch.fx.map_arg(kwargs, value))
        for name in ("stack_trace", "nn_module_stack"):
            if name in self.here.meta:
                node.meta[name] = self.here.meta[name]
        self.dims[node] = list(dims)
        return node

    def replace(self, new: Node) -> None:
        """Put `new` in the place of the node that is looked at."""
        self.here.replace_all_uses_with(new)
        self.graph.erase_node(self.here)

    def symbolic(self, size: Any) -> Any:
        """A size expression as a number that nodes take."""
        if isinstance(size, int) or size.is_Integer:
            return int(size)
        return self.mode.shape_env.create_symintnode(size, hint=None)

    def number(self, size: Any, whole: bool = True) -> Node:
        """The call's own value of an expression, as a 0-d int64 or float64 tensor."""
        known = self.numbers[0 if whole else 1]
        if size not in known:
            first = next(n for n in self.graph.nodes if n.op != "placeholder")
            with self.graph.inserting_before(first):
                given = self.given[0 if whole else 1]
                node = self.graph.call_function(aten.select.int, (given, 0, len(known)))
            with self.mode:
                node.meta["val"] = torch.empty((), dtype=torch.int64 if whole else torch.float64)
            self.dims[node] = []
            known[size] = node
        return known[size]

    def value(self, argument: Any) -> Any:
        """An argument that enters a computation: a number made of sizes becomes the call's own."""
        symbolic = argument.meta.get("val") if isinstance(argument, Node) else argument
        found = expression(symbolic)
        if not isinstance(found, sympy.Basic) or not found.free_symbols & self.symbols:
            return argument
        if isinstance(symbolic, torch.SymBool):
            raise self.refuse("a comparison of sizes enters it")
        return self.number(found, isinstance(symbolic, torch.SymInt))

    def product(self, sizes: Sequence[Any]) -> Node | int:
        """The call's own number of elements along some dimensions."""
        size = sympy.Mul(*sizes)
        return self.number(size) if size.free_symbols & self.symbols else int(size)

    # ------------------------------------------------------------------------------------------------- masks
    def mask(self, dim: Dim) -> Node:
        """Which elements along a dimension are the call's own, as a bool vector."""
        if dim in self.masks:
            return self.masks[dim]
        found = None
        sizes = [self.symbolic(part) for part in dim]
        for position, part in enumerate(dim):
            if not self.part_varies(part):
                continue
            places = self.call(prims.iota.default, sizes[position], start=0, step=1, dtype=torch.int64,
                               device=torch.device("cpu"), requires_grad=False, dims=[(part,)])  # fmt: skip
            own = self.call(aten.lt.Tensor, places, self.number(part), dims=[(part,)])
            if len(dim) > 1:
                lined = [sizes[i] if i == position else 1 for i in range(len(dim))]
                own = self.call(aten.view.default, own, lined)
            found = own if found is None else self.call(aten.bitwise_and.Tensor, found, own)
        if len(dim) > 1:
            found = self.call(aten.clone.default, self.call(aten.expand.default, found, sizes))
            found = self.call(aten.view.default, found, [self.symbolic(size_of(dim))], dims=[dim])
        assert found is not None
        self.masks[dim] = found
        return found

    def own(self, dims: Sequence[Dim], positions: Sequence[int]) -> Node:
        """Which elements are the call's own along some dimensions, as a tensor that broadcasts."""
        found = None
        for position in positions:
            size = [self.symbolic(size_of(dims[d])) if d == position else 1 for d in range(len(dims))]
            lined = [dims[d] if d == position else () for d in range(len(dims))]
            mask = self.call(aten.view.default, self.mask(dims[position]), size, dims=lined)
            found = mask if found is None else self.call(aten.bitwise_and.Tensor, found, mask)
        assert found is not None
        return found

    def filled(self, node: Any, value: Any, positions: Sequence[int] | None = None) -> Node:
        """`node` with a value in place of what pads it along some dimensions, all of them when none are given."""
        every = self.padded_dims(node)
        positions = every if positions is None else [d % len(self.dims[node]) for d in positions]
        positions = [d for d in positions if d in every]
        if not positions or (node in self.clean and value == 0):
            return node
        key = (node, value, tuple(positions))
        if key not in self.masks:
            dtype = node.meta["val"].dtype
            fill = self.call(aten.full.default, [], value, dtype=dtype, device=torch.device("cpu"))
            own = self.own(self.dims[node], positions)
            self.masks[key] = self.call(aten.where.self, own, node, fill, dims=self.dims[node])
            if value == 0 and positions == every:
                self.clean.add(self.masks[key])
        return self.masks[key]

    def set_argument(self, position: int, new: Any) -> None:
        """Change one positional argument of the node that is looked at."""
        self.here.args = (*self.here.args[:position], new, *self.here.args[position + 1 :])

    # -------------------------------------------------------------------------------------------------- the pass
    def result(self) -> Padded:
        """Walk over the graph.

        Raises:
            Refused: a node's rule is not known, or does not hold.
        """
        if not self.symbols or self.mode is None:
            raise Refused(None, "it has no sizes that vary")
        ordered = sorted_nodes(self.graph)
        for depth, node in enumerate(ordered):
            self.here = node
            try:
                self.follow(node)
            except Refused as refused:
                refused.depth = depth
                raise
        return self.finish()

    def follow(self, node: Any) -> None:
        """Find the dimensions of one node."""
        from inductor_backend.buckets.rules import apply

        if node in self.given or node.op == "output" or node._erased:
            return
        value = node.meta.get("val")
        if node.op == "placeholder":
            self.dims[node] = self.input_dims(node)
            self.clean.add(node)
        elif node.op == "get_attr":
            value = getattr(self.gm, str(node.target), None) if value is None else value
            self.dims[node] = self.given_dims(node, value) if isinstance(value, torch.Tensor) else None
        elif isinstance(value, _NUMBERS):
            self.dims[node] = None
        elif is_write(node):
            self.write(node)
        else:
            apply(self, node)
        self.lawful(node)

    def input_dims(self, node: Any) -> list[Dim] | None:
        """The dimensions of an input; None for a number.

        Raises:
            Refused: its sizes are no products of sizes that vary by themselves.
        """
        value = node.meta.get("val")
        if not isinstance(value, torch.Tensor):
            return None
        dims = self.given_dims(node)
        for part in itertools.chain.from_iterable(dims):
            self.monotone(part)
        strides = {s for e in map(expression, value.stride()) if isinstance(e, sympy.Basic) for s in e.free_symbols}
        if any(self.varies(d) for d in dims) and (strides - self.sizes or value.layout is not torch.strided):
            raise self.refuse("an input's strides vary by themselves")
        if any(self.varies(d) for d in dims) and (value.is_conj() or value.is_neg()):
            raise self.refuse("an input is a lazy conjugate or negative")
        return dims

    def monotone(self, part: Any) -> None:
        """Refuse a size that does not grow with every size that varies."""
        if self.part_varies(part):
            slopes = [sympy.diff(part, s) for s in part.free_symbols & self.symbols]
            if not all(slope.is_Integer and slope > 0 for slope in slopes):
                raise self.refuse(f"a size is {part}")

    def lawful(self, node: Any) -> None:
        """Check that what a rule said of a node's dimensions agrees with its sizes."""
        if node.graph is not self.graph or node not in self.dims or self.dims[node] is None:
            return
        values = node.meta.get("val")
        several = isinstance(values, (list, tuple))
        for value, dims in zip(values if several else [values], self.dims[node] if several else [self.dims[node]]):
            if dims is None:
                continue
            sizes = self.shape(node, value)
            if len(sizes) != len(dims) or not all(same_size(d, n) for d, n in zip(dims, sizes)):
                raise Refused(node, f"its sizes {sizes} are not understood")
            for part in itertools.chain.from_iterable(dims):
                self.monotone(part)

    def write(self, node: Any) -> None:
        """An input that is mutated: a padded one is written by the caller, from an output."""
        target, source = node.args
        if self.dims[target] != self.dims[source]:
            raise self.refuse("an input is written to with other dimensions")
        self.dims[node] = self.dims[target]
        if self.padded_dims(target):
            self.writes.append((target, source))

    def finish(self) -> Padded:
        """The outputs, and what is to be done around the graph."""
        output = next(n for n in self.graph.nodes if n.op == "output")
        outputs = list(output.args[0])
        result = Padded(
            self.gm, self.symbols, self.known, [self.dims[n] for n in self.inputs], *map(list, self.numbers)
        )
        for target, source in self.writes:
            result.writes.append((self.inputs.index(target), len(outputs)))
            outputs.append(source)
            for user in list(target.users):
                if is_write(user) and user.args[0] is target:
                    outputs = [target if out is user else out for out in outputs]
                    output.args = (outputs,)
                    self.graph.erase_node(user)
        self.share(result, outputs)
        output.args = (outputs,)
        result.outputs = [self.dims.get(out) if isinstance(out, Node) else None for out in outputs]
        with self.mode:
            for given, known, dtype in zip(self.given, self.numbers, (torch.int64, torch.float64), strict=True):
                given.meta["val"] = torch.empty((len(known),), dtype=dtype)
                if not known:
                    self.graph.erase_node(given)
        self.gm.recompile()
        return result

    def share(self, result: Padded, outputs: list[Any]) -> None:
        """Add values in whose memory several outputs lie to the outputs.

        Raises:
            Refused: such a value can't be cut.
        """
        source = next(n for n in self.source.graph.nodes if n.op == "output")
        visible = source.meta.get("user_visible_output_idxs") or range(len(source.args[0]))
        roots: dict[Node, list[int]] = {}
        for i in visible:
            out = source.args[0][i] if i < len(source.args[0]) else None
            if isinstance(out, Node) and isinstance(out.meta.get("val"), torch.Tensor):
                roots.setdefault(shared_root(out), []).append(i)
        for root, members in roots.items():
            dims = [self.dims.get(outputs[i]) or [] for i in members]
            if len(members) < 2 or root.op == "placeholder" or not any(map(self.varies, itertools.chain(*dims))):
                continue
            copy = self.copies[root]
            if copy._erased or any(source.args[0][i].meta["val"].dtype != root.meta["val"].dtype for i in members):
                raise Refused(root, "several outputs share its memory")
            result.shared.append((root, len(outputs), members))
            outputs.append(copy)


def constant(rewriter: Rewriter, node: Any) -> bool:
    """Whether an operator has nothing to do with sizes that vary."""
    read = [n for n in _tensors(node) if rewriter.dims.get(n) is not None]
    dims = [d for n in read for d in _each(rewriter.dims[n])]
    values = [v for v in pytree.tree_leaves(node.meta.get("val")) if isinstance(v, torch.Tensor)]
    sizes = [expression(s) for v in values for s in v.shape]
    numbers = [
        expression(a.meta["val"]) for a in flat((node.args, node.kwargs)) if isinstance(a.meta.get("val"), _NUMBERS)
    ]
    symbolic = [e for e in (*sizes, *numbers) if isinstance(e, sympy.Basic)]
    return not any(map(rewriter.varies, dims)) and not any(e.free_symbols & rewriter.symbols for e in symbolic)


def _each(dims: Any) -> list[Dim]:
    """All dimensions of a value or of several."""
    if any(isinstance(one, list) or one is None for one in dims):
        return [d for one in dims for d in one or []]
    return list(dims)
