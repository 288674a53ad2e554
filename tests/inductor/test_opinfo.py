"""A sample of PyTorch's OpInfo database, and the sweep's own parts; `opinfo.py` beside this file runs the whole."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("expecttest", reason="torch.testing's operator database needs it")

import opinfo

SCRIPT = Path(opinfo.__file__)
#: One operator a kind: elementwise, rounding, extremes, reductions, scans, sorting, indexing, views, pads, pooling,
#: resampling, convolution, products, norms, losses, linear algebra, random numbers, sizes that depend on data.
SAMPLE = (
    "remainder", "lerp", "var_mean", "amax", "logcumsumexp", "sort", "index_put", "scatter_reduce.mean",
    "as_strided_scatter", "nn.functional.pad.reflect", "nn.functional.interpolate.bilinear",
    "nn.functional.conv_transpose2d", "nn.functional.layer_norm", "linalg.cholesky", "nn.functional.dropout", "unique",
)  # fmt: skip


@pytest.fixture(scope="module")
def judge():
    return opinfo.Judge()


@pytest.mark.parametrize("name", SAMPLE)
def test_sample_agrees_with_eager(judge, name):
    for dtype in opinfo.DTYPES:
        if opinfo.supports(judge.ops[name], dtype):
            made, chosen = judge.samples(name, dtype, 1, False)
            for i in chosen:
                record = judge.judge(name, dtype, made[i], False, False)
                assert record["verdict"] in opinfo.GOOD, (dtype, i, record)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", opinfo.DTYPES)
def test_whole_database(dtype, tmp_path):
    out = tmp_path / "records.json"
    root = str(SCRIPT.parents[2])
    subprocess.run(
        [sys.executable, str(SCRIPT), "--dtypes", dtype, "--limit", "2", "--json", str(out)],
        env={**os.environ, "PYTHONPATH": root}, check=True,
    )  # fmt: skip
    records = [r for r in json.loads(out.read_text()) if r["verdict"] != "skipped"]
    wrong = [r for r in records if r["verdict"] not in opinfo.GOOD]
    assert len(records) > 500 and len(wrong) <= len(records) / 100, wrong
    assert not [r for r in wrong if r["verdict"] in ("crash", "time-out", "raw-error")]


def test_verdicts_can_be_bad(judge):
    """The judge sees a wrong value, a wrong dtype, a wrong gradient and a changed argument."""
    torch = judge.torch
    made, _ = judge.samples("add", "float32", 1, True)
    sample = made[0]
    right = judge.run(torch.add, sample, 1, True)
    for wrong in (
        ([right[0][0] + 1], right[1], right[2]),
        ([right[0][0].double()], right[1], right[2]),
        (right[0], [g * 1.01 for g in right[1]], right[2]),
        (right[0], right[1], [t + 1 for t in right[2]]),
    ):
        assert judge.compare("add", "float32", sample, True, right, wrong)["verdict"] == "differs"
    assert judge.compare("add", "float32", sample, True, right, right)["verdict"] == "equal"


def test_a_dead_worker_is_a_verdict():
    """A crash costs one sample, and the next one is judged by a new worker."""
    script = """
import json, os, sys
say = lambda r: print(json.dumps(r), flush=True)
say({"ready": True})
for line in sys.stdin:
    start = json.loads(line)["start"]
    for i in range(start, 3):
        say({"begin": i})
        if i == 1:
            os._exit(7)
        say({"sample": i, "verdict": "equal"})
    say({"done": True})
"""
    records = []
    worker = opinfo.judge_task(None, {"op": "x"}, 30, records.append, [sys.executable, "-c", script])
    worker.stop()
    assert [(r["sample"], r["verdict"]) for r in records] == [(0, "equal"), (1, "crash"), (2, "equal")]
