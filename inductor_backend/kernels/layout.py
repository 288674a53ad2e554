"""The iteration space of a group: axes in order, which a grid may cut into blocks, and the block sizes for a chip.

Input: the shapes of a group (`forms.Shapes`). Output: a `Layout`. Law: values that meet elementwise have one rank, with
1 where an axis is absent; an axis along which something is reduced is never cut, unless the parts are summed up later;
a cut is a multiple of the native tile of every array that the axis stands in.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from itertools import pairwise

import torch

from inductor_backend.kernels.axes import Apart, Atom, elements
from inductor_backend.kernels.forms import Form, Shapes
from pallas_core.blocks import FEW_LANES, STEPS, TILES, TILES_ELSEWHERE, block_bytes
from pallas_core.budget import padded_bytes
from pallas_core.targets.tpu import CHIPS, LANES, SUBLANES, TpuChip

#: Elements of a block of an array with one dimension.
_ONE_DIM = 128 * 1024
#: Straight code of one step: more vector registers' worth of elements than this takes minutes to compile.
_MOST_VALUES = 1 << 23


@dataclass(eq=False)
class Axis:
    """Atoms that go together.

    Attributes:
        atoms: in order.
        size: elements.
        whole: never cut.
        single: cut into single elements.
        block: elements in a step.
        grid: its number among the axes of the grid, or None.
    """

    atoms: tuple[Atom, ...]
    size: int
    whole: bool = False
    single: bool = False
    block: int = 0
    grid: int | None = None

    @property
    def steps(self) -> int:
        """Blocks along the axis."""
        return -(-self.size // self.block)


@dataclass(frozen=True)
class Array:
    """A value's canonical form: an axis or nothing per dimension of its space, bytes an element."""

    axes: tuple[Axis | None, ...]
    item: int

    @property
    def shape(self) -> tuple[int, ...]:
        """The whole array's shape."""
        return tuple(1 if a is None else a.size for a in self.axes)

    @property
    def block(self) -> tuple[int, ...]:
        """The shape of its block."""
        return tuple(1 if a is None else a.block for a in self.axes)

    def bytes(self) -> int:
        """The block's bytes in VMEM."""
        return padded_bytes(self.block, self.item)


class Layout:
    """Axes and arrays of a group.

    Args:
        shapes: of the group.
        outside: names of values that come from outside or leave.

    Raises:
        Apart: the group can't be one kernel.
    """

    def __init__(self, shapes: Shapes, outside: Collection[str]):
        self.shapes, self.outside = shapes, set(outside)
        self.space_of = shapes.spaces()
        self._split_lines()
        self.sequences = {name: shapes.axes.flat(dims) for name, dims in shapes.dims.items()}
        for sequence in self.sequences.values():
            if len(set(sequence)) != len(sequence):
                raise Apart("one axis twice in a value")
        self.orders = {space: self._order(space) for space in set(self.space_of.values())}
        self.axes = self._merged()
        by_atom = {atom: axis for axis in self.axes for atom in axis.atoms}
        self.by_atom = by_atom
        self.spaces: dict[str, tuple[Axis, ...]] = {
            space: tuple(dict.fromkeys(by_atom[a] for a in order)) for space, order in self.orders.items()
        }
        self._needs()
        self.arrays = {name: self._array(name) for name in shapes.dims}

    # ------------------------------------------------------------------------------------------------ structure
    def _split_lines(self) -> None:
        """Arrays of one dimension are taken as rows of 128 where that moves nothing in memory."""
        axes = self.shapes.axes
        atoms = {a for dims in self.shapes.dims.values() for a in axes.flat(dims)}
        plain = all(f.kind in ("map", "same", "fill", "item") for f in self.shapes.forms.values())
        self.folded = False
        if len(atoms) == 1 and plain:
            (atom,) = atoms
            if atom.size % 1024 == 0:
                axes.parts[atom] = (Atom(atom.size // LANES), Atom(LANES))
                self.folded = True

    def _order(self, space: str) -> list[Atom]:
        members = [self.sequences[name] for name, s in self.space_of.items() if s == space]
        after: dict[Atom, set[Atom]] = {a: set() for sequence in members for a in sequence}
        for sequence in members:
            for left, right in pairwise(sequence):
                after[right].add(left)
        lanes: dict[Atom, int] = {}
        for sequence in members:
            if sequence:
                lanes[sequence[-1]] = max(lanes.get(sequence[-1], 0), elements(sequence))
        order: list[Atom] = []
        while after:
            ready = [a for a, needs in after.items() if not needs]
            if not ready:
                raise Apart("values with their dimensions in different orders")
            free = min(ready, key=lambda a: lanes.get(a, 0))  # lanes of the largest values come last
            order.append(free)
            del after[free]
            for needs in after.values():
                needs.discard(free)
        return order

    def _merged(self) -> list[Axis]:
        expand = self.shapes.axes.expand
        sets = [set(sequence) for sequence in self.sequences.values()]
        for form in self.shapes.forms.values():
            sets += [set(expand(form.reduced)), set(expand(form.partial))]
            sets += [set(expand(m)) for m in form.matrices]
        held = [set(expand(dim)) for name in self.outside for dim in self.shapes.dims[name]]
        chains: dict[Atom, list[Atom]] = {}
        for order in self.orders.values():
            for atom in order:
                chains.setdefault(atom, [atom])
        for order in self.orders.values():
            for left, right in pairwise(order):
                if chains[left] is chains[right] or self.folded:
                    continue
                if any((left in s) != (right in s) for s in sets):
                    continue
                last = right is order[-1]
                if last and not any(left in dim and right in dim for dim in held):
                    continue  # joining lanes with what is before them would move the array's elements
                joined = chains[left] + chains[right]
                for atom in joined:
                    chains[atom] = joined
        unique = {id(c): c for c in chains.values()}
        return [Axis(tuple(c), elements(c)) for c in unique.values()]

    def axes_of(self, atoms: Iterable[Atom]) -> tuple[Axis, ...]:
        """The axes of some atoms, in order."""
        return tuple(dict.fromkeys(self.by_atom[a] for a in self.shapes.axes.expand(atoms)))

    def _needs(self) -> None:
        for form in self.shapes.forms.values():
            reduced = self.axes_of(form.reduced)
            for axis in reduced:
                axis.whole = True
            if form.kind == "pick" and len(reduced) != 1:
                raise Apart("a gather along several axes")
            if form.kind == "product":
                rows, inner, columns, batch = (self.axes_of(m) for m in form.matrices)
                if len(inner) > 1 or len(columns) > 1:
                    raise Apart("a matrix whose columns are several axes")
                for axis in (*batch, *rows[:-1]):
                    axis.single = True
            if form.kind == "attention":
                rows, keys, batch = (self.axes_of(m) for m in form.matrices[:3])
                if len(rows) != 1 or len(keys) != 1:
                    raise Apart("queries or keys along several axes")
                for axis in batch:
                    axis.single = True
        for axis in self.axes:
            if axis.whole and axis.single:
                raise Apart("a batch that is reduced")

    def _array(self, name: str) -> Array:
        space = self.spaces[self.space_of[name]]
        present = set(self.axes_of(a for d in self.shapes.dims[name] for a in d))
        row: list[Axis | None] = [a if a in present else None for a in space]
        singles = [i for i, a in enumerate(space) if a.single]
        if singles:  # what is taken one by one stands before rows and lanes
            row[singles[-1] + 1 : singles[-1] + 1] = [None] * max(0, singles[-1] + 3 - len(row))
        simple = (
            all(len(s) == 1 for s in self.spaces.values())
            and all(self.sequences.values())
            and all(f.kind in ("map", "same", "item") for f in self.shapes.forms.values())
        )
        while len(row) < 2 and not simple:
            row.insert(0, None)
        return Array(tuple(row), self.item(name))

    def item(self, name: str) -> int:
        """Bytes of an element in VMEM."""
        dtype = self.shapes.dtype(name)
        return 4 if dtype in (torch.bool, torch.int64) else dtype.itemsize

    # ---------------------------------------------------------------------------------------------------- sizes
    def fit(self, chip_name: str, order: list[str], last_use: dict[str, int], factor: float = 1.0) -> None:
        """Choose the blocks.

        Args:
            chip_name: ``v5e`` ...
            order: values in the order in which they are computed.
            last_use: value -> the position of its last reader.
            factor: of the bytes that a block aims at.

        Raises:
            Apart: the smallest blocks don't fit.
        """
        chip = CHIPS[chip_name]
        units = {axis: self._unit(axis) for axis in self.axes}
        for axis in self.axes:
            least = 1 if axis.single else axis.size if axis.whole else min(axis.size, units[axis])
            axis.block = least
        self._check_singles()
        if not self.fits(chip, order, last_use):
            raise Apart("what is reduced does not fit into VMEM")
        least_bytes, most_bytes = block_bytes(chip_name)
        edges = [self.arrays[n] for n in self.outside]
        total = max((math.prod(a.shape) * a.item for a in edges), default=0)
        target = int(min(most_bytes, max(least_bytes, total // STEPS)) * factor)
        rows_limit, columns_limit = TILES.get(chip_name, TILES_ELSEWHERE)
        limits = self._product_limits(int(rows_limit * factor), int(columns_limit * factor))
        lanes = [a for a in self.axes if self._stands(a) == -1]
        others = sorted((a for a in self.axes if a not in lanes), key=lambda a: (-self._stands(a), -a.size))
        for most, axes in ((FEW_LANES, lanes), (None, [*others, *lanes])):
            for axis in axes:
                if axis.whole or axis.single:
                    continue
                self._grow(
                    axis,
                    units[axis],
                    target if axis not in limits else chip.kernel_vmem_bytes,
                    min(most or axis.size, limits.get(axis, axis.size)),
                    chip,
                    order,
                    last_use,
                )
        for axis in self.axes:
            if not (axis.whole or axis.single) and axis.block < axis.size and units[axis] < axis.block:
                share = math.ceil(axis.size / axis.steps)
                axis.block = min(axis.block, math.ceil(share / units[axis]) * units[axis])
        number = 0
        seen = dict.fromkeys(a for space in sorted(self.spaces.values(), key=len, reverse=True) for a in space)
        for axis in seen:
            if axis.block < axis.size:
                axis.grid = number
                number += 1

    def _check_singles(self) -> None:
        for array in self.arrays.values():
            for axis in array.axes[-2:]:
                if axis is not None and axis.single and axis.size > 1:
                    raise Apart("a batch among rows or lanes")

    def _stands(self, axis: Axis) -> int:
        """The innermost dimension that an axis is found in: -1 for lanes."""
        return max(
            (array.axes.index(axis) - len(array.axes) for array in self.arrays.values() if axis in array.axes),
            default=-1,
        )

    def _unit(self, axis: Axis) -> int:
        unit = 1
        for array in self.arrays.values():
            if axis not in array.axes:
                continue
            at, packing = array.axes.index(axis) - len(array.axes), max(1, 4 // array.item)
            if len(array.axes) == 1:
                unit = max(unit, 1024 * packing)
            elif at == -1:
                unit = max(unit, LANES)
            elif at == -2:
                unit = max(unit, SUBLANES * packing)
        return unit

    def _product_limits(self, rows: int, columns: int) -> dict[Axis, int]:
        found: dict[Axis, int] = {}
        for form in self.shapes.forms.values():
            if form.kind == "product":
                found |= {a: rows for a in self.axes_of(form.matrices[0])}
                found |= {a: columns for a in self.axes_of(form.matrices[2])}
            elif form.kind == "attention":
                found |= {a: rows // (1 + form.extra["backward"]) for a in self.axes_of(form.matrices[0])}
        return found

    def _grow(
        self, axis: Axis, unit: int, target: int, most: int, chip: TpuChip, order: list[str], last_use: dict[str, int]
    ) -> None:
        mine = [self.arrays[n] for n in self.outside if axis in self.arrays[n].axes]
        if not mine:
            mine = [a for a in self.arrays.values() if axis in a.axes]
        if all(len(a.axes) == 1 for a in mine):
            most = min(most, _ONE_DIM * 4)

        def fits(size: int) -> bool:
            before, axis.block = axis.block, size
            good = all(a.bytes() <= target for a in mine) and self.fits(chip, order, last_use)
            axis.block = before
            return good

        if most >= axis.size and fits(axis.size):
            axis.block = axis.size
            return
        low, high = axis.block // unit, min(most, axis.size) // unit
        while low < high:
            middle = (low + high + 1) // 2
            if fits(middle * unit):
                low = middle
            else:
                high = middle - 1
        axis.block = max(axis.block, min(axis.size, low * unit))

    def fits(self, chip: TpuChip, order: list[str], last_use: dict[str, int]) -> bool:
        """Whether blocks and what is computed between them fit into VMEM."""
        edges = sum(2 * self.arrays[n].bytes() for n in self.outside)
        alive: dict[str, int] = {}
        peak = values = 0
        for position, name in enumerate(order):
            array = self.arrays[name]
            alive[name] = padded_bytes(array.block, 4)
            values += math.prod(array.block)
            form = self.shapes.forms[name]
            between = 0
            if form.kind == "attention":
                rows, keys = (self.axes_of(m)[0] for m in form.matrices[:2])
                between = (6 if form.extra["backward"] else 4) * padded_bytes((rows.block, keys.block), 4)
                values += between // 4
            peak = max(peak, sum(alive.values()) + between)
            for other in [n for n in alive if last_use.get(n, -1) <= position]:
                del alive[other]
        return edges + peak <= chip.kernel_vmem_bytes and values <= _MOST_VALUES * 4

    @property
    def grid(self) -> tuple[Axis, ...]:
        """The axes that are cut, in the order of the grid."""
        return tuple(sorted((a for a in self.axes if a.grid is not None), key=lambda a: a.grid or 0))

    def misses(self, name: str) -> bool:
        """Whether a value that leaves has no place for some axis of the grid."""
        present = set(self.arrays[name].axes) | set(self.axes_of(self.shapes.forms[name].partial))
        return any(a not in present for a in self.grid)

    def form(self, name: str) -> Form:
        """The form of a value's line."""
        return self.shapes.forms[name]
