"""One row a dtype: its name in torch and in jax, whether it crosses between them, and where kernels can load it.

Input: a dtype of either library. Output: its `Row`. Law: every torch dtype and every jax dtype has exactly one row; a
dtype that cannot cross says why and what to do instead; nothing here converts a value.
"""

from __future__ import annotations

from dataclasses import dataclass

import ml_dtypes
import numpy as np
import torch


@dataclass(frozen=True)
class Row:
    """What is known of one dtype.

    Attributes:
        name: jax's name, or torch's when jax has no such dtype.
        torch: the torch dtype, None when torch has none.
        jax: the numpy dtype that jax uses, None when jax has none.
        crosses: whether DLPack carries it both ways, sharing memory.
        wide: 64 bits a component: jax keeps it only under ``jax.enable_x64(True)``.
        targets: kinds of target (``cpu``, ``tpu``, ``gpu``) whose kernels load and store it. Coarse: single
            operations have limits of their own.
        why: why it cannot cross.
        do: what to do instead.
    """

    name: str
    torch: torch.dtype | None
    jax: np.dtype | None
    crosses: bool = True
    wide: bool = False
    targets: frozenset[str] = frozenset({"cpu"})
    why: str = ""
    do: str = ""


def _shared(name: str, jax_type: type, targets: str, wide: bool = False) -> Row:
    return Row(name, getattr(torch, name), np.dtype(jax_type), wide=wide, targets=frozenset(targets.split()))


def _torch_only(name: str, why: str, do: str) -> Row:
    return Row(name, getattr(torch, name), None, crosses=False, targets=frozenset(), why=why, do=do)


def _jax_only(name: str, do: str, targets: str = "cpu") -> Row:
    return Row(
        name,
        None,
        np.dtype(getattr(ml_dtypes, name)),
        crosses=False,
        targets=frozenset(targets.split()),
        why="torch has no such dtype",
        do=do,
    )


_PACKED = "torch keeps it as bytes without an arithmetic of its own, and DLPack would hand them over as 8-bit integers"
_UNPACK = "unpack it to torch.int8 first"
_RAW = "hand over its bytes: t.view(torch.uint8)"
_TO_INT8 = "convert it in jax first: a.astype(jnp.int8)"
_TO_FLOAT8 = "convert it in jax first: a.astype(jnp.float8_e4m3fn), or to a wider float"
_QUANTIZED = "a quantised tensor is integers plus a scale that jax has no place for"
_DEQUANTIZE = "hand over t.int_repr() and the scale, or t.dequantize()"

TABLE: tuple[Row, ...] = (
    _shared("float32", np.float32, "cpu tpu gpu"),
    _shared("float64", np.float64, "cpu", wide=True),
    _shared("float16", np.float16, "cpu gpu"),
    _shared("bfloat16", ml_dtypes.bfloat16, "cpu tpu gpu"),
    _shared("float8_e4m3fn", ml_dtypes.float8_e4m3fn, "cpu tpu gpu"),
    _shared("float8_e5m2", ml_dtypes.float8_e5m2, "cpu tpu gpu"),
    _shared("float8_e4m3fnuz", ml_dtypes.float8_e4m3fnuz, "cpu"),
    _shared("float8_e5m2fnuz", ml_dtypes.float8_e5m2fnuz, "cpu"),
    _shared("float8_e8m0fnu", ml_dtypes.float8_e8m0fnu, "cpu gpu"),
    _shared("bool", np.bool_, "cpu tpu"),
    _shared("int8", np.int8, "cpu tpu gpu"),
    _shared("int16", np.int16, "cpu tpu gpu"),
    _shared("int32", np.int32, "cpu tpu gpu"),
    _shared("int64", np.int64, "cpu", wide=True),
    _shared("uint8", np.uint8, "cpu tpu gpu"),
    _shared("uint16", np.uint16, "cpu tpu gpu"),
    _shared("uint32", np.uint32, "cpu tpu gpu"),
    _shared("uint64", np.uint64, "cpu", wide=True),
    _shared("complex64", np.complex64, "cpu"),
    _shared("complex128", np.complex128, "cpu", wide=True),
    _torch_only("complex32", "jax has no complex number of 16-bit halves", "widen it: t.to(torch.complex64)"),
    _torch_only(
        "float4_e2m1fn_x2", "torch packs two values into a byte; jax's float4_e2m1fn is one value an element", _RAW
    ),
    *(_torch_only(f"int{bits}", _PACKED, _UNPACK) for bits in range(1, 8)),
    *(_torch_only(f"uint{bits}", _PACKED, _UNPACK) for bits in range(1, 8)),
    *(_torch_only(n, "torch's bit formats have no arithmetic", _RAW) for n in ("bits8", "bits16", "bits1x8")),
    *(_torch_only(n, "torch's bit formats have no arithmetic", _RAW) for n in ("bits2x4", "bits4x2")),
    *(_torch_only(n, _QUANTIZED, _DEQUANTIZE) for n in ("quint8", "qint8", "qint32", "quint4x2", "quint2x4")),
    # jax's sub-byte integers share a name with torch's packed ones and nothing else, so they have rows of their own.
    _jax_only("int4", _TO_INT8, "cpu tpu"),
    _jax_only("uint4", _TO_INT8, "cpu tpu"),
    _jax_only("int2", _TO_INT8),
    _jax_only("uint2", _TO_INT8),
    _jax_only("int1", _TO_INT8),
    _jax_only("uint1", _TO_INT8),
    _jax_only("float8_e3m4", _TO_FLOAT8),
    _jax_only("float8_e4m3", _TO_FLOAT8),
    _jax_only("float8_e4m3b11fnuz", _TO_FLOAT8),
    _jax_only("float4_e2m1fn", _TO_FLOAT8),
)


def _index(table: tuple[Row, ...]) -> tuple[dict[torch.dtype, Row], dict[np.dtype, Row]]:
    by_torch: dict[torch.dtype, Row] = {}
    by_jax: dict[np.dtype, Row] = {}
    for row in table:
        if row.torch is not None and by_torch.setdefault(row.torch, row) is not row:
            raise ValueError(f"two rows for {row.torch}")
        if row.jax is not None and by_jax.setdefault(row.jax, row) is not row:
            raise ValueError(f"two rows for jax's {row.jax}")
    return by_torch, by_jax


BY_TORCH, BY_JAX = _index(TABLE)


def by_torch(dtype: torch.dtype) -> Row:
    """The row of a torch dtype.

    Raises:
        KeyError: torch gained a dtype after this table was written.
    """
    return BY_TORCH[dtype]


def by_jax(dtype: object) -> Row:
    """The row of a jax or numpy dtype, given as anything that ``numpy.dtype`` takes.

    Raises:
        KeyError: jax has no array of this dtype (a PRNG key, a string), or gained one after this table was written.
    """
    return BY_JAX[np.dtype(dtype)]  # type: ignore[call-overload]
