"""Compiled graphs on disk: a second process needs neither AOTAutograd, nor our planner, nor XLA.

Input: what decides a graph's compilation; a built runner. Output: AOTAutograd's own cache, filled with our runners and
kept in our folder. Law: a kept graph is what a build would give, or it is not used: everything that decides a build is
part of the key, and what can't be written down (Python functions, tensors, fallbacks with notes) is not kept.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

import torch

from bridge import diskcache
from bridge.compat import tracing_state
from inductor_backend.compat import OpOverload, fills_new_memory, memory_of, output_code_log
from inductor_backend.options import Options
from inductor_backend.runtime.assembly import Assembly, our_code
from inductor_backend.runtime.written import restored, written

#: Namespaces of operators whose meaning is torch's own, and part of its version.
_TORCH = ("aten", "prims", "prim", "profiler")


def context(gm: torch.fx.GraphModule, inputs: Sequence[Any], options: Options) -> AbstractContextManager[None] | None:
    """A context in which AOTAutograd looks for this graph on disk, and keeps it there; None for one that can't be kept.

    Args:
        gm: Dynamo's graph.
        inputs: its example inputs.
        options: of this compilation.
    """
    if diskcache.folder() is None or options.target != "cpu" or options.dump is not None:
        return None
    # The state of an optimiser hangs on the graph; AOTAutograd makes inputs of it.
    held = dict([*gm.named_parameters(), *gm.named_buffers()])
    given = [*inputs, *held.values()]
    if output_code_log().isEnabledFor(10) or not (_fixed(given) and _apart(given) and _torchs_alone(gm, held)):
        return None
    from inductor_backend.kept.compat import Folder, caching

    return caching(_tag(gm, options), Folder(diskcache.get, diskcache.put, diskcache.drop))


def output(run: Callable[[list[Any]], Any], assemblies: Iterable[Assembly]) -> Callable[[list[Any]], Any]:
    """`run`, with what AOTAutograd writes to disk in its place.

    Args:
        run: what a compiled graph is called by.
        assemblies: what was built for the graph.
    """
    from inductor_backend.kept.compat import Kept

    built = next((a for a in assemblies if a.run is run), None)
    run.__wrapped__ = Kept(None if built is None else written(built), run)
    return run


def restore(state: bytes) -> Callable[[list[Any]], Any]:
    """The runner that was written down."""
    from inductor_backend import compile as compiler

    run = restored(state)
    compiler.count_one()
    return run


def _fixed(inputs: Sequence[Any]) -> bool:
    """Whether all inputs are plain tensors of fixed sizes."""
    return all(
        isinstance(t, torch.Tensor)
        and t.layout is torch.strided
        and not t.is_nested
        and not any(isinstance(n, torch.SymInt) for n in (*t.shape, *t.stride()))
        for t in inputs
    )


def _apart(inputs: Sequence[Any]) -> bool:
    """Whether no two inputs share memory, which AOTAutograd looks at and its key doesn't name."""
    memories = [memory_of(t) for t in inputs]
    return len(memories) == len(set(memories))


def _torchs_alone(gm: torch.fx.GraphModule, held: Mapping[str, torch.Tensor]) -> bool:
    """Whether every function of a graph is torch's: what others do is not part of any version that we know."""
    for module in gm.modules():
        for node in module.graph.nodes if isinstance(module, torch.fx.GraphModule) else ():
            if node.op == "get_attr" and not (module is gm and node.target in held):
                if not isinstance(_attribute(module, str(node.target)), torch.fx.GraphModule):
                    return False
            if node.op == "call_module" or (node.op == "call_function" and not _torchs(node.target)):
                return False
    return True


def _attribute(module: Any, name: str) -> Any:
    return functools.reduce(lambda m, part: getattr(m, part, None), name.split("."), module)


def _torchs(target: Any) -> bool:
    if isinstance(target, OpOverload):
        return target.namespace in _TORCH
    home = getattr(target, "__module__", None) or getattr(type(target), "__module__", "") or ""
    return home.split(".")[0] in ("torch", "_operator", "operator", "builtins", "math", "itertools")


def _tag(gm: torch.fx.GraphModule, options: Options) -> str:
    """What decides a compilation beside torch, its settings, the graph and its inputs.

    The user's lines are part of it: diagnostics that a compiled graph raises name them.
    """
    digest = hashlib.sha256()
    parts = (our_code(), diskcache.this_machine(), tracing_state(), repr(options), str(fills_new_memory()))
    for text in (*parts, *(node.meta.get("stack_trace") or "" for node in gm.graph.nodes)):
        digest.update(text.encode())
        digest.update(b"\0")
    return f"torch-pallas {digest.hexdigest()}"
