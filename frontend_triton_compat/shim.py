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
from frontend_triton_compat.modules import HIDDEN, NAMES, Assembled

_OURS = "frontend_triton_compat"


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
    for name in NAMES:
        _installed[name] = importlib.import_module(_OURS + name.removeprefix("triton"))
    _installed[HIDDEN[0]] = Assembled(HIDDEN[0])
    sys.modules.update(_installed)
    sys.meta_path.insert(0, _finder)  # type: ignore[arg-type]


def uninstall() -> None:
    """Take `install` back. Modules that were imported in between keep our kernels, and these keep working."""
    for name, module in _installed.items():
        if sys.modules.get(name) is module:
            del sys.modules[name]
    if _finder in sys.meta_path:
        sys.meta_path.remove(_finder)  # type: ignore[arg-type]
    _installed.clear()


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
