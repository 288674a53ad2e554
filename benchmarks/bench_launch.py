"""What a call costs when there is next to nothing to compute: launches, hand-overs, pallas_call, compiled graphs.

Microseconds of one warm call on small tensors, one thread; CPU time, or wall time under ``BENCH_CLOCK=wall``. The last
column is the ratio to the closest thing without us: eager torch, or a jitted call on jax arrays.
"""

import argparse
import itertools
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

import timing

timing.one_thread()

import jax  # noqa: E402  (after the flags)
import jax.numpy as jnp  # noqa: E402
import torch  # noqa: E402

import bridge  # noqa: E402
import frontend_triton_compat as triton  # noqa: E402
import frontend_triton_compat.language as tl  # noqa: E402
import pallas_core as pc  # noqa: E402


@triton.jit
def fused(out, x, y, z, BLOCK: tl.constexpr):
    """Three tensors in, one out."""
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i) * tl.load(y + i) + tl.load(z + i))


@triton.jit
def fill(out, BLOCK: tl.constexpr):
    """One tensor, doubled."""
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(out + i) * 0.5)


def add_kernel(x_ref, y_ref, o_ref):
    """The sum of two blocks."""
    o_ref[...] = x_ref[...] + y_ref[...]


def fresh(launch: Any, count: int) -> Any:
    """A call of `launch` on tensors that it has not seen for long: `count` of them, out of many."""
    pool = [[torch.randn(1024) for _ in range(count)] for _ in range(600)]
    turn = itertools.cycle(pool)
    return lambda: launch(*next(turn))


def first_launch() -> None:
    """In a process of its own: milliseconds of CPU of a first launch, as the last line."""
    x, y, z, out = (torch.randn(1024) for _ in range(4))
    fused[(4,)].source(out, x, y, z, BLOCK=128)  # what a process loads once is not counted
    start = time.process_time()
    fused[(4,)](out, x, y, z, BLOCK=256)
    print((time.process_time() - start) * 1e3)


def two_processes() -> list[float]:
    """Milliseconds of a first launch in a process that compiles, and in the next, which finds the program on disk."""
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "TORCH_PALLAS_CACHE_DIR": folder, "TORCH_PALLAS_CACHE": "1"}
        command = [sys.executable, __file__, "--first-launch"]
        done = [subprocess.run(command, env=environment, capture_output=True, text=True, check=True) for _ in range(2)]
    return [float(d.stdout.splitlines()[-1]) for d in done]


def micro(function: Any) -> float:
    """Microseconds of one call."""
    return timing.seconds(function, budget=1.0, calls=200) * 1e6


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", metavar="FILE", help="keep the rows")
    parser.add_argument("--first-launch", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.first_launch:
        first_launch()
        return
    size = 1024
    x, y, z, out = (torch.randn(size) for _ in range(4))
    launch = fused[(4,)]
    call = pc.pallas_call(add_kernel, out_shape=pc.like(x))
    a, b, c = (bridge.to_jax(t) for t in (x, y, z))
    jitted = jax.jit(lambda a, b, c: a * b + c)
    jitted_add = jax.jit(jnp.add)
    compiled = torch.compile(lambda x, y, z: x * y + z, backend="pallas")
    eager = torch.compile(lambda x, y, z: x * y + z, backend="eager")

    launch(out, x, y, z, BLOCK=256)
    torch.testing.assert_close(out, x * y + z)
    torch.testing.assert_close(call(x, y), x + y)
    torch.testing.assert_close(compiled(x, y, z), x * y + z)

    measured = [
        ("eager torch, x * y + z", lambda: x * y + z, ""),
        ("jitted jax, a * b + c, waited for", lambda: jitted(a, b, c).block_until_ready(), ""),
        ("jitted jax, a + b, waited for", lambda: jitted_add(a, b).block_until_ready(), ""),
        ("Dynamo alone (backend='eager')", lambda: eager(x, y, z), "eager torch, x * y + z"),
        ("Triton launch, 4 tensors", lambda: launch(out, x, y, z, BLOCK=256), "jitted jax, a * b + c, waited for"),
        ("Triton launch, 4 fresh tensors", fresh(lambda *a: launch(*a, BLOCK=256), 4), "Triton launch, 4 tensors"),
        ("Triton launch, 1 tensor", lambda: fill[(4,)](out, BLOCK=256), ""),
        ("Triton launch, 1 fresh tensor", fresh(lambda a: fill[(4,)](a, BLOCK=256), 1), "Triton launch, 1 tensor"),
        (
            "Triton launch, 3 + 1 jax arrays",
            lambda: launch(a, a, b, c, BLOCK=256).block_until_ready(),
            "jitted jax, a * b + c, waited for",
        ),
        ("pallas_call, 2 tensors", lambda: call(x, y), "jitted jax, a + b, waited for"),
        ("pallas_call, 2 jax arrays", lambda: call(a, b).block_until_ready(), "jitted jax, a + b, waited for"),
        ("torch.compile(backend='pallas')", lambda: compiled(x, y, z), "Dynamo alone (backend='eager')"),
        ("bridge.to_jax, shared", lambda: bridge.to_jax(x), ""),
        ("jax.dlpack.from_dlpack", lambda: jax.dlpack.from_dlpack(x), ""),
        ("bridge.to_torch, read-only", lambda: bridge.to_torch(a), ""),
        ("bridge.to_torch, mutable", lambda: bridge.to_torch(a, mutable=True), ""),
        ("torch.from_dlpack", lambda: torch.from_dlpack(a), ""),
    ]
    rows: list[dict[str, Any]] = []
    for name, function, base in measured:
        timing.progress(name)
        took = micro(function)
        known = {r["call"]: r["us"] for r in rows}
        rows.append({"call": name, "us": took, "over": took / known[base] if base else None, "base": base or None})
    timing.progress("")
    print(f"tensors of {size} float32, one thread, {os.environ.get('BENCH_CLOCK', 'cpu')} time\n")
    print(timing.table(rows, {"call": "", "us": ".1f", "over": ".2f", "base": ""}))
    cold, kept = two_processes()
    print(f"\nfirst launch of a kernel, ms of CPU: {cold:.0f} compiled, {kept:.0f} found on disk by the next process")
    timing.write_json(options.json, [*rows, {"call": "first launch, ms", "cold": cold, "kept": kept}])


if __name__ == "__main__":
    main()
