"""The CPU dialect: one Pallas kernel without a grid, every window a whole-array slice.

Input: a `Schedule`. Output: `Module`, the source text of a standalone module and what its entry takes and returns.
Law: the text imports jax and Pallas only and is what runs. An argument arrives as an array of its view's shape, or,
where the storage is too short for that, flat, and is padded first. A stored argument is returned whole; elements
that no program writes come back as they went in.
"""

from __future__ import annotations

from frontend_triton_compat.emit.cpu.emitter import CpuEmitter
from frontend_triton_compat.emit.module import Module
from frontend_triton_compat.schedule import Schedule


def emit(plan: Schedule) -> Module:
    """The CPU module of a scheduled kernel."""
    return CpuEmitter(plan).module()
