"""`tl.target_info`: questions about the GPU that a kernel is compiled for; there is none here.

Input: none. Output: constants. Law: every answer is the one of a machine without a GPU, so that kernels take their
general path.
"""

from __future__ import annotations

from typing import Any


def current_target() -> None:
    """The GPU target: none."""


def is_cuda() -> bool:
    """False."""
    return False


def is_hip() -> bool:
    """False."""
    return False


def cuda_capability_geq(major: Any, minor: Any = 0) -> bool:
    """False."""
    return False
