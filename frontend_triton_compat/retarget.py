"""`retarget`: a kernel of the genuine ``triton`` package becomes one of ours.

Input: its object, under whichever of its classes. Output: a kernel that launches here. Law: the user's function, its
configurations, hooks and heuristics are kept; the genuine package is not imported.
"""

from __future__ import annotations

import inspect
from typing import Any

from bridge.diagnostics import error
from frontend_triton_compat.autotune import Autotuner, Config, Heuristics
from frontend_triton_compat.launch import JITFunction


def retarget(kernel: Any) -> Any:
    """A kernel of the genuine ``triton`` package as one of ours.

    Args:
        kernel: a ``JITFunction``, ``InterpretedFunction``, ``Autotuner`` or ``Heuristics``, or one of ours already.

    Raises:
        Diagnostic: it is none of these.
    """
    if isinstance(kernel, JITFunction | Autotuner | Heuristics):
        return kernel
    kind = type(kernel).__name__
    inner = getattr(kernel, "fn", None)
    if kind in ("JITFunction", "InterpretedFunction") and inspect.isfunction(inner):
        return JITFunction(inner)
    if kind == "Autotuner" and inner is not None:
        configs = [Config(c.kwargs, c.num_warps, c.num_stages, c.num_ctas, pre_hook=c.pre_hook) for c in kernel.configs]
        prune = {
            "early_config_prune": getattr(kernel, "early_config_prune", None),
            "perf_model": getattr(kernel, "perf_model", None),
            "top_k": getattr(kernel, "configs_top_k", None),
        }
        pre = kernel.pre_hook if getattr(kernel, "user_defined_pre_hook", False) else None
        post = kernel.post_hook if getattr(kernel, "user_defined_post_hook", False) else None
        zero = getattr(kernel, "reset_to_zero", None)
        ours = retarget(inner)
        return Autotuner(ours, ours.arg_names, configs, kernel.keys, zero, None, pre, post, prune)
    if kind == "Heuristics" and inner is not None:
        ours = retarget(inner)
        return Heuristics(ours, ours.arg_names, kernel.values)
    raise error(
        "bad-argument",
        f"retarget() was given a {kind}",
        why="it takes a kernel made by triton.jit, triton.autotune or triton.heuristics",
        do="decorate the function with @triton.jit and pass the result",
    )
