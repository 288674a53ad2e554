"""Loads, stores and atomics.

Input: pointers or block pointers, values, masks. Output: handles. Law: pointer, value, mask and `other` have one
shape in the IR; `other` and the stored value have the pointer's element type; cache hints are accepted and dropped.
"""

from __future__ import annotations

from typing import Any

from frontend_triton_compat.language.block_pointer import BlockPointer
from frontend_triton_compat.language.constexpr import unwrap
from frontend_triton_compat.language.context import current, fail
from frontend_triton_compat.language.semantic import (
    broadcast,
    broadcast_to,
    cast,
    constant,
    emit,
    points_nowhere,
    to_tensor,
)
from frontend_triton_compat.language.tensor import address, is_pointer, tensor
from frontend_triton_compat.types import INT1, TileType


def as_pointer(pointer: Any, what: str) -> tensor:
    """A pointer, checked."""
    if isinstance(pointer, address):
        raise points_nowhere(what)
    if not is_pointer(pointer):
        raise fail(
            "memory-access",
            f"{what} through {pointer.handle.type if isinstance(pointer, tensor) else repr(pointer)}",
            why="a pointer is a place in one of the kernel's tensor arguments here; a number, an address too, is none",
            do="add the offset to the tensor argument: tl.load(x_ptr + offsets); pass tensors, not addresses",
        )
    return pointer


def _mask(mask: Any, p: tensor, what: str) -> tuple[tensor, tensor | None]:
    mask = unwrap(mask)
    if mask is None:
        return p, None
    if mask is True:
        return p, None
    m = cast(to_tensor(mask), INT1)
    if m.shape and not p.shape:
        raise fail(
            "memory-access",
            f"{what} of one element with a mask of shape {m.shape}",
            why="the mask must have the pointer's shape",
            do="add a tile of offsets to the pointer, or reduce the mask to a scalar",
        )
    m, p = broadcast(m, p)
    return p, m


def _no_checks(boundary_check: Any, padding_option: Any, what: str) -> None:
    if unwrap(boundary_check) or unwrap(padding_option):
        raise fail(
            "memory-access",
            f"{what} with boundary_check or padding_option through a plain pointer",
            why="these belong to block pointers, which know the tensor's shape",
            do="use mask= and other=, or make the pointer with tl.make_block_ptr",
        )


def _hints(what: str, cache: Any, caches: tuple[str, ...], eviction: Any) -> None:
    """Cache hints change nothing, but misspelt ones are refused as Triton refuses them."""
    policies = ("", "evict_last", "evict_first")
    for name, value, known in (("cache_modifier", cache, caches), ("eviction_policy", eviction, policies)):
        if (unwrap(value) or "") not in known:
            raise fail(
                "memory-access",
                f"{what} with {name}={unwrap(value)!r}",
                why=f"{name} is one of {', '.join(map(repr, known))}",
                do="leave it out: it is a hint for a GPU's caches and changes nothing here",
            )


def load(
    pointer: Any,
    mask: Any = None,
    other: Any = None,
    boundary_check: Any = (),
    padding_option: Any = "",
    cache_modifier: Any = "",
    eviction_policy: Any = "",
    volatile: Any = False,
) -> tensor:
    """Elements of memory; where `mask` is false nothing is read and `other` (0 by default) is given."""
    current("tl.load")
    _hints("load", cache_modifier, ("", ".ca", ".cg", ".cv"), eviction_policy)
    if isinstance(pointer, BlockPointer):
        if unwrap(mask) is not None or unwrap(other) is not None:
            raise fail(
                "memory-access",
                "load of a block pointer with mask or other",
                why="a block pointer makes its own mask",
                do='write boundary_check=(0, 1), padding_option="zero"',
            )
        p, mask, other = pointer.access(boundary_check, padding_option)
    else:
        _no_checks(boundary_check, padding_option, "load")
        p = as_pointer(pointer, "load")
    if unwrap(other) is not None and unwrap(mask) is None:
        raise fail(
            "memory-access",
            "`other` without `mask`",
            why="`other` is the value of masked-off elements; without a mask there are none",
            do="add mask=..., or drop other=...",
        )
    p, m = _mask(mask, p, "load")
    element = p.dtype.element_ty
    operands = [p]
    if m is not None:
        operands.append(m)
        other = unwrap(other)
        if other is not None:
            fill = constant(other, element) if not isinstance(other, tensor) else cast(other, element)
            operands.append(broadcast_to(fill, p.shape))
    types = [TileType(element, p.shape)]
    return emit("load", operands, types, has_mask=m is not None, has_other=len(operands) == 3)[0]


def store(
    pointer: Any,
    value: Any,
    mask: Any = None,
    boundary_check: Any = (),
    cache_modifier: Any = "",
    eviction_policy: Any = "",
) -> None:
    """Write `value`, cast to the pointer's element type, where `mask` is true."""
    current("tl.store")
    _hints("store", cache_modifier, ("", ".wb", ".cg", ".cs", ".wt"), eviction_policy)
    if isinstance(pointer, BlockPointer):
        if unwrap(mask) is not None:
            raise fail(
                "memory-access",
                "store to a block pointer with mask",
                why="a block pointer makes its own mask",
                do="write boundary_check=(0, 1)",
            )
        p, mask, _ = pointer.access(boundary_check, "")
    else:
        _no_checks(boundary_check, "", "store")
        p = as_pointer(pointer, "store")
    p, v, m = _written(p, value, mask, "store")
    emit("store", [p, v] if m is None else [p, v, m], [], has_mask=m is not None)


def _written(p: tensor, value: Any, mask: Any, what: str) -> tuple[tensor, tensor, tensor | None]:
    """Pointer, value and mask in one shape, the value in the pointer's element type."""
    if p.dtype.const:
        raise fail(
            "memory-access",
            f"Cannot store to a constant pointer: {what} through a parameter that is annotated tl.const",
            why="the annotation says that the kernel only reads through it",
            do="drop the annotation, or store through another argument",
            triton="Cannot store to a constant pointer",
        )
    element = p.dtype.element_ty
    value = unwrap(value)
    v = to_tensor(value)
    if v.shape and not p.shape:
        raise fail(
            "memory-access",
            f"{what} of a tile of shape {v.shape} to one element",
            why="the pointer addresses a single element",
            do="add a tile of offsets to the pointer: ptr + tl.arange(0, N)",
        )
    v = constant(value, element) if not isinstance(value, tensor) else cast(v, element)
    p, m = _mask(mask, p, what)
    if v.shape:
        wide, v = broadcast(p, v)
        if wide.shape != p.shape:
            raise fail(
                "memory-access",
                f"{what} of a tile of shape {v.shape} to pointers of shape {p.shape}",
                why="several elements of the value would go to one place",
                do="give the pointer the value's shape: ptr + rows[:, None] * stride + columns[None, :]",
            )
    else:
        p, v = broadcast(p, v)
    return p, v, m if m is None else broadcast_to(m, p.shape)


# -- atomics -----------------------------------------------------------------------------------------------------


_SEMANTICS = ("acquire", "release", "acq_rel", "relaxed")
_SCOPES = ("gpu", "cta", "sys")


def _atomic_operands(fn: str, pointer: Any, sem: Any, scope: Any) -> tensor:
    """The pointer of an atomic, its dtype and options checked as Triton checks them."""
    current(f"tl.atomic_{fn}")
    p = as_pointer(pointer, f"atomic_{fn}")
    for name, value, known in (("sem", unwrap(sem), _SEMANTICS), ("scope", unwrap(scope), _SCOPES)):
        if value and value not in known:
            raise fail(
                "atomic-operands",
                f"atomic_{fn} with {name}={value!r}",
                why=f"{name} is one of {', '.join(map(repr, known))}",
                do=f"leave {name} out, or pass one of these",
                triton=f"Memory {'semantic' if name == 'sem' else 'scope'} {value} not supported",
            )
    element = p.dtype.element_ty
    half = element.name in ("fp16", "bf16")
    if fn == "cas":
        refused, accepted = element.primitive_bitwidth not in (16, 32, 64), "types of 16, 32 or 64 bits"
    else:
        narrow = element.primitive_bitwidth < 16 or element.name in ("int16", "uint16")
        bits = fn in ("and", "or", "xor") and element.is_floating()
        refused = narrow or bits or (half and fn != "add")
        accepted = "integers of 32 or 64 bits" + ("" if fn in ("and", "or", "xor") else ", fp32 and fp64")
        accepted += ", fp16 and bf16" if fn == "add" else ""
    if refused:
        raise fail(
            "atomic-operands",
            f"atomic_{fn} on {element}",
            why=f"Triton's atomic_{fn} is for {accepted}",
            do="hold the tensor in one of these types",
            triton=f"atomic_{fn} " + (f"does not support {element}" if fn != "cas" else f"only supports {accepted}"),
        )
    return p


def update(fn: str, pointer: Any, value: Any, mask: Any, sem: Any = None, scope: Any = None) -> tensor:
    """One of the atomic updates by name; gives the old value."""
    p, v, m = _written(_atomic_operands(fn, pointer, sem, scope), value, mask, f"atomic_{fn}")
    operands = [p, v] if m is None else [p, v, m]
    return emit("atomic", operands, [v.handle.type], fn=fn, has_mask=m is not None)[0]


def atomic_add(pointer: Any, val: Any, mask: Any = None, sem: Any = None, scope: Any = None) -> tensor:
    """Add to memory in one indivisible step; gives the old value."""
    return update("add", pointer, val, mask, sem, scope)


def atomic_max(pointer: Any, val: Any, mask: Any = None, sem: Any = None, scope: Any = None) -> tensor:
    """Raise memory to at least `val` in one indivisible step; gives the old value."""
    return update("max", pointer, val, mask, sem, scope)


def atomic_min(pointer: Any, val: Any, mask: Any = None, sem: Any = None, scope: Any = None) -> tensor:
    """Lower memory to at most `val` in one indivisible step; gives the old value."""
    return update("min", pointer, val, mask, sem, scope)


def atomic_and(pointer: Any, val: Any, mask: Any = None, sem: Any = None, scope: Any = None) -> tensor:
    """Bitwise and with memory in one indivisible step; gives the old value."""
    return update("and", pointer, val, mask, sem, scope)


def atomic_or(pointer: Any, val: Any, mask: Any = None, sem: Any = None, scope: Any = None) -> tensor:
    """Bitwise or with memory in one indivisible step; gives the old value."""
    return update("or", pointer, val, mask, sem, scope)


def atomic_xor(pointer: Any, val: Any, mask: Any = None, sem: Any = None, scope: Any = None) -> tensor:
    """Bitwise exclusive or with memory in one indivisible step; gives the old value."""
    return update("xor", pointer, val, mask, sem, scope)


def atomic_xchg(pointer: Any, val: Any, mask: Any = None, sem: Any = None, scope: Any = None) -> tensor:
    """Exchange with memory in one indivisible step; gives the old value."""
    return update("xchg", pointer, val, mask, sem, scope)


def atomic_cas(pointer: Any, cmp: Any, val: Any, sem: Any = None, scope: Any = None) -> tensor:
    """Replace memory by `val` where it equals `cmp`, in one indivisible step; gives the old value."""
    p, v, _ = _written(_atomic_operands("cas", pointer, sem, scope), val, None, "atomic_cas")
    cmp = unwrap(cmp)
    expected = cast(cmp, v.dtype) if isinstance(cmp, tensor) else constant(cmp, v.dtype)
    expected = broadcast_to(expected, p.shape)
    return emit("atomic", [p, expected, v], [v.handle.type], fn="cas", has_mask=False)[0]


def atomic_load(pointer: Any, mask: Any = None, sem: Any = None, scope: Any = None) -> tensor:
    """Elements of memory as the programs before this one left them."""
    p, v, m = _written(_atomic_operands("cas", pointer, sem, scope), 0, mask, "atomic_load")
    operands = [p, v, v] if m is None else [p, v, v, m]  # a zero is exchanged for a zero
    return emit("atomic", operands, [v.handle.type], fn="cas", has_mask=m is not None)[0]


def atomic_store(pointer: Any, val: Any, mask: Any = None, sem: Any = None, scope: Any = None) -> None:
    """Write for later programs to see."""
    p, v, m = _written(_atomic_operands("cas", pointer, sem, scope), val, mask, "atomic_store")
    operands = [p, v] if m is None else [p, v, m]
    emit("atomic", operands, [v.handle.type], fn="xchg", has_mask=m is not None)


def make_block_ptr(
    base: Any, shape: Any, strides: Any, offsets: Any, block_shape: Any, order: Any = None
) -> BlockPointer:
    """A pointer to a block of a tensor that knows the tensor's shape, strides and the block's offsets."""
    current("tl.make_block_ptr")
    return BlockPointer.make(as_pointer(base, "make_block_ptr"), shape, strides, offsets, block_shape)


def advance(base: Any, offsets: Any) -> BlockPointer:
    """The block pointer moved by `offsets` elements on each dimension."""
    current("tl.advance")
    if not isinstance(base, BlockPointer):
        raise fail(
            "memory-access",
            "advance of something that is no block pointer",
            why="only pointers from tl.make_block_ptr know their dimensions",
            do="add to a plain pointer: ptr += step",
        )
    return base.advanced(offsets)
