"""Every page's Example raises its code at the marked line; every page's Fix runs clean."""

import os
import re
import runpy
import warnings
from pathlib import Path
from unittest import mock

import pytest

from bridge.diagnostics import Diagnostic, DiagnosticNote, entries

MARK = "# <- here"
PAGES = [e for e in entries() if e.page.exists()]


def block(entry, section: str) -> tuple[str, str]:
    """The info string and the text of the one Python block of a section."""
    text = entry.page.read_text()
    body = re.split(rf"^## {section}$", text, flags=re.MULTILINE)[1].split("\n## ")[0]
    blocks = re.findall(r"^```python([^\n]*)\n(.*?)^```$", body, re.MULTILINE | re.DOTALL)
    assert len(blocks) == 1, f"{entry.page.name}: {len(blocks)} Python blocks in {section}, wanted one"
    return blocks[0][0].strip(), blocks[0][1]


def execute(path: Path) -> None:
    """Run a file as a user would, with our notes as errors and other libraries' warnings left alone."""
    with mock.patch.dict(os.environ), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.simplefilter("error", DiagnosticNote)
        runpy.run_path(str(path), run_name="__main__")


@pytest.mark.parametrize("entry", PAGES, ids=lambda e: e.slug)
def test_example_raises_its_code_at_the_marked_line(entry, tmp_path):
    info, code = block(entry, "Example")
    marked = [i for i, line in enumerate(code.splitlines(), 1) if MARK in line]
    assert len(marked) <= 1
    if info == "no-run":
        assert re.match(r"^# \S.{10,}", code), "a no-run example says why in its first line"
        compile(code, str(entry.page), "exec")
        pytest.skip(code.splitlines()[0].removeprefix("# "))
    assert info == ""
    path = tmp_path / f"{entry.slug.replace('-', '_')}_example.py"
    path.write_text(code)
    with pytest.raises(Diagnostic) as caught:
        execute(path)
    problem = caught.value
    assert (problem.code, problem.slug) == (entry.code, entry.slug), problem
    if marked:
        assert problem.where is not None, f"no source line, wanted line {marked[0]}"
        assert (problem.where.file, problem.where.line) == (str(path), marked[0])
        assert MARK in str(problem)
    else:
        assert problem.where is None or problem.where.file != str(path), f"the example should mark {problem.where}"


@pytest.mark.parametrize("entry", PAGES, ids=lambda e: e.slug)
def test_fix_runs_clean(entry, tmp_path):
    info, code = block(entry, "Fix")
    if info == "no-run":
        assert re.match(r"^# \S.{10,}", code), "a no-run fix says why in its first line"
        compile(code, str(entry.page), "exec")
        pytest.skip(code.splitlines()[0].removeprefix("# "))
    assert info == ""
    path = tmp_path / f"{entry.slug.replace('-', '_')}_fix.py"
    path.write_text(code)
    execute(path)
