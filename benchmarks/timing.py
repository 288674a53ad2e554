"""Timing and tables for the benchmarks: medians after a warm-up, one thread, CPU time unless asked otherwise."""

import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any


def clock() -> Callable[[], float]:
    """`time.process_time`, or `time.perf_counter` under ``BENCH_CLOCK=wall``."""
    name = os.environ.get("BENCH_CLOCK", "cpu")
    if name not in ("cpu", "wall"):
        raise SystemExit(f"BENCH_CLOCK is cpu or wall, not {name!r}")
    return time.process_time if name == "cpu" else time.perf_counter


def one_thread() -> None:
    """Hold XLA (before jax is imported) to one thread; torch is held by `torch.set_num_threads` in the caller."""
    if "jax" in sys.modules:
        raise SystemExit("one_thread() comes before jax is imported")
    flags = os.environ.get("XLA_FLAGS", "")
    os.environ["XLA_FLAGS"] = f"{flags} --xla_cpu_multi_thread_eigen=false".strip()


def seconds(function: Callable[[], Any], budget: float = 1.0, calls: int = 1, at_least: int = 5) -> float:
    """Median seconds of one call.

    Args:
        function: what to time; its first call is a warm-up.
        budget: seconds to spend.
        calls: calls a sample, for what is too short to time alone.
        at_least: samples, whatever the budget.
    """
    function()
    now, samples, end = clock(), [], time.perf_counter() + budget
    while len(samples) < at_least or (time.perf_counter() < end and len(samples) < 200):
        start = now()
        for _ in range(calls):
            function()
        samples.append((now() - start) / calls)
    return statistics.median(samples)


def interleaved(functions: Sequence[Callable[[], Any]], budget: float = 3.0, at_least: int = 5) -> list[float]:
    """Median seconds of several functions, timed in turn so that a busy machine slows all of them alike."""
    for function in functions:
        function()
    now, samples = clock(), [[] for _ in functions]
    end = time.perf_counter() + budget
    while len(samples[0]) < at_least or (time.perf_counter() < end and len(samples[0]) < 200):
        for function, into in zip(functions, samples):
            start = now()
            function()
            into.append(now() - start)
    return [statistics.median(s) for s in samples]


def progress(text: str) -> None:
    """A line that rewrites itself on a terminal; nothing elsewhere."""
    if sys.stderr.isatty():
        print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)


def table(rows: Sequence[dict[str, Any]], columns: dict[str, str]) -> str:
    """Rows as aligned text.

    Args:
        rows: one dict a row; a missing or None value prints as a dash.
        columns: key -> format of its numbers.
    """

    def cell(row: dict[str, Any], key: str, form: str) -> str:
        value = row.get(key)
        return "–" if value is None else value if isinstance(value, str) else format(value, form)

    cells = [list(columns)] + [[cell(r, k, f) for k, f in columns.items()] for r in rows]
    widths = [max(len(line[i]) for line in cells) for i in range(len(columns))]
    lines = []
    for line in cells:
        first, rest = line[0].ljust(widths[0]), [c.rjust(w) for c, w in zip(line[1:], widths[1:])]
        lines.append("  ".join([first, *rest]))
    return "\n".join(lines)


def write_json(path: str | None, rows: Sequence[dict[str, Any]]) -> None:
    """Keep the rows, when a path is given."""
    if path:
        Path(path).write_text(json.dumps(list(rows), indent=1) + "\n")
