"""The tile IR: what one program of a kernel does, as SSA values in structured control flow.

Input: written by `parse`, one kernel a specialisation. Output: read by `dims`, `access`, `schedule` and `emit`.
Law (checked by `spec`): a value is defined once, before its uses, in an enclosing block; operands of `map` share
one shape; every node carries the `Where` of the user's line. Integer launch arguments are constants here (they are
part of the specialisation), float arguments are run-time scalars.

Operations (operands -> results; attributes):
    arg            -> scalar                  name, index               a float argument or a pointer argument
    const          -> scalar                  value (int | float | bool), name ("" or the argument it came from)
    program_id     -> int32 scalar            axis
    arange         -> int32[end - start]      start, end
    splat          x -> tile                  a scalar in every element of the result's shape
    expand_dims    x -> tile                  axis: where the new dimension of size 1 stands
    broadcast      x -> tile                  same rank; dimensions of size 1 grow
    trans          x -> tile                  perm
    reshape        x -> tile                  row-major regrouping of the elements
    map            x... -> tile               fn: a row of the op table ("add", "exp", "where", "lt", ...)
    cast           x -> tile                  rounding (None | "rtne" | "rtz")
    bitcast        x -> tile
    ptr_add        p, i -> pointer tile       offsets in elements, same shape
    load           p, [mask], [other] -> tile has_mask, has_other
    store          p, v, [mask] ->            has_mask
    reduce         x -> tile                  fn ("sum" | "max" | "min" | "argmax" | ...), axis, [tie_break_left]
    scan           x -> tile                  fn ("cumsum" | "cumprod" | ...), axis, reverse
    reduce_by      x... -> tile...            axis, body: a closed block of scalars (a..., b...) -> combined
    scan_by        x... -> tile...            axis, reverse, body: as of reduce_by
    each           x... -> tile...            body: a closed block of scalars, applied to every element
    dot            a, b, acc -> tile          input_precision; acc's type is the result's
    for            lo, hi, step, init... -> final...   one region: (induction variable, carried...) -> carried...
    while          init... -> final...        two regions: condition (carried...) -> bool; body (carried...) -> carried
    if             cond -> results...         two regions without arguments, each yields the results
    atomic         p, v, [mask] -> tile       fn ("add" | "max" | "cas" | ...)
    call           x... -> tiles              fn: a row of the op table that is neither map nor reduce nor scan
                                              ("join", "split", "cat", "sort", "flip", "histogram", "gather", ...)
    assert_        cond ->                    message
    print_         x... ->                    prefix
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from bridge.diagnostics import Where
from frontend_triton_compat.types import TileType


@dataclass(eq=False)
class Value:
    """One SSA value. Identity is the object; `name` is the user's variable where there is one."""

    type: TileType
    name: str = ""
    producer: Op | None = field(default=None, repr=False)  # None: a block argument
    owner: Op | None = field(default=None, repr=False)  # the loop whose block argument it is

    @property
    def shape(self) -> tuple[int, ...]:
        """Tile shape, ``()`` for a scalar."""
        return self.type.shape


@dataclass(eq=False)
class Op:
    """One operation; see the module's table."""

    kind: str
    operands: tuple[Value, ...]
    attrs: Mapping[str, Any]
    where: Where
    results: tuple[Value, ...] = ()
    regions: tuple[Block, ...] = ()

    @property
    def result(self) -> Value:
        """The only result."""
        (value,) = self.results
        return value

    def __getitem__(self, name: str) -> Any:
        return self.attrs[name]


@dataclass(eq=False)
class Block:
    """A straight run of operations with arguments and yielded values."""

    args: tuple[Value, ...] = ()
    ops: list[Op] = field(default_factory=list)
    yields: tuple[Value, ...] = ()


@dataclass(frozen=True)
class Param:
    """A kernel parameter as it was specialised.

    Attributes:
        name: the parameter's name.
        index: its position in the signature.
        kind: ``pointer``, ``int``, ``float``, ``constexpr`` (None and bools included), ``tuple`` or ``descriptor``.
        type: element type of a pointer, int or float; None otherwise.
        value: the number of an int or constexpr, a tuple's (named) class, block shape and padding of a descriptor; None
            otherwise.
        items: a tuple's elements; pointer, shape and strides of a descriptor.
    """

    name: str
    index: int
    kind: str
    type: Any = None
    value: Any = None
    items: tuple[Param, ...] = ()


@dataclass(eq=False)
class Kernel:
    """One specialisation of one kernel.

    Attributes:
        name: the Python function's name.
        params: every parameter in order.
        grid: number of programs on the three axes.
        body: the operations of one program.
        where: the ``def`` line.
    """

    name: str
    params: tuple[Param, ...]
    grid: tuple[int, int, int]
    body: Block
    where: Where


def walk(block: Block) -> Iterator[Op]:
    """Every operation of a block and of the regions below it, in program order (an op before its regions)."""
    for op in block.ops:
        yield op
        for region in op.regions:
            yield from walk(region)


#: Operations whose elements meet along the axis in their attribute `axis`.
ALONG_AXIS = ("reduce", "scan", "reduce_by", "scan_by")


class Builder:
    """Appends operations to the innermost open block; used by `parse` and the language's functions."""

    def __init__(self) -> None:
        self._blocks: list[Block] = [Block()]

    @property
    def block(self) -> Block:
        """The innermost open block."""
        return self._blocks[-1]

    @property
    def depth(self) -> int:
        """How many blocks are open: one outside of every loop and branch."""
        return len(self._blocks)

    def open(self, block: Block) -> None:
        """Make `block` the one that operations are appended to."""
        self._blocks.append(block)

    def close(self) -> Block:
        """Leave the innermost block and return it."""
        return self._blocks.pop()

    def emit(
        self,
        kind: str,
        operands: Sequence[Value],
        types: Sequence[TileType],
        where: Where,
        regions: Sequence[Block] = (),
        **attrs: Any,
    ) -> tuple[Value, ...]:
        """Append one operation and return its results (a tuple, one value a result type)."""
        op = Op(kind, tuple(operands), attrs, where, regions=tuple(regions))
        op.results = tuple(Value(t, producer=op) for t in types)
        for region in op.regions:
            for arg in region.args:
                arg.owner = op
        self.block.ops.append(op)
        return op.results
