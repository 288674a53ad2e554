"""What each target can do, as data: limits, chips, dtypes, operations; and what of it exists here."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass

from pallas_core.targets import mosaic_gpu, tpu


@dataclass(frozen=True)
class TargetInfo:
    """One target as seen from this machine.

    Attributes:
        name: the target string.
        runs: whether kernels run on it here.
        compiles: whether kernels can be compiled for it here.
        note: what is missing, or "".
    """

    name: str
    runs: bool
    compiles: bool
    note: str = ""


class Targets(tuple):
    """All targets; prints as a table."""

    def __str__(self) -> str:
        rows = [f"{'target':12s} {'runs here':10s} {'compiles':9s} note"]
        rows += [
            f"{t.name:12s} {'yes' if t.runs else 'no':10s} {'yes' if t.compiles else 'no':9s} {t.note}" for t in self
        ]
        return "\n".join(row.rstrip() for row in rows)


def targets() -> Targets:
    """What exists here and what can be compiled for.

    Returns:
        `TargetInfo` tuples: the CPU, every TPU, every GPU; prints as a table.
    """
    from pallas_core.compat import has_platform
    from pallas_core.offline import gpu_tools

    lacking = gpu_tools.missing()

    libtpu = importlib.util.find_spec("libtpu") is not None
    tpu_here, gpu_here = has_platform("tpu"), has_platform("gpu")
    found = [TargetInfo("cpu", True, True)]
    for name in tpu.CHIPS:
        note = "" if libtpu else "pip install 'torch-pallas[tpu]' to compile"
        found.append(TargetInfo(f"tpu:{name}", tpu_here, libtpu, note))
    for name in mosaic_gpu.CHIPS:
        note = "" if not lacking else f"missing to compile: {', '.join(lacking)}"
        found.append(TargetInfo(f"gpu:{name}", gpu_here, not lacking, note))
    return Targets(found)
