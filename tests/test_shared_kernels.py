"""The twenty shared kernels (``../shared/kernels``): unmodified Triton files with torch references, a process each.

The runner of that folder decides: right values are PASS; a diagnostic that names the construct and its marked line is
DIAGNOSED. Anything else fails here.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parents[1].parent / "shared" / "kernels"
RUNNER = FOLDER / "run_cases.py"
CASES = sorted(p.stem for p in FOLDER.glob("s[0-9][0-9]_*.py"))


@pytest.mark.skipif(not CASES, reason="the shared kernels are not beside this checkout")
@pytest.mark.parametrize("case", CASES)
def test_kernel(case, tmp_path):
    out = tmp_path / "row.json"
    done = subprocess.run(
        [sys.executable, str(RUNNER), "--shim", "frontend_triton_compat", "--case", case, "--json", str(out)],
        capture_output=True,
        text=True,
        timeout=180,
    )
    assert out.exists(), done.stderr[-2000:]
    (row,) = json.loads(out.read_text())
    assert row["status"] == "PASS", f"{row['status']}: {row.get('why', '')}\n{row.get('tb', '')}"
    assert done.returncode == 0, done.stdout
