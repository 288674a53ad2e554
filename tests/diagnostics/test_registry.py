"""Codes in the source match the registry and back; every code has a page of the right form."""

import ast
import re
import tomllib
from pathlib import Path

import pytest

from bridge.diagnostics import entries, explain, lookup
from bridge.diagnostics.registry import FAMILIES

ROOT = Path(__file__).parents[2]
PACKAGES = ("bridge", "pallas_core", "frontend_triton_compat", "inductor_backend")
#: Functions whose first argument is a slug.
TAKES_A_SLUG = {
    "error", "note", "lookup", "Diagnostic", "ShareError", "TranslationError", "TargetError", "BackendError"
}  # fmt: skip


def sources():
    return [path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))]


def strings():
    """Every string constant of the source, with its place."""
    found = {}
    for path in sources():
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                found.setdefault(node.value, f"{path.relative_to(ROOT)}:{node.lineno}")
    return found


def slugs_in_calls():
    for path in sources():
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.Call) or not node.args:
                continue
            name = getattr(node.func, "id", getattr(node.func, "attr", ""))
            first = node.args[0]
            if name in TAKES_A_SLUG and isinstance(first, ast.Constant) and isinstance(first.value, str):
                yield first.value, f"{path.relative_to(ROOT)}:{node.lineno}"


def test_every_slug_in_the_source_is_registered():
    known = {e.slug for e in entries()} | {e.code for e in entries()}
    assert not [(slug, place) for slug, place in slugs_in_calls() if slug not in known]


def test_every_registered_slug_is_used_in_the_source():
    used = strings()
    assert not [e.slug for e in entries() if e.slug not in used]


def test_codes_and_slugs_are_unique_and_well_formed():
    text = (ROOT / "bridge/diagnostics/registry.toml").read_text()
    codes = re.findall(r"^\[(\w+)\]", text, re.MULTILINE)
    assert len(codes) == len(set(codes)) == len(entries())
    assert len({e.slug for e in entries()}) == len(entries())
    for e in entries():
        assert re.fullmatch(r"TPB\d{3}", e.code) and e.code[3] in FAMILIES
        assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)+", e.slug), e.slug
        assert e.title and not e.title.endswith(".") and e.since


def test_a_slug_used_twice_is_refused(tmp_path, monkeypatch):
    from bridge.diagnostics import registry

    (tmp_path / "registry.toml").write_text(
        '[TPB901]\nslug = "a-b"\ntitle = "t"\nsince = "0"\n[TPB902]\nslug = "a-b"\ntitle = "t"\nsince = "0"\n'
    )
    monkeypatch.setattr(registry, "_HERE", tmp_path)
    with pytest.raises(ValueError, match="a-b"):
        registry.entries.__wrapped__()
    with pytest.raises(tomllib.TOMLDecodeError):
        tomllib.loads("[TPB901]\n[TPB901]\n")


def test_lookup_takes_codes_and_slugs_in_any_case():
    assert lookup("TPB103") is lookup("tpb103") is lookup("grad-would-be-lost") is lookup("GRAD-WOULD-BE-LOST")
    for missing in ("TPB999", "no-such-slug"):
        with pytest.raises(KeyError):
            lookup(missing)


def test_every_code_has_a_page_and_every_page_a_code():
    pages = {path.stem for path in (ROOT / "bridge/diagnostics/pages").glob("*.md")}
    slugs = {e.slug for e in entries()}
    assert (sorted(slugs - pages), sorted(pages - slugs)) == ([], [])


@pytest.mark.parametrize("entry", [e for e in entries() if e.page.exists()], ids=lambda e: e.slug)
def test_page_has_the_agreed_form(entry):
    text = explain(entry.code)
    assert text.startswith(f"# {entry.code} {entry.slug}\n\n")
    headings = re.findall(r"^#+ .*$", re.sub(r"```.*?```", "", text, flags=re.DOTALL), re.MULTILINE)
    assert headings[1:] == ["## Why", "## Example", "## Fix"]
    for section in re.split(r"^## \w+$", text, flags=re.MULTILINE):
        assert section.strip()
    assert not re.search(r"/(work|home|tmp|root)/", text), "a page must not name a path of one machine"
