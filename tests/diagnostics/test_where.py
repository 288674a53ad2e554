"""A place in the source: printed with its line and caret, found from a frame, never raising."""

import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.diagnostics import Where
from bridge.diagnostics.where import is_library, is_ours


@pytest.fixture
def source(tmp_path):
    path = tmp_path / "kernels.py"
    path.write_text("a = 1\n    tl.load(x)  # é\n\n")
    return str(path)


def test_caret_stands_under_the_span(source):
    head, line, caret = Where(source, 2, 5, 15, "k").render().splitlines()
    assert head == "  --> kernels.py:2:5 in k"
    start, end = line.index("tl.load"), line.index("(x)") + 3
    assert (caret.index("^"), caret.rindex("^") + 1) == (start, end)


@pytest.mark.parametrize(
    ("where", "text"),
    [
        (("gone.py", 7, 3), "  --> gone.py:7:3"),
        (("gone.py", 7), "  --> gone.py:7"),
        (("<string>", 1), "  --> <string>:1"),
    ],
)
def test_a_missing_file_renders_without_its_text(where, text):
    assert Where(*where).render() == text


def test_an_empty_line_or_one_past_the_end_renders_without_text(source):
    for line in (3, 99, 0, -1):
        assert Where(source, line, 1).render() == f"  --> kernels.py:{line}:1"


@given(line=st.integers(-5, 50), col=st.integers(0, 300), width=st.integers(-3, 300))
def test_rendering_never_raises_and_carets_stay_on_the_line(line, col, width):
    where = Where(__file__, line, col, col + width if col else 0)
    text = where.render()
    for caret in (part for part in text.splitlines() if set(part) == set(" |^")):
        assert len(caret) <= max(len(part) for part in text.splitlines() if part is not caret) or caret.count("^") == 1


def test_str_names_file_line_column_and_function():
    assert str(Where("a/b.py", 3)) == "a/b.py:3"
    assert str(Where("a/b.py", 3, 4, 5, "f")) == "a/b.py:3:4 in f"


def test_caller_is_this_line():
    where = Where.caller()
    assert (where.file, where.function) == (__file__, "test_caller_is_this_line")
    assert where.text().strip() == "where = Where.caller()"


def test_caller_walks_past_libraries():
    where = [Where.caller() for _ in range(1)][0]
    assert where.file == __file__
    seen = []
    sorted([2, 1], key=lambda x: seen.append(Where.caller()) or x)
    assert seen[0].file == __file__


def test_caller_names_a_function_that_dynamo_resumed():
    namespace = {"Where": Where}
    code = "def torch_dynamo_resume_in_step_at_12():\n    return Where.caller()\n"
    exec(compile(code, "user.py", "exec"), namespace)
    assert namespace["torch_dynamo_resume_in_step_at_12"]().function == "step"


def test_of_function_is_the_def_line_and_none_for_others():
    where = Where.of_function(test_caller_is_this_line)
    assert where.file == __file__ and where.text().startswith("def test_caller_is_this_line")
    assert Where.of_function(len) is None and Where.of_function(3) is None


def test_ours_and_libraries_are_told_from_the_user():
    import bridge

    assert is_ours(bridge.__file__) and not is_ours(__file__)
    assert is_library(pytest.__file__) and is_library(sys.modules["threading"].__file__)
    assert not is_library(__file__)
    assert is_ours(str(Path(bridge.__file__).parent / "dlpack.py"))
