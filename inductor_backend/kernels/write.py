"""A group as the source of a TPU kernel: a function of Refs, its `pallas_call`, and the statements that call it.

Input: a group's lines and layout. Output: `Written`. Law: the text is what runs and what is compiled offline; every
value is a block of its space's rank, so that operators meet by broadcasting and no shape is said twice.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import Node

from inductor_backend.emit import Emitter, Line
from inductor_backend.graph import Spec, name_of
from inductor_backend.kernels.axes import Apart
from inductor_backend.kernels.forms import REDUCTIONS, Form
from inductor_backend.kernels.layout import Array, Axis, Layout
from inductor_backend.ops import Out
from pallas_core.targets.tpu import CHIPS

_LETTERS = "ijklmn"


@dataclass
class Written:
    """A kernel in words.

    Attributes:
        name: of the kernel's function.
        text: the function and its `pallas_call`.
        lines: which line of the text (1-based) computes which of the group.
        statements: what the segment does to call it.
        operands: (shape, dtype name) of what the call takes.
        layout: its axes.
        group: the lines it is made of.
        leaving: names of values that are read outside.
    """

    name: str
    text: str
    lines: dict[int, Line]
    statements: list[str]
    operands: list[tuple[tuple[int, ...], str]]
    layout: Layout
    group: list[Line]
    leaving: list[str]


class _Inside(Emitter):
    """Expressions inside a kernel: results need no shapes, and every operator is the one that Mosaic has a form of."""

    def outs(self, spec: Any) -> str:
        return repr(Out((), self._dtype(spec), ())) if isinstance(spec, Spec) else super().outs(spec)

    @staticmethod
    def _dtype(spec: Spec) -> Any:
        return spec.out().dtype

    def expression(self, node: Node) -> str:
        """The right-hand side of an elementwise operator."""
        text = re.sub(r"(?<![\w.])cast\(", "tile.cast(", self.call(node))
        return narrowed(re.sub(r"(?<![\w.])aten\.", "op.", text))


def narrowed(text: str) -> str:
    """Emitted source with the 32-bit dtypes in place of the 64-bit ones."""
    return re.sub(r"'(u?int|float)64'", r"'\g<1>32'", text)


def dtype_name(dtype: torch.dtype) -> str:
    """The name of the dtype that a TPU has for one of torch's."""
    return narrowed(repr(str(dtype).removeprefix("torch.")))[1:-1]


def write(name: str, group: list[Line], leaving: list[Line], layout: Layout, emitter: Emitter, chip: str) -> Written:
    """Print a group.

    Args:
        name: of the kernel.
        group: its lines.
        leaving: those whose values are read outside.
        layout: of the group, with sizes chosen.
        emitter: of the segment.
        chip: ``v5e`` ...

    Raises:
        Apart: the group has no text.
    """
    return _Writer(name, group, leaving, layout, emitter, chip).written()


class _Writer:
    def __init__(self, name: str, group: list[Line], leaving: list[Line], layout: Layout, emitter: Emitter, chip: str):
        self.name, self.group, self.leaving, self.layout, self.chip = name, group, leaving, layout, chip
        self.plan = emitter.plan
        self.inside = _Inside(emitter.plan)
        self.inside.flipped = emitter.flipped
        self.extents: dict[str, set[Axis]] = {}
        forms = layout.shapes.forms
        names = {line.name for line in group}
        self.reads = list(dict.fromkeys(r for line in group for r in forms[line.name].reads if r not in names))

    def written(self) -> Written:
        """The kernel's text and the statements around it."""
        layout = self.layout
        refs = [f"{r}_ref" for r in self.reads] + [f"{line.name}_out" for line in self.leaving]
        text = [f"def {self.name}({', '.join(refs)}):"]
        for axis in self._numbered():
            text.append(f"    {self._first(axis)} = pl.program_id({axis.grid}) * {axis.block}")
        for r in self.reads:
            text.append(f"    {r} = {r}_ref[...]")
            self.extents[r] = {a for a in layout.arrays[r].axes if a is not None}
        numbered: dict[int, Line] = {}
        for line in self.group:
            form = layout.form(line.name)
            text.append(f"    {line.name} = {getattr(self, '_' + form.kind)(line, form)}")
            numbered[len(text)] = line
        for line in self.leaving:
            text.append(f"    {line.name}_out[...] = {self._stored(line)}")
            numbered[len(text)] = line
        text += ["", "", *self._call()]
        statements = self._statements()
        operands = [(layout.arrays[r].shape, dtype_name(layout.shapes.dtype(r))) for r in self.reads]
        return Written(
            self.name,
            "\n".join(text),
            numbered,
            statements,
            operands,
            layout,
            self.group,
            [line.name for line in self.leaving],
        )

    # ------------------------------------------------------------------------------------------------ operators
    def _array(self, name: str) -> Array:
        return self.layout.arrays[name]

    def _positions(self, name: str, axes: tuple[Axis, ...]) -> tuple[int, ...]:
        row = self._array(name).axes
        return tuple(row.index(a) for a in axes)

    def _whole(self, name: str, axes: tuple[Axis, ...] | None = None) -> str:
        """A value with all elements of its block present."""
        array = self._array(name)
        wanted = {a for a in array.axes if a is not None} if axes is None else set(axes)
        return name if wanted <= self.extents[name] else f"tile.whole({name}, {array.block})"

    def _present(self, name: str, axes: tuple[Axis, ...]) -> set[Axis]:
        """The axes that `_whole` of a value has elements along."""
        if set(axes) <= self.extents[name]:
            return self.extents[name]
        return {a for a in self._array(name).axes if a is not None}

    def _first(self, axis: Axis) -> str:
        return f"first_{_LETTERS[axis.grid or 0]}"

    def _numbered(self) -> list[Axis]:
        """Cut axes whose element numbers the kernel needs."""
        found: dict[Axis, None] = {}
        for line in self.group:
            form = self.layout.form(line.name)
            if form.kind == "iota":
                found |= dict.fromkeys(a for a in self._array(line.name).axes if a is not None and a.grid is not None)
            rows = self.layout.axes_of(form.matrices[0]) if form.kind == "attention" and form.extra["causal"] else ()
            found |= dict.fromkeys(a for a in rows if a.grid is not None)
            for axis in self.layout.axes_of(form.partial):
                if axis.grid is not None and axis.size % axis.block:
                    found[axis] = None
        return list(found)

    def _map(self, line: Line, form: Form) -> str:
        self.extents[line.name] = set().union(*(self.extents[r] for r in form.reads))
        assert line.node is not None
        return self.inside.expression(line.node)

    def _same(self, line: Line, form: Form) -> str:
        self.extents[line.name] = self.extents[form.reads[0]]
        return form.reads[0]

    def _item(self, line: Line, form: Form) -> str:
        source = form.reads[0]
        if self.layout.form(source).kind != "attention":
            self.extents[line.name] = self.extents[source]
            return f"{source}[{form.extra}]"
        self.extents[line.name] = {a for a in self._array(line.name).axes if a is not None}
        text = f"{source}[{form.extra}].reshape{self._array(line.name).block}"
        dtype = self._leaves_as(line)
        return text if dtype == "float32" else f"{text}.astype({dtype!r})"

    def _attention(self, line: Line, form: Form) -> str:
        rows, keys, _, width, breadth = (self.layout.axes_of(m) for m in form.matrices)
        (row,) = rows
        backward = form.extra["backward"]
        shapes = [(rows, width), (keys, width), (keys, breadth)]
        if backward:
            shapes = [(rows, breadth), *shapes, (rows, breadth), (rows, ())]
        operands = []
        for name, (tall, wide) in zip(form.reads, shapes):
            text = self._matrix(name, tall, wide, False)
            if backward and tall == rows and row.grid is not None and row.size % row.block:
                text = f"tile.kept({text}, 0, {self._first(row)}, {row.size})"
            operands.append(text)
        more = [f"causal={form.extra['causal']}", f"scale={form.extra['scale']!r}"]
        if row.grid is not None and form.extra["causal"]:
            more.append(f"first={self._first(row)}")
            if not backward:
                more.append(f"rows={row.size}")
        if form.extra["mask"]:
            mask = form.reads[-1]
            here = set(self._array(mask).axes)
            shape = (row.block if row in here else 1, keys[0].block if keys[0] in here else 1)
            text = f"{mask}.reshape{shape}"
            if backward and row in here and row.grid is not None and row.size % row.block:
                text = f"tile.kept({text}, 0, {self._first(row)}, {row.size})"
            more.append(f"mask={text}")
        self.extents[line.name] = set()
        return f"tile.attention{'_backward' if backward else ''}({', '.join([*operands, *more])})"

    def _fill(self, line: Line, form: Form) -> str:
        self.extents[line.name] = set()
        dtype = dtype_name(self.plan.specs[line.node].dtype)  # pyright: ignore[reportArgumentType]
        return f"jnp.full({(1,) * len(self._array(line.name).axes)}, {form.extra!r}, {dtype!r})"

    def _iota(self, line: Line, form: Form) -> str:
        array = self._array(line.name)
        axes = [a for a in array.axes if a is not None]
        self.extents[line.name] = set(axes)
        if len(axes) > 1:
            raise Apart("numbers along several axes")
        start, step = form.extra
        dtype = dtype_name(self.plan.specs[line.node].dtype)  # pyright: ignore[reportArgumentType]
        if not axes:
            return f"jnp.full({array.block}, {start!r}, {dtype!r})"
        first = self._first(axes[0]) if axes[0].grid is not None else 0
        return f"tile.iota({array.block}, {array.axes.index(axes[0])}, {first}, {start!r}, {step!r}, {dtype!r})"

    def _reduce(self, line: Line, form: Form) -> str:
        node = line.node
        assert node is not None
        axes = self.layout.axes_of((*form.reduced, *form.partial))
        source = self._whole(form.reads[0], axes)
        positions = self._positions(form.reads[0], axes)
        for axis in self.layout.axes_of(form.partial):
            if axis.grid is not None and axis.size % axis.block:
                at = self._positions(form.reads[0], (axis,))[0]
                source = f"tile.kept({source}, {at}, {self._first(axis)}, {axis.size})"
        self.extents[line.name] = self._present(form.reads[0], axes) - set(axes)
        if not positions:
            positions = (0,)  # of one element: the operator's other effects (a dtype) stay
            axes = ()
        text = REDUCTIONS[name_of(node.target)].text(source, positions, node, self.plan)
        if self._parts(line) and self.plan.specs[node].dtype == torch.bfloat16:
            text = text.replace("'bfloat16'", "'float32'")
        return narrowed(text)

    def _rowwise(self, line: Line, form: Form) -> str:
        node = line.node
        assert node is not None
        axes = self.layout.axes_of(form.reduced)
        source = self._whole(form.reads[0], axes)
        self.extents[line.name] = set(self._present(form.reads[0], axes))
        function = {"aten._softmax.default": "softmax"}.get(name_of(node.target), "log_softmax")
        positions = self._positions(form.reads[0], axes) or (0,)
        return f"tile.{function}({source}, {positions}, {dtype_name(self.plan.specs[node].dtype)!r})"

    def _pick(self, line: Line, form: Form) -> str:
        x, index = form.reads
        axes = self.layout.axes_of(form.reduced)
        source = self._whole(x, axes)
        self.extents[line.name] = (self._present(x, axes) | self.extents[index]) - set(axes)
        return f"tile.pick({source}, {index}, {self._positions(x, axes)[0]})"

    def _matrix(self, name: str, rows: tuple[Axis, ...], columns: tuple[Axis, ...], swapped: bool) -> str:
        text = self._whole(name)
        shape = (math.prod(a.block for a in rows), math.prod(a.block for a in columns))
        shape = shape[::-1] if swapped else shape
        return text if self._array(name).block == shape else f"{text}.reshape{shape}"

    def _product(self, line: Line, form: Form) -> str:
        node = line.node
        assert node is not None
        rows, inner, columns, _ = (self.layout.axes_of(m) for m in form.matrices)
        a = self._matrix(form.reads[0], rows, inner, form.swapped[0])
        b = self._matrix(form.reads[1], inner, columns, form.swapped[1])
        turned = "".join(f", transpose_{s}=True" for s, on in zip("ab", form.swapped) if on)
        text = f"tile.dot({a}, {b}{turned})"
        block = self._array(line.name).block
        if block != (math.prod(x.block for x in rows), math.prod(x.block for x in columns)):
            text = f"{text}.reshape{block}"
        alpha, beta = (self._number(node, k) for k in ("alpha", "beta"))
        if alpha != 1:
            text = f"{text} * {float(alpha)!r}"
        if len(form.reads) > 2 and beta != 0:
            added = f"tile.cast({form.reads[2]}, 'float32')"
            text = f"{text} + {added}" + ("" if beta == 1 else f" * {float(beta)!r}")
        self.extents[line.name] = {x for x in self._array(line.name).axes if x is not None}
        dtype = dtype_name(self.plan.specs[node].dtype)
        return text if dtype == "float32" else f"({text}).astype({dtype!r})"

    def _number(self, node: Node, key: str) -> Any:
        value = node.kwargs.get(key, 1)
        if isinstance(value, Node):
            if value not in self.plan.static:
                raise Apart("a factor that is not known")
            return self.plan.static[value]
        return value

    # ----------------------------------------------------------------------------------------------- the call
    def _parts(self, line: Line) -> tuple[Axis, ...]:
        """Cut axes of which every step sums its own part."""
        form = self.layout.form(line.name)
        return tuple(a for a in self.layout.axes_of(form.partial) if a.grid is not None)

    def _stored(self, line: Line) -> str:
        return self._whole(line.name)

    def _spec(self, array: Array, parts: tuple[Axis, ...] = ()) -> str:
        grid = self.layout.grid
        letters = [_LETTERS[a.grid or 0] for a in grid]
        block: list[str] = ["None"] * len(parts) + [str(n) for n in array.block]
        index = [_LETTERS[a.grid or 0] for a in parts]
        index += [_LETTERS[a.grid] if a is not None and a.grid is not None else "0" for a in array.axes]
        tuple_of = lambda items: f"({items[0]},)" if len(items) == 1 else f"({', '.join(items)})"
        return f"pl.BlockSpec({tuple_of(block)}, lambda {', '.join(letters)}: {tuple_of(index)})"

    def _call(self) -> list[str]:
        grid = self.layout.grid
        gone = "".join(f"{', ' if i else ''}{a.size} by {a.block}" for i, a in enumerate(grid))
        given = ", ".join(self.reads)
        text = [f"def {self.name}_call({given}):", "    return pl.pallas_call(", f"        {self.name},"]
        if grid:
            steps = ", ".join(str(a.steps) for a in grid)
            text.append(f"        grid=({steps}{',' if len(grid) == 1 else ''}),  # {gone}")
            text.append("        in_specs=[")
            text += [f"            {self._spec(self._array(r))}," for r in self.reads]
            text += ["        ],", "        out_specs=["]
            text += [f"            {self._spec(self._array(line.name), self._parts(line))}," for line in self.leaving]
            text.append("        ],")
        text.append("        out_shape=[")
        for line in self.leaving:
            shape = (*(a.steps for a in self._parts(line)), *self._array(line.name).shape)
            text.append(f"            jax.ShapeDtypeStruct({shape}, {self._leaves_as(line)!r}),")
        text.append("        ],")
        order = f"dimension_semantics={('parallel',) * len(grid)}, " if grid else ""
        limit = CHIPS[self.chip].kernel_vmem_bytes
        text.append(f"        compiler_params=pltpu.CompilerParams({order}vmem_limit_bytes={limit}),")
        text += [f"        name={self.name!r},", f"    )({given})"]
        return text

    def _leaves_as(self, line: Line) -> str:
        dtype = self.plan.specs[line.node].dtype  # pyright: ignore[reportArgumentType]
        return "float32" if self._parts(line) and dtype == torch.bfloat16 else dtype_name(dtype)

    def _statements(self) -> list[str]:
        shapes = self.layout.shapes
        given = []
        for r in self.reads:
            mine = shapes.context.shapes[r]
            given.append(r if tuple(mine) == self._array(r).shape else f"{r}.reshape{self._array(r).shape}")
        targets = ", ".join(line.name for line in self.leaving)
        found = [f"{targets}, = {self.name}_call({', '.join(given)})"]
        for line in self.leaving:
            spec, parts = self.plan.specs[line.node], self._parts(line)  # pyright: ignore[reportArgumentType]
            text = line.name
            if parts:
                text = f"jnp.sum({text}, {tuple(range(len(parts)))})"
                if spec.dtype == torch.bfloat16:
                    text = f"{text}.astype('bfloat16')"
            if parts or tuple(spec.shape) != self._array(line.name).shape:
                found.append(f"{line.name} = {text}.reshape({tuple(spec.shape)})")
        return found
