"""Launches written down and rebuilt: what `record` writes is enough to translate the kernel again."""

from __future__ import annotations

import json
import math
from typing import NamedTuple

import jax.numpy as jnp
import pytest
import torch

import frontend_triton_compat as triton
import frontend_triton_compat.language as tl
from bridge.diagnostics import Diagnostic
from frontend_triton_compat import cli, record
from frontend_triton_compat.cli import samples
from frontend_triton_compat.descriptors import TensorDescriptor


@triton.jit
def square(x):
    return x * x


@triton.jit
def apply(x, o, scale, n, BLOCK: tl.constexpr, F: tl.constexpr, OUT: tl.constexpr, bias=None):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = F(tl.load(x + i, mask=i < n)) * scale
    if bias is not None:
        v += tl.load(bias + i, mask=i < n)
    tl.store(o + i, v.to(OUT), mask=i < n)


def launch(x, o, n=100):
    apply[(triton.cdiv(n, 64),)](x, o, 0.5, n, BLOCK=64, F=square, OUT=tl.bfloat16)


def test_a_record_is_plain_and_gives_the_same_source():
    x, o = torch.randn(100), torch.zeros(100, dtype=torch.bfloat16)
    with record.recording() as records:
        launch(x, o)
    (one,) = json.loads(json.dumps(records, allow_nan=False))
    assert one["kernel"] == "apply" and one["file"] == __file__ and one["grid"] == [2, 1, 1]
    assert one["line"] == apply.where.line
    scope = apply.fn.__globals__
    rebuilt = {name: record.restore(value, scope) for name, value in one["args"].items()}
    assert rebuilt["x"].device.type == "meta" and rebuilt["F"] is square and rebuilt["OUT"] == tl.bfloat16
    assert rebuilt["bias"] is None and rebuilt["scale"] == 0.5 and rebuilt["n"] == 100
    source = apply.source(grid=tuple(one["grid"]), **rebuilt)
    assert source == apply[(2,)].source(x, o, 0.5, 100, BLOCK=64, F=square, OUT=tl.bfloat16)


@pytest.mark.parametrize(
    "value",
    [
        3,
        2.5,
        True,
        None,
        "text",
        (1, (2, None)),
        tl.float16,
        torch.bfloat16,
        math.inf,
        -math.inf,
        torch.zeros(3, 4),
        torch.zeros(3, 4).t(),
        torch.zeros(8)[2:5],
        torch.zeros(2, 8)[:, ::2],
        torch.tensor(1),
        torch.zeros(4).expand(3, 4),
        (torch.zeros(2), 1),
    ],
    ids=repr,
)
def test_round_trip(value):
    described = json.loads(json.dumps(record.describe(value), allow_nan=False))
    back = record.restore(described)

    def same(a, b):
        if isinstance(a, torch.Tensor):
            places = lambda t: (t.shape, t.stride(), t.dtype, t.storage_offset(), t.untyped_storage().nbytes())
            assert places(a) == places(b)
        elif isinstance(a, tuple):
            assert len(a) == len(b)
            for u, v in zip(a, b):
                same(u, v)
        else:
            assert a == b and type(a) is type(b)

    same(value, back)


def test_nan_jax_arrays_and_reinterpreted_tensors():
    assert math.isnan(record.restore(record.describe(math.nan)))
    assert record.restore(record.describe(jnp.zeros((2, 3), jnp.bfloat16))).shape == (2, 3)
    seen = record.restore(record.describe(triton.reinterpret(torch.zeros(4, dtype=torch.uint8), tl.float8e5)))
    assert seen.dtype == tl.float8e5 and seen.base.device.type == "meta"


class Pair(NamedTuple):
    left: object
    right: object


def test_descriptors_and_named_tuples():
    desc = TensorDescriptor.from_tensor(torch.zeros(64, 32), [16, 16], padding="nan")
    back = record.restore(json.loads(json.dumps(record.describe(desc))))
    assert (back.shape, back.strides, back.block_shape, back.padding) == ([64, 32], [32, 1], [16, 16], "nan")
    assert back.base.device.type == "meta" and back.base.shape == (64, 32)
    described = json.loads(json.dumps(record.describe(Pair(torch.zeros(3), 2))))
    for scope in ({"Pair": Pair}, {}):
        pair = record.restore(described, scope)
        assert pair._fields == ("left", "right") and pair.left.shape == (3,) and pair.right == 2
    one = {"args": {"d": record.describe(desc), "p": described, "v": record.describe(torch.zeros(9)[::2])}}
    assert record.size_of(one) == 64 * 32 + 3 + 5 and record.memory_of_record(one) == 64 * 32 + 3 + 9


@pytest.mark.parametrize(
    "described",
    [{"unsupported": "<object>"}, {"shape": [2], "dtype": "float33"}, {"type": "nope"}, {"function": "gone"}, {}],
)
def test_what_can_not_be_rebuilt_says_so(described):
    with pytest.raises(Diagnostic) as caught:
        record.restore(described)
    assert caught.value.code == "TPB003" and caught.value.do


def test_a_launch_that_is_refused_is_recorded():
    @triton.jit
    def count(x, out):
        tl.atomic_add(out, tl.load(x))

    def run():
        count[(2,)](torch.ones(2, dtype=torch.int8), torch.zeros(1, dtype=torch.int8))

    seen, stopped = record.run_recorded(run)
    assert isinstance(stopped, Diagnostic) and stopped.code == "TPB280"
    assert [one.record["kernel"] for one in seen] == ["count"] and seen[0].kernel is count


def test_tuning_runs_are_not_recorded():
    kernel = triton.autotune([triton.Config({"BLOCK": b}) for b in (16, 32)], key=[])(triton.jit(lambda_free_copy))
    x, o = torch.ones(32), torch.zeros(32)
    with record.recording() as records:
        kernel[lambda meta: (32 // meta["BLOCK"],)](x, o)
    assert len(records) == 1
    assert records[0]["args"]["BLOCK"] == kernel.best_config.kwargs["BLOCK"]


def lambda_free_copy(x, o, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(o + i, tl.load(x + i))


def test_recording_ends_when_the_context_ends():
    x, o = torch.randn(100), torch.zeros(100, dtype=torch.bfloat16)
    with pytest.raises(ZeroDivisionError), record.recording() as records:
        launch(x, o)
        raise ZeroDivisionError
    launch(x, o)
    assert len(records) == 1


# -- text


def test_spec():
    text = (
        "k(x=f32[4096,8], y=bf16[16], z=i64[], n=4096, s=-1.5, t=(1, f16[2]), m='tf32', b=None, "
        "d=tl.float16, F=act, grid=(4, 2))"
    )
    one = record.parse_spec(text)
    assert one["kernel"] == "k" and one["grid"] == [4, 2]
    args = one["args"]
    assert args["x"] == {"shape": [4096, 8], "dtype": "float32"} and args["z"] == {"shape": [], "dtype": "int64"}
    assert args["n"] == 4096 and args["s"] == -1.5 and args["m"] == "tf32" and args["b"] is None
    assert args["t"] == [1, {"shape": [2], "dtype": "float16"}]
    assert record.restore(args["d"]) == tl.float16 and args["F"] == {"function": "act"}
    assert record.restore(args["y"]).dtype == torch.bfloat16
    assert record.size_of(one) == 4096 * 8 + 16 + 1 + 2


def test_a_spec_counts_bounds_and_strides():
    one = record.parse_spec(
        "k(n=1000, B=next_power_of_2(n - 100), x=f32[n, 2 * 3], y=f32[4, 6].strides(8, 1), i=i64[n] % (n // 10), "
        "o=sorted(i32[9] % 1000), d=descriptor(bf16[64, 128], (16, 32)), m=min(n, 7), grid=(cdiv(n, B), max(2, 3)))"
    )
    args = one["args"]
    assert one["grid"] == [1, 3] and args["B"] == 1024 and args["m"] == 7
    assert args["x"]["shape"] == [1000, 6] and args["i"]["below"] == 100
    assert record.restore(args["y"]).stride() == (8, 1)
    assert record.restore(args["d"]).block_shape == [16, 32]
    (sample,) = samples.of_record(one, {})
    given = sample.arguments
    assert given["y"].stride() == (8, 1) and given["x"].shape == (1000, 6) and given["x"].std() > 0.9
    assert 0 <= given["i"].min() and 50 < given["i"].max() < 100
    offsets = given["o"].tolist()
    assert offsets == sorted(offsets) and offsets[0] == 0 and offsets[-1] == 999
    assert given["d"].base.dtype == torch.bfloat16 and given["d"].base.device.type == "cpu"
    again = samples.of_record(one, {})[0].arguments
    assert torch.equal(again["x"], given["x"])


def test_large_launches_take_no_memory(tmp_path, capsys):
    path = tmp_path / "large.py"
    path.write_text(
        "import triton\nimport triton.language as tl\n\n\n@triton.jit\ndef scale(x, o, n, BLOCK: tl.constexpr):\n"
        "    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)\n"
        "    tl.store(o + i, tl.load(x + i, mask=i < n) * 2, mask=i < n)\n\n\n"
        'CHECK = "scale(n=1000000 * 1000000, x=f32[n], o=f32[n], BLOCK=1048576, grid=cdiv(n, BLOCK))"\n'
    )
    assert cli.main(["check", str(path), "--target", "cpu", "--json", "-"]) == 0  # four terabytes a tensor
    (row,) = json.loads(capsys.readouterr().out)
    assert row["verdict"] == "ok" and "f32[1000000000000]" in row["launch"]
    assert cli.main(["check", str(path), "--target", "cpu", "--verify"]) == 0
    assert "values not compared" in capsys.readouterr().out


@pytest.mark.parametrize(
    "text",
    [
        "k(x=f32[4] % 5, grid=1)",
        "k(x=i32[4] % 0, grid=1)",
        "k(x=sorted(i32[4]), grid=1)",
        "k(x=f32[4].strides(1, 2), grid=1)",
        "k(n=1 // 0, grid=1)",
        "k(x=descriptor(f32[4, 4]), grid=1)",
        "",
        "k",
        "k(",
        "k(f32[4], grid=1)",
        "k(x=f32[4])",
        "k(x=f33[4], grid=1)",
        "k(x=f32[n], grid=1)",
        "k(x=f32[-1], grid=1)",
        "k(x=1, grid=(1,1,1,1))",
        "k(x=1, grid=1.5)",
        "k(x=open('f'), grid=1)",
        "m.k(x=1, grid=1)",
        "k(**x, grid=1)",
        "k(d=tl.nope, grid=1)",
    ],
)
def test_spec_that_can_not_be_read(text):
    with pytest.raises(Diagnostic) as caught:
        record.parse_spec(text)
    assert caught.value.code == "TPB003" and caught.value.why and "grid=(16,)" in caught.value.do[0]
