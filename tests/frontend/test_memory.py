"""Memory: atomics, aliases, block pointers, descriptors; against the real Triton interpreter."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from frontend_triton_compat import shim

KERNELS = Path(__file__).parent / "memory_kernels.py"
NAMES = re.findall(r"^def (case_\w+)", KERNELS.read_text(), re.MULTILINE)


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    pytest.importorskip("triton")
    path = tmp_path_factory.mktemp("memory") / "real.pt"
    env = os.environ | {"TRITON_INTERPRET": "1"}
    done = subprocess.run([sys.executable, KERNELS, path], capture_output=True, text=True, timeout=240, env=env)
    assert done.returncode == 0, done.stderr[-3000:]
    with shim.installed(displace=True):
        spec = importlib.util.spec_from_file_location("memory_kernels_on_ours", KERNELS)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    return torch.load(path), module


@pytest.mark.parametrize("name", NAMES)
def test_memory_is_the_real_interpreters(both, name):
    real, module = both[0][name], both[1]
    ours = getattr(module, name)()
    ours = ours if isinstance(ours, list) else [ours]
    assert len(ours) == len(real)
    for i, (a, b) in enumerate(zip(ours, real)):
        assert a.dtype == b.dtype and a.shape == b.shape
        if a.dtype.is_floating_point:
            torch.testing.assert_close(
                a, b, rtol=2e-6, atol=2e-6, equal_nan=True, msg=lambda m, i=i: f"{name} {i}: {m}"
            )
        else:
            assert torch.equal(a, b), (name, i, a, b)
