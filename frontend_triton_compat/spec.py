"""The executable law of the tile IR.

Input: a kernel. Output: none, or an ``internal-error`` diagnostic that names the operation. Law: see `ir`: a value is
defined once and before its uses, in an enclosing block; operands have the types and shapes that their operation
asks for; regions yield what their operation gives.
"""

from __future__ import annotations

from collections.abc import Callable

from bridge.diagnostics import error
from frontend_triton_compat.ir import Block, Kernel, Op, Value
from frontend_triton_compat.language.table import row_for
from frontend_triton_compat.types import INT1, INT32, TileType, dtype, pointer_type


def check(kernel: Kernel) -> None:
    """Check a kernel against the IR's law.

    Raises:
        Diagnostic: an operation breaks it (a defect of this package).
    """
    _block(kernel.body, set())


class _Broken(Exception):
    pass


def _need(condition: bool, why: str) -> None:
    if not condition:
        raise _Broken(why)


def _block(block: Block, outside: set[Value]) -> set[Value]:
    defined = set(outside)
    for arg in block.args:
        defined.add(arg)
    for op in block.ops:
        try:
            for v in op.operands:
                _need(v in defined, f"operand {v.name or v.type} is used before it is defined, or outside of its block")
            for v in op.results:
                _need(v not in defined and v.producer is op, "a result is defined twice")
            for region in op.regions:
                inner = _block(region, defined)
                _need(all(v in inner for v in region.yields), "a region yields a value that it does not see")
            rule = _RULES.get(op.kind)
            _need(rule is not None, "there is no such operation")
            rule(op)  # type: ignore[misc]
        except _Broken as problem:
            shown = ", ".join(str(v.type) for v in op.operands)
            gives = ", ".join(str(v.type) for v in op.results)
            raise error(
                "internal-error",
                f"tile IR: {op.kind}({shown}) -> ({gives}) {dict(op.attrs)}: {problem}",
                where=op.where,
                why="the parser or a pass wrote an operation that the IR's law forbids",
                do="report the kernel; it is not the kernel's fault",
            ) from None
        defined.update(op.results)
    return defined


def _types(values: tuple[Value, ...]) -> list[TileType]:
    return [v.type for v in values]


def _counts(op: Op, operands: int | tuple[int, int], results: int, regions: int = 0) -> None:
    low, high = operands if isinstance(operands, tuple) else (operands, operands)
    _need(low <= len(op.operands) <= high, f"{len(op.operands)} operands")
    _need(len(op.results) == results, f"{len(op.results)} results")
    _need(len(op.regions) == regions, f"{len(op.regions)} regions")


def _one_shape(op: Op, values: tuple[Value, ...]) -> None:
    _need(len({v.shape for v in values}) <= 1, f"shapes {[v.shape for v in values]} differ")


def _arg(op: Op) -> None:
    _counts(op, 0, 1)
    _need(not op.result.shape, "an argument is a scalar")
    _need({"name", "index"} <= set(op.attrs), "it needs name and index")


def _const(op: Op) -> None:
    _counts(op, 0, 1)
    t, value = op.result.type.element, op["value"]
    _need(not op.result.shape, "a constant is a scalar")
    if not isinstance(t, dtype):
        raise _Broken("a pointer is no constant")
    if t.is_bool():
        _need(isinstance(value, bool), "an int1 constant is a bool")
    elif t.is_int():
        _need(type(value) is int and t.get_int_min_value() <= value <= t.get_int_max_value(), f"{value!r} is no {t}")
    else:
        _need(type(value) is float, f"{value!r} is no float")


def _program_id(op: Op) -> None:
    _counts(op, 0, 1)
    _need(op["axis"] in (0, 1, 2) and op.result.type == TileType(INT32), "it is an int32 scalar on axis 0, 1 or 2")


def _arange(op: Op) -> None:
    _counts(op, 0, 1)
    _need(op.result.type == TileType(INT32, (op["end"] - op["start"],)), "its type is int32[end - start]")


def _splat(op: Op) -> None:
    _counts(op, 1, 1)
    x, out = op.operands[0].type, op.result.type
    _need(x.shape == () and out.shape != () and x.element == out.element, "it repeats a scalar")


def _expand_dims(op: Op) -> None:
    _counts(op, 1, 1)
    x, out, axis = op.operands[0].type, op.result.type, op["axis"]
    _need(0 <= axis <= x.rank, "its axis lies outside")
    _need(out == x.with_shape((*x.shape[:axis], 1, *x.shape[axis:])), "it adds one dimension of size 1")


def _broadcast(op: Op) -> None:
    _counts(op, 1, 1)
    x, out = op.operands[0].type, op.result.type
    _need(x.element == out.element and x.rank == out.rank, "element type and rank stay")
    _need(all(m in (1, n) for m, n in zip(x.shape, out.shape)), "only dimensions of size 1 grow")


def _trans(op: Op) -> None:
    _counts(op, 1, 1)
    x, perm = op.operands[0].type, op["perm"]
    _need(sorted(perm) == list(range(x.rank)), "perm is a permutation")
    _need(op.result.type == x.with_shape(tuple(x.shape[d] for d in perm)), "the result has the permuted shape")


def _reshape(op: Op) -> None:
    _counts(op, 1, 1)
    x, out = op.operands[0].type, op.result.type
    _need(x.element == out.element and x.numel == out.numel, "the elements stay")


_ARITY = {"unary": 1, "binary": 2, "compare": 2, "ternary": 3}


def _map(op: Op) -> None:
    row = row_for("map", op["fn"])
    _counts(op, _ARITY.get(row.family, len(op.operands)), 1)
    _one_shape(op, (*op.operands, op.result))
    elements = [v.type.element for v in op.operands]
    if op["fn"] == "where":
        _need(elements[0] == INT1, "the condition is int1")
        elements = elements[1:]
    _need(len(set(elements)) == 1, f"element types {list(map(str, elements))} differ")
    t = elements[0]
    expected = {"bool": INT1, "int32": INT32}.get(row.result, t)
    _need(op.result.type.element == expected, f"the result should have element type {expected}")
    accepted: dict[str, Callable[[], bool]] = {
        "any": lambda: True,
        "float": t.is_floating,
        "wide": lambda: str(t) in ("fp32", "fp64"),
        "fp32": lambda: str(t) == "fp32",
        "fp64": lambda: str(t) == "fp64",
        "int32": lambda: t == INT32,
        "int": t.is_int,
        "number": lambda: t.is_floating() or (t.is_int() and not t.is_bool()),
        "bool": t.is_bool,
    }
    _need(accepted[row.accepts](), f"{op['fn']} takes {row.accepts} operands, not {t}")


def _cast(op: Op) -> None:
    _counts(op, 1, 1)
    x, out = op.operands[0].type, op.result.type
    _need(x.shape == out.shape and not x.is_pointer and not out.is_pointer, "it changes the element type only")


def _bitcast(op: Op) -> None:
    _cast(op)
    x, out = op.operands[0].type.element, op.result.type.element
    _need(x.primitive_bitwidth == out.primitive_bitwidth, "both types have one width")


def _ptr_add(op: Op) -> None:
    _counts(op, 2, 1)
    p, i = op.operands
    _need(p.type.is_pointer and i.type.element.is_int() and op.result.type == p.type, "pointer and integer")
    _one_shape(op, op.operands)


def _load(op: Op) -> None:
    expected = 1 + op["has_mask"] + op["has_other"]
    _counts(op, expected, 1)
    p, *rest = op.operands
    _need(p.type.is_pointer, "it loads through a pointer")
    _need(op.result.type == TileType(_pointed_to(p), p.shape), "it gives the pointed-to elements")
    _mask_and(op, rest[: op["has_mask"]], rest[op["has_mask"] :], p)
    _need(op["has_mask"] or not op["has_other"], "other needs a mask")


def _pointed_to(p: Value) -> dtype:
    t = p.type.element
    if not isinstance(t, pointer_type):
        raise _Broken("it works through a pointer")
    return t.element_ty


def _mask_and(op: Op, masks: list[Value], values: list[Value], p: Value) -> None:
    for m in masks:
        _need(m.type == TileType(INT1, p.shape), "the mask is int1 of the pointer's shape")
    for v in values:
        _need(v.type == TileType(_pointed_to(p), p.shape), "the value has the pointer's element type and shape")


def _store(op: Op) -> None:
    _counts(op, 2 + op["has_mask"], 0)
    p, v, *mask = op.operands
    _need(p.type.is_pointer, "it stores through a pointer")
    _mask_and(op, mask, [v], p)


def _atomic(op: Op) -> None:
    values = 2 if op["fn"] == "cas" else 1
    _counts(op, 1 + values + op["has_mask"], 1)
    p, *rest = op.operands
    _need(p.type.is_pointer, "it works through a pointer")
    _mask_and(op, rest[values:], [*rest[:values], op.result], p)


def _reduce(op: Op) -> None:
    _counts(op, 1, 1)
    x, axis, row = op.operands[0].type, op["axis"], row_for("reduce", op["fn"])
    _need(0 <= axis < x.rank, "its axis lies outside")
    element = INT32 if row.result == "int32" else x.element
    _need(op.result.type == TileType(element, (*x.shape[:axis], *x.shape[axis + 1 :])), "it drops one dimension")


def _scan(op: Op) -> None:
    _counts(op, 1, 1)
    row_for("scan", op["fn"])
    _need(0 <= op["axis"] < op.operands[0].type.rank and isinstance(op["reverse"], bool), "axis and reverse")
    _need(op.result.type == op.operands[0].type, "the type stays")


def _reduce_by(op: Op) -> None:
    axis = op["axis"]
    _need(0 <= axis < op.operands[0].type.rank, "its axis lies outside")
    _combines(op)
    for x, out in zip(_types(op.operands), _types(op.results)):
        _need(out == x.with_shape((*x.shape[:axis], *x.shape[axis + 1 :])), "it drops one dimension")


def _scan_by(op: Op) -> None:
    _need(0 <= op["axis"] < op.operands[0].type.rank and isinstance(op["reverse"], bool), "axis and reverse")
    _combines(op)
    _need(_types(op.operands) == _types(op.results), "the types stay")


def _combines(op: Op) -> None:
    _counts(op, (1, len(op.operands)), len(op.operands))
    _one_shape(op, op.operands)
    elements = [TileType(v.type.element) for v in op.operands]
    _need(_types(op["body"].args) == [*elements, *elements], "the combination takes two elements of every operand")
    _need(_types(op["body"].yields) == elements, "and gives one")
    _closed(op["body"])


def _each(op: Op) -> None:
    _one_shape(op, (*op.operands, *op.results))
    _need(_types(op["body"].args) == [TileType(v.type.element) for v in op.operands], "it takes one of every operand")
    _need(_types(op["body"].yields) == [TileType(v.type.element) for v in op.results], "it gives one of every result")
    _closed(op["body"])


def _closed(body: Block) -> None:
    inside = _block(body, set())
    _need(all(v in inside for v in body.yields), "its body yields a value that it does not see")


def _dot(op: Op) -> None:
    _counts(op, 3, 1)
    a, b, acc = _types(op.operands)
    _need(a.rank == b.rank == acc.rank and a.rank in (2, 3), "two or three dimensions")
    _need(a.shape[-1] == b.shape[-2] and a.shape[:-2] == b.shape[:-2], "the inner dimensions agree")
    _need(acc.shape == (*a.shape[:-1], b.shape[-1]) and op.result.type == acc, "the accumulator has the result's type")


def _for(op: Op) -> None:
    _need(len(op.operands) >= 3 and len(op.regions) == 1, "bounds and one region")
    bounds, inits, (region,) = _types(op.operands[:3]), _types(op.operands[3:]), op.regions
    _need(
        len(set(bounds)) == 1 and bounds[0].shape == () and bounds[0].element.is_int(),
        "bounds are integer scalars of one type",
    )
    _need(_types(region.args) == [bounds[0], *inits], "arguments are the index and the carried values")
    _need(_types(region.yields) == inits == _types(op.results), "carried values keep their types")


def _while(op: Op) -> None:
    _need(len(op.regions) == 2, "two regions")
    inits, (test, body) = _types(op.operands), op.regions
    _need(
        _types(test.args) == inits == _types(body.args) == _types(body.yields) == _types(op.results),
        "carried values keep their types",
    )
    _need(_types(test.yields) == [TileType(INT1)], "the condition is an int1 scalar")


def _if(op: Op) -> None:
    _counts(op, 1, len(op.results), 2)
    _need(op.operands[0].type == TileType(INT1), "the condition is an int1 scalar")
    for region in op.regions:
        _need(not region.args and _types(region.yields) == _types(op.results), "each region yields the results")


def _call(op: Op) -> None:
    _need(row_for("call", op["fn"]).family == "call" and len(op.results) >= 1, "it names a row that is called")


def _assert(op: Op) -> None:
    _counts(op, 1, 0)
    _need(op.operands[0].type.element == INT1 and isinstance(op["message"], str), "an int1 and a message")


def _print(op: Op) -> None:
    _counts(op, (0, len(op.operands)), 0)


_RULES: dict[str, Callable[[Op], None]] = {
    "arg": _arg,
    "const": _const,
    "program_id": _program_id,
    "arange": _arange,
    "splat": _splat,
    "expand_dims": _expand_dims,
    "broadcast": _broadcast,
    "trans": _trans,
    "reshape": _reshape,
    "map": _map,
    "cast": _cast,
    "bitcast": _bitcast,
    "ptr_add": _ptr_add,
    "load": _load,
    "store": _store,
    "reduce": _reduce,
    "scan": _scan,
    "reduce_by": _reduce_by,
    "scan_by": _scan_by,
    "each": _each,
    "dot": _dot,
    "for": _for,
    "while": _while,
    "if": _if,
    "atomic": _atomic,
    "call": _call,
    "assert_": _assert,
    "print_": _print,
}
