"""Operators through the whole backend against eager: values, dtypes, shapes, strides; a fallback is an error here."""

import pytest
import torch
import torch.nn.functional as F
from inductor_checks import check

nan, inf = float("nan"), float("inf")


def put(x, key, value):
    """A copy with values at a key, as an assignment writes them."""
    x = x.clone()
    x[key] = value
    return x


def rn(*shape, dtype=torch.float32):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape))).to(dtype)


def ri(low, high, shape, dtype=torch.int64):
    return torch.randint(low, high, shape, generator=torch.Generator().manual_seed(7)).to(dtype)


EDGES = torch.tensor([0.0, -0.0, 1.0, -1.0, inf, -inf, nan, 1e-30, 3.5, -2.5])

POINTWISE = {
    "arithmetic": (lambda x, y: (x + y * 2, x - y, x * y, x / y, -x, x.abs(), x.reciprocal()), EDGES, EDGES.flip(0)),
    "float_division": (
        lambda x, y: (x // y, x % y, torch.fmod(x, y), torch.div(x, y, rounding_mode="trunc")),
        torch.tensor([7.0, -7.0, 6.0, 1.0, 5.5, -0.0, inf]),
        torch.tensor([2.0, 2.0, -0.1, 0.1, -2.0, 3.0, 2.0]),
    ),
    "int_division": (
        lambda x, y: (x // y, x % y, torch.fmod(x, y), x / y, torch.div(x, y, rounding_mode="trunc")),
        torch.tensor([7, -7, 7, -7, 0]),
        torch.tensor([2, 2, -2, -2, 5]),
    ),
    "wrap": (
        lambda x: (x + x, x * 3, -x, x - 1, (x + x).to(torch.int16), x << 1, x >> 1, ~x),
        torch.tensor([200, 6, 0, 255], dtype=torch.uint8),
    ),
    "wide_scalar": (lambda x: (x + 300, x * -1), torch.tensor([1, 100], dtype=torch.int8)),
    "shifts": (
        lambda x, n: (x << n, x >> n),
        torch.tensor([-5, 5, 7], dtype=torch.int32),
        torch.tensor([1, 31, 3], dtype=torch.int32),
    ),
    "bool": (
        lambda x, y: (x + y, x & y, x | y, x ^ y, ~x, x * 2, x.sum(), x == y),
        ri(0, 2, (8,)).bool(),
        ri(0, 2, (8,)).bool(),
    ),
    "promotion": (
        lambda i, f, h, z: (i + f, i * 0.5, i / 2, f + z, h + f, h * 2, i + True, torch.where(i > 0, i, f)),
        ri(-5, 5, (6,)),
        rn(6),
        rn(6, dtype=torch.bfloat16),
        torch.tensor(2.0, dtype=torch.float64),
    ),
    "transcendental": (
        lambda x: (
            x.exp(),
            x.log(),
            x.sqrt(),
            x.rsqrt(),
            x.tanh(),
            x.sigmoid(),
            x.erf(),
            x.log1p(),
            x.expm1(),
            x.atan(),
        ),
        EDGES,
    ),
    "trigonometry": (lambda x: (x.sin(), x.cos()), torch.linspace(-5000, 5000, 4096)),
    "trigonometry_far": (lambda x: (x.sin(), x.cos()), torch.linspace(-1e6, 1e6, 4096)),
    "activations": (
        lambda x: (
            F.relu(x),
            F.gelu(x),
            F.gelu(x, approximate="tanh"),
            F.silu(x),
            F.softplus(x),
            F.elu(x),
            F.leaky_relu(x),
            F.hardswish(x),
        ),
        rn(7, 5),
    ),
    "comparison": (
        lambda x, y: (x == y, x != y, x < y, x <= y, x > y, x >= y, x.isnan(), x.isinf()),
        EDGES,
        EDGES.flip(0),
    ),
    "extremes": (
        lambda x, y: (torch.maximum(x, y), torch.minimum(x, y), torch.fmax(x, y), x.clamp(-1, 2), x.clamp(min=0)),
        EDGES,
        EDGES.flip(0),
    ),
    "rounding": (
        lambda x: (x.floor(), x.ceil(), x.trunc(), x.round(), x.frac(), x.sign()),
        torch.tensor([0.5, 1.5, -0.5, 2.4, nan]),
    ),
    "powers": (lambda x: (x**2, x**3, x**0.5, x**-1, x**0, 2.0**x, x.pow(2.5)), rn(9).abs() + 0.1),
    "int_powers": (lambda x: (x**2, x**3, x.pow(torch.tensor([0, 1, 5]))), torch.tensor([-3, 2, 7])),
    "bf16_rounds": (lambda x: ((x + 0.001) == x, x * 1.1 + 0.3), torch.tensor([1.0, 0.0, 3.0], dtype=torch.bfloat16)),
    "float64": (lambda x: (torch.log1p(x.exp()) + x.pow(3) * 0.1, x.sum()), rn(33, dtype=torch.float64)),
    "complex": (
        lambda x, y: (x * y, x.abs(), x.conj() + 1, (x * 2).abs()),
        torch.complex(rn(5), rn(5)),
        torch.complex(rn(5), rn(5)),
    ),
    "casts": (
        lambda x: (x.to(torch.int8), x.to(torch.int64), x.to(torch.float64), x.to(torch.bool), x.to(torch.bfloat16)),
        torch.tensor([1.9, -1.9, 0.0, 100.5, 127.0]),
    ),
    "nan_to_num": (lambda x: (x.nan_to_num(), x.nan_to_num(0.5, 1.0, -1.0)), EDGES),
    "broadcast": (lambda x, y: x[:, None] + y[None] * 2, rn(4), rn(5)),
}

REDUCTIONS = {
    "sums": (lambda x: (x.sum(), x.sum(0), x.sum(-1, keepdim=True), x.mean(1), x.prod(1), x.sum((0, 1))), rn(6, 5)),
    "int_sums": (lambda x: (x.sum(), x.sum(0), x.cumsum(0), x.prod()), ri(-4, 5, (3, 4), torch.int32)),
    "bool_sums": (lambda x: (x.sum(), x.any(), x.all(1), x.any(0, keepdim=True)), ri(0, 2, (3, 4)).bool()),
    "variances": (lambda x: (x.var(), x.std(1), x.var(0, correction=0), *torch.var_mean(x, 1)), rn(6, 300)),
    "shifted_variance": (lambda x: (x.var(-1), *torch.var_mean(x + 3e3, -1, correction=0)), rn(64, 512)),
    "extremes": (
        lambda x: (x.amax(1), x.amin(0), x.max(), x.max(1), x.min(0), x.argmax(), x.argmin(1)),
        torch.tensor([[1.0, nan, 9], [2, 5, 5], [inf, -inf, 0]]),
    ),
    "extremes_of_many": (  # large enough for the compiler's own kernels, which lose NaN
        lambda x: (x.amax(1), x.amin(0), x.max(), x.min(), x.max(1), x.min(0), x.argmax(0), x.norm(inf, 1)),
        torch.where(torch.rand(64, 1024, generator=torch.Generator().manual_seed(5)) < 0.01, nan, rn(64, 1024)),
    ),
    "softmax": (lambda x: (F.softmax(x, -1), F.softmax(x, 0), F.log_softmax(x, 1), torch.logsumexp(x, 1)), rn(5, 9)),
    "masked_rows": (lambda x: F.softmax(x, -1), torch.tensor([[-inf, -inf], [-inf, 0.0]])),
    "norms": (lambda x: (x.norm(), torch.linalg.vector_norm(x, 1, 1), torch.linalg.vector_norm(x, inf, 0)), rn(5, 6)),
    "scans": (lambda x: (x.cumsum(-1), x.cumsum(0), x.cumprod(1), x.cummax(1), x.logcumsumexp(1)), rn(4, 300)),
    "scan_with_infinity": (lambda x: x.cumsum(-1), torch.where(torch.arange(400) == 300, inf, 1.0)),
    "zero_dim": (
        lambda x: (x.cumsum(0), x.mean(-1), x.softmax(0), x.sum(0), x.amax(0), x.argmax(0), x.sort()),
        torch.tensor(5.0),
    ),
    "empty": (lambda x: (x.sum(), x.sum(1), x + 1, x.t(), torch.cat([x, x])), torch.ones(3, 0)),
    "sorting": (
        lambda x: (
            x.sort(),
            x.sort(0, descending=True),
            x.topk(2),
            x.topk(2, 0, largest=False),
            x.argsort(stable=True),
        ),
        torch.tensor([[3.0, -0.0, nan, 0.0], [1, 2, -inf, inf]]),
    ),
    "int_sorting": (
        lambda x: (torch.sort(x, 1).values, torch.sort(x, stable=True, dim=0, descending=True)),
        ri(-3, 3, (4, 6)),
    ),
}

NETS = {
    "linear": (
        lambda x, w, b: (F.linear(x, w, b), x @ w.t(), w @ x.t(), torch.addmm(b, x, w.t(), beta=0.5, alpha=2)),
        rn(5, 6),
        rn(4, 6),
        rn(4),
    ),
    "beta_zero": (lambda x, w, b: torch.addmm(b, x, w, beta=0), rn(3, 4), rn(4, 2), torch.tensor([nan, 1.0])),
    "bmm": (lambda a, b: (a @ b, torch.einsum("bij,bjk->bki", a, b), a @ b[0]), rn(3, 4, 5), rn(3, 5, 6)),
    "int_matmul": (lambda a, b: a @ b, ri(-9, 9, (3, 4)), ri(-9, 9, (4, 5))),
    "conv2d": (
        lambda x, w, b: F.conv2d(x, w, b, stride=2, padding=1, dilation=2, groups=2),
        rn(2, 4, 9, 8),
        rn(6, 2, 3, 3),
        rn(6),
    ),
    "conv1x1": (lambda x, w: F.conv2d(x, w), rn(2, 4, 5, 6), rn(3, 4, 1, 1)),
    "conv1d": (lambda x, w: F.conv1d(x, w, padding=2), rn(2, 3, 9), rn(4, 3, 3)),
    "conv3d": (lambda x, w: F.conv3d(x, w), rn(1, 2, 4, 5, 6), rn(3, 2, 2, 2, 2)),
    "conv_transpose": (
        lambda x, w, b: F.conv_transpose2d(x, w, b, stride=2, padding=1, output_padding=1, groups=2, dilation=2),
        rn(2, 4, 5, 6),
        rn(4, 3, 3, 3),
        rn(6),
    ),
    "pooling": (
        lambda x: (
            F.max_pool2d(x, 3, 2, 1),
            F.avg_pool2d(x, 2),
            F.avg_pool2d(x, 3, 2, 1, ceil_mode=True, count_include_pad=False),
            F.adaptive_avg_pool2d(x, (3, 2)),
            F.adaptive_avg_pool2d(x, 1),
        ),
        rn(2, 3, 9, 8),
    ),
    "pool_indices": (
        lambda x: F.max_pool2d(x, 3, 2, 1, return_indices=True),
        torch.where(rn(1, 2, 7, 7) > 0.5, -inf, rn(1, 2, 7, 7)),
    ),
    "interpolate": (
        lambda x: (F.interpolate(x, scale_factor=2), F.interpolate(x, size=(7, 5), mode="bilinear")),
        rn(1, 2, 4, 4),
    ),
    "norms": (
        lambda x, w, b: (
            F.layer_norm(x, (6,), w, b),
            F.rms_norm(x, (6,), w),
            F.group_norm(x.t()[None], 3),
            F.instance_norm(x[None]),
        ),
        rn(4, 6),
        rn(6),
        rn(6),
    ),
    "attention": (
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True),
        rn(1, 2, 9, 8),
        rn(1, 2, 9, 8) + 1,
        rn(1, 2, 9, 8),
    ),
    "attention_mask": (
        lambda q, m: F.scaled_dot_product_attention(q, q, q, attn_mask=m),
        rn(1, 2, 5, 8),
        ri(0, 2, (5, 5)).bool() | torch.eye(5, dtype=torch.bool),
    ),
    "losses": (
        lambda x, t: (
            F.cross_entropy(x, t),
            F.cross_entropy(x, t, label_smoothing=0.1, ignore_index=1),
            F.nll_loss(x, t, reduction="sum"),
            F.mse_loss(x, x * 2),
            F.smooth_l1_loss(x, x * 3),
        ),
        rn(6, 4),
        ri(0, 4, (6,)),
    ),
    "embedding": (lambda w, i: (F.embedding(i, w), F.embedding(i, w, padding_idx=0)), rn(7, 3), ri(0, 7, (2, 4))),
}

SHAPES = {
    "views": (
        lambda x: (
            x.t() * 2,
            x.view(2, 3, 4) + 1,
            x.reshape(-1)[1::2] + 1,
            x[1:, None, ::2] * 1,
            x.unfold(1, 3, 2).sum(-1),
            x.flip(0),
        ),
        rn(6, 4),
    ),
    "view_outputs": (lambda x: (x + 1).t(), rn(4, 5)),
    "expanded_output": (lambda x: (x + 1)[:, None].expand(4, 3), rn(4)),
    "joins": (
        lambda x, y: (
            torch.cat([x, y], 1),
            torch.stack([x, x]),
            torch.cat([x, y.int()], -1),
            x.repeat(2, 2),
            x.tile(2),
        ),
        rn(2, 3),
        ri(0, 9, (2, 2)),
    ),
    "splits": (lambda x: (*x.split(2), *x.chunk(2, 1), *[u + 1 for u in x.unbind(0)]), rn(5, 4)),
    "padding": (
        lambda x: (
            F.pad(x, (1, 2), value=0.5),
            F.pad(x, (-1, 1, 1, 0)),
            F.pad(x[None], (1, 1), mode="reflect"),
            x.roll(2, 1),
            x.roll(3),
        ),
        rn(3, 5),
    ),
    "triangles": (lambda x: (x.tril(), x.triu(1), torch.diagonal(x, 1) * 2, torch.diag_embed(x)), rn(4, 4)),
    "creation": (
        lambda x: (
            torch.arange(5),
            torch.arange(1, 2, 0.25),
            torch.full((2,), 3),
            torch.zeros_like(x),
            torch.eye(3),
            torch.linspace(0, 1, 5),
        ),
        rn(2),
    ),
    "channels_last": (
        lambda x: (x + 1, x.relu(), x.contiguous() * 2),
        rn(2, 3, 4, 5).to(memory_format=torch.channels_last),
    ),
    "strided_inputs": (
        lambda a, b, c: (a + 1).sum(0) + b.exp() * c,
        rn(8, 6).t(),
        rn(12, 13)[::2, 2:10][:, :8],
        rn(1, 8).expand(6, 8),
    ),
    "as_strided": (
        lambda x: torch.as_strided(torch.roll(x, 1, 0), (3, 6), (5, 1), 2),
        torch.arange(48.0).reshape(2, 3, 2, 4).to(memory_format=torch.channels_last),
    ),
    "roll_keeps_the_layout": (
        lambda x: (x.roll(1, 0), x.roll((1, -2), (1, 3)), x.roll(7), x.index_select(1, torch.tensor([2, 0]))),
        rn(2, 3, 4, 5).to(memory_format=torch.channels_last),
    ),
    "dtype_view": (lambda x: ((x + 1).view(torch.int32), (x + 1).view(torch.int16) + 1), rn(3, 4)),
}

INDEXING = {
    "gathers": (
        lambda x, i, g: (
            x.index_select(0, i),
            torch.gather(x, 1, g),
            x[i, :3],
            x[-1],
            x[:, [0, -1]],
            x[i[:4], i[:4] % 3],
        ),
        rn(8, 5),
        ri(0, 8, (6,)),
        ri(0, 5, (8, 2)),
    ),
    "scatters": (
        lambda x, i, s: (
            torch.zeros_like(x).scatter_add(0, i, s),
            x.scatter(1, i[:, :3] % 4, 7.0),
            x.scatter_reduce(0, i, s, "amax"),
            x.scatter_reduce(0, i, s, "mean"),
            x.scatter_reduce(0, i, s, "sum", include_self=False),
        ),
        rn(6, 4),
        ri(0, 4, (9, 4))[:6],
        rn(9, 4),
    ),
    "writes_by_a_mask": (
        lambda x, m, v: (
            x.index_put((m,), v.sum()),
            x.index_put((m[:, 0],), v),
            x.index_put((m[:, 0],), v[None], accumulate=True),
            put(x, (slice(None), m[0]), x[:, :1]),
            x.index_put((m[:, :1] & m,), v[:1]),
            x.long().index_put((m,), torch.tensor(3), accumulate=True),
            m.index_put((x > 0.5,), torch.tensor(True)),
            put(x.view(2, 3, 4), (slice(None), m[:3]), v[0]),
            put(x.view(2, 3, 4), (slice(None), m[:3, 0]), x[:2, None]),
        ),
        rn(6, 4),
        rn(6, 4) > 0,
        rn(4),
    ),
    "index_writes": (
        lambda x, i, v: (
            x.index_put((i,), v),
            x.index_put((i,), v, accumulate=True),
            x.index_add(0, i, v),
            x.index_fill(0, i, 2.0),
        ),
        rn(6, 4),
        torch.tensor([1, 3, 0]),
        rn(3, 4),
    ),
    "masked_fill": (
        lambda x, m: (x.masked_fill(m, -inf), torch.where(m, x, 0.0), x * m),
        rn(4, 4),
        ri(0, 2, (4, 4)).bool(),
    ),
    "bucketize": (
        lambda x, b: (torch.bucketize(x, b), torch.searchsorted(b, x, right=True)),
        rn(9),
        torch.tensor([-1.0, 0.0, 0.5]),
    ),
}
FAMILIES = {"pointwise": POINTWISE, "reductions": REDUCTIONS, "nets": NETS, "shapes": SHAPES, "indexing": INDEXING}
CASES = [
    pytest.param(case, id=f"{family}-{name}") for family, table in FAMILIES.items() for name, case in table.items()
]


@pytest.mark.parametrize("case", CASES)
def test_as_eager(case):
    fn, *args = case
    check(fn, *args, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize(
    "name", ["pointwise-transcendental", "reductions-softmax", "nets-linear", "reductions-extremes"]
)
@pytest.mark.parametrize("kernels", ["all", "none"])
def test_kernel_modes_agree(name, kernels):
    family, case = name.split("-")
    fn, *args = FAMILIES[family][case]
    check(fn, *args, rtol=2e-5, atol=2e-5, kernels=kernels)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision(dtype):
    x, w = rn(8, 16, dtype=dtype), rn(16, 16, dtype=dtype)
    check(lambda x, w: (F.linear(x, w), F.softmax(x, -1), x.sum(0), x.mean(), F.gelu(x)), x, w, rtol=2e-2, atol=2e-2)


def test_adding_zero_clears_the_sign_of_zero():
    f, x = lambda x: (x + 0.0, x + 0, x - 0.0, 0.0 - x, 0.0 + x), torch.tensor([-0.0, 0.0, -1.5, float("nan")])
    for got, want in zip(torch.compile(f, backend="pallas")(x), f(x), strict=True):
        assert torch.equal(torch.signbit(got[:3]), torch.signbit(want[:3])) and got[3].isnan()
