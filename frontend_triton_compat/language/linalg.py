"""`tl.dot`.

Input: two tiles of 2 dimensions or more, an optional accumulator. Output: a handle. Law: the IR's `dot` always has an
accumulator of the result's type; any size is taken, since padding to a machine's minimum is the target's business.
"""

from __future__ import annotations

from typing import Any

from frontend_triton_compat.language.constexpr import unwrap
from frontend_triton_compat.language.context import current, fail
from frontend_triton_compat.language.creation import as_dtype
from frontend_triton_compat.language.semantic import broadcast_to, cast, constant, emit, to_tensor
from frontend_triton_compat.language.shaping import reshape
from frontend_triton_compat.language.tensor import tensor
from frontend_triton_compat.types import FP16, FP32, FP64, INT8, INT32, TileType, dtype

PRECISIONS = ("tf32", "tf32x3", "ieee", "bf16x3", "bf16x6")
_OPERANDS = ("int8", "uint8", "fp16", "bf16", "fp32", "fp64")


def _result_type(t: dtype, out: dtype) -> dtype:
    if t.is_int():
        if t != INT8:
            raise fail(
                "operand-type",
                f"dot of {t}",
                why="Triton multiplies int8 tiles only",
                do="cast to tl.int8 or tl.float16",
            )
        return INT32
    if str(out) == "bf16":
        raise fail(
            "operand-type",
            "dot with out_dtype=tl.bfloat16",
            why="products are accumulated in fp32 or fp16",
            do="leave out_dtype and cast the result: tl.dot(a, b).to(tl.bfloat16)",
        )
    if str(t) in ("fp32", "bf16"):
        return FP32
    return FP64 if t == FP64 else out


def dot(
    input: Any,
    other: Any,
    acc: Any = None,
    input_precision: Any = None,
    allow_tf32: Any = None,
    max_num_imprecise_acc: Any = None,
    out_dtype: Any = FP32,
) -> tensor:
    """Matrix product of two tiles, plus `acc`; with more dimensions, one product for each leading index."""
    current("tl.dot")
    a, b = to_tensor(input), to_tensor(other)
    _check_operands(a, b)
    if len(a.shape) > 3:  # the leading dimensions count products: one dimension serves
        start = unwrap(acc) if unwrap(acc) is None else _matrices(to_tensor(acc))
        product = dot(_matrices(a), _matrices(b), start, input_precision, allow_tf32, max_num_imprecise_acc, out_dtype)
        return reshape(product, *a.shape[:-1], b.shape[-1])
    if "fp8e4b15" in (str(a.dtype), str(b.dtype)):
        a, b = cast(a, FP16), cast(b, FP16)
    shape = (*a.shape[:-1], b.shape[-1])
    t = _result_type(a.dtype, as_dtype(out_dtype))
    precision, tf32 = unwrap(input_precision), unwrap(allow_tf32)
    if precision is not None and tf32 is not None:
        raise fail(
            "operand-type",
            "dot with both input_precision and allow_tf32",
            why="they say the same thing in two ways",
            do="keep input_precision only",
        )
    if precision is None:
        precision = "ieee" if tf32 is not None and not tf32 else "tf32"
    if precision not in PRECISIONS:
        raise fail(
            "operand-type",
            f"dot with input_precision={precision!r}",
            why=f"the precisions are {', '.join(PRECISIONS)}",
            do='use input_precision="ieee" for full fp32',
        )
    if unwrap(acc) is None:
        start = broadcast_to(constant(0, t), shape)
    else:
        start = to_tensor(acc)
        if start.shape != shape or start.dtype != t:
            raise fail(
                "shape-mismatch" if start.shape != shape else "operand-type",
                f"dot of {a.handle.type} and {b.handle.type} with an accumulator of type {start.handle.type}",
                why=f"the product has type {TileType(t, shape)}",
                do=f"make the accumulator with tl.zeros({shape}, tl.{_tl_name(t)})",
            )
    return emit("dot", [a, b, start], [TileType(t, shape)], input_precision=precision)[0]


def _matrices(x: tensor) -> tensor:
    return reshape(x, x.numel // (x.shape[-2] * x.shape[-1]), *x.shape[-2:])


def _tl_name(t: dtype) -> str:
    return {"fp16": "float16", "bf16": "bfloat16", "fp32": "float32", "fp64": "float64"}.get(t.name, t.name)


def _check_operands(a: tensor, b: tensor) -> None:
    for x in (a, b):
        if str(x.dtype) not in _OPERANDS and not x.dtype.is_fp8():
            raise fail(
                "operand-type",
                f"dot of {x.dtype}",
                why="dot multiplies fp8, fp16, bf16, fp32, fp64 and int8 tiles",
                do="cast the operands: x.to(tl.float32)",
            )
    if a.dtype != b.dtype and not (a.dtype.is_fp8() and b.dtype.is_fp8()):
        raise fail(
            "operand-type",
            f"dot of {a.dtype} and {b.dtype}",
            why="both operands must have one type",
            do="cast one of them to the other's type: tl.dot(a, b.to(a.dtype))",
        )
    fits = len(a.shape) == len(b.shape) and len(a.shape) >= 2
    if not fits or a.shape[-1:] != b.shape[-2:-1] or a.shape[:-2] != b.shape[:-2]:
        raise fail(
            "shape-mismatch",
            f"dot of shapes {a.shape} and {b.shape}",
            why="the operands are (M, K) and (K, N), or (..., M, K) and (..., K, N)",
            do="transpose one of them with tl.trans(x)",
        )
