"""Kernels in the style of public libraries, each against an eager PyTorch reference."""

import importlib

import pytest
import torch

CASES = []
for name in ("liger", "attention", "matmul", "language", "memory"):
    module = importlib.import_module(f".corpus.{name}", __package__)
    found = [(n, f) for n, f in vars(module).items() if n.startswith("case_")]
    CASES += [pytest.param(f, id=f"{name}-{n.removeprefix('case_')}") for n, f in found]

#: Refused, with a code, for now.
REFUSED = {"memory-pointer_table": "made from an integer"}


@pytest.mark.parametrize("case", CASES)
def test_corpus(case, request):
    torch.manual_seed(1)
    slug = REFUSED.get(request.node.callspec.id)
    if slug:
        with pytest.raises(Exception, match=slug):
            case()
        return
    for got, want, *rest in case():
        tolerance = rest[0] if rest else 1e-4
        got, want = got.detach().double(), want.detach().double()
        torch.testing.assert_close(got, want, rtol=tolerance, atol=tolerance, equal_nan=True)
