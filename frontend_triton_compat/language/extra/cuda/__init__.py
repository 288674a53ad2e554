"""`tl.extra.cuda`: launch-order hints do nothing here; clocks and processor numbers have no translation."""

from __future__ import annotations

from typing import Any

from frontend_triton_compat.language.extra.cuda import libdevice
from frontend_triton_compat.language.unsupported import unsupported


def gdc_wait(*args: Any, **kwargs: Any) -> None:
    """Wait for the kernel before; launches run in order here, so nothing happens."""


def gdc_launch_dependents(*args: Any, **kwargs: Any) -> None:
    """Let the kernel after start; launches run in order here, so nothing happens."""


globaltimer = unsupported("globaltimer")
smid = unsupported("smid")
num_threads = unsupported("num_threads")
num_warps = unsupported("num_warps")

__all__ = ["gdc_launch_dependents", "gdc_wait", "globaltimer", "libdevice", "num_threads", "num_warps", "smid"]
