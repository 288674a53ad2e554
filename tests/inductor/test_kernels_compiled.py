"""torch.compile for a TPU that is not here: the real compiler takes every kernel, and its schedule decides."""

import copy

import pytest
import torch
import torch.nn.functional as F
from tpu_cases import Net, rand

import inductor_backend


def test_every_kernel_of_forward_and_backward_compiles_offline():
    report = inductor_backend.explain(Net(), rand(33, 40), target="tpu:v5e", options={"kernels": "all"})
    assert [g.kind for g in report.graphs] == ["forward", "backward"]
    assert all(g.kernels and g.static.time_s > 0 and not g.static.refused for g in report.graphs)
    assert all(k.static.time_s > 0 and k.static.vmem_bytes for k in report.kernels)
    assert "tpu:v5e" in str(report) and "VMEM" in str(report)


def test_softmax_is_one_pass_at_the_bandwidth_of_hbm():
    report = inductor_backend.explain(lambda x: torch.softmax(x, -1), torch.zeros(8192, 4096), target="tpu:v5e")
    (kernel,) = report.kernels
    assert kernel.static.bound == "hbm"
    assert report.graphs[0].static.time_s < 1.05 * 2 * 8192 * 4096 * 4 / 819e9
    assert "pl.BlockSpec((128, 4096), lambda i: (i, 0))" in report.graphs[0].source


def test_plain_code_is_that_of_a_tpu():
    """Not the forms that a CPU needs: XLA reads twice and writes twice, with a maximum of which NaN wins."""
    report = inductor_backend.explain(
        lambda x: torch.softmax(x, -1), torch.zeros(8192, 4096), target="tpu:v5e", options={"kernels": "none"}
    )
    assert not report.kernels and report.graphs[0].static.time_s < 1.05 * 4 * 8192 * 4096 * 4 / 819e9


@pytest.mark.slow
def test_attention_beats_plain_xla_on_the_schedule():
    def attend(q, k, v):
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)

    args = [torch.zeros(1, 2, 512, 128, dtype=torch.bfloat16).requires_grad_() for _ in range(3)]
    mine, plain = (
        inductor_backend.explain(attend, *args, target="tpu:v6e", options={"kernels": kernels})
        for kernels in ("profitable", "none")
    )
    assert len(mine.kernels) == 2 and not plain.kernels
    for a, b in zip(mine.graphs, plain.graphs):
        assert a.static.time_s < b.static.time_s


def test_what_xla_does_as_well_stays_with_xla():
    report = inductor_backend.explain(lambda x: x.sum(0), torch.zeros(4, 16), target="tpu:v5e")
    assert not report.kernels and report.graphs[0].static.declined
    assert "XLA's own schedule takes" in str(report)


def test_max_autotune_is_no_slower():
    def product(x, w):
        return torch.relu(x @ w)

    args = [torch.zeros(512, 512, dtype=torch.bfloat16), torch.zeros(512, 1024, dtype=torch.bfloat16)]
    plain, tuned = (
        inductor_backend.explain(product, *args, target="tpu:v6e", options={"kernels": "all", "max_autotune": on})
        for on in (False, True)
    )
    assert tuned.graphs[0].static.time_s <= plain.graphs[0].static.time_s


def test_the_model_stays_as_it_is():
    net = Net()
    before = copy.deepcopy(net.state_dict())
    inductor_backend.explain(net, rand(33, 40), target="tpu:7x")
    assert all(torch.equal(before[k], v) for k, v in net.state_dict().items())
