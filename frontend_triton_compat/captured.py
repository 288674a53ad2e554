"""A launch as one torch operator, ``torch_pallas::launch_1`` (2, ...): what a graph holds of ``kernel[grid](...)``.

Input: a launch whose tensors and numbers may stand for others (Dynamo's variables, fake tensors). Output: the
operator's arguments: the key of a `Form`, which holds all that is no tensor and no symbolic number, the tensors that
the kernel stores to, the others. Law: the tensors that are declared as written are those of the kernel's IR, and all
that share memory with them; nothing runs while a launch is captured; a launch that is wrong is captured, and refused
with the user's line when the operator is called.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from bridge import compat
from bridge.diagnostics import Diagnostic, Where, error
from frontend_triton_compat.aliases import flat_params
from frontend_triton_compat.arguments import Call, in_code, placed
from frontend_triton_compat.ir import Kernel, Value, walk
from frontend_triton_compat.language.constexpr import unwrap
from frontend_triton_compat.parse import parse
from frontend_triton_compat.specialise import SURPRISES, defect, run_time
from frontend_triton_compat.types import pointer_type


@dataclass(frozen=True)
class Traced:
    """Something that stands for a tensor or a number while a graph is traced.

    Attributes:
        kind: ``tensor``, ``number`` (an integer) or ``float``.
        example: a tensor with its shape, strides and dtype, or a symbolic number.
        handle: what the tracer knows it by.
    """

    kind: str
    example: Any
    handle: Any


@dataclass(frozen=True)
class Function:
    """A grid that is a function, as its tracer knows it."""

    variable: Any


@dataclass(frozen=True)
class Slot:
    """A place of the operator's arguments: ``written``, ``read``, ``number`` or ``float``, and which."""

    kind: str
    index: int


@dataclass(frozen=True)
class Made:
    """An object of a launch that holds tensors: how it is made again of its parts."""

    make: Callable[..., Any]
    parts: tuple[Any, ...]


@dataclass(frozen=True, eq=False)
class Form:
    """All of a launch but its tensors and symbolic numbers.

    Attributes:
        key: what the operator is given.
        kernel: what was launched: a kernel, or `autotune` or `heuristics` in front of it.
        args, kwargs: the launch's arguments, with slots in place of tensors and symbolic numbers.
        grids: (what a configuration adds, grid) for every one; the grid's sizes are numbers or slots.
        where: the user's line.
        problem: what is wrong with the launch.
    """

    key: str
    kernel: Any
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    grids: tuple[tuple[Mapping[str, Any], Any], ...]
    where: Where | None
    problem: Diagnostic | None = None

    def grid(self, given: Given) -> Any:
        """The grid of a call: a tuple, or a function where it is the configuration's."""
        made = [(added, given.fill(grid)) for added, grid in self.grids]
        if all(grid == made[0][1] for _, grid in made):
            return made[0][1]

        def chosen(meta: Mapping[str, Any]) -> Any:
            for added, grid in made:
                if all(name in meta and in_code(unwrap(meta[name])) == in_code(v) for name, v in added.items()):
                    return grid
            raise error(
                "captured-grid",
                f"the grid of {_name(self.kernel)} is not known for the configuration that was chosen",
                where=self.where,
                why="under torch.compile a grid function is evaluated once for every configuration of autotune, while "
                "the function is traced; early_config_prune made one that was not among them",
                do="choose among the configurations given to triton.autotune, or give the grid as a tuple",
            )

        return chosen


@dataclass(frozen=True)
class Given:
    """The operator's arguments, to fill slots with."""

    written: Sequence[Any]
    read: Sequence[Any]
    numbers: Sequence[Any]
    floats: Sequence[Any]

    def fill(self, value: Any) -> Any:
        """`value` with arguments in place of its slots."""
        lists = {"written": self.written, "read": self.read, "number": self.numbers, "float": self.floats}
        return _filled(value, lambda v: lists[v.kind][v.index] if isinstance(v, Slot) else v)


@dataclass(frozen=True)
class Captured:
    """The arguments of the operator, tensors and numbers as their tracer's handles."""

    form: Form
    written: tuple[Traced, ...]
    read: tuple[Traced, ...]
    numbers: tuple[Traced, ...]
    floats: tuple[Traced, ...]


class Tracer:
    """What `capture` asks of whoever traces."""

    def evaluate(self, function: Any, named: Mapping[str, Any]) -> Any:
        """`function` of a dict of the launch's arguments: a grid, or a heuristic."""
        return function(dict(named))

    def constant(self, number: Traced) -> Any:
        """The number that a symbolic one has, from now on in the graph."""
        return int(number.example) if number.kind == "number" else float(number.example)


_forms: dict[str, Form] = {}
_known: dict[Any, Form] = {}
_lock = threading.Lock()


def form_of(key: str) -> Form:
    """The form with a key.

    Raises:
        Diagnostic: there is none in this process.
    """
    found = _forms.get(key)
    if found is None:
        raise error(
            "captured-elsewhere",
            f"the launch {key} was not captured in this process",
            where=Where.caller(),
            why="a graph holds a launch by a name; the kernel itself is Python, which is not saved with the graph",
            do="trace the function again in this process (torch.compile or torch.export), then call the graph",
        )
    return found


def capture(
    kernel: Any,
    grid: Any,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    tracer: Tracer,
    where: Where | None,
) -> Captured:
    """Take a launch apart.

    Args:
        kernel: a kernel, or what `autotune` or `heuristics` put in front of one.
        grid: its sizes, or a function that `tracer` can evaluate.
        args: positional arguments, with `Traced` in place of what is not known.
        kwargs: keyword arguments.
        tracer: evaluates functions and makes numbers constant.
        where: the user's line.
    """
    with placed(where):
        try:
            return _capture(kernel, grid, list(args), dict(kwargs), tracer, where)
        except Diagnostic as problem:
            refused = problem if problem.where is not None or where is None else problem.at(where)
        except SURPRISES as surprise:
            refused = defect(_name(kernel), where, surprise)
    tensors = tuple(_distinct(t for t in _leaves((args, kwargs)) if t.kind == "tensor"))
    form = _register(kernel, (), {}, (({}, ()),), where, refused)
    return Captured(form, tensors, (), (), ())


def _capture(
    kernel: Any, grid: Any, args: list[Any], kwargs: dict[str, Any], tracer: Tracer, where: Where | None
) -> Captured:
    jitted = kernel if hasattr(kernel, "_signature") else kernel.kernel
    signature = jitted._signature
    names = signature.names

    def settled(name: str, value: Any) -> Any:
        """A constexpr, a launch option and a truth value are part of the code: their symbolic numbers get a value."""
        fixed = name in signature.constexprs or name not in signature.known
        return _rebuilt(value, lambda v: tracer.constant(v) if _is_number(v) and fixed else v)

    args = [settled(names[i] if i < len(names) else "", value) for i, value in enumerate(args)]
    kwargs = {name: settled(name, value) for name, value in kwargs.items()}
    signature.bind(args, {**kwargs, **{n: None for n in _chosen_names(kernel) if n not in kwargs}})
    named = {**dict(zip(names, args)), **kwargs}
    needed = isinstance(grid, Function) or callable(grid)
    alternatives = [{n: settled(n, v) for n, v in added.items()} for added in _alternatives(kernel, named, tracer)]
    grids = []
    stored: set[str] = set()
    stands: dict[int, Traced] = {}
    calls: list[Call] = []
    for added in alternatives:
        bound = signature.bind((), {**named, **added})
        sizes = tracer.evaluate(grid, bound) if needed else grid
        sizes = tuple(sizes) if isinstance(sizes, tuple | list) else (sizes,)
        grids.append(({n: v for n, v in added.items() if n in signature.known}, tuple(unwrap(n) for n in sizes)))
        call, symbolic = _stand_in(signature, bound, stands)
        calls.append(call)
        for numbers in _possible(sizes):
            stored |= stored_parameters(_read(jitted, call, symbolic, numbers))
        if any(isinstance(n, Traced) for n in sizes) and "num_programs" in jitted.src:
            stored |= call.arrays.keys()  # where it stores may depend on a number that is not known
    tensors = {}
    for call in calls:
        for name, stand in call.arrays.items():
            traced = stands.get(id(stand)) or stands.get(id(stand._base))
            if traced is not None:
                tensors[name] = traced
    written = _with_aliases([tensors[n] for n in tensors if n in stored], list(tensors.values()))
    if not written:
        written = list(tensors.values())  # a kernel that only prints must not vanish from the graph
    _refuse_retyped(written, where)
    places: dict[Any, Slot] = {}
    lists: dict[str, list[Traced]] = {"written": [], "read": [], "number": [], "float": []}
    chosen = {_identity(t) for t in written}

    def slot(traced: Traced) -> Slot:
        kind = traced.kind
        if kind == "tensor":
            kind = "written" if _identity(traced) in chosen else "read"
        if _identity(traced) not in places:
            places[_identity(traced)] = Slot(kind, len(lists[kind]))
            lists[kind].append(traced)
        return places[_identity(traced)]

    slotted = lambda value: _rebuilt(value, lambda v: slot(v) if isinstance(v, Traced) else v)
    form = _register(
        kernel,
        tuple(slotted(a) for a in args),
        {n: slotted(v) for n, v in kwargs.items()},
        tuple((added, slotted(grid)) for added, grid in grids),
        where,
    )
    return Captured(form, *(tuple(lists[kind]) for kind in ("written", "read", "number", "float")))


# -- what a kernel stores to


def stored_parameters(kernel: Kernel) -> set[str]:
    """The pointer parameters that some store or atomic may go to; too many rather than too few."""
    found: set[str] = set()
    seen: set[Value] = set()
    work = [op.operands[0] for op in walk(kernel.body) if op.kind in ("store", "atomic")]
    while work:
        value = work.pop()
        if value in seen or not isinstance(value.type.element, pointer_type):
            continue
        seen.add(value)
        if value.producer is not None:
            if value.producer.kind == "arg":
                found.add(value.producer["name"])
            work += value.producer.operands
            for region in value.producer.regions:
                work += region.yields
        elif value.owner is not None:
            work += value.owner.operands
            for region in value.owner.regions:
                work += region.yields
    return found


def _possible(sizes: Sequence[Any]) -> list[list[Any]]:
    """Grids to read a kernel for: where numbers are symbolic, one program and several, which it may ask about."""
    symbolic = any(isinstance(n, Traced) for n in sizes)
    given = [[1 if isinstance(n, Traced) else n for n in sizes], [5 if isinstance(n, Traced) else n for n in sizes]]
    return [[_hint(n) for n in sizes], *(given if symbolic else ())]


def _read(jitted: Any, call: Call, symbolic: frozenset[str], numbers: Sequence[Any]) -> Kernel:
    grid = (*[n if isinstance(n, int) and n > 0 else 1 for n in numbers], 1, 1)[:3]
    return parse(jitted.__translated__, run_time(call.params, symbolic), grid, None, call.debug)


def _stand_in(signature: Any, bound: Mapping[str, Any], stands: dict[int, Traced]) -> tuple[Call, frozenset[str]]:
    """The launch with tensors without memory, and which integer parameters are symbolic."""

    def standing(value: Any) -> Any:
        if not isinstance(value, Traced):
            return value
        if value.kind != "tensor":
            return _hint(value)
        t = value.example
        shape, strides = [_hint(n) for n in t.shape], [_hint(n) for n in t.stride()]
        stand = torch.empty_strided(shape, strides, dtype=t.dtype, device="meta")
        stands[id(stand)] = value
        kept.append(stand)
        return stand

    kept: list[Any] = []
    call = signature.call((), {n: _filled(v, standing) for n, v in bound.items()}, placeless=True)
    call.kept = kept  # type: ignore[attr-defined]  # their ids are looked up
    symbolic = set()
    for param in call.params:
        leaves = [t for t in _leaves(bound[param.name]) if t.kind == "number"]
        if leaves:
            symbolic |= {p.name for p in flat_params([param]) if p.kind == "int"}
    return call, frozenset(symbolic)


def _hint(value: Any) -> Any:
    """A number for a symbolic one, any if none is known."""
    if isinstance(value, Traced):
        value = value.example
    return compat.hint_of(value)


def _with_aliases(written: list[Traced], tensors: list[Traced]) -> list[Traced]:
    """`written`, and every tensor that lies in the memory of one of them."""
    memories = {compat.memory_id(t.example) for t in written}
    return [t for t in tensors if compat.memory_id(t.example) in memories]


def _refuse_retyped(written: Sequence[Traced], where: Where | None) -> None:
    """Refuse what a graph can't say: a store through a view of another dtype, next to another view of that memory."""
    memories = [compat.memory_id(t.example) for t in _distinct(iter(written))]
    for t in written:
        if not compat.is_retyped(t.example):
            continue
        if memories.count(compat.memory_id(t.example)) > 1 or not compat.is_dense(t.example):
            raise error(
                "aliased-arguments",
                "a tensor that is stored to is a view of another dtype, and not dense or not alone in its memory",
                where=where,
                why="in a graph such a view is copied, stored to, and copied back",
                do="launch the kernel on a copy: t = x.view(dtype).contiguous(); after it x.view(dtype).copy_(t)",
            )


# -- wrappers in front of a kernel


def _chosen_names(kernel: Any) -> set[str]:
    """The parameters that wrappers give values to."""
    names: set[str] = set()
    while not hasattr(kernel, "_signature"):
        if hasattr(kernel, "configs"):
            names |= {n for config in kernel.configs for n in config.all_kwargs()}
        names |= set(getattr(kernel, "values", ()))
        kernel = kernel.fn
    return names


def _alternatives(kernel: Any, named: Mapping[str, Any], tracer: Tracer) -> list[dict[str, Any]]:
    """What wrappers add to the launch's arguments: one dict for every configuration."""
    found: list[dict[str, Any]] = [{}]
    while not hasattr(kernel, "_signature"):
        if hasattr(kernel, "configs"):
            found = [{**added, **config.all_kwargs()} for added in found for config in kernel.configs]
        else:
            for added in found:
                for name, function in kernel.values.items():
                    value = tracer.evaluate(function, {**named, **added})
                    added[name] = _rebuilt(value, lambda v: tracer.constant(v) if _is_number(v) else v)
        kernel = kernel.fn
    return found


# -- forms


def _register(
    kernel: Any,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    grids: tuple[tuple[Mapping[str, Any], Any], ...],
    where: Where | None,
    problem: Diagnostic | None = None,
) -> Form:
    place = "" if where is None else f"{where.file}:{where.line}"
    parts = (args, tuple(kwargs.items()), tuple((tuple(a.items()), g) for a, g in grids))
    identity = (id(kernel), place, in_code(parts), "" if problem is None else str(problem))
    with _lock:
        found = _known.get(identity)
        if found is not None:
            return found
        jitted = kernel if hasattr(kernel, "_signature") else kernel.kernel
        text = repr((jitted.cache_key if problem is None else str(problem), parts))
        stem = f"{jitted.fn.__name__}-{hashlib.sha256(text.encode(errors='surrogatepass')).hexdigest()[:16]}"
        key, count = stem, 1
        while key in _forms:  # the same text from another line, or with other values in a closure
            count += 1
            key = f"{stem}-{count}"
        form = Form(key, kernel, args, dict(kwargs), grids, where, problem)
        _forms[key] = _known[identity] = form
        return form


def _name(kernel: Any) -> str:
    jitted = kernel if hasattr(kernel, "_signature") else kernel.kernel
    return jitted.fn.__name__


def name_of_form(key: str) -> str:
    """The name of the kernel that the operator with a key launches."""
    return _name(form_of(key).kernel)


# -- nested arguments


def _filled(value: Any, function: Callable[[Any], Any]) -> Any:
    """As `_rebuilt`, and objects that hold tensors are made."""
    if isinstance(value, Made):
        return value.make(*(_filled(p, function) for p in value.parts))
    if type(value) in (tuple, list) or (isinstance(value, tuple) and hasattr(value, "_fields")):
        inside = [_filled(v, function) for v in value]
        return type(value)(*inside) if hasattr(value, "_fields") else type(value)(inside)
    return function(value)


def _rebuilt(value: Any, function: Callable[[Any], Any]) -> Any:
    """`value` with `function` of its leaves; tuples, lists and objects that hold tensors are gone through."""
    if isinstance(value, Made):
        return dataclasses.replace(value, parts=tuple(_rebuilt(p, function) for p in value.parts))
    if type(value) in (tuple, list) or (isinstance(value, tuple) and hasattr(value, "_fields")):
        inside = [_rebuilt(v, function) for v in value]
        return type(value)(*inside) if hasattr(value, "_fields") else type(value)(inside)
    return function(value)


def _leaves(value: Any) -> Iterator[Traced]:
    if isinstance(value, Traced):
        yield value
    elif isinstance(value, Made):
        yield from _leaves(value.parts)
    elif isinstance(value, Mapping):
        yield from _leaves(tuple(value.values()))
    elif isinstance(value, tuple | list):
        for v in value:
            yield from _leaves(v)


def slots(value: Any) -> Iterator[Slot]:
    """Every slot in nested arguments."""
    if isinstance(value, Slot):
        yield value
    elif isinstance(value, Made):
        yield from slots(value.parts)
    elif isinstance(value, tuple | list):
        for v in value:
            yield from slots(v)


def _distinct(traced: Iterator[Traced]) -> Iterator[Traced]:
    seen = set()
    for t in traced:
        if _identity(t) not in seen:
            seen.add(_identity(t))
            yield t


def _identity(traced: Traced) -> Any:
    handle = traced.handle
    return (traced.kind, id(getattr(handle, "node", handle)))


def _is_number(value: Any) -> bool:
    return isinstance(value, Traced) and value.kind != "tensor"


# -- the operator


def _run(form: str, *args: Any) -> None:
    """Launch on tensors with data."""
    found = form_of(form)
    if found.problem is not None:
        raise found.problem
    *written, read, numbers, floats = args
    given = Given(written, read, numbers, [f.item() for f in floats])
    args = tuple(given.fill(a) for a in found.args)
    kwargs = {n: given.fill(v) for n, v in found.kwargs.items()}
    with placed(found.where), launching():
        if hasattr(found.kernel, "_signature"):
            found.kernel._express(found.grid(given), args, kwargs)
        else:
            found.kernel.run(*args, grid=found.grid(given), warmup=False, **kwargs)


def _shapes(form: str, *args: Any) -> None:
    """Nothing runs on tensors without data."""


def _batched(info: Any, in_dims: Sequence[Any], form: str, *args: Any) -> tuple[None, None]:
    """Under ``torch.vmap``: one launch after the other, on the parts of the tensors."""
    *written, read, numbers, floats = args
    *dims, read_dims, _, _ = in_dims[1:]
    read_dims = read_dims if isinstance(read_dims, list | tuple) else [None] * len(read)
    where = form_of(form).where
    if None in dims:
        raise error(
            "launch-under-vmap",
            f"{_name(form_of(form).kernel)} stores to a tensor that torch.vmap does not map over",
            where=where,
            why="every element of the batch would be stored to the same place; torch.empty(...) inside of the mapped "
            "function makes such a tensor",
            do="allocate the result from a mapped one: torch.empty_like(x), x.new_empty(...)",
        )
    part = lambda t, dim, i: t if dim is None else t.select(dim, i)
    for i in range(info.batch_size):
        inside = [part(t, d, i) for t, d in zip(written, dims)], [part(t, d, i) for t, d in zip(read, read_dims)]
        operator(len(written))(form, *inside[0], inside[1], numbers, floats)
    return None, None


_inside = threading.local()


@contextlib.contextmanager
def launching() -> Iterator[None]:
    """Within it the operator runs: a launch goes to the kernel whatever watches torch's operators."""
    before = getattr(_inside, "on", False)
    _inside.on = True
    try:
        yield
    finally:
        _inside.on = before


def wanted(args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """Whether a launch from plain Python has to be captured: its tensors stand for others, or modes look on."""
    if getattr(_inside, "on", False):
        return False
    return compat.modes_are_on() or any(_stands(v) for v in (*args, *kwargs.values()))


def _stands(value: Any) -> bool:
    if isinstance(value, torch.SymInt | torch.SymFloat | torch.SymBool):
        return True
    if type(value) in (tuple, list) or (isinstance(value, tuple) and hasattr(value, "_fields")):
        return any(_stands(v) for v in value)
    return isinstance(value, torch.Tensor) and compat.stands_for_another(value)


def launch_traced(kernel: Any, grid: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """A launch on fake tensors, or under a mode that records: as one call of the operator."""

    def traced(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return Traced("tensor", value, value)
        if isinstance(value, torch.SymInt):
            return Traced("number", value, value)
        if isinstance(value, torch.SymFloat):
            return Traced("float", value, value)
        return bool(value) if isinstance(value, torch.SymBool) else value

    class Raw(Tracer):
        """Functions are called with what stands for tensors and numbers itself."""

        def evaluate(self, function: Any, named: Mapping[str, Any]) -> Any:
            given = {n: _rebuilt(v, lambda x: x.example if isinstance(x, Traced) else x) for n, v in named.items()}
            return _rebuilt(function(given), traced)

    every = lambda value: _rebuilt(value, traced)
    found = capture(
        kernel, every(grid), [every(a) for a in args], {n: every(v) for n, v in kwargs.items()}, Raw(), Where.caller(2)
    )
    lists = [[t.example for t in part] for part in (found.written, found.read, found.numbers, found.floats)]
    # Gradients do not flow through a kernel, whoever launches it.
    written, read = ([t.detach() if t.requires_grad else t for t in part] for part in lists[:2])
    plain = [t.clone() if compat.is_retyped(t) else t for t in written]
    floats = [torch.ones((), dtype=torch.float64) * f for f in lists[3]]
    operator(len(written))(found.form.key, *plain, read, lists[2], floats)
    for t, new in zip(written, plain):
        if new is not t:
            t.copy_(new)


def operator(written: int) -> Any:
    """The operator's overload for a number of tensors that are stored to: each is an argument of its own."""
    name = f"launch_{written}"
    if name not in _defined:
        with _lock:
            if name not in _defined:
                _define(name, written)
    return getattr(torch.ops.torch_pallas, name).default


def launched_by(overload: Any) -> bool:
    """Whether an overload is the operator, for any number of tensors."""
    return str(getattr(overload, "_schema", "")).startswith("torch_pallas::launch_")


_library = torch.library.Library("torch_pallas", "FRAGMENT")
_defined: set[str] = set()


def _define(name: str, written: int) -> None:
    tensors = "".join(f"Tensor(a{i}!) written{i}, " for i in range(written))
    _library.define(f"{name}(str form, {tensors}Tensor[] read, SymInt[] numbers, Tensor[] floats) -> ()")
    _library.impl(name, _run, "CompositeExplicitAutograd")
    torch.library.register_fake(f"torch_pallas::{name}", _shapes, lib=_library)
    torch.library.register_vmap(f"torch_pallas::{name}", _batched, lib=_library)
    _defined.add(name)


for _count in range(1, 5):
    _define(f"launch_{_count}", _count)
