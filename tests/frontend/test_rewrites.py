"""Atomics that are reductions over programs: the diagnostic prints the kernel without them, and it is right."""

import importlib.util

import pytest
import torch

import frontend_triton_compat as triton
import frontend_triton_compat.language as tl
from bridge.diagnostics import TranslationError
from frontend_triton_compat.measure import copy_arguments
from tests.frontend import atomic_kernels

LAUNCHES = list(atomic_kernels.launches())
HEAD = "import frontend_triton_compat as triton\nimport frontend_triton_compat.language as tl\n\n\n"


def refusal(kernel, args, meta, grid, target="tpu:v5e"):
    with pytest.raises(TranslationError) as refused:
        kernel[grid].source(*args, target=target, **meta)
    return refused.value


def code_of(remedy):
    """The kernel and the lines around its launch, of a remedy."""
    lines = [line[4:] for line in remedy.split("\n") if line.startswith("    ") or not line.strip()]
    kernel, _, around = "\n".join(lines).partition("# in place of the launch:\n")
    return kernel, around


def imported(text, folder):
    path = folder / "suggested.py"
    path.write_text(HEAD + text)
    spec = importlib.util.spec_from_file_location("suggested", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name,kernel,args,meta,grid", LAUNCHES, ids=[x[0] for x in LAUNCHES])
def test_the_suggested_kernel_gives_what_the_atomics_give(name, kernel, args, meta, grid, tmp_path):
    target = "gpu:sm90a" if name == "norm-backward" else "tpu:v5e"  # a TPU adds up beside stores
    problem = refusal(kernel, args, meta, grid, target)
    assert problem.slug in ("atomic-add", "atomic-other") and "tl.atomic_" in problem.where.text()
    text, around = code_of(problem.do[0])
    assert "atomic" not in text and around and str(problem).count("@triton.jit") == 1
    module = imported(text, tmp_path)

    named = kernel._signature.bind(args, meta)
    by_atomics, by_copies = copy_arguments(named), copy_arguments(named)
    kernel[grid](**by_atomics)
    fn = kernel.fn.__name__
    exec(around, {"torch": torch, fn: getattr(module, fn), **by_copies})  # our own text
    for key, value in by_atomics.items():
        if isinstance(value, torch.Tensor):
            torch.testing.assert_close(by_copies[key], value, rtol=1e-5, atol=1e-5)
    assert any(isinstance(v, torch.Tensor) and not torch.equal(v, named[key]) for key, v in by_copies.items()), (
        "the launch does nothing"
    )


@pytest.mark.parametrize(
    "kernel,args,meta,grid", list(atomic_kernels.apart()), ids=lambda v: getattr(v, "__name__", "")
)
def test_programs_that_do_not_meet_load_and_store(kernel, args, meta, grid, tmp_path):
    text, around = code_of(refusal(kernel, args, meta, grid).do[0])
    assert not around and "atomic" not in text
    module = imported(text, tmp_path)
    named = kernel._signature.bind(args, meta)
    by_atomics, by_stores = copy_arguments(named), copy_arguments(named)
    kernel[grid](**by_atomics)
    getattr(module, kernel.fn.__name__)[grid](**by_stores)
    torch.testing.assert_close(by_stores["out"], by_atomics["out"])
    assert not torch.equal(by_stores["out"], named["out"])


class Asked:
    """In place of a kernel: keeps what it is launched with."""

    def __getitem__(self, grid):
        self.grid = grid
        return self

    def __call__(self, *args, **kwargs):
        self.args, self.kwargs = args, kwargs


def suggested(name, folder):
    """A kernel that is suggested, and its launch."""
    kernel, args, meta, grid = next(rest for first, *rest in LAUNCHES if first == name)
    text, around = code_of(refusal(kernel, args, meta, grid).do[0])
    asked = Asked()
    exec(around, {"torch": torch, kernel.fn.__name__: asked, **kernel._signature.bind(args, meta)})  # our own text
    return getattr(imported(text, folder), kernel.fn.__name__)[asked.grid], asked


def few_by_default(names, few):
    return [pytest.param(n, marks=() if n in few else pytest.mark.slow) for n in names]


@pytest.mark.parametrize("name", few_by_default([x[0] for x in LAUNCHES], ("weighted", "column-max", "row-sums")))
def test_the_suggested_kernel_is_right_on_a_tpu(name, tmp_path):
    launch, asked = suggested(name, tmp_path)
    assert launch.verify(*asked.args, **asked.kwargs).races is False


@pytest.mark.tpu_offline
@pytest.mark.parametrize("name", few_by_default([x[0] for x in LAUNCHES], ("elements", "column-max")))
def test_the_compiler_takes_the_suggested_kernel(name, tmp_path):
    pytest.importorskip("libtpu")
    launch, asked = suggested(name, tmp_path)
    verdict = launch.check(*asked.args, **asked.kwargs)
    assert verdict.verdict == "ok", str(verdict)


def test_programs_that_share_a_copy_do_not_meet():
    """Tiles by axis 0 need no copies; where several programs update one part, all of them have one."""
    by_name = {name: rest for name, *rest in LAUNCHES}
    assert "the 3 programs along it" in refusal(*by_name["split-k"]).do[0]
    assert "axis 1 of the grid" in refusal(*by_name["split-k"]).do[0]
    assert "the 12 programs along it" in refusal(*by_name["groups"]).do[0]
    assert "axis 1 of the grid" in refusal(*by_name["row-sums"]).do[0]


@pytest.mark.parametrize(
    "kernel,args,meta,grid", list(atomic_kernels.refused()), ids=lambda v: getattr(v, "__name__", "")
)
def test_atomics_that_are_more_get_no_kernel(kernel, args, meta, grid):
    problem = refusal(kernel, args, meta, grid)
    assert problem.slug in ("atomic-add", "atomic-other") and "@triton.jit" not in str(problem) and problem.do


@triton.jit
def count_if(x, out, n, flag, BLOCK: tl.constexpr = 64):
    """A parameter with a default, a condition, a comment."""
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + i, mask=i < n, other=0)
    if flag > 0:
        tl.atomic_add(out, tl.sum(v, axis=0))  # how many


def test_defaults_conditions_and_comments_stay(tmp_path):
    x, out = torch.ones(300, dtype=torch.int32), torch.zeros(1, dtype=torch.int32)
    text, around = code_of(refusal(count_if, (x, out, 300, 1), {}, (5,)).do[0])
    assert "def count_if(x, out, n, flag, out_size, BLOCK: tl.constexpr = 64):" in text and "# how many" in text
    module = imported(text, tmp_path)
    exec(around, {"torch": torch, "count_if": module.count_if, "x": x, "out": out, "n": 300, "flag": 1})
    assert out.item() == 300


@triton.jit
def lookup(x, index, o, n, BLOCK: tl.constexpr):
    k = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    j = tl.load(index + k, mask=k < n, other=0)
    v = tl.load(
        x + j,
        mask=j > 3,
        other=-1.0,
    )
    tl.store(o + k, v * 2, mask=k < n)


def test_a_gather_from_a_small_tensor_runs_as_comparisons():
    x, index = torch.randn(100), torch.randint(0, 100, (300,), dtype=torch.int32)
    found = lookup[(3,)].verify(
        x, index, torch.empty(300), 300, BLOCK=128, target="tpu:v5e",
        reference=lambda x, index: torch.where(index > 3, x[index.long()], -1.0) * 2,
    )  # fmt: skip
    assert found.outputs[0].written == 300 and found.max_error == 0.0


@triton.jit
def scatter(x, index, o, BLOCK: tl.constexpr):
    k = tl.arange(0, BLOCK)
    tl.store(o + tl.load(index + k), tl.load(x + k))


@triton.jit
def scatter_pairs(x, index, o, BLOCK: tl.constexpr):
    row, k = tl.program_id(0), tl.arange(0, BLOCK)
    tl.store(o + tl.load(index + row) + 2 * k, tl.load(x + row * BLOCK + k))


@triton.jit
def from_somewhere(x, index, o, BLOCK: tl.constexpr):
    start, k = tl.load(index), tl.arange(0, BLOCK)
    tl.store(o + k, tl.load(x + start + 2 * k))


@triton.jit
def last(x, index, o, BLOCK: tl.constexpr):
    k = tl.arange(0, BLOCK)
    tl.store(o + k, tl.load(x + tl.program_id(0) * BLOCK + k))


@pytest.mark.parametrize(
    ("kernel", "slug", "said"),
    [
        (scatter, "indirect-access", "turn it round"),
        (scatter_pairs, "indirect-access", "argsort"),
        (from_somewhere, "indirect-access", "start.item()"),
        (last, "store-conflict", "row for each"),
    ],
)
def test_every_reason_has_its_code_and_a_remedy_of_its_own(kernel, slug, said):
    x, index = torch.randn(8, 128), torch.randperm(128)[:128].int() % 8
    problem = refusal(kernel, (x, index, torch.empty(8, 128)), {"BLOCK": 128}, (8,))
    assert problem.slug == slug and said in " ".join(problem.do)
