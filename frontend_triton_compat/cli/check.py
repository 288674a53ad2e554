"""`check FILE...`: every kernel of the files on every target, by the target's real compiler.

Input: files, targets, launches. Output: a table on stdout, then the diagnostics in full; JSON and HTML where asked for;
exit code 0 when all is well, 1 otherwise. Law: a kernel's defect is a row, never the end of the table.
"""

from __future__ import annotations

import argparse
import json
import sys
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bridge.diagnostics import Diagnostic, DiagnosticNote, Where, error
from frontend_triton_compat import shim
from frontend_triton_compat.cli import page
from frontend_triton_compat.cli.files import Progress, Usage, existing_file, targets_of, writable, write_whole
from frontend_triton_compat.cli.launches import Subject, subjects_of
from frontend_triton_compat.offline import Verdict

#: The head of the table, and of the page's.
HEAD = ("kernel", "line", "target", "verdict", "static ms", "bound", "VMEM MiB", "code")


def check(options: argparse.Namespace) -> int:
    """Check and print; see the module.

    Raises:
        Usage: the files, the targets or the launches can't be used.
    """
    files = [existing_file(name) for name in dict.fromkeys(options.files)]
    targets = targets_of(options.target)
    outputs = [writable(name) for name in (options.json, options.html) if name and name != "-"]
    if len(outputs) == 2 and outputs[0] == outputs[1]:
        raise Usage("--json and --html name one file")
    with shim.installed(displace=True):
        subjects = subjects_of(files, options.args, options.kernel, run=not options.no_run)
        rows, notes = verdicts([s for found in subjects.values() for s in found], targets)
    for path, found in subjects.items():
        if not found:
            print(f"{path} has no kernel", file=sys.stderr)
    if options.json and options.json != "-":
        write_whole(Path(options.json), as_json(rows))
    if options.html:
        write_whole(Path(options.html), page.as_html(HEAD, [cells(r) for r in rows], rows, notes))
    print(as_json(rows) if options.json == "-" else as_text(rows, notes), end="")
    return 0 if rows and all(r.verdict == "ok" for r in rows) else 1


def verdicts(subjects: Sequence[Subject], targets: Sequence[str]) -> tuple[list[Verdict], list[str]]:
    """One verdict a kernel and target, in order, and the notes that were issued on the way."""
    rows: list[Verdict] = []
    notes: dict[str, None] = {}
    with Progress(len(subjects) * len(targets)) as progress:
        for subject in subjects:
            for target in targets:
                progress.step(f"{subject.name} on {target}")
                with warnings.catch_warnings(record=True) as seen:
                    warnings.simplefilter("ignore")
                    warnings.simplefilter("always", DiagnosticNote)
                    rows.append(verdict(subject, target))
                notes |= dict.fromkeys(str(w.message) for w in seen)
    return rows, list(notes)


def verdict(subject: Subject, target: str) -> Verdict:
    """What a target says of a kernel; never raises for what the kernel does."""
    base = {"kernel": subject.name, "file": subject.file, "line": subject.line, "target": target}
    try:
        if subject.problem is not None:
            raise subject.problem
        assert subject.kernel is not None and subject.record is not None
        grid = tuple(subject.record["grid"])
        found = subject.kernel.check(grid=grid, target=target, **subject.arguments())
    except Diagnostic as problem:
        return _diagnosed(base, subject, problem)
    except Exception as surprise:  # a defect of ours: told with its code, and the other rows go on
        head = str(surprise).splitlines()[0] if str(surprise) else ""
        problem = error(
            "internal-error",
            f"{type(surprise).__name__} while checking {subject.name} for {target}: {head}",
            where=subject.where,
            do="report it with the kernel's source; nothing was run",
        )
        return _diagnosed(base, subject, problem, "failed")
    return Verdict(**{**_fields(found), **base})


def _fields(found: Verdict) -> dict[str, Any]:
    return {name: getattr(found, name) for name in found.__dataclass_fields__}


def _diagnosed(base: Mapping[str, Any], subject: Subject, problem: Diagnostic, kind: str = "diagnosed") -> Verdict:
    at = problem.where or subject.where or Where(subject.file, subject.line)
    return Verdict(
        **base,
        verdict=kind,
        code=problem.code,
        slug=problem.slug,
        message=str(problem.at(at)),
        where={"line": at.line, "col": at.col},
    )


# -- renderings


def as_json(rows: Sequence[Verdict]) -> str:
    """The verdicts as a JSON list."""
    return json.dumps([row.to_dict() for row in rows], indent=1) + "\n"


def cells(row: Verdict) -> tuple[str, ...]:
    """A row of the table."""
    static = row.static or {}
    time, vmem = static.get("time_ms"), static.get("vmem_bytes")
    return (
        row.kernel,
        str(row.line),
        row.target,
        row.verdict,
        "-" if time is None else f"{time:.4g}",
        static.get("bound") or "-",
        "-" if vmem is None else f"{vmem / 2**20:.3g}",
        row.code or "-",
    )


def as_text(rows: Sequence[Verdict], notes: Sequence[str] = ()) -> str:
    """The table, the diagnostics in full, the notes, and a summary."""
    out: list[str] = []
    for file in dict.fromkeys(row.file for row in rows):
        mine = [row for row in rows if row.file == file]
        table = [HEAD, *map(cells, mine)]
        widths = [max(len(line[i]) for line in table) for i in range(len(HEAD))]
        out.append(file)
        for line in table:
            padded = (c.rjust(w) if i in (1, 4, 6) else c.ljust(w) for i, (c, w) in enumerate(zip(line, widths)))
            out.append(("  " + "  ".join(padded)).rstrip())
        out.append("")
    messages: dict[str, list[str]] = {}
    for row in rows:
        if row.message:
            messages.setdefault(row.message, []).append(f"{row.kernel} on {row.target}")
    for message, places in messages.items():
        out += [", ".join(dict.fromkeys(places)) + ":", message, ""]
    for text in notes:
        out += [f"note: {text}", ""]
    counts = {kind: sum(row.verdict == kind for row in rows) for kind in ("ok", "diagnosed", "failed")}
    summary = ", ".join(f"{n} {kind}" for kind, n in counts.items() if n) or "nothing to check"
    static = any(row.static and row.static.get("time_ms") is not None for row in rows)
    caveat = " (static figures: the compiler's schedule, nothing was run on a TPU)" if static else ""
    return "\n".join([*out, f"{summary}{caveat}"]) + "\n"


__all__ = ["HEAD", "as_json", "as_text", "cells", "check", "verdict", "verdicts"]
