"""`explain(model, *args)`: what a compilation would do, before running it.

Input: a model and example arguments. Output: a `Report` of graphs, regions, kernels and fallbacks. Law: nothing of the
model runs, and the user's compiled functions are not touched.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch

from inductor_backend import compile as compiler
from inductor_backend.graph import name_of, where_of
from inductor_backend.options import Options


@dataclass
class GraphReport:
    """One graph: how many operators are jitted, its Pallas kernels, the operators that run in ATen with the reason."""

    operators: int
    segments: int
    kernels: list[str]
    fallbacks: list[tuple[str, str, str]]
    source: str


@dataclass
class Report:
    """What a compilation would do.

    Attributes:
        graphs: one entry per graph (a model with graph breaks has several; only forward graphs are planned).
        breaks: reasons of graph breaks.
    """

    graphs: list[GraphReport] = field(default_factory=list)
    breaks: list[str] = field(default_factory=list)

    @property
    def kernels(self) -> list[str]:
        """Names of all Pallas kernels."""
        return [k for g in self.graphs for k in g.kernels]

    @property
    def fallbacks(self) -> list[tuple[str, str, str]]:
        """(operator, reason, source line) of everything that runs in ATen."""
        return [f for g in self.graphs for f in g.fallbacks]

    def __str__(self) -> str:
        lines = []
        for i, g in enumerate(self.graphs):
            lines.append(f"graph {i}: {g.operators} operators, {g.segments} jitted segment(s), {len(g.kernels)} Pallas kernel(s)")
            lines += [f"  kernel {k}" for k in g.kernels]
            lines += [f"  ATen: {op} at {place or 'unknown line'}: {reason}" for op, reason, place in g.fallbacks]
        lines += [f"graph break: {b}" for b in self.breaks]
        return "\n".join(lines) or "no graph: nothing in this function is compiled"


class _Planned(Exception):
    """Raised to stop before a graph runs."""


def explain(model: Any, *args: Any, options: Any = None, **kwargs: Any) -> Report:
    """Plan a model's graphs without running them.

    Args:
        model: a module or function.
        *args: example arguments on the CPU.
        options: as for torch.compile.
        **kwargs: example keyword arguments.

    Raises:
        Diagnostic: a bad option.
    """
    chosen = Options.read(options)
    report = Report()

    def plan(gm: torch.fx.GraphModule, inputs: Any) -> Any:
        def inner(graph: torch.fx.GraphModule, example: Any, **kw: Any) -> Any:
            if not kw.get("is_backward"):
                report.graphs.append(_report(graph, list(example), chosen))
            return compiler.CompiledGraph(graph, chosen, counted=False).interpreted()

        return compiler.front_half(gm, inputs, inner)

    broken = torch._dynamo.explain(model)(*args, **kwargs) if False else None
    assert broken is None
    gms: list[tuple[torch.fx.GraphModule, Any]] = []

    def collect(gm: torch.fx.GraphModule, inputs: Any) -> Any:
        gms.append((gm, inputs))
        plan(gm, inputs)

        def stop(*a: Any) -> Any:
            raise _Planned

        return stop

    compiled = torch.compile(model, backend=collect)
    try:
        compiled(*args, **kwargs)
    except _Planned:
        pass
    return report


def _report(graph: torch.fx.GraphModule, example: list[Any], options: Options) -> GraphReport:
    made = compiler.CompiledGraph(graph, options, counted=False)
    made.build([_sized(v) for v in example])
    operators = sum(n.op == "call_function" for n in graph.graph.nodes)
    if not made.assemblies:
        return GraphReport(operators, 0, [], [("whole graph", "a size depends on data", "")], "")
    assembly = made.assemblies[-1]
    kernels = [k.split("(")[0].removeprefix("def ") for s in assembly.sources for k in s.kernels]
    fallbacks = [
        (name_of(n.target), reason, str(where_of(n) or "")) for n, reason in assembly.plan.aten.items() if reason
    ]
    source = "\n\n".join(s.text for s in assembly.sources)
    return GraphReport(operators, len(assembly.sources), kernels, fallbacks, source)


def _sized(value: Any) -> Any:
    """Example inputs with their hints for symbolic sizes."""
    return value
