"""A function of arrays as one torch operator, ``torch_pallas::function``: what a graph holds of a call.

Input: functions that take tensors or arrays, and say what they return. Output: a key for each, and the operator that
calls it. Law: a graph holds the key only; the operator lives as long as the function, and has no gradient: a graph that
needs one is refused when its backward is made.
"""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Sequence
from typing import Any

import torch
from torch.fx.traceback import get_current_meta

from bridge.diagnostics import Where, error
from bridge.dtypes import by_jax

_numbers = itertools.count()
_kept: weakref.WeakValueDictionary[str, Any] = weakref.WeakValueDictionary()


def keep(function: Any, name: str) -> str:
    """A key for a function: callable on tensors, with ``on_jax`` for arrays and ``outputs``, specs of its results."""
    key = f"{name}.{next(_numbers)}"
    _kept[key] = function
    return key


def kept(key: str) -> Any:
    """The function of a key.

    Raises:
        Diagnostic: captured-elsewhere: it is gone, or another process's.
    """
    function = _kept.get(key)
    if function is None:
        raise error(
            "captured-elsewhere",
            f"the kernel {key} was not captured in this process",
            why="a graph holds the name of a pallas_call, and the function itself is kept where it was traced, "
            "as long as it lives",
            do="keep the function that pallas_call made, and trace again in this process",
        )
    return function


def tracing() -> bool:
    """Whether Dynamo traces the caller."""
    return torch.compiler.is_dynamo_compiling()


def call(key: str, arrays: Sequence[Any]) -> list[Any]:
    """Call a function from a graph. Only Dynamo comes here."""
    return torch.ops.torch_pallas.function(key, list(arrays))


def _run(key: str, arrays: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    out = kept(key)(*[a.detach() for a in arrays])
    return list(out) if isinstance(out, (list, tuple)) else [out]


def _shapes(key: str, arrays: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    return [torch.empty(o.shape, dtype=by_jax(o.dtype).torch) for o in kept(key).outputs]


def _batched(info: Any, in_dims: Any, key: str, arrays: Sequence[torch.Tensor]) -> Any:
    """Under ``torch.vmap``: one call after the other, on the parts of the arrays."""
    several = in_dims[1] if isinstance(in_dims[1], (list, tuple)) else [in_dims[1]] * len(arrays)
    calls = [
        call(key, [a if d is None else a.select(d, i) for a, d in zip(arrays, several)]) for i in range(info.batch_size)
    ]
    if not calls:
        results = [torch.empty((0, *o.shape), dtype=by_jax(o.dtype).torch) for o in kept(key).outputs]
    else:
        results = [torch.stack(parts) for parts in zip(*calls)]
    return results, [0] * len(results)


def _setup(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    # While a graph is traced, torch knows the user's lines that the operator stands for.
    ctx.key, ctx.where = inputs[0], Where.of_trace(get_current_meta().get("stack_trace") or "")


def _backward(ctx: Any, *gradients: Any) -> Any:
    raise error(
        "grad-would-be-lost",
        f"a gradient is asked for of the kernel {ctx.key.rpartition('.')[0]}",
        where=ctx.where,
        why="a pallas_call has no rule for its gradient, which would stop there, silently.",
        do=[
            "make it a torch operator, with gradients of jax: bridge.jax_op('ns::name')",
            "if no gradient has to pass: detach its arguments, or call it under torch.no_grad()",
        ],
    )


_library = torch.library.Library("torch_pallas", "FRAGMENT")
_library.define("function(str key, Tensor[] arrays) -> Tensor[]")
_library.impl("function", _run, "CompositeExplicitAutograd")
torch.library.register_fake("torch_pallas::function", _shapes, lib=_library)
torch.library.register_vmap("torch_pallas::function", _batched, lib=_library)
torch.library.register_autograd("torch_pallas::function", _backward, setup_context=_setup, lib=_library)
#: Its name in graphs.
OPERATOR = "torch_pallas::function"
