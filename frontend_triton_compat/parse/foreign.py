"""Names of the genuine triton package seen from a kernel, as ours.

Input: any Python object that a name or attribute in a kernel gave. Output: our counterpart, or the object itself.
Law: the genuine package is never imported here; objects are recognised by their module's name.
"""

from __future__ import annotations

import importlib
import types
from typing import Any

from frontend_triton_compat import language
from frontend_triton_compat.language.constexpr import unwrap
from frontend_triton_compat.types import dtype

_OURS = "frontend_triton_compat"


def ours(value: Any) -> Any:
    """`value`, unwrapped from constexpr, or our counterpart of an object of the genuine package."""
    value = unwrap(value)
    if isinstance(value, types.ModuleType):
        return _module(value)
    module = getattr(value, "__module__", None) or ""
    if not isinstance(module, str) or not module.startswith("triton."):
        fn = getattr(value, "fn", None)
        module = getattr(fn, "__module__", "") if fn is not None else ""
        if not isinstance(module, str) or not module.startswith("triton.language"):
            return _instance(value)
    if not module.startswith("triton.language"):
        return value
    name = getattr(value, "__name__", "")
    if "libdevice" in module:
        return getattr(language.libdevice, name, value)
    if module.endswith(".math") and hasattr(language.math, name):
        return getattr(language.math, name)
    return getattr(language, name, value)


def _instance(value: Any) -> Any:
    cls = type(value)
    if cls.__module__.startswith("triton.language"):
        if cls.__name__ == "dtype":
            return dtype(value.name)
        if cls.__name__ == "pointer_type":
            return language.pointer_type(_instance(value.element_ty))
        if cls.__name__ == "PROPAGATE_NAN":
            return language.PropagateNan[value.name]
    return value


def _module(module: types.ModuleType) -> Any:
    name = module.__name__
    if name != "triton" and not name.startswith("triton."):
        return module
    if name == "triton":
        return importlib.import_module(_OURS)
    if "libdevice" in name:
        return language.libdevice
    if name.startswith("triton.language.extra"):
        return language.extra.cuda if "." in name[len("triton.language.extra") :] else language.extra
    if name == "triton.language.math":
        return language.math
    return language if name.startswith("triton.language") else module
