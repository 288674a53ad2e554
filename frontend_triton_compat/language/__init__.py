# ruff: noqa: F401 - this module is the list of names that a kernel may use
"""`tl`: what a kernel may say.

Every name of `triton.language` is here: translated ones from the op table's families, the others present and clear
about why they are not. Outside a kernel a call is a diagnostic.
"""

from __future__ import annotations

import builtins
from typing import Any

from frontend_triton_compat.language import extra, math, random, target_info
from frontend_triton_compat.language import methods as _methods
from frontend_triton_compat.language import rows_arith as _rows_arith
from frontend_triton_compat.language import rows_cast as _rows_cast
from frontend_triton_compat.language import rows_gpu as _rows_gpu
from frontend_triton_compat.language import rows_math as _rows_math
from frontend_triton_compat.language import rows_move as _rows_move
from frontend_triton_compat.language import rows_scan as _rows_scan
from frontend_triton_compat.language import rows_special as _rows_special
from frontend_triton_compat.language import rows_tile as _rows_tile
from frontend_triton_compat.language.aggregate import aggregate as _aggregate
from frontend_triton_compat.language.aggregate import (
    aggregate_replace,
    builtin,
    constexpr_type,
    is_builtin,
    tensor_descriptor_type,
    tuple_type,
)
from frontend_triton_compat.language.combine import associative_scan, map_elementwise, reduce
from frontend_triton_compat.language.constexpr import const, constexpr, constexpr_function
from frontend_triton_compat.language.control import (
    assume,
    condition,
    debug_barrier,
    device_assert,
    device_print,
    expect_zero,
    max_constancy,
    max_contiguous,
    multiple_of,
    range,
    static_assert,
    static_print,
    static_range,
)
from frontend_triton_compat.language.creation import arange, full, num_programs, program_id, zeros, zeros_like
from frontend_triton_compat.language.creation import cast_ as cast
from frontend_triton_compat.language.descriptor import (
    _experimental_descriptor_load,
    _experimental_descriptor_store,
    load_tensor_descriptor,
    make_tensor_descriptor,
    store_tensor_descriptor,
    tensor_descriptor,
    tensor_descriptor_base,
)
from frontend_triton_compat.language.external import extern_elementwise, inline_asm_elementwise
from frontend_triton_compat.language.linalg import dot
from frontend_triton_compat.language.math import (
    PropagateNan,
    abs,
    cdiv,
    ceil,
    clamp,
    cos,
    div_rn,
    erf,
    exp,
    exp2,
    fdiv,
    floor,
    fma,
    log,
    log2,
    maximum,
    minimum,
    rsqrt,
    sigmoid,
    sin,
    sqrt,
    sqrt_rn,
    swizzle2d,
    umulhi,
    where,
)
from frontend_triton_compat.language.memory import (
    advance,
    atomic_add,
    atomic_and,
    atomic_cas,
    atomic_load,
    atomic_max,
    atomic_min,
    atomic_or,
    atomic_store,
    atomic_xchg,
    atomic_xor,
    load,
    make_block_ptr,
    store,
)
from frontend_triton_compat.language.operators import add as _add
from frontend_triton_compat.language.operators import mul as _mul
from frontend_triton_compat.language.operators import sub as _sub
from frontend_triton_compat.language.random import (
    pair_uniform_to_normal,
    philox,
    philox_impl,
    rand,
    rand4x,
    randint,
    randint4x,
    randn,
    randn4x,
    uint_to_uniform_float,
)
from frontend_triton_compat.language.reduction import (
    argmax,
    argmin,
    cumprod,
    cumsum,
    max,
    min,
    reduce_or,
    softmax,
    sum,
    xor_sum,
)
from frontend_triton_compat.language.scaled import dot_scaled
from frontend_triton_compat.language.semantic import to_tensor
from frontend_triton_compat.language.shaping import (
    bitonic_merge,
    broadcast,
    broadcast_to,
    cat,
    expand_dims,
    flip,
    gather,
    histogram,
    interleave,
    item,
    join,
    permute,
    ravel,
    reshape,
    sort,
    split,
    squeeze,
    topk,
    trans,
    unsqueeze,
    view,
)
from frontend_triton_compat.language.tensor import block_type, tensor
from frontend_triton_compat.language.unsupported import UNSUPPORTED as _UNSUPPORTED
from frontend_triton_compat.language.unsupported import unsupported as _unsupported
from frontend_triton_compat.types import dtype, pointer_type

TRITON_MAX_TENSOR_NUMEL = 1048576
void = dtype("void")
int1, int8, int16, int32, int64 = (dtype(n) for n in ("int1", "int8", "int16", "int32", "int64"))
uint8, uint16, uint32, uint64 = (dtype(n) for n in ("uint8", "uint16", "uint32", "uint64"))
float16, bfloat16, float32, float64 = (dtype(n) for n in ("fp16", "bf16", "fp32", "fp64"))
float8e4nv, float8e5, float8e4b8, float8e5b16, float8e4b15 = (
    dtype(n) for n in ("fp8e4nv", "fp8e5", "fp8e4b8", "fp8e5b16", "fp8e4b15")
)
pi32_t = pointer_type(int32)
# Names that the genuine package uses for a kernel's own tuples and slices; Python's serve here.
tuple, slice = builtins.tuple, builtins.slice
CONSTEXPR_0 = constexpr(0)


def add(x: Any, y: Any, sanitize_overflow: Any = True) -> tensor:
    """Sum of two operands."""
    return _add(x, y)


def sub(x: Any, y: Any, sanitize_overflow: Any = True) -> tensor:
    """Difference of two operands."""
    return _sub(x, y)


def mul(x: Any, y: Any, sanitize_overflow: Any = True) -> tensor:
    """Product of two operands."""
    return _mul(x, y)


def get_int_dtype(bitwidth: int, signed: bool) -> dtype:
    """The integer type of a width."""
    return dtype(("int" if signed else "uint") + str(bitwidth)) if bitwidth > 1 else int1


def str_to_ty(name: str, c: Any = None) -> Any:
    """A type from Triton's short spelling: ``*fp32``, ``i32``, ``u8``, ``fp16``, ``constexpr``."""
    if name.startswith("*"):
        return pointer_type(str_to_ty(name[1:].removeprefix("k")))
    if name == "constexpr":
        return constexpr
    short = {"i1": "int1", "u1": "int1", "B": "int1"}
    if name not in short and name[0] in "iu" and name[1:].isdigit():
        return dtype(("int" if name[0] == "i" else "uint") + name[1:])
    return dtype(short.get(name, name))


_experimental_make_tensor_descriptor = make_tensor_descriptor
for _name in _UNSUPPORTED:
    globals().setdefault(_name, _unsupported(_name))
tanh = math.tanh
libdevice = extra.libdevice
