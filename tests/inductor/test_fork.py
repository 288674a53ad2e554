"""Compiled functions in a forked process: what is compiled runs, what is not is refused at once."""

import subprocess
import sys

import pytest

PROGRAM = """
import os, signal, sys, warnings
warnings.simplefilter("ignore")
import torch
import inductor_backend
from bridge.diagnostics import Diagnostic

torch.set_num_threads(int(sys.argv[1]))
x, square, large = torch.randn(16), torch.randn(64, 64), torch.randn(600, 600)
pointwise, product, network = lambda x: x * 2 + 1, lambda x: (x @ x).relu(), lambda x: (x @ x).sin().softmax(-1)
cases = [(torch.compile(f, backend="pallas"), f, a) for f, a in ((pointwise, x), (product, square), (network, large))]
for compiled, _, a in cases:
    compiled(a)
if not os.fork():
    signal.alarm(60)
    for compiled, f, a in cases:
        torch.testing.assert_close(compiled(a), f(a), rtol=1e-3, atol=1e-3)
    try:
        torch.compile(lambda x: x.cos(), backend="pallas")(x)
    except Diagnostic as refused:
        os._exit(7 if refused.slug == "forked-process" else 1)
    os._exit(2)
child = os.waitstatus_to_exitcode(os.wait()[1])
torch.testing.assert_close(cases[0][0](x), pointwise(x))
sys.exit(child)
"""


@pytest.mark.parametrize("threads", [1, 2])
def test_a_forked_process_runs_what_is_compiled_and_refuses_the_rest(threads):
    done = subprocess.run([sys.executable, "-c", PROGRAM, str(threads)], capture_output=True, text=True, timeout=240)
    assert done.returncode == 7, done.stderr[-2000:]
