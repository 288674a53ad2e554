"""Every Python block of the README and of docs/ runs; commands and links say what exists."""

import re
import runpy
import tomllib
import warnings
from pathlib import Path

import pytest
import torch

from bridge.diagnostics import lookup

ROOT = Path(__file__).resolve().parents[1]
TEXTS = [ROOT / "README.md", ROOT / "ARCHITECTURE.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]


def blocks(language: str) -> list:
    found = []
    for path in TEXTS:
        for i, text in enumerate(
            re.findall(rf"^```{language}\n(.*?)^```$", path.read_text(), re.MULTILINE | re.DOTALL)
        ):
            found.append(pytest.param(text, id=f"{path.stem}-{i}"))
    return found


@pytest.mark.parametrize("text", blocks("python"))
def test_python_block_runs(text, tmp_path, capsys):
    torch._dynamo.reset()
    path = tmp_path / "snippet.py"
    path.write_text(text)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # a note would be worth a word in the text
        warnings.simplefilter("ignore", DeprecationWarning)
        runpy.run_path(str(path), run_name="__main__")


def test_the_readme_has_the_two_commands():
    commands = [b.values[0].strip() for b in blocks("bash") if b.id.startswith("README")]
    assert commands == [
        "pip install -e '.[tpu,examples]' && python examples/quickstart.py",
        "pip install -e '.[tpu,test]' && pytest -n 2",
    ]
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert {"tpu", "examples", "test", "dev"} <= set(extras)


def test_ci_runs_the_readme_test_command():
    ci = (ROOT / ".ci" / "run").read_text()
    pattern = re.search(r'grep -m1 -E "(.*?)" README.md', ci).group(1)
    lines = [line for line in (ROOT / "README.md").read_text().splitlines() if re.search(pattern, line)]
    assert lines[0] == "pip install -e '.[tpu,test]' && pytest -n 2"


@pytest.mark.parametrize("path", TEXTS, ids=lambda p: p.name)
def test_links_and_codes_exist(path):
    text = path.read_text()
    prose = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
    prose = re.sub(r"`[^`\n]*`|^    .*$", "", prose, flags=re.MULTILINE)
    for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", prose):
        assert (path.parent / target).exists(), f"{path.name} links to {target}"
    for code in set(re.findall(r"\bTPB\d{3}\b", text)):
        lookup(code)


def test_the_readme_quotes_a_diagnostic_as_it_is():
    """The quoted message is what the quickstart's kernel gives."""
    quickstart = runpy.run_path(str(ROOT / "examples" / "quickstart.py"))
    verdict = quickstart["total_loss"][(8,)].check(
        torch.empty(8192), torch.zeros(1), BLOCK=1024, target=quickstart["TARGET"]
    )
    quoted = next(b for b in re.findall(r"^```text\n(.*?)^```$", TEXTS[0].read_text(), re.MULTILINE | re.DOTALL))
    assert verdict.message.strip() == quoted.strip()


def test_the_index_of_diagnostics_is_current():
    make_index = runpy.run_path(str(ROOT / "docs" / "make_index.py"))
    assert make_index["FILE"].read_text() == make_index["text"](), "run: python docs/make_index.py"
