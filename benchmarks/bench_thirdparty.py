"""Operators of packages from PyPI on the CPU: our launches against eager torch doing the same mathematics.

Rows of `tests/thirdparty` that name a large size, in float32: the forward pass, and both passes together, host code of
the package and the write of the results included, timed in turn with the row's formula. One thread; CPU time, or wall
time under ``BENCH_CLOCK=wall``. The packages have to be on the path.
"""

import argparse
import math
import re
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "tests" / "thirdparty"), str(HERE.parent)]

import timing  # noqa: E402  (found beside this file)

timing.one_thread()

import run  # noqa: E402  (installs the shim)
import table  # noqa: E402
import torch  # noqa: E402


def prepared(row: table.Row) -> tuple[list[Any], list[Any]]:
    """The inputs for the package, and for the formula, both in float32."""
    values = row.large(table.Draw(0)) if row.large else ()
    sides: list[list[Any]] = [[], []]
    for i, value in enumerate(values):
        for side in sides:
            if isinstance(value, torch.Tensor):
                wanted = value.is_floating_point() and row.grad and i not in row.constant
                side.append(value.detach().clone().requires_grad_(wanted))
            else:
                side.append(value)
    return sides[0], sides[1]


def both_passes(function: Any, inputs: list[Any], cotangents: list[torch.Tensor]) -> None:
    """Forward and backward."""
    outputs = [t for t in table.tensors(function(*inputs)) if t is not None and t.requires_grad][: len(cotangents)]
    leaves = [t for t in inputs if isinstance(t, torch.Tensor) and t.requires_grad]
    torch.autograd.grad(outputs, leaves, [c.clone() for c in cotangents], allow_unused=True)


def measure(row: table.Row, budget: float) -> dict[str, Any]:
    """One line of the table."""
    module = run.importlib.import_module(row.module)
    mine, theirs = prepared(row)
    ours = lambda *inputs: row.call(module, *inputs)
    wanted = [t for t in table.tensors(row.reference(*theirs)) if t is not None]
    cotangents = [torch.randn_like(t) for t in wanted if t.requires_grad]
    line: dict[str, Any] = {"row": row.name}
    with torch.no_grad():
        fast, slow = timing.interleaved([lambda: ours(*mine), lambda: row.reference(*theirs)], budget)
    line |= {"forward ms": fast * 1e3, "x eager": fast / slow}
    if row.grad:
        fast, slow = timing.interleaved(
            [lambda: both_passes(ours, mine, cotangents), lambda: both_passes(row.reference, theirs, cotangents)],
            budget,
        )
        line |= {"both ms": fast * 1e3, "both x eager": fast / slow}
    return line


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--package", choices=list(run.PACKAGES), action="append")
    parser.add_argument("--only", default="", help="rows whose name matches this regular expression")
    parser.add_argument("--budget", type=float, default=2.0, help="seconds a measurement")
    parser.add_argument("--json", help="keep the numbers in this file")
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    lines: list[dict[str, Any]] = []
    for package in options.package or [p for p in run.PACKAGES if run.available(p)]:
        for row in run.rows_of(package):
            if row.large is None or not re.search(options.only, row.name):
                continue
            try:
                lines.append(measure(row, options.budget))
            except Exception as stopped:
                print(f"{row.name}: {type(stopped).__name__}: {str(stopped).splitlines()[0]}")
                continue
            print({k: round(v, 2) if isinstance(v, float) else v for k, v in lines[-1].items()}, flush=True)
    columns = {"row": "", "forward ms": ".1f", "x eager": ".2f", "both ms": ".1f", "both x eager": ".2f"}
    print(timing.table(lines, columns))
    ratios = [line[key] for line in lines for key in ("x eager", "both x eager") if line.get(key)]
    if ratios:
        print(f"geomean {math.exp(sum(map(math.log, ratios)) / len(ratios)):.2f}, worst {max(ratios):.2f}")
    timing.write_json(options.json, lines)


if __name__ == "__main__":
    main()
