"""The submodules of the genuine package, under our package's name.

Input: nothing. Output: entries of `sys.modules`, so that ``import frontend_triton_compat.runtime.errors`` works as
``import triton.runtime.errors`` does, whoever redirects the name. Law: a submodule has a file of its own here, is
another name of one that has, or is put together from our names and stand-ins; one that the genuine package does not
have is not there either.
"""

from __future__ import annotations

import functools
import sys
import types
from importlib.machinery import ModuleSpec
from typing import Any, TypeVar

from frontend_triton_compat.absent import lookup_in, names_in
from frontend_triton_compat.language.constexpr import constexpr_function

_OURS = "frontend_triton_compat"
#: Submodules with a file of their own.
FILES = tuple(
    "triton triton.testing triton.knobs triton.profiler triton.compiler triton.runtime triton.runtime.jit "
    "triton.language triton.language.math triton.language.random triton.language.target_info triton.language.extra "
    "triton.language.extra.libdevice triton.language.extra.cuda triton.language.extra.cuda.libdevice".split()
)
#: Submodules that are other names of these.
OTHER_NAMES: dict[str, str] = {
    "triton.language.extra.hip": "triton.language.extra.cuda",
    "triton.language.extra.hip.libdevice": "triton.language.extra.cuda.libdevice",
    "triton.runtime.autotuner": "triton.runtime",
    "triton.runtime.driver": "triton.runtime",
    "triton.runtime.errors": "triton.runtime",
    "triton.runtime._allocation": "triton.runtime",
}
#: Submodules that are put together: name -> where our names for it are ("" for none), and which (None for all).
ASSEMBLED: dict[str, tuple[str, frozenset[str] | None]] = {
    name: (source, None if names == "*" else frozenset(names.split()))
    for name, source, names in (
        ("triton.language.core", "triton.language", "*"),
        ("triton.language.standard", "triton.language", "*"),
        ("triton.runtime.interpreter", "triton.runtime", "InterpreterError"),
        ("triton.runtime.cache", "triton.runtime", "triton_key"),
        ("triton.runtime.build", "triton.runtime", "*"),
        ("triton.runtime._async_compile", "triton.runtime", "*"),
        ("triton.errors", "triton.runtime", "TritonError"),
        ("triton.compiler.errors", "triton.compiler", "*"),
        ("triton.compiler.compiler", "triton.compiler", "*"),
        ("triton.compiler.code_generator", "triton.compiler", "*"),
        ("triton.backends", "", ""),
        ("triton.backends.compiler", "triton.runtime", "GPUTarget"),
        ("triton.backends.driver", "", ""),
        *(
            (f"triton.backends.{vendor}{part}", "", "")
            for vendor in ("nvidia", "amd")
            for part in ("", ".compiler", ".driver")
        ),
        ("triton.tools", "", ""),
        ("triton.tools.tensor_descriptor", "triton.runtime", "TensorDescriptor"),
        ("triton.tools.disasm", "", ""),
        ("triton.tools.mxfp", "", ""),
        (
            "triton.tools.ragged_tma",
            "triton.descriptors",
            "TensorDescriptor create_ragged_descriptor to_ragged_indices load_ragged store_ragged atomic_add_ragged",
        ),
        ("triton.profiler.language", "", ""),
        ("triton.profiler.viewer", "", ""),
        ("triton.experimental", "", ""),
        ("triton.experimental.gluon", "", ""),
        ("triton.experimental.gluon.language", "", ""),
        ("triton._C", "", ""),
        ("triton._C.libtriton", "", ""),
    )
}
#: A submodule whose name a file of ours has for something else: assembled where ``import triton`` is redirected by us.
HIDDEN = ("triton.language.semantic", ("triton.language", None))
#: Every submodule that can be imported.
NAMES = (*FILES, *OTHER_NAMES, *ASSEMBLED)
#: What a module has besides: plain values, and names that the genuine one only has because it imports them.
_VALUES: dict[str, dict[str, Any]] = {
    "triton.backends": {"backends": {}},
    "triton.language.standard": {
        "_log2": constexpr_function(lambda i: i.bit_length() - 1),
        "_is_power_of_two": constexpr_function(lambda i: i > 0 and not i & (i - 1)),
    },
    "triton.language.math": {"List": list, "T": TypeVar("T"), "wraps": functools.wraps},
}


class Assembled(types.ModuleType):
    """A module whose names are ours where they have a meaning, and stand-ins where they have none."""

    def __init__(self, name: str):
        super().__init__(_ours(name), f"`{name}`: what of it has a meaning here.")
        self.__path__: list[str] = []
        self.__spec__ = ModuleSpec(_ours(name), None, is_package=True)
        source, self._taken = ASSEMBLED[name] if name in ASSEMBLED else HIDDEN[1]
        self._genuine, self._source = name, sys.modules[_ours(source)] if source else None

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if self._source is not None and (self._taken is None or name in self._taken):
            found = getattr(self._source, name, None)
            if found is not None:
                return found
        return lookup_in(self._genuine, name)

    def __dir__(self) -> list[str]:
        taken = set(dir(self._source)) if self._taken is None else self._taken
        return sorted({*vars(self), *taken, *names_in(self._genuine)})


def _ours(name: str) -> str:
    return _OURS + name.removeprefix("triton")


def register() -> None:
    """Make the submodules importable, and attributes of the modules they are in."""
    for name in ASSEMBLED:
        sys.modules[_ours(name)] = Assembled(name)
    for name, other in OTHER_NAMES.items():
        sys.modules[_ours(name)] = sys.modules[_ours(other)]
    for name in (*ASSEMBLED, *OTHER_NAMES):
        parent, _, last = name.rpartition(".")
        holder = sys.modules.get(_ours(parent))
        if holder is not None and last not in vars(holder):
            setattr(holder, last, sys.modules[_ours(name)])
    for name, values in _VALUES.items():
        vars(sys.modules[_ours(name)]).update(values)
