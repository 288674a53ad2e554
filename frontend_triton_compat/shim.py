"""``import triton`` that resolves to this package.

Input: nothing. Output: entries of `sys.modules`. Law: the module objects are ours, not copies, so that identity tests
hold; a submodule that we do not have raises `ModuleNotFoundError` as for any package; `uninstall` takes it all back.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from bridge.diagnostics import error

#: submodules of triton and where they are here
_MODULES = {
    "triton": "frontend_triton_compat",
    "triton.language": "frontend_triton_compat.language",
    "triton.language.math": "frontend_triton_compat.language.math",
    "triton.language.extra": "frontend_triton_compat.language.extra",
    "triton.language.extra.libdevice": "frontend_triton_compat.language.extra.libdevice",
    "triton.language.extra.cuda.libdevice": "frontend_triton_compat.language.extra.libdevice",
    "triton.testing": "frontend_triton_compat.testing",
    "triton.runtime": "frontend_triton_compat.runtime",
}
_installed: dict[str, object] = {}


def install() -> None:
    """Make ``import triton`` and its submodules resolve to this package, in this process.

    Raises:
        TranslationError: the genuine package is imported already; its kernels can be handed to `retarget`.
    """
    present = sys.modules.get("triton")
    if present is not None and present is not importlib.import_module("frontend_triton_compat"):
        raise error(
            "triton-imported",
            "the genuine triton package is imported already",
            why="modules that hold references to it would mix the two",
            do="call frontend_triton_compat.shim.install() before anything imports triton, "
            "or hand its kernels to frontend_triton_compat.retarget",
        )
    for name, ours in _MODULES.items():
        try:
            module = importlib.import_module(ours)
        except ModuleNotFoundError as absent:
            if absent.name != ours:
                raise
            continue
        sys.modules[name] = module
        _installed[name] = module


def uninstall() -> None:
    """Take `install` back."""
    for name, module in list(_installed.items()):
        if sys.modules.get(name) is module:
            del sys.modules[name]
        del _installed[name]


@contextmanager
def installed() -> Iterator[None]:
    """`install`, and `uninstall` at the end."""
    install()
    try:
        yield
    finally:
        uninstall()
