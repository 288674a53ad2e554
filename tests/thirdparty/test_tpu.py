"""The third-party page's TPU column: what is written down holds, and nothing there is wrong.

With the package installed, a sample of its kernels is judged anew; all of them with ``--slow``.
"""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest
import table

HERE = Path(__file__).parent
PAGE = HERE.parents[1] / "docs" / "third_party.md"
PACKAGES = {"liger": ("liger_kernel", "liger-kernel")}
#: Rows that are judged in every run.
SAMPLE = {"liger": "^(rms_norm|swiglu|softmax|rope|cross_entropy)$"}


@pytest.mark.parametrize("package", PACKAGES)
def test_nothing_is_wrong_and_the_page_says_the_same(package):
    lines = [line.split("\t") for line in (HERE / f"tpu_{package}.txt").read_text().splitlines()]
    assert lines and all(outcome == "ok" or outcome.startswith("TPB") for _, outcome, _ in lines)
    page = PAGE.read_text()
    assert table.with_column(page, PACKAGES[package][1], table.on_tpu(package)) == page


@pytest.mark.tpu_offline
@pytest.mark.parametrize("package,rows", [(p, SAMPLE[p]) for p in PACKAGES])
def test_a_sample_holds(package, rows):
    _judge(package, rows)


@pytest.mark.slow
@pytest.mark.tpu_offline
@pytest.mark.parametrize("package", PACKAGES)
def test_all_hold(package):
    _judge(package, "")


def _judge(package: str, rows: str) -> None:
    """What `tpu.py` finds is what it wrote down, or better."""
    if importlib.util.find_spec(PACKAGES[package][0]) is None:
        pytest.skip(f"{PACKAGES[package][0]} is not installed")
    pytest.importorskip("libtpu")
    command = [sys.executable, str(HERE / "tpu.py"), "--package", package, "--only", rows, "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=3000)
    assert done.stdout, done.stderr[-3000:]
    known = {
        (row, kernel): outcome
        for row, outcome, kernel in (
            line.split("\t") for line in (HERE / f"tpu_{package}.txt").read_text().splitlines()
        )
    }
    found = json.loads(done.stdout)
    worse = [r for r in found if r["outcome"] != "ok" and known.get((r["row"], r["kernel"])) in ("ok", None)]
    assert found and not worse, [(r["row"], r["kernel"], r["outcome"], r["why"]) for r in worse]
