"""`retarget`: a kernel of the genuine ``triton`` package becomes one of ours.

Input: its object, under whichever of its classes. Output: a kernel that launches here. Law: the user's function, its
configurations, hooks and heuristics are kept; the genuine package is not imported.
"""

from __future__ import annotations

import inspect
import types
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
        return _kernel(kernel, inner)
    if kind == "Autotuner" and inner is not None:
        return _tuned(kernel, retarget(inner))
    if kind == "Heuristics" and inner is not None:
        ours = retarget(inner)
        return Heuristics(ours, ours.arg_names, kernel.values)
    raise error(
        "bad-argument",
        f"retarget() was given a {kind}",
        why="it takes a kernel made by triton.jit, triton.autotune or triton.heuristics",
        do="decorate the function with @triton.jit and pass the result",
    )


def _kernel(kernel: Any, fn: types.FunctionType) -> JITFunction:
    told = ("version", "debug", "noinline", "launch_metadata", "do_not_specialize", "do_not_specialize_on_alignment")
    options = {name: getattr(kernel, name, None) for name in told}
    ours = JITFunction(fn, **options, repr=getattr(kernel, "_repr", None))
    text = getattr(kernel, "_src", None)
    if isinstance(text, str) and text.strip() != ours.src.strip():
        ours._unsafe_update_src(text)  # it was replaced
    for hook in getattr(kernel, "pre_run_hooks", ()):
        ours.add_pre_run_hook(hook)
    return ours


def _tuned(kernel: Any, ours: Any) -> Autotuner:
    names = ("num_warps", "num_stages", "num_ctas", "maxnreg", "pre_hook", "ir_override")
    configs = [Config(c.kwargs, **{n: getattr(c, n) for n in names if hasattr(c, n)}) for c in kernel.configs]
    prune = {
        "early_config_prune": getattr(kernel, "early_config_prune", None),
        "perf_model": getattr(kernel, "perf_model", None),
        "top_k": getattr(kernel, "configs_top_k", None),
    }
    pre = kernel.pre_hook if getattr(kernel, "user_defined_pre_hook", False) else None
    post = kernel.post_hook if getattr(kernel, "user_defined_post_hook", False) else None
    timed = getattr(kernel, "num_warmups", None), getattr(kernel, "num_reps", None)
    bench = getattr(kernel, "_do_bench", None) if timed == (None, None) else None  # else the genuine one, for a GPU
    return Autotuner(
        ours, ours.arg_names, configs, kernel.keys, getattr(kernel, "reset_to_zero", None),
        getattr(kernel, "restore_value", None), pre, post, prune, *timed, do_bench=bench,
        cache_results=bool(getattr(kernel, "cache_results", False)),
    )  # fmt: skip
