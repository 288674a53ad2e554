"""``import triton`` that resolves to this package, in this process.

Input: nothing. Output: entries of `sys.modules` and one import hook. Law: the modules are ours and not copies, so that
identity tests hold; a submodule of the genuine package without a meaning here can be imported, and says so when one of
its names is used; one that the genuine package does not have is a `ModuleNotFoundError`; `uninstall` takes all of it
back.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import sys
import types
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from email.message import Message
from importlib.machinery import ModuleSpec
from typing import Any

from bridge.diagnostics import Where, error
from frontend_triton_compat.absent import lookup_in
from frontend_triton_compat.language.constexpr import constexpr_function

_OURS = "frontend_triton_compat"
#: Submodules of triton that have a meaning here, and where they are. Kept in `__triton_shim__` of the package too.
MODULES: dict[str, str] = {
    "triton": _OURS,
    "triton.testing": f"{_OURS}.testing",
    "triton.knobs": f"{_OURS}.knobs",
    "triton.language": f"{_OURS}.language",
    "triton.language.math": f"{_OURS}.language.math",
    "triton.language.random": f"{_OURS}.language.random",
    "triton.language.extra": f"{_OURS}.language.extra",
    "triton.language.extra.libdevice": f"{_OURS}.language.extra.libdevice",
    "triton.language.extra.cuda": f"{_OURS}.language.extra.cuda",
    "triton.language.extra.cuda.libdevice": f"{_OURS}.language.extra.cuda.libdevice",
    "triton.language.extra.hip": f"{_OURS}.language.extra.cuda",
    "triton.language.extra.hip.libdevice": f"{_OURS}.language.extra.cuda.libdevice",
    "triton.runtime": f"{_OURS}.runtime",
    "triton.runtime.jit": f"{_OURS}.runtime.jit",
    "triton.runtime.autotuner": f"{_OURS}.runtime",
    "triton.runtime.driver": f"{_OURS}.runtime",
    "triton.runtime.errors": f"{_OURS}.runtime",
    "triton.runtime._allocation": f"{_OURS}.runtime",
}
#: Submodules that are put together from our names and stand-ins: name -> where our names for it are.
ASSEMBLED: dict[str, str] = {
    "triton.language.core": f"{_OURS}.language",
    "triton.language.standard": f"{_OURS}.language",
    "triton.language.semantic": f"{_OURS}.language",
    "triton.language.target_info": f"{_OURS}.language",
    "triton.runtime.interpreter": f"{_OURS}.runtime",
    "triton.runtime.cache": f"{_OURS}.runtime",
    "triton.runtime.build": f"{_OURS}.runtime",
    "triton.runtime._async_compile": f"{_OURS}.runtime",
    "triton.errors": f"{_OURS}.runtime",
    "triton.compiler": f"{_OURS}.runtime",
    "triton.compiler.compiler": f"{_OURS}.runtime",
    "triton.compiler.errors": f"{_OURS}.runtime",
    "triton.compiler.code_generator": f"{_OURS}.runtime",
    "triton.backends": f"{_OURS}.runtime",
    "triton.backends.compiler": f"{_OURS}.runtime",
    "triton.backends.driver": f"{_OURS}.runtime",
    "triton.backends.nvidia": "",
    "triton.backends.nvidia.compiler": "",
    "triton.backends.nvidia.driver": "",
    "triton.backends.amd": "",
    "triton.backends.amd.compiler": "",
    "triton.backends.amd.driver": "",
    "triton.tools": "",
    "triton.tools.tensor_descriptor": f"{_OURS}.runtime",
    "triton.tools.disasm": "",
    "triton.tools.mxfp": "",
    "triton.tools.ragged_tma": "",
    "triton.profiler": "",
    "triton.profiler.language": "",
    "triton.profiler.viewer": "",
    "triton.experimental": "",
    "triton.experimental.gluon": "",
    "triton.experimental.gluon.language": "",
    "triton._C": "",
    "triton._C.libtriton": "",
}
#: What an assembled module has besides: plain values.
_VALUES: dict[str, dict[str, Any]] = {
    "triton.backends": {"backends": {}},
    "triton.language.standard": {
        "_log2": constexpr_function(lambda i: i.bit_length() - 1),
        "_is_power_of_two": constexpr_function(lambda i: i > 0 and not i & (i - 1)),
    },
}
#: Names that an assembled module takes from ours; None: all of them.
_TAKEN: dict[str, frozenset[str] | None] = {
    "triton.errors": frozenset({"TritonError"}),
    "triton.compiler": frozenset({"CompilationError"}),
    "triton.compiler.compiler": frozenset({"CompilationError", "OutOfResources", "GPUTarget", "triton_key"}),
    "triton.compiler.errors": frozenset(
        {"CompilationError", "CompileTimeAssertionFailure", "UnsupportedLanguageConstruct"}
    ),
    "triton.compiler.code_generator": frozenset({"CompilationError", "UnsupportedLanguageConstruct"}),
    "triton.backends": frozenset(),
    "triton.backends.compiler": frozenset({"GPUTarget"}),
    "triton.backends.driver": frozenset(),
    "triton.tools.tensor_descriptor": frozenset({"TensorDescriptor"}),
    "triton.runtime.cache": frozenset({"triton_key", "knobs"}),
    "triton.runtime.interpreter": frozenset({"InterpreterError"}),
}


class _Assembled(types.ModuleType):
    """A module whose names are ours where they have a meaning, and stand-ins where they have none."""

    def __init__(self, name: str, source: types.ModuleType | None):
        super().__init__(name, f"`{name}`: what of it has a meaning here.")
        self.__path__: list[str] = []
        self.__spec__ = ModuleSpec(name, None, is_package=True)
        self.__dict__.update(_VALUES.get(name, {}))
        self._source = source

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        taken = _TAKEN.get(self.__name__)
        if self._source is not None and (taken is None or name in taken):
            found = getattr(self._source, name, None)
            if found is not None:
                return found
        return lookup_in(self.__name__, name)


class _Finder:
    """Import hook: keeps ``triton.x`` from being found as a file of our package, which would load it twice."""

    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None = None, target: Any = None) -> ModuleSpec | None:
        """None for other packages; for triton, whatever has a meaning is in `sys.modules` already."""
        if name == "triton" or name.startswith("triton."):
            raise ModuleNotFoundError(f"No module named {name!r} in torch-pallas' triton", name=name)
        return None

    @staticmethod
    def find_distributions(context: Any = None) -> Iterator[importlib.metadata.Distribution]:
        """The version of triton, for ``importlib.metadata.version``."""
        if getattr(context, "name", None) == "triton":
            yield _Distribution()


class _Distribution(importlib.metadata.Distribution):
    """``triton`` as a distribution without files."""

    def read_text(self, filename: str) -> str | None:
        """Its metadata: name and version."""
        if filename != "METADATA":
            return None
        message = Message()
        message["Metadata-Version"], message["Name"] = "2.1", "triton"
        message["Version"] = importlib.import_module(_OURS).__version__
        return message.as_string()

    def locate_file(self, path: Any) -> Any:
        """There are no files."""
        raise FileNotFoundError(path)


_finder = _Finder()
_installed: dict[str, types.ModuleType] = {}
_attributes: list[tuple[types.ModuleType, str]] = []


def is_installed() -> bool:
    """Whether ``import triton`` gives this package now."""
    return bool(_installed)


def install() -> None:
    """Make ``import triton`` and its submodules resolve to this package, in this process. Twice is once.

    Raises:
        TranslationError: the genuine package is imported already; its kernels can be handed to `retarget`.
    """
    if _installed:
        return
    package = importlib.import_module(_OURS)
    present = sys.modules.get("triton")
    if present is not None and present is not package:
        raise error(
            "triton-imported",
            "the genuine triton package is imported already",
            where=Where.caller(),
            why="modules that hold references to it would mix the two",
            do="call frontend_triton_compat.shim.install() before anything imports triton (torch.compile does that "
            "too), or hand its kernels to frontend_triton_compat.retarget",
        )
    for name, ours in MODULES.items():
        _installed[name] = importlib.import_module(ours)
    for name, ours in ASSEMBLED.items():
        _installed[name] = _Assembled(name, importlib.import_module(ours) if ours else None)
    sys.modules.update(_installed)
    for name, module in _installed.items():
        parent, _, last = name.rpartition(".")
        if parent and not isinstance(_installed[parent], _Assembled) and last not in vars(_installed[parent]):
            setattr(_installed[parent], last, module)
            _attributes.append((_installed[parent], last))
        elif parent and isinstance(_installed[parent], _Assembled):
            vars(_installed[parent])[last] = module
    sys.meta_path.insert(0, _finder)  # type: ignore[arg-type]


def uninstall() -> None:
    """Take `install` back. Modules that were imported in between keep our kernels, and these keep working."""
    for name, module in _installed.items():
        if sys.modules.get(name) is module:
            del sys.modules[name]
    for module, name in _attributes:
        delattr(module, name)
    if _finder in sys.meta_path:
        sys.meta_path.remove(_finder)  # type: ignore[arg-type]
    _installed.clear()
    _attributes.clear()


@contextmanager
def installed(displace: bool = False) -> Iterator[None]:
    """`install`, and `uninstall` at the end, unless it was installed before.

    Args:
        displace: a genuine package that is imported already is put aside, and back at the end; what holds references to
            it keeps them.
    """
    before = is_installed()
    aside = {}
    if displace and not before:
        aside = {n: m for n, m in sys.modules.items() if n == "triton" or n.startswith("triton.")}
        for name in aside:
            del sys.modules[name]
    try:
        install()
        yield
    finally:
        if not before:
            uninstall()
        sys.modules.update(aside)
