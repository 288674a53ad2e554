"""Static figures of any target, as heads and texts.

Input: the `static` of a verdict: plain values by name, which ones depends on the target. Output: what a table, a line
or a page shows of them. Law: a figure that has no row here is shown under its own name; None is not shown.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Figure:
    """How a figure is written.

    Attributes:
        name: its key.
        head: over its column.
        text: of a value.
        wide: whether it is left to pages, being too much for a table.
    """

    name: str
    head: str
    text: Callable[[Any], str]
    wide: bool = False


def _counts(value: Any) -> str:
    return " ".join(f"{name} {count:g}" for name, count in value.items() if count) or "-"


FIGURES = (
    Figure("time_ms", "static ms", lambda v: f"{v:.4g}"),
    Figure("bound", "bound", lambda v: str(v).upper() if v in ("hbm", "mxu", "vpu", "xlu", "eup") else str(v)),
    Figure("mxu", "MXU %", lambda v: f"{100 * v:.1f}"),
    Figure("hbm_bytes", "HBM MiB", lambda v: f"{v / 2**20:.4g}", wide=True),
    Figure("vmem_bytes", "VMEM MiB", lambda v: f"{v / 2**20:.3g}"),
    Figure("registers", "registers", str),
    Figure("spills", "spills", str),
    Figure("smem_bytes", "SMEM KiB", lambda v: f"{v / 2**10:.4g}"),
    Figure("tmem_bytes", "TMEM KiB", lambda v: f"{v / 2**10:.4g}"),
    Figure("instructions", "instructions", _counts),
    Figure("units", "busy", lambda v: _counts({u: round(100 * share) for u, share in v.items()}), wide=True),
)
_KNOWN = {figure.name: figure for figure in FIGURES}


def present(statics: Sequence[Mapping[str, Any] | None], wide: bool = False) -> list[Figure]:
    """The figures that any of these has, in order; wide ones where asked for."""
    had = [name for static in statics for name, value in (static or {}).items() if value is not None]
    others = [Figure(name, name.replace("_", " "), str) for name in dict.fromkeys(had) if name not in _KNOWN]
    return [f for f in (*FIGURES, *others) if f.name in had and (wide or not f.wide)]


def written(figure: Figure, static: Mapping[str, Any] | None) -> str:
    """A figure's text, or a dash."""
    value = (static or {}).get(figure.name)
    return "-" if value is None else figure.text(value)


def in_words(static: Mapping[str, Any] | None) -> str:
    """The figures as one line: ``static ms 0.33, bound HBM, VMEM MiB 8.1``."""
    return ", ".join(f"{f.head} {written(f, static)}" for f in present([static]))
