"""The HTML page of `check`: one file, no scripts, nothing loaded from elsewhere.

Input: the table's cells and the verdicts. Output: the page's text. Law: whatever comes from a user's file is escaped.
"""

from __future__ import annotations

import html
from collections.abc import Sequence

from frontend_triton_compat.offline import Verdict

_STYLE = (
    "body{font:15px/1.5 system-ui,sans-serif;margin:2rem auto;max-width:75rem;padding:0 1rem}"
    "table{border-collapse:collapse;margin:1rem 0}td,th{border:1px solid #bbb;padding:.3rem .6rem;text-align:left}"
    "td.ok{color:#0a6b2b}td.diagnosed{color:#8a5a00}td.failed{color:#a11}"
    "pre{background:#f5f5f5;padding:.8rem;overflow-x:auto;font:13px/1.4 ui-monospace,monospace}"
    "@media(prefers-color-scheme:dark){body{background:#161616;color:#ddd}pre{background:#222}"
    "td.ok{color:#6c6}td.diagnosed{color:#db5}td.failed{color:#f77}}"
)


def as_html(
    head: Sequence[str], table: Sequence[Sequence[str]], rows: Sequence[Verdict], notes: Sequence[str] = ()
) -> str:
    """The page.

    Args:
        head: the table's head.
        table: its rows; the fourth cell is the verdict.
        rows: the verdicts, in the order of `table`.
        notes: texts of notes.
    """
    lines = []
    for i, (cells, row) in enumerate(zip(table, rows)):
        marked = [
            f'<td class="{html.escape(row.verdict)}">{html.escape(c)}</td>' if j == 3 else f"<td>{html.escape(c)}</td>"
            for j, c in enumerate(cells)
        ]
        marked[0] = f'<td><a href="#row{i}">{html.escape(cells[0])}</a></td>'
        lines.append(f"<tr><td>{html.escape(row.file)}</td>{''.join(marked)}</tr>")
    parts = [
        "<!doctype html>",
        '<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1"><title>torch-pallas check</title>',
        f"<style>{_STYLE}</style></head><body><h1>torch-pallas check</h1>",
        "<table><tr><th>file</th>" + "".join(f"<th>{html.escape(h)}</th>" for h in head) + "</tr>",
        *lines,
        "</table>",
    ]
    for i, row in enumerate(rows):
        parts.append(f'<h2 id="row{i}">{html.escape(row.kernel)} on {html.escape(row.target)}</h2>')
        if row.message:
            parts.append(f"<pre>{html.escape(row.message)}</pre>")
        if row.report is not None:
            parts.append(f"<pre>{html.escape(str(row.report))}</pre>")
        if row.source:
            parts.append(f"<details><summary>Pallas source</summary><pre>{html.escape(row.source)}</pre></details>")
    if notes:
        parts += ["<h2>Notes</h2>", *(f"<pre>{html.escape(text)}</pre>" for text in notes)]
    return "\n".join([*parts, "</body></html>"]) + "\n"
