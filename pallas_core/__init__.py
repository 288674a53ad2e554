"""JAX Pallas kernels on torch tensors and jax arrays, on the CPU and compiled offline for TPUs.

`import pallas_core as pc` is enough to write, run, check and compile a kernel.
"""

from pallas_core.budget import Budget
from pallas_core.call import compiler_params, pallas_call
from pallas_core.function import PallasFunction
from pallas_core.grid import (
    BlockSpec,
    Buffered,
    Element,
    GridSpec,
    PrefetchScalarGridSpec,
    Squeezed,
    cdiv,
    debug_print,
    num_programs,
    program_id,
    run_scoped,
    when,
)
from pallas_core.offline import Compiled, GpuReport, compile_for, vmem_budget
from pallas_core.pipeline import emit_pipeline
from pallas_core.refs import ANY, HBM, SEMAPHORE, SMEM, VMEM, Ref, SemaphoreType, ds, multiple_of
from pallas_core.schedule import Report, schedule_report
from pallas_core.shapes import like, spec
from pallas_core.targets import TargetInfo, targets
from pallas_core.verify import Verified, verify

__all__ = [
    "ANY",
    "HBM",
    "SEMAPHORE",
    "SMEM",
    "VMEM",
    "BlockSpec",
    "Budget",
    "Buffered",
    "Compiled",
    "Element",
    "GpuReport",
    "GridSpec",
    "PallasFunction",
    "PrefetchScalarGridSpec",
    "Ref",
    "Report",
    "SemaphoreType",
    "Squeezed",
    "TargetInfo",
    "Verified",
    "cdiv",
    "compile_for",
    "compiler_params",
    "debug_print",
    "ds",
    "emit_pipeline",
    "like",
    "multiple_of",
    "num_programs",
    "pallas_call",
    "program_id",
    "run_scoped",
    "schedule_report",
    "spec",
    "targets",
    "verify",
    "vmem_budget",
    "when",
]
