"""Diagnostics come with the user's frames; ours are left out unless they are asked for or at fault."""

from __future__ import annotations

import traceback

import pytest
import torch

import frontend_triton_compat as triton
import frontend_triton_compat.language as tl
from bridge.diagnostics import Diagnostic, shortened


def broken_helper(n):
    return n["key"]


@triton.jit
def broken(x, B: tl.constexpr):
    tl.store(x, broken_helper(B))


def frames(problem):
    return [(f.filename.rsplit("/", 1)[-1], f.name) for f in traceback.extract_tb(problem.__traceback__)]


@pytest.mark.parametrize(
    "use",
    [
        lambda: broken[(1,)](torch.zeros(1), B=4),
        lambda: broken.run(torch.zeros(1), grid=(1,), B=4),
        lambda: broken.source(torch.zeros(1), grid=(1,), B=4),
        lambda: triton.autotune([triton.Config({"B": b}) for b in (1, 2)], [])(broken)[(1,)](torch.zeros(1)),
    ],
    ids="launch run source autotune".split(),
)
def test_one_frame_of_ours_is_left(use):
    with pytest.raises(Diagnostic) as caught:
        use()
    problem = caught.value
    assert problem.code == "TPB216" and isinstance(problem.__cause__, TypeError)
    mine, door = frames(problem)[:-1], frames(problem)[-1]
    assert {file for file, _ in mine} == {"test_traces.py"} and door[0] in ("launch.py", "autotune.py")
    assert frames(problem.__cause__) == [("test_traces.py", "broken_helper")]


def test_all_frames_when_they_are_asked_for(monkeypatch):
    monkeypatch.setenv("TORCH_PALLAS_TRACEBACK", "full")
    with pytest.raises(Diagnostic) as caught:
        broken[(1,)](torch.zeros(1), B=4)
    assert len(frames(caught.value)) > 8 and "inline.py" in {file for file, _ in frames(caught.value)}


def test_a_defect_of_ours_keeps_its_frames(monkeypatch):
    def fails(*args, **kwargs):
        raise AssertionError("a defect")

    monkeypatch.setattr("frontend_triton_compat.specialise.plan_for", fails)
    with pytest.raises(Diagnostic, match="TPB004") as caught:
        broken[(1,)](torch.zeros(1), B=5)
    assert "specialise.py" in {file for file, _ in frames(caught.value)}
    assert isinstance(shortened(caught.value).__cause__, AssertionError)
