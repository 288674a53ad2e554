"""`import triton` gives our package: to scripts, to libraries, to torch itself; and takes it back."""

from __future__ import annotations

import importlib
import importlib.metadata
import subprocess
import sys
import textwrap

import pytest
import torch

import frontend_triton_compat as ours
import frontend_triton_compat.language as tl
from bridge.diagnostics import Diagnostic
from frontend_triton_compat import shim


@pytest.fixture
def triton():
    """Ours under the name triton, whatever the other tests imported."""
    with shim.installed(displace=True):
        yield importlib.import_module("triton")


def test_the_package_is_ours_and_no_copy(triton):
    assert triton is ours
    import triton.language as language
    import triton.runtime.jit as runtime_jit

    assert language is tl
    assert runtime_jit.JITFunction is ours.JITFunction


def test_names_that_libraries_import_at_module_level(triton):
    namespace: dict = {}
    exec(
        textwrap.dedent(
            """
            import triton
            import triton.language as tl
            import triton.testing
            import triton.runtime.driver
            import triton.backends
            import triton.compiler as compiler
            from triton import Config, JITFunction, OutOfResources, autotune, cdiv, heuristics, jit, knobs
            from triton import KernelInterface, TritonError, reinterpret, set_allocator
            from triton.backends.compiler import GPUTarget
            from triton.compiler import ASTSource, CompilationError, CompiledKernel, make_backend
            from triton.compiler.errors import CompileTimeAssertionFailure, UnsupportedLanguageConstruct
            from triton.language import core, constexpr
            from triton.language.core import builtin, tensor
            from triton.language.extra import libdevice
            from triton.language.extra.cuda import gdc_wait, libdevice as cuda_libdevice
            from triton.language.extra.hip import libdevice as hip_libdevice
            from triton.language.math import exp, rsqrt
            from triton.language.standard import _log2
            from triton.runtime import autotuner, driver
            from triton.runtime.autotuner import Autotuner, Heuristics, OutOfResources
            from triton.runtime.cache import get_cache_manager
            from triton.runtime.errors import InterpreterError
            from triton.runtime.interpreter import InterpretedFunction
            from triton.runtime.jit import JITFunction as SameJITFunction, TensorWrapper
            from triton.testing import Benchmark, do_bench, perf_report
            from triton.tools.tensor_descriptor import TensorDescriptor
            """
        ),
        namespace,
    )
    assert namespace["SameJITFunction"] is ours.JITFunction
    assert namespace["CompilationError"] is ours.CompilationError
    assert namespace["driver"].active.get_current_target().backend == "cpu"
    assert namespace["driver"].active.get_active_torch_device() == torch.device("cpu")
    assert namespace["driver"].active.utils.get_device_properties(0)["multiprocessor_count"] >= 1
    assert namespace["triton"].runtime.driver is namespace["driver"]
    assert namespace["triton"].runtime.jit.JITFunction is ours.JITFunction
    assert namespace["_log2"](256) == 8
    assert not isinstance(ours.jit(lambda: None), namespace["InterpretedFunction"])


@pytest.mark.parametrize("name", ["affine", "parse", "nope", "language.semantic_of_another_kind", "runtime.nope"])
def test_submodules_that_triton_does_not_have(triton, name):
    # `affine` and `parse` are files of our package: found as `triton.affine` they would be loaded twice.
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module(f"triton.{name}")


def test_names_that_triton_does_not_have_are_import_errors(triton):
    for module in ("triton", "triton.compiler", "triton.runtime", "triton.runtime.jit", "triton.language.core"):
        with pytest.raises(ImportError):
            exec(f"from {module} import a_name_of_a_later_version")
    assert not hasattr(triton, "a_name_of_a_later_version")


def use_call(name):
    return name(1, 2)


@pytest.mark.parametrize(
    "use",
    [use_call, lambda n: n.attribute, lambda n: n["key"], lambda n: type("Sub", (n,), {})()],
    ids=["call", "attribute", "index", "subclass"],
)
def test_a_name_without_a_meaning_says_so_when_it_is_used(triton, use):
    from triton.compiler import IRSource

    with pytest.raises(Diagnostic) as caught:
        use(IRSource)
    assert caught.value.code == "TPB262" and "triton.compiler.IRSource" in caught.value.what
    assert caught.value.why and caught.value.do and caught.value.where.file == __file__
    assert not hasattr(IRSource, "attribute")
    assert not isinstance(3, IRSource)


def test_figures_of_a_gpu_are_refused(triton):
    for name in ("get_dram_gbps", "get_max_tensorcore_tflops", "nvsmi"):
        with pytest.raises(Diagnostic, match="TPB262"):
            getattr(triton.testing, name)()


def test_knobs_are_read_set_and_scoped(triton):
    from triton import knobs

    assert knobs.runtime.interpret is False and knobs.nvidia.libcuda_path is None
    with knobs.autotuning.scope():
        knobs.autotuning.print = True
        assert knobs.autotuning.print
    assert not knobs.autotuning.print
    assert not hasattr(knobs.runtime, "a_knob_of_a_later_version")
    with pytest.raises(AttributeError):
        knobs.runtime.a_knob_of_a_later_version = 1
    with pytest.raises(Diagnostic, match="TPB262"):
        knobs.runtime.add_stages_inspection_hook = print
    assert knobs.runtime.jit_cache_hook is None and not knobs.runtime.launch_enter_hook.calls


def test_version_is_the_languages(triton):
    assert importlib.metadata.version("triton") == ours.__version__ == triton.__version__


def test_uninstall_takes_everything_back():
    names = {n for n in sys.modules if n == "triton" or n.startswith("triton.")}
    before = {n: sys.modules[n] for n in names}
    hooks, attributes = list(sys.meta_path), set(vars(ours)) | set(vars(tl))
    with shim.installed(displace=True):
        assert sys.modules["triton"] is ours
        with shim.installed():
            pass
        assert sys.modules["triton"] is ours, "the inner context took away what the outer one had installed"
    assert {n: m for n, m in sys.modules.items() if n == "triton" or n.startswith("triton.")} == before
    assert sys.meta_path == hooks
    assert set(vars(ours)) | set(vars(tl)) == attributes


def test_genuine_package_that_is_imported_already_is_refused(monkeypatch):
    import types

    monkeypatch.setitem(sys.modules, "triton", types.ModuleType("triton"))
    with pytest.raises(Diagnostic) as caught:
        shim.install()
    assert caught.value.code == "TPB261" and caught.value.where.file == __file__
    assert not shim.is_installed()


# -- a library in the style of third parties, which knows nothing of us

LIBRARY = {
    "fastops/__init__.py": "from .norms import rms_norm\nfrom .utils import is_cuda, num_programs\n",
    "fastops/utils.py": """
        import functools
        import importlib.metadata

        import torch
        import triton
        import triton.language as tl
        from triton.runtime import driver

        TRITON_VERSION = tuple(int(n) for n in importlib.metadata.version("triton").split(".")[:2])
        assert TRITON_VERSION >= (3, 0), "needs triton 3"

        try:
            from triton.language.extra.cuda import libdevice
        except ImportError:
            from triton.language.math import libdevice
        try:
            from triton.tools.experimental_descriptor import create_2d_tma_descriptor
            HAS_TMA = True
        except ImportError:
            HAS_TMA = False


        @functools.cache
        def is_cuda():
            return driver.active.get_current_target().backend == "cuda"


        def num_programs():
            return driver.active.utils.get_device_properties(0)["multiprocessor_count"]


        def contiguous(fn):
            @functools.wraps(fn)
            def wrapper(*args):
                return fn(*(a.contiguous() if isinstance(a, torch.Tensor) else a for a in args))
            return wrapper
    """,
    "fastops/norms.py": """
        import torch
        import triton
        import triton.language as tl

        from .utils import contiguous, libdevice


        @triton.jit
        def _scale(x, w):
            return x * w


        @triton.heuristics({"HAS_BIAS": lambda args: args["bias"] is not None})
        @triton.autotune(configs=[triton.Config({}, num_warps=w) for w in (2, 4)], key=["n"])
        @triton.jit
        def _rms_norm(x, w, bias, o, stride, n, eps, BLOCK: tl.constexpr, HAS_BIAS: tl.constexpr):
            row = tl.program_id(0)
            i = tl.arange(0, BLOCK)
            v = tl.load(x + row * stride + i, mask=i < n, other=0.0).to(tl.float32)
            r = libdevice.rsqrt(tl.sum(v * v, axis=0) / n + eps)
            y = _scale(v * r, tl.load(w + i, mask=i < n))
            if HAS_BIAS:
                y += tl.load(bias + i, mask=i < n)
            tl.store(o + row * stride + i, y, mask=i < n)


        class RMSNorm(torch.autograd.Function):
            @staticmethod
            @contiguous
            def forward(ctx, x, w, bias, eps):
                o = torch.empty_like(x)
                rows, n = x.shape
                _rms_norm[(rows,)](x, w, bias, o, x.stride(0), n, eps, BLOCK=triton.next_power_of_2(n))
                return o


        def rms_norm(x, w, bias=None, eps=1e-6):
            return RMSNorm.apply(x, w, bias, eps)
    """,
}
USE = """
    import sys
    import torch
    import fastops
    assert "frontend_triton_compat" in sys.modules
    assert not fastops.is_cuda() and fastops.num_programs() >= 1
    x, w, b = torch.randn(6, 48), torch.randn(48), torch.randn(48)
    for bias in (None, b):
        got = fastops.rms_norm(x, w, bias)
        want = torch.nn.functional.rms_norm(x, (48,), w, 1e-6) + (0 if bias is None else bias)
        torch.testing.assert_close(got, want)
    print("right", sys.argv[1:])
"""
BLOCK_GENUINE = """
    import sys
    class Nothing:
        # Triton is not installed, as far as this process can tell.
        def find_spec(self, name, path=None, target=None):
            if name == "triton" or name.startswith("triton."):
                raise ModuleNotFoundError(name, name=name)
    sys.meta_path.insert(0, Nothing())
"""


@pytest.fixture
def library(tmp_path):
    for name, text in LIBRARY.items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(textwrap.dedent(text))
    (tmp_path / "use.py").write_text(textwrap.dedent(USE))
    return tmp_path


def python(*args, cwd):
    done = subprocess.run([sys.executable, *args], capture_output=True, text=True, timeout=180, cwd=cwd)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


@pytest.mark.parametrize("installed", [True, False], ids=["triton installed", "triton absent"])
def test_a_library_runs_unmodified(library, installed, monkeypatch):
    root = str(shim.__file__).rsplit("/", 2)[0]
    monkeypatch.setenv("PYTHONPATH", root)
    if installed:
        out = python("-m", "frontend_triton_compat", "run", "use.py", "--flag", "x", cwd=library)
    else:
        start = (
            textwrap.dedent(BLOCK_GENUINE) + "from frontend_triton_compat.cli import main\nsys.exit(main(sys.argv[1:]))"
        )
        out = python("-c", start, "run", "use.py", "--flag", "x", cwd=library)
    assert out.strip() == "right ['--flag', 'x']"


def test_torch_compile_works_under_the_shim(tmp_path, monkeypatch):
    root = str(shim.__file__).rsplit("/", 2)[0]
    monkeypatch.setenv("PYTHONPATH", root)
    script = """
        import torch
        from frontend_triton_compat import shim
        shim.install()
        f = lambda x: (x.sin() + 1).sum()
        for backend in ("eager", "aot_eager", "inductor"):
            assert torch.allclose(torch.compile(f, backend=backend)(torch.ones(4)), f(torch.ones(4)))
            torch.compiler.reset()
        print("right")
    """
    (tmp_path / "script.py").write_text(textwrap.dedent(script))
    assert python("script.py", cwd=tmp_path).strip() == "right"
