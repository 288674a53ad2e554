"""Kernels over whole tiles, one a case: written as text, run by whoever is `triton`.

As a script: ``tile_cases.py KERNELS OUT NAMES`` runs the named cases of the file KERNELS and saves the results; under
``TRITON_INTERPRET=1`` these are the real interpreter's. Its bf16 arithmetic is wrong, so there bf16 inputs are fp32.
"""

from __future__ import annotations

import importlib.util
import itertools
import json
import math
import os
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

HEAD = '''"""Written by tile_cases.py."""

import triton
import triton.language as tl


@triton.jit
def mul(a, b):
    return a * b


@triton.jit
def first(a, b):
    return a


@triton.jit
def last(a, b):
    return b


@triton.jit
def linear(a1, b1, a2, b2):
    return a1 * a2, b1 * a2 + b2


@triton.jit
def larger(v0, i0, v1, i1):
    gt = v0 > v1
    return tl.where(gt, v0, v1), tl.where(gt, i0, i1)


@triton.jit
def shifted(n1, last1, now1, n2, last2, now2):
    return n1 + n2, tl.where(n2 == 1, now1, 0) + last2, now2


@triton.jit
def branching(a, b):
    if a > b:
        r = a
    else:
        r = b
    return r


@triton.jit
def returning(a, b):
    if a > b:
        return a
    else:
        return b


@triton.jit
def itself(a):
    return a * 2 - a


@triton.jit
def calling(a, b):
    return itself(a) + itself(b)


@triton.jit
def looping(a, b):
    r = a
    for i in range(3):
        r = r + b
    return r - 2 * b


@triton.jit
def while_looping(a, b):
    k = 0
    while k < 2:
        k += 1
    return a + b * (k - 1)


@triton.jit
def moments(m1, s1, w1, m2, s2, w2):
    d = m2 - m1
    w = w1 + w2
    r = w2 / w
    return m1 + d * r, s1 + s2 + d * d * w1 * r, w


@triton.jit
def log_add(a, b):
    m = tl.maximum(a, b)
    return m + tl.log(tl.exp(a - m) + tl.exp(b - m))
'''


@dataclass(frozen=True)
class Case:
    """One kernel.

    Attributes:
        inputs: (shape, dtype, how it is filled) of the tiles ``x0``, ``x1``, ... : ``""`` anything, ``"nan"`` with NaN,
            ``"ties"`` few different numbers, ``"low:high"`` integers of a range.
        body: what the kernel does with them.
        outputs: (name, shape, dtype) of what is stored.
        tolerance: relative and absolute.
        sample: whether the default run has it.
        programs: sizes of the grid, one launch each.
    """

    name: str
    inputs: tuple
    body: str
    outputs: tuple
    tolerance: float = 0.0
    sample: bool = False
    programs: tuple = (3,)


INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
FLOATS = ("float16", "float32", "float64", "bfloat16")
NARROW = ("float16", "bfloat16")
SHAPES = {1: (64,), 2: (4, 32), 3: (2, 8, 16), 4: (2, 4, 2, 8)}
SUMMED = {"int8": "int32", "int16": "int32", "uint8": "uint32", "uint16": "uint32"}
WIDENED = {d: "int32" for d in ("int8", "int16", "uint8", "uint16")} | {d: "float32" for d in NARROW}


def without(shape, axis, keep=False):
    """The shape of a reduction's result."""
    if axis is None:
        return (1,) * len(shape) if keep else ()
    a = axis % len(shape)
    return shape[:a] + ((1,) if keep else ()) + shape[a + 1 :]


def named(*parts):
    return "-".join("x".join(map(str, p)) if isinstance(p, tuple) else str(p) for p in parts)


def reductions():
    for op in ("sum", "max", "min", "argmax", "argmin"):
        arg = op.startswith("arg")
        for d in (*INTEGERS, *FLOATS):
            if (op, d) == ("sum", "int32"):
                continue  # the interpreter's total overflows
            out = "int32" if arg else (SUMMED if op == "sum" else WIDENED).get(d, d)
            loose = 2e-2 if op == "sum" and d in NARROW else 1e-5
            sample = d in ("uint8", "float16", "bfloat16")
            yield Case(
                named(op, d), (((64,), d, ""),), f"z = tl.{op}(x0, axis=0)", (("z", (), out),), loose, sample, (1, 3)
            )
        for rank, keep in itertools.product((2, 3, 4), (False, True)):
            for axis in (None, *range(-rank, rank)):
                if arg and axis is None:
                    continue
                out = (("z", without(SHAPES[rank], axis, keep), "int32" if arg else "float32"),)
                call = f"z = tl.{op}(x0, axis={axis}, keep_dims={keep})"
                sample = (rank, axis, keep) in ((2, None, True), (3, 1, False), (4, -3, True))
                yield Case(
                    named(op, rank, axis, keep),
                    ((SHAPES[rank], "float32", ""),),
                    call,
                    out,
                    1e-5,
                    sample and op != "min",
                )
        if op != "sum":
            out = "int32" if arg else "float32"
            for d in ("float32", "float16"):
                yield Case(
                    named(op, "nan", d), (((8, 16), d, "nan"),), f"z = tl.{op}(x0, 1)", (("z", (8,), out),), sample=True
                )
            yield Case(
                named(op, "ties"),
                (((16, 8), "int32", "ties"),),
                f"z = tl.{op}(x0, 0)",
                (("z", (8,), "int32"),),
                sample=arg,
            )
            yield Case(
                named(op, "long"),
                (((4, 512), "float32", "nan"),),
                f"z = tl.{op}(x0, 1)",
                (("z", (4,), out),),
                sample=arg,
            )
    for op in ("max", "min"):
        for d, fill in (("float32", "nan"), ("float32", "ties"), ("float16", ""), ("int8", "ties"), ("uint16", "")):
            call = f"z, i = tl.{op}(x0, 0, return_indices=True, keep_dims=True)"
            out = (("z", (1, 16), d), ("i", (1, 16), "int32"))
            yield Case(named(op, "indices", d, fill), (((8, 16), d, fill),), call, out, sample=d != "uint16")
    for d in INTEGERS:
        yield Case(
            named("xor", d), (((8, 16), d, ""),), "z = tl.xor_sum(x0, 1)", (("z", (8,), d),), sample=d == "uint8"
        )
        yield Case(
            named("or", d), (((8, 16), d, ""),), "z = tl.reduce_or(x0, 0)", (("z", (16,), d),), sample=d == "int64"
        )
    for d, to in itertools.product(  # int1 is not here: the interpreter's any() is not the compiled sum modulo 2
        ("int8", "uint8", "int32", "float16", "float32"), (*INTEGERS[::2], "float16")
    ):
        call = f"z = tl.sum(x0, 1, dtype=tl.{to}).to(tl.float32)"
        out = (("z", (4,), "float32"),)
        yield Case(named("sum", d, "as", to), (((4, 16), d, "0:3"),), call, out, sample=(d, to) == ("int8", "float16"))


def combinations():
    shape, both = (8, 16), (((8, 16), "float32", ""), ((8, 16), "float32", ""))
    pair = (((8, 16), "float32", ""), ((8, 16), "int64", ""))
    one = [
        ("mul", "float32"),
        ("first", "float32"),
        ("last", "int64"),
        ("branching", "float32"),
        ("returning", "int32"),
    ]
    one += [("calling", "float32"), ("log_add", "float32"), ("mul", "int8"), ("looping", "int32")]
    one += [("while_looping", "int32")]
    for axis, (fn, d) in itertools.product((0, 1), one):
        fill = "0:9" if fn.endswith("looping") else ""
        yield Case(
            named("reduce", fn, d, axis),
            ((shape, d, fill),),
            f"z = tl.reduce(x0, {axis}, {fn})",
            (("z", without(shape, axis), d),),
            1e-4,
            axis == 1,
        )
        for reverse in (False, True):
            yield Case(
                named("scan", fn, d, axis, reverse),
                ((shape, d, fill),),
                f"z = tl.associative_scan(x0, {axis}, {fn}, reverse={reverse})",
                (("z", shape, d),),
                1e-4,
                axis == 0 and reverse and fn in ("first", "branching", "mul"),
            )
    for axis in (0, 1):
        out = without(shape, axis)
        two = (("z", out, "float32"), ("y", out, "float32"))
        yield Case(
            named("reduce-linear", axis), both, f"z, y = tl.reduce((x0, x1), {axis}, linear)", two, 1e-4, axis == 0
        )
        call = f"z, y = tl.reduce((x0, x1), axis={axis}, combine_fn=larger, keep_dims=True)"
        kept = without(shape, axis, True)
        yield Case(
            named("reduce-larger", axis), pair, call, (("z", kept, "float32"), ("y", kept, "int64")), 0.0, axis == 1
        )
        call = f"z, y, w = tl.reduce((x0, tl.zeros_like(x0), tl.full(x0.shape, 1, x0.dtype)), {axis}, moments)"
        yield Case(named("reduce-moments", axis), both[:1], call, two, 1e-4, True)
        for reverse in (False, True):
            two_full = (("z", shape, "float32"), ("y", shape, "float32"))
            call = f"z, y = tl.associative_scan((x0, x1), {axis}, linear, reverse={reverse})"
            yield Case(named("scan-linear", axis, reverse), both, call, two_full, 1e-4, axis == 0)
            call = f"z, y = tl.associative_scan((x0, x1), {axis}, larger, reverse={reverse})"
            out = (("z", shape, "float32"), ("y", shape, "int64"))
            yield Case(named("scan-larger", axis, reverse), pair, call, out, 0.0, axis == 1)
            call = f"a, z, b = tl.associative_scan((1 + 0 * x0, 0 * x0, x0), {axis}, shifted, reverse={reverse})"
            yield Case(named("scan-shifted", axis, reverse), both[:1], call, two_full[:1], 1e-4, axis == 1)
    for keep in (False, True):
        call = f"z = tl.reduce(x0, None, mul, keep_dims={keep})"
        out = (("z", without((4, 8), None, keep), "float32"),)
        yield Case(named("reduce-all", keep), (((4, 8), "float32", ""),), call, out, 1e-4, True)
    body = "z = tl.reduce(x0, 0, branching)\ny = tl.associative_scan(x0, 0, first)"
    out = (("z", (8,), "float32"), ("y", (1, 8), "float32"))
    yield Case("combine-one", (((1, 8), "float32", ""),), body, out, 0.0, True)
    yield Case(
        "scan-wide",
        (((8, 128), "float32", ""),),
        "z = tl.associative_scan(x0, 0, log_add)",
        (("z", (8, 128), "float32"),),
        1e-4,
        True,
    )


def scans():
    for op in ("cumsum", "cumprod"):
        for d, reverse in itertools.product((*INTEGERS, *FLOATS), (False, True)):
            out = d if op == "cumprod" else SUMMED.get(d, d)
            out = "float32" if d == "bfloat16" else out
            loose = 2e-2 if d in NARROW else 1e-4
            call = f"z = tl.{op}(x0, axis=1, reverse={reverse})"
            sample = reverse and d in ("int8", "float32", "bfloat16")
            yield Case(named(op, d, reverse), (((4, 16), d, ""),), call, (("z", (4, 16), out),), loose, sample)
        shapes = ((8, 32), (32, 16), (2, 1024), (1024, 2), (1, 1024), (2, 4, 8), (2, 4, 2, 4), (512,))
        for shape, axis, reverse in itertools.product(shapes, (0, 1, -1, 2), (False, True)):
            if -len(shape) <= axis < len(shape):
                call = f"z = tl.{op}(x0, axis={axis}, reverse={reverse})"
                sample = (len(shape), axis, reverse) == (4, 2, True)
                yield Case(
                    named(op, shape, axis, reverse),
                    ((shape, "int32", ""),),
                    call,
                    (("z", shape, "int32"),),
                    0.0,
                    sample,
                )
    # long enough for the forms of long rows
    for op, shape, axis in (
        ("sum", (2, 16384), 1),
        ("sum", (512, 128), 0),
        ("prod", (2, 16384), 1),
        ("prod", (512, 128), 0),
    ):
        for d, reverse in itertools.product(("int32", "float32"), (False, True)):
            call = f"z = tl.cum{op}(x0, axis={axis}, reverse={reverse})"
            fill = "-2:3" if op == "sum" else "1:2"
            sample = axis == 1 or (op == "sum" and not reverse)
            yield Case(
                named("long", op, d, axis, reverse), ((shape, d, fill),), call, (("z", shape, d),), 1e-5, sample, (3,)
            )
    for to in ("int64", "float32", "int8"):
        call = f"z = tl.cumsum(x0, dtype=tl.{to})"
        yield Case(named("cumsum-as", to), (((64,), "int8", ""),), call, (("z", (64,), to),), 0.0, to == "int64")


def orders():
    for d, descending in itertools.product((*INTEGERS, *FLOATS), (False, True)):
        call = f"z = tl.sort(x0, descending={descending})"
        yield Case(
            named("sort", d, descending), (((4, 32), d, ""),), call, (("z", (4, 32), d),), 0.0, d in ("uint32", *FLOATS)
        )
    for shape in ((1, 512), (64, 8), (16,), (2, 4, 8), (16, 1)):
        yield Case(
            named("sort", shape),
            ((shape, "float32", ""),),
            f"z = tl.sort(x0, {len(shape) - 1})",
            (("z", shape, "float32"),),
        )
        for axis in range(len(shape)):
            call = f"z = tl.flip(x0, {axis})"
            sample = len(shape) == 3
            yield Case(named("flip", shape, axis), ((shape, "int32", ""),), call, (("z", shape, "int32"),), 0.0, sample)
    for d, k in itertools.product(("int32", "uint8", "uint32", "int64", *FLOATS), (1, 4, 32)):
        out = (("z", (4, k), d),)
        yield Case(named("topk", d, k), (((4, 32), d, ""),), f"z = tl.topk(x0, {k})", out, 0.0, k == 4)
    for descending in (False, True):
        body = "a = tl.sort(x0)\nb = tl.sort(x1, descending=True)\n"
        body += "c = tl.reshape(tl.permute(tl.join(a, b), 0, 2, 1), (4, 32))\n"
        body += f"z = tl.bitonic_merge(c, descending={descending})"
        two = (((4, 16), "int32", "0:100"), ((4, 16), "int32", "0:100"))
        yield Case(named("bitonic_merge", descending), two, body, (("z", (4, 32), "int32"),), 0.0, True)
    for d, index in itertools.product(("float32", "int8", "float16", "int64"), ("int32", "int64", "int8", "uint8")):
        sample = (d, index) in (("float16", "int64"), ("int8", "uint8"))
        yield Case(
            named("gather", d, index, 0),
            (((8, 4), d, ""), ((16, 4), index, "0:8")),
            "z = tl.gather(x0, x1, 0)",
            (("z", (16, 4), d),),
            0.0,
            sample,
        )
        yield Case(
            named("gather", d, index, 1),
            (((8, 16), d, ""), ((8, 4), index, "0:16")),
            "z = x0.gather(x1, -1)",
            (("z", (8, 4), d),),
            0.0,
            sample,
        )
    for n, bins in ((2048, 2), (256, 128), (32, 512), (8, 2)):
        body = f"z = tl.histogram(x0, {bins})\ny = tl.histogram(x0, {bins}, mask=x0 % 3 == 0)"
        out = (("z", (bins,), "int32"), ("y", (bins,), "int32"))
        yield Case(named("histogram", n, bins), (((n,), "int32", f"0:{bins}"),), body, out, 0.0, n == 256)
    for d in ("uint8", "int8", "uint32"):
        yield Case(
            named("histogram", d),
            (((64,), d, "0:16"),),
            "z = tl.histogram(x0, 16)",
            (("z", (16,), "int32"),),
            0.0,
            d == "int8",
        )


def shapes():
    for shape, new in (
        *(((64,), (8, 8)), ((4, 16), (64,)), ((4, 16), (16, 4)), ((2, 4, 8), (8, 8)), ((2, 2, 2, 8), (4, 16))),
        *(((8, 8), (2, 2, 2, 2, 4)), ((64,), (1, 64)), ((4, 1, 16), (4, 16)), ((4, 16), (4, 1, 16, 1))),
    ):
        body = f"z = tl.reshape(x0, {new})\ny = x0.reshape({', '.join(map(str, new))})\nw = x0.view({list(new)})"
        out = tuple((v, new, "int16") for v in "zyw")
        yield Case(named("reshape", shape, new), ((shape, "int16", ""),), body, out, 0.0, len(new) > 2)
    for shape in ((2, 4, 8), (2, 2, 4, 8), (2, 4, 2, 2, 4)):
        for i, perm in enumerate(itertools.permutations(range(len(shape)))):
            if len(shape) == 5 and i % 7:
                continue
            out = tuple(shape[p] for p in perm)
            body = f"z = tl.permute(x0, {perm})\ny = x0.trans({', '.join(map(str, perm))})"
            yield Case(
                named("permute", *perm),
                ((shape, "int8", ""),),
                body,
                (("z", out, "int8"), ("y", out, "int8")),
                0.0,
                i % 11 == 5,
            )
    yield Case(
        "trans",
        (((2, 4, 8), "float32", ""), ((4, 8), "float32", "")),
        "z = tl.trans(x0)\ny = tl.trans(x0, (2, 0, 1))\nw = x1.T",
        (("z", (2, 8, 4), "float32"), ("y", (8, 2, 4), "float32"), ("w", (8, 4), "float32")),
        sample=True,
    )
    for d in (*INTEGERS, *FLOATS):
        two, half = (((4, 8), d, ""), ((4, 8), d, "")), (((16,), d, ""), ((16,), d, ""))
        body = "z = tl.join(x0, x1)\na, b = tl.split(z)\ny = tl.interleave(x0, x1)\n"
        body += "w = tl.cat(x0, x1, dim=-1)\nv = tl.cat(x0, x1)"
        out = (
            ("z", (4, 8, 2), d),
            ("a", (4, 8), d),
            ("b", (4, 8), d),
            ("y", (4, 16), d),
            ("w", (4, 16), d),
            ("v", (8, 8), d),
        )
        yield Case(named("join", d), two, body, out, 0.0, d in ("uint16", "bfloat16"))
        yield Case(named("cat", d), half, "z = tl.cat(x0, x1, can_reorder=True)", (("z", (32,), d),), 0.0, d == "int8")
    scalars = (((), "int32", ""), ((), "int32", ""), ((2,), "int32", ""))
    body = "z = tl.join(x0, x1)\ntl.static_assert(z.shape == [2])\ny = tl.interleave(x0, x1)\n"
    body += "tl.static_assert(y.shape == [tl.constexpr(2)])\na, b = tl.split(x2)\n"
    body += "tl.static_assert(isinstance(a, tl.tensor))\ntl.static_assert(b.shape == [])\n"
    body += "w = tl.full((), 3, tl.int32)\ntl.static_assert(w.shape == [])\nv = tl.zeros((4,), tl.int32) + w"
    out = (("z", (2,), "int32"), ("y", (2,), "int32"), ("a", (), "int32"), ("b", (), "int32"), ("v", (4,), "int32"))
    yield Case("scalars", scalars, body, out, 0.0, True, (1, 3))
    body = "z = tl.expand_dims(x0, 0)\ny = tl.expand_dims(x0, -1)\nw = tl.expand_dims(x0, (0, 2))\n"
    body += "v = x0.expand_dims([0, -1])\nu = tl.broadcast_to(y, (4, 8, 2))\nt = tl.ravel(x0)\ns = tl.squeeze(y, 2)\n"
    body += "r = tl.unsqueeze(x0, 1)\nq = x0[:, None, :] + x0[None, :, :, None].reshape(4, 1, 8)\np = x0[:, :]"
    shapes_of = dict(
        z=(1, 4, 8), y=(4, 8, 1), w=(1, 4, 1, 8), v=(1, 4, 8, 1), u=(4, 8, 2), t=(32,), s=(4, 8), r=(4, 1, 8)
    )
    out = tuple((k, v, "float32") for k, v in (shapes_of | dict(q=(4, 1, 8), p=(4, 8))).items())
    yield Case("dimensions", (((4, 8), "float32", ""),), body, out, 0.0, True)
    body = "a, b = tl.broadcast(x0, x1)\nz = a - b\ny = tl.join(x0, x1)\n"
    body += "w = tl.broadcast_to(x2, (4, 8))\nv = x0.broadcast_to([4, 2])"
    out = (("z", (4, 8), "int32"), ("y", (4, 8, 2), "int32"), ("w", (4, 8), "int32"), ("v", (4, 2), "int32"))
    yield Case("broadcast", (((4, 1), "int32", ""), ((1, 8), "int32", ""), ((), "int32", "")), body, out, 0.0, True)
    body = "n = x0.numel + x0.shape[0] + x0.shape[-1] + len(x0.shape)\nz = tl.zeros(x0.shape, tl.int32) + n\n"
    body += "y = tl.reshape(x0, x0.shape[:-1] + [2, 4])\nw = tl.full([1] * 2 + [x0.shape[0]], 7, tl.int32)\n"
    body += "v = tl.full((4, 4), x1, tl.float32)\nu = x2.item()\nt = tl.reshape(x3, ())\ns = x1[None, None]"
    inputs = (((4, 8), "float32", ""), ((), "float32", ""), ((1,), "float32", ""), ((1, 1), "float32", ""))
    out = (("z", (4, 8), "int32"), ("y", (4, 2, 4), "float32"), ("w", (1, 1, 4), "int32"), ("v", (4, 4), "float32"))
    out += (("u", (), "float32"), ("t", (), "float32"), ("s", (1, 1), "float32"))
    yield Case("sizes", inputs, body, out, 0.0, True, (1, 3))
    body = "i = tl.arange(0, 16)[:, None]\nj = tl.arange(0, 8)[None, :]\na, b = tl.swizzle2d(i, j, 16, 8, 4)\n"
    body += "z = a * 100 + b + x0\ny = tl.arange(7, 23)"
    yield Case(
        "swizzle2d", (((16, 8), "int32", "0:9"),), body, (("z", (16, 8), "int32"), ("y", (16,), "int32")), 0.0, True
    )
    for shape, perm, axes in (
        ((4, 32, 2, 4, 2), (2, 1, 0, 3, 4), (3, 1, 0)),
        ((8, 2, 4, 4, 2), (4, 0, 1, 3, 2), (0, 2, 0)),
    ):
        out = tuple(shape[p] for p in perm)
        for axis in axes:
            out = without(out, axis)
        body = f"v = tl.permute(x0, {perm})\nz = tl.sum(tl.sum(tl.sum(v, {axes[0]}), {axes[1]}), {axes[2]})\n"
        body += f"f = tl.permute(tl.reshape(x1, {shape}), {perm})\n"
        body += f"y = tl.reshape(tl.sum(tl.sum(tl.sum(f, {axes[0]}), {axes[1]}), {axes[2]}), {math.prod(out)})"
        inputs = ((shape, "int32", "0:1000"), ((math.prod(shape),), "int32", "0:1000"))
        yield Case(
            named("chain", shape),
            inputs,
            body,
            (("z", out, "int32"), ("y", (math.prod(out),), "int32")),
            0.0,
            True,
            (2,),
        )


def products():
    kinds = (("float16", "float16"), ("float16", "float32"), ("float32", "float32"), ("int8", "int8"))
    kinds += (("float64", "float64"), ("bfloat16", "float32"))
    sizes = ((16, 16, 16), (64, 16, 32), (2, 2, 16), (1, 64, 64), (64, 2, 64), (64, 64, 4), (16, 16, 1))
    for (m, n, k), (d, to) in itertools.product(sizes, kinds):
        fill, out = ("-8:8", "int32") if d == "int8" else ("", to)
        loose = 2e-2 if d in NARROW else 1e-4
        body = f"z = tl.dot(x0, x1, out_dtype=tl.{to})\ny = tl.dot(tl.trans(x2), x3.T, out_dtype=tl.{to})"
        inputs = (((m, k), d, fill), ((k, n), d, fill), ((k, m), d, fill), ((n, k), d, fill))
        both = (("z", (m, n), out), ("y", (m, n), out))
        yield Case(named("dot", m, n, k, d, to), inputs, body, both, loose, m == 64 and n == 16, (1, 3))
        inputs = (((2, m, k), d, fill), ((2, k, n), d, fill))
        batched = (("z", (2, m, n), out),)
        yield Case(
            named("batched", m, n, k, d, to), inputs, body.split("\n")[0], batched, loose, m == 2 and d != "float64"
        )
    for precision in ("tf32", "tf32x3", "ieee"):
        body = f'z = tl.dot(x0, x1, input_precision="{precision}")'
        inputs = (((16, 32), "float32", ""), ((32, 16), "float32", ""))
        yield Case(named("dot", precision), inputs, body, (("z", (16, 16), "float32"),), 1e-4, precision == "tf32x3")
    operands = (((16, 32), "float16", ""), ((32, 16), "float16", ""))
    body = "z = tl.dot(x0, x1, x2)\ny = tl.dot(x0, x1, acc=x2, max_num_imprecise_acc=0)\n"
    body += "w = tl.dot(x0, x1, allow_tf32=False)"
    out = tuple((v, (16, 16), "float32") for v in "zyw")
    yield Case("dot-acc", (*operands, ((16, 16), "float32", "")), body, out, 1e-2, True)
    body = "z = tl.dot(x0, x1, x2, out_dtype=tl.float16)"
    yield Case("dot-acc16", (*operands, ((16, 16), "float16", "")), body, (("z", (16, 16), "float16"),), 2e-2, True)
    inputs = (((16, 32), "int8", "-9:9"), ((32, 16), "int8", "-9:9"), ((16, 16), "int32", "0:9"))
    body = "z = tl.dot(x0, x1, x2, out_dtype=tl.int32)"
    yield Case("dot-acc8", inputs, body, (("z", (16, 16), "int32"),), 0.0, True)
    epilogues = {
        "softmax": "m = tl.max(z, 1)\nn = tl.exp((z - m[:, None]).to(tl.float32)).to(m.dtype)"
        "\nz = n / tl.sum(n, 1)[:, None]",
        "matrix": "z += x2",
        "rows": "z += tl.sum(x2, 1)[:, None]",
        "columns": "z += tl.max(x2, 0)[None, :]",
        "chain": "z = tl.dot(z.to(x2.dtype), x2)",
    }
    for (name, code), d in itertools.product(epilogues.items(), ("float32", "float16", "bfloat16")):
        if (name, d) == ("chain", "bfloat16"):
            continue  # the interpreter does not round in between
        inputs = (((16, 32), d, ""), ((32, 16), d, ""), ((16, 16), d, ""))
        loose = 2e-2 if d in NARROW else 1e-4
        out = (("z", (16, 16), "float32"),)
        yield Case(named("dot", name, d), inputs, "z = tl.dot(x0, x1)\n" + code, out, loose, d == "float32")
    body = "z = tl.dot(x0, x0)\ny = tl.dot(x0, tl.trans(x0))\nw = tl.dot(tl.trans(x0), x0)"
    square = (((16, 16), "float32", ""),)
    yield Case("dot-itself", square, body, tuple((v, (16, 16), "float32") for v in "zyw"), 1e-4, True)
    body = "a = tl.reshape(tl.join(x0, 2 * x0), (32, 32))\nz = tl.dot(a, a)\n"
    body += "b = tl.full((32, 32), 1.0, tl.float32)\ny = tl.dot(b, b)"
    out = (("z", (32, 32), "float32"), ("y", (32, 32), "float32"))
    yield Case("dot-joined", (((32, 16), "float32", ""),), body, out, 1e-4, True)
    body = "z = tl.zeros((16, 16), tl.float32)\ny = x0\nfor i in range(3):\n    z += tl.dot(x0, x1)\n"
    body += "    y = tl.dot(y, x1) * 0.2"
    yield Case("dot-loop", square * 2, body, (("z", (16, 16), "float32"), ("y", (16, 16), "float32")), 1e-4, True)
    four = ((2, 2, 16, 16), "float32", "")
    yield Case("dot-4d", (four, four), "z = tl.dot(x0, x1)", (("z", four[0], "float32"),), 1e-4, True)
    body = "z = tl.sum(x0[:, :, None] * x1[None, :, :], axis=1)"
    inputs = (((16, 32), "float32", ""), ((32, 8), "float32", ""))
    yield Case("dot-spelled", inputs, body, (("z", (16, 8), "float32"),), 1e-4, True)


def mixtures():
    body = "c = tl.cumsum(x0, 1)\nz = tl.sum(c, 1)\ny = tl.max(c, 0)\nw = x0.argmax(1)\nv = x0.min(1, keep_dims=True)\n"
    body += "u = tl.softmax(x0)\nt = tl.softmax(x0, dim=0, keep_dims=True)\ns = x0.softmax(1, keep_dims=True)"
    out = (("z", (4,), "float32"), ("y", (16,), "float32"), ("w", (4,), "int32"), ("v", (4, 1), "float32"))
    out += tuple((v, (4, 16), "float32") for v in "uts")
    yield Case("mixture", (((4, 16), "float32", ""),), body, out, 1e-4, True)


CASES = {
    c.name: c for family in (reductions, combinations, scans, orders, shapes, products, mixtures) for c in family()
}


def addresses(shape) -> str:
    """The offsets of a contiguous tile."""
    if not shape:
        return "0"
    parts = []
    for i, n in enumerate(shape):
        at = ", ".join(":" if j == i else "None" for j in range(len(shape)))
        parts.append(f"tl.arange(0, {n})" + (f"[{at}] * {math.prod(shape[i + 1 :])}" if len(shape) > 1 else ""))
    return " + ".join(parts)


def write(path: Path, names) -> None:
    """The kernels of some cases as a Python file."""
    lines = [HEAD]
    for name in names:
        case = CASES[name]
        params = [f"X{i}" for i in range(len(case.inputs))] + [f"O{i}" for i in range(len(case.outputs))]
        lines += [
            "",
            f"# {name}",
            "@triton.jit",
            f"def {function(name)}({', '.join(params)}):",
            "    pid = tl.program_id(0)",
        ]
        for i, (shape, _, _) in enumerate(case.inputs):
            lines.append(f"    x{i} = tl.load(X{i} + pid * {math.prod(shape)} + {addresses(shape)})")
        lines += ["    " + line for line in case.body.split("\n")]
        for i, (value, shape, _) in enumerate(case.outputs):
            lines.append(f"    tl.store(O{i} + pid * {math.prod(shape)} + {addresses(shape)}, {value})")
    path.write_text("\n".join(lines) + "\n")


def function(name: str) -> str:
    return "k_" + "".join(c if c.isalnum() else "_" for c in name)


def fill(shape, dtype: str, how: str, seed: int) -> torch.Tensor:
    rng = np.random.RandomState(seed)
    to = getattr(torch, dtype)
    if how == "nan":
        x = rng.normal(0, 2, shape)
        x[rng.rand(*shape) < 0.1] = np.nan
        return torch.from_numpy(x).to(to)
    if how:
        low, high = (-2, 3) if how == "ties" else map(int, how.split(":"))
        return torch.from_numpy(np.asarray(rng.randint(low, high, shape))).to(to)
    if dtype.startswith(("int", "uint")):
        info = np.iinfo(dtype)
        return torch.from_numpy(np.asarray(rng.randint(info.min, info.max, shape, dtype=dtype)))
    return torch.from_numpy(np.asarray(rng.normal(0, 1, shape))).to(to)


def results(path: Path, names, interpreted: bool = False) -> dict[str, list[torch.Tensor]]:
    """What the kernels of a file store, by ``name@programs``."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    out = {}
    held = (lambda d: "float32" if d == "bfloat16" else d) if interpreted else (lambda d: d)
    for name in names:
        case = CASES[name]
        for n in case.programs:
            ins = [
                fill((n, *s), d, how, 17 + i).to(getattr(torch, held(d))) for i, (s, d, how) in enumerate(case.inputs)
            ]
            outs = [torch.zeros((n, *s), dtype=getattr(torch, held(d))) for _, s, d in case.outputs]
            getattr(module, function(name))[(n,)](*ins, *outs)
            out[f"{name}@{n}"] = outs
    return out


if __name__ == "__main__":
    assert os.environ["TRITON_INTERPRET"] == "1"
    file, saved, wanted = sys.argv[1:]
    torch.save(results(Path(file), json.loads(Path(wanted).read_text()), interpreted=True), saved)
