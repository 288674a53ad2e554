"""`triton.testing`: time a function, compare arrays, tabulate a benchmark.

Input: functions and arrays. Output: milliseconds, an `AssertionError`, a printed table. Law: times are wall-clock times
of finished work; figures that only a GPU has are a diagnostic, not a guess.
Source of the names: the public ``triton.testing`` documentation.
"""

from __future__ import annotations

import importlib
import math
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
import torch

from bridge.diagnostics import Where, error
from frontend_triton_compat.absent import no_meaning

_MODES: dict[str, Callable[[list[float]], Any]] = {
    "min": min,
    "max": max,
    "mean": statistics.mean,
    "median": statistics.median,
    "all": list,
}
#: How often at most a function is called to measure it, however short it is.
_MOST = 10_000


def do_bench(
    fn: Callable[[], Any],
    warmup: float = 25,
    rep: float = 100,
    grad_to_none: Sequence[torch.Tensor] | None = None,
    quantiles: Sequence[float] | None = None,
    return_mode: str = "mean",
) -> Any:
    """Time of a call, in milliseconds.

    Args:
        fn: the function; jax arrays that it returns are waited for.
        warmup: milliseconds of calls before the measurement.
        rep: milliseconds of calls that are measured.
        grad_to_none: tensors whose ``grad`` is dropped before every call.
        quantiles: return these quantiles: a number for one, a list for several.
        return_mode: without `quantiles`: ``mean``, ``median``, ``min``, ``max`` or ``all``.

    Raises:
        Diagnostic: another `return_mode`, or a quantile outside of 0 to 1.
    """
    if return_mode not in _MODES:
        raise error(
            "bad-argument",
            f"return_mode={return_mode!r}",
            where=Where.caller(),
            why="it says which number stands for all the measurements.",
            do=f"name one of: {', '.join(_MODES)}",
        )
    if quantiles is not None and not all(0 <= q <= 1 for q in quantiles):
        raise error(
            "bad-argument",
            f"quantiles={list(quantiles)}",
            where=Where.caller(),
            why="a quantile is the share of measurements that took no longer.",
            do="a quantile is between 0 and 1: quantiles=[0.5, 0.2, 0.8]",
        )

    def once() -> float:
        for t in grad_to_none or ():
            t.grad = None
        start = time.perf_counter()
        jax.block_until_ready(fn())
        return (time.perf_counter() - start) * 1e3

    once()  # compiles
    estimate = max(min(once(), once()), 1e-4)
    for _ in range(min(_MOST, int(warmup / estimate))):
        once()
    times = [once() for _ in range(max(1, min(_MOST, int(rep / estimate))))]
    if quantiles is not None:
        found = [float(q) for q in np.quantile(times, list(quantiles))]
        return found[0] if len(found) == 1 else found
    return _MODES[return_mode](times)


def do_bench_cudagraph(
    fn: Callable[[], Any],
    rep: float = 20,
    grad_to_none: Sequence[torch.Tensor] | None = None,
    quantiles: Sequence[float] | None = None,
    return_mode: str = "mean",
) -> Any:
    """See `do_bench`: on the CPU there are no graphs to capture."""
    return do_bench(fn, rep=rep, grad_to_none=grad_to_none, quantiles=quantiles, return_mode=return_mode)


def assert_close(x: Any, y: Any, atol: Any = None, rtol: Any = None, err_msg: str = "") -> None:
    """Compare two arrays elementwise; NaN equals NaN.

    Args:
        x: tensor, array, list or number.
        y: what it should be.
        atol: absolute tolerance, or a function of the dtype; 0.01 when None.
        rtol: relative tolerance, or a function of the dtype; 0 when None.
        err_msg: begins the message.

    Raises:
        AssertionError: they differ.
    """
    kind = x.dtype if isinstance(x, torch.Tensor) else None
    absolute: Any = 1e-2 if atol is None else atol(kind) if callable(atol) else atol
    relative: Any = 0.0 if rtol is None else rtol(kind) if callable(rtol) else rtol
    np.testing.assert_allclose(
        _as_numpy(x), _as_numpy(y), rtol=relative, atol=absolute, equal_nan=True, err_msg=err_msg
    )


def _as_numpy(value: Any) -> np.ndarray:
    if isinstance(value, torch.Tensor):
        value = value.detach().cpu()
        if value.dtype == torch.bfloat16 or (value.dtype.itemsize == 1 and value.dtype.is_floating_point):
            value = value.float()
        return value.numpy()
    array = np.asarray(value)
    return array.astype(np.float32) if array.dtype.kind == "V" else array


class Benchmark:
    """What `perf_report` measures.

    Attributes:
        x_names: parameters of the function that take the x value (all the same one, or one each of a tuple).
        x_vals: the x values.
        line_arg, line_vals, line_names: parameter that tells the columns apart, its values, their titles.
        plot_name: title of the table.
        args: further arguments.
    """

    def __init__(
        self,
        x_names: Sequence[str],
        x_vals: Sequence[Any],
        line_arg: str,
        line_vals: Sequence[Any],
        line_names: Sequence[str],
        plot_name: str,
        args: dict[str, Any],
        xlabel: str = "",
        ylabel: str = "",
        x_log: bool = False,
        y_log: bool = False,
        styles: Any = None,
    ):
        self.x_names, self.x_vals = list(x_names), list(x_vals)
        self.line_arg, self.line_vals, self.line_names = line_arg, list(line_vals), list(line_names)
        self.plot_name, self.args = plot_name, dict(args)
        self.xlabel, self.ylabel, self.x_log, self.y_log, self.styles = xlabel, ylabel, x_log, y_log, styles


class Mark:
    """A function with its benchmarks; `run` measures them."""

    def __init__(self, fn: Callable[..., Any], benchmarks: Benchmark | Sequence[Benchmark]):
        self.fn = fn
        self.benchmarks = benchmarks

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The function itself."""
        return self.fn(*args, **kwargs)

    def run(
        self,
        show_plots: bool = False,
        print_data: bool = False,
        save_path: str = "",
        return_df: bool = False,
        diff_col: bool = False,
        save_precision: int = 6,
        **kwargs: Any,
    ) -> Any:
        """Measure.

        Args:
            show_plots: accepted; tables are what there is.
            print_data: print each table.
            save_path: folder that gets one ``.csv`` a table.
            return_df: return the tables (a list, or the only one): data frames where pandas is installed, else dicts of
                columns.
            diff_col: a further column with the difference of two lines.
            save_precision: digits behind the point in files.
            **kwargs: further arguments of the function.
        """
        several = not isinstance(self.benchmarks, Benchmark)
        tables = []
        for bench in self.benchmarks if several else [self.benchmarks]:  # type: ignore[union-attr]
            table = self._measure(bench, kwargs)
            if diff_col and len(bench.line_names) == 2:
                one, other = list(table)[-2:]
                table["Diff"] = [b - a for a, b in zip(table[one], table[other])]
            tables.append(table)
            if print_data or show_plots:
                print(f"{bench.plot_name}:\n{format_table(table)}")
            if save_path:
                folder = Path(save_path)
                folder.mkdir(parents=True, exist_ok=True)
                digits = lambda v: f"{v:.{save_precision}f}" if isinstance(v, float) else str(v)
                lines = [",".join(table), *(",".join(map(digits, row)) for row in zip(*table.values()))]
                (folder / f"{bench.plot_name}.csv").write_text("\n".join(lines) + "\n")
        if return_df:
            frames = [_frame(table) for table in tables]
            return frames if several else frames[0]
        return None

    def _measure(self, bench: Benchmark, kwargs: dict[str, Any]) -> dict[str, list[Any]]:
        titles = [f"{name} ({bench.ylabel})" if bench.ylabel else name for name in bench.line_names]
        table: dict[str, list[Any]] = {name: [] for name in (*bench.x_names, *titles)}
        for x in bench.x_vals:
            values = list(x) if isinstance(x, tuple | list) else [x] * len(bench.x_names)
            if len(values) != len(bench.x_names):
                raise error(
                    "bad-argument",
                    f"x value {x!r} for {len(bench.x_names)} names",
                    where=Where.of_function(self.fn),
                    why="x_vals holds the values of all x_names for one row of the table.",
                    do=f"give one value for each of {', '.join(bench.x_names)}",
                )
            named = dict(zip(bench.x_names, values))
            for name, value in named.items():
                table[name].append(value)
            for line, title in zip(bench.line_vals, titles):
                found = self.fn(**named, **{bench.line_arg: line}, **bench.args, **kwargs)
                table[title].append(found[0] if isinstance(found, tuple | list) else found)
        return table


def _frame(table: dict[str, list[Any]]) -> Any:
    """A table as a data frame of pandas, where that is installed."""
    try:
        pandas = importlib.import_module("pandas")
    except ImportError:
        return table
    return pandas.DataFrame(table)


def format_table(table: dict[str, list[Any]]) -> str:
    """Columns as text, right-aligned."""

    def cell(value: Any) -> str:
        return f"{value:.6g}" if isinstance(value, float) and math.isfinite(value) else str(value)

    columns = [[name, *map(cell, values)] for name, values in table.items()]
    widths = [max(map(len, column)) for column in columns]
    return "\n".join("  ".join(c.rjust(w) for c, w in zip(row, widths)) for row in zip(*columns))


def perf_report(benchmarks: Benchmark | Sequence[Benchmark]) -> Callable[[Callable[..., Any]], Mark]:
    """Decorator: a function of the benchmark's names, which returns a time or (time, low, high), becomes a `Mark`."""
    return lambda fn: Mark(fn, benchmarks)


def cuda_memcheck(**target_kwargs: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorator: accepted, without effect."""
    return lambda fn: fn


def get_dram_gbps(device: Any = None) -> float:
    """A GPU's memory bandwidth: a diagnostic here."""
    raise no_meaning("triton.testing.get_dram_gbps")


def get_max_tensorcore_tflops(dtype: Any = None, clock_rate: Any = None, device: Any = None) -> float:
    """A GPU's peak rate: a diagnostic here."""
    raise no_meaning("triton.testing.get_max_tensorcore_tflops")


def get_max_simd_tflops(dtype: Any = None, clock_rate: Any = None, device: Any = None) -> float:
    """A GPU's peak rate: a diagnostic here."""
    raise no_meaning("triton.testing.get_max_simd_tflops")


def nvsmi(attrs: Any = None) -> list[int]:
    """A GPU's state: a diagnostic here."""
    raise no_meaning("triton.testing.nvsmi")


def set_gpu_clock(ref_sm_clock: int = 1350, ref_mem_clock: int = 1215) -> Any:
    """A GPU's clocks: a diagnostic here."""
    raise no_meaning("triton.testing.set_gpu_clock")


__all__ = ["Benchmark", "Mark", "assert_close", "do_bench", "do_bench_cudagraph", "perf_report"]
