"""Rows at their edges against eager: NaN, ties, empty and 0-d operands, gradients; operators on lists taken apart."""

import pytest
import torch
import torch.nn.functional as F
from inductor_checks import check

#: Where a row steps aside for ATen it says so; that is not what these tests are about.
pytestmark = [
    pytest.mark.filterwarnings("ignore::bridge.diagnostics.errors.DiagnosticNote"),
    pytest.mark.filterwarnings("ignore:.*is in beta"),
    pytest.mark.filterwarnings("ignore:The reduce argument"),
]
NAN, INF = float("nan"), float("inf")


def test_list_operators_are_one_jitted_function():
    def step(xs, ys, rate):
        total = torch._foreach_add(xs, ys, alpha=2)
        scaled = torch._foreach_div(torch._foreach_mul(total, 3.0), [1.0, 2.0])
        root = torch._foreach_sqrt(torch._foreach_abs(scaled))
        moved = torch._foreach_lerp(torch._foreach_addcdiv(root, xs, torch._foreach_exp(ys), value=-0.1), xs, 0.3)
        bounded = torch._foreach_pow(torch._foreach_maximum(moved, 0.1), 2)
        torch._foreach_mul_(xs, rate)
        return (
            bounded,
            torch._foreach_norm(bounded),
            torch._foreach_pow(2.0, bounded),
            torch._foreach_clamp_max(total, ys),
        )

    torch.manual_seed(0)
    xs, ys = [torch.randn(5, 3), torch.randn(7)], [torch.randn(5, 3), torch.randn(7)]
    check(step, xs, ys, torch.tensor(0.5))


def test_list_operators_keep_dtypes():
    def mixed(xs):
        return torch._foreach_add(xs, 1), torch._foreach_mul(xs, 2.5), torch._foreach_sqrt(xs), torch._foreach_zero_(xs)

    check(lambda xs: mixed([x.clone() for x in xs]), [torch.arange(4), torch.ones(3, dtype=torch.bfloat16)])


@pytest.mark.parametrize("dtype", [torch.int64, torch.bool, torch.bfloat16])
def test_positions_of_equal_elements_are_eagers(dtype):
    x = (torch.arange(200) * 7 % 5 - 2).to(dtype)
    check(lambda x: (torch.sort(x), torch.argsort(x, descending=True)), x, fallback=True)
    check(lambda x: torch.sort(x).values, x)
    check(lambda x: torch.sort(x, stable=True), x)


def test_positions_of_equal_numbers_in_topk():
    x = torch.arange(60).reshape(3, 20) * 7 % 5
    check(lambda x: (torch.topk(x, 6), torch.kthvalue(x, 3)), x, fallback=True)


def test_medians_with_holes():
    x = torch.tensor([[3.0, NAN, 1.0, 2.0], [5.0, 4.0, -0.0, 0.0], [NAN, NAN, 1.0, NAN]])
    check(
        lambda x: (x.median(1), x.nanmedian(1), x.median(), x.nanmedian(), x[1].median(), x.t().nanmedian(0, True)), x
    )


def test_scatter_reductions():
    x, index = torch.tensor([1.0, NAN, 3.0, INF]), torch.tensor([0, 0, 2, 0, 1])
    src = torch.tensor([5.0, NAN, -1.0, 2.0, 4.0])

    def reduce(x, index, src):
        kinds = ("sum", "prod", "mean", "amax", "amin")
        whole = [x.scatter_reduce(0, index, src, k, include_self=s) for k in kinds for s in (True, False)]
        slices = [x.index_reduce(0, index, src, k, include_self=s) for k in kinds[1:] for s in (True, False)]
        return whole, slices, x.scatter(0, index, src, reduce="add"), x.scatter(0, index, 2.0, reduce="multiply")

    check(reduce, x, index, src)
    check(reduce, torch.tensor([4, -7, 3, 9]), index, torch.tensor([5, 2, -1, 2, 4]))


def test_indexing_of_numbers():
    def scalars(x, index, src):
        return (
            x.scatter(0, index, src), x.scatter_add(0, index, src), x.scatter_reduce(0, index, src, "amax"),
            x.index_add(0, index, src), x.index_copy(0, index, src), x.index_fill(0, index, 7.0),
        )  # fmt: skip

    check(scalars, torch.tensor(2.0), torch.tensor(0), torch.tensor(5.0))


def test_fourier_transforms():
    x, z = torch.randn(3, 4, 6), torch.randn(3, 4, 5, dtype=torch.complex64)

    def transforms(x, z):
        some = [torch.fft.fftn(x, norm=n) for n in ("backward", "ortho", "forward")]
        some += [
            torch.fft.rfft2(x),
            torch.fft.irfft2(z, (4, 7)),
            torch.fft.ifft(z, dim=1, norm="ortho"),
            torch.fft.hfft(z),
        ]
        return some, torch.fft.ihfft(x), torch.fft.irfft(torch.fft.rfft(x.double()), 6)

    check(transforms, x, z, rtol=1e-5, atol=2e-5)


def test_special_functions_at_their_poles():
    x = torch.tensor([-3.0, -2.5, -7.3, -0.0, 0.0, 0.3, 1.0, 40.0, INF, NAN])
    check(lambda x: (torch.digamma(x), torch.polygamma(1, x[5:]), torch.erfinv(x / 4)), x, rtol=1e-5, atol=1e-5)
    y = torch.tensor([0.0, -0.0, INF, -INF, NAN, 3e38, -3.0, 2.0**-126])
    check(torch.frexp, y)
    a, b = torch.tensor([0.0, 0.0, 1.0, -1.0, 2.0, INF, 1.0]), torch.tensor([0.0, 1.0, 0.0, 1.0, 3.0, 1.0, INF])
    check(lambda a, b: (torch.igamma(a, b), torch.igammac(a, b)), a, b)
    check(torch.gcd, torch.tensor([0, -4, 6, 12]), torch.tensor([0, 6, -9, 0]))


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_bags_of_embeddings(mode):
    index, offsets = torch.tensor([1, 2, 3, 4, 2, 9]), torch.tensor([0, 2, 2])

    def bags(w):
        plain = F.embedding_bag(index, w, offsets, mode=mode)
        held = F.embedding_bag(index, w, offsets, mode=mode, padding_idx=2)
        return plain.sum() + (held**2).sum(), plain, held

    weight = torch.randn(10, 4)
    mine, theirs = weight.clone().requires_grad_(), weight.clone().requires_grad_()
    want, got = bags(theirs), torch.compile(bags, backend="pallas")(mine)
    want[0].backward()
    got[0].backward()
    torch.testing.assert_close([*got, mine.grad], [*want, theirs.grad])


def test_adaptive_maxima_and_their_gradient():
    x = torch.randn(2, 3, 7, 5)
    x[0, 0, 2, 2] = NAN
    x[1] = x[1].round()
    check(lambda x: F.adaptive_max_pool2d(x, (3, 2), return_indices=True), x)
    check(lambda x: F.adaptive_max_pool1d(x[0], 4, return_indices=True), x)
    for pool in (lambda x: F.adaptive_max_pool2d(x, (3, 2)), lambda x: F.max_pool3d(x, 2, 1, padding=1)):
        mine, theirs = x[1:].clone().requires_grad_(), x[1:].clone().requires_grad_()
        pool(theirs).square().sum().backward()
        torch.compile(pool, backend="pallas")(mine).square().sum().backward()
        torch.testing.assert_close(mine.grad, theirs.grad)


def test_gradient_of_a_sampled_grid():
    x, grid = torch.randn(2, 3, 4, 5), torch.rand(2, 6, 3, 2) * 3 - 1.5

    def sample(x, grid):
        kinds = [("bilinear", "zeros", False), ("bilinear", "border", True), ("bilinear", "reflection", False)]
        kinds.append(("nearest", "zeros", True))
        return sum((F.grid_sample(x, grid, m, p, a) * (i + 1)).sum() for i, (m, p, a) in enumerate(kinds))

    mine = [x.clone().requires_grad_(), grid.clone().requires_grad_()]
    theirs = [x.clone().requires_grad_(), grid.clone().requires_grad_()]
    sample(*theirs).backward()
    torch.compile(sample, backend="pallas")(*mine).backward()
    torch.testing.assert_close([t.grad for t in mine], [t.grad for t in theirs], rtol=1e-4, atol=1e-4)


def test_linear_algebra_and_its_gradients():
    a = torch.randn(3, 4, 4) + 2 * torch.eye(4)
    b = torch.randn(3, 4, 2)

    def algebra(a, b):
        triangle = torch.linalg.solve_triangular(a.tril(), b, upper=False)
        turned = torch.linalg.det(a.mT) + torch.linalg.slogdet(a)[1]
        return triangle.sum() + turned.sum() + torch.linalg.solve(a, b).square().sum() + torch.linalg.inv(a).sum()

    mine, theirs = [t.clone().requires_grad_() for t in (a, b)], [t.clone().requires_grad_() for t in (a, b)]
    want, got = algebra(*theirs), torch.compile(algebra, backend="pallas")(*mine)
    want.backward()
    got.backward()
    torch.testing.assert_close([got, *(t.grad for t in mine)], [want, *(t.grad for t in theirs)], rtol=1e-3, atol=1e-3)


def test_refusals_are_eagers():
    with pytest.raises(RuntimeError, match="shape"):
        torch.compile(lambda x, i, s: x.index_add(0, i, s), backend="pallas")(
            torch.zeros(3, 2), torch.tensor([0, 1]), torch.zeros(2)
        )


def test_signs_of_zeros():
    x = torch.tensor([0.0, -0.0, 1.0, -1.0, NAN]).repeat(20)

    def signs(x):
        kinds = (
            torch.relu(x), x.clamp(min=0), x.clamp(min=-0.0), x.clamp(max=-0.0), x.clamp(0, 1), F.relu6(x),
            F.hardtanh(x, 0, 1), torch.sign(x), torch.trunc(x * 0.5), torch.round(x * 0.4), x + 0.0, x - 0.0,
            -x, x * 0.0, x.clamp(min=NAN), x.clamp(2.0, 1.0),
        )  # fmt: skip
        return [torch.signbit(k) for k in kinds], kinds

    check(signs, x)


@pytest.mark.parametrize("dtype", [torch.int64, torch.uint8, torch.int8])
def test_whole_numbers_between_two(dtype):
    """Eager drops the fractions of the ends first and steps in double precision."""

    def between(start):
        ends = ((4.3, 50, 50), (0, 7, 71), (0.9, 100.9, 1), (20, 3, 2), (0, 1, 0))
        numbers = [torch.linspace(a, b, n, dtype=dtype) for a, b, n in ends]
        return numbers, torch.linspace(start, 7, 71, dtype=dtype)

    check(between, torch.tensor(0.7), fallback=True)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_rounded_where_eager_rounds_it(dtype):
    def steps(x, y, p):
        divided = [torch.div(x, y, rounding_mode=how) for how in ("trunc", "floor")]
        divided += [torch.div(x, 0.3, rounding_mode=how) for how in ("trunc", "floor")]
        sums = [x.cumsum(0), x.cumsum(1), (x / 8).cumprod(1), x.logcumsumexp(1)]
        return (
            divided, x // y, x // 0.3, sums, torch.logit(p), torch.logit(p, 0.1), torch.cross(x[:3], y[:3], dim=0),
            torch.addr(x, p[:40], p[:30], beta=0.2, alpha=0.6), torch.linspace(4.3, 50, 50, dtype=dtype),
            torch.log_softmax(x, 1), torch.log_softmax(x, 0),
        )  # fmt: skip

    torch.manual_seed(0)
    x, y = (torch.randn(40, 30) * 9).to(dtype), torch.randn(40, 30).to(dtype)
    check(steps, x, y, torch.rand(200).to(dtype), rtol=0, atol=0)


def test_sums_of_half_precision_run_in_single():
    x = torch.full((120, 3), 3.0, dtype=torch.bfloat16)
    assert torch.compile(lambda x: x.cumsum(0), backend="pallas")(x)[-1].tolist() == [360.0] * 3
    x, y = torch.randn(6, 4, 5).bfloat16(), torch.randn(6, 5, 3).bfloat16()
    check(
        lambda c, x, y: torch.addbmm(c, x, y, beta=0.5, alpha=0.7), torch.randn(4, 3).bfloat16(), x, y, rtol=0, atol=0
    )
