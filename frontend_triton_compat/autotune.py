"""`autotune` and `heuristics`: kernels that choose their own constexprs.

Input: configurations, or functions of the arguments. Output: an object that launches like a kernel. Law: every
configuration is measured on copies of the tensors, with views and overlaps kept, so that tuning leaves nothing behind;
the choice is kept per value of the key arguments, dtypes included; a configuration that can't run is not a choice, and
when none can, the first one says why.
"""

from __future__ import annotations

import contextvars
import functools
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import torch
from jax.core import Tracer

from bridge.diagnostics import Diagnostic, error
from frontend_triton_compat.launch import JITFunction
from frontend_triton_compat.measure import copy_arguments, first, in_key, median_time

_tuning: contextvars.ContextVar[bool] = contextvars.ContextVar("tuning", default=False)


def is_tuning() -> bool:
    """Whether the launch that runs now only measures a configuration."""
    return _tuning.get()


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
        """The constexprs and the options that are set."""
        names = ("num_warps", "num_ctas", "num_stages", "maxnreg", "ir_override")
        options = {name: getattr(self, name) for name in names}
        return {**self.kwargs, **{name: value for name, value in options.items() if value is not None}}

    def _key(self) -> tuple[Any, ...]:
        return (*self.all_kwargs().items(), self.pre_hook)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Config) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def __repr__(self) -> str:
        return f"Config({self.kwargs}, num_warps={self.num_warps}, num_stages={self.num_stages})"


class _Launcher:
    """A wrapped kernel with its grid: call it to launch."""

    __slots__ = ("grid", "wrapper")

    def __init__(self, wrapper: _Wrapper, grid: Any):
        self.wrapper, self.grid = wrapper, grid

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.wrapper.run(*args, grid=self.grid, warmup=False, **kwargs)

    def source(self, *args: Any, target: str = "cpu", **kwargs: Any) -> str:
        """See `JITFunction.source`."""
        return self.wrapper.source(*args, grid=self.grid, target=target, **kwargs)

    def check(self, *args: Any, target: str = "tpu:v5e", **kwargs: Any) -> Any:
        """See `JITFunction.check`."""
        return self.wrapper.check(*args, grid=self.grid, target=target, **kwargs)


class _Wrapper:
    """What `autotune` and `heuristics` share: they stand in front of a kernel and add keyword arguments."""

    fn: Any
    arg_names: list[str]

    @property
    def kernel(self) -> JITFunction:
        """The kernel behind all wrappers."""
        inner = self.fn
        while not isinstance(inner, JITFunction):
            inner = inner.fn
        return inner

    @property
    def base_fn(self) -> Callable[..., Any]:
        """The Python function behind all wrappers."""
        return self.kernel.fn

    def __getitem__(self, grid: Any) -> _Launcher:
        return _Launcher(self, grid)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.kernel(*args, **kwargs)  # raises: a kernel is launched over a grid

    def run(self, *args: Any, grid: Any, warmup: bool = False, **kwargs: Any) -> Any:
        """Launch over `grid`; with ``warmup=True``, only translate and compile."""
        raise NotImplementedError

    def warmup(self, *args: Any, grid: Any, **kwargs: Any) -> Any:
        """Translate and compile for these arguments without running."""
        return self.fn.warmup(*args, grid=grid, **self._chosen(args, kwargs))

    def source(self, *args: Any, grid: Any = None, target: str = "cpu", **kwargs: Any) -> str:
        """See `JITFunction.source`; nothing is measured: the choice of an earlier launch, or the first, is shown."""
        return self.fn.source(*args, grid=grid, target=target, **self._chosen(args, kwargs))

    def check(self, *args: Any, grid: Any = None, target: str = "tpu:v5e", **kwargs: Any) -> Any:
        """See `JITFunction.check`; nothing is measured: the choice of an earlier launch, or the first, is checked."""
        return self.fn.check(*args, grid=grid, target=target, **self._chosen(args, kwargs))

    def add_pre_run_hook(self, hook: Callable[..., Any]) -> None:
        """Call `hook` with the arguments before every launch."""
        self.kernel.add_pre_run_hook(hook)

    def _chosen(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """The keyword arguments with what this wrapper adds, without running anything."""
        raise NotImplementedError

    def _named(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        return {**dict(zip(self.arg_names, args)), **kwargs}


class Autotuner(_Wrapper):
    """A kernel with configurations; the fastest one for the arguments runs.

    Libraries derive classes from it, so the constructor and the names of what it keeps are Triton's.

    Attributes:
        arg_names: the kernel's parameters.
        configs: the configurations.
        keys: names of the arguments whose values the choice depends on.
        cache: values of the keys and dtypes of the tensors, as one tuple -> the configuration that was chosen.
        best_config: the configuration of the last launch.
        configs_timings: configuration -> seconds, of the last measurement.
        nargs: positional arguments by name, while a launch chooses.
        pre_hook, post_hook: called before and after every measured run.
    """

    def __init__(
        self,
        fn: Any,
        arg_names: Sequence[str],
        configs: Sequence[Config],
        key: Sequence[str],
        reset_to_zero: Sequence[str] | None,
        restore_value: Sequence[str] | None,
        pre_hook: Callable[..., Any] | None = None,
        post_hook: Callable[..., Any] | None = None,
        prune_configs_by: Mapping[str, Any] | None = None,
        warmup: int | None = None,
        rep: int | None = None,
        use_cuda_graph: bool = False,
        do_bench: Callable[..., Any] | None = None,
        cache_results: bool = False,
    ):
        self.fn = fn
        self.arg_names = list(arg_names)
        self.configs = list(configs) or [Config({})]
        self.keys = list(key)
        self.cache: dict[Any, Config] = {}
        self.best_config: Config | None = None
        self.configs_timings: dict[Config, Any] = {}
        self.nargs: dict[str, Any] | None = None
        prune = dict(prune_configs_by or {})
        self.early_config_prune, self.perf_model = prune.get("early_config_prune"), prune.get("perf_model")
        self.configs_top_k = prune.get("top_k", 1.0)
        self.reset_to_zero, self.restore_value = list(reset_to_zero or ()), list(restore_value or ())
        self.user_defined_pre_hook, self.user_defined_post_hook = pre_hook is not None, post_hook is not None
        self.pre_hook = self._zero if pre_hook is None else pre_hook
        self.post_hook = _nothing if post_hook is None else post_hook
        self._do_bench = do_bench
        self._lock = threading.RLock()
        functools.update_wrapper(self, fn, updated=())

    @property
    def do_bench(self) -> Callable[..., Any]:
        """What measures: called with a function and ``quantiles=``."""
        return self._do_bench or (lambda once, quantiles: [median_time(once)] * len(quantiles))

    def run(self, *args: Any, grid: Any, warmup: bool = False, **kwargs: Any) -> Any:
        """Launch over `grid` with the best configuration; with ``warmup=True``, only translate and compile."""
        if warmup:
            return self.warmup(*args, grid=grid, **kwargs)
        config = self._known(args, kwargs)
        if config is None:
            with self._lock:
                config = self._known(args, kwargs)  # another thread may have measured meanwhile
                if config is None:
                    config = self._choose(grid, args, kwargs)
                    self.pre_hook(self._all(config, args, kwargs), reset_only=True)
        self.best_config = config
        self._refuse_conflicts(config, args, kwargs)
        if config.pre_hook is not None:
            config.pre_hook(self._all(config, args, kwargs))
        return self.fn.run(*args, grid=grid, warmup=False, **{**kwargs, **config.all_kwargs()})

    def _chosen(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        config = self.cache.get(self._key(args, kwargs)) or self._pruned(args, kwargs)[0]
        self._refuse_conflicts(config, args, kwargs)
        return {**kwargs, **config.all_kwargs()}

    def _known(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Config | None:
        """The configuration that needs no measurement, or None."""
        if len(self.configs) == 1:
            return self.configs[0]
        found = self.cache.get(self._key(args, kwargs))
        if found is None and any(isinstance(v, Tracer) for v in self._named(args, kwargs).values()):
            return self._pruned(args, kwargs)[0]  # under jax.jit there is nothing to measure, and nothing to keep
        return found

    def _all(self, config: Config, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        return {**self._named(args, kwargs), **config.all_kwargs()}

    def _key(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        named = self._named(args, kwargs)
        values = [in_key(named[k]) for k in self.keys if k in named]
        return (*values, *(str(v.dtype) for k, v in named.items() if k in self.arg_names and hasattr(v, "dtype")))

    def _refuse_conflicts(self, config: Config, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        twice = sorted(self._named(args, kwargs).keys() & config.kwargs.keys())
        if twice:
            raise error(
                "launch-arguments",
                f"argument {twice[0]!r} is given by the launch and by the configurations of autotune",
                where=self.kernel.where,
                why="autotune chooses it, so a value from the caller would be overruled",
                do=f"drop {twice[0]!r} from the launch, or from the configurations",
            )

    # -- the choice

    def _choose(self, grid: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Config:
        configs = self._pruned(args, kwargs)
        for config in configs:
            self._refuse_conflicts(config, args, kwargs)
        seen: dict[Any, Any] = {}
        timings = []
        for config in configs:
            code = self._code(config, args, kwargs)
            if code not in seen:
                seen[code] = self._bench(*args, config=config, grid=grid, **kwargs)
            timings.append(seen[code])
        self.configs_timings = dict(zip(configs, timings))
        fastest = min(range(len(configs)), key=lambda i: timings[i])
        if first(timings[fastest]) == float("inf"):
            return configs[0]  # none runs: launching the first says why
        self.cache[self._key(args, kwargs)] = configs[fastest]
        return configs[fastest]

    def _code(self, config: Config, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """What of a configuration changes the code that runs: two that differ in ``num_warps`` alone are one here."""
        everything, inner = {**kwargs, **config.all_kwargs()}, self.fn
        while not isinstance(inner, JITFunction):
            if not isinstance(inner, _Wrapper):
                return config  # a library's own wrapper may look at anything
            everything, inner = inner._chosen(args, everything), inner.fn
        names = inner.arg_names
        return (config.pre_hook, *((k, in_key(v)) for k, v in everything.items() if k in names))

    def _pruned(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Config]:
        self.nargs = dict(zip(self.arg_names, args))
        return self.prune_configs(dict(kwargs))

    def prune_configs(self, kwargs: dict[str, Any]) -> list[Config]:
        """The configurations worth measuring for these keyword arguments and the positional ones in `nargs`."""
        configs, positional = self.configs, self.nargs or {}
        if self.early_config_prune is not None:
            configs = list(self.early_config_prune(configs, positional, **kwargs))
            if not configs:
                raise error(
                    "launch-arguments",
                    f"early_config_prune of {self.base_fn.__name__} left no configuration",
                    where=self.kernel.where,
                    why="autotune has to choose one",
                    do="return at least one of the configurations it was given",
                )
        model, top_k = self.perf_model, self.configs_top_k
        if model is not None and top_k is not None:
            count = int(len(self.configs) * top_k) if isinstance(top_k, float) and top_k <= 1 else int(top_k)
            if len(configs) > count:
                configs = sorted(configs, key=lambda c: model(**{**positional, **kwargs, **c.all_kwargs()}))
                configs = configs[: max(1, count)]
        return configs

    def _zero(self, everything: Mapping[str, Any], reset_only: bool = False) -> None:
        # As in Triton: a hook of the user's replaces reset_to_zero. Tuning works on copies: nothing is to be restored.
        for name in self.reset_to_zero:
            if isinstance(everything.get(name), torch.Tensor):
                everything[name].zero_()

    def _bench(self, *args: Any, config: Config, grid: Any, **kwargs: Any) -> Any:
        """What `do_bench` measures for a configuration, on copies of the arguments; infinity where it can't run."""
        kwargs.pop("warmup", None)
        copies = copy_arguments(self._named(args, kwargs))
        names = self.arg_names
        # Arguments beyond the signature go along as they are, and the launch refuses them.
        positional = [copies.get(names[i], value) if i < len(names) else value for i, value in enumerate(args)]
        named = {k: copies[k] for k in kwargs}
        everything = {**copies, **config.all_kwargs()}

        def once() -> None:
            if config.pre_hook is not None:
                config.pre_hook(everything)
            self.pre_hook(everything)
            try:
                launched = self.fn.run(*positional, grid=grid, warmup=False, **{**named, **config.all_kwargs()})
                jax.block_until_ready(launched)
            except Diagnostic as refused:
                self.post_hook(everything, exception=refused)
                raise
            self.post_hook(everything, exception=None)

        token = _tuning.set(True)
        try:
            once()  # compiles
            return self.do_bench(once, quantiles=(0.5, 0.2, 0.8))
        except Diagnostic:
            return [float("inf")] * 3  # a configuration that can't run here is not a choice
        finally:
            _tuning.reset(token)


def _nothing(arguments: Mapping[str, Any], exception: Exception | None = None) -> None:
    """The hook of who has none."""


class Heuristics(_Wrapper):
    """A kernel some of whose constexprs are functions of the other arguments.

    Attributes:
        values: parameter name -> function of a dict of the arguments.
    """

    def __init__(self, fn: Any, arg_names: Sequence[str], values: Mapping[str, Callable[[dict[str, Any]], Any]]):
        self.fn = fn
        self.arg_names = list(arg_names)
        self.values = dict(values)
        functools.update_wrapper(self, fn, updated=())

    def run(self, *args: Any, grid: Any, warmup: bool = False, **kwargs: Any) -> Any:
        """Launch over `grid`; with ``warmup=True``, only translate and compile."""
        return self.fn.run(*args, grid=grid, warmup=warmup, **self._chosen(args, kwargs))

    def _chosen(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        named, chosen = self._named(args, kwargs), dict(kwargs)
        for name, value in self.values.items():
            chosen[name] = named[name] = value(named)  # one may depend on those before it
        return chosen


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
        reset_to_zero: tensors that are zeroed before every measured run, and once before the launch that measured; as
            in Triton, later launches don't zero them.
        restore_value: accepted; tuning works on copies, so there is nothing to restore.
        pre_hook: instead of `reset_to_zero`: called with a dict of the arguments before every measured run, and with
            ``reset_only=True`` before the launch that measured.
        post_hook: called with a dict of the arguments and ``exception=`` after every measured run.
        warmup: accepted, without effect.
        rep: accepted, without effect.
        use_cuda_graph: accepted, without effect.
        do_bench: measures instead of our own: called with a function and ``quantiles=``, as in Triton.
        cache_results: accepted, without effect: choices live as long as the process.
    """
    return lambda fn: Autotuner(
        fn, fn.arg_names, configs, key, reset_to_zero, restore_value, pre_hook, post_hook, prune_configs_by,
        do_bench=do_bench, cache_results=cache_results,
    )  # fmt: skip


def heuristics(values: Mapping[str, Callable[[dict[str, Any]], Any]]) -> Callable[[Any], Heuristics]:
    """Decorator: compute constexprs from the arguments at every launch."""
    return lambda fn: Heuristics(fn, fn.arg_names, values)
