"""What each operator does to dimensions, and its text inside a TPU kernel: one entry an operator.

Input: a line of a segment and the group it may join. Output: the dimensions of its result, in the group's atoms, and
what it needs of the kernel (a dimension whole, batches one by one). Law: an operator without an entry is in no kernel;
dimensions that can't be brought together raise `Apart`.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.fx import Node

from inductor_backend.graph import Graph, Spec, arguments, flat, name_of, row_of
from inductor_backend.kernels.axes import Apart, Atom, Axes, Dims, elements
from inductor_backend.ops.table import KEEP, POINTWISE, dims

#: dtypes of values inside a kernel; whole numbers of 64 bits are 32 bits wide on a TPU.
DTYPES = (torch.float32, torch.bfloat16, torch.int32, torch.int64, torch.bool)

#: Elementwise, though their operands keep their dtypes.
_MAPS = {
    "aten.where.self", "prims.convert_element_type.default", "aten._to_copy.default", "aten.masked_fill.Scalar",
    "aten.masked_fill.Tensor", "aten.clone.default", "aten.alias.default", "aten.detach.default",
}  # fmt: skip
#: Elementwise, but Mosaic has no form of them or none that is right.
_NOT_MAPS = {
    "aten.erfc.default", "aten.lgamma.default", "aten.digamma.default", "aten.expm1.default", "aten.sinh.default",
    "aten.cosh.default", "aten.asin.default", "aten.acos.default", "aten.atan.default", "aten.asinh.default",
    "aten.acosh.default", "aten.atanh.default", "aten.nextafter.default", "aten.elu.default", "aten.complex.default",
    "aten.polar.default", "aten.angle.default", "aten.pow.Tensor_Tensor", "aten.pow.Scalar", "aten.sinc.default",
    "aten.special_ndtri.default", "aten.special_log_ndtr.default", "aten.erfinv.default", "aten.hypot.default",
    "aten.i0.default", "aten.special_i0.default", "aten.special_i1.default", "aten.special_i0e.default",
    "aten.special_i1e.default", "aten.atan2.default", "aten.logaddexp.default", "aten.frexp.Tensor",
}  # fmt: skip
_VIEWS = {"aten.view.default", "aten._unsafe_view.default", "aten.reshape.default", "aten._reshape_alias.default"}
_THIN = {"aten.unsqueeze.default", "aten.squeeze.dim", "aten.squeeze.dims", "aten.squeeze.default"}
_FILLS = {"aten.full.default": 1, "aten.full_like.default": 1, "aten.scalar_tensor.default": 0}
_PRODUCTS = {"aten.mm.default": 0, "aten.bmm.default": 0, "aten.addmm.default": 1, "aten.baddbmm.default": 1}


@dataclass(frozen=True)
class Reduction:
    """A reduction: its text, which argument names dimensions, whether parts of it can be brought together by a sum."""

    text: Callable[[str, tuple[int, ...], Node, Graph], str]
    dim: int | None = 1
    parts: bool = False


def _out(node: Node, plan: Graph) -> str:
    return repr(str(plan.specs[node].dtype).removeprefix("torch."))


def _correction(node: Node) -> float:
    given = node.kwargs.get("correction", arguments(node)[2] if len(node.args) > 2 else None)
    return 1 if given is None else float(given)  # pyright: ignore[reportArgumentType]


def _variance(which: str) -> Callable[[str, tuple[int, ...], Node, Graph], str]:
    def text(x: str, axes: tuple[int, ...], node: Node, plan: Graph) -> str:
        spec = plan.specs[node]
        names = [str(s.dtype).removeprefix("torch.") for s in (spec if isinstance(spec, list) else [spec] * 2)]
        return f"tile.var_mean({x}, {axes}, {_correction(node)}, {names!r}){which}"

    return text


def _plain(name: str, typed: bool = False) -> Callable[[str, tuple[int, ...], Node, Graph], str]:
    def text(x: str, axes: tuple[int, ...], node: Node, plan: Graph) -> str:
        return f"tile.{name}({x}, {axes}{', ' + _out(node, plan) if typed else ''})"

    return text


def _place(largest: bool, both: bool) -> Callable[[str, tuple[int, ...], Node, Graph], str]:
    def text(x: str, axes: tuple[int, ...], node: Node, plan: Graph) -> str:
        if len(axes) != 1:
            raise Apart("an argmax over several dimensions")
        return f"tile.extreme_at({x}, {axes[0]}, {largest}){'' if both else '[1]'}"

    return text


REDUCTIONS: dict[str, Reduction] = {
    "aten.sum.dim_IntList": Reduction(_plain("total", True), parts=True),
    "aten.sum.default": Reduction(_plain("total", True), None, parts=True),
    "aten.mean.dim": Reduction(_plain("mean", True)),
    "aten.mean.default": Reduction(_plain("mean", True), None),
    "aten.amax.default": Reduction(_plain("amax")),
    "aten.amin.default": Reduction(_plain("amin")),
    "aten.max.default": Reduction(_plain("amax"), None),
    "aten.min.default": Reduction(_plain("amin"), None),
    "aten.any.dim": Reduction(_plain("any_of")),
    "aten.any.default": Reduction(_plain("any_of"), None),
    "aten.all.dim": Reduction(_plain("all_of")),
    "aten.all.default": Reduction(_plain("all_of"), None),
    "aten.var.correction": Reduction(_variance("[0]")),
    "aten.var_mean.correction": Reduction(_variance("")),
    "aten.logsumexp.default": Reduction(_plain("logsumexp", True)),
    "prims.prepare_softmax_online.default": Reduction(_plain("softmax_parts")),
    "aten.argmax.default": Reduction(_place(True, False)),
    "aten.argmin.default": Reduction(_place(False, False)),
    "aten.max.dim": Reduction(_place(True, True)),
    "aten.min.dim": Reduction(_place(False, True)),
}
_ATTENTION = {
    "aten._scaled_dot_product_flash_attention_for_cpu.default": False,
    "aten._scaled_dot_product_flash_attention_for_cpu_backward.default": True,
}
#: Their result has the operand's shape.
_ROWWISE = {"aten._softmax.default": "softmax", "aten._log_softmax.default": "log_softmax"}


@dataclass
class Form:
    """What a line needs of its kernel.

    Attributes:
        kind: "map", "same", "fill", "iota", "reduce", "rowwise", "pick", "product" or "attention".
        reads: the values it reads, as emitted names.
        reduced: atoms along which it works; they must be there whole.
        partial: atoms that it sums over as well, and of which other steps may hold a part.
        matrices: of a product: the atoms of its rows, of what is summed, of its columns, of its batch.
        swapped: which operands of a product lie transposed.
        apart: how many of the values it reads have a layout of their own.
        extra: what the text needs besides.
    """

    kind: str
    reads: tuple[str, ...]
    reduced: tuple[Atom, ...] = ()
    partial: tuple[Atom, ...] = ()
    matrices: tuple[tuple[Atom, ...], ...] = ()
    swapped: tuple[bool, bool] = (False, False)
    apart: int = 0
    extra: Any = field(default=None)


def entry_of(node: Node, plan: Graph) -> str | None:
    """The kind of a node's form, or None: it has no place in a kernel."""
    specs = plan.specs.get(node)
    for spec in specs if isinstance(specs, list) else [specs]:
        if not isinstance(spec, Spec) or spec.numel == 0 or spec.dtype not in DTYPES:
            return None
    if node.target is operator.getitem:
        source = arguments(node)[0]
        return "item" if isinstance(source, Node) and entry_of(source, plan) in ("reduce", "attention") else None
    name, entry = name_of(node.target), row_of(node)
    if entry is None:
        return None
    for other in flat((node.args, node.kwargs)):
        spec = plan.specs.get(other)
        if other not in plan.static and isinstance(spec, Spec) and spec.dtype not in DTYPES:
            return None
    if name in _ATTENTION:
        one = plan.specs[arguments(node)[0]].dtype
        return "attention" if one in (torch.float32, torch.bfloat16) else None
    if name in _PRODUCTS:
        return "product" if plan.specs[node].dtype in (torch.float32, torch.bfloat16) else None
    if name in _VIEWS or name in _THIN or name == "aten.expand.default":
        return "view"
    if name in _FILLS:
        value = arguments(node)[_FILLS[name]]
        return "fill" if not isinstance(value, Node) or value in plan.static else None
    if name == "prims.iota.default":
        return "iota"
    if name == "aten.gather.default":
        return "pick"
    if name in REDUCTIONS:
        return "reduce"
    if name in _ROWWISE:
        return "rowwise"
    if name in _MAPS or (entry.kind == POINTWISE and entry.promote != KEEP and name not in _NOT_MAPS):
        return "map" if entry.wants <= {"out"} and isinstance(plan.specs[node], Spec) else None
    return None


@dataclass
class Context:
    """What is known of a whole segment.

    Attributes:
        plan: it belongs to.
        flipped: nodes that swap the last two dimensions of a value, which products read instead.
        shapes: by emitted name.
        dtypes: by emitted name; of several results the first's.
        loose: sums whose result no value of the summed shape depends on.
        small: bytes up to which a row that is summed is kept whole.
    """

    plan: Graph
    flipped: dict[Node, str]
    shapes: dict[str, tuple[int, ...]]
    dtypes: dict[str, torch.dtype]
    loose: set[str]
    small: int = 1 << 20


class Shapes:
    """The dimensions of every value of a group, in common atoms."""

    def __init__(self, context: Context):
        self.context, self.plan, self.flipped = context, context.plan, context.flipped
        self.axes = Axes()
        self.dims: dict[str, Dims] = {}
        self.forms: dict[str, Form] = {}
        #: Of results that differ in shape: dimensions, and atoms of which a step sums a part.
        self.several: dict[str, list[tuple[Dims, tuple[Atom, ...]]]] = {}

    def operand(self, value: Any) -> Dims:
        """The dimensions of an operand; of one from outside they are its own."""
        name = value if isinstance(value, str) else value.name
        if name not in self.dims:
            shape = self.context.shapes[name] if isinstance(value, str) else self.plan.specs[value].shape
            self.dims[name] = self.axes.fresh(shape)
        return self.dims[name]

    def add(self, node: Node) -> None:
        """Place a node.

        Raises:
            Apart: it doesn't fit with what is there.
        """
        kind = entry_of(node, self.plan)
        if kind is None:
            raise Apart("no form")
        spec = self.plan.specs[node]
        found = getattr(self, f"_{kind}")(node, spec)
        self.forms[node.name] = found

    # ------------------------------------------------------------------------------------------------- by kind
    def _map(self, node: Node, spec: Spec) -> Form:
        values = [v for v in flat((node.args, node.kwargs)) if v not in self.plan.static]
        out = self.axes.fresh(spec.shape)
        for value in values:
            given = self.operand(value)
            for mine, theirs in zip(out[len(out) - len(given) :], given, strict=True):
                if theirs:
                    self.axes.unify(mine, theirs)
        self.dims[node.name] = out
        return Form("map", tuple(dict.fromkeys(v.name for v in values)))

    def _view(self, node: Node, spec: Spec) -> Form:
        source = arguments(node)[0]
        given, out = self.operand(source), self.axes.fresh(spec.shape)
        if name_of(node.target) == "aten.expand.default":
            for mine, theirs in zip(out[len(out) - len(given) :], given, strict=True):
                if theirs:
                    self.axes.unify(mine, theirs)
        else:
            self.axes.unify([a for d in given for a in d], [a for d in out for a in d])
        self.dims[node.name] = out
        return Form("same", (source.name,))

    def _item(self, node: Node, spec: Spec) -> Form:
        source, position = arguments(node)
        if source.name not in self.forms:
            raise Apart("a result of a kernel with several")
        self.dims[node.name] = self.dims[source.name]
        partial: tuple[Atom, ...] = ()
        if source.name in self.several:
            self.dims[node.name], partial = self.several[source.name][position]
        several = source.name in self.several
        apart = int(several and self.forms[source.name].extra["backward"])  # each gradient has a layout of its own
        return Form("item", (source.name,), partial=partial, apart=apart, extra=position)

    def _fill(self, node: Node, spec: Spec) -> Form:
        self.dims[node.name] = self.axes.fresh(spec.shape)
        value = arguments(node)[_FILLS[name_of(node.target)]]
        return Form("fill", (), extra=self.number(value))

    def _iota(self, node: Node, spec: Spec) -> Form:
        self.dims[node.name] = self.axes.fresh(spec.shape)
        given: dict[str, Any] = dict(zip(("length", "start", "step"), arguments(node))) | dict(node.kwargs)
        return Form("iota", (), extra=tuple(self.number(given[k]) for k in ("start", "step")))

    def number(self, value: Any) -> Any:
        """An argument that is a number, or a node that is known to be one."""
        return self.plan.static.get(value, value) if isinstance(value, Node) else value

    def _reduced(self, node: Node, given: Dims, dim: Any) -> tuple[int, ...]:
        if isinstance(dim, Node) or (isinstance(dim, (list, tuple)) and any(isinstance(d, Node) for d in dim)):
            raise Apart("dimensions that are not numbers")
        return dims(dim, len(given))

    def _reduce(self, node: Node, spec: Any) -> Form:
        law = REDUCTIONS[name_of(node.target)]
        args: Any = arguments(node)
        given = self.operand(args[0])
        dim = None if law.dim is None else node.kwargs.get("dim", args[1] if len(args) > 1 else None)
        gone = self._reduced(node, given, dim)
        one = spec[0] if isinstance(spec, list) else spec
        kept = len(one.shape) == len(given)
        self.dims[node.name] = tuple(() if d in gone else g for d, g in enumerate(given) if kept or d not in gone)
        whole: set[int] = set(gone)
        if law.parts and node.name in self.context.loose:
            whole.clear()
            for d in reversed(range(len(given))):
                row = 4 * elements(a for w in (*whole, d) for a in given[w])
                if (given[d] and d not in gone) or row > self.context.small:
                    break
                whole.add(d)
            whole &= set(gone)
        inside = tuple(a for d in gone if d in whole for a in given[d])
        beyond = tuple(a for d in gone if d not in whole for a in given[d])
        return Form("reduce", (args[0].name,), inside, beyond)

    def _rowwise(self, node: Node, spec: Spec) -> Form:
        args = arguments(node)
        given = self.operand(args[0])
        self.dims[node.name] = given
        gone = self._reduced(node, given, args[1])
        return Form("rowwise", (args[0].name,), tuple(a for d in gone for a in given[d]))

    def _pick(self, node: Node, spec: Spec) -> Form:
        x, dim, index = arguments(node)[:3]
        given, at = self.operand(x), self.operand(index)
        rank = len(given)
        if (
            not rank
            or spec.shape[dim % rank] != 1
            or any(d != dim % rank and spec.shape[d] != self.plan.specs[x].shape[d] for d in range(rank))
        ):
            raise Apart("a gather of several elements")
        if not given[dim % rank]:
            raise Apart("a gather from one element")
        for d in range(rank):
            if d != dim % rank:
                self.axes.unify(given[d], at[d])
        self.dims[node.name] = tuple(() if d == dim % rank else g for d, g in enumerate(given))
        return Form("pick", (x.name, index.name), given[dim % rank])

    def _product(self, node: Node, spec: Spec) -> Form:
        skip = _PRODUCTS[name_of(node.target)]
        sources: list[Any] = [self.flipped.get(v, v) for v in arguments(node)[skip : skip + 2]]
        swapped = (isinstance(sources[0], str), isinstance(sources[1], str))
        a, b = (self.operand(s) for s in sources)
        out = self.axes.fresh(spec.shape)
        a_rows, a_columns = (a[-1], a[-2]) if swapped[0] else (a[-2], a[-1])
        b_rows, b_columns = (b[-1], b[-2]) if swapped[1] else (b[-2], b[-1])
        self.axes.unify(a_columns, b_rows)
        self.axes.unify(out[-2], a_rows)
        self.axes.unify(out[-1], b_columns)
        if len(out) == 3:
            for given in (a, b):
                self.axes.unify(out[0], given[0])
        reads: list[Any] = [s if isinstance(s, str) else s.name for s in sources]
        if skip:
            added: Any = arguments(node)[0]
            given = self.operand(added)
            for mine, theirs in zip(out[len(out) - len(given) :], given, strict=True):
                if theirs:
                    self.axes.unify(mine, theirs)
            reads.append(added.name)
        self.dims[node.name] = out
        batch = out[0] if len(out) == 3 else ()
        matrices = (a_rows, a_columns, b_columns, batch)
        return Form("product", tuple(reads), tuple(a_columns), matrices=matrices, swapped=swapped, apart=2)

    def _attention(self, node: Node, spec: Any) -> Form:
        backward = _ATTENTION[name_of(node.target)]
        args: list[Any] = list(arguments(node))
        q, k, v = (self.operand(a) for a in args[backward : backward + 3])
        self.axes.unify(q[0], k[0])
        self.axes.unify(q[0], v[0])
        self.axes.unify(k[1], v[1])
        heads, shared = (self.plan.specs[a].shape[1] for a in args[backward : backward + 2])
        groups = (Atom(heads // shared),) if heads > shared else ()
        self.axes.unify(q[1], (*k[1], *groups))
        self.axes.unify(q[3], k[3])
        self.axes.unify(k[2], v[2])
        given = dict(zip(("dropout", "causal", "mask", "scale"), args[backward + 3 + 2 * backward :]))
        given |= {"mask": node.kwargs.get("attn_mask", given.get("mask")), "scale": node.kwargs.get("scale")}
        values = args[: 3 + 3 * backward]
        out: Dims = (q[0], q[1], q[2], v[3])
        if backward:
            for same, other in ((args[0], out), (args[4], out), (args[5], out[:3])):
                for mine, theirs in zip(self.operand(same), other, strict=True):
                    self.axes.unify(mine, theirs)
        if isinstance(given["mask"], Node):
            mask = self.operand(given["mask"])
            for mine, theirs in zip(mask, ((q[0], q[1], q[2], k[2]))[4 - len(mask) :], strict=True):
                if mine:
                    self.axes.unify(mine, theirs)
            values.append(given["mask"])
        scale = given["scale"]
        if scale is not None and not isinstance(self.number(scale), (int, float)):
            raise Apart("a scale that is not known")
        self.dims[node.name] = out
        if backward:
            self.several[node.name] = [(q, ()), (k, (*groups, *q[2])), (v, (*groups, *q[2]))]
        else:
            self.several[node.name] = [(out, ()), (out[:3], ())]
        whole = (*q[3], *k[2], *v[3])
        matrices = (q[2], k[2], (*q[0], *q[1]), q[3], v[3])
        extra = {
            "causal": bool(self.number(given.get("causal", False))),
            "scale": self.number(scale),
            "mask": isinstance(given["mask"], Node),
            "backward": backward,
        }
        reads = tuple(a.name for a in values)
        return Form("attention", reads, whole, matrices=matrices, apart=len(reads), extra=extra)

    # ----------------------------------------------------------------------------------------------- afterwards
    def dtype(self, name: str) -> torch.dtype:
        """The dtype of a value."""
        return self.context.dtypes[name]

    def spaces(self) -> dict[str, str]:
        """Value -> the representative of the values that it shares a layout with: all but a product's operands."""
        parent = {name: name for name in self.dims}

        def root(name: str) -> str:
            while parent[name] != name:
                name = parent[name]
            return name

        for name, form in self.forms.items():
            for other in form.reads[form.apart :]:
                parent[root(other)] = root(name)
            if form.kind == "attention" and form.extra["backward"]:  # a number per row goes with the rows
                parent[root(form.reads[5])] = root(form.reads[4])
        return {name: root(name) for name in self.dims}
