"""What a diagnostic says, carries and survives; notes come once a place and can be made errors."""

import pickle
import subprocess
import sys
import threading
import warnings

import pytest

from bridge import diagnostics
from bridge.diagnostics import (
    BackendError,
    Diagnostic,
    DiagnosticNote,
    ShareError,
    TargetError,
    TranslationError,
    Where,
    error,
    note,
    strict,
)


@pytest.fixture
def source(tmp_path):
    path = tmp_path / "kernels.py"
    path.write_text("def histogram(out, m):\n    tl.atomic_add(out + bin, 1, mask=m)\n")
    return path


def test_message_has_all_parts_in_order(source):
    problem = error(
        "atomic-add",
        "atomics have no meaning on a TPU",
        where=Where(str(source), 2, 5, 18, "histogram"),
        why="a TPU core runs programs one after another;\nPallas has no atomic update there.",
        do=("sum afterwards:\n    tl.store(out + pid, counts)", "use target='cpu'"),
    )
    assert str(problem) == (
        "TPB231 atomic-add: atomics have no meaning on a TPU\n"
        "  --> kernels.py:2:5 in histogram\n"
        "    2 |     tl.atomic_add(out + bin, 1, mask=m)\n"
        "      |     ^^^^^^^^^^^^^\n"
        "  why: a TPU core runs programs one after another;\n"
        "       Pallas has no atomic update there.\n"
        "  do:  sum afterwards:\n"
        "           tl.store(out + pid, counts)\n"
        "  do:  use target='cpu'\n"
        "  more: torch-pallas explain TPB231"
    )


def test_title_stands_in_for_a_missing_what():
    problem = error("strided-import")
    assert problem.what == problem.title == "the strides are not compact"
    assert str(problem) == ("TPB104 strided-import: the strides are not compact\n  more: torch-pallas explain TPB104")
    assert (problem.where, problem.why, problem.do) == (None, "", ())


@pytest.mark.parametrize(
    ("slug", "family"),
    [
        ("unknown-target", Diagnostic),
        ("strided-import", ShareError),
        ("atomic-add", TranslationError),
        ("vmem-budget", TargetError),
        ("dtype-view", BackendError),
    ],
)
def test_families_follow_the_code(slug, family):
    assert type(error(slug)) is family


def test_an_unknown_slug_is_a_programming_error():
    with pytest.raises(KeyError):
        error("no-such-slug")


def test_pickling_keeps_every_part():
    before = error("strided-import", "w", where=Where("f.py", 3, 1, 4, "g"), why="y", do=("a", "b"))
    after = pickle.loads(pickle.dumps(before))
    assert type(after) is ShareError and str(after) == str(before)
    assert (after.where, after.why, after.do) == (before.where, before.why, before.do)


def test_at_adds_a_place_and_keeps_one_that_is_there():
    first, second = Where("a.py", 1), Where("b.py", 2)
    assert error("strided-import").at(first).where == first
    assert error("strided-import", where=second).at(first).where == second


def test_a_note_comes_once_a_place(tmp_path):
    here, there = Where(str(tmp_path / "x.py"), 1), Where(str(tmp_path / "x.py"), 2)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        for where in (here, here, there):
            note("strided-import", "copied", where=where)
    assert [w.category for w in seen] == [DiagnosticNote] * 2
    assert [(w.filename, w.lineno) for w in seen] == [(here.file, 1), (there.file, 2)]
    assert seen[0].message.code == "TPB104" and seen[0].message.diagnostic.what == "copied"


def test_a_note_finds_the_users_line_itself():
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        note("strided-import", "copied")
    assert seen[0].filename == __file__
    assert seen[0].message.where.function == "test_a_note_finds_the_users_line_itself"


def test_strict_makes_notes_errors_again_and_again_and_nests():
    where = Where("strict.py", 1)
    for _ in range(2):
        with strict(), strict(), pytest.raises(ShareError, match="TPB104"):
            note("strided-import", where=where)
    with strict():
        with strict():
            pass
        with pytest.raises(ShareError):
            note("strided-import", where=where)
    with pytest.warns(DiagnosticNote):
        note("strided-import", where=where)


def test_strict_holds_in_its_own_thread_only():
    raised = []

    def other():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                note("strided-import", where=Where("thread.py", 1))
            except Diagnostic as problem:
                raised.append(problem)

    with strict():
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
    assert raised == []


def test_notes_of_many_threads_at_one_place_are_one():
    barrier, where = threading.Barrier(8), Where("threads.py", 1)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")

        def tell():
            barrier.wait()
            note("strided-import", where=where)

        threads = [threading.Thread(target=tell) for _ in range(8)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
    assert len(seen) == 1


def test_diagnostics_import_neither_torch_nor_jax():
    # The package `bridge` itself imports both, so its leaf is loaded here without it.
    code = (
        "import sys, types, pathlib\n"
        f"root = pathlib.Path({str(__import__('pathlib').Path(diagnostics.__file__).parents[1])!r})\n"
        "bridge = types.ModuleType('bridge'); bridge.__path__ = [str(root)]; sys.modules['bridge'] = bridge\n"
        "import bridge.diagnostics\n"
        "print(sorted({'torch', 'jax', 'numpy'} & set(sys.modules)))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (done.stdout.strip(), done.stderr) == ("[]", "")
