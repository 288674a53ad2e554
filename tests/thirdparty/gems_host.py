"""flag-gems on a CPU: its own backend for ARM CPUs, which its list of vendors leaves out.

Input: nothing. Output: an importable `flag_gems`. Law: its kernels and operators are as they are; answered is only what
it asks a GPU's torch module: there is one device, it is the current one, and it has a generator with Philox' state.
"""

from __future__ import annotations

import contextlib
import enum
import importlib
import os
import sys
import types
from typing import Any

import torch

#: `flag_gems.runtime.common` has all but the last; its directory `runtime/backend/_arm` is there.
VENDORS = (
    "NVIDIA CAMBRICON METAX ILUVATAR MTHREADS KUNLUNXIN HYGON AMD AIPU ASCEND TSINGMICRO SUNRISE ENFLAME ARM"
).split()


class _Listed:
    @classmethod
    def get_all_vendors(cls) -> dict[str, Any]:
        return {member.name.lower(): member for member in cls}  # type: ignore[attr-defined]


class _Philox:
    """A generator's state, as a GPU's is read and set: a seed and an offset."""

    def __init__(self) -> None:
        self.state = torch.tensor([1234, 0]).view(torch.uint8)

    def get_state(self) -> torch.Tensor:
        return self.state.clone()

    def set_state(self, state: torch.Tensor) -> None:
        self.state = state.clone()


class _OneDevice:
    """`torch.cpu` with a device 0, as `torch.cuda` has one."""

    default_generators = (_Philox(),)

    def __getattr__(self, name: str) -> Any:
        return getattr(torch.cpu, name)

    def device_count(self) -> int:
        return 1

    def current_device(self) -> int:
        return 0

    def device(self, index: Any) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()

    def get_device_name(self, index: int = 0) -> str:
        return "cpu"

    def get_device_properties(self, index: int = 0) -> Any:
        return types.SimpleNamespace(multi_processor_count=os.cpu_count(), L2_cache_size=1 << 20, major=0, minor=0)


def prepare() -> None:
    """Import `flag_gems`."""
    if "flag_gems" in sys.modules:
        return
    common = types.ModuleType("flag_gems.runtime.common")
    common.vendors = enum.Enum("vendors", VENDORS, start=0, type=_Listed)  # type: ignore[attr-defined]
    sys.modules[common.__name__] = common
    os.environ["GEMS_VENDOR"] = "arm"
    real, one = torch.cpu, _OneDevice()
    one.__dict__.update({n: getattr(real, n) for n in ("is_available", "synchronize")})
    torch.cpu = one  # type: ignore[assignment]  # while it is imported: it keeps the module that it finds then
    try:
        importlib.import_module("flag_gems")
    finally:
        torch.cpu = real
