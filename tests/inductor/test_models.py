"""A few real models with random weights against eager; all of them: ``python tests/inductor/models.py``."""

import copy
import importlib.util
import warnings

import models
import pytest
import torch

COMMON = ["mixtral"]


def needed(package):
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"{package} is not installed")


@pytest.fixture(autouse=True)
def quiet():
    """What the packages warn of isn't ours."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=() if n in COMMON else pytest.mark.slow, id=n) for n in models.ROWS]
)
def test_model(name):
    row = models.ROWS[name]
    needed(row.package)
    limit = models.LIMITS[torch.float32]
    outcome = models.compare(row)
    assert outcome.outputs <= limit and outcome.gradients <= limit
    assert outcome.graphs[0] <= outcome.graphs[1]
    # Which of equal elements a sort puts first only ATen knows (tokens sorted by expert).
    assert not [f for f in outcome.fallbacks if not f.startswith("aten.sort.default")]


@pytest.mark.slow
@pytest.mark.parametrize("whole", [False, True], ids=["step", "compiled_step"])
def test_training_follows_eager(whole):
    needed("transformers")
    torch.manual_seed(0)
    row = models.ROWS["gpt2"]
    model = row.make().train()
    twin = copy.deepcopy(model)

    def losses(net, fn, compiled_step):
        optimizer = torch.optim.AdamW(net.parameters(), lr=3e-3)
        step = torch.compile(optimizer.step, backend="pallas") if compiled_step else optimizer.step
        seen = []
        for number in range(20):
            tokens = torch.randint(3, 99, (2, 17), generator=torch.Generator().manual_seed(number % 3))
            loss = fn(input_ids=tokens, labels=tokens).loss
            loss.backward()
            step()
            optimizer.zero_grad()
            seen.append(loss.item())
        return seen

    want = losses(model, model, False)
    got = losses(twin, torch.compile(twin, backend="pallas"), whole)
    assert want[-1] < 0.8 * want[0]
    torch.testing.assert_close(got, want, rtol=1e-4, atol=0)


def test_rows_by_group():
    """Mixtures of experts: groups of every size, none, all, and rows behind the last group."""
    from inductor_checks import check

    x, w = torch.randn(70, 16).bfloat16(), torch.randn(4, 16, 24).bfloat16()
    y = torch.randn(70, 24).bfloat16()
    for ends in ([3, 3, 40, 70], [0, 0, 0, 70], [70, 70, 70, 70], [1, 2, 3, 70]):
        ends = torch.tensor(ends, dtype=torch.int32)
        check(lambda x, w, e: torch.nn.functional.grouped_mm(x, w, offs=e), x, w, ends, rtol=2e-2, atol=2e-2)
        check(lambda x, y, e: torch.nn.functional.grouped_mm(x.t(), y, offs=e), x, y, ends, rtol=2e-2, atol=1e-1)


def test_bins():
    from inductor_checks import check

    nan, inf = float("nan"), float("inf")
    check(lambda x: (torch.histc(x, 10, -1, 1), torch.histc(x, 7, 0, 3)), torch.randn(1000))
    check(lambda x: (torch.histc(x, 12, 0, 12), torch.histc(x, 4, 0, 3)), torch.arange(12).float().repeat(3))
    check(lambda x: torch.histc(x, 10, 0, 1), torch.tensor([nan, 0.5, inf, 1.0]))
    check(lambda x: torch.histc(x, 10, 0, 1), torch.randn(0))
