"""The third-party table holds: of every package that is installed, no row is wrong, and none stops without a code.

A package's rows run in a process of their own, where ``import triton`` is ours from the start.
"""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
PACKAGES = {"liger": "liger_kernel", "fla": "fla", "gems": "flag_gems"}


@pytest.mark.slow
@pytest.mark.parametrize("package", PACKAGES)
def test_rows_are_right_or_diagnosed(package):
    if importlib.util.find_spec(PACKAGES[package]) is None:
        pytest.skip(f"{PACKAGES[package]} is not installed")
    if not (HERE / f"rows_{package}.py").exists():
        pytest.skip("it has no rows")
    command = [sys.executable, str(HERE / "run.py"), "--package", package, "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=3000)
    assert done.stdout, done.stderr[-3000:]
    results = json.loads(done.stdout)
    bad = [
        (r["row"], r["dtype"], r["why"])
        for r in results
        if {r["forward"], r["backward"]} & {"wrong", "stops"} or r["forward"] == "TPB004" or r["backward"] == "TPB004"
    ]
    assert not bad, bad
    assert any(r["forward"] == "right" for r in results)
