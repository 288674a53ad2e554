"""Kernels in other processes and threads: forked, spawned, at once."""

from __future__ import annotations

import subprocess
import sys
import textwrap
import threading

import pytest
import torch

import frontend_triton_compat as triton
import frontend_triton_compat.language as tl

SCRIPT = """
    import multiprocessing, sys, warnings
    warnings.simplefilter("ignore")  # jax warns of forks
    import torch
    import frontend_triton_compat as triton
    import frontend_triton_compat.language as tl

    @triton.jit
    def times(a, o, B: tl.constexpr):
        i = tl.arange(0, B)
        tl.store(o + i, tl.load(a + i) * 777)

    def work(n):
        a, o = torch.arange(float(n)), torch.zeros(n)
        times[(1,)](a, o, B=n)
        assert torch.equal(o, a * 777)
        print("right", n, flush=True)

    def ask(n):
        meta = torch.empty(n, device="meta")
        assert "pallas_call" in times.source(meta, meta, grid=(1,), B=n)

    if __name__ == "__main__":
        method, warm = sys.argv[1], sys.argv[2] == "warm"
        if warm:
            work(32)
        context = multiprocessing.get_context(method)
        for target in (work, ask):
            process = context.Process(target=target, args=(64,))
            process.start()
            process.join(60)
            print(target.__name__, process.exitcode, flush=True)
            if process.exitcode is None:
                process.kill()
"""


@pytest.mark.parametrize(
    ("method", "parent"), [("fork", "cold"), ("fork", "warm"), pytest.param("spawn", "warm", marks=pytest.mark.slow)]
)
def test_a_child_works_or_says_why_not(method, parent, tmp_path):
    path = tmp_path / "script.py"
    path.write_text(textwrap.dedent(SCRIPT))
    done = subprocess.run([sys.executable, path, method, parent], capture_output=True, text=True, timeout=240)
    lines = done.stdout.splitlines()
    if (method, parent) == ("fork", "warm"):
        assert lines == ["right 32", "work 1", "ask 1"], done.stderr
        assert done.stderr.count("TPB276") >= 2 and "script.py" in done.stderr
    else:
        first = ["right 32"] if parent == "warm" else []
        assert lines == [*first, "right 64", "work 0", "ask 0"], done.stderr


def test_threads_that_launch_at_once():
    @triton.jit
    def times(a, o, n, B: tl.constexpr):
        i = tl.arange(0, B)
        tl.store(o + i, tl.load(a + i, mask=i < n) * n, mask=i < n)

    wrong: list = []

    def work(number):
        for size in (16, 32, 64):
            for n in (size, size - number, 1):
                a, o = torch.arange(float(size)), torch.zeros(size)
                times[(1,)](a, o, n, B=size)
                expected = torch.where(torch.arange(size) < n, a * n, 0.0)
                if not torch.equal(o, expected):
                    wrong.append((number, size, n))

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
