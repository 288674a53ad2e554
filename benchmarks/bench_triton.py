"""Triton kernels on the CPU: ours against eager torch, and against Triton's own interpreter.

Two ratios, of one run. ``x eager``: our launch over the same maths in eager torch, at a realistic size, copies
included, timed in turn. ``x faster``: the same kernel, unchanged, under ``TRITON_INTERPRET=1`` in a process of its
own, at a size that both finish. Every result is first held against float64. One thread; CPU time, or wall time under
``BENCH_CLOCK=wall``.
"""

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

import timing  # noqa: E402  (found beside this file)


def install(interpreter: bool) -> Any:
    """The `triton` that the kernels import: the genuine interpreter, or ours."""
    if interpreter:
        import triton

        return triton
    timing.one_thread()
    from frontend_triton_compat import shim

    shim.install()
    import triton

    return triton


def workloads(
    triton: Any, small: bool, only: str
) -> Iterator[tuple[str, Callable[[], Any], Callable[[], Any], Any, Any, float]]:
    """Name, our launch, eager, output, truth in float64, tolerance."""
    import torch
    from kernels.matmul import matmul
    from kernels.rows import rms_norm, softmax

    torch.manual_seed(0)
    rows, columns = (512, 2048) if small else (4096, 4096)
    if only in "softmax":
        x = torch.randn(rows, columns)
        out = torch.empty_like(x)
        grid, width = (min(rows, 256),), triton.next_power_of_2(columns)
        yield (
            f"softmax f32 {rows}x{columns}",
            lambda: softmax[grid](out, x, columns, columns, rows, columns, WIDTH=width),
            lambda: torch.softmax(x, -1),
            out,
            torch.softmax(x.double(), -1),
            1e-6,
        )
    for dtype, tolerance in ((torch.float32, 1e-5), (torch.float16, 2e-3)):
        short = {torch.float32: "f32", torch.float16: "f16", torch.bfloat16: "bf16"}[dtype]
        if only not in f"rmsnorm {short}":
            continue
        x, gain = torch.randn(rows, columns).to(dtype), torch.randn(columns).to(dtype)
        out, scale = torch.empty_like(x), torch.empty(rows)
        width = triton.next_power_of_2(columns)

        def ours(x=x, gain=gain, out=out, scale=scale, width=width):
            rms_norm[(rows,)](out, x, gain, scale, columns, columns, columns, 1e-5, WIDTH=width)

        def eager(x=x, gain=gain, dtype=dtype):
            z = x.float()
            inverse = torch.rsqrt(z.square().mean(-1, keepdim=True) + 1e-5)
            return (z * inverse * gain.float()).to(dtype), inverse

        d = x.double()
        truth = d * torch.rsqrt(d.square().mean(-1, keepdim=True) + 1e-5) * gain.double()
        yield f"rmsnorm {short} {rows}x{columns}", ours, eager, out, truth, tolerance
    n = 256 if small else 1024
    for dtype, tolerance in ((torch.float32, 1e-5), (torch.float16, 2e-3), (torch.bfloat16, 1e-2)):
        short = {torch.float32: "f32", torch.float16: "f16", torch.bfloat16: "bf16"}[dtype]
        if only not in f"matmul {short}":
            continue
        if small and dtype is torch.bfloat16:
            continue  # Triton's interpreter has no bf16 products
        a, b = torch.randn(n, n).to(dtype), (torch.randn(n, n) / n**0.5).to(dtype)
        c = torch.empty(n, n, dtype=dtype)
        grid = (triton.cdiv(n, 64) ** 2,)

        def ours(a=a, b=b, c=c, grid=grid):
            matmul[grid](a, b, c, n, n, n, n, 1, n, 1, n, 1, BM=64, BN=64, BK=32, GROUP=8)

        yield f"matmul {short} {n}^3", ours, lambda a=a, b=b: a @ b, c, a.double() @ b.double(), tolerance


def check(name: str, launch: Callable[[], Any], out: Any, truth: Any, tolerance: float) -> None:
    """Run once and compare.

    Raises:
        SystemExit: the result is wrong; a wrong kernel is not timed.
    """
    launch()
    worst = ((out.double() - truth).abs() / (1 + truth.abs())).max().item()
    if not worst <= tolerance:
        raise SystemExit(f"{name}: off by {worst:.2e}, allowed {tolerance:.0e}")


def measure(interpreter: bool, small: bool, only: str) -> list[dict[str, Any]]:
    """One row a workload: seconds of the launch, and of eager."""
    triton = install(interpreter)
    import torch

    torch.set_num_threads(1)
    rows = []
    for name, launch, eager, out, truth, tolerance in workloads(triton, small, only):
        timing.progress(name)
        check(name, launch, out, truth, tolerance)
        if interpreter:
            rows.append({"kernel": name, "seconds": timing.seconds(launch, budget=0.5, at_least=2)})
        elif small:
            rows.append({"kernel": name, "seconds": timing.seconds(launch, budget=0.5, calls=10)})
        else:
            ours, theirs = timing.interleaved([launch, eager])
            rows.append({"kernel": name, "seconds": ours, "eager": theirs})
    timing.progress("")
    return rows


def in_process(*arguments: str, **environment: str) -> list[dict[str, Any]]:
    """The same file in a process of its own."""
    done = subprocess.run(
        [sys.executable, __file__, *arguments],
        env=os.environ | environment,
        stdout=subprocess.PIPE,
        text=True,
        check=False,
        timeout=1800,
    )
    if done.returncode:
        raise SystemExit(done.returncode)
    return json.loads(done.stdout.splitlines()[-1])


def main() -> None:
    """Parse, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", metavar="FILE", help="keep the rows")
    parser.add_argument("--only", default="", help="workloads whose name contains this, e.g. 'matmul f32'")
    parser.add_argument("--part", choices=("ours", "ours-small", "interpreter"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.part:
        rows = measure(options.part == "interpreter", options.part != "ours", options.only)
        print(json.dumps(rows))
        return
    big = in_process("--part", "ours", "--only", options.only)
    small = in_process("--part", "ours-small", "--only", options.only)
    try:
        slow = in_process("--part", "interpreter", "--only", options.only, TRITON_INTERPRET="1")
    except SystemExit:
        print("Triton's interpreter did not run (pip install triton); its column is empty", file=sys.stderr)
        slow = []
    interpreter = {r["kernel"]: r["seconds"] for r in slow}
    rows = [
        {
            "kernel": r["kernel"],
            "ours ms": r["seconds"] * 1e3,
            "eager ms": r["eager"] * 1e3,
            "x eager": r["seconds"] / r["eager"],
        }
        for r in big
    ]
    against = [
        {
            "kernel": r["kernel"],
            "ours ms": r["seconds"] * 1e3,
            "interpreter ms": interpreter[r["kernel"]] * 1e3 if r["kernel"] in interpreter else None,
            "x faster": interpreter[r["kernel"]] / r["seconds"] if r["kernel"] in interpreter else None,
        }
        for r in small
    ]
    print(f"one thread, {os.environ.get('BENCH_CLOCK', 'cpu')} time\n")
    print(timing.table(rows, {"kernel": "", "ours ms": ".2f", "eager ms": ".2f", "x eager": ".3g"}))
    print()
    print(timing.table(against, {"kernel": "", "ours ms": ".3f", "interpreter ms": ".1f", "x faster": ".0f"}))
    timing.write_json(options.json, [*rows, *against])


if __name__ == "__main__":
    main()
