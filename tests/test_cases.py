"""Public bug reports, restated as small cases (``../shared/cases``), each run through this project.

A case that waits for something not built yet stands in `WAITING` with the reason and is expected to fail, strictly.
"""

import importlib.util
import warnings
from pathlib import Path

import pytest
import torch

from bridge.diagnostics import DiagnosticNote
from tests.cases_env import env

FOLDER = Path(__file__).resolve().parents[1].parent / "shared" / "cases"
CASES = sorted(FOLDER.glob("[0-9][0-9]_*.py"))

#: Number of a case -> why it can't pass yet.
WAITING: dict[str, str] = {}


def parameters() -> list:
    out = []
    for path in CASES:
        reason = WAITING.get(path.stem[:2])
        marks = [pytest.mark.xfail(strict=True, reason=reason)] if reason else []
        out.append(pytest.param(path, id=path.stem, marks=marks))
    return out


@pytest.mark.skipif(not CASES, reason="the restated bug reports are not beside this checkout")
@pytest.mark.parametrize("path", parameters())
def test_case(path):
    spec = importlib.util.spec_from_file_location(f"case_{path.stem}", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    torch.manual_seed(0)
    with warnings.catch_warnings():
        # A note is a right answer with a remark; what a case forbids is a wrong one.
        warnings.simplefilter("ignore", DiagnosticNote)
        module.case(env)


def test_every_waiting_case_exists():
    if CASES:
        assert set(WAITING) <= {p.stem[:2] for p in CASES}
