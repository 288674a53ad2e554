"""torch.compile(backend="pallas"): Inductor's front half with our inner compiler.

Input: Dynamo's graph. Output: a callable for AOTAutograd. Law: one graph is planned once per set of sizes and runs as
one dispatch where every operator has a row; nothing that fails inside jax reaches the user: the node that failed
runs in ATen, with a note.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch

import bridge.compat
from bridge.diagnostics import Diagnostic, Where, error, held_notes, note
from bridge.diagnostics.errors import is_strict
from inductor_backend import control, kept, launches, regions
from inductor_backend.buckets import Fit, Padded, Refused, padded, shape_symbols
from inductor_backend.compat import front_half, output_code_log
from inductor_backend.emit import Chooser, reject
from inductor_backend.fallback import Eager, announcing, failed_node
from inductor_backend.graph import Graph, Unbacked, analyse, name_of, operand_numbers, symbol_values, where_of
from inductor_backend.ops import undecomposed
from inductor_backend.options import Options, nearest
from inductor_backend.recent import Recent
from inductor_backend.runtime import Assembly, assemble

_SPECIALISATIONS = 128
_FITS = 1024
#: mode -> whether block sizes are tried; the others differ in what they ask of CUDA only.
MODES = {
    None: False,
    "default": False,
    "reduce-overhead": False,
    "max-autotune": True,
    "max-autotune-no-cudagraphs": True,
}
_numbers = itertools.count()
_compiled = 0
_executables = 0


def compile_count() -> int:
    """How many graphs this process has compiled, or found on disk (a dynamic graph counts once)."""
    return _compiled


def executable_count() -> int:
    """How many functions this process has built, or found on disk: one for every graph and set of sizes, or bucket."""
    return _executables


def count_one() -> None:
    """A graph came from disk."""
    global _compiled, _executables
    _compiled += 1
    _executables += 1


def backend(
    gm: torch.fx.GraphModule, example_inputs: Sequence[Any], *, mode: str | None = None, options: Any = None
) -> Any:
    """The backend: ``torch.compile(model, backend="pallas", options={...})``.

    Args:
        gm: Dynamo's graph.
        example_inputs: its inputs.
        mode: one of torch's: "max-autotune" is the option `max_autotune`; "reduce-overhead", which asks for CUDA
            graphs, is "default" here: a graph is one dispatch anyway.
        options: see `inductor_backend.options.Options`.
    """
    try:
        if not isinstance(mode, str | None) or mode not in MODES:
            known = [m for m in MODES if m is not None]
            found = nearest(mode, known)
            raise error(
                "backend-option",
                f"there is no mode {mode!r}",
                why=f"the modes are {', '.join(known)}",
                do="leave mode out" if found is None else f"mode={found!r}, or leave mode out",
            )
        chosen = Options.read(options, **({"max_autotune": True} if MODES[mode] else {}))
        check_devices(example_inputs)
    except Diagnostic as diagnostic:
        # Dynamo wraps what a backend raises while compiling; raised by the call, it reaches the user as it is.
        return raiser(diagnostic)

    def inner(graph: torch.fx.GraphModule, inputs: Sequence[Any], **kwargs: Any) -> Callable[[list[Any]], Any]:
        made = CompiledGraph(graph, chosen)
        return kept.output(made.boxed(inputs), made.assemblies)

    try:
        return front_half(gm, example_inputs, inner, undecomposed(), kept.context(gm, example_inputs, chosen))
    except Diagnostic as diagnostic:  # of an operator's own shapes or gradient
        return raiser(diagnostic)


def raiser(diagnostic: Diagnostic) -> Callable[..., Any]:
    """A compiled graph that raises when it is called, at the line that calls where the diagnostic has none."""

    def call(*args: Any, **kwargs: Any) -> Any:
        place = Where.caller(beyond="compile_wrapper")  # Dynamo's: before it the function itself is entered
        raise diagnostic if place is None else diagnostic.at(place)

    call._boxed_call = True
    return call


def forked() -> Diagnostic:
    """Why nothing is compiled in a forked process; what its parent has compiled runs there."""
    return error(
        "forked-process",
        "a graph to compile in a process that was forked after jax had started",
        why="the threads that compile stayed in the parent; this process would wait forever",
        do=(
            "call the compiled function once, with these sizes, before the fork: what is compiled then runs in both",
            'start the process anew: multiprocessing.get_context("spawn")',
        ),
    )


def check_devices(inputs: Sequence[Any]) -> None:
    """Refuse inputs that are not on the CPU.

    Raises:
        Diagnostic: backend-device.
    """
    for value in inputs:
        if isinstance(value, torch.Tensor) and value.device.type != "cpu":
            raise error(
                "backend-device",
                f"an input lives on {value.device}",
                why="this backend's graphs run on CPU tensors, whose memory torch and jax share",
                do="move the model and its inputs to the CPU: model.to('cpu')",
            )


class CompiledGraph:
    """One ATen graph, and its runners by concrete sizes."""

    def __init__(self, gm: torch.fx.GraphModule, options: Options, counted: bool = True):
        global _compiled
        _compiled += counted
        control.tidy(gm)
        self.whole, self.options = gm, options
        self.gm = gm = control.collected(launches.collected(gm))
        self.number = next(_numbers)
        self.refused: dict[str, str] = {}
        self.no_kernels = False
        self.runners: Recent[Callable[[list[Any]], Any]] = Recent(_SPECIALISATIONS)
        #: the last one
        self.assemblies: list[Assembly] = []
        self.published = 0
        self.placeholders = [n for n in gm.graph.nodes if n.op == "placeholder"]
        self.numbers = operand_numbers(gm)
        self.place = _place(options)
        self.refusal: Diagnostic | None = None
        self.notes: list[Diagnostic] = []
        self.dynamic = any(_symbolic(n.meta.get("val")) for n in self.placeholders)

    def boxed(self, inputs: Sequence[Any]) -> Callable[[list[Any]], Any]:
        """The callable that AOTAutograd gets: takes a list and empties it."""
        if not self.dynamic:
            return self.build(list(inputs))
        return Varying(self, self.by_size()).boxed() if self.options.buckets else self.by_size()

    def by_size(self) -> Callable[[list[Any]], Any]:
        """The callable that builds a runner for every set of sizes."""
        positions = self.positions()
        launched = [i for i, n in enumerate(self.placeholders) if any("launch" in user.meta for user in n.users)]
        numbers = [i for i in launched if self.placeholders[i] in self.numbers]
        runners = self.runners

        def keyed(args: list[Any]) -> Any:
            key = tuple([_key(args[i]) for i in positions])
            # A kernel's integer has 32 bits or 64, as its number needs.
            return (key, *[-(2**31) <= args[i] < 2**31 for i in numbers]) if numbers else key

        def build(args: list[Any]) -> Callable[[list[Any]], Any]:
            runner = self.build(args)
            if numbers:
                positions[:] = self.positions()  # a number may have turned out to decide something
            return runner

        def run(args: list[Any]) -> Any:
            return runners.get(keyed(args), lambda: build(args), lambda: keyed(args))(args)

        run._boxed_call = True
        return run

    def positions(self) -> list[int]:
        """The inputs whose sizes, or values, a runner is made for."""
        return [i for i, n in enumerate(self.placeholders) if n not in self.numbers and _symbolic(n.meta.get("val"))]

    def build(self, actual: list[Any]) -> Callable[[list[Any]], Any]:
        """A runner for one set of sizes, which tells of what was noted while it was made."""
        if bridge.compat.forked:
            return raiser(forked())
        with held_notes() as self.notes:
            runner, fallbacks = self.built(actual)
        return announcing(runner, fallbacks, self.notes)

    def built(self, actual: list[Any]) -> tuple[Callable[[list[Any]], Any], list[tuple[Any, str]]]:
        """(a runner, what runs in ATen). An operator that jax can't compile is moved there and the build repeated."""
        for _ in range(len(self.gm.graph.nodes) + 1):
            try:
                refuses = reject if self.place is None else self.place.reject
                plan = analyse(self.gm, actual, self.refused, refuses, self.numbers, self.inlined)
                if self.place is not None:
                    self.place.prepare(plan)
            except Diagnostic as diagnostic:
                self.refusal = diagnostic
                return raiser(diagnostic), []
            except launches.Structural as found:
                self.numbers.discard(found.node)
                continue
            except Unbacked as unknown:
                return self.eager(f"a size depends on data ({unknown})")
            assembly = None
            try:
                runner, assembly = assemble(plan, self.gm, self.chooser())
            except Diagnostic as diagnostic:
                self.refusal = diagnostic
                return raiser(diagnostic), []
            except Exception as failure:
                if self.place is not None and self.place.learns_from(failure):
                    continue
                if self.place is None and not self.no_kernels and self.options.kernels != "none":
                    # Pallas accepts less than jax does inside a kernel: plain array code first, ATen only after that.
                    self.no_kernels = True
                    continue
                if not self.blame(failure, plan):
                    return self.eager(
                        f"jax could not compile the graph ({type(failure).__name__}: {_first_line(failure)})"
                    )
                continue
            global _executables
            _executables += 1
            try:
                self.publish(assembly)
            except Diagnostic as diagnostic:
                return raiser(diagnostic), []
            return runner, [(n, r) for n, r in plan.aten.items() if r]
        raise error("internal-error", "a graph could not be planned")

    def inlined(self, node: Any, plan: Graph) -> Any:
        """What a node without a row becomes in a segment, here or inside control flow; see `graph.analyse`."""
        if self.place is None:
            found, refuses, prepare = launches.inline_of(node, plan), reject, lambda plan: None
        else:
            found, refuses, prepare = self.place.inline(node, plan), self.place.reject, self.place.prepare
        return control.inline_of(node, plan, refuses, self.inlined, prepare) if found is None else found

    def chooser(self) -> Chooser:
        """How regions are picked."""
        if self.place is not None:
            return self.place
        if self.no_kernels:
            return regions.none
        return {"none": regions.none, "all": regions.every, "profitable": regions.profitable}[self.options.kernels]

    def blame(self, failure: Exception, plan: Any) -> bool:
        """Find the emitted line that failed, and refuse its node from now on."""
        node = failed_node(failure)
        if node is None or node.name in self.refused:
            return False
        self.refused[node.name] = f"jax could not compile it ({type(failure).__name__}: {_first_line(failure)})"
        return True

    def eager(self, reason: str) -> tuple[Callable[[list[Any]], Any], list[tuple[Any, str]]]:
        """The whole graph in ATen, with a note."""
        body = [n for n in self.gm.graph.nodes if n.op == "call_function"]
        run = Eager.boxed(self.whole)
        first = next((n for n in body if where_of(n)), body[0])
        return run, [(first, f"the whole graph does: {reason}")]

    def publish(self, assembly: Assembly) -> None:
        """Show the emitted source where the user asked for it."""
        self.assemblies = [assembly]
        self.published += 1
        text = "\n\n".join(s.text for s in assembly.sources)
        output_code_log().debug("torch-pallas graph %d:\n%s\n%s", self.number, text, assembly.text)
        if self.options.dump is not None:
            file = self.options.dump / f"graph_{self.number}_{self.published - 1}.py"
            try:
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(f"{text}\n\n{assembly.text}")
            except OSError as failure:
                raise error("backend-option", f"dump: {file} can't be written", why=str(failure)) from failure


def _place(options: Options) -> Any:
    """Where segments run when it is not the CPU of this process."""
    if options.target == "cpu":
        return None
    from inductor_backend.kernels.target import Place

    return Place.of(options.target, options.kernels, options.max_autotune)


def _first_line(failure: Exception) -> str:
    return (str(failure).strip().splitlines() or [""])[0][:200]


def _symbolic(value: Any) -> bool:
    if isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)):
        return True
    if isinstance(value, torch.Tensor):
        return any(isinstance(s, torch.SymInt) for s in (*value.shape, *value.stride()))
    return False


def _key(value: Any) -> Any:
    return (value.shape, value.stride()) if isinstance(value, torch.Tensor) else value


def ties(symbols: Iterable[Any], calls: Sequence[Mapping[Any, int]]) -> dict[Any, Any]:
    """The sizes that in all calls were another one and a whole number, as expressions of that one."""
    leading: dict[tuple[int, ...], tuple[Any, int]] = {}
    found = {}
    for symbol in sorted(symbols, key=str):
        values = [call[symbol] for call in calls]
        shape = tuple(n - values[0] for n in values)
        if shape in leading:
            first, start = leading[shape]
            found[symbol] = first + (values[0] - start)
        else:
            leading[shape] = symbol, values[0]
    return found


class Varying:
    """A graph on tensors padded to buckets, along the sizes that were seen to vary.

    The first call gets a function for its sizes as they are; only with a second one it is known which of them vary.
    """

    def __init__(self, graph: CompiledGraph, exact: Callable[[list[Any]], Any]):
        self.graph, self.exact = graph, exact
        self.positions = graph.positions()
        self.sizes = shape_symbols(graph.gm)
        self.first: dict[Any, Any] = {}
        self.symbols: frozenset[Any] = frozenset()
        #: sizes that have been as large as another one in every call, or larger by the same number
        self.tied: dict[Any, Any] = {}
        self.calls: list[dict[Any, Any]] = []
        self.padded: Padded | None = None
        self.inner: CompiledGraph | None = None
        self.tell: Callable[[], Any] | None = None
        self.fits: Recent[tuple[Fit, CompiledGraph] | tuple[None, None]] = Recent(_FITS)
        self.runners: Recent[Callable[[list[Any]], Any]] = Recent(_SPECIALISATIONS)

    def boxed(self) -> Callable[[list[Any]], Any]:
        """The callable that AOTAutograd gets."""
        positions, fits = self.positions, self.fits

        def run(args: list[Any]) -> Any:
            fit, inner = fits.get(tuple([_key(args[i]) for i in positions]), lambda: self.fit(args))
            if fit is None or inner is None:
                if self.tell is not None and is_strict():
                    self.tell()
                return self.exact(args)
            given = fit.dressed(args)
            runner = self.runners.get((inner.number, fit.bucket), lambda: inner.build(given))
            kept = list(args)
            args.clear()
            return fit.undress(runner(given), kept)

        run._boxed_call = True
        return run

    def fit(self, args: list[Any]) -> tuple[Fit, CompiledGraph] | tuple[None, None]:
        """How a call is padded, and the graph on padded tensors; nothing when it runs as it is."""
        symbols = symbol_values(self.graph.placeholders, args)
        self.first = self.first or symbols
        varying = {s for s in self.sizes if symbols.get(s) != self.first.get(s)}
        self.calls = [*self.calls[-_FITS:], symbols]
        broken = any(symbols[s] != other.xreplace(symbols) for s, other in self.tied.items())
        if not varying <= self.symbols or broken:
            self.symbols |= varying
            self.inner, self.tied = None, {}
            known = {s: n for s, n in self.first.items() if s in self.sizes - self.symbols}
            try:
                self.pad(known)
            except Refused as refused:
                # A cache of keys and one of values have a size each, which only the calls show to be one.
                tied = ties(self.symbols, self.calls)
                try:
                    self.pad(known | tied)
                    self.tied = tied
                except Refused:
                    self.refused(refused)
        if self.inner is None or self.padded is None:
            return None, None
        return Fit(self.padded, self.graph.gm, args, self.graph.options.buckets), self.inner

    def pad(self, known: dict[Any, Any]) -> None:
        """Make the graph on padded tensors.

        Raises:
            Refused: it can't be padded.
        """
        self.padded = padded(self.graph.gm, self.symbols - known.keys(), known)
        self.inner = CompiledGraph(self.padded.gm, self.graph.options, counted=False)

    def refused(self, refused: Refused) -> None:
        """Tell why sizes are not padded."""
        node = refused.node
        what = "" if node is None else f": {name_of(node.target)}"
        self.tell = functools.partial(
            note,
            "not-bucketed",
            f"sizes are not padded to buckets{what}",
            where=None if node is None else where_of(node),
            why=refused.why,
            do="nothing needs doing: every set of sizes gets a function of its own, compiled on its first call",
        )
        self.tell()
