"""Launches like one that was seen before: from the arguments as they are given to the compiled form, in one look-up.

Input: the grid and the arguments of a launch. Output: a `Route` and the arguments by name, or None: then the launch
goes the long way, which checks, reports and translates. Law: a route is found only for what the long way would give the
same form: its key holds all that decides one (dtypes, layouts, storages, constexprs as `in_code` tells them apart,
integers, the grid, and how arguments share memory). Looking has no effect.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from frontend_triton_compat.arguments import Signature, in_code
from frontend_triton_compat.types import INT1, INT32

if TYPE_CHECKING:
    from frontend_triton_compat.compiled import Compiled
    from frontend_triton_compat.handle import CompiledKernel

#: How many routes of a kernel are kept; the oldest go first, and are found again through the long way.
LIMIT = 1024

#: What a binder gives: the key, the arguments by name, the launch options, the tensors' addresses.
Bound = tuple[tuple[Any, ...], dict[str, Any], dict[str, Any], tuple[int, ...]]


@dataclass(frozen=True, eq=False)
class Route:
    """What launches with one key have in common.

    Attributes:
        spans: bytes from the first to behind the last element of each tensor, in the order of the parameters.
        room: the largest of them.
        compiled: the form; None where only launches whose tensors share memory were seen.
        handle: what a launch returns.
    """

    spans: tuple[int, ...]
    room: int
    compiled: Compiled | None
    handle: CompiledKernel | None


class Express:
    """The routes of one kernel.

    Attributes:
        runtime: the integer parameters that are run-time scalars in the forms that the routes lead to.
    """

    def __init__(self, signature: Signature, runtime: frozenset[str]):
        self.runtime = runtime
        self.bind = _binder(signature, runtime)
        self._routes: dict[Any, Route] = {}

    def find(self, grid: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[Route | None, Bound | None]:
        """The route of a launch, if it has one, and the launch as it was bound, if it can have one."""
        try:
            bound = self.bind(grid, *args, **kwargs)
            if bound is None:
                return None, None
            found = self._routes.get(bound[0])
        except (TypeError, RuntimeError, KeyError):
            # Too many arguments, one given twice, what can't be hashed, a tensor without memory, a grid function that
            # asks for what is not there: the long way says which.
            return None, None
        if found is None:
            return None, bound
        pointers = bound[3]
        if len(pointers) > 1:
            if not _apart(pointers, found):
                found = self._routes.get((bound[0], _relation(pointers)))
        if found is None or found.compiled is None:
            return None, bound
        return found, bound

    def keep(self, bound: Bound, compiled: Compiled, handle: CompiledKernel) -> None:
        """Keep the route of a launch that went the long way."""
        key, arguments, _, pointers = bound
        grid = key[0]
        if not all(type(n) is int for n in (grid if type(grid) is tuple else (grid,))):
            return  # what only compares equal to an integer
        tensors = [a for a in arguments.values() if isinstance(a, torch.Tensor)]
        if not all(t.numel() for t in tensors):
            return  # something else stands for an empty one
        spans = tuple(
            t.element_size() * (1 + sum(s * (n - 1) for s, n in zip(t.stride(), t.shape))) if t.numel() else 0
            for t in tensors
        )
        plain = Route(spans, max(spans, default=0), compiled, handle)
        if len(self._routes) >= LIMIT:
            for old in list(self._routes)[: LIMIT // 4]:
                self._routes.pop(old, None)
        if len(pointers) < 2 or _apart(pointers, plain):
            self._routes[key] = plain
            return
        self._routes.setdefault(key, Route(spans, plain.room, None, None))
        self._routes[key, _relation(pointers)] = plain


def _apart(pointers: tuple[int, ...], route: Route) -> bool:
    """Whether no two tensors share memory."""
    first, *others = sorted(pointers)
    room = route.room
    for second in others:
        if second - first < room:
            break
        first = second
    else:
        return True  # as nearly always: further apart than the largest is long
    end = 0
    for start, span in sorted(zip(pointers, route.spans)):
        if start < end:
            return False
        end = max(end, start + span)
    return True


def _relation(pointers: tuple[int, ...]) -> tuple[int, ...]:
    """How tensors lie to each other: distances, and the first one's place within the widest element."""
    first = pointers[0]
    return (first % 16, *[p - first for p in pointers])


def _binder(signature: Signature, runtime: frozenset[str]) -> Callable[..., Bound | None]:
    """A function with the kernel's parameters, behind the grid, that gives what `Express.find` looks up with."""
    own = "_"  # begins the names that are not the user's
    while any(name.startswith(own) for name in signature.names):
        own += "_"
    scope: dict[str, Any] = {
        f"{own}{k}": v
        for k, v in {
            "Tensor": torch.Tensor,
            "Parameter": torch.nn.Parameter,
            "strided": torch.strided,
            "in_code": in_code,
            "absent": _Absent,
        }.items()
    }
    parameters, body, parts, pointers = [], [], [], []
    for index, name in enumerate(signature.names):
        scope[f"{own}default{index}"] = signature.defaults.get(name, _Absent)
        parameters.append(f"{name}={own}default{index}")
        kind, part = f"{own}kind{index}", f"{own}key{index}"
        parts.append(part)
        body.append(f"{kind} = type({name})")
        if name in signature.constexprs:
            body += [
                f"if {kind} is int or {kind} is bool or {kind} is str: {part} = ({kind}, {name})",
                f"elif {name} is {own}absent: return None",
                f"else: {part} = {own}in_code({name})",
            ]
            continue
        typed = signature.typed.get(name)
        pointer = f"{own}at{index}"
        pointers.append(pointer)
        low, high = (
            (0, 1) if typed == INT1 else (t.get_int_min_value(), t.get_int_max_value())
            if not (t := typed or INT32).is_floating()
            else (1, 0)
        )  # fmt: skip
        number = kind if name in runtime else f"({kind}, {name})"
        body += [
            f"if {kind} is {own}Tensor or {kind} is {own}Parameter:",
            f" if not {name}.is_cpu or {name}.is_neg() or {name}.layout is not {own}strided: return None",
            f" {part} = ({name}.dtype, {name}.shape, {name}.stride(), {name}.storage_offset(),"
            f" {name}.untyped_storage().nbytes())",
            f" {pointer} = {name}.data_ptr()",
            f"elif {kind} is int and {low} <= {name} <= {high}: {part} = {number}; {pointer} = None",
            f"elif {kind} is float: {part} = {kind}; {pointer} = None" if typed is None or typed.is_floating() else "",
            f"elif {name} is None: {part} = {pointer} = None",
            f"elif {kind} is bool: {part} = ({kind}, {name}); {pointer} = None" if typed is None else "",
            "else: return None",
        ]
    meta = ", ".join(f"{name!r}: {name}" for name in signature.names)
    lines = [
        f"def bind({own}grid, {', '.join([*parameters, f'**{own}options'])}):",
        *(f" {line}" for line in body if line),
        f" {own}meta = {{{meta}}}",
        f" if callable({own}grid): {own}grid = {own}grid({own}meta)",
        f" if type({own}grid) is list: {own}grid = tuple({own}grid)",
        f" {own}key = ({', '.join([f'{own}grid', *parts])},)",
        f" if {own}options: {own}key += tuple({own}options.items())",
        f" return {own}key, {own}meta, {own}options, {_compact(pointers)}",
    ]
    exec("\n".join(lines), scope)  # our own text: names of parameters and nothing else of the user's
    return scope["bind"]


def _compact(pointers: list[str]) -> str:
    """The text of a tuple of those that are not None."""
    if not pointers:
        return "()"
    every = f"({', '.join(pointers)},)"
    return f"{every} if None not in {every} else tuple([p for p in {every} if p is not None])"


class _Absent:
    """Stands for an argument that is not there."""
