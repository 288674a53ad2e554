"""`tl.extra.cuda.libdevice`: the same functions as `tl.extra.libdevice`."""

from typing import Any

from frontend_triton_compat.language.extra import libdevice as _libdevice

__all__ = list(_libdevice.__all__)


def __getattr__(name: str) -> Any:
    return getattr(_libdevice, name)
