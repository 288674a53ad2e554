"""Rows of liger-kernel's losses, with their options. The formulas are in `liger_formulas.py`."""

from __future__ import annotations

import dataclasses

import liger_formulas as formula
import torch
import torch.nn.functional as F
from table import Row

OPS = "liger_kernel.ops"
FULL = ("float32", "bfloat16", "float16")


def labels(d, high, rows, ignored=-100):
    """Class numbers, some of them the ignored one."""
    t = d.integers(high, rows)
    return t if ignored is None else t.masked_fill(d.bools(rows, share=0.3), ignored)


def log_rows(d, *shape):
    return torch.log_softmax(d.normal(*shape), -1)


def probabilities(d, *shape):
    return torch.softmax(d.normal(*shape), -1)


def entropy(variant, dtypes=("float32", "bfloat16"), weighted=False, columns=300, large=None, **options):
    """A row of cross_entropy; what it returns beside the losses has rows of its own."""
    order = ("ignore", "z_scale", "smoothing", "reduction", "softcap")
    values = {"ignore": -100, "z_scale": 0.0, "smoothing": 0.0, "reduction": "mean", "softcap": None, **options}
    with_z = bool(values["z_scale"])

    def call(ops, x, t, w):
        out = ops.LigerCrossEntropyFunction.apply(x, t, w, *(values[n] for n in order), with_z)
        return out[:2] if with_z else out[0]

    def reference(x, t, w):
        loss, z = formula.cross_entropy(x, t, w, **values)
        return (loss, z) if with_z else loss

    return Row(
        "cross_entropy",
        OPS,
        lambda d: (
            d.normal(9, columns, scale=2.0),
            labels(d, columns, 9, ignored=values["ignore"]),
            d.uniform(columns, low=0.2) if weighted else None,
        ),
        call,
        reference,
        variant,
        dtypes,
        constant=frozenset({2}),
        keep=frozenset({2}),
        large=large,
    )


def predictions(d):
    x = d.normal(9, 300)
    return x, labels(d, 300, 9, None)


CROSS_ENTROPY = [
    entropy("", FULL, large=lambda d: (d.normal(2048, 32000), d.integers(32000, 2048), None)),
    entropy("sum", reduction="sum"),
    entropy("one loss a row", reduction="none"),
    entropy("label smoothing", smoothing=0.1),
    entropy("soft cap", softcap=3.0),
    entropy("z loss", z_scale=1e-2),
    entropy("class weights", weighted=True),
    entropy("class weights, sum", weighted=True, reduction="sum"),
    entropy("all at once", weighted=True, z_scale=1e-2, smoothing=0.1, softcap=5.0, ignore=7),
    entropy("several blocks a row", ("float32",), columns=40000),
    Row(
        "cross_entropy",
        OPS,
        predictions,
        lambda ops, x, t: ops.LigerCrossEntropyFunction.apply(
            x, t, None, -100, 0.0, 0.0, "mean", None, False, True, True
        )[2:],
        lambda x, t: ((x.argmax(-1) == t).double().mean(), x.argmax(-1)),
        "accuracy and predictions",
        grad=False,
    ),
    *(
        Row(
            "vocab_parallel_cross_entropy",
            OPS,
            lambda d: (d.normal(3, 4, 300), labels(d, 300, 12).reshape(3, 4)),
            lambda ops, x, t, smoothing=smoothing: ops.LigerVocabParallelCEFunction.apply(
                x, t, None, -100, smoothing, "pytorch", "global"
            ),
            lambda x, t, smoothing=smoothing: F.cross_entropy(
                x.flatten(0, 1), t.flatten(), label_smoothing=smoothing, reduction="none"
            ).reshape(t.shape),
            variant,
            large=(lambda d: (d.normal(2, 512, 32000), d.integers(32000, 2, 512))) if not smoothing else None,
        )
        for variant, smoothing in (("", 0.0), ("label smoothing", 0.1))
    ),
]


def linear_entropy(variant, bias=False, **options):
    values = {"ignore": -100, "z_scale": 0.0, "smoothing": 0.0, "reduction": "mean", "softcap": None, **options}
    scaled = values.pop("scaled", False)
    order = ("ignore", "z_scale", "smoothing", "reduction", "softcap")

    def call(ops, x, w, t, b):
        return ops.LigerFusedLinearCrossEntropyFunction.apply(
            x, w, t, b, None, *(values[n] for n in order), False, None, scaled
        )[0]

    return Row(
        "fused_linear_cross_entropy",
        OPS,
        lambda d: (d.normal(9, 32), d.normal(120, 32, scale=0.2), labels(d, 120, 9), d.normal(120) if bias else None),
        call,
        lambda x, w, t, b: formula.cross_entropy(F.linear(x, w, b), t, scaled=scaled, **values)[0],
        variant,
        tolerance={"bfloat16": 5e-2},  # the logits are rounded to bf16 by torch's own matmul
        large=(lambda d: (d.normal(1024, 512), d.normal(16000, 512, scale=0.05), d.integers(16000, 1024), None))
        if not variant
        else None,
    )


DIVERGENCES = [
    linear_entropy(""),
    linear_entropy("bias, label smoothing", bias=True, smoothing=0.1),
    linear_entropy("one loss a row", reduction="none"),
    linear_entropy("soft cap, z loss, sum", softcap=20.0, z_scale=1e-3, reduction="sum"),
    linear_entropy("tokens scaled by probability", scaled=True),
    *(
        Row(
            "kl_div",
            OPS,
            lambda d, log=log: (log_rows(d, 6, 300), log_rows(d, 6, 300) if log else probabilities(d, 6, 300)),
            lambda ops, y, t, how=how, log=log: ops.LigerKLDivLossFunction.apply(y, t, how, log),
            lambda y, t, how=how, log=log: formula.kl_div(y, t, how, log),
            f"{how}{', log target' * log}",
            constant=frozenset({1}),
            large=(lambda d: (log_rows(d, 2048, 8192), probabilities(d, 2048, 8192))) if how == "batchmean" else None,
        )
        for how, log in (("batchmean", False), ("sum", True), ("mean", False), ("none", True))
    ),
    *(
        Row(
            "jsd",
            OPS,
            lambda d, marked=marked: (
                log_rows(d, 6, 300),
                log_rows(d, 6, 300),
                labels(d, 300, 6) if marked else None,
            ),
            lambda ops, x, y, t, beta=beta: ops.LigerJSDFunction.apply(x, y, t, beta, -100),
            lambda x, y, t, beta=beta: formula.jsd(x, y, t, beta),
            f"beta {beta}{', ignored rows' * marked}",
            constant=frozenset({1}),
            large=(lambda d: (log_rows(d, 1024, 8192), log_rows(d, 1024, 8192), None)) if beta == 0.5 else None,
        )
        for beta, marked in ((0.5, False), (0.0, False), (1.0, False), (0.1, True))
    ),
    Row(
        "fused_linear_jsd",
        OPS,
        lambda d: (
            d.normal(9, 32),
            d.normal(120, 32, scale=0.2),
            d.normal(9, 48),
            d.normal(120, 48, scale=0.2),
            labels(d, 120, 9),
        ),
        lambda ops, x, w, tx, tw, t: ops.LigerFusedLinearJSDFunction.apply(x, w, tx, tw, t, 0.5, -100, 2.0),
        lambda x, w, tx, tw, t: formula.jsd(
            torch.log_softmax(x @ w.T / 2.0, -1), torch.log_softmax(tx @ tw.T / 2.0, -1), t
        ),
        constant=frozenset({2, 3}),
        tolerance={"bfloat16": 6e-2},  # logits and their gradient are rounded to bf16 by torch's own matmul
    ),
    Row(
        "fused_linear_kl_div",
        OPS,
        lambda d: (d.normal(9, 32), d.normal(120, 32, scale=0.2), probabilities(d, 9, 120), labels(d, 120, 9)),
        lambda ops, x, w, t, y: ops.LigerFusedLinearKLDivFunction.apply(x, w, t, y, "batchmean", -100, 2.0),
        lambda x, w, t, y: (t * (t.log() - torch.log_softmax(x @ w.T / 2.0, -1)))[y != -100].sum() / (y != -100).sum(),
        constant=frozenset({2}),
        tolerance={"bfloat16": 6e-2},  # as above
    ),
    *(
        Row(
            "tvd",
            OPS,
            lambda d, columns=columns: (
                probabilities(d, 6, columns),
                probabilities(d, 6, columns),
                labels(d, columns, 6) if columns == 300 else None,
            ),
            lambda ops, p, q, t, how=how: ops.LigerTVDLossFunction.apply(p, q, t, how, -100),
            lambda p, q, t, how=how: formula.tvd(p, q, t, how),
            how + variant,
            constant=frozenset({1}),
            large=(lambda d: (probabilities(d, 2048, 8192), probabilities(d, 2048, 8192), None))
            if how == "batchmean"
            else None,
        )
        for how, columns, variant in (
            ("batchmean", 300, ", ignored rows"),
            ("mean", 300, ", ignored rows"),
            ("none", 300, ", ignored rows"),
            ("sum", 20000, ", several blocks a row"),
        )
    ),
    Row(
        "fused_ce_tvd",
        OPS,
        lambda d: (d.normal(9, 300), d.normal(9, 300), labels(d, 300, 9)),
        lambda ops, s, t, y: ops.LigerFusedCETVDFunction.apply(s, t, y, -100),
        formula.ce_tvd,
        constant=frozenset({1}),
        large=lambda d: (d.normal(1024, 8192), d.normal(1024, 8192), d.integers(8192, 1024)),
    ),
    Row(
        "fused_linear_scaled_cross_entropy",
        unsupported="without a GPU the package computes it in torch; no kernel runs",
    ),
]


def policy(variant, old=True, masked=True, shape=(2, 4, 300), large=None, **options):
    """A row of grpo_loss."""
    values = {"temperature": 0.9, "beta": 0.04, "low": 0.2, "high": 0.4, **options}
    kind, level = values.get("kind", "grpo"), values.get("level", "token")
    per_token = values.pop("ratio", None)

    def inputs(d):
        batch, length, vocabulary = shape
        logits = d.normal(batch, length + 1, vocabulary)
        ids = d.integers(vocabulary, batch, length)
        close = formula.per_token_logp(logits, ids, 0.9)  # ratios near one, some of them clipped
        return (
            logits,
            close + d.normal(batch, length, scale=0.3) if old else None,
            close + d.normal(batch, length, scale=0.3),
            ids,
            d.normal(batch),
            d.bools(batch, length, share=0.7).to(torch.int32) if masked else None,
            d.uniform(batch, length if per_token == "token" else 1, low=0.5, high=1.5) if per_token else None,
            d.uniform(batch, low=0.5, high=1.5) if kind == "vespo" else None,
        )

    def call(ops, logits, old_logp, ref, ids, advantages, mask, ratio, phi):
        return ops.GrpoLossFunction.apply(
            logits,
            old_logp,
            ref,
            ids,
            advantages,
            mask,
            values["temperature"],
            values["beta"],
            values["low"],
            values["high"],
            False,
            kind,
            None,
            True,
            level,
            1.0,
            1.05,
            ratio,
            values.get("delta"),
            values.get("corrected", False),
            None,
            phi,
        )

    return Row(
        "grpo_loss",
        OPS,
        inputs,
        call,
        lambda logits, old_logp, ref, ids, advantages, mask, ratio, phi: formula.grpo(
            logits, old_logp, ref, ids, advantages, mask, ratio=ratio, phi=phi, **values
        ),
        variant,
        dtypes=("float32",),
        constant=frozenset({1, 2, 4, 6, 7}),
        keep=frozenset({1, 2, 4, 6, 7}),
        large=large,
    )


def long_policy(d):
    logits, ids = d.normal(2, 257, 16000), d.integers(16000, 2, 256)
    close = formula.per_token_logp(logits, ids, 0.9)
    return logits, close, close, ids, d.normal(2), None, None, None


POLICIES = [
    policy("", large=long_policy),
    policy("first step, no mask, no KL", old=False, masked=False, beta=0.0),
    policy("two-sided clipping, ratio a token", delta=1.5, ratio="token"),
    policy("sequence level", level="sequence", corrected=True),
    policy("sequence level, ratio a sequence", level="sequence", ratio="sequence", delta=1.2),
    policy("dapo, corrected KL", kind="dapo", corrected=True),
    *(policy(kind, kind=kind) for kind in ("bnpo", "dr_grpo", "cispo", "sapo", "vespo")),
    dataclasses.replace(
        policy("luspo", kind="luspo"),
        grad=False,
        note="its backward pass reads beyond the gradient's (batch, 1) tensor",
    ),
    policy("several blocks a row", shape=(1, 3, 5000)),
]

LOSSES = [*CROSS_ENTROPY, *DIVERGENCES, *POLICIES]
