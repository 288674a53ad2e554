"""Rows of fla-core: recurrences with a state, in their chunked and step-by-step forms, and packed.

Input: nothing. Output: `RECURRENCES`, and what the other rows of the package are made with. Law: as in `table.py`.
"""

from __future__ import annotations

import os

import fla_formulas as formula
import torch
import torch.nn.functional as F
from table import Row

os.environ.setdefault("TORCH_PALLAS_AUTOTUNE", "first")
BOUNDS = [0, 17, 64, 100, 150]
PACKED = torch.tensor(BOUNDS)
LENGTHS = [high - low for low, high in zip(BOUNDS, BOUNDS[1:])]
#: The package's own references compute in float32, and long chains of products lose a digit.
NAIVE = {"float32": 3e-4, "bfloat16": 5e-2}
CHAIN = {"float32": 1e-4, "bfloat16": 5e-2}


def row(operator, module, make, call, reference, variant="", **options):
    """A row whose inputs have names."""
    names: list[str] = []

    def inputs(draw):
        made = make(draw)
        names[:] = made
        return tuple(made.values())

    options.setdefault("dtypes", ("float32",))
    options.setdefault("tolerance", CHAIN)
    return Row(
        operator,
        module,
        inputs,
        lambda m, *x: call(m, **dict(zip(names, x))),
        lambda *x: reference(**dict(zip(names, x))),
        variant,
        **options,
    )


def gate(d, *shape, scale=1.0):
    return F.logsigmoid(d.normal(*shape)) * scale


def qkv(d, batch=2, steps=100, heads=2, keys=32, values=32, key_heads=None):
    k = (batch, steps, key_heads or heads)
    return {"q": d.normal(batch, steps, heads, keys), "k": d.normal(*k, keys) / keys**0.5, "v": d.normal(*k, values)}


def unit(x):
    return F.normalize(x, dim=-1)


def state_rows(operator, family, function, extra, reference, rename=None, packed=True, **options):
    """A recurrence with its state in and out, and the same on packed sequences."""
    renamed = rename or {}

    def call(m, state=None, **x):
        fixed = options.get("fixed", {})
        x = {renamed.get(n, n): t for n, t in x.items()}
        return getattr(m, function)(**x, **fixed, initial_state=state, output_final_state=True)

    def call_packed(m, state=None, **x):
        fixed = options.get("fixed", {})
        x = {renamed.get(n, n): t for n, t in x.items()}
        return getattr(m, function)(**x, **fixed, initial_state=state, output_final_state=True, cu_seqlens=PACKED)

    def dense(d):
        made = qkv(d)
        return {**extra(d, made), "state": d.normal(2, 2, 32, 32)}

    def ragged(d):
        made = qkv(d, batch=1, steps=150)
        return {**extra(d, made), "state": d.normal(4, 2, 32, 32)}

    def truth(state, **x):
        return formula.by_sequence(reference, BOUNDS, x, state)

    plain = {k: v for k, v in options.items() if k != "fixed"}
    module = f"fla.ops.{family}"
    rows = [row(operator, module, dense, call, reference, **plain)]
    if packed:
        rows.append(row(operator, module, ragged, call_packed, truth, "packed", **plain))
    return rows


def same(d, x):
    return x


def with_gate(d, x):
    return {**x, "g": gate(d, *x["q"].shape[:3])}


def with_key_gate(d, x):
    return {**x, "gk": gate(d, *x["q"].shape)}


def with_beta(d, x):
    return {**x, "k": unit(x["k"]), "beta": d.uniform(*x["q"].shape[:3])}


def gated_beta(d, x):
    return {**with_beta(d, x), "g": gate(d, *x["q"].shape[:3])}


def channel_beta(d, x):
    return {**with_beta(d, x), "g": gate(d, *x["q"].shape, scale=0.3)}


def with_p(d, x):
    return {**gated_beta(d, x), "p": unit(d.normal(*x["q"].shape)) * 0.8}


def with_ab(d, x):
    u = unit(d.normal(*x["q"].shape))
    return {**x, "a": -u, "b": u * d.uniform(*u.shape)}


def with_abg(d, x):
    return {**with_ab(d, x), "gk": gate(d, *x["q"].shape, scale=0.3)}


def with_bonus(d, x):
    return {**with_key_gate(d, x), "u": d.normal(*x["q"].shape[2:])}


def scalar_gate(q, k, v, g, state=None):
    return formula.recurrence(q, k, v, gk=g[..., None].expand_as(q), state=state)


def constant_gate(per_head):
    def reference(q, k, v, state=None):
        return formula.recurrence(q, k, v, gk=per_head(q.shape[2]).to(q)[:, None].expand_as(q), state=state)

    return reference


def decay_of_retention(heads):
    return torch.log(1 - 2.0 ** (-5 - torch.arange(heads, dtype=torch.float64)))


def decay_of_lightning(heads):
    # Of layer 3 of 4: the decay of earlier layers overflows in the lanes behind a sequence's end (0 * inf is NaN).
    return -(8 / heads * (1 - 3 / 4)) * torch.arange(heads, dtype=torch.float64)


def gated_delta(q, k, v, beta, g, state=None):
    gk = g[..., None].expand_as(k) if g.ndim == 3 else g
    return formula.delta_rule(q, k, v, beta, gk, state=state)


def comba(q, k, v, beta, g, p, state=None):
    return formula.delta_rule(q, k, v, beta, g[..., None].expand_as(k), p, state=state)


def unscaled(**x):
    return formula.recurrence(**x, scale=1.0)


FORWARD = {"grad": False, "note": "the package gives it no backward pass"}
RECURRENCES = [
    *(
        r
        for form in ("chunk", "fused_chunk", "fused_recurrent")
        for r in (
            *state_rows(
                f"linear_attn, {form}", "linear_attn", f"{form}_linear_attn", same, formula.recurrence,
                fixed={"normalize": False},
            ),
            *state_rows(
                f"retention, {form}", "retention", f"{form}_retention", same, constant_gate(decay_of_retention)
            ),
            *state_rows(f"simple_gla, {form}", "simple_gla", f"{form}_simple_gla", with_gate, scalar_gate),
        )
    ),
    *state_rows(
        "gla, chunk", "gla", "chunk_gla", with_key_gate, formula.recurrence, rename={"gk": "g"}
    ),
    *state_rows("gla, fused_recurrent", "gla", "fused_recurrent_gla", with_key_gate, formula.recurrence),
    *(
        r
        for form in ("chunk", "fused_recurrent")
        for r in state_rows(
            f"lightning_attn, {form}", "lightning_attn", f"{form}_lightning_attn", same,
            constant_gate(decay_of_lightning), fixed={"layer_idx": 3, "num_layers": 4},
        )
    ),
    *state_rows(
        "delta_rule, chunk", "delta_rule", "chunk_delta_rule", with_beta, formula.delta_rule, dtypes=("bfloat16",),
        keep=frozenset({4}), note="the package asserts bf16",
    ),
    *state_rows(
        "delta_rule, fused_recurrent", "delta_rule", "fused_recurrent_delta_rule", with_beta, formula.delta_rule
    ),
    *state_rows("gated_delta_rule, chunk", "gated_delta_rule", "chunk_gated_delta_rule", gated_beta, gated_delta),
    *state_rows(
        "gated_delta_rule, fused_recurrent", "gated_delta_rule", "fused_recurrent_gated_delta_rule", gated_beta,
        gated_delta, **FORWARD,
    ),
    *state_rows("kda, chunk", "kda", "chunk_kda", channel_beta, gated_delta),
    *state_rows("kda, fused_recurrent", "kda", "fused_recurrent_kda", channel_beta, gated_delta, **FORWARD),
    *state_rows("comba, chunk", "comba", "chunk_comba", with_p, comba),
    *state_rows("comba, fused_recurrent", "comba", "fused_recurrent_comba", with_p, comba, **FORWARD),
    *state_rows(
        "dplr, chunk", "generalized_delta_rule", "chunk_dplr_delta_rule", with_abg, formula.recurrence
    ),
    *state_rows(
        "dplr, fused_recurrent", "generalized_delta_rule", "fused_recurrent_dplr_delta_rule", with_abg,
        formula.recurrence, **FORWARD,
    ),
    *state_rows(
        "iplr, chunk", "generalized_delta_rule", "chunk_iplr_delta_rule", with_ab, formula.recurrence, **FORWARD
    ),
    *state_rows(
        "iplr, fused_recurrent", "generalized_delta_rule", "fused_recurrent_iplr_delta_rule", with_ab,
        formula.recurrence,
    ),
    *state_rows("rwkv6, chunk", "rwkv6", "chunk_rwkv6", with_bonus, formula.recurrence, rename={"q": "r", "gk": "w"}),
    *state_rows(
        "rwkv6, fused_recurrent", "rwkv6", "fused_recurrent_rwkv6", with_bonus, formula.recurrence,
        rename={"q": "r", "gk": "w"}, grad=False, note="its backward pass leaves out the final state's gradient",
    ),
    *state_rows("rwkv7, chunk", "rwkv7", "chunk_rwkv7", with_abg, unscaled, rename={"q": "r", "gk": "w"}),
    *state_rows(
        "rwkv7, fused_recurrent", "rwkv7", "fused_recurrent_rwkv7", with_abg, unscaled,
        rename={"q": "r", "gk": "w"}, fixed={"scale": 1.0}, **FORWARD,
    ),
]  # fmt: skip
