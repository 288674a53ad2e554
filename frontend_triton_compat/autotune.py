"""`autotune` and `heuristics`: kernels that choose their own constexprs.

Input: configurations, or functions of the arguments. Output: an object that launches like a kernel. Law: every
configuration is measured on copies of the tensors, so that a tuning run has no effect a user could see; the choice is
kept per value of the key arguments, dtypes included.
"""

from __future__ import annotations

import functools
import inspect
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from bridge.diagnostics import Diagnostic, error
from frontend_triton_compat.launch import JITFunction


class Config:
    """One configuration: constexpr values by name, and Triton's code generation options, which are accepted."""

    def __init__(
        self,
        kwargs: Mapping[str, Any],
        num_warps: int = 4,
        num_stages: int = 3,
        num_ctas: int = 1,
        maxnreg: int | None = None,
        pre_hook: Callable[[dict[str, Any]], Any] | None = None,
        ir_override: str | None = None,
    ):
        self.kwargs = dict(kwargs)
        self.num_warps, self.num_stages, self.num_ctas = num_warps, num_stages, num_ctas
        self.maxnreg, self.pre_hook, self.ir_override = maxnreg, pre_hook, ir_override

    def all_kwargs(self) -> dict[str, Any]:
        """The constexprs and the options."""
        return {**self.kwargs, "num_warps": self.num_warps, "num_stages": self.num_stages, "num_ctas": self.num_ctas}

    def __repr__(self) -> str:
        return f"Config({self.kwargs}, num_warps={self.num_warps}, num_stages={self.num_stages})"


class _Wrapper:
    """What `autotune` and `heuristics` share: they stand in front of a kernel and add keyword arguments."""

    fn: Any

    @property
    def kernel(self) -> JITFunction:
        """The kernel behind all wrappers."""
        inner = self.fn
        while not isinstance(inner, JITFunction):
            inner = inner.fn
        return inner

    @property
    def arg_names(self) -> list[str]:
        """The kernel's parameters."""
        return self.kernel.arg_names

    def __getitem__(self, grid: Any) -> Callable[..., Any]:
        return functools.partial(self._launch, grid)

    def run(self, *args: Any, grid: Any, **kwargs: Any) -> Any:
        """Launch over `grid`."""
        return self._launch(grid, *args, **kwargs)

    def _launch(self, grid: Any, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError

    def _named(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        return {**dict(zip(self.arg_names, args)), **kwargs}


class Autotuner(_Wrapper):
    """A kernel with configurations; the fastest one for the arguments runs.

    Attributes:
        configs: the configurations.
        keys: names of the arguments whose values the choice depends on.
        best_config: the configuration of the last launch.
    """

    def __init__(
        self,
        fn: Any,
        configs: Sequence[Config],
        key: Sequence[str],
        prune_configs_by: Mapping[str, Any] | None = None,
        reset_to_zero: Sequence[str] | None = None,
        pre_hook: Callable[..., Any] | None = None,
        post_hook: Callable[..., Any] | None = None,
    ):
        self.fn = fn
        self.configs = list(configs) or [Config({})]
        self.keys = list(key)
        self.cache: dict[Any, Config] = {}
        self.best_config: Config | None = None
        self._prune = dict(prune_configs_by or {})
        self._zero = list(reset_to_zero or ())
        self._pre, self._post = pre_hook, post_hook
        functools.update_wrapper(self, fn)

    def _launch(self, grid: Any, *args: Any, **kwargs: Any) -> Any:
        named = self._named(args, kwargs)
        config = self.configs[0] if len(self.configs) == 1 else self._choose(grid, named)
        self.best_config = config
        self._prepare(config, named)
        out = self.fn[grid](**named, **config.all_kwargs())
        if self._post is not None:
            self._post(named, exception=None)
        return out

    def _prepare(self, config: Config, named: dict[str, Any]) -> None:
        for name in self._zero:
            named[name].zero_()
        if self._pre is not None:
            self._pre(named)
        if config.pre_hook is not None:
            config.pre_hook({**named, **config.all_kwargs()})

    def _choose(self, grid: Any, named: dict[str, Any]) -> Config:
        key = (
            tuple(str(named.get(k)) if isinstance(named.get(k), torch.Tensor) else named.get(k) for k in self.keys),
            tuple(v.dtype for v in named.values() if isinstance(v, torch.Tensor)),
        )
        if key not in self.cache:
            configs = self._pruned(named)
            timings = [(self._time(config, grid, named), i) for i, config in enumerate(configs)]
            fastest, index = min(timings)
            if fastest == float("inf"):
                index = 0  # none runs: launching the first says why
            self.cache[key] = configs[index]
        return self.cache[key]

    def _pruned(self, named: dict[str, Any]) -> list[Config]:
        configs = self.configs
        early, model, top_k = (self._prune.get(k) for k in ("early_config_prune", "perf_model", "top_k"))
        if early is not None:
            configs = list(early(configs, named))
        if model is not None and top_k is not None and len(configs) > 1:
            count = int(len(configs) * top_k) if isinstance(top_k, float) and top_k <= 1 else int(top_k)
            configs = sorted(configs, key=lambda c: model(**named, **c.all_kwargs()))[: max(1, count)]
        return configs or self.configs

    def _time(self, config: Config, grid: Any, named: dict[str, Any]) -> float:
        copies = {
            k: torch.empty_strided(v.shape, v.stride(), dtype=v.dtype).copy_(v)
            if isinstance(v, torch.Tensor) and v.device.type == "cpu" and 0 not in v.stride()
            else v
            for k, v in named.items()
        }
        try:
            best = float("inf")
            for attempt in range(3):
                self._prepare(config, copies)
                start = time.perf_counter()
                self.fn[grid](**copies, **config.all_kwargs())
                if attempt:  # the first run compiles
                    best = min(best, time.perf_counter() - start)
            return best
        except Diagnostic:
            return float("inf")  # a configuration that can't run here is not a choice


class Heuristics(_Wrapper):
    """A kernel some of whose constexprs are functions of the other arguments.

    Attributes:
        values: parameter name -> function of a dict of the arguments.
    """

    def __init__(self, fn: Any, values: Mapping[str, Callable[[dict[str, Any]], Any]]):
        self.fn = fn
        self.values = dict(values)
        functools.update_wrapper(self, fn)

    def _launch(self, grid: Any, *args: Any, **kwargs: Any) -> Any:
        named = self._named(args, kwargs)
        for name, value in self.values.items():
            kwargs[name] = named[name] = value(named)
        return self.fn[grid](*args, **kwargs)


def autotune(
    configs: Sequence[Config],
    key: Sequence[str],
    prune_configs_by: Mapping[str, Any] | None = None,
    reset_to_zero: Sequence[str] | None = None,
    restore_value: Sequence[str] | None = None,
    pre_hook: Callable[..., Any] | None = None,
    post_hook: Callable[..., Any] | None = None,
    warmup: int | None = None,
    rep: int | None = None,
    use_cuda_graph: bool = False,
    do_bench: Callable[..., Any] | None = None,
    cache_results: bool = False,
) -> Callable[[Any], Autotuner]:
    """Decorator: run the fastest of several configurations, measured on first use.

    Args:
        configs: the configurations.
        key: names of arguments; a new value of one of them measures anew.
        prune_configs_by: ``early_config_prune``, ``perf_model`` and ``top_k``, as in Triton.
        reset_to_zero: tensors that are zeroed before every run.
        restore_value: accepted; tuning works on copies, so there is nothing to restore.
        pre_hook: called with the arguments before a run.
        post_hook: called with the arguments after a run.
        warmup: accepted, without effect.
        rep: accepted, without effect.
        use_cuda_graph: accepted, without effect.
        do_bench: accepted, without effect.
        cache_results: accepted, without effect.
    """
    return lambda fn: Autotuner(fn, configs, key, prune_configs_by, reset_to_zero, pre_hook, post_hook)


def heuristics(values: Mapping[str, Callable[[dict[str, Any]], Any]]) -> Callable[[Any], Heuristics]:
    """Decorator: compute constexprs from the arguments at every launch."""
    return lambda fn: Heuristics(fn, values)


def retarget(kernel: Any) -> Any:
    """A kernel of the genuine ``triton`` package as one of ours.

    Args:
        kernel: a ``JITFunction``, ``InterpretedFunction``, ``Autotuner`` or ``Heuristics``, or one of ours already.

    Raises:
        TranslationError: it is none of these.
    """
    if isinstance(kernel, JITFunction | _Wrapper):
        return kernel
    kind = type(kernel).__name__
    inner = getattr(kernel, "fn", None)
    if kind in ("JITFunction", "InterpretedFunction") and inspect.isfunction(inner):
        return JITFunction(inner)
    if kind == "Autotuner" and inner is not None:
        configs = [
            Config(c.kwargs, c.num_warps, c.num_stages, getattr(c, "num_ctas", 1), pre_hook=getattr(c, "pre_hook", None))
            for c in kernel.configs
        ]
        return Autotuner(retarget(inner), configs, kernel.keys)
    if kind == "Heuristics" and inner is not None:
        return Heuristics(retarget(inner), kernel.values)
    raise error(
        "bad-argument",
        f"retarget() was given a {kind}",
        why="it takes a kernel made by triton.jit, triton.autotune or triton.heuristics",
        do="decorate the function with @triton.jit and pass the result",
    )
