"""Result types of every operator on every pair of types, against the real Triton front end."""

from __future__ import annotations

import pytest

from .adapter import tl
from .genuine import TYPES
from .probing import ask_both

pytest.importorskip("triton._C.libtriton")
NAMES = ["int1", *TYPES]
PAIRS = [(a, b) for a in NAMES for b in NAMES]
OPERATORS = ["+", "-", "*", "/", "//", "%", "&", "^", "<<", ">>", "<", "=="]
FUNCTIONS = [
    "tl.maximum({a}, {b})",
    "tl.where({a} == {a}, {a}, {b})",
    "tl.clamp({a}, {b}, {b})",
    "tl.fma({a}, {a}, {b})",
]
NUMBERS = ["2", "-1", "True", "300", "2.5", "1e-300", "2147483648", "8589934592", "float('inf')"]
REDUCTIONS = [
    "tl.sum({a}, 0)",
    "tl.max({a}, 0)",
    "tl.min({a}, 0)",
    "tl.cumsum({a}, 0)",
    "tl.cumprod({a}, 0)",
    "tl.argmax({a}, 0)",
    "tl.xor_sum({a}, 0)",
    "tl.max({a}, 0, return_indices=True)[0]",
    "tl.max({a}, 0, return_indices=True)[1]",
]
UNARY = [
    "-{a}",
    "~{a}",
    "tl.abs({a})",
    "tl.exp({a})",
    "tl.sqrt({a})",
    "tl.floor({a})",
    "tl.sigmoid({a})",
    "tl.erf({a})",
    "tl.cdiv({a}, 3)",
]


def tile(name: str, side: str) -> str:
    """Lines that load a tile of a type into `side`."""
    if name == "int1":
        return f"{side} = tl.load(p_fp32 + tl.arange(0, 16)) > 0"
    return f"{side} = tl.load(p_{name} + tl.arange(0, 16))"


def scalar(name: str, side: str) -> str:
    return f"{side} = tl.load(p_fp32) > 0" if name == "int1" else f"{side} = tl.load(p_{name})"


def compare(bodies: dict[str, str], tmp_path) -> None:
    real, ours = ask_both(bodies, tmp_path)
    wrong = []
    for name, body in bodies.items():
        if real[name]["ok"] != ours[name]["ok"] or (real[name]["ok"] and real[name]["types"] != ours[name]["types"]):
            shown = body.strip().split("\n")[-1]
            wrong.append(
                f"{name}: {shown}\n   real {real[name]}\n   ours {ours[name].get('types') or ours[name].get('why')}"
            )
    assert not wrong, f"{len(wrong)} of {len(bodies)} differ:\n" + "\n".join(wrong[:40])


def probe(expression: str, *setup: str) -> str:
    return "\n".join([*setup, f'tl.static_print("T", ({expression}).dtype, ({expression}).shape)'])


@pytest.mark.parametrize("op", OPERATORS)
def test_operators_on_two_tiles(op, tmp_path):
    compare({f"k_{a}_{b}": probe(f"a {op} b", tile(a, "a"), tile(b, "b")) for a, b in PAIRS}, tmp_path)


@pytest.mark.parametrize("call", FUNCTIONS)
def test_functions_of_two_tiles(call, tmp_path):
    bodies = {f"k_{a}_{b}": probe(call.format(a="a", b="b"), tile(a, "a"), tile(b, "b")) for a, b in PAIRS}
    compare(bodies, tmp_path)


def test_a_run_time_scalar_promotes_as_a_tile_does(tmp_path):
    bodies = {
        f"k{i}_{a}_{b}": probe(f"a {op} b", tile(a, "a"), scalar(b, "b"))
        for i, op in enumerate(["+", "/", "<"])
        for a, b in PAIRS
    }
    compare(bodies, tmp_path)


@pytest.mark.parametrize("op", ["+", "*", "/", "//", "%", "&", ">>", "<", "=="])
def test_a_number_of_lower_or_equal_kind_does_not_promote(op, tmp_path):
    bodies = {}
    for a in NAMES:
        for i, number in enumerate(NUMBERS):
            bodies[f"k_{a}_{i}"] = probe(f"a {op} {number}", tile(a, "a"))
            bodies[f"r_{a}_{i}"] = probe(f"{number} {op} a", tile(a, "a"))
            bodies[f"v_{a}_{i}"] = probe(f"a {op} c", tile(a, "a"), f"c = {number}")  # a variable is no literal
    compare(bodies, tmp_path)


def test_reductions_and_unary_functions(tmp_path):
    bodies = {
        f"k{i}_{a}": probe(call.format(a="a"), tile(a, "a"))
        for i, call in enumerate([*REDUCTIONS, *UNARY])
        for a in NAMES
    }
    compare(bodies, tmp_path)


def test_casts(tmp_path):
    names = [*TYPES, "float8e4nv", "float8e5"]
    tl_name = {"fp16": "float16", "bf16": "bfloat16", "fp32": "float32", "fp64": "float64"}
    bodies = {}
    for a in NAMES:
        for b in ["int1", *names]:
            t = f"tl.{tl_name.get(b, b)}"
            bodies[f"k_{a}_{b}"] = probe(f"a.to({t})", tile(a, "a"))
            bodies[f"b_{a}_{b}"] = probe(f"a.to({t}, bitcast=True)", tile(a, "a"))
            bodies[f"z_{a}_{b}"] = probe(f"a.to({t}, fp_downcast_rounding='rtz')", tile(a, "a"))
    compare(bodies, tmp_path)


def test_every_name_of_the_real_language_is_here():
    import triton.language as real

    assert [n for n in [*real.__all__, *dir(real)] if not n.startswith("_") and not hasattr(tl, n)] == []
    assert [n for n in dir(real.tensor) if not n.startswith("_") and not hasattr(tl.tensor, n)] == []
    assert [n for n in dir(real.math) if not n.startswith("_") and not hasattr(tl.math, n)] == ["core"]


def test_names_without_a_translation_say_so(tmp_path):
    bodies = {
        "k_asm": "r = tl.inline_asm_elementwise('ex2.approx.f32 $0, $1;', '=f,f', [n], tl.float32, True, 1)",
        "k_lib": "r = libdevice.jn(2, tl.load(p_fp32))",
        "k_clock": "r = tl.extra.cuda.globaltimer()",
    }
    _, ours = ask_both(bodies, tmp_path)
    for name, word in (
        ("k_asm", "ex2.approx"),
        ("k_lib", "libdevice.jn"),
        ("k_clock", "globaltimer"),
    ):
        assert ours[name]["slug"] == ("inline-asm" if name == "k_asm" else "not-translated")
        assert word in ours[name]["why"]


def test_dot_types(tmp_path):
    load = "tl.load(p_{t} + tl.arange(0, 32)[:, None] * 32 + tl.arange(0, 32)[None, :])"
    bodies = {
        f"k_{a}_{b}": probe("tl.dot(a, b)", "a = " + load.format(t=a), "b = " + load.format(t=b))
        for a in TYPES
        for b in TYPES
    }
    for a in ("int8", "fp16", "bf16", "fp32", "fp64"):
        for out in ("float16", "float32", "bfloat16"):
            bodies[f"o_{a}_{out}"] = probe(f"tl.dot(a, a, out_dtype=tl.{out})", "a = " + load.format(t=a))
    compare(bodies, tmp_path)
