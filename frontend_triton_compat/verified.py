"""`verify`: a kernel's form for a target, its CPU form and a reference, on copies of one launch's arguments.

Input: a kernel, arguments with data, a grid, a target. Output: `Verified`, or a diagnostic: the first element that
differs, with the argument, both values and the line that stores it; a race; a law of the target that is broken. Law:
nothing of the caller's is written; every stored tensor is compared whole, so elements that no program writes have kept
their values; the form that is run is the text that `source()` shows.
"""

from __future__ import annotations

import inspect
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import jax
import numpy as np
import torch

import bridge
from bridge import compat
from bridge.devices import Target
from bridge.diagnostics import Diagnostic, Where, error
from frontend_triton_compat import genuine
from frontend_triton_compat.arguments import Call, launch_line
from frontend_triton_compat.comparison import Comparison
from frontend_triton_compat.compiled import load_source
from frontend_triton_compat.emit.module import Module
from frontend_triton_compat.holding import TAKEN
from frontend_triton_compat.launch_grid import grid_of
from frontend_triton_compat.measure import copy_arguments
from frontend_triton_compat.offline import specs_of, translate, users_line
from pallas_core.verify import interpret

if TYPE_CHECKING:
    from frontend_triton_compat.launch import JITFunction


@dataclass(frozen=True)
class Compared:
    """One stored argument.

    Attributes:
        name: the parameter.
        shape, dtype: of the caller's tensor.
        written: elements that the launch gave another value.
        to_cpu: largest difference between the target's form and the CPU form.
        to_reference: largest difference between the target's form and the reference; None without one.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    written: int
    to_cpu: float
    to_reference: float | None = None

    def __str__(self) -> str:
        text = f"{self.name} {self.dtype}{list(self.shape)}: largest difference {self.to_cpu:.3g} to the CPU form"
        if self.to_reference is not None:
            text += f", {self.to_reference:.3g} to the reference"
        return f"{text}; {self.written} of {math.prod(self.shape)} elements changed"


@dataclass(frozen=True)
class Verified:
    """A kernel whose forms agree.

    Attributes:
        kernel: its name.
        target: what it was verified for.
        outputs: a stored argument each.
        reference: what else was compared with: ``""``, ``"triton"`` or the function's name.
        races: False: none were found; None: nobody looked, as on the CPU.
        seconds: what it took.
    """

    kernel: str
    target: str
    outputs: tuple[Compared, ...]
    reference: str
    races: bool | None
    seconds: float

    @property
    def max_error(self) -> float:
        """The largest difference of all outputs."""
        return max((max(o.to_cpu, o.to_reference or 0.0) for o in self.outputs), default=0.0)

    def __str__(self) -> str:
        forms = [f"the {self.target} form"] if self.target != "cpu" else []
        forms += ["the CPU form", *([f"the reference ({self.reference})"] if self.reference else [])]
        joined = f"{', '.join(forms[:-1])} and {forms[-1]}" if len(forms) > 1 else forms[0]
        head = f"{self.kernel} on {self.target}: verified, {joined} agree ({self.seconds:.1f} s)"
        if self.races is False:
            head += "; no races, nothing read that nobody wrote"
        return "\n".join([head, *(f"  {output}" for output in self.outputs)])


def verify_launch(
    kernel: JITFunction,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    grid: Any,
    target: str | Target,
    reference: Any = None,
    rtol: float | None = None,
    atol: float | None = None,
) -> Verified:
    """As `frontend_triton_compat.verify`, for a kernel without wrappers and a grid that is known."""
    begin = time.perf_counter()
    where = launch_line(kernel.where)
    target = Target.parse(target)
    _check_options(kernel, reference, rtol, atol, where)
    named = kernel._signature.bind(args, kwargs)
    before = copy_arguments({name: _as_tensor(name, value, where) for name, value in named.items()})
    sizes = grid_of(grid, before, kernel.where)

    ours = copy_arguments(before)
    call = kernel._signature.call((), ours)
    compiled = kernel._specialised.find(call, sizes)
    compiled.run(call)
    written = [name for name in call.arrays if name in compiled.plan.written]
    forms = {"the CPU form": {name: call.arrays[name] for name in written}}
    races = None
    if target.kind != "cpu":
        theirs, races = _on_target(kernel, copy_arguments(before), sizes, target)
        forms = {f"the {target} form": {name: theirs[name] for name in written}, **forms}
    known = None
    if reference is not None:
        known = _reference(kernel, reference, named, before, args, kwargs, sizes, written, where)
        forms["the reference"] = known

    start = {name: kernel._signature.call((), before).arrays[name] for name in written}
    compare = Comparison(kernel, compiled, forms, rtol, atol)
    outputs = tuple(
        Compared(
            name,
            tuple(start[name].shape),
            str(start[name].dtype).removeprefix("torch."),
            compare.changed(name, start[name]),
            *compare.all_forms(name),
        )
        for name in written
    )
    said = "" if reference is None else reference if isinstance(reference, str) else _name_of(reference)
    return Verified(kernel.fn.__name__, str(target), outputs, said, races, time.perf_counter() - begin)


def _check_options(
    kernel: JITFunction, reference: Any, rtol: float | None, atol: float | None, where: Where | None
) -> None:
    bad: list[Any] = [
        t for t in (rtol, atol) if t is not None and (isinstance(t, bool) or not isinstance(t, int | float))
    ]
    bad += [t for t in (rtol, atol) if t is not None and t not in bad and not t >= 0]
    if isinstance(reference, str) and reference != "triton":
        bad.append(reference)
    if bad:
        raise error(
            "bad-argument",
            f"verify got {bad[0]!r}",
            where=where,
            why="tolerances are numbers that are not negative; a reference is a function, tensors, or 'triton'",
            do=f"{kernel.fn.__name__}.verify(..., grid=grid, target='tpu:v5e', reference=lambda x: x + 1)",
        )


def _as_tensor(name: str, value: Any, where: Where | None) -> Any:
    """A jax array as a tensor with its numbers; what has no data is refused."""
    if isinstance(value, jax.Array):
        return bridge.to_torch(value, copy=True)
    if isinstance(value, tuple | list):
        parts = [_as_tensor(name, v, where) for v in value]
        return type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)
    if isinstance(value, jax.ShapeDtypeStruct) or (isinstance(value, torch.Tensor) and value.device.type == "meta"):
        raise error(
            "bad-argument",
            f"argument {name!r} has no data",
            where=where,
            why="verify runs the kernel: values are what it compares",
            do="pass a tensor with numbers in it; check(...) is content with shapes",
        )
    return value


# -- the target's form


def _on_target(
    kernel: JITFunction, named: Mapping[str, Any], grid: tuple[int, int, int], target: Target
) -> tuple[dict[str, torch.Tensor], bool | None]:
    """What the form for a target leaves in the arguments, by its interpreter, and whether that found a race."""
    defined = kernel.where or Where("", 0)
    module = translate(kernel, (), named, grid, str(target))
    call = kernel._signature.call((), named)
    try:
        found = interpret(
            load_source(module.source, module.entry), operands_of(module, call, target.kind == "gpu"), target, defined
        )
    except Diagnostic as problem:
        at = users_line(problem.where, module, defined)
        raise type(problem)(problem.slug, problem.what, where=at, why=problem.why, do=problem.do) from problem
    put_back(module, found.results, call)
    return call.arrays, found.races


def operands_of(module: Module, call: Call, fp16: bool = False) -> list[jax.Array]:
    """What a module's entry takes for a launch: the arguments' memory, copied, under the dtypes of the module."""
    out = []
    for operand, spec in zip(module.operands, specs_of(module, call, fp16)):
        if operand.scalar:
            number = call.scalars[operand.param] if operand.param in call.scalars else call.ints[operand.param]
            out.append(jax.numpy.full((1,), number, spec.dtype))
            continue
        t = call.arrays[operand.param].detach()
        strides = torch.empty(operand.shape, device="meta").stride()
        window = t.as_strided(operand.shape, strides, t.storage_offset() + operand.start).clone()
        with compat.x64():
            values = np.asarray(bridge.to_jax(window))
        kind = spec.dtype
        if values.dtype.kind in "iu" and values.dtype.itemsize == 8:  # the target has 32 bits, and says so itself
            kind = np.dtype(f"{kind.kind}4") if kind.itemsize == 8 else kind
            _refuse_wide(operand.param, values, kind)
        out.append(jax.numpy.asarray(values.astype(kind)))
    return out


def _refuse_wide(name: str, values: np.ndarray, kind: np.dtype) -> None:
    if values.size and not (-TAKEN <= values.min() and values.max() < TAKEN):
        raise error(
            "tpu-dtype",
            f"argument {name!r} holds {values.max() if values.max() >= TAKEN else values.min()}",
            why=f"its 64-bit integers are held as {kind.name} there, with room for a sum of two: below 2**30 in size",
            do="keep indices below 2**30, or split them into high and low halves",
        )


def put_back(module: Module, results: Sequence[Any], call: Call) -> None:
    """Write what a module's entry returned into a launch's tensors."""
    for result, value in zip(module.results, results):
        t = call.arrays[result.param].detach()
        sizes = tuple(hi - lo for lo, hi in result.box)
        start = result.start + sum(lo * s for (lo, _), s in zip(result.box, result.strides))
        inside = np.asarray(value)[tuple(slice(lo, hi) for lo, hi in result.box)]
        with compat.x64():
            new = bridge.to_torch(jax.numpy.asarray(inside), copy=True)
        t.as_strided(sizes, result.strides, t.storage_offset() + start).copy_(new)


# -- the reference


def _name_of(reference: Any) -> str:
    if callable(reference):
        name = getattr(reference, "__name__", type(reference).__name__)
        return "a function" if name == "<lambda>" else name
    return "given tensors"


def _reference(
    kernel: JITFunction,
    reference: Any,
    named: Mapping[str, Any],
    before: Mapping[str, Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    grid: tuple[int, int, int],
    written: Sequence[str],
    where: Where | None,
) -> dict[str, torch.Tensor]:
    """What the stored tensors should hold, by parameter; those that the reference says nothing of are left out."""
    own = copy_arguments(before)
    if isinstance(reference, str):
        genuine.run(kernel, own, grid)
        found = None
    elif callable(reference):
        on_jax = {name: value if isinstance(value, jax.Array) else own[name] for name, value in named.items()}
        found = _called(kernel, reference, on_jax, args, kwargs, where)
    else:
        found = reference
    if found is None:
        arrays = kernel._signature.call((), own).arrays
        return {name: arrays[name] for name in written}
    if not isinstance(found, Mapping):
        values = [found] if hasattr(found, "shape") else list(found)
        if len(values) != len(written):
            raise error(
                "verify-mismatch",
                f"the launch stores to {len(written)} arguments ({', '.join(written)}), the reference {len(values)}",
                where=where,
                why="they are compared one by one, in the order of the kernel's parameters",
                do="let the reference return as many, or a dict: {'out': x + y}",
            )
        found = dict(zip(written, values))
    unknown = [name for name in found if name not in written]
    if unknown:
        raise error(
            "verify-mismatch",
            f"the reference has {unknown[0]!r}, which the kernel does not store to",
            where=where,
            why=f"the launch stores to {', '.join(written) or 'nothing'}",
            do="name what is stored to",
        )
    return {
        n: bridge.to_torch(v, copy=True) if isinstance(v, jax.Array) else torch.as_tensor(v) for n, v in found.items()
    }


def _called(
    kernel: JITFunction,
    reference: Callable[..., Any],
    named: Mapping[str, Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    where: Where | None,
) -> Any:
    try:
        parameters = list(inspect.signature(reference).parameters.values())
    except (TypeError, ValueError):  # written in C, as many of torch's
        parameters = []
    plain = [p for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
    if plain and len(plain) == len(parameters) and all(p.name in named or p.default is not p.empty for p in plain):
        return reference(**{p.name: named[p.name] for p in plain if p.name in named})
    as_launched = [named[name] for name in kernel.arg_names[: len(args)]]
    by_name = {name: named[name] for name in kwargs if name in named}
    try:
        inspect.signature(reference).bind(*as_launched, **by_name)
    except TypeError as wrong:
        raise error(
            "bad-argument",
            f"the reference can't be called: {wrong}",
            where=where,
            why="it is given the arguments that its parameters name, or else all of the launch's",
            do=f"give it parameters of the kernel: lambda {', '.join(list(named)[:2])}: ...",
        ) from wrong
    except ValueError:
        pass
    return reference(*as_launched, **by_name)


__all__ = ["Compared", "Verified", "operands_of", "put_back", "verify_launch"]
