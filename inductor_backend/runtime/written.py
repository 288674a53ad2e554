"""A runner written down, and made again in another process.

Input: an assembly that was just built; bytes. Output: bytes; a runner. Law: what is written names no address and no
object of the process: text, numbers, torch's own operators, and programs as the text they are compiled from.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable
from typing import Any

import jax
import torch

from bridge.engine import Engine
from inductor_backend.compat import OpOverload, operator_named
from inductor_backend.runtime.assembly import STANDARD, Assembly, load

#: These belong to the process.
_LIVE = (torch.Tensor, torch.nn.Module, torch.fx.Node, jax.Array)


def written(assembly: Assembly) -> bytes | None:
    """The runner of an assembly that has not run yet; None when it holds what can't be written down."""
    if assembly.live:
        return None
    file = io.BytesIO()
    try:
        scope = {name: value for name, value in assembly.scope.items() if name not in ("run", "__builtins__")}
        _Writer(file, assembly).dump((assembly.text, scope, assembly.programs))
    except (pickle.PicklingError, TypeError, AttributeError):
        return None
    return file.getvalue()


def restored(state: bytes) -> Callable[[list[Any]], Any]:
    """The runner that was written down, on the engine for torch's present number of threads."""
    text, scope, programs = _Reader(io.BytesIO(state)).load()
    engine = Engine.current()
    for program in programs:
        scope |= program.remade(engine)
    run, _ = load(text, "run", scope)
    run._boxed_call = True
    return run


class _Writer(pickle.Pickler):
    def __init__(self, file: io.BytesIO, assembly: Assembly):
        super().__init__(file, protocol=5)
        self.engine = assembly.engine
        self.places = {id(value): name for name, value in STANDARD.items()}
        self.made = {id(assembly.scope[name]) for p in assembly.programs for name in p.bound.values()}

    def persistent_id(self, obj: Any) -> tuple[str, str] | None:
        if obj is self.engine:
            return "engine", ""
        if id(obj) in self.made:
            return "made", ""
        if id(obj) in self.places:
            return "standard", self.places[id(obj)]
        if isinstance(obj, OpOverload):
            if obj.namespace not in ("aten", "prims"):
                raise pickle.PicklingError(f"{obj} is not torch's")
            return "operator", str(obj)
        if isinstance(obj, _LIVE):
            raise pickle.PicklingError(f"a {type(obj).__name__} belongs to the process")
        return None


class _Reader(pickle.Unpickler):
    def persistent_load(self, pid: tuple[str, str]) -> Any:
        kind, name = pid
        if kind == "engine":
            return Engine.current()
        if kind == "made":
            return None
        return STANDARD[name] if kind == "standard" else operator_named(name)
