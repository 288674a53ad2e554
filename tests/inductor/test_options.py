"""Options and modes: what is accepted, and what a bad one says."""

import pytest
import torch
from tpu_cases import rand

from bridge.diagnostics import Diagnostic


@pytest.mark.parametrize("mode", ["reduce-overhead", "max-autotune-no-cudagraphs"])
def test_modes_without_a_meaning_are_refused(mode):
    with pytest.raises(Diagnostic, match="TPB404"):
        torch.compile(lambda x: x + 1, backend="pallas", mode=mode)(rand(3))


def test_max_autotune_is_a_mode_and_pallas_is_listed():
    assert torch.equal(torch.compile(lambda x: x + 1, backend="pallas", mode="max-autotune")(rand(3)), rand(3) + 1)
    assert "pallas" in torch._dynamo.list_backends()
    with pytest.raises(Diagnostic, match="TPB404"):
        torch.compile(lambda x: x + 1, backend="pallas", options={"max_autotune": "yes"})(rand(3))


def test_a_gpu_is_no_target():
    f = torch.compile(lambda x: x + 1, backend="pallas", options={"target": "gpu:sm90a"})
    with pytest.raises(Diagnostic, match="unknown-target"):
        f(rand(3))
