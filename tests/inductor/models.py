"""Models of PyPI's `transformers` and `timm` with random weights, compiled, against eager.

Input: a name of the table in `model_rows.py`, or none for all. Output: a line a model: how far outputs and gradients
are from the same model in float64 (relative to the largest number of each tensor), fallbacks, graphs, CPU seconds of
the first call; `--table` prints a row of docs/compile.md instead. Law: a model agrees when outputs, buffers, the loss
and every gradient do, in as few graphs as Dynamo's own "aot_eager" needs.
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import importlib.util
import os
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from model_rows import ROWS, Row, load
from torch.utils._pytree import tree_leaves

import inductor_backend  # noqa: F401  (registers the backend)


def tensors(result: Any) -> list[torch.Tensor]:
    """Every tensor of a model's result."""
    return [t for t in tree_leaves(dict(result) if hasattr(result, "keys") else result) if isinstance(t, torch.Tensor)]


def loss_of(result: Any) -> torch.Tensor:
    """A scalar that every floating-point output matters to: weighed by fixed random numbers, so that no norm's output
    has a constant loss, whose gradients are rounding errors only."""
    loss = torch.zeros(())
    for number, t in enumerate(tensors(result)):
        if t.is_floating_point() and t.requires_grad:
            weights = torch.randn(t.shape, generator=torch.Generator().manual_seed(number)).to(t.dtype)
            loss = loss + (t if t.dim() == 0 else (t * weights).sum() / t.numel() ** 0.5)
    return loss


@dataclass
class Outcome:
    """One model's comparison.

    Attributes:
        outputs, gradients: the largest distance from float64 of any tensor (see `distance`).
        usual: the same two of eager.
        apart: names of the tensors that `torch.testing.assert_close` tells from eager's, and how many there are.
        graphs: Dynamo's graphs, ours and those of "aot_eager".
        fallbacks: operators that ran in ATen, with the reason.
        seconds: CPU seconds of the first call by backend.
        steps: CPU seconds of a later forward and backward by backend.
        size: number of parameters.
    """

    outputs: float
    gradients: float
    usual: tuple[float, float]
    apart: tuple[list[str], int]
    graphs: tuple[int, int]
    fallbacks: list[str]
    seconds: dict[str, float]
    steps: dict[str, float]
    size: int


def alike(got: torch.Tensor, want: torch.Tensor) -> bool:
    """Whether dtype, shape and strides agree."""
    wide = [d for d in range(want.dim()) if want.shape[d] > 1]
    strides = all(got.stride(d) == want.stride(d) for d in wide)
    return got.dtype == want.dtype and got.shape == want.shape and strides


def distance(got: Any, want: Any, truth: Any, limit: float, floor: float = 0.0) -> float:
    """How far from the truth, relative to its largest number or `floor`; `limit` is four times as far as eager is.

    What is nothing but rounding (the gradient of a bias before a normalisation) has no size of its own to compare with:
    that of the other tensors is its floor.
    """
    if got is None or want is None:
        return 0.0 if got is want else float("inf")
    if not alike(got, want):
        return float("inf")
    if not want.numel():
        return 0.0
    got, want, truth = (t.detach().double() for t in (got, want, truth))
    same = (got == truth) | (got.isnan() & truth.isnan())
    apart = torch.where(same, 0.0, (got - truth).abs()).max().item()
    usual = torch.where((want == truth) | truth.isnan(), 0.0, (want - truth).abs()).max().item()
    size = truth[truth.isfinite()].abs().max().item() if truth.isfinite().any() else 0.0
    value = apart / max(size, 4 * usual / limit, floor, 1e-30)
    return float("inf") if value != value else value


def floor_of(tensors: Iterable[torch.Tensor | None]) -> float:
    """A thousandth of the largest number of all."""
    return 1e-3 * max([t.abs().max().item() for t in tensors if t is not None and t.numel()] or [0.0])


def run(model: torch.nn.Module, call: dict[str, Any], fn: Callable[..., Any]) -> tuple[list[Any], dict[str, Any]]:
    """Outputs and gradients of one forward and backward."""
    arguments = {k: v.clone() if isinstance(v, torch.Tensor) else v for k, v in call.items() if k}
    result = fn(*([call[""].clone()] if "" in call else []), **arguments)
    loss = loss_of(result)
    loss.backward()
    return [*tensors(result), loss], {n: p.grad for n, p in model.named_parameters()}


def cpu_seconds() -> float:
    """CPU time of this process and of the compilers that it has waited for."""
    t = os.times()
    return t.user + t.system + t.children_user + t.children_system


LIMITS = {torch.float32: 1e-5, torch.bfloat16: 2e-2, torch.float16: 2e-3, torch.float64: 1e-10}


def graphs() -> int:
    """How many graphs Dynamo has made in this process."""
    return torch._dynamo.utils.counters["stats"]["unique_graphs"]


def step_seconds(model: torch.nn.Module, call: dict[str, Any], fn: Callable[..., Any]) -> float:
    """CPU seconds of a forward and a backward, the least of some."""
    seen = []
    while len(seen) < 3 or (sum(seen) < 1 and len(seen) < 50):
        model.zero_grad()
        start = time.process_time()
        run(model, call, fn)
        seen.append(time.process_time() - start)
    return min(seen)


def differs(got: torch.Tensor | None, want: torch.Tensor | None) -> bool:
    """Whether `torch.testing.assert_close` tells two tensors apart."""
    if got is None or want is None:
        return got is not want
    try:
        torch.testing.assert_close(got, want, equal_nan=True)
    except AssertionError:
        return True
    return False


def plain_dropout(model: torch.nn.Module) -> None:
    """No dropout, however the configuration names it: random numbers are not eager's."""
    for module in model.modules():
        if isinstance(module, torch.nn.modules.dropout._DropoutNd):
            module.p = 0.0
        if isinstance(getattr(module, "drop_prob", None), float):
            module.drop_prob = 0.0


def compare(
    row: Row, dtype: torch.dtype = torch.float32, peer: str | None = None, dynamic: bool = False, timed: bool = False
) -> Outcome:
    """Compile a model and compare it with itself; `peer` is timed beside it."""
    limit = LIMITS[dtype]
    load(row.package)
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = row.make().to(dtype).train(row.train)
    plain_dropout(model)
    call = {k: v.to(dtype) if torch.is_tensor(v) and v.is_floating_point() else v for k, v in row.call().items()}
    twin, spare, wide = copy.deepcopy(model), copy.deepcopy(model), copy.deepcopy(model).double()
    again = copy.deepcopy(model)
    torch.manual_seed(0)
    want, wanted = run(model, call, model)
    precise = {k: v.double() if torch.is_tensor(v) and v.is_floating_point() else v for k, v in call.items()}
    try:
        torch.manual_seed(0)
        truth, true = run(wide, precise, wide)
    except RuntimeError:  # an operator that eager has no float64 for
        truth, true, wide = want, wanted, model
    torch._dynamo.reset()
    whole, before = True, graphs()
    try:
        run(spare, call, torch.compile(spare, backend="aot_eager", fullgraph=True, dynamic=dynamic))
    except Exception as failure:
        whole = False
        print(f"    (not one graph for Dynamo: {type(failure).__name__} {str(failure).strip().splitlines()[0][:140]})")
        torch._dynamo.reset()
        before = graphs()
        run(spare, call, torch.compile(spare, backend="aot_eager", dynamic=dynamic))
    theirs = graphs() - before
    fallbacks: list[str] = []
    torch._dynamo.reset()
    before, start = graphs(), cpu_seconds()
    compiled = torch.compile(twin, backend="pallas", fullgraph=whole, dynamic=dynamic)
    torch.manual_seed(0)
    with watched(fallbacks):
        got, gotten = run(twin, call, compiled)
    seconds, steps = {"pallas": cpu_seconds() - start}, {}
    ours = graphs() - before
    outputs = [distance(*three, limit) for three in zip(got, want, truth, strict=True)]
    usual = [distance(b, b, c, limit) for b, c in zip(want, truth, strict=True)]
    floor = floor_of(wide.buffers())
    buffers = zip(twin.buffers(), model.buffers(), wide.buffers(), strict=True)
    outputs += [distance(*three, limit, floor) for three in buffers]
    floor = floor_of(true.values())
    gradients = [distance(gotten[n], wanted[n], true[n], limit, floor) for n in wanted] or [0.0]
    rounding = [distance(wanted[n], wanted[n], true[n], limit, floor) for n in wanted] or [0.0]
    apart = [f"output {i}" for i, pair in enumerate(zip(got, want, strict=True)) if differs(*pair)]
    apart += [n for n in wanted if differs(gotten[n], wanted[n])]
    if timed:
        steps = {"eager": step_seconds(model, call, model), "pallas": step_seconds(twin, call, compiled)}
    if peer:
        torch._dynamo.reset()
        start = cpu_seconds()
        other = torch.compile(again, backend=peer, fullgraph=whole)
        run(again, call, other)
        seconds[peer] = cpu_seconds() - start
        if timed:
            steps[peer] = step_seconds(again, call, other)
    return Outcome(
        max(outputs),
        max(gradients),
        (max(usual), max(rounding)),
        (apart, len(want) + len(wanted)),
        (ours, theirs),
        fallbacks,
        seconds,
        steps,
        sum(p.numel() for p in model.parameters()),
    )


@contextlib.contextmanager
def watched(fallbacks: list[str]) -> Iterator[None]:
    """Collects what runs in ATen meanwhile."""
    from inductor_backend import compile as compiler

    publish, eager = compiler.CompiledGraph.publish, compiler.CompiledGraph.eager

    def watch(self: Any, assembly: Any) -> None:
        fallbacks.extend(f"{n.target}: {why}" for n, why in assembly.plan.aten.items() if why)
        publish(self, assembly)

    def watch_eager(self: Any, reason: str) -> Any:
        fallbacks.append(f"the whole graph: {reason}")
        return eager(self, reason)

    compiler.CompiledGraph.publish, compiler.CompiledGraph.eager = watch, watch_eager
    try:
        yield
    finally:
        compiler.CompiledGraph.publish, compiler.CompiledGraph.eager = publish, eager


def table_line(name: str, o: Outcome, backends: list[str]) -> str:
    """A row of the table in docs/compile.md."""
    size = f"{o.size / 1e6:.1f} M" if o.size >= 1e6 else f"{o.size / 1e3:.0f} k"
    aten = ", ".join(sorted({f.split(":")[0].removeprefix("aten.") for f in o.fallbacks})) or "–"
    far = f"{o.outputs:.1e} ({o.usual[0]:.1e}) | {o.gradients:.1e} ({o.usual[1]:.1e})"
    first = " / ".join(f"{o.seconds[b]:.1f}" for b in backends if b in o.seconds)
    steps = " / ".join(f"{o.steps[b] * 1e3:.1f}" for b in ["eager", *backends])
    apart = f"{len(o.apart[0])} of {o.apart[1]}"
    return f"| {name} | {size} | {o.graphs[0]} / {o.graphs[1]} | {aten} | {far} | {apart} | {first} | {steps} |"


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--peer", help="another backend to time")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--dynamic", action="store_true")
    parser.add_argument("--table", action="store_true", help="print rows of a Markdown table, with times of steps")
    given = parser.parse_args()
    bad = 0
    limit = LIMITS[getattr(torch, given.dtype)]
    for name in given.names or ROWS:
        row = ROWS[name]
        if importlib.util.find_spec(row.package) is None:
            print(f"{name:18} {row.package} is not installed")
            continue
        try:
            o = compare(row, getattr(torch, given.dtype), given.peer, given.dynamic, given.table)
        except Exception as failure:
            bad += 1
            print(f"{name:18} FAILS {type(failure).__name__}: {str(failure).strip()[:600]}", flush=True)
            continue
        wrong = not (o.outputs <= limit and o.gradients <= limit) or o.graphs[0] > o.graphs[1]
        bad += wrong
        if given.table:
            print(table_line(name, o, ["pallas", *([given.peer] if given.peer else [])]), flush=True)
            continue
        print(
            f"{name:18} {'WRONG' if wrong else 'right'} outputs {o.outputs:.1e} gradients {o.gradients:.1e} "
            f"graphs {o.graphs[0]} fallbacks {len(o.fallbacks)}",
            " ".join(f"{b} {t:.1f} s" for b, t in o.seconds.items()),
            f"assert_close {len(o.apart[0])} of {o.apart[1]} {o.apart[0][:4]}" if o.apart[0] else "",
            flush=True,
        )
        for line in dict.fromkeys(o.fallbacks):
            print("     ", line)
    return bad


if __name__ == "__main__":
    sys.exit(main())
