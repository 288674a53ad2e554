"""The table of `check`, as text and as JSON.

Input: verdicts and notes. Output: texts. Law: columns are those that some row has a figure for; a message that several
rows share is told once; of a kernel with several launches every row says which.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from frontend_triton_compat.figures import present, written
from frontend_triton_compat.offline import Verdict

#: Spills from which on a table says so, where loads, stores or a unit bound the kernel and not HBM or the matrix unit.
_MANY_SPILLS = 2000
_BUSY = ("load", "store", "vpu", "xlu", "eup", "issue")


@dataclass(frozen=True)
class Table:
    """Heads and cells.

    Attributes:
        head: the columns' heads.
        right: which columns are numbers.
        rows: a tuple of cells a verdict.
    """

    head: tuple[str, ...]
    right: tuple[bool, ...]
    rows: tuple[tuple[str, ...], ...]


def labels(rows: Sequence[Verdict]) -> list[str]:
    """A name for every row: the kernel's, with the number of its launch and its configuration where it has several."""
    launches: dict[tuple[str, str, int], dict[str, int]] = {}
    for row in rows:
        numbers = launches.setdefault((row.file, row.kernel, row.line), {})
        numbers.setdefault(row.launch, len(numbers) + 1)
    out = []
    for row in rows:
        numbers = launches[row.file, row.kernel, row.line]
        name = f"{row.kernel}#{numbers[row.launch]}" if len(numbers) > 1 else row.kernel
        out.append(f"{name} [{row.config}]" if row.config and row.config != "any" else name)
    return out


def table_of(rows: Sequence[Verdict]) -> Table:
    """The table of some rows."""
    figures = present([row.static for row in rows])
    values = any(row.values is not None for row in rows)
    head = ["kernel", "line", "target", "verdict", *(f.head for f in figures), *(["values"] if values else []), "code"]
    words = {"kernel", "target", "verdict", "bound", "values", "code"}
    cells = []
    for label, row in zip(labels(rows), rows):
        cells.append(
            (
                label,
                str(row.line),
                row.target,
                row.verdict,
                *(written(f, row.static) for f in figures),
                *([values_in_words(row)] if values else []),
                row.code or "-",
            )
        )
    return Table(tuple(head), tuple(h not in words for h in head), tuple(cells))


def values_in_words(row: Verdict) -> str:
    """What `verify` said, in a cell."""
    if row.values is None:
        return "-"
    kind, count = row.values["verdict"], row.values["launches"]
    if kind != "equal":
        return kind
    return f"equal ({count} launch{'es' if count != 1 else ''}, {row.values['largest']:.2g})"


def as_json(rows: Sequence[Verdict]) -> str:
    """The verdicts as a JSON list."""
    return json.dumps([row.to_dict() for row in rows], indent=1) + "\n"


def as_text(rows: Sequence[Verdict], notes: Sequence[str] = ()) -> str:
    """The table, the launches and configurations behind it, the diagnostics in full, the notes, and a summary."""
    out: list[str] = []
    for file in dict.fromkeys(row.file for row in rows):
        mine = [row for row in rows if row.file == file]
        behind = _behind(mine)
        out += [file, *_table_lines(table_of(mine)), *([""] if behind else []), *behind, ""]
    messages: dict[str, list[str]] = {}
    for label, row in zip(labels(rows), rows):
        if row.message:
            messages.setdefault(row.message, []).append(f"{label} on {row.target}")
    for message, places in messages.items():
        out += [", ".join(dict.fromkeys(places)) + ":", message, ""]
    for text in notes:
        out += [f"note: {text}", ""]
    return "\n".join([*out, summary(rows)]) + "\n"


def _table_lines(table: Table) -> list[str]:
    lines = [table.head, *table.rows]
    widths = [max(len(line[i]) for line in lines) for i in range(len(table.head))]
    padded = lambda line: (c.rjust(w) if right else c.ljust(w) for c, w, right in zip(line, widths, table.right))
    return [("  " + "  ".join(padded(line))).rstrip() for line in lines]


def _behind(rows: Sequence[Verdict]) -> list[str]:
    """Which launch a numbered row is of; which configuration is the best; why values were not compared."""
    out: list[str] = []
    for label, row in zip(labels(rows), rows):
        name = label.split(" [")[0]
        if "#" in name:
            out.append(f"{name}: {row.launch}")
    out += best_configurations(rows)
    for label, row in zip(labels(rows), rows):
        static = row.static or {}
        if row.target.startswith("tpu") and (static.get("spills") or 0) > _MANY_SPILLS and static["bound"] in _BUSY:
            out.append(
                f"{label} on {row.target}: {static['spills']} times a value leaves the registers; a program that holds "
                "less at once (shorter tiles, long ones in a loop) may be faster"
            )
    for label, row in zip(labels(rows), rows):
        if row.values is not None and row.values["verdict"] == "skipped":
            out.append(f"{label}: values not compared: {row.values['message']}")
    return list(dict.fromkeys(out))


def best_configurations(rows: Sequence[Verdict]) -> list[str]:
    """For every kernel with `autotune` and every target, what its configurations come to."""
    out = []
    groups: dict[tuple[str, str], list[tuple[str, Verdict]]] = {}
    for label, row in zip(labels(rows), rows):
        if row.config:
            groups.setdefault((label.split(" [")[0], row.target), []).append((label, row))
    for (name, target), found in groups.items():
        first = found[0][1]
        time = (first.static or {}).get("time_ms")
        if first.config == "any" and first.verdict == "ok":
            out.append(f"{name} on {target}: all configurations of autotune give the same code")
        elif first.verdict == "ok" and time is not None:
            out.append(f"{name} on {target}: the best configuration is {first.config} ({time:.4g} ms)")
    return out


def summary(rows: Sequence[Verdict]) -> str:
    """How many rows of each verdict, and what the figures are."""
    counts = {kind: sum(row.verdict == kind for row in rows) for kind in ("ok", "diagnosed", "failed")}
    said = ", ".join(f"{n} {kind}" for kind, n in counts.items() if n) or "nothing to check"
    static = any(row.static and row.static.get("time_ms") is not None for row in rows)
    return said + (" (static figures: the compiler's schedule, nothing was run on a TPU)" if static else "")
