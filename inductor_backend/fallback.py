"""Operators that run in ATen: the call itself, and the note that says so.

Input: an FX node that a jitted segment can't hold. Output: a function on torch tensors. Law: a fallback is never silent
and never an error; random operators keep following the seeds that the rest of the graph uses.
"""

from __future__ import annotations

import operator
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.fx import Node

from bridge.diagnostics import Diagnostic, note, tell
from bridge.diagnostics.errors import is_strict
from inductor_backend.compat import OpOverload
from inductor_backend.graph import arguments, name_of, where_of


def _random(size: Any, seed: torch.Tensor, mode: str, **kw: Any) -> torch.Tensor:
    """`inductor_random` in ATen, from the seed it was given."""
    generator = torch.Generator().manual_seed(int(seed))
    draw = torch.rand if mode == "rand" else torch.randn
    return draw(size, generator=generator, dtype=torch.float32)


def _randint(low: int, high: int, size: Any, seed: torch.Tensor) -> torch.Tensor:
    """`inductor_randint` in ATen, from the seed it was given."""
    return torch.randint(low, high, size, generator=torch.Generator().manual_seed(int(seed)))


_OVERRIDES: dict[str, Callable[..., Any]] = {
    "prims.inductor_random.default": _random,
    "prims.inductor_randint.default": _randint,
}


def aten_call(node: Node) -> Callable[..., Any]:
    """The function that computes a node on torch tensors."""
    if node.target is operator.getitem:
        return operator.getitem
    target: Any = node.target
    return _OVERRIDES[name_of(target)] if name_of(target) in _OVERRIDES else target


class Eager(torch.fx.Interpreter):
    """A whole graph in ATen, for graphs whose sizes depend on data."""

    def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
        """Run one operator, random ones from their seeds."""
        target = _OVERRIDES.get(name_of(target), target) if isinstance(target, OpOverload) else target
        return super().call_function(target, args, kwargs)

    @classmethod
    def boxed(cls, gm: torch.fx.GraphModule) -> Callable[[list[Any]], Any]:
        """The graph as a callable for AOTAutograd."""
        interpreter = cls(gm)

        def run(args: list[Any]) -> Any:
            values = list(args)
            args.clear()
            return interpreter.run(*values)

        run._boxed_call = True
        return run


#: Operators whose fallback has a code of its own.
_SLUGS = {"aten.as_strided.default": "as-strided-on-nonstandard-layout", "aten.view.dtype": "dtype-view"}


def operator_of(node: Node) -> str:
    """What a node does, for readers: its operator; of a launch, the kernel."""
    if "launch" not in node.meta:
        _, ordered, *_ = (*node.args, None, None)
        return name_of(ordered if getattr(node.target, "__name__", "") == "with_effects" else node.target)
    from frontend_triton_compat.captured import name_of_form

    return f"the launch of {name_of_form(arguments(node)[0])}"


def note_fallback(node: Node, reason: str) -> None:
    """Tell the user that an operator runs in ATen."""
    note(
        _SLUGS.get(name_of(node.target), "aten-fallback"),
        f"{operator_of(node)} runs {'on tensors' if 'launch' in node.meta else 'in ATen'}",
        where=where_of(node),
        why=reason,
        do="nothing needs doing: the result is the same; the graph is split here, which costs about 30 µs a call",
    )


def announcing(
    runner: Callable[[list[Any]], Any], fallbacks: list[tuple[Node, str]], held: Sequence[Diagnostic] = ()
) -> Callable[[list[Any]], Any]:
    """`runner`, which tells of its fallbacks and of `held` notes on its first call; on every call of strict callers.

    A note raised while compiling would reach the user wrapped by Dynamo; raised by the call, it arrives as it is and
    before anything has run.
    """
    if not fallbacks and not held:
        return runner
    told = False

    def run(args: list[Any]) -> Any:
        nonlocal told
        if not told or is_strict():
            for node, reason in fallbacks:
                note_fallback(node, reason)
            for diagnostic in held:
                tell(diagnostic)
            told = True
        return runner(args)

    run._boxed_call = True
    return run


def failed_node(failure: BaseException) -> Node | None:
    """The node whose emitted line raised, found by the line numbers in the traceback."""
    found: Node | None = None
    trace = failure.__traceback__
    while trace is not None:
        source = emitted.get(trace.tb_frame.f_code.co_filename)
        if source is not None and trace.tb_lineno in source.lines:
            found = source.lines[trace.tb_lineno]
        trace = trace.tb_next
    return found


#: File name of emitted source -> the source (`emit.Source`), for as long as a graph holds it.
emitted: weakref.WeakValueDictionary[str, Any] = weakref.WeakValueDictionary()
