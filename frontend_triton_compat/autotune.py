"""`autotune` and `heuristics`: kernels that choose their own constexprs.

Input: configurations, or functions of the arguments. Output: an object that launches like a kernel. Law: every
configuration is measured on copies of the tensors, with views and overlaps kept, so that tuning leaves nothing behind;
the choice is kept per value of the key arguments, dtypes included, and on disk where that is asked for; a configuration
that can't run is not a choice, and when none can, a diagnostic says why of each.
"""

from __future__ import annotations

import contextvars
import functools
import inspect
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import torch
from jax.core import Tracer

from bridge.diagnostics import Diagnostic, error, shortened
from frontend_triton_compat import captured, knobs, testing
from frontend_triton_compat.compat import in_graph, prepare
from frontend_triton_compat.launch import JITFunction
from frontend_triton_compat.measure import copy_arguments, first, in_key, keep, kept_for, median_time, recall

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

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        self.__init__(**{name: state[name] for name in state.keys() & _FIELDS} | {"kwargs": state.get("kwargs", {})})  # type: ignore[misc]

    def __str__(self) -> str:
        options = ("num_warps", "num_ctas", "num_stages", "maxnreg", "ir_override")
        parts = {**self.kwargs, **{o: getattr(self, o) for o in options}}
        return ", ".join(f"{name}: {value}" for name, value in parts.items())

    def __repr__(self) -> str:
        return f"Config({self.kwargs}, num_warps={self.num_warps}, num_stages={self.num_stages})"


_FIELDS = frozenset("num_warps num_stages num_ctas maxnreg pre_hook ir_override".split())


class _Launcher:
    """A wrapped kernel with its grid: call it to launch."""

    __slots__ = ("grid", "wrapper")

    def __init__(self, wrapper: _Wrapper, grid: Any):
        self.wrapper, self.grid = wrapper, grid

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        __tracebackhide__ = True
        if torch.compiler.is_dynamo_compiling():
            return _traced(self.wrapper, args, {"grid": self.grid, **kwargs})
        try:
            return self.wrapper.run(*args, grid=self.grid, warmup=False, **kwargs)
        except Diagnostic as problem:
            raise shortened(problem) from problem.__cause__

    def source(self, *args: Any, target: str = "cpu", **kwargs: Any) -> str:
        """See `JITFunction.source`."""
        return self.wrapper.source(*args, grid=self.grid, target=target, **kwargs)

    def check(self, *args: Any, target: str = "tpu:v5e", **kwargs: Any) -> Any:
        """See `JITFunction.check`."""
        return self.wrapper.check(*args, grid=self.grid, target=target, **kwargs)

    def verify(self, *args: Any, target: str = "tpu:v5e", **kwargs: Any) -> Any:
        """See `JITFunction.verify`."""
        return self.wrapper.verify(*args, grid=self.grid, target=target, **kwargs)


def _traced(wrapper: _Wrapper, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A launch where Dynamo traces: see `launch.launch`."""
    prepare()
    named = {name: value for name, value in kwargs.items() if name not in ("grid", "warmup")}
    return in_graph(wrapper, kwargs["grid"], args, named)


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

    @functools.cached_property
    def base_fn(self) -> Callable[..., Any]:
        """The Python function behind all wrappers."""
        inner = self.fn
        while not inspect.isfunction(inner):
            inner = inner.fn
        return inner

    def __getitem__(self, grid: Any) -> _Launcher:
        return _Launcher(self, grid)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.kernel(*args, **kwargs)  # raises: a kernel is launched over a grid

    def run(self, *args: Any, **kwargs: Any) -> Any:
        """Launch over ``grid=``; with ``warmup=True``, only translate and compile."""
        raise NotImplementedError

    def warmup(self, *args: Any, **kwargs: Any) -> Any:
        """Translate and compile for these arguments without running."""
        return self.fn.warmup(*args, **self._chosen(args, kwargs))

    def source(self, *args: Any, grid: Any = None, target: str = "cpu", **kwargs: Any) -> str:
        """See `JITFunction.source`; nothing is measured: the choice of an earlier launch, or the first, is shown."""
        return self.fn.source(*args, grid=grid, target=target, **self._chosen(args, kwargs))

    def check(self, *args: Any, grid: Any = None, target: str = "tpu:v5e", **kwargs: Any) -> Any:
        """See `JITFunction.check`; nothing is measured: the choice of an earlier launch, or the first, is checked."""
        return self.fn.check(*args, grid=grid, target=target, **self._chosen(args, kwargs))

    def verify(self, *args: Any, grid: Any = None, target: str = "tpu:v5e", **kwargs: Any) -> Any:
        """See `JITFunction.verify`; nothing is measured: the choice of an earlier launch, or the first, is verified."""
        return self.fn.verify(*args, grid=grid, target=target, **self._chosen(args, kwargs))

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
        bench_time: seconds that the last measurement took.
        cache_results: whether choices are kept on disk; ``TRITON_CACHE_AUTOTUNING=1`` asks for it too.
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
        self.bench_time = 0.0
        self.cache_results = cache_results
        self.nargs: dict[str, Any] | None = None
        self._refused: dict[Config, Diagnostic] = {}
        prune = dict(prune_configs_by or {})
        self.early_config_prune, self.perf_model = prune.get("early_config_prune"), prune.get("perf_model")
        self.configs_top_k = prune.get("top_k", 1.0)
        self.reset_to_zero, self.restore_value = list(reset_to_zero or ()), list(restore_value or ())
        self.user_defined_pre_hook, self.user_defined_post_hook = pre_hook is not None, post_hook is not None
        self.pre_hook = self._zero if pre_hook is None else pre_hook
        self.post_hook = _nothing if post_hook is None else post_hook
        self._do_bench = do_bench
        self.num_warmups, self.num_reps, self.use_cuda_graph = warmup, rep, use_cuda_graph
        self._lock = threading.RLock()
        functools.update_wrapper(self, fn, updated=())

    @property
    def do_bench(self) -> Callable[..., Any]:
        """What measures: called with a function and ``quantiles=``."""
        if self._do_bench is not None:
            return self._do_bench
        if self.num_warmups is None and self.num_reps is None:
            return lambda once, quantiles: [median_time(once)] * len(quantiles)
        times = {"warmup": self.num_warmups, "rep": self.num_reps}
        return functools.partial(testing.do_bench, **{k: v for k, v in times.items() if v is not None})

    def run(self, *args: Any, **kwargs: Any) -> Any:
        """Launch over ``grid=`` with the best configuration; with ``warmup=True``, only translate and compile."""
        if torch.compiler.is_dynamo_compiling():
            return _traced(self, args, kwargs)
        if kwargs.pop("warmup", False):
            return self.warmup(*args, **kwargs)
        config = self._known(args, kwargs)
        if config is None and captured.wanted(args, kwargs):
            named = {name: value for name, value in kwargs.items() if name != "grid"}
            return captured.launch_traced(self, kwargs["grid"], args, named)
        if config is None:
            with self._lock:
                config = self._known(args, kwargs)  # another thread may have measured meanwhile
                if config is None:
                    config = self._choose(args, kwargs)
        self.best_config = config
        self._refuse_conflicts(config, args, kwargs)
        if config.pre_hook is not None:
            config.pre_hook(self._all(config, args, kwargs))
        return self.fn.run(*args, **{**kwargs, "warmup": False, **config.all_kwargs()})

    def warmup(self, *args: Any, **kwargs: Any) -> list[Any]:
        """Translate and compile every configuration that is worth measuring, without running."""
        return [self.fn.warmup(*args, **{**kwargs, **config.all_kwargs()}) for config in self._pruned(args, kwargs)]

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

    def _choose(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Config:
        configs = self._pruned(args, {**kwargs, "warmup": False})
        for config in configs:
            self._refuse_conflicts(config, args, kwargs)
        key, fresh = self._key(args, kwargs), True
        codes = {config: self._code(config, args, kwargs) for config in configs}
        if len(set(codes.values())) == 1 or os.environ.get("TORCH_PALLAS_AUTOTUNE") == "first":
            self.cache[key] = configs[0]  # nothing to choose between, or no wish to
        else:
            measure = lambda: self._measure(configs, codes, key, args, kwargs)
            if self.cache_results or knobs.autotuning.cache:
                fresh = not self.check_disk_cache(key, configs, measure)
            else:
                measure()
        self.nargs = None
        if knobs.autotuning.print and fresh and len(configs) > 1:
            print(
                f"Triton autotuning for function {self.base_fn.__name__},\nwith key as {key},\n"
                f"finished after {self.bench_time:.2f}s,\nbest config selected: {self.cache[key]};"
            )
        return self.cache[key]

    def _measure(
        self,
        configs: Sequence[Config],
        codes: Mapping[Config, Any],
        key: Any,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
    ) -> None:
        """Time the configurations and keep the fastest.

        Raises:
            Diagnostic: none of them can run.
        """
        begin = time.perf_counter()
        seen: dict[Any, Any] = {}
        timings: dict[Config, Any] = {}
        self._refused.clear()
        for config in configs:
            if codes[config] not in seen:
                seen[codes[config]] = self._bench(*args, config=config, **kwargs)
            timings[config] = seen[codes[config]]
        self.bench_time = time.perf_counter() - begin
        fastest = min(timings, key=lambda config: first(timings[config]))
        if first(timings[fastest]) == float("inf") and self._refused:
            raise self._none_runs(len(configs))
        self.configs_timings, self.cache[key] = timings, fastest
        self.pre_hook(self._all(fastest, args, kwargs), reset_only=True)

    def _none_runs(self, count: int) -> Diagnostic:
        reasons = list(self._refused.items())
        one = reasons[0][1]
        if len({(r.slug, r.what, r.where) for _, r in reasons}) == 1:
            return one  # it has nothing to do with the configurations
        return error(
            "autotune-none-runs",
            f"none of the {count} configurations of {self.base_fn.__name__} can run",
            where=one.where,
            why="\n".join(f"{config.kwargs}: {reason.code} {reason.what}" for config, reason in reasons),
            do=one.do,
        )

    def check_disk_cache(self, tuning_key: Any, configs: Sequence[Config], bench_fn: Callable[[], Any]) -> bool:
        """Take the choice from disk, or call `bench_fn` and keep its choice there.

        Returns:
            Whether the choice was on disk. Hooks can't be told apart by a file: configurations with one are measured.
        """
        if not tuning_key or any(config.pre_hook for config in configs):
            bench_fn()
            return False
        parts = [kept_for(), self.kernel.cache_key, repr(tuning_key), *map(str, configs)]
        name = "\0".join(parts)
        timings = recall(name, len(configs))
        if timings is not None:
            self.configs_timings = dict(zip(configs, timings))
            self.cache[tuning_key] = min(configs, key=lambda config: first(self.configs_timings[config]))
            return True
        bench_fn()
        keep(name, [self.configs_timings[config] for config in configs])
        return False

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
            count = int(len(configs) * top_k) if isinstance(top_k, float) and top_k <= 1 else int(top_k)
            if len(configs) > count:
                configs = sorted(configs, key=lambda c: model(**{**positional, **kwargs, **c.all_kwargs()}))
                configs = configs[: max(1, count)]
        return configs

    def _zero(self, everything: Mapping[str, Any], reset_only: bool = False) -> None:
        # As in Triton: a hook of the user's replaces reset_to_zero. Tuning works on copies: nothing is to be restored.
        for name in self.reset_to_zero:
            if isinstance(everything.get(name), torch.Tensor):
                everything[name].zero_()

    def _bench(self, *args: Any, config: Config, **kwargs: Any) -> Any:
        """What `do_bench` measures for a configuration, on copies of the arguments; infinity where it can't run."""
        if knobs.autotuning.print:
            print(f"Autotuning kernel {self.base_fn.__name__} with config {config}")
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
                launched = self.fn.run(*positional, **{**named, "warmup": False, **config.all_kwargs()})
                jax.block_until_ready(launched)
            except Exception as problem:
                self.post_hook(everything, exception=problem)
                raise
            self.post_hook(everything, exception=None)

        token = _tuning.set(True)
        try:
            once()  # compiles
            return self.do_bench(once, quantiles=(0.5, 0.2, 0.8))
        except Diagnostic as refused:
            self._refused[config] = refused
            if knobs.autotuning.print:
                print(f"Autotuning failed with {refused}")
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

    def run(self, *args: Any, **kwargs: Any) -> Any:
        """Launch over ``grid=``; with ``warmup=True``, only translate and compile."""
        if torch.compiler.is_dynamo_compiling():
            return _traced(self, args, kwargs)
        return self.fn.run(*args, **self._chosen(args, {"warmup": False, **kwargs}))

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
        warmup: milliseconds of calls before a measurement, see `testing.do_bench`.
        rep: milliseconds of calls that are measured.
        use_cuda_graph: accepted, without effect.
        do_bench: measures instead of our own: called with a function and ``quantiles=``, as in Triton.
        cache_results: keep choices on disk, for other processes on this machine (see `bridge.diskcache`).
    """
    return lambda fn: Autotuner(
        fn, fn.arg_names, configs, key, reset_to_zero, restore_value, pre_hook, post_hook, prune_configs_by,
        warmup, rep, use_cuda_graph, do_bench, cache_results,
    )  # fmt: skip


def heuristics(values: Mapping[str, Callable[[dict[str, Any]], Any]]) -> Callable[[Any], Heuristics]:
    """Decorator: compute constexprs from the arguments at every launch."""
    return lambda fn: Heuristics(fn, fn.arg_names, values)
