"""The shared acceptance kernels: parsed, checked against the IR's law, interpreted, compared with torch."""

from __future__ import annotations

import pytest
import torch

from .adapter import SHARED, installed, load_file, tl

FOLDER = SHARED / "kernels"
FILES = sorted(FOLDER.glob("s[0-9][0-9]_*.py"))
pytestmark = pytest.mark.skipif(not FILES, reason="the shared kernels are not in this checkout")


def flatten(v):
    return [w for u in v for w in flatten(u)] if isinstance(v, (list, tuple)) else [v]


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.stem[:3])
def test_kernel_means_what_torch_says(path):
    torch.manual_seed(0)
    module, triton = load_file(path, f"shared_{path.stem}")
    with installed():
        actual, expected = module.run(triton, tl, torch, "cpu")
    for a, e in zip(flatten(actual), flatten(expected), strict=True):
        assert a.shape == e.shape and a.dtype == e.dtype
        torch.testing.assert_close(a.double(), e.double(), rtol=module.META["tol"], atol=module.META["tol"])
