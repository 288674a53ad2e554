"""`explain(model, *args)`: what a compilation gives, found on copies of the model and its arguments.

Input: a model and example arguments. Output: a `Report` of graphs, kernels and fallbacks. Law: the user's model,
arguments, compiled functions and random state stay as they are.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any

import torch

from bridge.diagnostics import Where, error
from inductor_backend.compat import front_half, pytree
from inductor_backend.compile import CompiledGraph, check_devices
from inductor_backend.fallback import Eager
from inductor_backend.graph import name_of, where_of
from inductor_backend.options import Options


@dataclass(frozen=True)
class Kernel:
    """One Pallas kernel: its name in the emitted source, the operators it fuses, its source."""

    name: str
    operators: int
    source: str


@dataclass(frozen=True)
class Fallback:
    """One operator that runs in ATen, why, and the user's line."""

    operator: str
    reason: str
    where: str


@dataclass(frozen=True)
class GraphReport:
    """One graph.

    Attributes:
        kind: "inference", "forward" or "backward".
        operators: how many operators the graph has.
        segments: how many jitted functions it became; one when nothing falls back.
        kernels: its Pallas kernels.
        fallbacks: its operators that run in ATen.
        source: the emitted source of its jitted functions.
    """

    kind: str
    operators: int
    segments: int
    kernels: tuple[Kernel, ...]
    fallbacks: tuple[Fallback, ...]
    source: str


@dataclass(frozen=True)
class Report:
    """What a compilation gives; prints as text. More than one inference or forward graph means graph breaks."""

    graphs: tuple[GraphReport, ...]

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
            lines += [f"  kernel {k.name}: {k.operators} operators" for k in g.kernels]
            lines += [f"  ATen {f.operator}: {f.reason}" + (f" ({f.where})" if f.where else "") for f in g.fallbacks]
        return "\n".join(lines) or "no graph: nothing in this function is compiled"


def explain(model: Any, *args: Any, options: Any = None, **kwargs: Any) -> Report:
    """Compile copies of a model and its arguments, and report.

    Args:
        model: a module or function.
        *args: example arguments on the CPU.
        options: as for torch.compile.
        **kwargs: example keyword arguments.

    Raises:
        Diagnostic: a bad option, a model that can't be called, arguments that are not on the CPU.
    """
    chosen = Options.read(options)
    if not callable(model):
        raise error(
            "bad-argument",
            f"explain got a {type(model).__name__} where a module or function belongs",
            where=Where.caller(),
            do="explain(model, *args): the model first, then its example arguments",
        )
    check_devices(pytree.tree_leaves((args, kwargs)))
    graphs: list[GraphReport] = []

    def backend(gm: torch.fx.GraphModule, inputs: Any) -> Any:
        def inner(graph: torch.fx.GraphModule, example: Any, **details: Any) -> Any:
            kind = (
                "backward" if details.get("is_backward") else "inference" if details.get("is_inference") else "forward"
            )
            graphs.append(_report(graph, list(example), chosen, kind))
            return Eager.boxed(graph)

        return front_half(gm, inputs, inner)

    model = copy.deepcopy(model) if isinstance(model, torch.nn.Module) else model
    args, kwargs = pytree.tree_map_only(torch.Tensor, _copied, (args, kwargs))
    with torch.random.fork_rng(devices=[]):
        torch.compile(model, backend=backend)(*args, **kwargs)
    return Report(tuple(graphs))


def _copied(t: torch.Tensor) -> torch.Tensor:
    """A tensor of its own with the same layout and requires_grad."""
    return t.detach().clone(memory_format=torch.preserve_format).requires_grad_(t.requires_grad)


def _report(graph: torch.fx.GraphModule, example: list[Any], options: Options, kind: str) -> GraphReport:
    made = CompiledGraph(graph, options, counted=False)
    made.build(example)
    operators = sum(n.op == "call_function" for n in graph.graph.nodes)
    if not made.assemblies:
        return GraphReport(kind, operators, 0, (), (Fallback("the whole graph", "a size depends on data", ""),), "")
    assembly = made.assemblies[-1]
    kernels = tuple(
        Kernel(text.split("(")[0].removeprefix("def "), text.count(" = aten."), text)
        for source in assembly.sources
        for text in source.kernels
    )
    fallbacks = tuple(
        Fallback(name_of(n.target), reason, str(where_of(n) or ""))
        for n, reason in assembly.plan.aten.items()
        if reason
    )
    return GraphReport(
        kind, operators, len(assembly.sources), kernels, fallbacks, "\n\n".join(s.text for s in assembly.sources)
    )
