"""`ReadOnlyTensor`: a torch view of memory that a live jax array owns.

Input: a tensor that shares memory with a jax array. Output: the same tensor, guarded. Law: an in-place write through
it or through any view of it raises ``read-only-share`` before a byte changes; everything else works and returns plain
tensors. jax promises that an array never changes, and torch has no read-only flag: this is the flag.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import torch

from bridge import compat
from bridge.diagnostics import Where, error

#: Names that end in an underscore and yet leave the memory alone: they change what the tensor object means.
_METADATA = frozenset(
    "requires_grad_ detach_ rename_ set_ resize_ resize_as_ share_memory_ as_strided_ squeeze_ unsqueeze_ t_ "
    "transpose_ swapaxes_ swapdims_ sparse_resize_ _coalesced_".split()
)
_REAL: Any = torch.Tensor.real
_IMAG: Any = torch.Tensor.imag
_SETS_ITEMS = frozenset("__setitem__ apply_ map_ map2_".split())


class ReadOnlyTensor(torch.Tensor):
    """A tensor over memory that a live jax array owns; made by `bridge.to_torch`.

    The guarantee: every in-place operation that goes through torch's Python interface (``add_``, ``t[i] = x``,
    ``out=t``, ``inplace=True``, optimisers, ``torch.ops``) on it or on a view of it raises ``read-only-share`` before
    it writes. Results that do not share its memory are plain tensors; views stay guarded. ``numpy()`` gives a
    read-only array. Copies, pickles and ``torch.save`` are of a plain tensor. Costs 5 to 7 µs an operation; under
    torch.compile, an operation on it is a graph break.

    Not covered, as torch asks no subclass about it: code that takes the address (``data_ptr()``, DLPack, C++
    extensions), and what strips the subclass: ``torch.Tensor(t)``, ``t.as_subclass(torch.Tensor)``, ``t.data.set_``,
    a new tensor over ``t.untyped_storage()``.
    Ask for ``mutable=True`` (plain tensor, writes reach the jax array) or ``copy=True`` (plain tensor of its own).
    """

    @classmethod
    def __torch_function__(
        cls,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Refuse writes, run everything else as on plain tensors, and keep the guard on views."""
        if torch.compiler.is_dynamo_compiling():
            # torch 2.13 can't run a compiled graph on a subclass of this kind (its first call analyses operators and
            # knows plain tensors only), so the operation that reads the shared memory stays outside the graph.
            compat.graph_break(
                "a ReadOnlyTensor (bridge.to_torch) can't enter a compiled graph; where fullgraph=True is needed, "
                "pass bridge.to_torch(a, copy=True) or, if nobody else reads the array, mutable=True"
            )
        kwargs = kwargs or {}
        for target in _written(func, args, kwargs):
            if isinstance(target, ReadOnlyTensor):
                raise _refusal(func)
        with compat.without_torch_function():
            out = func(*args, **kwargs)
            if not isinstance(out, torch.Tensor | tuple | list):
                return _frozen_array(func, out)
            return _guard_views(out, _storages(args, kwargs))

    # torch does not ask `__torch_function__` about these two setters, which write.
    real: Any = property(lambda self: _REAL.__get__(self), lambda self, value: _refuse_part("real"))
    imag: Any = property(lambda self: _IMAG.__get__(self), lambda self, value: _refuse_part("imag"))

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Pickle as a plain tensor: the jax array does not travel along."""
        return plain(self).__reduce_ex__(protocol)

    def __deepcopy__(self, memo: dict[int, Any]) -> torch.Tensor:
        """A plain tensor of its own."""
        copied = memo[id(self)] = plain(self).detach().clone().requires_grad_(self.requires_grad)
        return copied

    def __format__(self, spec: str) -> str:
        return format(plain(self), spec)


def read_only(t: torch.Tensor) -> ReadOnlyTensor:
    """The same memory, guarded against in-place writes."""
    # Not `as_subclass`, which makes a view: the base of a guarded view must itself be guarded.
    return torch.Tensor._make_subclass(ReadOnlyTensor, t)


def plain(t: torch.Tensor) -> torch.Tensor:
    """The same memory without the guard."""
    with compat.without_torch_function():
        return t.as_subclass(torch.Tensor)


def _written(func: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Iterator[Any]:
    """The arguments that a call writes to."""
    name = getattr(func, "__name__", "")
    schema = getattr(func, "_schema", None)
    if schema is not None:
        for i, argument in enumerate(schema.arguments):
            if argument.is_write:
                yield from _tensors([args[i] if i < len(args) else kwargs.get(argument.name)])
        return
    in_place = name.endswith("_") and not name.endswith("__") and name not in _METADATA
    augmented = name.startswith("__i") and name.endswith("__") and name not in ("__invert__", "__index__", "__int__")
    if in_place or augmented or name in _SETS_ITEMS or kwargs.get("inplace"):
        yield from _tensors(args[:1] or list(kwargs.values())[:1])
    elif name in ("batch_norm", "instance_norm"):
        if kwargs.get("training", kwargs.get("use_input_stats", True)):
            yield from _tensors([*args[1:3], kwargs.get("running_mean"), kwargs.get("running_var")])
    elif name in ("embedding", "embedding_bag") and kwargs.get("max_norm") is not None:
        yield from _tensors([*args[1:2], kwargs.get("weight")])
    if "out" in kwargs:
        yield from _tensors([kwargs["out"]])


def _tensors(values: Iterable[Any]) -> Iterator[torch.Tensor]:
    for value in values:
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, tuple | list):
            yield from _tensors(value)


def _storages(args: Sequence[Any], kwargs: Mapping[str, Any]) -> set[int]:
    """The storages of the guarded tensors among the arguments."""
    found = {a.untyped_storage()._cdata for a in _tensors(args) if isinstance(a, ReadOnlyTensor)}
    if kwargs:
        found |= {a.untyped_storage()._cdata for a in _tensors(kwargs.values()) if isinstance(a, ReadOnlyTensor)}
    return found


def _guard_views(out: Any, storages: set[int]) -> Any:
    """Guard what shares memory with a guarded argument; strip the guard from what does not."""
    if isinstance(out, torch.Tensor):
        shares = compat.has_storage(out) and out.untyped_storage()._cdata in storages
        if shares == isinstance(out, ReadOnlyTensor):
            return out
        return out.as_subclass(ReadOnlyTensor if shares else torch.Tensor)
    if type(out) in (tuple, list):
        return type(out)(_guard_views(item, storages) for item in out)
    # A named tuple of torch (max, sort, ...): values of reductions, never views.
    return out


def _frozen_array(func: Callable[..., Any], out: Any) -> Any:
    if getattr(func, "__name__", "") in ("numpy", "__array__"):
        out.flags.writeable = False
    return out


def _refuse_part(name: str) -> None:
    raise _refusal(f"setting .{name}")


def _refusal(func: Callable[..., Any] | str) -> Exception:
    name = func if isinstance(func, str) else getattr(func, "__name__", str(func))
    return error(
        "read-only-share",
        f"{name} would write to memory that a jax array owns",
        where=Where.caller(),
        why="jax arrays never change: jitted functions and other holders of the array rely on it.",
        do=(
            "work on a copy: bridge.to_torch(a, copy=True), or t.clone()",
            "if nobody else reads the array any more: bridge.to_torch(a, mutable=True)",
        ),
    )


compat.keep_out_of_graphs(globals(), "bridge guards memory that a jax array owns")
