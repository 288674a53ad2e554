"""Control flow in compiled functions: jitted, and as in eager, forward and backward."""

import itertools

import pytest
import torch
from inductor_checks import same
from torch._higher_order_ops import associative_scan, scan, while_loop
from torch._higher_order_ops import map as map_
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

import inductor_backend
from bridge.diagnostics import Diagnostic, DiagnosticNote, strict

X = torch.linspace(-1.0, 2.0, 12).reshape(4, 3)
W = torch.linspace(1.0, -0.7, 9).reshape(3, 3)


@torch.compiler.nested_compile_region
def region(x, w):
    return (x @ w).sin()


def nested(x, w):
    inner = lambda x: torch.cond(x.max() > 1, lambda x: x[torch.tensor([3, 0, 1, 2])], lambda x: x * 2, (x,))
    return torch.cond(x.sum() > 0, inner, lambda x: x.cos(), (x,))


def cell(state, row):
    state = torch.tanh(state + row)
    return state * 0.9, (state * row).sum(-1, keepdim=True)


PROGRAMS = {
    "cond": lambda x, w: torch.cond(x.sum() > 0, lambda x, w: (x @ w).sin(), lambda x, w: (x @ w).exp(), (x, w)),
    "cond with several results": lambda x, w: torch.cond(
        x.sum() > 0, lambda x: (x.sin(), x.sum(0)), lambda x: (x.exp(), x.amax(0)), (x,)
    ),
    "cond in cond": nested,
    "captured": lambda x, w: torch.cond(x.sum() > 0, lambda x: x @ w, lambda x: (x @ w) * 2, (x,)),
    "scan": lambda x, w: scan(lambda c, y: (c + y, (c * y).sin() @ w), torch.zeros(3), x),
    "scan, reversed": lambda x, w: scan(lambda c, y: (c + y, c * y), torch.zeros(3), x, reverse=True),
    "scan of a tree": lambda x, w: scan(
        lambda c, y: ({"a": c["a"] * 0.5 + y[0]}, (c["a"] @ w, y[1] * 1.5)), {"a": torch.zeros(3)}, (x, x * 2)
    ),
    "recurrent cell": lambda x, w: scan(cell, torch.zeros(3), x @ w),
    "map": lambda x, w: map_(lambda row, w: (row @ w).sin(), x, w),
    "associative scan": lambda x, w: associative_scan(
        lambda a, b: a * b + 1e-3, x @ w, 0, combine_mode="generic"
    ),
    "associative scan of a pair": lambda x, w: associative_scan(
        lambda a, b: (a[0] * b[0], a[1] * b[0] + b[1]), (torch.sigmoid(x), x @ w), 0, combine_mode="generic"
    ),
    "regions": lambda x, w: region(x, w) + region(x * 2, w),
}  # fmt: skip

#: No gradient, or none that torch's own graphs can give with known sizes.
FORWARD = {
    "while": lambda x, w: while_loop(lambda i, y: i < 3, lambda i, y: (i + 1, (y @ w).sin()), (torch.tensor(0), x)),
    "while, never": lambda x, w: while_loop(lambda y: y.sum() > 1e9, lambda y: (y * 2,), (x,)),
    "while on data": lambda x, w: while_loop(
        lambda y, n: y.abs().max() < 50, lambda y, n: (y * 1.5, n + 1), (x, torch.zeros((), dtype=torch.int64))
    ),
    "carries of every kind": lambda x, w: while_loop(
        lambda i, b, h, m: i.sum() < 6,
        lambda i, b, h, m: (i + 1, ~b, h * 0.5 + m.bfloat16(), m / 3),
        (torch.zeros(2, dtype=torch.int64), x > 0, x.bfloat16(), x.half()),
    ),
    "int8 and complex": lambda x, w: scan(
        lambda c, y: ((c[0] * 3, c[1] * 1j), y * 2), (torch.tensor(5, dtype=torch.int8), torch.tensor(1 + 2j)), x
    ),
    "an index": lambda x, w: while_loop(
        lambda i, y: i < 3, lambda i, y: (i + 1, y + x.index_select(0, i.reshape(1))[0]), (torch.tensor(0), x[0] * 0)
    ),
}  # fmt: skip


def compiled(f, **kw):
    return torch.compile(f, backend="pallas", fullgraph=True, **kw)


def assert_one_function(emitted):
    assert emitted and all(len(a.sources) == 1 and all(n.op == "get_attr" for n in a.plan.aten) for a in emitted)


@pytest.mark.parametrize("sign", [1, -1], ids=["one way", "the other"])
@pytest.mark.parametrize("f", [*PROGRAMS.values(), *FORWARD.values()], ids=[*PROGRAMS, *FORWARD])
def test_forward(f, sign, emitted):
    x = X * sign
    with strict():
        got = compiled(f)(x, W)
    same(got, f(x, W), rtol=1e-5, atol=1e-6)
    assert_one_function(emitted)


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")  # torch's scan, in eager
@pytest.mark.parametrize("sign", [1, -1], ids=["one way", "the other"])
@pytest.mark.parametrize("f", PROGRAMS.values(), ids=PROGRAMS)
def test_backward(f, sign, emitted):
    def run(f):
        x, w = (X * sign).requires_grad_(), W.clone().requires_grad_()
        results = torch.utils._pytree.tree_leaves(f(x, w))
        sum(r.sin().sum() for r in results).backward()
        # A gradient that is known to be zero may be left out.
        return results, [torch.zeros_like(t) if t.grad is None else t.grad for t in (x, w)]

    with strict():
        got = run(compiled(f))
    same(got, run(f), rtol=1e-5, atol=1e-6)
    assert len(emitted) == 2
    assert_one_function(emitted)


@pytest.mark.parametrize("name", ["cond", "scan", "map"])
def test_sizes_that_vary(name, emitted):
    f = PROGRAMS[name]
    g = compiled(f, dynamic=True)
    graphs = inductor_backend.compile_count()
    with strict():
        for rows in (4, 7, 9):
            x = torch.linspace(-1, 2, rows * 3).reshape(rows, 3)
            same(g(x, W), f(x, W), rtol=1e-5, atol=1e-6)
    assert inductor_backend.compile_count() == graphs + 1
    assert_one_function(emitted)


def test_a_size_decides():
    f = lambda x: torch.cond(x.shape[0] > 5, lambda x: x.sin(), lambda x: x + x.shape[0], (x,))
    g = compiled(f, dynamic=True)
    with strict():
        for rows in (4, 7):
            same(g(torch.ones(rows, 3)), torch.ones(rows, 3).sin() if rows > 5 else torch.ones(rows, 3) + rows)


@pytest.mark.parametrize("step", ["cond", "scan", "while"])
def test_an_index_out_of_range_inside_is_refused(step):
    table = torch.arange(5.0)

    def f(i):
        if step == "cond":
            return torch.cond(i.sum() > 0, lambda i: table[i], lambda i: i + 0.0, (i,))
        if step == "scan":
            return scan(lambda c, k: (c + table[k], c * 1), torch.zeros(1), i.unsqueeze(-1))[0]
        return while_loop(lambda k, s: (k < 1).all(), lambda k, s: (k + 1, s + table[i]), (i * 0, i + 0.0))[1]

    g = compiled(f)
    good, bad, skipped = torch.tensor([1, 4]), torch.tensor([4, 5]), torch.tensor([-1, -7])
    with strict():
        same(g(good), f(good))
        with pytest.raises(Diagnostic, match="TPB406"):
            g(bad)
        if step == "cond":  # the branch with the index is not taken
            same(g(skipped), f(skipped))


@pytest.mark.parametrize("sign", [1, -1], ids=["written", "left alone"])
def test_a_branch_writes_to_a_buffer_and_to_an_input(sign, emitted):
    class Counts(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("count", torch.zeros(3))

        def forward(self, x, seen):
            def true(x, seen):
                self.count.add_(x.sum(0))
                seen.mul_(2).add_(1)
                return x.sin()

            return torch.cond(x.sum() > 0, true, lambda x, seen: x.cos(), (x, seen)) + self.count

    mine, theirs, x = Counts(), Counts(), X * sign
    ours, eagers = torch.arange(4), torch.arange(4)
    f = compiled(mine)
    with strict(), torch.no_grad():
        for _ in range(2):
            same((f(x, ours), ours, mine.count), (theirs(x, eagers), eagers, theirs.count))
    assert_one_function(emitted)


def test_random_numbers_in_a_branch_follow_the_seed(emitted):
    f = compiled(lambda x: torch.cond(x.sum() > 0, lambda x: torch.dropout(x, 0.5, True), lambda x: x.cos(), (x,)))
    x = torch.ones(1000)
    with strict():
        torch.manual_seed(3)
        first, second = f(x), f(x)
        torch.manual_seed(3)
        same(f(x), first)
    assert not torch.equal(first, second)
    assert set(first.unique().tolist()) == {0.0, 2.0} and 400 < (first == 0).sum() < 600
    assert len(emitted[0].sources) == 1


def test_what_has_no_row_keeps_the_operator_in_aten():
    f = lambda x: torch.cond(x.sum() > 0, lambda x: torch.special.bessel_j0(x), lambda x: x.cos(), (x,))
    with pytest.warns(DiagnosticNote, match=r"TPB403(.|\n)*cond runs in ATen(.|\n)*bessel_j0"):
        got = compiled(f)(X)
    same(got, f(X))


# ---------------------------------------------------------------------------------------------- flex_attention
def heads(*shape, seed=0, dtype=torch.float32):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def dense(q, k, v, score, mask, scale=None):
    """Attention by the functions of one element, written out with broadcasts."""
    b, h, m, n = (
        torch.arange(size).reshape([-1 if d == e else 1 for e in range(4)])
        for d, size in enumerate((*q.shape[:3], k.shape[2]))
    )
    group = q.shape[1] // k.shape[1]
    k, v = (t.repeat_interleave(group, 1) for t in (k, v))
    s = q.float() @ k.float().transpose(-1, -2) * (q.shape[-1] ** -0.5 if scale is None else scale)
    s = torch.where(mask(b, h, m, n), score(s, b, h, m, n), -torch.inf)
    p = torch.where((s == -torch.inf).all(-1, keepdim=True), 0.0, torch.softmax(s, -1))
    return p.to(q.dtype) @ v


SLOPES = torch.tensor([0.5, 0.25])
SCORES = {
    "plain": lambda s, b, h, i, j: s,
    "alibi": lambda s, b, h, i, j: s + SLOPES[h] * (j - i),
    "soft cap": lambda s, b, h, i, j: 5 * torch.tanh(s / 5),
}
MASKS = {
    "all": lambda b, h, i, j: i * 0 == j * 0,
    "causal": lambda b, h, i, j: i >= j,
    "window": lambda b, h, i, j: (i >= j) & (i - j < 3),
    "rows of nothing": lambda b, h, i, j: (i > 1) & (j <= i),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["f32", "bf16"])
@pytest.mark.parametrize(("score", "mask"), list(itertools.product(SCORES, MASKS)))
def test_flex_attention(score, mask, dtype, emitted):
    q, k, v = (heads(2, 2, 10, 8, seed=i, dtype=dtype) for i in range(3))
    blocks = create_block_mask(MASKS[mask], None, None, 10, 10, device="cpu")
    f = lambda q, k, v: flex_attention(q, k, v, score_mod=SCORES[score], block_mask=blocks)
    with strict():
        got = compiled(f)(q, k, v)
    tolerance = {} if dtype == torch.bfloat16 else {"rtol": 1e-5, "atol": 1e-6}
    same(got, dense(q, k, v, SCORES[score], MASKS[mask]), **tolerance)
    assert_one_function(emitted)


def test_flex_attention_with_fewer_heads_of_keys_and_any_length(emitted):
    f = lambda q, k, v: flex_attention(q, k, v, score_mod=SCORES["alibi"], enable_gqa=True)
    g = compiled(f, dynamic=True)
    score = lambda s, b, h, i, j: s + SLOPES[h % 2] * (j - i)
    f = lambda q, k, v: flex_attention(q, k, v, score_mod=score, enable_gqa=True)
    g = compiled(f, dynamic=True)
    graphs = inductor_backend.compile_count()
    with strict():
        for n in (6, 9, 12):
            q, k, v = heads(2, 4, n, 8), heads(2, 2, n + 3, 8, seed=1), heads(2, 2, n + 3, 8, seed=2)
            same(g(q, k, v), dense(q, k, v, score, MASKS["all"]), rtol=1e-5, atol=1e-6)
    assert inductor_backend.compile_count() == graphs + 1
    assert_one_function(emitted)


def test_a_learned_bias_of_flex_attention_has_its_gradient(emitted):
    q, k, v = (heads(2, 2, 10, 8, seed=i) for i in range(3))
    blocks = create_block_mask(MASKS["causal"], None, None, 10, 10, device="cpu")

    def run(attend):
        bias = heads(2, 10, seed=5).requires_grad_()
        out = attend(q, k, v, lambda s, b, h, i, j: torch.tanh(s) * 2 + bias[h, j])
        out.sin().sum().backward()
        return out, bias.grad

    attend = lambda q, k, v, score: flex_attention(q, k, v, score_mod=score, block_mask=blocks)
    with strict():
        got = run(compiled(attend))
    same(got, run(lambda q, k, v, score: dense(q, k, v, score, MASKS["causal"])), rtol=1e-4, atol=1e-5)
    assert len(emitted) == 2
    assert_one_function(emitted)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["f32", "bf16"])
@pytest.mark.parametrize("groups", [1, 2])
def test_every_gradient_of_flex_attention(groups, dtype, emitted):
    """The public function refuses gradients of queries on the CPU; its operator has them."""
    from torch._higher_order_ops.flex_attention import flex_attention as operator

    given = [
        heads(2, 4, 10, 8, dtype=dtype),
        *(heads(2, 4 // groups, 14, 8, seed=i, dtype=dtype) for i in (1, 2)),
        heads(4, 14, seed=3),
    ]
    mask = lambda b, h, i, j: i + 4 >= j
    blocks = create_block_mask(mask, None, None, 10, 14, device="cpu").as_tuple()
    kernel = {"PRESCALE_QK": False, "ROWS_GUARANTEED_SAFE": False, "BLOCKS_ARE_CONTIGUOUS": False, "WRITE_DQ": True}
    kernel |= {"OUTPUT_LOGSUMEXP": True, "OUTPUT_MAX": False, "BACKEND": "AUTO"}

    def attend(q, k, v, bias):
        score = lambda s, b, h, i, j: torch.tanh(s) + bias[h, j]
        return operator(q, k, v, score, (*blocks[:-1], mask), 0.3, kernel)[0]

    def run(f):
        inputs = [t.clone().requires_grad_() for t in given]
        out = f(*inputs)
        out.float().sin().sum().backward()
        return [out, *(t.grad for t in inputs)]

    score = lambda bias: lambda s, b, h, i, j: torch.tanh(s) + bias[h, j]
    want = run(lambda q, k, v, bias: dense(q, k, v, score(bias), mask, scale=0.3))
    with strict():
        got = run(compiled(attend))
    tolerance = {"rtol": 2e-2, "atol": 2e-2} if dtype == torch.bfloat16 else {"rtol": 1e-5, "atol": 1e-5}
    same(got, want, **tolerance)
    assert len(emitted) == 2
    assert_one_function(emitted)


# --------------------------------------------------------------------------------------------------------- a TPU
ON_A_TPU = ["cond in cond", "scan", "map", "while", "carries of every kind", "an index", "regions"]


@pytest.mark.parametrize("name", ON_A_TPU)
def test_values_of_the_form_for_a_tpu(name, interpreted):
    f = (PROGRAMS | FORWARD)[name]
    got = compiled(f, options={"target": "tpu:v5e", "kernels": "all"})(X, W)
    same(got, f(X, W), rtol=1e-5, atol=1e-6)


def test_flex_attention_on_a_tpu_is_one_kernel(interpreted, emitted):
    q, k, v = (heads(1, 2, 64, 16, seed=i) for i in range(3))
    blocks = create_block_mask(MASKS["causal"], None, None, 64, 64, device="cpu")
    f = lambda q, k, v: flex_attention(q, k, v, score_mod=SCORES["alibi"], block_mask=blocks)
    got = compiled(f, options={"target": "tpu:v5e", "kernels": "all"})(q, k, v)
    same(got, dense(q, k, v, SCORES["alibi"], MASKS["causal"]), rtol=1e-5, atol=1e-6)
    assert sum("dot" in kernel or "mm" in kernel for kernel in emitted[0].sources[0].kernels) == 1


def test_a_loop_that_leaves_32_bits_is_refused_on_a_tpu(interpreted):
    f = lambda n: while_loop(lambda i, n: i < 40, lambda i, n: (i + 1, n * 2), (torch.tensor(0), n))
    g = compiled(f, options={"target": "tpu:v5e"})
    with pytest.raises(Diagnostic, match="TPB425"):
        g(torch.tensor([1]))
    same(g(torch.tensor([0])), f(torch.tensor([0])))


@pytest.mark.slow
@pytest.mark.parametrize("name", [*PROGRAMS, *FORWARD])
def test_it_compiles_for_a_tpu(name):
    f, grad = (PROGRAMS | FORWARD)[name], name in PROGRAMS
    x, w = X.clone().requires_grad_(grad), W.clone().requires_grad_(grad)
    report = inductor_backend.explain(f, x, w, target="tpu:v5e", options={"kernels": "all"})
    assert not report.fallbacks and all(g.static is not None for g in report.graphs)


def test_explain_says_what_dynamo_leaves_to_eager():
    """A graph that PyTorch can't take apart is no graph of ours, and the report says so."""
    turn = lambda i, y: (i + 1, y * 2)

    def repeated(x):
        return while_loop(lambda i, y: i < 3, turn, (torch.tensor(0), x))[1].sum()

    report = inductor_backend.explain(repeated, torch.ones(3, requires_grad=True))
    assert not report.graphs and report.given_up
    assert "left to eager: DataDependentOutputException" in str(report)


def test_the_note_of_an_operator_with_effects_names_the_operator():
    """Torch wraps operators that check their results."""
    report = inductor_backend.explain(torch.linalg.inv, torch.eye(3))
    assert [f.operator for f in report.fallbacks] == ["aten._linalg_check_errors.default"]


@pytest.mark.parametrize("nonlinear", [torch.tanh, torch.sigmoid, torch.exp, torch.relu])
def test_gradients_of_a_scan_whose_results_its_derivative_needs(nonlinear):
    """Torch saves such a result under a second name, and refuses the scan because the two share memory."""
    cell = lambda h, x: (nonlinear(h @ weight + x), h * 2)
    weight = torch.eye(4) * 0.1
    generator = torch.Generator().manual_seed(0)
    leaves = [torch.randn(s, generator=generator).requires_grad_() for s in ((3, 4), (6, 3, 4))]
    torch._dynamo.reset()
    results = []
    for run in (torch.compile(lambda h, xs: scan(cell, h, xs), backend="pallas"), lambda h, xs: scan(cell, h, xs)):
        last, kept = run(*leaves)
        results.append((last, kept, *torch.autograd.grad(last.sum() + kept.sum(), leaves)))
    for got, want in zip(*results, strict=True):
        torch.testing.assert_close(got, want)
