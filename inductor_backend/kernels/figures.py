"""What the TPU compiler's schedule says of a graph: a verdict and figures per kernel, and for the whole.

Input: a `Place` whose programs were compiled with figures. Output: `KernelFigures` by name, `GraphFigures`. Law: the
figures are static, never compared with hardware but for matmuls on v5e; what stayed plain XLA because the compiler
refused it is named with the reason.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from inductor_backend.kernels.target import Place
from pallas_core.schedule import kernel_bound


@dataclass(frozen=True)
class KernelFigures:
    """One kernel.

    Attributes:
        grid: steps along each axis.
        time_s: static time of a run, None when the schedule does not name the kernel.
        bound: "hbm", "issue" or "latency".
        vmem_bytes: scoped VMEM.
    """

    grid: tuple[int, ...]
    time_s: float | None
    bound: str
    vmem_bytes: int | None


@dataclass(frozen=True)
class GraphFigures:
    """A graph on a TPU.

    Attributes:
        target: as in an option.
        time_s: static time of one run, XLA's part included, without launches.
        kernel_time_s: of that, its Pallas kernels.
        hbm_bytes: moved between HBM and the chip.
        refused: operator -> why the compiler refuses it inside a kernel.
        declined: operator -> why plain XLA is better for it.
        caveat: what the figures were not checked against.
    """

    target: str
    time_s: float
    kernel_time_s: float
    hbm_bytes: float
    refused: dict[str, str]
    declined: dict[str, str]
    caveat: str


def of_place(place: Place) -> tuple[GraphFigures, dict[str, KernelFigures]]:
    """The figures of a graph that was built with `figures` on."""
    from pallas_core.targets.tpu import CHIPS

    clock = CHIPS[place.chip].clock_hz
    kernels: dict[str, KernelFigures] = {}
    total = inside = moved = 0.0
    caveat = ""
    for program in place.programs:
        report: Any = program.report
        total, moved, caveat = total + report.time_s, moved + report.hbm_bytes, report.caveat
        inside += sum(k.cycles * k.runs for k in report.kernels if k.pallas) / clock
        for name, written in program.kernels.items():
            grid = tuple(a.steps for a in written.layout.grid)
            found = next((k for k in report.kernels if re.fullmatch(re.escape(name) + r"(\.\d+)*", k.name)), None)
            if found is None:
                kernels[name] = KernelFigures(grid, None, "", None)
            else:
                time = found.cycles / clock
                kernels[name] = KernelFigures(grid, time, kernel_bound(found, place.target), found.vmem_bytes)
    return GraphFigures(
        str(place.target), total, inside, moved, dict(place.refused), dict(place.declined), caveat
    ), kernels
