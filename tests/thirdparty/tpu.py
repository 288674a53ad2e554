"""The third-party table's second stage: the kernels that a package's operators launch, on a TPU.

Input: a package on the path, a target. Output: a line a row and kernel: *ok* (the interpreter's values equal the CPU
form's, and the real compiler takes it), a diagnostic's code, or what is wrong; ``--json`` as data; ``--write`` the list
(`tpu_<package>.txt`, which a test holds) and the column of docs/third_party.md. Law: arguments are the launches' own,
small ones; a launch that differs from one before in numbers alone is not judged again.

    PYTHONPATH=/tmp/packages python tests/thirdparty/tpu.py --package liger --target tpu:v5e --write
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import run  # first: makes `import triton` ours
import table

from bridge.diagnostics import Diagnostic, DiagnosticNote
from frontend_triton_compat.record import Launch, watching

HERE = Path(__file__).resolve().parent
#: Largest number of elements of a launch that is interpreted.
SMALL = 1 << 17


def launches(row: table.Row, dtype: str) -> list[Launch]:
    """What a row launches, forward and backward."""
    with watching(keep=SMALL) as seen:
        table.run_row(row, dtype)
    return [one for one in seen if one.arguments is not None]


def key_of(one: Launch) -> str:
    """A launch without its sizes: kernel, dtypes and ranks of its tensors, flags and modes."""
    parts = []
    modes = {p.name for p in one.kernel.params if p.is_constexpr}
    for name, value in one.record["args"].items():
        if isinstance(value, dict) and "shape" in value:
            parts.append(f"{name}:{value['dtype']}{len(value['shape'])}")
        elif isinstance(value, bool | str) or value is None or (name in modes and value in range(-1, 4)):
            parts.append(f"{name}={value}")
    return f"{one.record['kernel']}({', '.join(parts)})"


def outcome(one: Launch, target: str, interpret: bool = True) -> tuple[str, str]:
    """What a target makes of a launch: ``ok``, a code, or ``wrong`` (values differ); and why."""
    grid, arguments = one.grid, one.arguments
    assert arguments is not None
    try:
        if interpret:
            one.kernel.verify(**arguments, grid=grid, target=target)
        verdict = one.kernel[grid].check(**arguments, target=target)
    except Diagnostic as refused:
        return ("wrong" if refused.slug in ("verify-mismatch", "kernel-race") else refused.code), str(refused)
    if verdict.verdict == "ok":
        return "ok", ""
    return verdict.code, verdict.message


def results(package: str, target: str, only: str = "", dtypes: tuple[str, ...] = ("float32",)) -> Iterator[Any]:
    """One result a row and kernel."""
    judged: dict[str, tuple[str, str]] = {}
    for row in run.rows_of(package):
        if row.unsupported or not re.search(only, row.name):
            continue
        for dtype in row.dtypes:
            if dtype not in dtypes:
                continue
            for key, one in {key_of(one): one for one in launches(row, dtype)}.items():
                start = time.perf_counter()
                if key not in judged:
                    judged[key] = outcome(one, target)
                said, why = judged[key]
                took = time.perf_counter() - start
                yield {"row": row.name, "dtype": dtype, "kernel": key, "outcome": said, "why": why, "seconds": took}


def write(package: str, found: list[dict[str, Any]]) -> None:
    """Write down the rows that were judged; others stay as they are."""
    page = HERE / f"tpu_{package}.txt"
    rows = {r["row"] for r in found}
    old = [line for line in page.read_text().splitlines() if line.split("\t")[0] not in rows] if page.exists() else []
    page.write_text(
        "\n".join(sorted({*old, *("\t".join((r["row"], r["outcome"], r["kernel"])) for r in found)})) + "\n"
    )
    run.DOCS.write_text(table.with_column(run.DOCS.read_text(), run.PACKAGES[package][0], table.on_tpu(package)))


def main(arguments: list[str] | None = None) -> int:
    """Run, print, write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--package", choices=list(run.PACKAGES), default="liger")
    parser.add_argument("--target", default="tpu:v5e")
    parser.add_argument("--only", default="", help="rows whose name matches this regular expression")
    parser.add_argument("--dtype", action="append", default=[], help="default: float32")
    parser.add_argument("--json", action="store_true", help="print the results as one JSON list")
    parser.add_argument("--write", action="store_true", help="write the list and the column")
    parser.add_argument("-v", "--verbose", action="store_true", help="print the whole message of what stopped")
    options = parser.parse_args(arguments)
    warnings.simplefilter("ignore", DiagnosticNote)
    found = []
    for r in results(options.package, options.target, options.only, tuple(options.dtype or ["float32"])):
        found.append(r)
        if not options.json:
            why = r["why"] if options.verbose else " ".join(r["why"].splitlines()[:1])[:150]
            print(
                f"{r['outcome']:7s} {r['row'][:28]:28s} {r['kernel'][:40]:40s} {r['seconds']:5.1f}s {why}", flush=True
            )
    if options.json:
        json.dump(found, sys.stdout, indent=1)
    if options.write:
        write(options.package, found)
    return int(any(r["outcome"] == "wrong" for r in found))


if __name__ == "__main__":
    raise SystemExit(main())
