"""`tl.dot_scaled`: products of block-scaled tiles (OCP microscaling formats mxfp4 and mxfp8).

Input: packed or plain tiles, their scales, the names of their formats. Output: a handle. Law: an element times its
block's scale is exact before it is rounded once, to bf16, or to fp16 when one operand is fp16; products are summed in
fp32. A scale of 0xFF is NaN for its block.
Source of the formats: OCP Microscaling Formats (MX) Specification v1.0.
"""

from __future__ import annotations

from typing import Any

from frontend_triton_compat.language import math as tl_math
from frontend_triton_compat.language import operators, semantic, shaping
from frontend_triton_compat.language.constexpr import unwrap
from frontend_triton_compat.language.context import current, fail
from frontend_triton_compat.language.creation import as_dtype
from frontend_triton_compat.language.linalg import dot
from frontend_triton_compat.language.semantic import bitcast, cast, to_tensor
from frontend_triton_compat.language.tensor import tensor
from frontend_triton_compat.types import BF16, FP16, FP32, INT32, UINT8, UINT16, dtype

#: name of a format -> (type of its elements, or None where two share a byte; type that may hold the bits)
FORMATS: dict[str, tuple[dtype | None, dtype]] = {
    "e2m1": (None, UINT8),
    "e4m3": (dtype("fp8e4nv"), UINT8),
    "e5m2": (dtype("fp8e5"), UINT8),
    "bf16": (BF16, UINT16),
    "fp16": (FP16, UINT16),
}


def dot_scaled(
    lhs: Any,
    lhs_scale: Any,
    lhs_format: Any,
    rhs: Any,
    rhs_scale: Any,
    rhs_format: Any,
    acc: Any = None,
    fast_math: Any = False,
    lhs_k_pack: Any = True,
    rhs_k_pack: Any = True,
    out_dtype: Any = FP32,
) -> tensor:
    """Matrix product of two tiles in microscaling formats; ``rhs_scale`` has the shape ``(N, K // 32)``."""
    current("tl.dot_scaled")
    formats = (_format(lhs_format), _format(rhs_format))
    if as_dtype(out_dtype) != FP32:
        raise fail(
            "operand-type",
            f"dot_scaled with out_dtype={out_dtype}",
            why="products of scaled tiles are summed in fp32",
            do="leave out_dtype and cast the result",
        )
    t = FP16 if "fp16" in formats else BF16
    a = _values(to_tensor(lhs), formats[0], -1 if unwrap(lhs_k_pack) else -2)
    b = _values(to_tensor(rhs), formats[1], -2 if unwrap(rhs_k_pack) else -1)
    if len(a.shape) != len(b.shape) or len(a.shape) < 2 or a.shape[-1] != b.shape[-2]:
        raise fail(
            "shape-mismatch",
            f"dot_scaled of {tuple(a.shape)} and {tuple(b.shape)} elements",
            why="the operands are (M, K) and (K, N); two e2m1 elements share a byte along K",
            do="unpack along K, or say lhs_k_pack=False, rhs_k_pack=False for operands packed along M and N",
        )
    a = _scaled(a, unwrap(lhs_scale), t)
    b = _scaled(_swap(b), unwrap(rhs_scale), t)  # (N, K), as its scale is
    return dot(a, _swap(b), acc=acc, out_dtype=FP32)


def _swap(x: tensor) -> tensor:
    return shaping.trans(x)


def _format(name: Any) -> str:
    found = unwrap(name)
    if found not in FORMATS:
        raise fail(
            "operand-type",
            f"dot_scaled of the format {found!r}",
            why=f"the formats are {', '.join(FORMATS)}",
            do="give the element format of the operand as a string",
        )
    return found


def _values(x: tensor, name: str, packed: int) -> tensor:
    """The elements as fp32 or a 16-bit float, without their scale; `packed` is the dimension along which e2m1 is."""
    element, bits = FORMATS[name]
    if x.dtype != bits and x.dtype != element:
        held = f"tl.{bits}" + (f" or {element!r}" if element is not None else "")
        raise fail(
            "operand-type",
            f"dot_scaled: an operand of format {name} has the type {x.dtype}",
            why=f"{name} elements are held as {held}",
            do="pass the packed bytes" if element is None else "bitcast the operand, or give its real format",
        )
    if element is None:
        return _unpacked(x, packed)
    if packed != (-1) and packed != (-2):
        raise AssertionError("the packed dimension is one of the last two")
    return bitcast(x, element) if x.dtype == bits else x


def _unpacked(x: tensor, dim: int) -> tensor:
    """e2m1 elements of bytes, as fp32: the low half of a byte comes first along `dim`."""
    wide = cast(x, INT32)
    low, high = _e2m1(operators.and_(wide, 15)), _e2m1(operators.shr(wide, 4))
    pairs = shaping.join(low, high)
    if dim == -2:
        rank = len(pairs.shape)
        pairs = shaping.permute(pairs, *range(rank - 2), rank - 1, rank - 2)
        return shaping.reshape(pairs, *x.shape[:-2], 2 * x.shape[-2], x.shape[-1])
    return shaping.reshape(pairs, *x.shape[:-1], 2 * x.shape[-1])


def _e2m1(code: tensor) -> tensor:
    """Sign, two bits of exponent, one of mantissa: 0, 0.5, 1, 1.5, 2, 3, 4, 6 and their negatives."""
    size = operators.and_(code, 7)
    normal = operators.add(operators.shl(size, 22), 126 << 23)
    magnitude = tl_math.where(
        operators.compare("lt", size, 2), operators.mul(cast(size, FP32), 0.5), bitcast(normal, FP32)
    )
    return tl_math.where(operators.compare("ge", code, 8), operators.neg(magnitude), magnitude)


def _scaled(x: tensor, scale: Any, t: dtype) -> tensor:
    """(rows, K) elements times their scale (rows, K // 32), rounded once to `t`."""
    if scale is None:
        return cast(x, t)
    scale = to_tensor(scale)
    group = 16 if str(scale.dtype) == "fp8e4nv" else 32
    expected = (*x.shape[:-1], x.shape[-1] // group)
    if tuple(scale.shape) != tuple(expected) or x.shape[-1] % group:
        raise fail(
            "shape-mismatch",
            f"dot_scaled: a scale of shape {tuple(scale.shape)} for elements of shape {tuple(x.shape)}",
            why=f"every {group} elements along K have one scale; the scale of rhs is (N, K // {group}) too",
            do=f"pass scales of shape {tuple(expected)}",
        )
    blocks = shaping.reshape(cast(x, FP32), *expected, group)
    if group == 16:
        product = operators.mul(blocks, _spread(cast(scale, FP32), blocks))
    elif scale.dtype != UINT8:
        raise fail(
            "operand-type",
            f"dot_scaled with a scale of type {scale.dtype}",
            why="scales are e8m0 bytes: 2 to the power of (byte - 127)",
            do="bitcast them: scale.to(tl.uint8, bitcast=True)",
        )
    else:
        # 2 ** -127 and half of its products are subnormal: two factors, each an ordinary number, are exact.
        power = operators.sub(cast(scale, INT32), 127)
        first = operators.shr(power, 1)
        product = operators.mul(blocks, _spread(_two_to_the(first), blocks))
        product = operators.mul(product, _spread(_two_to_the(operators.sub(power, first)), blocks))
        is_nan = _spread(operators.compare("eq", scale, 255), blocks)
        product = tl_math.where(is_nan, float("nan"), product)
    return cast(shaping.reshape(product, *x.shape), t)


def _spread(scale: tensor, blocks: tensor) -> tensor:
    return semantic.broadcast_to(semantic.expand_dims(scale, len(scale.shape)), blocks.shape)


def _two_to_the(power: tensor) -> tensor:
    return bitcast(operators.shl(operators.add(power, 127), 23), FP32)
