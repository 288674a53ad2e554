"""The table of operators: one row per ATen overload, from which emission, partitioning and the docs' matrix are read.

Input: `@row("aten.add.Tensor", ...)` above an array function. Output: `ROWS`. Law: an overload has one row; a second
registration raises at import. A row's function takes the overload's own arguments (arrays for tensors, numbers, jax
dtypes) and returns arrays of exactly the shape and, after the cast its result rule asks for, the dtype torch gives.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import torch

from inductor_backend.ops.whole import ELEMENTS, Growth

#: torch dtype -> jax dtype, for every dtype that a jitted segment may hold.
DTYPES: dict[torch.dtype, Any] = {
    torch.float32: jnp.float32,
    torch.float64: jnp.float64,
    torch.float16: jnp.float16,
    torch.bfloat16: jnp.bfloat16,
    torch.int8: jnp.int8,
    torch.int16: jnp.int16,
    torch.int32: jnp.int32,
    torch.int64: jnp.int64,
    torch.uint8: jnp.uint8,
    torch.uint16: jnp.uint16,
    torch.uint32: jnp.uint32,
    torch.uint64: jnp.uint64,
    torch.bool: jnp.bool_,
    torch.complex64: jnp.complex64,
    torch.complex128: jnp.complex128,
    torch.float8_e4m3fn: jnp.float8_e4m3fn,
    torch.float8_e5m2: jnp.float8_e5m2,
}

#: How operands meet before the function runs; the names are torch's own promotion kinds.
DEFAULT, NO_OPMATH, INT_TO_FLOAT, BOOL_OUT, COMPLEX_TO_FLOAT, KEEP = (
    "DEFAULT",
    "NO_OPMATH",
    "INT_TO_FLOAT",
    "ALWAYS_BOOL",
    "COMPLEX_TO_FLOAT",
    "KEEP",
)

#: What an operator is to the fuser.
POINTWISE, REDUCTION, MATMUL, VIEW, OTHER = "pointwise", "reduction", "matmul", "view", "other"


@dataclass(frozen=True)
class Out:
    """What torch says the result is: shape in elements, jax dtype, strides in elements."""

    shape: tuple[int, ...]
    dtype: Any
    strides: tuple[int, ...]

    def __post_init__(self) -> None:
        # A name in emitted source; as a name it would equal no dtype that a row compares it with.
        object.__setattr__(self, "dtype", jnp.dtype(self.dtype))

    def __repr__(self) -> str:
        return f"Out({self.shape}, {self.dtype.name!r}, {self.strides})"


@dataclass(frozen=True)
class Row:
    """One operator.

    Attributes:
        name: the overload, e.g. ``aten.add.Tensor``.
        fn: its array function.
        kind: pointwise, reduction, matmul, view or other: what the fuser may do with it.
        promote: how tensor operands are brought to one dtype before `fn` runs; KEEP leaves them alone.
        result: "same" (the computing dtype), "bool", or "exact" (`fn` itself returns torch's dtype).
        wants: which of the keyword arguments `out` and `strides` the function asks for.
        narrow_scalars: whether eager rounds Python numbers to bf16 or f16 before it computes in f32 (it depends on the
            operator).
        supports: refuses argument combinations that the function can't do; those run in ATen.
        bounds: the index operands, each with the dimension of the first operand that it indexes and whether it may be
            negative; the runner refuses a call whose indices are out of range, as eager does.
        undecomposed: whether Inductor's decomposition, whose values or refusals are not eager's, is left out.
        tied: the result that holds positions whose order among equal elements eager leaves open, or None.
        grows: how its whole numbers follow from its operands', for machines with 32 bits; None: nothing is known, or
            it gives none.
        library: how many microseconds ATen's own implementation saves on a CPU (see `library.py`); None: not asked.
        divides: whether eager refuses a zero among whole numbers as the second operand; the runner then does.
        notes: differences worth knowing.
    """

    name: str
    fn: Callable[..., Any]
    kind: str
    promote: str
    result: str
    wants: frozenset[str]
    narrow_scalars: bool
    supports: Callable[..., bool] | None
    bounds: Callable[..., list[tuple[Any, int, bool]]] | None
    divides: bool
    undecomposed: bool
    tied: int | None
    grows: Growth | None
    library: Callable[..., float] | None
    notes: str

    @property
    def ident(self) -> str:
        """The name under which emitted source calls it, e.g. ``add_Tensor``."""
        _, op, overload = self.name.split(".")
        return op if overload == "default" else f"{op}_{overload}"


ROWS: dict[str, Row] = {}
_IDENTS: dict[str, str] = {}


def row(
    *names: str,
    kind: str = OTHER,
    promote: str = KEEP,
    result: str | None = None,
    narrow_scalars: bool = False,
    supports: Callable[..., bool] | None = None,
    bounds: Callable[..., list[tuple[Any, int, bool]]] | None = None,
    divides: bool = False,
    undecomposed: bool = False,
    tied: int | None = None,
    grows: Growth | None = None,
    library: Callable[..., float] | None = None,
    notes: str = "",
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register an array function as the meaning of one or more overloads.

    Raises:
        ValueError: an overload has a row already.
    """
    if result is None:
        result = {BOOL_OUT: "bool", KEEP: "exact"}.get(promote, "same")

    def register(fn: Callable[..., Any]) -> Callable[..., Any]:
        wants = frozenset({"out", "strides"} & set(inspect.signature(fn).parameters))
        for name in names:
            if name in ROWS:
                raise ValueError(f"{name} has two rows")
            entry = Row(
                name, fn, kind, promote, result, wants, narrow_scalars, supports, bounds, divides, undecomposed,
                tied, grows, library, notes,
            )  # fmt: skip
            if _IDENTS.setdefault(entry.ident, name) != name:
                raise ValueError(f"{name} and {_IDENTS[entry.ident]} would share the name {entry.ident}")
            ROWS[name] = entry
        return fn

    return register


def pointwise(*names: str, promote: str = DEFAULT, **kw: Any):
    """`row` for an elementwise function with broadcasting."""
    return row(*names, kind=POINTWISE, promote=promote, **kw)


def view(*names: str, **kw: Any):
    """`row` for a function that only moves elements, and that eager does without a copy."""
    return row(*names, kind=VIEW, **{"grows": ELEMENTS, **kw})


def dims(dim: Any, rank: int) -> tuple[int, ...]:
    """Normalised, non-negative dimensions; all of them for None or an empty list. A 0-d array has none."""
    if dim is None or (isinstance(dim, (list, tuple)) and not dim):
        return tuple(range(rank))
    given = dim if isinstance(dim, (list, tuple)) else (dim,)
    return tuple(sorted({d % rank for d in given})) if rank else ()


def out_of_range(index: Any, length: int, negative: bool) -> Any:
    """Whether any index lies outside a dimension of `length`; `negative` ones may count from the end."""
    low = -length if negative else 0
    return jnp.any((index < low) | (index >= length))


def has_zero(divisor: Any) -> Any:
    """Whether any divisor is zero."""
    return jnp.any(jnp.asarray(divisor) == 0)


def cast(x: Any, dtype: Any) -> Any:
    """Convert as eager does on this processor.

    A float that fits into no whole number, NaN too, becomes the smallest int32 (int64 where the result is as wide, or
    uint32), of which a narrower number keeps the low bits. float8_e4m3fn has no infinity: it saturates.
    """
    x = jnp.asarray(x)
    dtype = jnp.dtype(dtype)
    if x.dtype == dtype:
        return x
    if jnp.issubdtype(x.dtype, jnp.complexfloating) and not jnp.issubdtype(dtype, jnp.complexfloating):
        if dtype != jnp.bool_:
            x = x.real
    if x.dtype == jnp.bool_ and jnp.issubdtype(dtype, jnp.floating):
        # XLA makes a choice between y and 0 of y times a converted bool, which loses NaN and infinity.
        return jnp.where(x, jnp.ones((), dtype), jnp.zeros((), dtype))
    if dtype.kind in "iu" and jnp.issubdtype(x.dtype, jnp.floating):
        return _truncated(x, dtype)
    if dtype == jnp.float8_e4m3fn and jnp.issubdtype(x.dtype, jnp.floating):
        x = jnp.clip(x, *(jnp.asarray(jnp.finfo(dtype).max * s, x.dtype) for s in (-1, 1)))
    return x.astype(dtype)


def _truncated(x: Any, dtype: Any) -> Any:
    """Floats as whole numbers; XLA's own conversion saturates."""
    if x.dtype.itemsize < 4:
        x = x.astype(jnp.float32)
    by = jnp.dtype(jnp.int32 if dtype.itemsize < 4 else jnp.int64 if dtype.kind == "u" else dtype)
    least = jnp.asarray(-(2.0 ** (by.itemsize * 8 - 1)), x.dtype)
    whole = jnp.where((x >= least) & (x < -least), x, least).astype(by).astype(dtype)
    if dtype != jnp.uint64:
        return whole
    return jnp.where(x >= -least, jnp.where(x < -2 * least, x, 0).astype(dtype), whole)
