"""Run the third-party table: every row of the packages that can be imported, forward and backward.

Input: packages on the path (nothing is installed). Output: a line a row; ``--json`` the results as data; ``--write``
the package's section of docs/third_party.md (other packages' sections stay). Law: exit status 1 if any row is wrong.

    pip install --no-deps --target /tmp/packages liger-kernel
    PYTHONPATH=/tmp/packages python tests/thirdparty/run.py --package liger --write
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib
import importlib.metadata
import importlib.util
import json
import re
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parents[1])]

from frontend_triton_compat import shim  # noqa: E402  (found beside the tests)

shim.install()

import table  # noqa: E402
import torch  # noqa: E402

DOCS = HERE.parents[1] / "docs" / "third_party.md"
#: Name on the command line -> (the distribution on PyPI, its importable name). The rows are in rows_<name>.py.
PACKAGES = {
    "liger": ("liger-kernel", "liger_kernel"),
    "fla": ("fla-core", "fla"),
    "gems": ("flag-gems", "flag_gems"),
}
HEAD = """\
# Third-party Triton kernels

Operators of packages from PyPI, unmodified, on CPU tensors with `import triton` resolving to this package. Each is run
forward and backward in the dtypes that its row names and held against its formula in torch at float64: *right* within
rounding, *diagnosed* with a code (`torch-pallas explain` prints its page), *stops* with an error of its own, or *not
supported* on a CPU. Written by `tests/thirdparty/run.py --write`; the rows are in `tests/thirdparty/rows_*.py`.

The column *TPU* says of the kernels that a row launches in fp32, at the row's small sizes: *ok*, where the TPU form's
values on Pallas' TPU interpreter equal the CPU form's and the compiler for v5e takes it, or the code of the diagnostic,
with the kernel it is about. Nothing ran on a TPU. Written by `tests/thirdparty/tpu.py --write`.
"""


def rows_of(package: str) -> list[table.Row]:
    """The rows of a package."""
    return list(importlib.import_module(f"rows_{package}").ROWS)


def available(package: str) -> bool:
    """Whether a package and its rows are here."""
    names = (PACKAGES[package][1], f"rows_{package}")
    return all(importlib.util.find_spec(name) is not None for name in names)


def section(package: str, results: list[table.Result]) -> str:
    """A package's part of the page."""
    distribution = PACKAGES[package][0]
    version = importlib.metadata.version(distribution)
    outcomes = [r.forward for r in results] + [r.backward for r in results]
    right, run = sum(o == "right" for o in outcomes), sum(o not in ("", "not supported") for o in outcomes)
    counted = f"{right} of {run} passes are right (a pass: one row, one dtype, forward or backward)."
    text = table.markdown(results)
    note = getattr(importlib.import_module(f"rows_{package}"), "NOTE", "")
    told = f"{counted}\n\n{note}" if note else counted
    page = f"## {distribution} {version}\n\ntorch {torch.__version__.split('+')[0]}. {told}\n\n{text}\n"
    return table.with_column(page, distribution, table.on_tpu(package))


def write(sections: dict[str, str], page: Path = DOCS) -> None:
    """Replace the sections of the packages that ran."""
    old = page.read_text() if page.exists() else ""
    parts = {m[1]: m[0].strip() + "\n" for m in re.finditer(r"^## (\S+).*?(?=^## |\Z)", old, re.M | re.S)}
    parts |= {PACKAGES[name][0]: text for name, text in sections.items()}
    order = [d for d, _ in PACKAGES.values() if d in parts]
    page.write_text("\n".join([HEAD, *(parts[d] for d in order)]))


def main(arguments: list[str] | None = None) -> int:
    """Run, print, write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--package", choices=list(PACKAGES), action="append", help="default: all that are importable")
    parser.add_argument("--only", default="", help="rows whose name matches this regular expression")
    parser.add_argument("--dtype", action="append", default=[], help="only these dtypes")
    parser.add_argument("--json", action="store_true", help="print the results as one JSON list")
    parser.add_argument("--write", action="store_true", help="write docs/third_party.md")
    parser.add_argument("-v", "--verbose", action="store_true", help="print the whole message of what stopped")
    options = parser.parse_args(arguments)
    packages = options.package or [p for p in PACKAGES if available(p)]
    for package in packages:
        if not available(package):
            parser.error(f"{PACKAGES[package][0]} cannot be imported, or has no rows_{package}.py")
    everything: list[table.Result] = []
    sections: dict[str, str] = {}
    for package in packages:
        rows = [r for r in rows_of(package) if re.search(options.only, r.name)]
        results: list[table.Result] = []
        for row in rows:
            for r in table.run_rows([row], options.dtype):
                results.append(r)
                if not options.json:
                    _print(r, options.verbose)
        everything += results
        sections[package] = section(package, results)
    if options.json:
        json.dump([dataclasses.asdict(r) for r in everything], sys.stdout, indent=1)
    if options.write:
        write(sections)
    return int(any("wrong" in (r.forward, r.backward) for r in everything))


def _print(r: table.Result, verbose: bool) -> None:
    errors = "/".join(f"{e:.1e}" for e in r.errors)
    why: Any = r.why if verbose else r.why.splitlines()[0][:110] if r.why else ""
    print(f"{r.row:44s} {r.dtype:9s} {r.forward:9s} {r.backward:9s} {errors:17s} {r.seconds:5.1f}s {why}", flush=True)


if __name__ == "__main__":
    raise SystemExit(main())
