"""Where eager rounds half precision, and what torch's own decompositions get wrong: bit for bit eager's numbers."""

import pytest
import torch
import torch.nn.functional as F
from inductor_checks import check, same

pytestmark = pytest.mark.filterwarnings("ignore::bridge.diagnostics.errors.DiagnosticNote")
HALF = [torch.bfloat16, torch.float16]


def exactly(fn, *args, **kw):
    check(fn, *args, rtol=0, atol=0, **kw)


def check_gradients(fn, *args, **limits):
    """`fn` and the gradients of its arguments."""

    def run(fn):
        leaves = [a.clone().requires_grad_(a.is_floating_point()) for a in args]
        out = fn(*leaves)
        weights = torch.arange(out.numel(), dtype=torch.float64).reshape(out.shape).cos().to(out.dtype)
        return out, *torch.autograd.grad(out, [a for a in leaves if a.requires_grad], weights)

    same(run(torch.compile(fn, backend="pallas", dynamic=False)), run(fn), **limits)


def normal(*shape, dtype=torch.float32, scale=5.0):
    generator = torch.Generator().manual_seed(sum(shape))
    return (torch.randn(*shape, generator=generator) * scale).to(dtype)


@pytest.mark.parametrize("align", [False, True])
@pytest.mark.parametrize("dtype", HALF)
def test_weights_of_interpolation_are_rounded(dtype, align):
    def sampled(line, plane, volume):
        sizes = lambda x, mode, *sizes: [F.interpolate(x, size=s, mode=mode, align_corners=align) for s in sizes]
        return (
            sizes(line, "linear", 9, 3),
            sizes(plane, "bilinear", (9, 4), (3, 11)),
            sizes(plane, "bicubic", (9, 4), (3, 11)),
            F.interpolate(plane, scale_factor=(1.7, 0.6), mode="bicubic", align_corners=align),
            sizes(volume, "trilinear", (7, 3, 9)),
            F.interpolate(volume, scale_factor=1.7, mode="trilinear", align_corners=align),
        )

    # Multiply-adds that are contracted differently show in f16, whose steps are finer.
    limits = {"rtol": 0, "atol": 0} if dtype is torch.bfloat16 else {}
    check(sampled, *(normal(2, 3, *space, dtype=dtype) for space in ((5,), (6, 7), (4, 5, 6))), **limits)


@pytest.mark.parametrize("lambd", [0.5, 0.3, 1.7])
@pytest.mark.parametrize("dtype", HALF)
def test_limits_are_rounded_where_eager_rounds_them(dtype, lambd):
    x = torch.cat([torch.linspace(-3, 3, 2001), torch.tensor([0.30078125, -0.30078125, 1.703125, float("inf")])])
    shrink = lambda x: torch.cat([F.softshrink(x, lambd), F.hardshrink(x, lambd), F.threshold(x, lambd, 0.7)])
    check_gradients(shrink, x.to(dtype), rtol=0, atol=0)


@pytest.mark.parametrize("space", [(4,), (37, 11)])  # 12 numbers a channel, and more than bf16 counts exactly
def test_statistics_of_a_batch_of_bfloat16_are_rounded(space):
    def norm(x, mean, var, weight, bias):
        out = F.batch_norm(x, mean, var, weight, bias, True, 0.3, 1e-5)
        return out, F.batch_norm(x, mean, var, weight, bias, False), F.instance_norm(x, weight=weight, bias=bias)

    rows = [normal(8, dtype=torch.bfloat16, scale=s) for s in (1, 0.5, 2, 1)]
    x = normal(3, 8, *space, dtype=torch.bfloat16) + 1
    check(norm, x, rows[0], rows[1].abs(), *rows[2:], rtol=0, atol=1e-5)


@pytest.mark.parametrize("dtype", HALF)
def test_ends_and_places_of_logspace_are_rounded(dtype):
    def spaces(start):
        wide = torch.logspace(4.31, 0.1, 2, dtype=dtype), torch.logspace(-1.3, 2.7, 6000, dtype=dtype)
        return *wide, torch.logspace(0.7, -3.1, 301, base=2, dtype=dtype), torch.logspace(start, 1.1, 5, dtype=dtype)

    exactly(spaces, torch.tensor(2.7))


@pytest.mark.parametrize("dtype", HALF)
def test_logarithms_are_rounded_before_they_are_multiplied(dtype):
    def products(x, y):
        numbers = torch.xlogy(x, 0.3), torch.xlogy(0.3, y), torch.special.xlog1py(x, 0.3), torch.special.xlog1py(3, y)
        return torch.xlogy(x, y), torch.special.xlog1py(x, y), F.kl_div(x, y.abs(), reduction="none"), numbers

    x, y = normal(4000, dtype=dtype), normal(4000, dtype=dtype, scale=2)
    x[:4], y[:4] = 0, torch.tensor([float("nan"), 0, -1, float("inf")])
    exactly(products, x, y)


@pytest.mark.parametrize("dtype", HALF)
def test_losses_are_summed_in_a_cascade(dtype):
    def losses(x, y, plane, places, weight):
        each = [F.nll_loss(x, y, w, reduction=how) for w in (None, weight) for how in ("mean", "sum", "none")]
        return each, F.nll_loss(x[:17], y[:17]), F.nll_loss(plane, places, weight), F.cross_entropy(x[:300], y[:300])

    x, y = torch.log_softmax(normal(700, 5), 1).to(dtype), torch.arange(700) ** 2 % 5
    plane, places = torch.log_softmax(normal(3, 5, 7, 9), 1).to(dtype), torch.arange(189).reshape(3, 7, 9) % 5
    exactly(losses, x, y, plane, places, normal(5, dtype=dtype).abs())


@pytest.mark.parametrize("dtype", HALF)
def test_transposed_convolutions_of_half_precision(dtype):
    def convolved(x, w):
        return F.conv_transpose2d(x, w, stride=(3, 2), padding=(1, 2), output_padding=(2, 1), groups=2, dilation=4)

    exactly(convolved, normal(2, 4, 4, 4, dtype=dtype), normal(4, 2, 3, 5, dtype=dtype))


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
def test_rows_of_targets_that_end_early(reduction):
    x = normal(4, 5, scale=1)
    x[3, 2] = float("nan")
    targets = torch.tensor([[3, 0, -1, 1, 2], [-1, 0, 1, 2, 3], [0, 1, 2, 3, 4], [2, 2, -1, -1, 0]])
    loss = lambda x, t: F.multilabel_margin_loss(x, t, reduction=reduction)
    check_gradients(loss, x[:3], targets[:3])
    check(loss, x, targets)
    check_gradients(loss, x[0], targets[0])


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
def test_losses_of_nothing(reduction):
    for loss in (F.mse_loss, F.smooth_l1_loss, F.huber_loss, F.l1_loss):
        check_gradients(lambda x, y: loss(x, y, reduction=reduction), torch.zeros(0, 3), torch.zeros(0, 3))


def test_trigamma_is_eagers_approximation():
    check(lambda x: torch.polygamma(1, x), torch.cat([normal(2000), torch.tensor([0.0, -1.0, float("inf"), 60.0])]))


def test_new_memory_is_filled_in_deterministic_mode():
    def new(x):
        kinds = [torch.empty(3, dtype=d) for d in (torch.float32, torch.bfloat16, torch.int32, torch.uint8, torch.bool)]
        laid_out = torch.empty(2, 2, 3, 3, memory_format=torch.channels_last), torch.empty_strided((2, 3), (1, 2))
        return kinds, laid_out, torch.empty_like(x), x.new_empty(4), torch.empty(2, dtype=torch.complex64).real

    torch.use_deterministic_algorithms(True)
    try:
        exactly(new, torch.ones(2, 2))
    finally:
        torch.use_deterministic_algorithms(False)


@pytest.mark.parametrize("dtype", HALF)
def test_gradients_of_windows_are_added_in_half_precision(dtype):
    def pools(x):
        pooled = F.avg_pool2d(x, 3, 2, 1), F.adaptive_avg_pool2d(x, (3, 4)), F.avg_pool1d(x[0], 3, 1)
        most = F.max_pool3d(x, 3, 1), F.adaptive_max_pool2d(x, (3, 4)), F.pad(x, (2, 1, 2, 2), mode="replicate")
        return torch.cat([v.reshape(-1) for v in (*pooled, *most)])

    check_gradients(pools, normal(2, 3, 8, 9, dtype=dtype), rtol=0, atol=0)
    sample = lambda x, grid: F.grid_sample(x, grid, align_corners=False)
    check_gradients(sample, normal(2, 3, 8, 9, dtype=dtype), normal(2, 5, 7, 2, dtype=dtype, scale=0.5), rtol=0, atol=0)


def test_powers_of_bfloat16_round_the_square():
    x = normal(2048, dtype=torch.bfloat16)  # what eager's vectors leave over isn't rounded
    exactly(lambda x: (x**3, x**-2, x**2, x**-1), x)
    check_gradients(torch.rsqrt, x.abs() + 0.1, rtol=0, atol=0)
