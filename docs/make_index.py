"""Write docs/diagnostics.md, the index of every diagnostic, from the registry.

Input: bridge/diagnostics/registry.toml. Output: the Markdown text; run as a script, the file. A test holds the file
against `text()`, so run this after a code is added: ``python docs/make_index.py``.
"""

from pathlib import Path

from bridge.diagnostics import entries

FILE = Path(__file__).parent / "diagnostics.md"
FAMILIES = {
    "shared": "Shared (TPB0xx)",
    "bridge": "bridge: sharing arrays (TPB1xx)",
    "triton": "Triton front end (TPB2xx)",
    "pallas": "Pallas core (TPB3xx)",
    "backend": "torch.compile backend (TPB4xx)",
}
HEAD = """\
# Diagnostics

Every error that a user can meet has a permanent code and name, the user's source line, the reason and a remedy. The
page of a code has an example that fails and one that works; both run as tests. Print one: `torch-pallas explain
TPB231`. A copy, a fallback or a cast is a note: a warning with a code; `bridge.diagnostics.strict()` makes it an error.

Written by `docs/make_index.py` from `bridge/diagnostics/registry.toml`; codes are never reused.
"""


def text() -> str:
    """The whole index."""
    parts = [HEAD]
    for family, title in FAMILIES.items():
        parts.append(f"\n## {title}\n\n| code | name | what | since |\n|---|---|---|---|\n")
        for e in entries():
            if e.family == family:
                name = f"[{e.slug}](../bridge/diagnostics/pages/{e.slug}.md)" if e.page.exists() else e.slug
                parts.append(f"| {e.code} | {name} | {e.title} | {e.since} |\n")
    return "".join(parts)


if __name__ == "__main__":
    FILE.write_text(text())
