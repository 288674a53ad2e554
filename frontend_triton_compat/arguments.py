"""Launch arguments: bound to the kernel's parameters, checked, and reduced to what a specialisation depends on.

Input: the positional and keyword arguments of a launch. Output: `Call`: one `Param` a parameter, the arrays, the
run-time scalars, and a hashable key. Law: a bad argument is a diagnostic before anything is translated or written;
two launches with one key run the same code.
"""

from __future__ import annotations

import contextlib
import contextvars
import functools
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
import numpy as np
import torch

from bridge import compat
from bridge.diagnostics import Where, error
from frontend_triton_compat.ir import Param
from frontend_triton_compat.language.constexpr import constexpr, unwrap
from frontend_triton_compat.types import ALL_DTYPES, FP32, FP64, INT1, INT32, INT64, UINT64, dtype, from_numpy_name

#: Launch options of Triton's backends that tune code generation; they have no meaning here and are accepted.
LAUNCH_OPTIONS = frozenset(
    "num_warps num_stages num_ctas maxnreg cluster_dims enable_fp_fusion enable_reflect_ftz launch_cooperative_grid "
    "launch_pdl extern_libs debug sanitize_overflow instrumentation_mode ir_override ptx_version ptx_options arch "
    "backend_name warp_size supported_fp8_dtypes deprecated_fp8_dot_operand_dtypes default_dot_input_precision "
    "allowed_dot_input_precisions max_num_imprecise_acc_default waves_per_eu matrix_instr_nonkdim kpack schedule_hint "
    "allow_flush_denorm stream warmup".split()
)
_TORCH_NAMES: dict[torch.dtype, dtype | None] = {}


@dataclass(eq=False)
class Call:
    """One launch, bound to parameters.

    Attributes:
        signature: the kernel's parameters.
        arrays: pointer parameter -> torch tensor or jax array.
        scalars: run-time scalar parameter -> number.
        ints: integer parameter -> number.
        key: what the specialisation depends on, arrays' memory aside.
        meta: parameter name -> argument, for a grid that is a function.
        debug: whether run-time assertions are checked.
        empty: pointer parameters whose tensor has no elements; one element of nobody's stands for it.
    """

    signature: Signature
    arrays: dict[str, Any] = field(default_factory=dict)
    scalars: dict[str, float] = field(default_factory=dict)
    ints: dict[str, int] = field(default_factory=dict)
    key: list[Any] = field(default_factory=list)
    meta: dict[str, Any] = field(default_factory=dict)
    placeless: bool = False
    debug: bool = False
    empty: set[str] = field(default_factory=set)

    @functools.cached_property
    def params(self) -> list[Param]:
        """Every parameter as specialised; a launch that is known already does without."""
        return self.signature.params(self)


class Signature:
    """A kernel's parameters: names, defaults, and which are constexpr."""

    def __init__(self, fn: Callable[..., Any], where: Where | None):
        self.defined = where
        parameters = list(inspect.signature(fn).parameters.values())
        starred = [p for p in parameters if p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
        if starred:
            raise error(
                "launch-arguments",
                f"the kernel has the parameter {starred[0]}",
                where=where,
                why="every parameter of a kernel has a type of its own",
                do=f"name them one by one, or pass a tuple: def {fn.__name__}(..., {starred[0].name}):",
            )
        self.names = [p.name for p in parameters]
        self.defaults = {p.name: p.default for p in parameters if p.default is not inspect.Parameter.empty}
        self.constexprs = {p.name for p in parameters if _is_constexpr(p.annotation)}
        self.typed = {p.name: t for p in parameters if (t := _scalar_type(p.annotation)) is not None}
        self.known = set(self.names)

    @property
    def where(self) -> Where | None:
        """What a bad launch is blamed on: the user's line that launches."""
        return launch_line(self.defined)

    def bind(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """Parameter name -> argument, defaults filled in.

        Raises:
            TranslationError: too many arguments, one given twice, an unknown keyword, or one missing.
        """
        if len(args) > len(self.names):
            raise error(
                "launch-arguments",
                f"{len(args)} positional arguments for {len(self.names)} parameters",
                where=self.where,
                why="every positional argument is the value of a parameter of the kernel, in order.",
                do=f"pass at most: {', '.join(self.names)}",
            )
        bound = dict(zip(self.names, args))
        for name, value in kwargs.items():
            if name not in self.known:
                if name in LAUNCH_OPTIONS:
                    continue
                raise error(
                    "launch-arguments",
                    f"keyword argument {name!r} is neither a parameter nor a launch option",
                    where=self.where,
                    why="a name that nobody reads is most likely misspelt, and leaving it out would change what runs.",
                    do=f"parameters are {', '.join(self.names)}; launch options: {', '.join(sorted(LAUNCH_OPTIONS))}",
                )
            if name in bound:
                raise error(
                    "launch-arguments",
                    f"argument {name!r} is given twice",
                    where=self.where,
                    why="once by its position and once by its name",
                    do=f"drop one of the two; the order is {', '.join(self.names)}",
                )
            bound[name] = value
        if len(bound) != len(self.names):
            for name in self.names:
                if name not in bound:
                    if name not in self.defaults:
                        kind = "constexpr parameter" if name in self.constexprs else "parameter"
                        raise error(
                            "launch-arguments",
                            f"{kind} {name!r} has no argument",
                            where=self.where,
                            why="every parameter without a default needs a value at the launch",
                            do=f"pass it by name: kernel[grid](..., {name}=...)",
                        )
                    bound[name] = self.defaults[name]
            bound = {name: bound[name] for name in self.names}
        return bound

    def call(self, args: Sequence[Any], kwargs: Mapping[str, Any], placeless: bool = False) -> Call:
        """Bind, check and specialise the arguments of a launch.

        Args:
            args: positional arguments.
            kwargs: keyword arguments; launch options among them are dropped.
            placeless: arrays need no data: meta tensors and `jax.ShapeDtypeStruct` will do.
        """
        bound = self.bind(args, kwargs)
        call = Call(self, meta=bound, placeless=placeless)
        key, arrays = call.key, call.arrays
        for index, name in enumerate(self.names):
            value = bound[name]
            kind = type(value)
            if name in self.constexprs:
                if kind is not int and kind is not bool:
                    value = self._constexpr(name, index, value).value
                key.append(in_code(value))
            elif name in self.typed:
                self._argument(name, index, value, call)
            elif (
                (kind is torch.Tensor or kind is torch.nn.Parameter)
                and value.is_cpu
                and value.layout is torch.strided
                and not value.is_neg()
                and value.numel()
            ):
                arrays[name] = value
                key.append(value.dtype)
            elif kind is int and -(2**31) <= value < 2**31:
                call.ints[name] = value
                key.append(INT32)
            elif kind is float:
                call.scalars[name] = value
                key.append("f")
            else:
                self._argument(name, index, value, call)
        return call

    def params(self, call: Call) -> list[Param]:
        """The parameters of a launch as they are specialised."""
        scratch = Call(self, placeless=call.placeless)
        return [
            self._constexpr(name, index, call.meta[name])
            if name in self.constexprs
            else self._argument(name, index, call.meta[name], scratch)
            for index, name in enumerate(self.names)
        ]

    def _constexpr(self, name: str, index: int, value: Any) -> Param:
        value = unwrap(value)
        if isinstance(value, torch.Tensor | jax.Array):
            raise error(
                "launch-arguments",
                f"constexpr parameter {name!r} was given an array",
                where=self.where,
                why="a constexpr is part of the kernel's code: a number, a string, a dtype, a function, None",
                do=f"drop the `: tl.constexpr` annotation of {name!r}, or pass a number",
            )
        return Param(name, index, "constexpr", value=value)

    def _argument(self, name: str, index: int, value: Any, call: Call) -> Param:
        if isinstance(value, constexpr):
            call.key.append(in_code(unwrap(value)))
            return self._constexpr(name, index, value)
        if isinstance(value, torch.Tensor):
            value = _plain(value)
            element = self._torch_element(name, value, call.placeless)
            if value.numel() == 0 and not call.placeless:
                value = value.new_zeros(1)
                call.empty.add(name)
                call.key.append("empty")
            call.arrays[name] = value
            call.key.append(value.dtype)
            return Param(name, index, "pointer", element)
        if isinstance(value, jax.Array) or (call.placeless and isinstance(value, jax.ShapeDtypeStruct)):
            call.arrays[name] = value
            element = self._element(name, value.dtype.name)
            call.key.append(element)
            return Param(name, index, "pointer", element)
        if value is None or isinstance(value, str | dtype) or callable(value):
            call.key.append(in_code(value))
            return Param(name, index, "constexpr", value=value)
        if name in self.typed and isinstance(value, bool | int | float | np.number | np.bool_):
            return self._typed(name, index, value, call)
        if isinstance(value, bool | np.bool_):
            call.key.append(in_code(bool(value)))
            return Param(name, index, "int", INT1, bool(value))
        if isinstance(value, int | np.integer):
            value = int(value)
            element = INT32 if -(2**31) <= value < 2**31 else INT64 if -(2**63) <= value < 2**63 else UINT64
            if not -(2**63) <= value < 2**64:
                raise error(
                    "launch-arguments",
                    f"{name}={value} does not fit 64 bits",
                    where=self.where,
                    why="a run-time integer of a kernel has 32 or 64 bits",
                    do=f"pass a smaller number, or a float: {name}=float(...)",
                )
            call.ints[name] = value
            call.key.append(element)
            return Param(name, index, "int", element, value)
        if isinstance(value, float | np.floating):
            wide = isinstance(value, np.float64) and not isinstance(value, float)
            call.scalars[name] = float(value)
            call.key.append("f")
            return Param(name, index, "float", FP64 if wide else FP32)
        if isinstance(value, tuple | list):
            items = tuple(self._argument(self._item(name, i, call), i, v, call) for i, v in enumerate(value))
            kind = type(value) if hasattr(value, "_fields") else tuple
            call.key.append((kind, len(items)))
            return Param(name, index, "tuple", value=kind, items=items)
        inner = getattr(value, "base", None)
        if inner is not None and hasattr(value, "block_shape"):
            return self._descriptor(name, index, value, call)
        if isinstance(inner, torch.Tensor) and isinstance(getattr(value, "dtype", None), dtype):
            raw = value.dtype.name == "fp8e4b15"  # Triton's own format goes over as bytes
            plain = torch.uint8 if raw else getattr(torch, value.dtype.numpy_name.rstrip("_"), None)
            if plain is None:
                raise error(
                    "launch-dtype",
                    f"argument {name!r} is a tensor seen as {value.dtype}, which torch does not have",
                    where=self.where,
                    do="use a dtype that torch has: " + ", ".join(("tl.float8e4nv", "tl.float8e5", "tl.int8")),
                )
            self._torch_element(name, inner, call.placeless)
            call.arrays[name] = inner.view(plain)
            call.key.append(value.dtype)
            return Param(name, index, "pointer", value.dtype)
        seen = seen_as_tensor(value)
        if seen is not None:
            return self._argument(name, index, seen, call)
        raise error(
            "launch-arguments",
            f"argument {name!r} is a {type(value).__name__}",
            where=self.where,
            why="a kernel takes tensors, numbers, tuples of these, and constexprs",
            do=f"convert it, or annotate the parameter `{name}: tl.constexpr` if it is part of the kernel's code",
        )

    def _typed(self, name: str, index: int, value: Any, call: Call) -> Param:
        """A number for a parameter whose annotation gives its type."""
        t = self.typed[name]
        if t.is_floating():
            call.scalars[name] = float(value)
            call.key.append(("f", t))
            return Param(name, index, "float", t)
        low, high = (0, 1) if t.is_bool() else (t.get_int_min_value(), t.get_int_max_value())
        if isinstance(value, float | np.floating) or not low <= value <= high:
            raise error(
                "launch-arguments",
                f"{name}={value!r} is not a value of tl.{t}",
                where=self.where,
                why=f"the parameter {name!r} is annotated tl.{t}",
                do=f"pass an integer from {low} to {high}, or drop the annotation",
            )
        if t.is_bool():
            call.key.append(bool(value))
            return Param(name, index, "int", INT1, bool(value))
        call.ints[name] = int(value)
        call.key.append(t)
        return Param(name, index, "int", t, int(value))

    def _item(self, name: str, i: int, call: Call) -> str:
        """A name for an element of a tuple, which no parameter and no other element has."""
        item = f"{name}_{i}"
        while item in self.known or any(item in taken for taken in (call.arrays, call.scalars, call.ints)):
            item += "_"
        return item

    def _descriptor(self, name: str, index: int, value: Any, call: Call) -> Param:
        """A tensor descriptor made on the host: its tensor, sizes and strides, in the parts of one parameter."""
        base = self._argument(name, index, value.base, call)
        parts = [
            self._argument(f"{name}_{part}", index, tuple(int(n) for n in getattr(value, part)), call)
            for part in ("shape", "strides")
        ]
        block = tuple(int(unwrap(n)) for n in value.block_shape)
        static = (block, str(getattr(value, "padding", "zero")))
        call.key.append(static)
        return Param(name, index, "descriptor", value=static, items=(base, *parts))

    def _torch_element(self, name: str, t: torch.Tensor, placeless: bool = False) -> dtype:
        found = _TORCH_NAMES.get(t.dtype)
        if found is None:
            found = _TORCH_NAMES[t.dtype] = self._element(name, str(t.dtype).removeprefix("torch."))
        if placeless and t.device.type == "meta":
            return found
        if t.layout is torch.strided and t.is_neg():
            raise error(
                "lazy-conj-or-neg",
                f"argument {name!r} is a lazy negation",
                where=self.where,
                why="its memory holds the values with the other sign, and a kernel reads and writes memory",
                do=f"materialise it once: {name}.resolve_neg()",
            )
        if t.device.type == "cpu" and t.layout is torch.strided and not compat.has_memory(t):
            raise error(
                "launch-device",
                f"argument {name!r} has no memory behind its shape {tuple(t.shape)}",
                where=self.where,
                why="its storage was freed or shrunk, as by untyped_storage().resize_(0)",
                do="launch while the storage is there, or pass a tensor of its own",
            )
        if t.device.type != "cpu" or t.layout is not torch.strided or type(t) not in (torch.Tensor, torch.nn.Parameter):
            raise error(
                "launch-device",
                f"argument {name!r} is a {type(t).__name__} on {t.device} with layout {t.layout}",
                where=self.where,
                why="this launch runs on the CPU and reads the tensor's memory in place",
                do=f"pass a dense CPU tensor: {name}.to('cpu'), {name}.to_dense()",
            )
        return found

    def _element(self, name: str, numpy_name: str) -> dtype:
        try:
            return from_numpy_name(numpy_name)
        except KeyError:
            raise error(
                "launch-dtype",
                f"argument {name!r} has dtype {numpy_name}, which Triton's language does not have",
                where=self.where,
                do="use a real dtype of 8 to 64 bits; split a complex tensor with torch.view_as_real",
            ) from None


def _plain(t: torch.Tensor) -> torch.Tensor:
    """A tensor of a class of the user's as a plain one over its memory; what only stands for a tensor as it is."""
    own = type(t) not in (torch.Tensor, torch.nn.Parameter)
    plain: Any = torch.Tensor
    kind: Any = type(t)
    if own and kind.__torch_dispatch__ is plain.__torch_dispatch__ and compat.has_storage(t):
        return t.as_subclass(torch.Tensor)  # type: ignore[arg-type]
    return t


def _is_constexpr(annotation: Any) -> bool:
    if isinstance(annotation, str):
        return annotation.split(".")[-1].strip("'\" ") == "constexpr"
    return (
        annotation is constexpr
        or isinstance(annotation, constexpr)
        or getattr(annotation, "__name__", "") == "constexpr"
    )


def _scalar_type(annotation: Any) -> dtype | None:
    """The type that an annotation like ``tl.int64`` gives a scalar; None for the types that numbers have anyway."""
    if isinstance(annotation, dtype):
        t = annotation
    elif isinstance(annotation, str) or type(annotation).__module__.startswith("triton.language"):
        name = str(annotation).strip("'\" ").split(".")[-1]
        long = {d.name.replace("bf", "bfloat").replace("fp", "float"): d for d in ALL_DTYPES}
        t = long.get(name) or next((d for d in ALL_DTYPES if d.name == name), None)
    else:
        t = None
    return None if t is None or t in (INT32, FP32) or t.is_fp8() else t


def in_code(value: Any) -> Any:
    """What of a constexpr is in a specialisation's key: equal only for values that give the same code.

    Python calls 1, True and 1.0 equal, and 0.0 and -0.0; a kernel does not. What can be changed is compared by its
    present contents, and what can't be looked into by identity.
    """
    kind = type(value)
    if kind is int or kind is bool or kind is str or value is None:
        return (kind, value)
    if isinstance(value, float):
        return (kind, value.hex())
    if isinstance(value, np.generic | np.ndarray) and not value.dtype.hasobject:
        return (kind, value.dtype, value.shape, value.tobytes())
    if isinstance(value, complex):
        return (kind, value.real.hex(), value.imag.hex())
    if isinstance(value, tuple | list):
        return (kind, *map(in_code, value))
    if isinstance(value, Mapping):
        return (kind, *((in_code(k), in_code(v)) for k, v in value.items()))
    if isinstance(value, constexpr):
        return (kind, in_code(value.value))
    try:
        hash(value)
    except TypeError:
        return (kind, _Same(value))
    return (kind, value)


class _Same:
    """A value that is equal to itself alone; kept alive, so that no other gets its address."""

    def __init__(self, value: Any):
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and other.value is self.value

    def __hash__(self) -> int:
        return id(self.value)


_place: contextvars.ContextVar[Where | None] = contextvars.ContextVar("place", default=None)


@contextlib.contextmanager
def placed(where: Where | None) -> Iterator[None]:
    """Within it launches are the user's line `where`: they are called by a graph that holds them."""
    token = _place.set(where)
    try:
        yield
    finally:
        _place.reset(token)


def launch_line(defined: Where | None) -> Where | None:
    """The user's line that is running now, or where the kernel is defined."""
    return _place.get() or Where.caller(2) or defined


def seen_as_tensor(value: Any) -> torch.Tensor | None:
    """A library's own kind of tensor, with a dtype, a storage and an address in it, as a tensor on the same memory.

    Strides that torch does not have (negative ones) are left out: what the kernel adds to the pointer is what counts.
    """
    if not isinstance(getattr(value, "dtype", None), torch.dtype) or not hasattr(value, "data_ptr"):
        return None
    storage = value.untyped_storage() if hasattr(value, "untyped_storage") else None
    if not isinstance(storage, torch.UntypedStorage) or storage.device.type != "cpu":
        return None
    place, odd = divmod(value.data_ptr() - storage.data_ptr(), value.dtype.itemsize)
    room = storage.nbytes() // value.dtype.itemsize - place
    if odd or place < 0 or room < 0:
        return None
    shape, strides = (room,), (1,)
    if hasattr(value, "shape") and hasattr(value, "stride"):
        own, steps = tuple(value.shape), tuple(value.stride())
        last = sum(s * (n - 1) for s, n in zip(steps, own))
        if 0 in own:
            return torch.empty(0, dtype=value.dtype)
        if all(s >= 0 for s in steps) and last < room:
            shape, strides = own, steps
    return torch.empty(0, dtype=value.dtype).set_(storage, place, shape, strides)
