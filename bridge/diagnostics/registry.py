"""The table of codes: `registry.toml` read once, looked up by code or slug; the pages that explain them.

Law: codes and slugs are permanent and unique; a code is never reused. The file is append-only.
"""

from __future__ import annotations

import functools
import tomllib
from dataclasses import dataclass
from pathlib import Path

_HERE = Path(__file__).parent
#: First digit of a code -> the room that owns it.
FAMILIES = {"0": "shared", "1": "bridge", "2": "triton", "3": "pallas", "4": "backend"}


@dataclass(frozen=True)
class Entry:
    """One diagnostic: permanent code and slug, fixed title, version that introduced it."""

    code: str
    slug: str
    title: str
    since: str

    @property
    def family(self) -> str:
        """The room that owns the code: shared, bridge, triton, pallas or backend."""
        return FAMILIES[self.code[3]]

    @property
    def page(self) -> Path:
        """The Markdown page that explains it."""
        return _HERE / "pages" / f"{self.slug}.md"


@functools.cache
def entries() -> tuple[Entry, ...]:
    """Every registered diagnostic, ordered by code.

    Raises:
        ValueError: the registry holds a code or a slug twice.
    """
    rows = tomllib.loads((_HERE / "registry.toml").read_text())
    table = [Entry(code, row["slug"], row["title"], row["since"]) for code, row in rows.items()]
    slugs = [e.slug for e in table]
    twice = {s for s in slugs if slugs.count(s) > 1}
    if twice:
        raise ValueError(f"registry.toml: slugs used twice: {sorted(twice)}")
    return tuple(sorted(table, key=lambda e: e.code))


@functools.cache
def _index() -> dict[str, Entry]:
    return {key: e for e in entries() for key in (e.code, e.slug)}


def lookup(code_or_slug: str) -> Entry:
    """The entry of a code (any case) or a slug.

    Raises:
        KeyError: there is no such diagnostic.
    """
    index = _index()
    return index[code_or_slug.upper()] if code_or_slug.upper() in index else index[code_or_slug.lower()]


def explain(code_or_slug: str) -> str:
    """The page of a diagnostic as Markdown.

    Raises:
        KeyError: there is no such diagnostic.
    """
    return lookup(code_or_slug).page.read_text()
