"""`jax_op`: a JAX or Pallas function as a torch operator.

Input: a function of jax arrays and a name ``ns::name``. Output: a torch custom operator with shapes for compilation
(`jax.eval_shape`), gradients (`jax.vjp`, twice over) and batching (`jax.vmap`). Law: one call is one jitted call; the
operands are imported for its duration, the results are new memory.
"""

from __future__ import annotations

import inspect
import keyword
import re
import threading
import types
import typing
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch

from bridge import compat
from bridge.diagnostics import Where, error
from bridge.dlpack import import_for_call
from bridge.dtypes import BY_JAX, BY_TORCH, by_jax

#: Annotation of a parameter that is not a tensor -> its type in torch's schema language.
_STATIC = {float: "float", int: "int", bool: "bool", str: "str"}
#: The function, its gradient, and the gradient of that: enough for a gradient penalty.
_ORDERS = 2


@dataclass(frozen=True)
class _Parameter:
    name: str
    type: str  # torch's schema language: Tensor, Tensor?, float, int, bool, str
    default: str = ""  # "=2.0" or nothing

    @property
    def is_tensor(self) -> bool:
        return self.type in ("Tensor", "Tensor?")


@dataclass(frozen=True)
class _Operator:
    """One torch operator: the function, its parameters, and how many results it has."""

    name: str
    function: Callable[..., Any]
    parameters: tuple[_Parameter, ...]
    results: int
    order: int = 0
    where: Where | None = None
    batched: dict[tuple[int | None, ...], Any] = field(default_factory=dict, compare=False)
    lock: threading.Lock = field(default_factory=threading.Lock, compare=False)

    @property
    def schema(self) -> str:
        result = "Tensor" if self.results == 1 else f"({', '.join(['Tensor'] * self.results)})"
        return f"({', '.join(f'{p.type} {p.name}{p.default}' for p in self.parameters)}) -> {result}"

    def split(self, args: Sequence[Any]) -> tuple[list[Any], Callable[[Sequence[Any]], list[Any]]]:
        """The tensors among `args`, and a function that puts others in their places."""
        places = [i for i, (p, a) in enumerate(zip(self.parameters, args)) if p.is_tensor and a is not None]
        for p, a in zip(self.parameters, args):
            if a is None and p.type == "Tensor":  # which torch lets through
                raise error(
                    "bad-argument",
                    f"the argument '{p.name}' of {self.name} is None",
                    where=Where.caller(),
                    why="only a parameter that says so takes None.",
                    do=f"pass a tensor, or annotate it {p.name}: jax.Array | None = None",
                )

        def merge(tensors: Sequence[Any]) -> list[Any]:
            merged = list(args)
            for place, tensor in zip(places, tensors, strict=True):
                merged[place] = tensor
            return merged

        return [args[i] for i in places], merge

    def results_of(self, out: Any) -> list[Any]:
        """The results as a list.

        Raises:
            Diagnostic: ``bad-argument``: their number is not the declared one.
        """
        values = list(out) if isinstance(out, tuple | list) else [out]
        if len(values) != self.results:
            declared = "one array" if self.results == 1 else f"{self.results} arrays"
            raise error(
                "bad-argument",
                f"{self.name} returned {len(values)} values and declares {declared}",
                where=self.where,
                why="a torch operator has a fixed number of results.",
                do=f"annotate it: -> tuple[{', '.join(['jax.Array'] * len(values))}]",
            )
        for i, value in enumerate(values):
            if not isinstance(value, jax.Array | jax.ShapeDtypeStruct):
                kind = type(value).__name__
                raise error(
                    "bad-argument",
                    f"result {i} of {self.name} is a {kind}",
                    where=self.where,
                    why="the results of an operator are arrays: one, or a tuple of them.",
                    do="return jax arrays; jnp.asarray makes one of a number",
                )
            row = BY_JAX.get(value.dtype)
            if row is None or not row.crosses:
                raise error(
                    "dtype-cannot-cross",
                    f"result {i} of {self.name} is {value.dtype}, which has no counterpart in torch",
                    where=self.where,
                    why=(row.why if row else "it is not an array of numbers") + ".",
                    do=(row.do if row else "") or "convert it inside the function: .astype(jnp.int8)",
                )
        return values

    def explain(self, problem: Exception, args: Sequence[Any], kwargs: dict[str, Any]) -> Exception | None:
        """What is wrong with a call that torch refused, or None when it is none of the known things."""
        if "functorch transforms" in str(problem):
            return error(
                "no-derivative",
                f"{self.name} can't be differentiated by torch.func",
                where=Where.caller(),
                why="torch 2.13 differentiates custom operators in autograd only.",
                do=("torch.autograd.grad(op(x).sum(), x, create_graph=True)", "or jax.grad of the function: op.jax"),
            )
        names = [p.name for p in self.parameters]
        named = dict(zip(names, args)) | kwargs
        missing = [p.name for p in self.parameters if p.name not in named and not p.default]
        if len(args) > len(names) or missing or set(named) - set(names):
            given = f"{len(args)} arguments" + (f" and {', '.join(kwargs)}" if kwargs else "")
            return error(
                "bad-argument",
                f"{self.name} got {given}",
                where=Where.caller(),
                why=f"its parameters are ({', '.join(p.type + ' ' + p.name + p.default for p in self.parameters)}).",
                do="give each parameter without a default one value",
            )
        for p in self.parameters:
            value = named.get(p.name)
            if p.is_tensor and not isinstance(value, torch.Tensor) and (value is not None or p.type == "Tensor"):
                if value is None and p.name not in named:
                    continue
                is_jax = isinstance(value, jax.Array)
                return error(
                    "bad-argument",
                    f"the argument '{p.name}' of {self.name} is a {type(value).__name__}",
                    where=Where.caller(),
                    why="a torch operator takes torch tensors.",
                    do=f"for jax arrays call the function itself: op.jax({p.name})" if is_jax else "pass a tensor",
                )
            if not p.is_tensor and p.name in named and isinstance(value, torch.Tensor):
                return error(
                    "bad-argument",
                    f"the argument '{p.name}' of {self.name} is a tensor",
                    where=Where.caller(),
                    why=f"it is annotated {p.type}: a constant, for which the function is compiled anew.",
                    do=f"pass a number, or annotate it jax.Array: {p.name}.item()",
                )
        return None


#: Every operator by its name, the gradients among them.
_made: dict[str, _Operator] = {}


@dataclass(frozen=True)
class Traceable:
    """An operator for a larger jax program.

    Attributes:
        function: takes the operator's arguments, arrays for tensors; a list of arrays.
        where: the user's line that defines it.
    """

    function: Callable[..., list[Any]]
    where: Where | None


def traceable(name: str) -> Traceable | None:
    """The operator ``ns::name`` if `jax_op` made it."""
    op = _made.get(name)
    if op is None:
        return None

    def function(*args: Any) -> list[Any]:
        tensors, _ = op.split(args)
        with compat.x64_as(any(np.dtype(t.dtype).itemsize == 8 and not _is_complex64(t) for t in tensors)):
            return op.results_of(op.function(*args))

    return Traceable(function, op.where)


def _is_complex64(t: Any) -> bool:
    return np.dtype(t.dtype) == np.complex64


#: Namespaces of torch's own operators.
_RESERVED = frozenset({"aten", "prim", "prims", "torch"})


def jax_op(name: str) -> Callable[[Callable[..., Any]], Any]:
    """Make a function of jax arrays a torch operator.

    The function's parameters are tensors, unless annotated ``float``, ``int``, ``bool`` or ``str``; such a value is
    constant during a call, and each new value compiles anew. ``jax.Array | None`` takes None as well. Annotate several
    results as ``-> tuple[jax.Array, jax.Array]``. The function must be pure: it is traced by jax once for each
    combination of shapes and dtypes. It runs in x64 mode when an operand is 64 bits wide.

    Args:
        name: ``namespace::operator``, as torch names operators.

    Returns:
        A decorator. What it returns is called with torch tensors on the CPU, works under ``torch.compile`` (with
        ``fullgraph=True``), autograd (twice over) and ``torch.vmap``, and keeps the jax function as its attribute
        ``jax``. ``torch.func.grad`` refuses it, as it refuses every custom operator of torch 2.13.

    Raises:
        Diagnostic: ``bad-argument``: the name, a parameter or the number of results can't be those of an operator.

    Example:
        >>> @bridge.jax_op("mine::scaled_sin")
        ... def scaled_sin(x, scale: float = 2.0):
        ...     return jnp.sin(x) * scale
        >>> scaled_sin(torch.ones(3, requires_grad=True)).sum().backward()
    """
    if not isinstance(name, str) or not re.fullmatch(r"[A-Za-z_]\w*::[A-Za-z_]\w*", name):
        raise error(
            "bad-argument",
            f"{name!r} is not the name of an operator",
            where=Where.caller(),
            why="torch finds an operator by a namespace and a name.",
            do="write a namespace of your own and a name: bridge.jax_op('mine::scaled_sin')",
        )

    namespace, _, operator = name.partition("::")
    if namespace in _RESERVED or keyword.iskeyword(namespace) or keyword.iskeyword(operator):
        raise error(
            "bad-argument",
            f"{name!r} can't be the name of an operator",
            where=Where.caller(),
            why="the namespace is torch's own." if namespace in _RESERVED else "Python reserves that word.",
            do="write a namespace of your own and a name: bridge.jax_op('mine::scaled_sin')",
        )

    def decorate(function: Callable[..., Any]) -> Any:
        if not callable(function):
            raise error(
                "bad-argument",
                f"jax_op makes an operator of a function, not of a {type(function).__name__}",
                where=Where.caller(),
                why="the operator's parameters and results are read from the function's annotations.",
                do="write it above a function: @bridge.jax_op('mine::scaled_sin')",
            )
        if not (inspect.isfunction(function) or inspect.ismethod(function) or hasattr(function, "__wrapped__")):
            raise error(
                "bad-argument",
                f"jax_op reads the parameters of a function, which a {type(function).__name__} does not have",
                where=Where.caller(),
                why="an operator has a fixed list of parameters, read from the function's signature.",
                do="wrap it:\n    @bridge.jax_op('mine::f')\n    def f(x):\n        return kernel(x)",
            )
        where = Where.of_function(function) or Where.caller()
        parameters, results = _signature(function, where)
        described = _Operator(name, function, parameters, results, where=where)
        definition = _define(described)
        compat.explain_refusals(definition, described.explain)
        definition.jax = function
        return definition

    return decorate


def _signature(function: Callable[..., Any], where: Where | None) -> tuple[tuple[_Parameter, ...], int]:
    """The parameters and the number of results, from the annotations."""
    try:
        hints = typing.get_type_hints(function)
    except NameError as problem:
        raise error(
            "bad-argument",
            f"an annotation can't be resolved: {problem}",
            where=where,
            why="the operator's parameters and results are read from the annotations, when the function is decorated.",
            do="import what the annotation names before the function, at the top of the module",
        ) from problem
    parameters = []
    for p in inspect.signature(function).parameters.values():
        if p.kind not in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD):
            raise error(
                "bad-argument",
                f"the parameter '{p}' has no place in an operator",
                where=where,
                why="torch operators have a fixed list of parameters.",
                do="name each parameter, without * and without keyword-only ones",
            )
        parameters.append(_parameter(p, hints.get(p.name), where))
    result = hints.get("return")
    count = len(typing.get_args(result)) if typing.get_origin(result) is tuple else 1
    return tuple(parameters), count


def _parameter(p: inspect.Parameter, hint: Any, where: Where | None) -> _Parameter:
    options = [o for o in typing.get_args(hint) if o is not types.NoneType] if _is_union(hint) else [hint]
    optional = _is_union(hint) and types.NoneType in typing.get_args(hint)
    if len(options) == 1 and options[0] in _STATIC:
        default = "" if p.default is p.empty else f"={_literal(p.default)}"
        return _Parameter(p.name, _STATIC[options[0]] + ("?" if optional else ""), default)
    if len(options) == 1 and options[0] in (None, jax.Array, np.ndarray, torch.Tensor, Any):
        if p.default not in (p.empty, None):
            raise error(
                "bad-argument",
                f"the parameter '{p.name}' has a default and no annotation",
                where=where,
                why="an operator has types, and a default alone says which of several it may be.",
                do=f"annotate it: {p.name}: {type(p.default).__name__} = {p.default!r}",
            )
        optional = optional or p.default is None
        return _Parameter(p.name, "Tensor?" if optional else "Tensor", "=None" if p.default is None else "")
    raise error(
        "bad-argument",
        f"the parameter '{p.name}' is annotated {hint}",
        where=where,
        why="an operator takes tensors and constants of type float, int, bool or str.",
        do="annotate it jax.Array (or leave it bare), float, int, bool or str",
    )


def _is_union(hint: Any) -> bool:
    return typing.get_origin(hint) in (typing.Union, types.UnionType)


def _literal(value: Any) -> str:
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"' if isinstance(value, str) else str(value)


def _define(op: _Operator) -> Any:
    """Register `op` and what belongs to it with torch."""
    static = tuple(i for i, p in enumerate(op.parameters) if not p.is_tensor)
    jitted = jax.jit(op.function, static_argnums=static)

    def run(*args: Any) -> Any:
        tensors, merge = op.split(args)
        with _precision(tensors):
            out = jitted(*merge([import_for_call(t) for t in tensors]))
        return _returned(op, [compat.share_with_torch(value) for value in op.results_of(out)])

    def shapes(*args: Any) -> Any:
        tensors, merge = op.split(args)
        with _precision(tensors):
            specs = [jax.ShapeDtypeStruct([int(n) for n in t.shape], BY_TORCH[t.dtype].jax) for t in tensors]
            out = jax.eval_shape(lambda *values: op.function(*merge(values)), *specs)
        device = tensors[0].device if tensors else "cpu"
        made = [torch.empty(v.shape, dtype=by_jax(v.dtype).torch, device=device) for v in op.results_of(out)]
        return _returned(op, made)

    definition: Any = torch.library.custom_op(op.name, run, mutates_args=(), schema=op.schema)
    _made[op.name] = op
    definition.register_fake(shapes)
    definition.register_vmap(lambda info, in_dims, *args: _batch(op, definition, info, in_dims, args))
    if any(p.is_tensor for p in op.parameters):
        gradient = _define(_gradient(op)) if op.order < _ORDERS else None
        definition.register_autograd(_backward(op, gradient), setup_context=_remember(op))
    return definition


def _precision(tensors: Sequence[torch.Tensor]) -> Any:
    """x64 mode when an operand is 64 bits wide."""
    return compat.x64() if any(BY_TORCH[t.dtype].wide for t in tensors) else nullcontext()


def _returned(op: _Operator, values: list[Any]) -> Any:
    return values[0] if op.results == 1 else tuple(values)


# Gradients -------------------------------------------------------------------------------------------------------


def _gradient(op: _Operator) -> _Operator:
    """The operator (operands, cotangents) -> a gradient for each operand that may be a tensor.

    An operand that is None or not floating-point has a scalar zero in its place, so the number of results is fixed.
    """
    count = len(op.parameters)

    def function(*args: Any) -> tuple[Any, ...]:
        operands, cotangents = args[:count], list(args[count:])
        tensors, merge = op.split(operands)
        at = [i for i, t in enumerate(tensors) if jnp.issubdtype(t.dtype, jnp.inexact)]

        def of_floats(*floats: Any) -> list[Any]:
            values = list(tensors)
            for i, value in zip(at, floats):
                values[i] = value
            return op.results_of(op.function(*merge(values)))

        out, pull = jax.vjp(of_floats, *(tensors[i] for i in at))
        # torch and jax write the gradient of a complex number as each other's conjugate.
        pulled = iter(pull([_cotangent(value, c) for value, c in zip(out, cotangents, strict=True)]))
        return tuple(
            jnp.conj(next(pulled)) if a is not None and jnp.issubdtype(a.dtype, jnp.inexact) else jnp.zeros(())
            for p, a in zip(op.parameters, operands)
            if p.is_tensor
        )

    cotangents = tuple(_Parameter(f"cotangent_{op.order}_{i}", "Tensor") for i in range(op.results))
    parameters = tuple(replace(p, default="") for p in op.parameters) + cotangents
    tensors = sum(p.is_tensor for p in op.parameters)
    return _Operator(f"{op.name}_vjp", function, parameters, tensors, op.order + 1, op.where)


def _cotangent(value: Any, cotangent: Any) -> Any:
    if not jnp.issubdtype(value.dtype, jnp.inexact):
        return np.zeros(value.shape, jax.dtypes.float0)
    return jnp.conj(cotangent).astype(value.dtype)


def _remember(op: _Operator) -> Callable[..., None]:
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        tensors, ctx.merge = op.split(inputs)
        ctx.save_for_backward(*tensors)

    return setup_context


def _backward(op: _Operator, gradient: Any) -> Callable[..., Any]:
    def backward(ctx: Any, *cotangents: Any) -> Any:
        if gradient is None:
            raise error(
                "no-derivative",
                f"{op.name.split('_vjp')[0]} can be differentiated {_ORDERS} times",
                where=Where.caller(),
                why="each order is an operator of its own, and they end there.",
                do="take the higher derivative in jax, inside the function given to jax_op",
            )
        args = ctx.merge(ctx.saved_tensors)
        found = gradient(*args, *(c.contiguous() for c in cotangents))
        found = iter([found] if isinstance(found, torch.Tensor) else found)
        # Every tensor parameter has a result, also those that get no gradient.
        of_parameter = [next(found) if p.is_tensor else None for p in op.parameters]
        return tuple(
            g if a is not None and g is not None and _is_float(a) else None for g, a in zip(of_parameter, args)
        )

    return backward


def _is_float(t: torch.Tensor | None) -> bool:
    return t is not None and (t.dtype.is_floating_point or t.dtype.is_complex)


# Batching --------------------------------------------------------------------------------------------------------


def _batch(op: _Operator, definition: Any, info: Any, in_dims: tuple[Any, ...], args: tuple[Any, ...]) -> Any:
    """The vmap rule: the batched operator of this pattern of dimensions, made when it is first needed."""
    if all(dim is None for dim in in_dims):
        out = definition(*args)
        return out, (None if op.results == 1 else (None,) * op.results)
    with op.lock:
        if in_dims not in op.batched:
            op.batched[in_dims] = _define(_batched(op, in_dims))
    out = op.batched[in_dims](*args)
    return out, (0 if op.results == 1 else (0,) * op.results)


def _batched(op: _Operator, in_dims: tuple[int | None, ...]) -> _Operator:
    def function(*args: Any) -> Any:
        tensors, merge = op.split(args)
        axes = [d for p, a, d in zip(op.parameters, args, in_dims) if p.is_tensor and a is not None]
        return jax.vmap(lambda *values: op.function(*merge(values)), in_axes=axes)(*tensors)

    pattern = "_".join("n" if d is None else str(d) for d in in_dims)
    return _Operator(f"{op.name}_vmap_{pattern}", function, op.parameters, op.results, op.order, op.where)
