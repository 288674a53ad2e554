"""The launcher's two ends: arguments of either library in, results of the same library out.

Input: a call's arguments. Output: jax arrays, and a function that turns results into the caller's kind; a signature's
program, on either. Law: one kind a call; a dense, aligned torch tensor is read where it lies; all else goes through
`bridge`, which shares, copies with a note, or refuses.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
import torch

import bridge
from bridge.compat import has_memory, has_storage, has_tangent, share_with_jax, share_with_torch
from bridge.diagnostics import Where, error
from bridge.dtypes import BY_JAX, BY_TORCH
from bridge.engine import CallsBack, Engine, JaxEngine, Program, Window, collect_results
from pallas_core import compat

_plain = (torch.Tensor, torch.nn.Parameter)


def kind_of(args: Sequence[Any], where: Where | None = None) -> str:
    """``"torch"``, ``"jax"`` or ``"none"`` (no arguments).

    Raises:
        Diagnostic: ``mixed-frameworks``, or ``operand-mismatch`` for something that is no array.
    """
    kinds = set()
    for position, arg in enumerate(args):
        if isinstance(arg, torch.Tensor):
            kinds.add("torch")
        elif isinstance(arg, jax.Array):  # tracers too
            kinds.add("jax")
        else:
            hint = "torch.from_numpy(x) or jnp.asarray(x)" if isinstance(arg, np.ndarray) else "a tensor or an array"
            raise error(
                "operand-mismatch",
                f"argument {position} is a {type(arg).__name__}",
                where=where or Where.caller(2),
                why="a kernel's operands are torch tensors or jax arrays.",
                do=f"pass {hint}; a Python number that is constant can be closed over",
            )
    if len(kinds) > 1:
        raise error(
            "mixed-frameworks",
            "torch tensors and jax arrays in one call",
            where=where or Where.caller(2),
            why="the results come back in the kind of the arguments, and with both there is no answer.",
            do="convert first: bridge.to_jax(tensor) or bridge.to_torch(array); both share memory where they can",
        )
    return kinds.pop() if kinds else "none"


def is_plain(t: torch.Tensor) -> bool:
    """Whether a tensor's memory can be read as it is: dense, aligned, on the CPU, without grad or lazy bits."""
    return (
        type(t) in _plain
        and not t.requires_grad
        and t.layout is torch.strided
        and t.device.type == "cpu"
        and has_storage(t)
        and t.is_contiguous()
        and t.data_ptr() % 64 == 0
        and not t.is_neg()
        and not t.is_conj()
        and not t.is_nested
        and t.numel() > 0
        and has_memory(t)
        and not has_tangent(t)
    )


def import_tensor(t: torch.Tensor) -> jax.Array:
    """One tensor as a jax array on the CPU, shared where possible.

    64-bit tensors need x64 on around this call.

    Raises:
        Diagnostic: those of `bridge.to_jax`.
    """
    if is_plain(t):
        return share_with_jax(t)
    if t.device.type == "meta" or t.device.type != "cpu":
        raise error(
            "operand-mismatch",
            f"a tensor on the device '{t.device}' for a kernel that runs on the CPU",
            where=Where.caller(2),
            why="the target 'cpu' reads the tensors of the CPU.",
            do="move it first: x.cpu(); to compile for an accelerator that is not here use pc.compile_for",
        )
    return bridge.to_jax(t)


def check_import(t: torch.Tensor) -> None:
    """Whether a tensor can be imported; nothing is kept.

    Raises:
        Diagnostic: those of `import_tensor`, and ``dtype-cannot-cross``.
    """
    row = BY_TORCH.get(t.dtype)
    if row is None or not row.crosses:
        bridge.to_jax(t)  # says why
    import_tensor(t)


def export(a: jax.Array) -> torch.Tensor:
    """A result as a tensor, shared; waits until it is computed."""
    return share_with_torch(a)


def check_export(dtype: Any, what: str, where: Where | None) -> None:
    """A result of this dtype has a counterpart in torch.

    Raises:
        Diagnostic: ``dtype-cannot-cross``.
    """
    row = BY_JAX.get(np.dtype(dtype))
    if row is None or not row.crosses:
        raise error(
            "dtype-cannot-cross",
            f"{what} is {dtype}, which has no counterpart in torch",
            where=where,
            why=(row.why if row else "torch has no such dtype") + ".",
            do=(row.do if row else "") or "give the output a dtype that torch has, such as int8",
        )


def empty_result(shape: Sequence[int], dtype: Any, kind: str) -> Any:
    """A result without elements, of the caller's kind."""
    if kind == "jax":
        return jax.numpy.zeros(tuple(shape), dtype)
    return torch.empty(
        tuple(shape), dtype=getattr(torch, str(np.dtype(dtype)) if np.dtype(dtype) != np.bool_ else "bool")
    )


class Executable:
    """One signature, for the CPU; compiled when it is called: for jax arrays by jax, for tensors by our own engine.

    Attributes:
        wide: whether 64-bit mode is on while it is traced and run by jax.
    """

    def __init__(self, traced: Any, wide: bool):
        self.wide, self._traced = wide, traced
        self._on_tensors: dict[bool, tuple[Engine, Program, list[Window]]] = {}

    @functools.cached_property
    def run(self) -> Callable[..., Any]:
        """The program on jax arrays."""
        with compat.x64(self.wide):
            return self._traced.lower().compile()

    def _run_on_list(self, arrays: list[Any]) -> list[Any]:
        with compat.x64(self.wide):
            return list(self.run(*arrays))

    def run_on_tensors(self, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """The program on tensors, in the calling thread."""
        found = self._on_tensors.get(torch.get_num_threads() == 1)
        if found is None:
            found = self._compile_for_tensors(tensors)
        engine, program, windows = found
        collect_results()
        operands = []
        for t, window in zip(tensors, windows):
            if is_plain(t):
                pointer = t.data_ptr()
                array = window.cache.get(pointer)
                operands.append(window(pointer, t) if array is None else array)
            else:
                with compat.x64(True):  # a bridge's array belongs to jax's client
                    t = export(import_tensor(t))
                operands.append(engine.share(t))
        return [export(r) for r in program(operands)]

    def _compile_for_tensors(self, tensors: Sequence[torch.Tensor]) -> tuple[Engine, Program, list[Window]]:
        engine = Engine.current()
        serial = engine.serial
        with compat.x64(self.wide):
            try:
                program = engine.compile_traced(self._traced)
            except CallsBack:
                engine, program = JaxEngine(), self._run_on_list
        windows = [Window(engine, t.dtype, tuple(t.shape)) for t in tensors]
        made = self._on_tensors[serial] = (engine, program, windows)
        return made
