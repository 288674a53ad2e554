"""`explain CODE`: the page of a diagnostic.

Input: a code or a slug. Output: its page on stdout. Law: an unknown one is bad usage, and the nearest are named.
"""

from __future__ import annotations

import difflib

from bridge.diagnostics import entries, lookup
from bridge.diagnostics import explain as page_of
from frontend_triton_compat.cli.files import Usage


def explain(code: str | None) -> int:
    """Print a page, or the list of all codes.

    Raises:
        Usage: there is no such diagnostic.
    """
    if code is None:
        for entry in entries():
            print(f"{entry.code}  {entry.slug:28s} {entry.title}")
        return 0
    try:
        entry = lookup(code)
    except KeyError:
        known = [name for e in entries() for name in (e.code, e.slug)]
        near = [name for name in known if code and name.lower().startswith(code.lower())][:3]
        near = near or difflib.get_close_matches(code.lower(), known, n=3, cutoff=0.6)
        hint = f"; did you mean {', '.join(near)}?" if near else "; `torch-pallas explain` lists them all"
        raise Usage(f"there is no diagnostic {code!r}{hint}") from None
    if entry.page.exists():
        print(page_of(code).rstrip("\n"))
    else:
        print(f"# {entry.code} {entry.slug}\n\n{entry.title} (since {entry.since}). It has no page yet.")
    return 0
