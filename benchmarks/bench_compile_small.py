#!/usr/bin/env python
"""Compiled functions beside eager and Inductor's C++ backend, on a few small programs, in one process.

Input: backend names. Output: a table of microseconds of CPU time a call and ratios to eager. Law: backends are timed in
alternation, one thread each, results are compared with eager first. For more programs and separate processes, give the
`pallas` backend to a larger harness; this one is for a quick look while working.

    python benchmarks/bench_compile_small.py [--backends pallas,inductor] [--kernels profitable] [--rounds 15]
"""

import argparse
import statistics
import sys
import time
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import inductor_backend  # noqa: F401  (registers the backend when the distribution is not installed)


def programs():
    """name -> (function, arguments)."""
    torch.manual_seed(0)
    rn = torch.randn
    mlp = nn.Sequential(nn.Linear(256, 1024), nn.GELU(), nn.Linear(1024, 256)).eval()
    conv = nn.Sequential(nn.Conv2d(16, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU()).eval()
    norm = nn.LayerNorm(768)
    return {
        "tiny_add": (lambda a, b: a + b * 2, (rn(16), rn(16))),
        "pointwise": (lambda x, y: torch.where(x > 0, x.sigmoid() * y, (-x.abs()).exp()), (rn(512, 512), rn(512, 512))),
        "softmax": (lambda x: F.softmax(x, -1), (rn(512, 1024),)),
        "layernorm": (lambda x, r: norm(x + r), (rn(512, 768), rn(512, 768))),
        "cross_entropy": (F.cross_entropy, (rn(256, 1000), torch.randint(0, 1000, (256,)))),
        "mlp": (mlp, (rn(128, 256),)),
        "conv_bn_relu": (conv, (rn(4, 16, 32, 32),)),
    }


def sample(call, arguments, inner):
    start = time.process_time()
    for _ in range(inner):
        call(*arguments)
    return (time.process_time() - start) / inner


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--backends", default="pallas")
    parser.add_argument("--kernels", default="profitable", choices=["profitable", "all", "none"])
    parser.add_argument("--rounds", type=int, default=15)
    args = parser.parse_args()
    torch.set_num_threads(1)
    backends = args.backends.split(",")
    print(f"{'program':16s}{'eager':>10s}" + "".join(f"{b:>22s}" for b in backends))
    ratios = {b: [] for b in backends}
    with torch.no_grad():
        for name, (fn, arguments) in programs().items():
            calls = {"eager": fn}
            for b in backends:
                options = {"kernels": args.kernels} if b == "pallas" else None
                calls[b] = torch.compile(fn, backend=b, dynamic=False, options=options)
                torch.testing.assert_close(calls[b](*arguments), fn(*arguments), rtol=1e-3, atol=1e-4)
            inner = max(3, min(1000, int(2e-3 / max(sample(fn, arguments, 3), 1e-6))))
            times = {b: [] for b in calls}
            for _ in range(args.rounds):
                for b, call in calls.items():
                    times[b].append(sample(call, arguments, inner))
            middle = {b: statistics.median(t) * 1e6 for b, t in times.items()}
            row = f"{name:16s}{middle['eager']:8.0f}us"
            for b in backends:
                ratios[b].append(middle[b] / middle["eager"])
                row += f"{middle[b]:12.0f}us x{ratios[b][-1]:6.2f}"
            print(row, flush=True)
    for b in backends:
        print(f"geometric mean, {b}: x{statistics.geometric_mean(ratios[b]):.2f} eager")


if __name__ == "__main__":
    main()
