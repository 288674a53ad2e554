"""Launches: ``kernel[grid](...)`` on torch tensors, in place, or on jax arrays, functionally.

Input: a Python function and the arguments of a launch. Output: as `compiled`. Law: the source that `source()` shows is
what runs; every check comes before the first write.
"""

from __future__ import annotations

import functools
import os
import sys
import types
from collections.abc import Callable
from typing import Any

import torch

from bridge import compat
from bridge.diagnostics import Diagnostic, Where, error, shortened
from frontend_triton_compat import captured, hooks
from frontend_triton_compat.arguments import Call, Signature, launch_line
from frontend_triton_compat.compat import in_graph, prepare
from frontend_triton_compat.compiled import Compiled
from frontend_triton_compat.express import Bound, Express
from frontend_triton_compat.handle import CompiledKernel
from frontend_triton_compat.language.context import active, current
from frontend_triton_compat.launch_grid import grid_of
from frontend_triton_compat.parse.executed import remember
from frontend_triton_compat.parse.source import place_of
from frontend_triton_compat.reflection import Reflection
from frontend_triton_compat.specialise import SURPRISES, Specialisations, defect, refuse_forked
from frontend_triton_compat.warmup import handle_of, launch_nothing, options_of, warm

#: Called with (kernel, grid, bound arguments) before every launch; see `record`.
observers: list[Callable[..., None]] = []


class Launcher:
    """A kernel with its grid: call it to launch."""

    __slots__ = ("grid", "kernel")

    def __init__(self, kernel: JITFunction, grid: Any):
        self.kernel, self.grid = kernel, grid

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Launch: torch tensors are written in place, and a `CompiledKernel` is returned; jax arrays come back new."""
        __tracebackhide__ = True
        try:
            return launch(self.kernel, self.grid, args, kwargs)
        except Diagnostic as problem:
            raise shortened(problem) from problem.__cause__

    def source(self, *args: Any, target: str = "cpu", **kwargs: Any) -> str:
        """See `JITFunction.source`."""
        return self.kernel.source(*args, grid=self.grid, target=target, **kwargs)

    def check(self, *args: Any, target: str = "tpu:v5e", **kwargs: Any) -> Any:
        """See `JITFunction.check`."""
        return self.kernel.check(*args, grid=self.grid, target=target, **kwargs)

    def verify(self, *args: Any, target: str = "tpu:v5e", **kwargs: Any) -> Any:
        """See `JITFunction.verify`."""
        return self.kernel.verify(*args, grid=self.grid, target=target, **kwargs)


class JITFunction(Reflection):
    """A Triton kernel: launched with ``kernel[grid](...)``, or called from another kernel.

    Attributes:
        fn: the Python function.
        arg_names: its parameters.
        pre_run_hooks: called with the arguments before every launch.

    The others are those of `Reflection`.
    """

    def __init__(self, fn: Callable[..., Any], **options: Any):
        self.fn = fn
        if options.pop("non_power_of_two", False):
            fn.__any_shape__ = True  # type: ignore[attr-defined]
        self.options = options
        self.pre_run_hooks: list[Callable[..., Any]] = []
        self._last_grid: Any = None
        functools.update_wrapper(self, fn)
        self._reflect(options)
        if isinstance(fn, types.FunctionType):
            remember(fn)

    @functools.cached_property
    def where(self) -> Where | None:
        """The ``def`` line."""
        return place_of(self.__translated__)

    @functools.cached_property
    def _signature(self) -> Signature:
        return Signature(self.fn, self.where)

    @functools.cached_property
    def _specialised(self) -> Specialisations:
        return Specialisations(self.__translated__, self.where)

    def forget(self) -> None:
        """Drop what was compiled: the next launch translates anew."""
        self._key = None
        caches = self.__dict__.pop("device_caches", None)
        for name in ("where", "_signature", "_specialised"):
            self.__dict__.pop(name, None)
        if caches is not None:
            caches[0][0].clear()

    @property
    def cache(self) -> dict[Any, Compiled | str]:
        """The specialisations so far."""
        return self._specialised.cache

    @property
    def arg_names(self) -> list[str]:
        """The parameters' names."""
        return self._signature.names

    @property
    def __globals__(self) -> dict[str, Any]:
        return self.fn.__globals__

    def __getitem__(self, grid: Any) -> Launcher:
        return Launcher(self, grid)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """In a kernel, a call of this one as a helper; elsewhere not how a kernel is launched, and says how."""
        if active():
            return current().call(self, args, kwargs)
        raise error(
            "outside-kernel",
            f"{self.fn.__name__} is a kernel and was called like a function",
            where=Where.caller(2),
            do=f"launch it over a grid of programs: {self.fn.__name__}[grid](...)",
        )

    def __repr__(self) -> str:
        return f"JITFunction({self.fn.__module__}:{self.fn.__qualname__})"

    def run(self, *args: Any, grid: Any, warmup: bool = False, **kwargs: Any) -> Any:
        """Launch over `grid`; with ``warmup=True``, only translate and compile."""
        __tracebackhide__ = True
        try:
            return warm(self, grid, args, kwargs) if warmup else launch(self, grid, args, kwargs)
        except Diagnostic as problem:
            raise shortened(problem) from problem.__cause__

    def warmup(self, *args: Any, grid: Any, **kwargs: Any) -> Any:
        """Translate and compile without running.

        Args:
            *args: the launch's arguments; a dtype of torch, a `MockTensor` or a meta tensor stands for a tensor.
            grid: the launch's grid.
            **kwargs: the launch's keyword arguments.

        Returns:
            A `CompiledKernel`.
        """
        return self.run(*args, grid=grid, warmup=True, **kwargs)

    def add_pre_run_hook(self, hook: Callable[..., Any]) -> None:
        """Call `hook` with the arguments before every launch."""
        self.pre_run_hooks.append(hook)

    # -- the launch

    def _express(self, grid: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Launch by a route that is known; otherwise, or where somebody looks on, the long way."""
        watched = hooks.active or observers or self.pre_run_hooks or compat.forked or compat.modes_are_on()
        if watched or "debug" in kwargs or self.options.get("debug") or debugging():
            return self._launch(grid, args, kwargs)
        forms = self._specialised
        express = forms.express
        if express is None or express.runtime is not forms.runtime:
            express = forms.express = Express(self._signature, forms.runtime)
        route, bound = express.find(grid, args, kwargs)
        if route is None or bound is None or forms.outside.changed():
            return self._launch(grid, args, kwargs, express, bound)
        self._last_grid = grid
        self._run(route.compiled.run_with, bound[1], bound[1])  # type: ignore[union-attr]
        return route.handle

    def _launch(
        self,
        grid: Any,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        express: Express | None = None,
        bound: Bound | None = None,
    ) -> Any:
        """Launch after every check; a launch that `express` could bind has a route there afterwards."""
        if captured.wanted(args, kwargs):
            return captured.launch_traced(self, grid, args, kwargs)
        if compat.forked:
            refuse_forked(self.where)
        for hook in self.pre_run_hooks:
            hook(*args, **kwargs)
        call = self._signature.call(args, kwargs)
        if self.options.get("debug") or kwargs.get("debug") or debugging():
            call.debug = True
            call.key.append("debug")
        # A function was called for the grid already where the launch was bound.
        sizes = grid_of(grid if bound is None else bound[0][0], call.meta, self.where)
        if 0 in sizes:
            return launch_nothing(self, call, sizes, kwargs)
        self._last_grid = grid
        for observe in observers:
            observe(self, sizes, call.meta)
        if self._specialised.outside.changed():
            self.forget()
        on_jax = self._on_jax(call)
        if hooks.active:
            return self._hooked(call, sizes, options_of(self, kwargs), on_jax)
        if on_jax:
            return self._run(self._specialised.find(call, sizes).run_jax, call)
        forms = self._specialised
        compiled = forms.route(call, sizes)
        self._run(compiled.run, call)
        handle = handle_of(self, compiled, call, options_of(self, kwargs) if kwargs else {})
        if express is not None and bound is not None and express is forms.express and express.runtime is forms.runtime:
            express.keep(bound, compiled, handle)
        return handle

    def _run(self, run: Callable[..., Any], *args: Any) -> Any:
        try:
            return run(*args)
        except Diagnostic:
            raise
        except SURPRISES as surprise:
            raise defect(self.fn.__name__, self.where, surprise) from surprise

    def _hooked(self, call: Call, sizes: tuple[int, int, int], options: dict[str, Any], on_jax: bool) -> Any:
        """A launch with the hooks of `triton.knobs.runtime` around it."""
        key, forms = hooks.key_of(self, call.params, call.meta, options), self.device_caches[0][0]
        found: list[Compiled] = []

        def make() -> CompiledKernel:
            found.append(self._specialised.find(call, sizes))
            return CompiledKernel(self, call.params, found[0].plan.kernel, options, compiled=found[0])

        handle = forms.get(key)
        if handle is None:
            handle = hooks.around_compile(self, call, key, options, False, make)
            if handle is None:
                return None
            forms[key] = handle
        compiled = found[0] if found else self._specialised.find(call, sizes)
        run = compiled.run_jax if on_jax else compiled.run
        result = hooks.around_launch(self, handle, sizes, call, lambda: self._run(run, call))
        return result if on_jax else handle

    def _on_jax(self, call: Call) -> bool:
        """Whether a launch is on jax arrays; without arrays it is not.

        Raises:
            TranslationError: on both kinds.
        """
        torch_count = sum(isinstance(a, torch.Tensor) for a in call.arrays.values())
        if 0 < torch_count < len(call.arrays):
            raise error(
                "launch-device",
                "torch tensors and jax arrays in one launch",
                where=launch_line(self.where),
                why="torch tensors are written in place, jax arrays are replaced by new ones",
                do="convert with bridge.to_torch or bridge.to_jax",
            )
        return bool(call.arrays) and not torch_count

    def _compiled(self, call: Call, grid: Any) -> Compiled:
        self._on_jax(call)
        if self._specialised.outside.changed():
            self.forget()
        return self._specialised.find(call, grid_of(grid, call.meta, self.where))

    # -- what a user asks

    def source(self, *args: Any, grid: Any = None, target: str = "cpu", **kwargs: Any) -> str:
        """The Pallas source that runs for these arguments on `target`.

        Args:
            *args: the launch's arguments; arrays may be without data (meta tensors, `pc.spec`).
            grid: the launch's grid; the last launch's when None.
            target: ``cpu`` or ``tpu:v5e`` ...
            **kwargs: the launch's keyword arguments.

        Raises:
            TranslationError: the kernel has no translation for the target.
        """
        from frontend_triton_compat.offline import translate  # imported late: brings in every emitter

        __tracebackhide__ = True
        try:
            return translate(self, args, kwargs, self._grid_or_last(grid), target).source
        except Diagnostic as problem:
            raise shortened(problem) from problem.__cause__

    def check(self, *args: Any, grid: Any = None, target: str = "tpu:v5e", **kwargs: Any) -> Any:
        """Ask the target's real compiler about the kernel, without the target.

        Args:
            *args: the launch's arguments; arrays may be without data (meta tensors, `pc.spec`).
            grid: the launch's grid; the last launch's when None.
            target: ``tpu:v5e``, ``tpu:v6e``, ``tpu:7x`` ...
            **kwargs: the launch's keyword arguments.

        Returns:
            A `frontend_triton_compat.offline.Verdict`; prints as a line.
        """
        from frontend_triton_compat.offline import check

        return check(self, args, kwargs, self._grid_or_last(grid), target)

    def verify(
        self,
        *args: Any,
        grid: Any = None,
        target: str = "tpu:v5e",
        reference: Any = None,
        rtol: float | None = None,
        atol: float | None = None,
        **kwargs: Any,
    ) -> Any:
        """Compare the kernel's form for a target with its CPU form and a reference, on copies of the arguments.

        Args:
            *args: the launch's arguments, with data; small ones, for every grid step is simulated.
            grid: the launch's grid; the last launch's when None.
            target: ``tpu:v5e`` ...
            reference: see `frontend_triton_compat.verify`.
            rtol: relative tolerance; by the tensor's dtype when None.
            atol: absolute tolerance; by the tensor's dtype when None.
            **kwargs: the launch's keyword arguments.

        Returns:
            A `frontend_triton_compat.verified.Verified`; prints as a few lines.

        Raises:
            Diagnostic: ``verify-mismatch`` with the first differing element, ``kernel-race``, or a refused kernel.
        """
        from frontend_triton_compat.verified import verify_launch  # imported late: brings in every emitter

        __tracebackhide__ = True
        try:
            return verify_launch(self, args, kwargs, self._grid_or_last(grid), target, reference, rtol, atol)
        except Diagnostic as problem:
            raise shortened(problem) from problem.__cause__

    def _grid_or_last(self, grid: Any) -> Any:
        if grid is not None:
            return grid
        if self._last_grid is None:
            raise error(
                "launch-grid",
                f"{self.fn.__name__} was not launched yet, so its grid is not known",
                where=launch_line(self.where),
                do="say it: kernel.check(..., grid=(16,)) or kernel[(16,)].check(...)",
            )
        return self._last_grid


def jit(fn: Callable[..., Any] | None = None, **options: Any) -> Any:
    """Decorator: a Python function becomes a Triton kernel.

    Args:
        fn: the function.
        **options: Triton's (``do_not_specialize``, ``noinline``, ...); accepted, without effect on the CPU.
            ``debug=True`` checks the kernel's run-time assertions.
            ``non_power_of_two=True`` is one of ours: sizes of blocks may be any, which Triton itself would refuse.
    """
    if fn is None:
        return lambda f: jit(f, **options)
    if isinstance(fn, JITFunction):
        return fn
    if not callable(fn):
        raise error(
            "bad-argument",
            f"triton.jit was given a {type(fn).__name__}",
            where=Where.caller(),
            why="a kernel is made from a Python function",
            do="decorate a function: @triton.jit above its def",
        )
    return JITFunction(fn, **options)


def debugging() -> bool:
    """Whether ``triton.knobs.runtime.debug`` or the environment asks for run-time assertions."""
    knobs = sys.modules.get("frontend_triton_compat.knobs")
    if knobs is not None:
        return bool(knobs.runtime.debug)
    return os.environ.get("TRITON_DEBUG", "0").lower() in ("1", "true", "on", "yes")


def launch(kernel: JITFunction, grid: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Launch a kernel; where torch.compile traces, the launch becomes an operator of the graph."""
    if torch.compiler.is_dynamo_compiling():
        prepare()
        return in_graph(kernel, grid, args, kwargs)
    return kernel._express(grid, args, kwargs)


compat.keep_out_of_graphs(globals(), "a Triton kernel is looked at outside of the compiled graph", ("launch",))
