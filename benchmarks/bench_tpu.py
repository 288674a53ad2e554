"""Static times of Triton kernels on TPUs: the real compiler's schedule, without a TPU.

Every kernel of `kernels_tpu.py` is translated, compiled for every chip and its schedule read; the figures go into
`tpu_static.toml` (which a test holds to 5 %) and `docs/tpu_figures.md`. Beside them stands the time of a Pallas kernel
written by hand for the same mathematics, and XLA's own. ``--kernels DIR`` prints the figures of the acceptance kernels
in a folder instead, at the same sizes, and writes nothing.

    python benchmarks/bench_tpu.py                       # all rows; minutes
    python benchmarks/bench_tpu.py --only s07 --chips v6e
    python benchmarks/bench_tpu.py --xla                 # XLA's figures too, which otherwise stay as they are
"""

from __future__ import annotations

import argparse
import importlib.util
import sys
import time
import tomllib
import warnings
from importlib.metadata import version
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

from kernels_tpu import Launch, launches  # noqa: E402  (found beside this file)

import bridge.diagnostics  # noqa: E402
import pallas_core as pc  # noqa: E402
from pallas_core.targets.tpu import CHIPS  # noqa: E402

TABLE, PAGE = HERE / "tpu_static.toml", HERE.parent / "docs" / "tpu_figures.md"
NAMES = ("v5e", "v6e", "7x")
#: The schedule is theirs: another version gives other figures.
PACKAGES = ("jax", "libtpu")

#: Static ms on v5e, v6e and 7x of Pallas kernels written by hand for the same mathematics and sizes, block sizes tuned
#: for each chip, compiled by the same compiler (jax 0.10.2, libtpu 0.0.42) and read by the same simulator. Matmuls are
#: shares of the bf16 peak. What has no figure was not written by hand.
HAND: dict[str, tuple[float | None, float | None, float | None]] = {
    "s01": (0.984, 0.492, 0.219),
    "s02": (0.328, 0.165, 0.074),
    "s02-bf16": (0.165, 0.084, 0.054),
    "s03": (0.164, 0.083, 0.041),
    "s04": (0.165, 0.083, 0.043),
    "s05": (0.492, 0.246, 0.110),
    "s05-backward": (0.820, 0.410, 0.182),
    "s06": (1.28, 0.641, 0.299),
    "s09": (0.376, 0.178, 0.148),
    "s09-causal": (0.277, 0.126, 0.134),
    "s09-by-16": (0.376, 0.178, 0.148),
    "s09-causal-by-64": (0.277, 0.126, 0.134),
    "s10": (0.329, 0.165, 0.073),
    "s12": (0.329, 0.167, 0.106),
    "s13": (0.166, 0.083, 0.046),
    "s15": (0.207, 0.106, 0.068),
    "s17": (0.656, 0.328, 0.147),
}
#: What matmuls must reach, as a share of the chip's bf16 peak; by hand 0.967, 0.892 and 0.930 were reached.
MATMUL = (0.93, 0.86, 0.88)

PREFACE = """\
# Static times on TPUs

Written by `python benchmarks/bench_tpu.py`, from `benchmarks/tpu_static.toml`. Each Triton kernel of
`benchmarks/kernels_tpu.py`, written with a GPU's block sizes, is translated, compiled by the chip's real compiler and
timed on the compiler's own schedule: one bundle a cycle, full HBM bandwidth, no launch overhead. **Nothing here was run
on a TPU.** The simulator was compared with published times of matrix products on v5e (within 4 %); kernels bound by
memory, and other chips, were never compared with hardware. The figures are of one TensorCore; a 7x has two.

*reference*: a Pallas kernel written by hand for the same mathematics, its blocks tuned for the chip, compiled and timed
in the same way; for the matmuls 93, 86 and 88 % of the bf16 peak. *XLA*: the same mathematics in jax. Causal attention
counts half of the products.

"""


def hand(launch: Launch, chip: str) -> float | None:
    """The reference's ms: a hand-written kernel's, or the time at the share of the peak that a matmul must reach."""
    i = NAMES.index(chip)
    if launch.name in HAND:
        return HAND[launch.name][i]
    if launch.name in ("s07", "s18"):
        return launch.flops / CHIPS[chip].peak_flops / MATMUL[i] * 1e3
    return None


def measure(launch: Launch, chip: str, kernel: Any = None, acceptance: bool = False) -> dict[str, Any]:
    """The figures of one kernel on one chip; a diagnostic's code where there are none."""
    kernel = kernel or launch.kernel
    args = launch.acceptance_args if acceptance and launch.acceptance_args is not None else launch.args
    meta = launch.acceptance_meta if acceptance and launch.acceptance_meta is not None else launch.meta
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", bridge.diagnostics.DiagnosticNote)
        verdict = kernel[launch.grid].check(*args, **meta, target=f"tpu:{chip}")
    if verdict.verdict != "ok":
        return {"code": f"{verdict.code} {verdict.slug}", "message": verdict.message}
    static = verdict.static
    row = {
        "ms": float(f"{static['time_ms']:.4g}"),
        "bound": static["bound"],
        "hbm_mib": round(static["hbm_bytes"] / 2**20),
        "vmem_mib": round((static["vmem_bytes"] or 0) / 2**20, 1),
    }
    if launch.flops:
        row["peak"] = round(launch.flops / CHIPS[chip].peak_flops / static["time_ms"] * 1e3, 3)
    return row


def measure_xla(launch: Launch, chip: str) -> float | None:
    """XLA's ms for the same mathematics; None where compiling it takes minutes."""
    if launch.xla is None or (launch.flops and chip != "v5e"):
        return None
    specs = [pc.spec(shape, dtype) for shape, dtype in launch.xla_args]
    return float(f"{pc.schedule_report(launch.xla, specs, f'tpu:{chip}').time_s * 1e3:.4g}")


def acceptance_kernel(launch: Launch, folder: Path) -> Any:
    """The kernel of an acceptance file; None where there is none for the row."""
    from frontend_triton_compat import shim

    shim.install()
    files = sorted(folder.glob(f"{launch.name.split('-')[0]}_*.py"))
    if not files or not launch.function:
        return None
    spec = importlib.util.spec_from_file_location(files[0].stem, files[0])
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[files[0].stem] = module
    spec.loader.exec_module(module)
    return getattr(module, launch.function)


def read() -> dict[str, dict[str, Any]]:
    """The checked-in table."""
    return tomllib.loads(TABLE.read_text()) if TABLE.exists() else {}


def write(table: dict[str, dict[str, Any]], order: list[Launch]) -> None:
    """The table as TOML and as a page."""
    TABLE.write_text(_toml(table, order))
    PAGE.write_text(_page(table, order))


def _toml(table: dict[str, dict[str, Any]], order: list[Launch]) -> str:
    lines = [
        "# Written by benchmarks/bench_tpu.py: static ms on one TensorCore; a test holds them to 5 %.",
        "",
        "[made-with]",
        *(f'{package} = "{version(package)}"' for package in PACKAGES),
    ]
    for launch in order:
        if launch.name not in table:
            continue
        lines += ["", f"[{launch.name}]", f'size = "{launch.size}"']
        for chip in NAMES:
            row = table[launch.name].get(chip)
            if row is not None:
                parts = [f"{k} = {_value(v)}" for k, v in row.items()]
                lines.append(f"{chip} = {{ {', '.join(parts)} }}")
    return "\n".join(lines) + "\n"


def _value(value: Any) -> str:
    return f'"{value}"' if isinstance(value, str) else repr(value)


def _page(table: dict[str, dict[str, Any]], order: list[Launch]) -> str:
    text = [
        *PREFACE.splitlines(),
        "| kernel | chip | ms | bound | % of peak | reference | ms / reference | XLA | XLA / ms |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for launch in order:
        for i, chip in enumerate(NAMES):
            row = table.get(launch.name, {}).get(chip)
            if row is None:
                continue
            name = f"{launch.name}: {launch.size}" if i == 0 else ""
            goal, ms, xla = hand(launch, chip), row.get("ms"), row.get("xla")
            cells = [
                name,
                chip,
                f"{ms:.3g}" if ms else row["code"],
                row.get("bound", ""),
                f"{100 * row['peak']:.1f}" if "peak" in row else "",
                f"{goal:.3g}" if goal else "",
                f"{ms / goal:.2f}" if ms and goal else "",
                f"{xla:.3g}" if xla else "",
                f"{xla / ms:.2f}" if xla and ms else "",
            ]
            text.append("| " + " | ".join(cells) + " |")
    return "\n".join(text) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="names of rows, with commas between them")
    parser.add_argument("--chips", default=",".join(NAMES), help="with commas between them")
    parser.add_argument("--xla", action="store_true", help="compile XLA's forms too")
    parser.add_argument("--kernels", type=Path, help="a folder of acceptance kernels: print their figures instead")
    parser.add_argument("--dry", action="store_true", help="print, but write nothing")
    options = parser.parse_args()
    order = launches()
    only = [name for name in options.only.split(",") if name]
    table = read()
    for launch in order:
        if only and launch.name not in only:
            continue
        kernel = acceptance_kernel(launch, options.kernels) if options.kernels else None
        if options.kernels and kernel is None:
            continue
        for chip in options.chips.split(","):
            start = time.perf_counter()
            row = measure(launch, chip, kernel, acceptance=options.kernels is not None)
            old = table.setdefault(launch.name, {}).get(chip, {})
            xla = measure_xla(launch, chip) if options.xla else old.get("xla")
            if xla is not None:
                row["xla"] = xla
            goal = hand(launch, chip)
            ratio = f"{row['ms'] / goal:5.2f} of the reference" if goal and "ms" in row else ""
            peak = f" {100 * row['peak']:.1f} % of peak" if "peak" in row else ""
            figure = f"{row['ms']:8.4g} ms {row['bound']:7s}{peak} {ratio}" if "ms" in row else row["code"]
            print(f"{launch.name:13s} {chip:4s} {figure}  ({time.perf_counter() - start:.0f} s)", flush=True)
            if "ms" not in row and (options.dry or options.kernels):
                print("    " + "\n    ".join(row["message"].splitlines()[:6]))
            row.pop("message", None)
            table[launch.name][chip] = row
            if not options.kernels and not options.dry:
                write(table, order)


if __name__ == "__main__":
    main()
