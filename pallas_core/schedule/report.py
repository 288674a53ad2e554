"""What a static schedule says: times, what bounds them, who is busy; as a table, JSON or HTML.

Input: simulated runs and the compiler's figures. Output: `Kernel` and `Report`. Law: every rendering carries the
caveat that these are static figures, and which of them were never compared with hardware.
"""

from __future__ import annotations

import html
import json
from dataclasses import asdict, dataclass, field
from typing import Any

from pallas_core.targets.tpu import MIB, TpuChip


@dataclass(frozen=True)
class Kernel:
    """One scheduled kernel of a program: a Pallas kernel or an XLA fusion.

    Attributes:
        name: the instruction's name in the HLO.
        pallas: whether it is a Pallas kernel.
        runs: times it runs in one run of the program.
        cycles: of one run, stalls included.
        stall_cycles: waiting for copies, of one run.
        issue_cycles: bundles issued, of one run.
        bundles: length of the schedule.
        hbm_bytes: moved by its copies, of one run.
        vmem_bytes: scoped VMEM that the compiler gave it, None when it says nothing.
        spills: vector spill slots in the schedule (each bundle once).
        fills: vector fill slots.
        utilisation: unit -> share of its slots used, in the main loop where there is one.
        trips: iterations of the main loop, 0 without one.
        cycles_per_trip: bundles of one iteration.
        unknown_branches: branches on data, assumed to run their region.
        extrapolated: what was scaled, or "".
    """

    name: str
    pallas: bool
    runs: float
    cycles: float
    stall_cycles: float
    issue_cycles: float
    bundles: int
    hbm_bytes: float
    vmem_bytes: int | None
    spills: int | None
    fills: int | None
    utilisation: dict[str, float]
    trips: int
    cycles_per_trip: float
    unknown_branches: int
    extrapolated: str


@dataclass(frozen=True)
class Report:
    """The static figures of a program on a chip (one TensorCore).

    Attributes:
        name: of the function.
        target: ``tpu:v5e`` ...
        time_s: seconds of one run, without launch overhead.
        bound: ``"hbm"``, ``"issue"`` (a unit of the core) or ``"latency"`` (waiting for copies that don't overlap).
        utilisation: share of the bf16 peak that `flops` in `time_s` is, None when `flops` is unknown or 0.
        hbm_utilisation: (inputs + outputs) / time, as a share of the bandwidth.
        hbm_bytes: moved between HBM and the chip.
        io_bytes: inputs and outputs, what must at least move; arrays that a kernel copies parts of itself aside.
        vmem_bytes: largest scoped VMEM of a kernel.
        spills: vector spill slots of all kernels.
        flops: floating point operations of one run.
        compile_s: seconds the compile took.
        kernels: every scheduled kernel, the slowest first.
        caveat: what was not checked.
    """

    name: str
    target: str
    time_s: float
    bound: str
    utilisation: float | None
    hbm_utilisation: float
    hbm_bytes: float
    io_bytes: int
    vmem_bytes: int | None
    spills: int
    flops: float | None
    compile_s: float = field(compare=False)
    kernels: tuple[Kernel, ...] = field(default=(), repr=False)
    caveat: str = field(default="", repr=False)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, kernels included."""
        return asdict(self)

    def to_json(self) -> str:
        """The report as a JSON object."""
        return json.dumps(self.to_dict(), indent=1)

    def to_html(self) -> str:
        """The report as one self-contained HTML page."""
        head, rows = self._table()
        cells = lambda row, tag: "".join(f"<{tag}>{html.escape(c)}</{tag}>" for c in row)
        body = "\n".join(f"<tr>{cells(row, 'td')}</tr>" for row in rows)
        facts = "\n".join(f"<tr><th>{html.escape(k)}</th><td>{html.escape(v)}</td></tr>" for k, v in self._facts())
        title = html.escape(f"{self.name} on {self.target}")
        return (
            f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{title}</title>\n'
            "<style>body{font:15px/1.5 system-ui,sans-serif;margin:2rem;max-width:70rem}table{border-collapse:collapse;"
            "margin:1rem 0}td,th{border:1px solid #bbb;padding:.3rem .6rem;text-align:right}th:first-child,"
            "td:first-child{text-align:left}p{max-width:45rem}</style></head>\n"
            f"<body><h1>{title}</h1>\n<table>\n{facts}\n</table>\n<h2>Kernels</h2>\n<table>\n"
            f"<tr>{cells(head, 'th')}</tr>\n"
            f"{body}\n</table>\n<p>{html.escape(self.caveat)}</p></body></html>\n"
        )

    def __str__(self) -> str:
        head, rows = self._table()
        table = [head, *rows]
        widths = [max(len(row[i]) for row in table) for i in range(len(head))]
        line = lambda row: "  ".join(
            c.ljust(w) if i == 0 else c.rjust(w) for i, (c, w) in enumerate(zip(row, widths))
        ).rstrip()
        facts = [f"  {key:14s} {value}" for key, value in self._facts()]
        return "\n".join([f"{self.name} on {self.target} (static)", *facts, "", *map(line, table), "", self.caveat])

    def _facts(self) -> list[tuple[str, str]]:
        facts = [("time", f"{self.time_s * 1e3:.4g} ms"), ("bound", self.bound)]
        if self.utilisation is not None:
            facts.append(("bf16 peak", f"{100 * self.utilisation:.1f} %"))
        facts += [
            ("HBM bandwidth", f"{100 * self.hbm_utilisation:.1f} % (inputs + outputs)"),
            ("HBM traffic", f"{self.hbm_bytes / MIB:.4g} MiB; inputs + outputs {self.io_bytes / MIB:.4g} MiB"),
            ("VMEM", "unknown" if self.vmem_bytes is None else f"{self.vmem_bytes / MIB:.4g} MiB"),
            ("spills", str(self.spills)),
        ]
        return facts

    def _table(self) -> tuple[list[str], list[list[str]]]:
        head = ["kernel", "runs", "cycles", "stall", "HBM MiB", "VMEM MiB", "spills", "busiest units"]
        rows = []
        for k in self.kernels[:12]:
            busy = sorted(((v, u) for u, v in k.utilisation.items() if v >= 0.005), reverse=True)[:3]
            name = k.name + (" (Pallas)" if k.pallas else "") + ("*" if k.unknown_branches or k.extrapolated else "")
            rows.append(
                [
                    name,
                    f"{k.runs:g}",
                    f"{k.cycles:.0f}",
                    f"{100 * k.stall_cycles / max(k.cycles, 1):.0f} %",
                    f"{k.hbm_bytes / MIB:.4g}",
                    "-" if k.vmem_bytes is None else f"{k.vmem_bytes / MIB:.3g}",
                    "-" if k.spills is None else str(k.spills),
                    " ".join(f"{u} {100 * v:.0f}%" for v, u in busy),
                ]
            )
        return head, rows


def caveat(chip: TpuChip, kernels: tuple[Kernel, ...]) -> str:
    """What the figures were not checked against."""
    text = (
        "Static figures from the compiler's own schedule: one bundle a cycle, full HBM bandwidth, no launch overhead. "
        + (
            "Compared with published times of matmuls on v5e only (within 4 %, copy latency and 0.1 ms of dispatch "
            "fitted to them); memory-bound kernels were never compared with hardware."
            if chip.schedule_checked
            else f"Nothing was ever compared with hardware on {chip.name}; only matmuls on v5e were."
        )
    )
    if any(k.unknown_branches for k in kernels):
        text += " * has branches on data; their regions are counted as run, an upper bound."
    if any(k.extrapolated for k in kernels):
        text += " * was scaled from a part of its iterations: " + "; ".join(
            k.extrapolated for k in kernels if k.extrapolated
        )
    return text
