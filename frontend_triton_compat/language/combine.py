"""The kernel author's own scalar functions over tiles: reduce, associative_scan, map_elementwise.

Input: handles and a function on scalars. Output: handles. Law: the function is translated once, on scalars, into a
closed block of scalar operations; a combination that a row of the op table is (``a + b``, ``a * b``, ...) becomes that
row. What a scalar function may not do (memory, printing, the kernel's run-time values) is a diagnostic.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bridge.diagnostics import error
from frontend_triton_compat.ir import Block, Op, Value, walk
from frontend_triton_compat.language import semantic, shaping
from frontend_triton_compat.language.constexpr import unwrap
from frontend_triton_compat.language.context import current, fail
from frontend_triton_compat.language.creation import static_int
from frontend_triton_compat.language.semantic import cast, emit, to_tensor
from frontend_triton_compat.language.shaping import normal_axis
from frontend_triton_compat.language.tensor import tensor
from frontend_triton_compat.types import TileType

#: What a combination of two elements is as a reduction, and as a scan.
_REDUCED = {"add": "sum", "mul": "prod", "and": "and_sum", "or": "or_sum", "xor": "xor_sum"}
_REDUCED |= {"max": "max", "min": "min", "maximum": "max", "minimum": "min", "maximum_nan": "max_nan"}
_REDUCED |= {"minimum_nan": "min_nan"}
_SCANNED = {"add": "cumsum", "mul": "cumprod", "max": "cummax", "min": "cummin"}
_SCALAR_OPS = ("const", "map", "cast", "bitcast", "if", "for", "while")


def _tiles(input: Any, what: str) -> tuple[tensor, ...]:
    current(f"tl.{what}")
    values = unwrap(input)
    values = tuple(values) if isinstance(values, (list, tuple)) else (values,)
    tiles = tuple(to_tensor(v) for v in values)
    if not tiles or not tiles[0].shape or any(t.shape != tiles[0].shape for t in tiles):
        raise fail(
            "shape-mismatch",
            f"{what} of shapes {', '.join(str(tuple(t.shape)) for t in tiles)}",
            why="all tiles must have one shape, with at least one dimension",
            do="broadcast them to one shape first: tl.broadcast_to(x, shape)",
        )
    return tiles


def reduce(input: Any, axis: Any, combine_fn: Any, keep_dims: Any = False) -> Any:
    """Reduce one tile or several at once with the kernel author's own associative function."""
    tiles = _tiles(input, "reduce")
    shape, keep = tiles[0].shape, bool(unwrap(keep_dims))
    if unwrap(axis) is None:
        tiles = tuple(shaping.reshape(t, t.numel) for t in tiles)
        d, kept = 0, (1,) * len(shape)
    else:
        d = normal_axis(axis, len(shape), "reduce")
        kept = (*shape[:d], 1, *shape[d + 1 :])
    rest = tiles[0].shape[:d] + tiles[0].shape[d + 1 :]
    types = [TileType(t.dtype, tuple(rest)) for t in tiles]
    body = _combination(combine_fn, tiles, "reduce")
    known, bits = _REDUCED.get(_only_operation(body)), tiles[0].dtype.is_bool()
    if bits and known in ("sum", "prod"):
        known = "xor_sum" if known == "sum" else "and_sum"  # arithmetic of one bit
    if known is not None:
        out = emit("reduce", tiles, types, fn=known, axis=d)
    else:
        out = emit("reduce_by", tiles, types, axis=d, body=body)
    if keep:
        out = tuple(shaping.reshape(t, *kept) if t.shape else semantic.splat(t, kept) for t in out)
    return tuple(out) if isinstance(unwrap(input), (list, tuple)) else out[0]


def associative_scan(input: Any, axis: Any, combine_fn: Any, reverse: Any = False) -> Any:
    """Running combination along an axis with the kernel author's own associative function."""
    tiles = _tiles(input, "associative_scan")
    d, backwards = normal_axis(axis, len(tiles[0].shape), "associative_scan"), bool(unwrap(reverse))
    types = [t.handle.type for t in tiles]
    body = _combination(combine_fn, tiles, "associative_scan")
    known = _SCANNED.get(_only_operation(body))
    if known is not None and not tiles[0].dtype.is_bool():
        out = emit("scan", tiles, types, fn=known, axis=d, reverse=backwards)
    else:
        out = emit("scan_by", tiles, types, axis=d, reverse=backwards, body=body)
    return tuple(out) if isinstance(unwrap(input), (list, tuple)) else out[0]


def map_elementwise(scalar_fn: Any, *args: Any, pack: Any = 1) -> Any:
    """A function on scalars applied to every element; with `pack`, to so many neighbours in one call."""
    current("tl.map_elementwise")
    count = static_int(pack, "pack")
    tiles = [to_tensor(a) for a in args]
    shape: Sequence[int] = ()
    for t in tiles:
        shape = semantic.broadcast(semantic.broadcast_to(to_tensor(0), shape), t)[0].shape
    if count < 1 or count & (count - 1) or not tiles or not shape or shape[-1] % count:
        raise fail(
            "shape-mismatch",
            f"map_elementwise with pack={count} over {len(tiles)} operands of shape {tuple(shape)}",
            why="the function is applied to every `pack` neighbours of a tile",
            do="give it tiles, and a power of two that their last dimension is a multiple of",
        )
    tiles = [_spread(t, shape) for t in tiles]
    parts = [part for t in tiles for part in _dealt(t, count)]
    body, single = _scalar_body(scalar_fn, [t.dtype for t in parts], "map_elementwise")
    types = [TileType(v.type.element, tuple(parts[0].shape)) for v in body.yields]
    out = emit("each", parts, types, body=body)
    if len(out) % count:
        raise fail(
            "return-type",
            f"the function of map_elementwise returns {len(out)} values with pack={count}",
            why="it gives every result once for each of the packed elements",
            do="return the results of all packed elements, those of one result next to each other",
        )
    packs = [_gathered(out[i : i + count], shape) for i in range(0, len(out), count)]
    return packs[0] if single else tuple(packs)


def _spread(x: tensor, shape: Sequence[int]) -> tensor:
    while x.shape and len(x.shape) < len(shape):
        x = semantic.expand_dims(x, 0)
    return semantic.broadcast_to(x, shape)


def _dealt(x: tensor, count: int) -> list[tensor]:
    """Elements 0, count, 2 count, ... along the last dimension, then 1, count + 1, ..., and so on."""
    if count == 1:
        return [x]
    halves = shaping.split(shaping.reshape(x, *x.shape[:-1], x.shape[-1] // 2, 2))
    even, odd = (_dealt(h, count // 2) for h in halves)
    return [part for pair in zip(even, odd) for part in pair]


def _gathered(parts: Sequence[tensor], shape: Sequence[int]) -> tensor:
    """The tile that `_dealt` took apart."""
    if len(parts) == 1:
        return shaping.reshape(parts[0], *shape)
    half = (*shape[:-1], shape[-1] // 2)
    return shaping.interleave(_gathered(parts[0::2], half), _gathered(parts[1::2], half))


# -- the function as a block of scalar operations ------------------------------------------------------------------


def _combination(fn: Any, tiles: Sequence[tensor], what: str) -> Block:
    types = [t.dtype for t in tiles]
    return _scalar_body(fn, [*types, *types], what, types)[0]


def _scalar_body(fn: Any, types: Sequence[Any], what: str, results: Sequence[Any] | None = None) -> tuple[Block, bool]:
    """A function on scalars as a block, and whether it gives one value that is not in a tuple."""
    ctx = current()
    block = Block(args=tuple(Value(TileType(t)) for t in types))
    ctx.builder.open(block)
    try:
        out = ctx.call(fn, tuple(tensor(a) for a in block.args), {})
        single = not isinstance(out, (list, tuple))
        values = [to_tensor(v) for v in ((out,) if single else out)]
        if results is not None:
            if len(values) != len(results):
                raise fail(
                    "return-type",
                    f"the combine function returns {len(values)} values for {len(results)} tiles",
                    why="it must give one value for every tile that is combined",
                    do="return as many values as there are tiles",
                )
            values = [cast(v, t) for v, t in zip(values, results)]
    finally:
        ctx.builder.close()
    block.yields = tuple(v.handle for v in values)
    _close(block, what)
    return block, single


def _close(block: Block, what: str) -> None:
    """Refuse what a scalar function can't do; constants from outside move in, what nobody looks at goes."""
    _drop_unused(block)
    inside = set(block.args)
    moved: dict[Value, Value] = {}
    head: list[Op] = []
    for op in walk(block):
        if op.kind not in _SCALAR_OPS and op.kind != "assert_":
            raise _refused(op.kind, op, what)
        for region in op.regions:
            inside.update(region.args)
        inside.update(op.results)

    def take(v: Value, op: Op) -> Value:
        if v.shape:
            raise _refused("a tile", op, what)
        if v in inside:
            return v
        if v not in moved:
            source = v.producer
            if source is None or source.kind != "const":
                raise _refused("a run-time value of the kernel", op, what)
            twin = Op("const", (), source.attrs, source.where)
            twin.results = (Value(v.type, v.name, producer=twin),)
            head.append(twin)
            moved[v] = twin.result
        return moved[v]

    def visit(inner: Block) -> None:
        inner.ops = [op for op in inner.ops if op.kind != "assert_"]  # as in Triton without debug=True
        for op in inner.ops:
            op.operands = tuple(take(v, op) for v in op.operands)
            for region in op.regions:
                visit(region)
                region.yields = tuple(take(v, op) for v in region.yields)

    visit(block)
    last = block.ops[-1] if block.ops else Op("const", (), {}, current().where)
    block.yields = tuple(take(v, last) for v in block.yields)
    block.ops[:0] = head


_EFFECTS = ("store", "atomic", "print_", "assert_", "if", "for", "while")


def _drop_unused(block: Block) -> None:
    """Take out operations whose results nobody looks at: `x + tl.zeros((1,), tl.int1)` to ask for a dtype, say."""
    used = set(block.yields)
    for op in walk(block):
        used.update(*(region.yields for region in op.regions))
        if op.kind in _EFFECTS:
            used.update(op.operands)

    def visit(inner: Block) -> None:
        kept = []
        for op in reversed(inner.ops):
            if op.kind in _EFFECTS or any(r in used for r in op.results):
                used.update(op.operands)
                for region in reversed(op.regions):
                    visit(region)
                kept.append(op)
        inner.ops[:] = reversed(kept)

    visit(block)


def _refused(found: str, op: Op, what: str) -> Exception:
    shown = {
        "load": "a load",
        "store": "a store",
        "atomic": "an atomic operation",
        "print_": "a print",
        "program_id": "tl.program_id",
    }.get(found, found)
    return error(
        "combine-function",
        f"the function given to tl.{what} uses {shown}",
        where=op.where,
        why="it is applied to scalars, in an order of its own: it sees its arguments and constants only",
        do=(
            "pass what it needs as one more tile: tl.reduce((x, tl.broadcast_to(s, x.shape)), axis, fn)",
            "load before and store after the call",
        ),
    )


def _only_operation(block: Block) -> str:
    """The name of the map op that a block is, applied to its two arguments; "" for any other block."""
    if len(block.args) != 2 or len(block.ops) != 1:
        return ""
    (op,) = block.ops
    simple = op.kind == "map" and op.results == block.yields and set(op.operands) == set(block.args)
    return op["fn"] if simple else ""
