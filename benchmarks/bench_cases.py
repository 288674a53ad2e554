"""Every acceptance kernel on the CPU: against eager torch at real sizes, against Triton's interpreter, and in memory.

The kernels are files of their own, in a directory given on the command line, one a form (elementwise, softmax, norms,
rope, losses, matmul, attention, gathers, scans, atomics, ...). Three figures, of one run. ``x eager``: our launch over
the same maths in eager torch, results written back, timed in turn. ``x faster``: the same kernel, unchanged, under
``TRITON_INTERPRET=1`` in a process of its own at a size that both finish. ``peak MiB``: the peak of one launch above
what was there, beside inputs and outputs. Every result is first held against eager. One thread; CPU time, or wall time
under ``BENCH_CLOCK=wall``.
"""

import argparse
import importlib.util
import json
import math
import os
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

import timing  # noqa: E402  (found beside this file)


@dataclass
class Workload:
    """One launch to time.

    Attributes:
        name: what is printed.
        launch: our launch.
        eager: the same maths in torch; returns what `outs` should hold.
        outs: the tensors that the launch writes.
        tolerance: largest difference to eager, relative to 1 + |value|.
        tensors: inputs and outputs.
        fresh: puts in-place arguments back before a check, or None.
    """

    name: str
    launch: Callable[[], Any]
    eager: Callable[[], Any]
    outs: list[Any]
    tolerance: float
    tensors: list[Any]
    fresh: Callable[[], Any] | None = None


def load(directory: Path, name: str) -> Any:
    """The module of one case file, e.g. ``s01``."""
    path = next(iter(sorted(directory.glob(f"{name}_*.py"))), None)
    if path is None:
        raise SystemExit(f"no {name}_*.py in {directory}")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def workloads(triton: Any, directory: Path, small: bool, only: str) -> Iterator[Workload]:
    """The cases, one by one, so that the memory of one is gone before the next."""
    for name, make in CASES.items():
        if only and only not in name:
            continue
        for workload in make(triton, load(directory, name), small):
            workload.name = f"{name} {workload.name}"
            yield workload


def _add(triton: Any, m: Any, small: bool) -> Iterator[Workload]:
    import torch

    n = 1 << 16 if small else 1 << 22
    a, b = torch.randn(n), torch.randn(n)
    c = torch.empty(n)
    grid = (triton.cdiv(n, 1024),)
    yield Workload(f"add {n}", lambda: m.add_tail[grid](a, b, c, n, TILE=1024), lambda: a + b, [c], 1e-6, [a, b, c])


def _softmax(triton: Any, m: Any, small: bool) -> Iterator[Workload]:
    import torch

    r, n = (256, 1000) if small else (4096, 4096)
    x = torch.randn(r, n)
    y = torch.empty(r, n)
    w = triton.next_power_of_2(n)
    yield Workload(
        f"softmax {r}x{n}",
        lambda: m.softmax_rows[(128,)](y, x, n, n, r, n, W=w, STAGES=2),
        lambda: torch.softmax(x, -1),
        [y],
        1e-6,
        [x, y],
    )


def _rmsnorm(triton: Any, m: Any, small: bool) -> Iterator[Workload]:
    import torch

    r, n = (256, 1000) if small else (4096, 4096)
    for dtype, tolerance in ((torch.float32, 1e-5), (torch.float16, 4e-3)):
        x, g = torch.randn(r, n).to(dtype), torch.randn(n).to(dtype)
        y, inv = torch.empty_like(x), torch.empty(r)
        w = triton.next_power_of_2(n)

        def eager(x=x, g=g, dtype=dtype):
            z = x.float()
            i = torch.rsqrt(z.square().mean(-1, keepdim=True) + 1e-5)
            return (z * i * g.float()).to(dtype), i[:, 0]

        def launch(x=x, g=g, y=y, inv=inv, w=w):
            m.rms_fwd[(r,)](y, x, g, inv, n, n, n, 1e-5, BLOCK=w)

        yield Workload(f"rmsnorm {str(dtype)[6:]}", launch, eager, [y, inv], tolerance, [x, g, y, inv])


def _rope(triton: Any, m: Any, small: bool) -> Iterator[Workload]:
    import torch

    t, h, d = (64, 8, 64) if small else (2048, 32, 128)
    q0 = torch.randn(t, h, d)
    ang = torch.rand(t, d // 2) * 6
    cos, sin = ang.cos(), ang.sin()
    q = q0.clone()

    def eager():
        a, b = q0[..., : d // 2], q0[..., d // 2 :]
        return torch.cat([a * cos[:, None] - b * sin[:, None], b * cos[:, None] + a * sin[:, None]], -1)

    yield Workload(
        "rope in place",
        lambda: m.rope[(t,)](q, cos, sin, q.stride(0), h, HEAD=d, PAD_H=h, BACKWARD=False),
        eager,
        [q],
        1e-5,
        [q, cos, sin],
        lambda: q.copy_(q0),
    )


def _swiglu(triton: Any, m: Any, small: bool) -> Iterator[Workload]:
    import torch

    r, n = (128, 1000) if small else (2048, 4096)
    g, u, dy = (torch.randn(r, n) for _ in range(3))
    y = torch.empty(r, n)
    w = triton.next_power_of_2(n)
    yield Workload(
        "swiglu forward",
        lambda: m.glu_fwd[(r,)](g, u, y, n, n, BLOCK=w),
        lambda: torch.nn.functional.silu(g) * u,
        [y],
        1e-5,
        [g, u, y],
    )
    gg, uu = g.clone(), u.clone()

    def eager():
        s = torch.sigmoid(g)
        return dy * u * (s + g * s * (1 - s)), dy * g * s

    def fresh():
        gg.copy_(g)
        uu.copy_(u)

    yield Workload(
        "swiglu backward",
        lambda: m.glu_bwd[(r,)](dy, gg, uu, n, n, BLOCK=w),
        eager,
        [gg, uu],
        1e-5,
        [dy, gg, uu],
        fresh,
    )


def _cross_entropy(triton: Any, m: Any, small: bool) -> Iterator[Workload]:
    import torch

    r, v = (32, 5000) if small else (2048, 32000)
    x = torch.randn(r, v)
    z = x.clone()
    labels = torch.randint(0, v, (r,))
    labels[3] = -100
    loss = torch.empty(r)

    def eager():
        leaf = x.detach().requires_grad_()
        value = torch.nn.functional.cross_entropy(leaf, labels, ignore_index=-100, reduction="none")
        (value.sum() * 0.25).backward()
        return value.detach(), leaf.grad

    yield Workload(
        f"cross entropy {r}x{v}",
        lambda: m.xent[(r,)](z, labels, loss, v, v, -100, 0.25, CHUNK=4096),
        eager,
        [loss, z],
        1e-5,
        [z, labels, loss],
        lambda: z.copy_(x),
    )


def _matmul(triton: Any, m: Any, small: bool) -> Iterator[Workload]:
    import torch

    n = 256 if small else 1024
    for dtype, tolerance in ((torch.float32, 2e-2), (torch.float16, 2e-2), (torch.bfloat16, 4e-1)):
        if small and dtype is torch.bfloat16:
            continue  # the interpreter has no bf16 products
        a, b = torch.randn(n, n).to(dtype), (torch.randn(n, n) / n**0.5).to(dtype)
        c = torch.empty(n, n, dtype=torch.float16)

        def launch(a=a, b=b, c=c):
            m.mm[(triton.cdiv(n, 64) ** 2,)](
                a, b, c, n, n, n, n, 1, n, 1, n, 1, BM=64, BN=64, BK=32, GROUP=8, ACT="relu"
            )

        # torch has no fast fp16 product on most CPUs: the peer is its fp32 one, rounded
        def eager(a=a, b=b, dtype=dtype):
            product = (a.float() @ b.float()) if dtype is torch.float16 else a @ b
            return torch.relu(product).to(torch.float16)

        yield Workload(f"matmul {str(dtype)[6:]}", launch, eager, [c], tolerance, [a, b, c])


def _split_k(triton: Any, m: Any, small: bool) -> Iterator[Workload]:
    import torch

    n = 128 if small else 1024
    a, b = torch.randn(n, n), torch.randn(n, n) / n**0.5
    c = torch.zeros(n, n)
    yield Workload(
        "split-K matmul, atomics",
        lambda: m.mm_splitk[((n // 64) ** 2, 4)](a, b, c, n, n, n, BM=64, BN=64, BK=32, SPLIT=4),
        lambda: a @ b,
        [c],
        1e-4,
        [a, b, c],
        lambda: c.zero_(),
    )


def _attention(triton: Any, m: Any, small: bool) -> Iterator[Workload]:
    import torch

    h, s, d = (2, 128, 32) if small else (8, 1024, 64)
    q, k, v = (torch.randn(1, h, s, d) for _ in range(3))
    o = torch.empty_like(q)
    scale = 1.44269504 / d**0.5

    def launch():
        m.attn_fwd[(triton.cdiv(s, 64), h)](q, k, v, o, q.stride(1), s, scale, BQ=64, BK=64, D=d)

    def naive():
        w = (q @ k.transpose(-1, -2)) * d**-0.5
        keep = torch.ones(s, s, dtype=torch.bool).tril()
        return torch.softmax(w.masked_fill(~keep, float("-inf")), -1) @ v

    def fused():
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)

    yield Workload("attention, naive eager", launch, naive, [o], 1e-4, [q, k, v, o])
    yield Workload("attention, fused SDPA", launch, fused, [o], 1e-4, [q, k, v, o])


def _embedding(triton: Any, m: Any, small: bool) -> Iterator[Workload]:
    import torch

    v, d, t = (1000, 300, 200) if small else (32000, 1024, 4096)
    table, ids = torch.randn(v, d), torch.randint(0, v, (t,))
    ids[3] = 4
    out = torch.empty(t, d)
    yield Workload(
        "embedding",
        lambda: m.lookup[(t, triton.cdiv(d, 256))](ids, table, out, d, 4, BLOCK=256),
        lambda: torch.where((ids == 4)[:, None], 0.0, table[ids]),
        [out],
        0,
        [table, ids, out],
    )


def _dropout(triton: Any, m: Any, small: bool) -> Iterator[Workload]:
    import torch

    n = 1 << 14 if small else 1 << 22
    x = torch.ones(n)
    y = torch.empty(n)

    def eager():
        return torch.nn.functional.dropout(x, 0.3)

    # Another generator: only the value that survives and how often it does are compared, by `mean` below.
    yield Workload(
        "dropout (mean)",
        lambda: m.drop[(triton.cdiv(n, 1024),)](x, y, n, 0.3, 20771, BLOCK=1024),
        eager,
        [y],
        math.nan,
        [x, y],
    )


def _cumsum(triton: Any, m: Any, small: bool) -> Iterator[Workload]:
    import torch

    r, n = (64, 1000) if small else (1024, 4096)
    x = torch.randn(r, n)
    y = torch.empty(r, n)
    yield Workload(
        "cumsum", lambda: m.prefix[(r,)](x, y, n, CH=512, BACK=False), lambda: x.cumsum(1), [y], 1e-4, [x, y]
    )
    yield Workload(
        "cumsum, reversed",
        lambda: m.prefix[(r,)](x, y, n, CH=512, BACK=True),
        lambda: x.flip(1).cumsum(1).flip(1),
        [y],
        1e-4,
        [x, y],
    )


def _argmax(triton: Any, m: Any, small: bool) -> Iterator[Workload]:
    import torch

    r, n = (64, 1000) if small else (1024, 8192)
    x = torch.randint(-500, 500, (r, n)).float()
    v, i = torch.empty(r), torch.empty(r, dtype=torch.int64)
    yield Workload(
        "argmax", lambda: m.row_argmax[(r,)](x, v, i, n, CH=1024), lambda: tuple(x.max(1)), [v, i], 0, [x, v, i]
    )


def _histogram(triton: Any, m: Any, small: bool) -> Iterator[Workload]:
    import torch

    n = 1 << 14 if small else 1 << 20
    x = torch.randint(0, 64, (n,), dtype=torch.int32)
    out = torch.zeros(64, dtype=torch.int32)
    yield Workload(
        "histogram, atomics",
        lambda: m.hist[(triton.cdiv(n, 1024),)](x, out, n, BINS=64, BLOCK=1024),
        lambda: torch.bincount(x, minlength=64).int(),
        [out],
        0,
        [x, out],
        lambda: out.zero_(),
    )


def _quantise(triton: Any, m: Any, small: bool) -> Iterator[Workload]:
    import torch

    r, n = (64, 1000) if small else (2048, 4096)
    x = torch.randn(r, n)
    q, s, acc = torch.empty(r, n, dtype=torch.int8), torch.empty(r), torch.empty(r, dtype=torch.int32)
    w = triton.next_power_of_2(n)

    def eager():
        scale = x.abs().max(1).values / 127.0
        t = (x / scale[:, None]).clamp(-127, 127)
        rounded = torch.where(t >= 0, torch.floor(t + 0.5), torch.ceil(t - 0.5)).to(torch.int8)
        return rounded, scale, rounded.sum(1, dtype=torch.int32)

    yield Workload(
        "int8 rows", lambda: m.quant[(r,)](x, q, s, acc, n, BLOCK=w), eager, [q, s, acc], 2e-1, [x, q, s, acc]
    )


def _ragged(triton: Any, m: Any, small: bool) -> Iterator[Workload]:
    import torch

    torch.manual_seed(1)
    lengths = torch.randint(0, 40 if small else 200, (20 if small else 256,)).tolist()
    d = 100 if small else 512
    offsets = torch.tensor([0, *torch.tensor(lengths).cumsum(0).tolist()], dtype=torch.int32)
    v = torch.randn(sum(lengths), d)
    out = torch.empty(len(lengths), d)
    yield Workload(
        "ragged mean",
        lambda: m.seg_mean[(len(lengths), triton.cdiv(d, 64))](v, offsets, out, d, BR=16, BD=64),
        lambda: torch.stack([p.mean(0) if len(p) else torch.zeros(d) for p in torch.split(v, lengths)]),
        [out],
        1e-4,
        [v, offsets, out],
    )


def _transpose(triton: Any, m: Any, small: bool) -> Iterator[Workload]:
    import torch

    n = 256 if small else 4096
    x = torch.randn(n, n)
    y = torch.empty(n, n)
    for via in (False, True):
        yield Workload(
            f"transpose via {'tl.trans' if via else 'strides'}",
            lambda via=via: m.flip_axes[(n // 64, n // 64)](x, y, n, n, n, 1, n, 1, B=64, VIA_TRANS=via),
            lambda: x.t().contiguous(),
            [y],
            0,
            [x, y],
        )


def _block_pointers(triton: Any, m: Any, small: bool) -> Iterator[Workload]:
    import torch

    n = 256 if small else 1024
    a, b = torch.randn(n, n), (torch.randn(n, n) / n**0.5).t()
    c = torch.empty(n, n)
    yield Workload(
        "block-pointer matmul",
        lambda: m.mm_bp[(n // 64, n // 64)](a, b, c, n, n, n, n, 1, 1, n, BM=64, BN=64, BK=32),
        lambda: a @ b,
        [c],
        1e-4,
        [a, b, c],
    )


def _bisect(triton: Any, m: Any, small: bool) -> Iterator[Workload]:
    import torch

    n, q = (1000, 500) if small else (1 << 16, 1 << 14)
    s, query = torch.sort(torch.randn(n)).values, torch.randn(q)
    out = torch.empty(q, dtype=torch.int32)
    yield Workload(
        "bisection",
        lambda: m.bisect[(q,)](s, query, out, n),
        lambda: torch.searchsorted(s, query).int(),
        [out],
        0,
        [s, query, out],
    )


def _standardise(triton: Any, m: Any, small: bool) -> Iterator[Workload]:
    import torch

    r, n = (256, 1000) if small else (4096, 4096)
    x, w = torch.randn(r, n), torch.randn(n)
    y = torch.empty(r, n)
    block = triton.next_power_of_2(n)

    def eager():
        centred = x - x.mean(1, keepdim=True)
        return centred / torch.sqrt(x.var(1, keepdim=True, unbiased=False) + 1e-3) * w

    yield Workload("standardise", lambda: m.standardise[(r,)](x, w, y, n, BLOCK=block), eager, [y], 1e-5, [x, w, y])


CASES: dict[str, Callable[[Any, Any, bool], Iterator[Workload]]] = {
    "s01": _add,
    "s02": _softmax,
    "s03": _rmsnorm,
    "s04": _rope,
    "s05": _swiglu,
    "s06": _cross_entropy,
    "s07": _matmul,
    "s08": _split_k,
    "s09": _attention,
    "s10": _embedding,
    "s11": _dropout,
    "s12": _cumsum,
    "s13": _argmax,
    "s14": _histogram,
    "s15": _quantise,
    "s16": _ragged,
    "s17": _transpose,
    "s18": _block_pointers,
    "s19": _bisect,
    "s20": _standardise,
}


def check(w: Workload) -> None:
    """Run once and compare with eager.

    Raises:
        SystemExit: the result is wrong; a wrong kernel is not timed.
    """
    if w.fresh:
        w.fresh()
    w.launch()
    got = [t.clone() for t in w.outs]
    expected = w.eager()
    expected = expected if isinstance(expected, tuple) else (expected,)
    for ours, truth in zip(got, expected, strict=True):
        if math.isnan(w.tolerance):
            off, allowed = abs(ours.mean() - truth.mean()).item(), 20 / len(truth) ** 0.5
        else:
            a, b = ours.double(), truth.double()
            off, allowed = ((a - b).abs() / (1 + b.abs())).max().item(), w.tolerance
        if not off <= allowed:
            raise SystemExit(f"{w.name}: off by {off:.2e}, allowed {allowed:.0e}")


def resident() -> int:
    """Bytes of this process that are in memory (Linux)."""
    with open("/proc/self/statm") as f:
        return int(f.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def peak(call: Callable[[], Any]) -> int:
    """The most bytes that a call had in memory above what was there before it."""
    before, highest, stop = resident(), [0], threading.Event()

    def watch() -> None:
        while not stop.is_set():
            highest[0] = max(highest[0], resident())
            time.sleep(0.0005)

    watcher = threading.Thread(target=watch)
    watcher.start()
    call()
    stop.set()
    watcher.join()
    return max(0, highest[0] - before)


def measure(part: str, directory: Path, only: str) -> list[dict[str, Any]]:
    """One row a workload."""
    if part == "interpreter":
        import triton
    else:
        timing.one_thread()
        from frontend_triton_compat import shim

        shim.install()
        import triton
    import torch

    from_here = {"Diagnostic": Exception}
    if part != "interpreter":
        from bridge.diagnostics import Diagnostic

        from_here["Diagnostic"] = Diagnostic
    torch.set_num_threads(1)
    rows = []
    for w in workloads(triton, directory, part != "ours", only):
        timing.progress(w.name)
        row: dict[str, Any] = {"kernel": w.name}
        rows.append(row)
        try:
            start = time.perf_counter()
            check(w)
            row["first s"] = time.perf_counter() - start
        except from_here["Diagnostic"] as refused:
            row["note"] = str(refused).splitlines()[0][:100]
            continue
        if part == "interpreter":
            row["seconds"] = timing.seconds(w.launch, budget=0.5, at_least=2)
        elif part == "ours-small":
            row["seconds"] = timing.seconds(w.launch, budget=0.5, calls=10)
        else:
            row["seconds"], row["eager"] = timing.interleaved([w.launch, w.eager], budget=2.0)
            row["io"] = sum(t.numel() * t.element_size() for t in w.tensors)
            row["peak"] = peak(w.launch)
    timing.progress("")
    return rows


def in_process(part: str, options: argparse.Namespace, **environment: str) -> list[dict[str, Any]]:
    """The same file in a process of its own."""
    command = [sys.executable, __file__, "--part", part, "--only", options.only, "--kernels", str(options.kernels)]
    done = subprocess.run(
        command, env=os.environ | environment, stdout=subprocess.PIPE, text=True, check=False, timeout=3000
    )
    if done.returncode:
        raise SystemExit(done.returncode)
    return json.loads(done.stdout.splitlines()[-1])


def geomean(values: list[float]) -> float:
    """The geometric mean; NaN of nothing."""
    return math.exp(statistics.fmean(map(math.log, values))) if values else math.nan


def main() -> None:
    """Parse, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--kernels", type=Path, required=True, metavar="DIR", help="the directory of s01_*.py ... s20_*.py"
    )
    parser.add_argument("--json", metavar="FILE", help="keep the rows")
    parser.add_argument("--only", default="", help="one case, e.g. s07")
    parser.add_argument("--no-interpreter", action="store_true", help="leave Triton's interpreter out")
    parser.add_argument("--part", choices=("ours", "ours-small", "interpreter"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.part:
        print(json.dumps(measure(options.part, options.kernels, options.only)))
        return
    big = in_process("ours", options)
    against: list[dict[str, Any]] = []
    if not options.no_interpreter:
        small = {r["kernel"]: r for r in in_process("ours-small", options)}
        for r in in_process("interpreter", options, TRITON_INTERPRET="1"):
            ours = small[r["kernel"]].get("seconds")
            row = {"kernel": r["kernel"], "interpreter ms": r["seconds"] * 1e3}
            if ours:
                row |= {"ours ms": ours * 1e3, "x faster": r["seconds"] / ours}
            against.append(row)
    rows = []
    for r in big:
        row = {"kernel": r["kernel"]} | {k: r[k] for k in ("note", "first s") if k in r}
        if "seconds" in r:
            row |= {"ours ms": r["seconds"] * 1e3, "eager ms": r["eager"] * 1e3, "x eager": r["seconds"] / r["eager"]}
            row |= {"io MiB": r["io"] / 2**20, "peak MiB": r["peak"] / 2**20}
        rows.append(row)
    print(f"one thread, {os.environ.get('BENCH_CLOCK', 'cpu')} time\n")
    columns = {"kernel": "", "ours ms": ".2f", "eager ms": ".2f", "x eager": ".3g"}
    print(timing.table(rows, columns | {"io MiB": ".0f", "peak MiB": ".0f", "first s": ".2f"}))
    ratios = [r["x eager"] for r in rows if "x eager" in r]
    print(f"\ngeomean {geomean(ratios):.3g} x eager, worst {max(ratios, default=math.nan):.3g}\n")
    for r in rows:
        if "note" in r:
            print(f"{r['kernel']}: {r['note']}")
    if against:
        print(timing.table(against, {"kernel": "", "ours ms": ".3f", "interpreter ms": ".1f", "x faster": ".0f"}))
        ratios = [r["x faster"] for r in against if "x faster" in r]
        print(
            f"\ngeomean {geomean(ratios):.0f} x faster than the interpreter, least {min(ratios, default=math.nan):.0f}"
        )
    timing.write_json(options.json, [*rows, *against])


if __name__ == "__main__":
    main()
