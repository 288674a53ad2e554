"""The HTML page of `check`: one file, no scripts, nothing loaded from elsewhere.

Input: verdicts and notes. Output: the page's text: the table, then a section a kernel and launch with what every target
says: figures, how busy its units are, the diagnostic with the lines around it, the emitted source. Law: whatever comes
from a user's file is escaped.
"""

from __future__ import annotations

import html
import io
import keyword
import linecache
import re
import tokenize
from collections.abc import Sequence
from pathlib import Path

from bridge.diagnostics import Diagnostic
from frontend_triton_compat.cli.style import STYLE
from frontend_triton_compat.cli.table import best_configurations, labels, summary, table_of, values_in_words
from frontend_triton_compat.figures import present, written
from frontend_triton_compat.offline import Verdict

_escape = html.escape
#: Lines of a user's file that are shown before and behind the one a diagnostic points at.
_AROUND = 4


def as_html(rows: Sequence[Verdict], notes: Sequence[str] = ()) -> str:
    """The page.

    Args:
        rows: the verdicts.
        notes: texts of notes.
    """
    named = list(zip(labels(rows), rows))
    files = ", ".join(dict.fromkeys(Path(row.file).name for row in rows))
    targets = ", ".join(dict.fromkeys(row.target for row in rows))
    parts = [
        "<!doctype html>",
        '<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>{_escape(files)}: torch-pallas check</title>",
        f"<style>{STYLE}</style></head><body>",
        f"<header><h1>{_escape(files) or 'torch-pallas check'}</h1><p>{_escape(targets)}</p>{_counts(rows)}</header>",
        _table(rows),
        *(f"<p class=note>{_escape(line)}</p>" for line in best_configurations(rows)),
    ]
    groups: dict[tuple[str, int, str, str], list[tuple[int, str, Verdict]]] = {}
    for i, (label, row) in enumerate(named):
        groups.setdefault((row.file, row.line, row.kernel, row.launch), []).append((i, label, row))
    for (file, line, _, launch), members in groups.items():
        parts += _section(file, line, launch, members)
    if notes:
        parts.append("<h2>Notes</h2>")
        parts += [f"<pre class=note>{_escape(text)}</pre>" for text in notes]
    caveats = dict.fromkeys(row.report.caveat for row in rows if getattr(row.report, "caveat", ""))
    parts += [f"<footer>{_escape(text)}</footer>" for text in (summary(rows), *caveats)]
    return "\n".join([*parts, "</body></html>"]) + "\n"


def _counts(rows: Sequence[Verdict]) -> str:
    counts = {kind: sum(row.verdict == kind for row in rows) for kind in ("ok", "diagnosed", "failed")}
    chips = "".join(f'<span class="chip {kind}">{n} {kind}</span>' for kind, n in counts.items() if n)
    return f"<p>{chips}</p>"


def _table(rows: Sequence[Verdict]) -> str:
    table = table_of(rows)
    several = len({row.file for row in rows}) > 1
    head = ("<th>file</th>" if several else "") + "".join(
        f"<th{' class=number' if right else ''}>{_escape(h)}</th>" for h, right in zip(table.head, table.right)
    )
    out = [f"<div class=scroll><table><thead><tr>{head}</tr></thead><tbody>"]
    for i, (cells, row) in enumerate(zip(table.rows, rows)):
        line = f"<td>{_escape(Path(row.file).name)}</td>" if several else ""
        for name, cell, right in zip(table.head, cells, table.right):
            text = _escape(cell)
            if name == "kernel":
                text = f'<a href="#row{i}">{text}</a>'
            elif name == "verdict":
                text = f'<span class="chip {_escape(row.verdict)}">{text}</span>'
            line += f"<td{' class=number' if right else ''}>{text}</td>"
        out.append(f"<tr>{line}</tr>")
    return "\n".join([*out, "</tbody></table></div>"])


def _section(file: str, line: int, launch: str, members: Sequence[tuple[int, str, Verdict]]) -> list[str]:
    """A kernel with one launch: what each target says."""
    name = members[0][1].split(" [")[0]
    parts = [f"<section><h2>{_escape(name)} <small>{_escape(Path(file).name)}:{line}</small></h2>"]
    if launch:
        parts.append(f"<pre class=launch>{_coloured(launch)}</pre>")
    told: dict[str, str] = {}
    for i, label, row in members:
        config = label.partition(" [")[2].rstrip("]")
        chip = f'<span class="chip {_escape(row.verdict)}">{_escape(row.verdict)}</span>'
        parts.append(f'<article id="row{i}"><h3>{_escape(row.target)} {chip}</h3>')
        if config:
            parts.append(f"<p>{_escape(config)}</p>")
        parts.append(_figures(row))
        if row.message and row.message in told:
            parts.append(f"<p>As on {_escape(told[row.message])}.</p>")
        elif row.message:
            told[row.message] = row.target
            parts.append(_problem(row.problem) if row.problem is not None else f"<pre>{_escape(row.message)}</pre>")
        if row.report is not None:
            parts.append(_folded("The schedule, kernel by kernel", _escape(str(row.report))))
        if row.source:
            parts.append(_folded("Pallas source", _coloured(row.source)))
        parts.append("</article>")
    parts.append("</section>")
    return parts


def _folded(title: str, inner: str) -> str:
    return f"<details><summary>{title}</summary><pre>{inner}</pre></details>"


def _figures(row: Verdict) -> str:
    shown = [f for f in present([row.static], wide=True) if f.name != "units"]
    facts = [(f.head, written(f, row.static)) for f in shown]
    if row.values is not None:
        facts.append(("values", values_in_words(row)))
    cells = "".join(f"<div><dt>{_escape(head)}</dt><dd>{_escape(text)}</dd></div>" for head, text in facts)
    return (f"<dl>{cells}</dl>" if facts else "") + _bars(row)


def _bars(row: Verdict) -> str:
    """How busy the bandwidth and the units are."""
    bars: dict[str, float] = {}
    bandwidth = getattr(row.report, "hbm_utilisation", None)
    if bandwidth is not None:
        bars["HBM"] = bandwidth
    bars |= (row.static or {}).get("units") or {}
    lines = []
    for name, share in bars.items():
        percent = min(100.0, max(0.0, 100 * share))
        lines.append(
            f"<div class=bar><span>{_escape(name)}</span><i><b style=width:{percent:.1f}%></b></i>"
            f"<span>{percent:.0f} %</span></div>"
        )
    if not lines:
        return ""
    said = "share of the bandwidth over the whole run; of the issue slots in the main loop of the slowest kernel"
    return f'<div class=bars title="{said}">{"".join(lines)}</div>'


def _problem(problem: Diagnostic) -> str:
    """A diagnostic with the lines around the one it points at."""
    parts = [
        f"<div class=problem><p><strong>{_escape(problem.code)} {_escape(problem.slug)}</strong> "
        f"{_escape(problem.what)}</p>"
    ]
    at = problem.where
    if at is not None and at.line:
        parts.append(_excerpt(at.file, at.line))
    if problem.why:
        parts.append(f"<p><em>Why:</em> {_escape(problem.why)}</p>")
    for remedy in problem.do:
        said, code = _split(remedy)
        parts.append(f"<p><em>Do:</em> {_escape(said)}</p>")
        if code:
            parts.append(f"<pre>{_coloured(code)}</pre>")
    return "".join([*parts, "</div>"])


def _split(remedy: str) -> tuple[str, str]:
    """The words of a remedy, and its code: the lines that are indented by four."""
    lines = remedy.split("\n")
    code = [line[4:] for line in lines if line.startswith("    ")]
    return " ".join(line for line in lines if not line.startswith("    ")), "\n".join(code)


def _excerpt(file: str, line: int) -> str:
    linecache.checkcache(file)
    lines = linecache.getlines(file)
    if not 1 <= line <= len(lines):
        return f"<p>{_escape(Path(file).name)}:{line}</p>"
    first, last = max(1, line - _AROUND), min(len(lines), line + _AROUND)
    shown = []
    for n in range(first, last + 1):
        text = f"{n:>5}  {_coloured_line(lines[n - 1].rstrip())}"
        shown.append(f"<mark>{text}</mark>" if n == line else text)
    return f"<p>{_escape(Path(file).name)}:{line}</p><pre>" + "\n".join(shown) + "</pre>"


_WORDS = re.compile(r"(#.*)|(\"[^\"]*\"|'[^']*')|\b(" + "|".join(keyword.kwlist) + r")\b|(@\w[\w.]*)")


def _coloured_line(text: str) -> str:
    """One line of Python with its comments, strings and keywords marked."""
    out, done = [], 0
    for match in _WORDS.finditer(text):
        kind = next(k for k, group in zip(("c", "s", "k", "d"), match.groups()) if group is not None)
        out += [_escape(text[done : match.start()]), f"<i class={kind}>{_escape(match[0])}</i>"]
        done = match.end()
    return "".join([*out, _escape(text[done:])])


def _coloured(source: str) -> str:
    """Python source with its comments, strings and keywords marked."""
    lines = source.split("\n")
    out: list[str] = []
    row, column = 1, 0

    def upto(end: tuple[int, int]) -> None:
        nonlocal row, column
        while row < end[0]:
            out.append(_escape(lines[row - 1][column:]) + "\n")
            row, column = row + 1, 0
        out.append(_escape(lines[row - 1][column : end[1]]))
        column = end[1]

    try:
        for token in tokenize.generate_tokens(io.StringIO(source).readline):
            kind = {tokenize.COMMENT: "c", tokenize.STRING: "s"}.get(token.type)
            if token.type == tokenize.NAME and keyword.iskeyword(token.string):
                kind = "k"
            if kind is None:
                continue
            upto(token.start)
            out.append(f"<i class={kind}>")
            upto(token.end)
            out.append("</i>")
        upto((len(lines), len(lines[-1])))
    except (tokenize.TokenError, IndentationError, IndexError):
        return "\n".join(map(_coloured_line, lines))
    return "".join(out)


__all__ = ["as_html"]
