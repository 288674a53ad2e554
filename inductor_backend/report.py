"""`explain(model, *args)`: what a compilation gives, found on copies of the model and its arguments.

Input: a model and example arguments. Output: a `Report` of graphs, kernels and fallbacks. Law: the user's model,
arguments, compiled functions and random state stay as they are.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import torch

from bridge.devices import Target
from bridge.diagnostics import Diagnostic, Where, error, tell
from inductor_backend.compat import front_half, pytree
from inductor_backend.compile import CompiledGraph, check_devices
from inductor_backend.fallback import Eager, operator_of
from inductor_backend.graph import name_of, where_of
from inductor_backend.ops import undecomposed
from inductor_backend.options import Options


@dataclass(frozen=True)
class Kernel:
    """One Pallas kernel: its name in the emitted source, the operators it fuses, its source.

    Attributes:
        static: on a TPU, its grid, static time, bound and VMEM; the real compiler has accepted it.
    """

    name: str
    operators: int
    source: str
    static: Any = None

    def __str__(self) -> str:
        text = f"kernel {self.name}: {self.operators} operators"
        if self.static is None:
            return text
        time = "no time known" if self.static.time_s is None else f"{self.static.time_s * 1e6:.3g} µs"
        vmem = "" if self.static.vmem_bytes is None else f", VMEM {self.static.vmem_bytes / 2**20:.3g} MiB"
        return f"{text}, grid {self.static.grid}: ok, {time}, bound by {self.static.bound}{vmem}"


@dataclass(frozen=True)
class Fallback:
    """One operator that runs in ATen, why, and the user's line."""

    operator: str
    reason: str
    where: str


@dataclass(frozen=True)
class LibraryCall:
    """One operator that could be jitted and runs in ATen because that is faster: its name and the user's line."""

    operator: str
    where: str

    def __str__(self) -> str:
        return f"library {self.operator}: ATen is faster here" + (f" ({self.where})" if self.where else "")


@dataclass(frozen=True)
class Inlined:
    """A kernel of the user's inside a jitted function: the launch, its line, the source of its CPU form."""

    name: str
    where: str
    source: str

    def __str__(self) -> str:
        return f"inlined {self.name}" + (f" ({self.where})" if self.where else "")


@dataclass(frozen=True)
class GraphReport:
    """One graph.

    Attributes:
        kind: "inference", "forward" or "backward".
        operators: how many operators the graph has.
        segments: how many jitted functions it became; one when nothing falls back and no library is called.
        kernels: its Pallas kernels.
        fallbacks: its operators that run in ATen.
        source: the emitted source of its jitted functions.
        inlined: launches of Triton kernels, and functions of `bridge.jax_op`, that it holds.
        library: its operators that run in ATen by choice, because that is faster: not fallbacks.
        static: on a TPU, the static time of the whole and what stays outside kernels
            (`inductor_backend.kernels.figures.GraphFigures`).
    """

    kind: str
    operators: int
    segments: int
    kernels: tuple[Kernel, ...]
    fallbacks: tuple[Fallback, ...]
    source: str
    static: Any = None
    inlined: tuple[Inlined, ...] = ()
    library: tuple[LibraryCall, ...] = ()


@dataclass(frozen=True)
class Report:
    """What a compilation gives; prints as text. More than one inference or forward graph means graph breaks.

    Attributes:
        graphs: in the order of their compilation.
        given_up: why PyTorch could not take a graph apart, of each that Dynamo then left to eager.
    """

    graphs: tuple[GraphReport, ...]
    given_up: tuple[str, ...] = ()

    @property
    def kernels(self) -> tuple[Kernel, ...]:
        """Every Pallas kernel."""
        return tuple(k for g in self.graphs for k in g.kernels)

    @property
    def fallbacks(self) -> tuple[Fallback, ...]:
        """Everything that runs in ATen."""
        return tuple(f for g in self.graphs for f in g.fallbacks)

    def __str__(self) -> str:
        lines = []
        for i, g in enumerate(self.graphs):
            lines.append(
                f"graph {i} ({g.kind}): {g.operators} operators, {g.segments} jitted function(s), "
                f"{len(g.kernels)} Pallas kernel(s), {len(g.fallbacks)} operator(s) in ATen"
            )
            if g.static is not None:
                lines.append(
                    f"  {g.static.target}: compiled; {g.static.time_s * 1e6:.3g} µs static, of which kernels "
                    f"{g.static.kernel_time_s * 1e6:.3g} µs; HBM {g.static.hbm_bytes / 2**20:.3g} MiB"
                )
            lines += [f"  {k}" for k in (*g.kernels, *g.inlined, *g.library)]
            if g.static is not None:
                for reason in dict.fromkeys([*g.static.refused.values(), *g.static.declined.values()]):
                    named = [n for n, r in (*g.static.refused.items(), *g.static.declined.items()) if r == reason]
                    lines.append(f"  plain XLA {', '.join(named[:6])}{' ...' if len(named) > 6 else ''}: {reason}")
            lines += [f"  ATen {f.operator}: {f.reason}" + (f" ({f.where})" if f.where else "") for f in g.fallbacks]
        caveats = {g.static.caveat for g in self.graphs if g.static is not None}
        lines += [f"a graph is left to eager: {reason}" for reason in self.given_up]
        return "\n".join([*lines, *caveats]) or "no graph: nothing in this function is compiled"


def explain(model: Any, *args: Any, options: Any = None, target: str | None = None, **kwargs: Any) -> Report:
    """Compile copies of a model and its arguments, and report.

    Args:
        model: a module or function.
        *args: example arguments on the CPU.
        options: as for torch.compile.
        target: as the option. For a TPU every kernel is compiled offline, and the report has its static figures.
        **kwargs: example keyword arguments.

    Raises:
        Diagnostic: a bad option, a model that can't be called, arguments that are not on the CPU.
    """
    chosen = _chosen(options, target)
    if not callable(model):
        raise error(
            "bad-argument",
            f"explain got a {type(model).__name__} where a module or function belongs",
            where=Where.caller(),
            why="it calls what it is given, under torch.compile.",
            do="explain(model, *args): the model first, then its example arguments",
        )
    _check_names(model, kwargs)
    check_devices(pytree.tree_leaves((args, kwargs)))
    graphs: list[GraphReport] = []
    given_up: list[str] = []

    def backend(gm: torch.fx.GraphModule, inputs: Any) -> Any:
        def inner(graph: torch.fx.GraphModule, example: Any, **details: Any) -> Any:
            kind = (
                "backward" if details.get("is_backward") else "inference" if details.get("is_inference") else "forward"
            )
            graphs.append(_report(graph, list(example), chosen, kind))
            return Eager.boxed(graph)

        try:
            return front_half(gm, inputs, inner, undecomposed())
        except Exception as failure:  # Dynamo raises some of them, and breaks the graph at others
            given_up.append(f"{type(failure).__name__}: {str(failure).strip().splitlines()[0] if str(failure) else ''}")
            raise

    model = copy.deepcopy(model) if isinstance(model, torch.nn.Module) else model
    args, kwargs = pytree.tree_map_only(torch.Tensor, _copied, (args, kwargs))
    try:
        with torch.random.fork_rng(devices=[]):
            _backward(torch.compile(model, backend=backend)(*args, **kwargs))
    except Exception as failure:
        found = _diagnostic_of(failure)
        if found is None or found is failure:
            raise
        raise found from None  # Dynamo wraps what a backend raises
    return Report(tuple(graphs), tuple(given_up))


def _chosen(options: Any, target: str | None) -> Options:
    """The options, with a target that may be named twice as long as it is the same."""
    more = {} if target is None else {"target": target}
    if target is not None and isinstance(options, Mapping) and "target" in options:
        both = [str(Target.parse(t)) for t in (target, options["target"])]
        if both[0] != both[1]:
            raise error(
                "backend-option",
                f"explain got target={target!r}, and options with target={options['target']!r}",
                where=Where.caller(),
                why="a graph is compiled for one target",
                do=f"name it once: explain(model, *args, target={target!r})",
            )
    try:
        return Options.read(options, **more)
    except Diagnostic as wrong:
        place = Where.caller()
        raise wrong if place is None else wrong.at(place) from None


def _check_names(model: Any, kwargs: Mapping[str, Any]) -> None:
    """Refuse an option that was given where the model's own keyword arguments are, unless the model takes it.

    Raises:
        Diagnostic: backend-option.
    """
    called = model.forward if isinstance(model, torch.nn.Module) else model
    try:
        parameters = inspect.signature(called).parameters
    except (TypeError, ValueError):
        return
    if any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
        return
    for name in {f.name for f in fields(Options)} & kwargs.keys() - parameters.keys():
        raise error(
            "backend-option",
            f"explain got {name}={kwargs[name]!r}, which the model does not take",
            where=Where.caller(),
            why="keyword arguments of explain are the model's own; options come as one dict, as for torch.compile",
            do=f"explain(model, *args, options={{{name!r}: {kwargs[name]!r}}})",
        )


def _diagnostic_of(failure: BaseException | None) -> Diagnostic | None:
    """The diagnostic that an exception was made of."""
    seen: set[int] = set()
    while failure is not None and id(failure) not in seen:
        if isinstance(failure, Diagnostic):
            return failure
        seen.add(id(failure))
        failure = getattr(failure, "inner_exception", None) or failure.__cause__ or failure.__context__
    return None


def _backward(results: Any) -> None:
    """Have the backward graphs compiled, which AOTAutograd does for the first gradient; no `.grad` is written."""
    roots = [t for t in pytree.tree_leaves(results) if isinstance(t, torch.Tensor) and t.requires_grad]
    stack: list[Any] = [t.grad_fn for t in roots]
    leaves, seen = {id(t): t for t in roots if t.grad_fn is None}, set()
    while stack:
        step = stack.pop()
        if step is None or step in seen:
            continue
        seen.add(step)
        if hasattr(step, "variable"):
            leaves[id(step.variable)] = step.variable
        stack.extend(following for following, _ in step.next_functions)
    if leaves:
        torch.autograd.grad(roots, list(leaves.values()), [torch.zeros_like(t) for t in roots], allow_unused=True)


def _copied(t: torch.Tensor) -> torch.Tensor:
    """A tensor of its own with the same layout and requires_grad."""
    return t.detach().clone(memory_format=torch.preserve_format).requires_grad_(t.requires_grad)


def _report(graph: torch.fx.GraphModule, example: list[Any], options: Options, kind: str) -> GraphReport:
    made = CompiledGraph(graph, options, counted=False)
    if made.place is not None:
        made.place.figures = True
    made.build(example)
    if made.refusal is not None:
        raise made.refusal
    for held in made.notes:
        tell(held)
    operators = sum(n.op == "call_function" for n in graph.graph.nodes)
    if not made.assemblies:
        return GraphReport(kind, operators, 0, (), (Fallback("the whole graph", "a size depends on data", ""),), "")
    assembly = made.assemblies[-1]
    whole, single = (None, {})
    if made.place is not None:
        from inductor_backend.kernels.figures import of_place

        whole, single = of_place(made.place)
    kernels = tuple(
        Kernel(name, sum(text.count(f" = {space}.") for space in ("aten", "op", "tile")), text, single.get(name))
        for source in assembly.sources
        for text in source.kernels
        for name in [text.split("(")[0].removeprefix("def ")]
    )
    inlined = tuple(
        Inlined(found.title, str(found.where or ""), found.definition(name))
        for source in assembly.sources
        for name, found in source.inlined.items()
    )
    fallbacks = tuple(
        Fallback(operator_of(n), reason, str(where_of(n) or "")) for n, reason in assembly.plan.aten.items() if reason
    )
    return GraphReport(
        kind,
        operators,
        len(assembly.sources),
        kernels,
        fallbacks,
        "\n\n".join(s.text for s in assembly.sources),
        whole,
        inlined=inlined,
        library=tuple(LibraryCall(name_of(n.target), str(where_of(n) or "")) for n in assembly.plan.library),
    )
