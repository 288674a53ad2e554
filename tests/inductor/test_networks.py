"""Whole networks written in plain torch, the shapes that real ones have: outputs and every gradient against eager."""

import copy
import math

import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F
from inductor_checks import clones, same
from torch.utils._pytree import tree_leaves

from bridge.diagnostics import strict


class CachedAttention(nn.Module):
    """Causal self-attention that writes keys and values into a buffer."""

    def __init__(self, width, heads, room):
        super().__init__()
        self.heads = heads
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        for name in ("keys", "values"):
            self.register_buffer(name, torch.zeros(2, heads, room, width // heads))

    def forward(self, x, start):
        b, t, c = x.shape
        q, k, v = self.qkv(x).view(b, t, 3, self.heads, c // self.heads).permute(2, 0, 3, 1, 4)
        at = torch.arange(t) + start
        if self.training:
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            self.keys.index_copy_(2, at, k)
            self.values.index_copy_(2, at, v)
            seen = torch.arange(self.keys.shape[2])[None] <= at[:, None]
            y = F.scaled_dot_product_attention(q, self.keys, self.values, attn_mask=seen)
        return self.out(y.transpose(1, 2).reshape(b, t, c))


class GPT(nn.Module):
    """A decoder whose embedding is its output matrix."""

    def __init__(self, vocabulary=50, width=32, heads=4, depth=2, room=16):
        super().__init__()
        self.tokens, self.places = nn.Embedding(vocabulary, width), nn.Embedding(room, width)
        self.blocks = nn.ModuleList(
            nn.ModuleDict(
                {
                    "norm": nn.LayerNorm(width),
                    "attention": CachedAttention(width, heads, room),
                    "mlp": nn.Sequential(
                        nn.LayerNorm(width), nn.Linear(width, 64), nn.GELU("tanh"), nn.Linear(64, width)
                    ),
                }
            )
            for _ in range(depth)
        )
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)
        self.head.weight = self.tokens.weight

    def forward(self, tokens, start=0):
        x = self.tokens(tokens) + self.places(torch.arange(tokens.shape[1]) + start)
        for block in self.blocks:
            x = x + block["attention"](block["norm"](x), start)
            x = x + block["mlp"](x)
        return self.head(self.norm(x))


class RMSNorm(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x):
        return self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6))


class Experts(nn.Module):
    """Every token goes to its two best experts, by masks of one-hot rows."""

    def __init__(self, width=16, hidden=24, experts=4):
        super().__init__()
        self.norm, self.gate = RMSNorm(width), nn.Linear(width, experts, bias=False)
        self.up = nn.Parameter(torch.randn(experts, width, 2 * hidden) * 0.1)
        self.down = nn.Parameter(torch.randn(experts, hidden, width) * 0.1)

    def forward(self, x):
        rows = self.norm(x).flatten(0, -2)
        chances = self.gate(rows).softmax(-1)
        best, which = chances.topk(2, dim=-1)
        best = best / best.sum(-1, keepdim=True)
        weights = torch.zeros_like(chances).scatter(1, which, best)
        a, b = torch.einsum("nc,ech->neh", rows, self.up).chunk(2, -1)
        each = torch.einsum("neh,ehc->nec", F.silu(a) * b, self.down)
        used = F.one_hot(which, weights.shape[1]).sum(1).float().mean(0)
        return x + (each * weights[..., None]).sum(1).view_as(x), (used * chances.mean(0)).sum()


class RelativeBias(nn.Module):
    """Attention with a learned bias for each bucket of distances."""

    def __init__(self, width=32, heads=4, buckets=8):
        super().__init__()
        self.heads, self.buckets = heads, buckets
        self.q, self.k, self.v, self.o = (nn.Linear(width, width, bias=False) for _ in range(4))
        self.bias, self.norm = nn.Embedding(buckets, heads), RMSNorm(width)

    def bucket(self, distance):
        half = self.buckets // 2
        side, distance = (distance > 0).long() * half, distance.abs()
        near = half // 2
        far = near + (torch.log(distance.float() / near) / math.log(16 / near) * (half - near)).long()
        return side + torch.where(distance < near, distance, far.clamp(max=half - 1))

    def forward(self, x, mask):
        b, t, c = x.shape
        y = self.norm(x)
        q, k, v = (f(y).view(b, t, self.heads, -1).transpose(1, 2) for f in (self.q, self.k, self.v))
        place = torch.arange(t)
        bias = self.bias(self.bucket(place[None] - place[:, None])).permute(2, 0, 1)[None]
        bias = bias.masked_fill(~mask[:, None, None], torch.finfo(x.dtype).min)
        weights = ((q @ k.transpose(-1, -2)) + bias).float().softmax(-1).type_as(x)
        return x + self.o((weights @ v).transpose(1, 2).reshape(b, t, c))


class ConvNeXtBlock(nn.Module):
    """A depthwise convolution, a norm over channels and a perceptron, as one residual."""

    def __init__(self, width=12):
        super().__init__()
        self.depthwise, self.norm = nn.Conv2d(width, width, 7, padding=3, groups=width), nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.scale = nn.Parameter(torch.full((width,), 0.5))

    def forward(self, x):
        y = self.norm(self.depthwise(x).permute(0, 2, 3, 1))
        y = self.scale * self.down(F.gelu(self.up(y)))
        return x + y.permute(0, 3, 1, 2)


class MBConv(nn.Module):
    """An inverted bottleneck with squeeze and excitation."""

    def __init__(self, width=8, wide=24):
        super().__init__()
        self.expand = nn.Sequential(nn.Conv2d(width, wide, 1, bias=False), nn.BatchNorm2d(wide), nn.SiLU())
        self.depthwise = nn.Sequential(
            nn.Conv2d(wide, wide, 3, 2, 1, groups=wide, bias=False), nn.BatchNorm2d(wide), nn.SiLU()
        )
        self.squeeze = nn.Sequential(
            nn.AdaptiveAvgPool2d(1), nn.Conv2d(wide, 6, 1), nn.SiLU(), nn.Conv2d(6, wide, 1), nn.Sigmoid()
        )
        self.project = nn.Sequential(nn.Conv2d(wide, width, 1, bias=False), nn.BatchNorm2d(width))

    def forward(self, x):
        y = self.depthwise(self.expand(x))
        return F.avg_pool2d(x, 2, ceil_mode=True) + self.project(y * self.squeeze(y))


class Listener(nn.Module):
    """Convolutions over time in front of an encoder layer, with sines for places."""

    def __init__(self, bands=8, width=16):
        super().__init__()
        self.one, self.two = nn.Conv1d(bands, width, 3, padding=1), nn.Conv1d(width, width, 3, stride=2, padding=1)
        turns = torch.exp(-math.log(10000) * torch.arange(width // 2) / (width // 2 - 1))
        angle = torch.arange(10)[:, None] * turns[None]
        self.register_buffer("places", torch.cat([angle.sin(), angle.cos()], 1))
        self.layer = nn.TransformerEncoderLayer(width, 2, 24, 0.0, "gelu", batch_first=True, norm_first=True)

    def forward(self, x):
        y = F.gelu(self.two(F.gelu(self.one(x)))).permute(0, 2, 1)
        return self.layer(y + self.places)


class SelectiveScan(nn.Module):
    """A state space whose steps depend on the input, one after another."""

    def __init__(self, width=8, states=4):
        super().__init__()
        self.enter, self.conv = nn.Linear(width, 2 * width), nn.Conv1d(width, width, 3, padding=2, groups=width)
        self.choose, self.step = nn.Linear(width, 2 * states + 2), nn.Linear(2, width)
        self.a = nn.Parameter(torch.log(torch.arange(1.0, states + 1).repeat(width, 1)))
        self.skip, self.leave = nn.Parameter(torch.ones(width)), nn.Linear(width, width)

    def forward(self, x):
        t, states = x.shape[1], self.a.shape[1]
        y, gate = self.enter(x).chunk(2, -1)
        y = F.silu(self.conv(y.transpose(1, 2))[..., :t].transpose(1, 2))
        delta, b, c = self.choose(y).split([2, states, states], -1)
        delta = F.softplus(self.step(delta))
        kept = torch.exp(delta[..., None] * -torch.exp(self.a))
        added = (delta * y)[..., None] * b[:, :, None]
        state, seen = torch.zeros_like(added[:, 0]), []
        for i in range(t):
            state = kept[:, i] * state + added[:, i]
            seen.append((state * c[:, i, None]).sum(-1))
        return self.leave((torch.stack(seen, 1) + y * self.skip) * F.silu(gate))


class UNet(nn.Module):
    """Down, up by a transposed convolution and by interpolation, with skips."""

    def __init__(self, width=6):
        super().__init__()

        def twice(a, b):
            return nn.Sequential(nn.Conv2d(a, b, 3, padding=1), nn.GroupNorm(2, b), nn.SiLU())

        self.first, self.second, self.third = twice(3, width), twice(width, 2 * width), twice(2 * width, 4 * width)
        self.up = nn.ConvTranspose2d(4 * width, 2 * width, 2, 2)
        self.fourth, self.fifth = twice(4 * width, 2 * width), twice(3 * width, width)
        self.last = nn.Conv2d(width, 2, 1)

    def forward(self, x):
        a = self.first(x)
        b = self.second(F.max_pool2d(a, 2))
        c = self.third(F.max_pool2d(b, 2))
        y = self.fourth(torch.cat([self.up(c), b], 1))
        y = F.interpolate(y, scale_factor=2, mode="bilinear", align_corners=False)
        return self.last(self.fifth(torch.cat([y, a], 1)))


class Recurrent(nn.Module):
    def __init__(self, kind, **given):
        super().__init__()
        self.cell = getattr(nn, kind)(6, 8, batch_first=True, **given)

    def forward(self, x):
        return self.cell(x)


class Translator(nn.Module):
    """nn.Transformer with masks of all three kinds."""

    def __init__(self):
        super().__init__()
        self.both = nn.Transformer(16, 2, 1, 1, 24, 0.0, batch_first=True)

    def forward(self, source, target, padding):
        causal = nn.Transformer.generate_square_subsequent_mask(target.shape[1])
        return self.both(
            source,
            target,
            tgt_mask=causal,
            src_key_padding_mask=padding,
            memory_key_padding_mask=padding,
            tgt_is_causal=True,
        )


class Attending(nn.Module):
    """nn.MultiheadAttention with keys of another width, and its weights."""

    def __init__(self, **given):
        super().__init__()
        self.attention = nn.MultiheadAttention(16, 4, batch_first=True, **given)

    def forward(self, q, k, mask, padding):
        return self.attention(q, k, k, attn_mask=mask, key_padding_mask=padding, average_attn_weights=False)


def numbers(*shape):
    return torch.randn(*shape).requires_grad_()


def padding():
    mask = torch.zeros(2, 7, dtype=torch.bool)
    mask[1, 4:] = True
    return mask


NETWORKS = {
    "gpt": lambda: (GPT(), (torch.randint(0, 50, (2, 11)),)),
    "experts": lambda: (Experts(), (numbers(2, 9, 16),)),
    "relative_bias": lambda: (RelativeBias(), (numbers(2, 7, 32), ~padding())),
    "convnext_block": lambda: (ConvNeXtBlock(), (numbers(2, 12, 9, 9),)),
    "convnext_block_channels_last": lambda: (
        ConvNeXtBlock().to(memory_format=torch.channels_last),
        (torch.randn(2, 12, 9, 9).contiguous(memory_format=torch.channels_last).requires_grad_(),),
    ),
    "mbconv": lambda: (MBConv(), (numbers(2, 8, 11, 11),)),
    "listener": lambda: (Listener(), (numbers(2, 8, 20),)),
    "selective_scan": lambda: (SelectiveScan(), (numbers(2, 6, 8),)),
    "unet": lambda: (UNet(), (numbers(2, 3, 16, 16),)),
    "lstm": lambda: (Recurrent("LSTM", num_layers=2), (numbers(2, 3, 6),)),
    "lstm_bidirectional": lambda: (Recurrent("LSTM", bidirectional=True), (numbers(2, 3, 6),)),
    "gru": lambda: (Recurrent("GRU", bidirectional=True), (numbers(2, 3, 6),)),
    "rnn": lambda: (Recurrent("RNN", nonlinearity="relu"), (numbers(2, 3, 6),)),
    "translator": lambda: (Translator(), (numbers(2, 7, 16), numbers(2, 5, 16), padding())),
    "attention_weights": lambda: (
        Attending(kdim=12, vdim=12),
        (numbers(2, 5, 16), numbers(2, 7, 12), torch.randn(5, 7), torch.zeros(2, 7).masked_fill(padding(), -1e9)),
    ),
    "attention_extra_keys": lambda: (
        Attending(add_bias_kv=True, add_zero_attn=True),
        (numbers(2, 5, 16), numbers(2, 7, 16), torch.zeros(5, 7, dtype=torch.bool), padding()),
    ),
}


def run(network, fn, args):
    """Outputs, gradients by name, gradients of the arguments."""
    result = fn(*args)
    outs = [t for t in tree_leaves(result) if isinstance(t, torch.Tensor)]
    weights = [torch.randn(t.shape, generator=torch.Generator().manual_seed(i)) for i, t in enumerate(outs)]
    sum((t * w).sum() / max(t.numel(), 1) ** 0.5 for t, w in zip(outs, weights) if t.requires_grad).backward()
    named = {n: p.grad for n, p in network.named_parameters()}
    return result, named, [a.grad for a in args if isinstance(a, torch.Tensor) and a.requires_grad]


@pytest.mark.parametrize("name", NETWORKS)
def test_network(name):
    torch.manual_seed(0)
    network, args = NETWORKS[name]()
    twin = copy.deepcopy(network)
    mine, theirs = clones(args), clones(args)
    want = run(network, network, theirs)
    # Dynamo breaks a graph at recurrent modules unless it is told not to.
    with strict(), torch._dynamo.config.patch(allow_rnn=True):
        got = run(twin, torch.compile(twin, backend="pallas", fullgraph=True), mine)
    assert list(got[1]) == list(want[1])
    same(got, want, rtol=1e-5, atol=2e-5)
    same(list(twin.buffers()), list(network.buffers()))


def test_a_cache_of_keys_and_values_grows():
    """The prompt, then one token at a time: one graph for the prompt, one for every step after it."""
    import inductor_backend

    torch.manual_seed(0)
    network = GPT().eval()
    twin = copy.deepcopy(network)
    compiled = torch.compile(twin, backend="pallas")
    tokens = torch.randint(0, 50, (2, 12))
    before = inductor_backend.compile_count()
    with torch.no_grad():
        for start, end in [(0, 5), *((i, i + 1) for i in range(5, 12))]:
            same(
                compiled(tokens[:, start:end], torch.tensor(start)), network(tokens[:, start:end], torch.tensor(start))
            )
        same(list(twin.buffers()), list(network.buffers()))
    assert inductor_backend.compile_count() - before == 2


@pytest.mark.parametrize("kind, rate", [("AdamW", 0.05), ("SGD", torch.tensor(0.05))], ids=["float", "tensor"])
def test_a_schedule_of_learning_rates_builds_few_graphs(kind, rate):
    """A compiled step whose rate is another one every time: one graph for the first, one for those that vary.

    (Of a float that `alpha=` takes, as SGD's, Dynamo itself makes a graph a value, whatever the backend.)
    """
    import inductor_backend

    torch.manual_seed(0)
    network = nn.Linear(6, 3)
    twin = copy.deepcopy(network)

    def train(net, compiled):
        optimizer = getattr(torch.optim, kind)(net.parameters(), lr=copy.deepcopy(rate))
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 8)
        step = torch.compile(optimizer.step, backend="pallas") if compiled else optimizer.step
        generator = torch.Generator().manual_seed(1)
        for _ in range(8):
            for _ in range(2):  # gradients add up
                net(torch.randn(5, 6, generator=generator)).square().mean().backward()
            nn.utils.clip_grad_norm_(net.parameters(), 0.5)
            step()
            schedule.step()
            optimizer.zero_grad()

    train(network, False)
    before = inductor_backend.compile_count()
    train(twin, True)
    same(list(twin.parameters()), list(network.parameters()))
    assert inductor_backend.compile_count() - before <= 3
