"""Rows of fla-core: attention, and recurrences without a state of their own.

Input: nothing. Output: `ATTENTION` and `OTHERS`. Law: as in `table.py`; where a row calls `naive`, the truth is the
package's own form in torch, which computes in float32.
"""

from __future__ import annotations

import importlib

import fla_formulas as formula
import torch
from fla_states import (
    FORWARD,
    LENGTHS,
    NAIVE,
    PACKED,
    channel_beta,
    constant_gate,
    decay_of_retention,
    gate,
    gated_beta,
    qkv,
    row,
    same,
    scalar_gate,
    unit,
    with_beta,
    with_gate,
)  # fmt: skip


def first(function):
    """A call of the package whose first result counts."""
    return lambda m, **x: getattr(m, function)(**x)[0]


def whole(function):
    return lambda m, **x: getattr(m, function)(**x)


def naive(module, function):
    """The package's own form in torch."""
    return lambda **x: getattr(importlib.import_module(module), function)(**{n: t.float() for n, t in x.items()})


def ops(operator, family, make, call, reference, variant="", **options):
    return row(operator, f"fla.ops.{family}", make, call, reference, variant, **options)


def heads(d, steps=100, batch=2):
    return qkv(d, batch, steps, heads=4, key_heads=2)


def packed(formula_, **x):
    parts = [dict(zip(x, p)) for p in zip(*(t.split(LENGTHS, 1) for t in x.values()))]
    return torch.cat([formula_(**p) for p in parts], 1)


def polynomial(power, norm):
    def reference(q, k, v):
        out, total = formula.attention(q, k, v, power=power)
        return out / (total + norm)

    return reference


def taylor(x):
    return 1 + x + x * x / 2


def slot_inputs(d):
    return {**qkv(d), "s": d.normal(2, 100, 2, 16), "g": gate(d, 2, 100, 2, 16)}


def product_inputs(d):
    made = qkv(d, steps=160)
    return {
        "q": d.normal(2, 80, 2, 32), "k": unit(made["k"]), "v": made["v"], "g": gate(d, 2, 80, 2),
        "beta": d.uniform(2, 160, 2),
    }  # fmt: skip


def mesa_inputs(d):
    made = qkv(d, batch=1, steps=96)
    return {
        "q": unit(made["q"]), "k": unit(made["k"]), "v": made["v"], "g": gate(d, 1, 96, 2, scale=0.1),
        "beta": d.uniform(1, 96, 2), "lamb": d.uniform(2, 32, low=0.5, high=1.0),
    }  # fmt: skip


def momentum_inputs(d):
    made = with_beta(d, qkv(d, steps=80))
    return {
        **made, "log_alpha": gate(d, 2, 80, 2), "log_mu": gate(d, 2, 80, 2), "p": unit(d.normal(2, 80, 2, 32)) * 0.5,
        "eta": d.uniform(2, 80, 2),
    }  # fmt: skip


def rwkv4_inputs(d):
    shape = (2, 40, 48)
    return {
        "w": d.normal(48), "u": d.normal(48), "k": d.normal(*shape), "v": d.normal(*shape),
        "state": d.uniform(2, 3, 1, 48),
    }  # fmt: skip


def sparse_blocks(steps=128, count=4, size=16):
    g = torch.Generator().manual_seed(0)
    out = torch.full((1, steps, 1, count), steps)
    for t in range(steps):
        picked = torch.randperm(max(1, -(-t // size)), generator=g)[:count]
        out[0, t, 0, : len(picked)] = picked
    return out.sort(-1)[0]


BLOCKS = {"block_indices": sparse_blocks(), "block_counts": 4, "block_size": 16}
ATTENTION = [
    ops("attn", "attn", heads, whole("parallel_attn"), formula.attention),
    ops("attn", "attn", lambda d: {**heads(d), "g": gate(d, 2, 100, 4)},
        lambda m, **x: m.parallel_attn(**x, window_size=37), lambda **x: formula.attention(**x, window=37),
        "window and gate"),
    ops("attn", "attn", lambda d: heads(d, 150, 1), lambda m, **x: m.parallel_attn(**x, cu_seqlens=PACKED),
        lambda **x: packed(formula.attention, **x), "packed"),
    ops("forgetting_attn", "forgetting_attn", lambda d: {**heads(d), "g": gate(d, 2, 100, 4)},
        whole("parallel_forgetting_attn"), formula.attention),
    ops("forgetting_attn", "forgetting_attn", lambda d: {**heads(d, 150, 1), "g": gate(d, 1, 150, 4)},
        lambda m, **x: m.parallel_forgetting_attn(**x, cu_seqlens=PACKED),
        lambda **x: packed(formula.attention, **x), "packed"),
    ops("wall_attn", "wall_attn", lambda d: {**heads(d, 80), "g": gate(d, 2, 80, 4, 32, scale=0.05)},
        whole("parallel_wall_attn"), formula.wall),
    ops("stickbreaking_attn", "stickbreaking_attn", qkv, whole("parallel_stickbreaking_attn"),
        naive("fla.ops.stickbreaking_attn", "naive_stickbreaking_attn"), tolerance=NAIVE),
    ops("parallax", "parallax", lambda d: {**heads(d), "r": d.normal(2, 100, 4, 32) * 0.1}, whole("parallel_parallax"),
        naive("fla.ops.parallax", "naive_parallax"), dtypes=("bfloat16",), tolerance=NAIVE, note="16-bit only"),
    ops("path_attn", "path_attn", lambda d: {
            **heads(d, 128), "w": unit(d.normal(2, 128, 2, 32)), "beta": d.uniform(2, 128, 2),
            "g": gate(d, 2, 128, 4)},
        first("parallel_path_attn"),
        lambda **x: importlib.import_module("fla.ops.path_attn").naive_path_attn(
            **{n: t.float() for n, t in x.items()}, scale=32**-0.5), tolerance=NAIVE),
    ops("nsa", "nsa", lambda d: {
            **qkv(d, 1, 128, heads=16, key_heads=1), "g_slc": d.uniform(1, 128, 16), "g_swa": d.uniform(1, 128, 16)},
        lambda m, **x: m.parallel_nsa(**x, **BLOCKS),
        lambda **x: importlib.import_module("fla.ops.nsa").naive_nsa(
            **{n: t.float() for n, t in x.items()}, **BLOCKS), tolerance=NAIVE),
    ops("nsa", "nsa", lambda d: {
            **qkv(d, 1, 128, heads=16, key_heads=1), "g_cmp": d.uniform(1, 128, 16), "g_slc": d.uniform(1, 128, 16)},
        lambda m, **x: m.parallel_nsa(**x, block_counts=4, block_size=16),
        lambda **x: importlib.import_module("fla.ops.nsa").naive_nsa(
            **{n: t.float() for n, t in x.items()}, block_counts=4, block_size=16), "blocks it chooses",
        tolerance=NAIVE),
    ops("based, parallel", "based", lambda d: qkv(d, keys=16), whole("parallel_based"), polynomial(taylor, 1e-6),
        tolerance=NAIVE),
    ops("based, fused_chunk", "based", lambda d: qkv(d, keys=16), whole("fused_chunk_based"),
        polynomial(taylor, 1e-6), tolerance=NAIVE),
    ops("rebased", "rebased", lambda d: qkv(d, keys=16), whole("parallel_rebased"),
        polynomial(torch.square, 1e-5), tolerance=NAIVE),
    ops("retention, parallel", "retention", qkv, first("parallel_retention"),
        lambda **x: constant_gate(decay_of_retention)(**x)[0]),
    ops("simple_gla, parallel", "simple_gla", lambda d: with_gate(d, qkv(d)), first("parallel_simple_gla"),
        lambda **x: scalar_gate(**x)[0]),
    ops("moba", "moba", variant="", make=same, call=same, reference=same, unsupported="it needs flash-attn"),
    ops("deltaformer", "deltaformer", variant="", make=same, call=same, reference=same,
        unsupported="it needs fla.layers, which is not in fla-core"),
    ops("attnres", "attnres", variant="", make=same, call=same, reference=same, unsupported="it asks for CUDA tensors"),
]  # fmt: skip
OTHERS = [
    *(ops(f"gsa, {form}", "gsa", slot_inputs, first(f"{form}_gsa"), formula.slots)
      for form in ("chunk", "fused_recurrent")),
    ops("abc", "abc", lambda d: {**qkv(d, steps=64), "s": d.normal(2, 64, 2, 16)}, first("chunk_abc"), formula.slots,
        tolerance=NAIVE),
    *(ops(f"lightnet, {form}", "lightnet", qkv, first(f"{form}_lightnet"), formula.lightnet)
      for form in ("chunk", "fused_recurrent")),
    *(ops(f"gated_oja_rule, {form}", "gated_oja_rule", lambda d: {
            "q": d.normal(2, 100, 2, 32), "k": unit(d.normal(2, 100, 2, 32)), "v": unit(d.normal(2, 100, 2, 32)),
            "gv": gate(d, 2, 100, 2, 32, scale=0.3), "beta": d.uniform(2, 100, 2)},
        first(f"{form}_gated_oja_rule"), formula.oja, **({} if form == "chunk" else FORWARD))
      for form in ("chunk", "fused_recurrent")),
    ops("gated_delta_product", "gated_delta_product", product_inputs,
        lambda m, **x: m.chunk_gated_delta_product(**x, num_householder=2)[0],
        lambda **x: formula.delta_product(**x, count=2), dtypes=("bfloat16",), keep=frozenset({3}),
        note="the package asserts bf16"),
    ops("mesa_net", "mesa_net", mesa_inputs, first("chunk_mesa_net"), formula.mesa, tolerance={"float32": 2e-2},
        note="conjugate gradients, 30 steps"),
    ops("momentum_delta_rule", "momentum_delta_rule", momentum_inputs,
        lambda m, **x: m.chunk_momentum_delta_rule(**x, use_qk_l2norm_in_kernel=False, use_p_times_alpha=False)[0],
        lambda **x: naive("fla.ops.momentum_delta_rule", "recurrent_momentum_delta_rule_ref")(**x)[0],
        dtypes=("bfloat16",), tolerance={"bfloat16": 8e-2}, keep=frozenset({4, 5}), note="the package asserts bf16"),
    ops("log_linear_attn", "log_linear_attn", lambda d: {
            "q": d.normal(1, 128, 1, 64), "k": d.normal(1, 128, 1, 64) / 8, "v": d.normal(1, 128, 2, 64),
            "g": gate(d, 1, 128, 2), "level_scales": d.uniform(1, 128, 2, 8)},
        first("chunk_log_linear_attn"), naive("fla.ops.log_linear_attn.naive", "naive_log_linear_attn"),
        tolerance=NAIVE),
    *(ops(f"gdn2, {form}", "gdn2", lambda d: {
            **with_beta(d, qkv(d)), "g": gate(d, 2, 100, 2, 32, scale=0.3), "b": d.uniform(2, 100, 2, 32),
            "w": d.uniform(2, 100, 2, 32)},
        lambda m, beta, form=form, **x: getattr(m, f"{form}_gdn2")(**x)[0],
        lambda beta, **x: naive("fla.ops.gdn2", "naive_recurrent_gdn2")(**x)[0], tolerance=NAIVE,
        **({} if form == "chunk" else FORWARD)) for form in ("chunk", "fused_recurrent")),
    ops("precond_gated_delta_rule", "precond_gated_delta_rule", lambda d: {
            **gated_beta(d, qkv(d)), "g_atk": gate(d, 2, 100, 2), "beta_atk": d.uniform(2, 100, 2)},
        first("chunk_precond_gated_delta_rule"),
        lambda **x: naive("fla.ops.precond_gated_delta_rule", "naive_recurrent_precond_gated_delta_rule")(**x)[0],
        tolerance=NAIVE),
    ops("precond_kda", "precond_kda", lambda d: {
            **channel_beta(d, qkv(d)), "g_atk": gate(d, 2, 100, 2), "beta_atk": d.uniform(2, 100, 2)},
        first("chunk_precond_kda"),
        lambda q, k, **x: naive("fla.ops.precond_kda", "naive_recurrent_precond_kda")(q=unit(q), k=unit(k), **x)[0],
        tolerance=NAIVE),
    *(ops(f"ttt, {form}", "ttt", lambda d: {
            **qkv(d, steps=64), "w": d.normal(2, 32), "b": d.normal(2, 32), "eta": d.uniform(2, 64, 2, 1) * 0.01},
        first(f"{form}_ttt_linear"), lambda **x: naive("fla.ops.ttt.naive", "chunk_ttt_linear_ref")(**x)[0],
        tolerance=NAIVE, note="its reference writes into q, so q is passed on as a new tensor")
      for form in ("chunk", "fused_chunk")),
    ops("hgrn, chunk", "hgrn", lambda d: {"x": d.normal(2, 100, 48), "g": gate(d, 2, 100, 48)}, first("chunk_hgrn"),
        lambda **x: formula.hgrn(**x)[0]),
    ops("hgrn, fused_recurrent", "hgrn",
        lambda d: {"x": d.normal(2, 100, 48), "g": gate(d, 2, 100, 48), "state": d.normal(2, 48)},
        lambda m, x, g, state: m.fused_recurrent_hgrn(x, g, state, True), formula.hgrn),
    ops("rwkv4", "rwkv4", rwkv4_inputs, whole("fused_recurrent_rwkv4"), formula.rwkv4),
]  # fmt: skip
