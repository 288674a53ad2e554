"""Every public name of Triton is here: it works, or says why not when it is used."""

from __future__ import annotations

import importlib
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import frontend_triton_compat as triton
import frontend_triton_compat.language as tl
from bridge.diagnostics import Diagnostic, entries
from frontend_triton_compat import modules
from frontend_triton_compat.absent import Absent
from frontend_triton_compat.language.unsupported import UNSUPPORTED

LINES = Path(__file__).with_name("triton_names.txt").read_text().splitlines()[1:]
NAMES = {name: int(uses) for name, uses in (line.split() for line in LINES)}
METHODS = (
    *(tl.tensor, tl.tensor_descriptor, tl.float32, tl.constexpr(1)),
    *(tl.pointer_type(tl.float32), tl.block_type(tl.float32, [4])),
)
#: What may be a diagnostic although more than ten kernels use it.
EXCUSED = {"triton.language.inline_asm_elementwise"}


def find(name):
    """The object of a name, or the diagnostic that asking for it gives."""
    if name.startswith("method."):
        found = [getattr(c, name[7:]) for c in METHODS if hasattr(c, name[7:])]
        assert found, f"no handle has {name[7:]!r}"
        return found[0]
    value = triton
    for part in name.split(".")[1:]:
        try:
            value = getattr(value, part)
        except Diagnostic as refused:
            return refused
    return value


def refusal(name, value):
    """The diagnostic that a use of a name gives, if it has no meaning here."""
    if isinstance(value, Diagnostic):
        return value
    if isinstance(value, type) and issubclass(value, Absent):
        with pytest.raises(Diagnostic) as caught:
            value()
        return caught.value
    last = name.split(".")[-1]
    if name.startswith("triton.language") and last in UNSUPPORTED and getattr(tl, last, None) is value:
        why, do = UNSUPPORTED[last]
        assert why and do
        return value
    return None


def test_every_name_is_here_and_works_or_is_a_diagnostic():
    known = {e.code for e in entries()}
    refused = set()
    for name in NAMES:
        problem = refusal(name, find(name))
        if problem is not None:
            refused.add(name)
            if isinstance(problem, Diagnostic):
                assert problem.code in known and problem.why and problem.do, name
    often = {n for n in refused if NAMES[n] > 10} - EXCUSED
    assert not often, "used often, and only a diagnostic"
    assert len(refused) < 60, sorted(refused)


@pytest.mark.parametrize("name", modules.NAMES)
def test_every_submodule_can_be_imported_and_is_an_attribute(name):
    module = importlib.import_module(name.replace("triton", "frontend_triton_compat", 1))
    value = triton
    for part in name.split(".")[1:]:
        value = getattr(value, part)
    assert value is module or name == "triton.runtime.driver"  # there, as in Triton, the driver itself
    if "libdevice" in name or ".extra.cuda" in name or ".hip" in name:
        return  # their names are not listed: any one is there, and refused where it has no translation
    with pytest.raises(AttributeError):
        module.a_name_of_a_later_version  # noqa: B018


def test_submodules_are_those_of_the_genuine_package():
    root = pytest.importorskip("importlib.metadata").distribution("triton").locate_file("triton")
    for name in set(modules.NAMES) - set(modules.OTHER_NAMES) - {"triton._C.libtriton"}:
        path = root.joinpath(*name.split(".")[1:])
        assert path.is_dir() or path.with_suffix(".py").is_file() or name.startswith("triton.experimental"), name


REDIRECT = """
    import importlib, importlib.abc, importlib.machinery, sys

    class Redirect(importlib.abc.MetaPathFinder, importlib.abc.Loader):
        def find_spec(self, name, path=None, target=None):
            if name == "triton" or name.startswith("triton."):
                return importlib.machinery.ModuleSpec(name, self, is_package=True)
        def create_module(self, spec):
            return importlib.import_module("frontend_triton_compat" + spec.name[len("triton"):])
        def exec_module(self, module):
            pass

    sys.meta_path.insert(0, Redirect())
    import triton.runtime.errors
    from triton.tools.tensor_descriptor import TensorDescriptor
    from triton.compiler.errors import CompilationError
    from triton.language.standard import _log2
    import triton.tools.ragged_tma, triton.backends.compiler, triton.errors, triton.profiler.viewer
    assert triton.runtime.errors.OutOfResources is triton.OutOfResources
    assert issubclass(CompilationError, triton.errors.TritonError)
    assert "frontend_triton_compat" in sys.modules and _log2(8) == 3
"""


def test_a_redirect_that_is_not_ours():
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(REDIRECT)], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr


def test_profiling_is_accepted_and_measures_nothing():
    from bridge.diagnostics import DiagnosticNote
    from frontend_triton_compat import profiler

    with pytest.warns(DiagnosticNote, match="TPB273"):
        session = profiler.start("a session of this test")
    profiler.deactivate(session)
    with profiler.scope("part", metrics={"flops": 1}), profiler.state("x"):
        pass
    assert profiler.scope("part")(len) is len
    profiler.finalize()
    with pytest.raises(Diagnostic, match="TPB262"):
        profiler.viewer.parse([], "file", {})
