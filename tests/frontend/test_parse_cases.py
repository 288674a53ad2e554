"""The public bug reports about kernels (41 to 56): parsed and interpreted."""

from __future__ import annotations

import types
from contextlib import contextmanager

import pytest
import torch

from bridge.diagnostics import Diagnostic

from .adapter import SHARED, cdiv, jit, load_file, tl

FILES = sorted([*(SHARED / "cases").glob("4*.py"), *(SHARED / "cases").glob("5*.py")])
pytestmark = pytest.mark.skipif(not FILES, reason="the shared cases are not in this checkout")


def launch(kernel, grid, *args, **constexprs):
    kernel.launch(grid, *args, **constexprs)


@contextmanager
def diagnoses(slug, mentions=()):
    with pytest.raises(Diagnostic) as caught:
        yield
    assert caught.value.slug == slug and all(m in str(caught.value) for m in mentions)


def outcome(thunk, slug):
    try:
        return "value", thunk()
    except Diagnostic as problem:
        assert problem.slug == slug and problem.where is not None
        return "diagnostic", problem


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.stem[:2])
def test_case(path):
    module, _ = load_file(path, f"case_{path.stem}")
    env = types.SimpleNamespace(
        torch=torch, tl=tl, jit=jit, cdiv=cdiv, launch=launch, outcome=outcome, diagnoses=diagnoses
    )
    module.case(env)
