"""Compile for an NVIDIA GPU that is not here: Mosaic GPU, XLA and ptxas, in a process of their own.

Input: a lowered program with Mosaic GPU kernels. Output: `GpuReport`: what ptxas and the machine code say. Law: figures
are static; no time is claimed, for nothing models this machine's. One process an architecture.
"""

from __future__ import annotations

import atexit
import html
import json
import os
import re
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from bridge.diagnostics import Where, error
from pallas_core import compat, lowering
from pallas_core.offline import gpu_tools
from pallas_core.offline.client import Process
from pallas_core.reasons_gpu import explain_gpu_failure
from pallas_core.targets.mosaic_gpu import GpuChip

#: Machine instructions that are counted: name -> pattern in the SASS.
COUNTED = {
    "HGMMA": r"\b[HQI]GMMA\b",
    "UTCMMA": r"\bUTC\w*MMA\b",
    "UTMA": r"\bUTMA(?:LDG|STG|REDG)\b",
    "LDTM": r"\bLDTM\b",
    "LDG": r"\bLDG\b",
    "STG": r"\bSTG\b",
    "LDS": r"\bLDSM?\b",
    "STS": r"\bSTSM?\b",
}
_CONFIG = """
gpu_device_info {{
  threads_per_block_limit: 1024 threads_per_warp: 32 shared_memory_per_block: 49152 shared_memory_per_core: 233472
  threads_per_core_limit: 2048 core_count: {sms} fpus_per_core: 128 block_dim_limit_x: 2147483647
  block_dim_limit_y: 65535 block_dim_limit_z: 65535 memory_bandwidth: {bandwidth} l2_cache_size: {l2}
  clock_rate_ghz: {clock} device_memory_size: {memory} shared_memory_per_block_optin: {smem}
  cuda_compute_capability {{ major: {major} minor: {minor} feature_extension: ACCELERATED_FEATURES }}
  registers_per_core_limit: 65536 registers_per_block_limit: 65536 name: "{board}"
}}
platform_name: "CUDA" dnn_version_info {{ major: 9 minor: 7 }} device_description_str: "{board}"
"""
CAVEAT = (
    "Figures of ptxas and of the machine code. Nothing was run on a GPU, and nothing here says how long it takes; "
    "the roofline is bytes and operations over published peaks."
)


@dataclass(frozen=True)
class GpuReport:
    """What a GPU's compiler says of a program; the largest figure where it has several kernels.

    Attributes:
        name: of the function.
        target: ``gpu:sm90a`` ...
        registers: a thread.
        spills: bytes stored to the stack for want of registers.
        smem_bytes: shared memory a block asks for.
        counts: machine instruction -> how often it stands in the code; empty without a disassembler.
        io_bytes: inputs and outputs, what must at least move.
        flops: floating point operations of one run; None when unknown.
        roofline_s: the time that bytes and operations need at the published peaks.
        bound: ``"hbm"`` or ``"mma"``: which of them is larger; "" for matrix kernels whose operations are not known.
        compile_s: seconds the compile took.
        ptx, sass: the texts, where they were asked for.
    """

    name: str
    target: str
    registers: int
    spills: int
    smem_bytes: int
    counts: dict[str, int]
    io_bytes: int
    flops: float | None
    roofline_s: float
    bound: str
    compile_s: float = field(compare=False)
    ptx: str = field(default="", repr=False)
    sass: str = field(default="", repr=False)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, texts aside."""
        plain = asdict(self)
        del plain["ptx"], plain["sass"]
        return plain

    def to_json(self) -> str:
        """The report as a JSON object."""
        return json.dumps(self.to_dict(), indent=1)

    def to_html(self) -> str:
        """The report as one self-contained HTML page."""
        title = html.escape(f"{self.name} on {self.target}")
        rows = "\n".join(f"<tr><th>{html.escape(k)}</th><td>{html.escape(v)}</td></tr>" for k, v in self._facts())
        return (
            f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{title}</title></head>\n'
            f"<body><h1>{title}</h1>\n<table>\n{rows}\n</table>\n<p>{html.escape(CAVEAT)}</p></body></html>\n"
        )

    def __str__(self) -> str:
        facts = [f"  {key:14s} {value}" for key, value in self._facts()]
        return "\n".join([f"{self.name} on {self.target} (static)", *facts, "", CAVEAT])

    def _facts(self) -> list[tuple[str, str]]:
        counts = ", ".join(f"{k} {n}" for k, n in self.counts.items()) or "not counted: no nvdisasm here"
        return [
            ("registers", f"{self.registers} a thread"),
            ("spills", f"{self.spills} bytes"),
            ("SMEM", f"{self.smem_bytes / 1024:.4g} KiB a block"),
            ("instructions", counts),
            ("roofline", f"{self.roofline_s * 1e3:.4g} ms, {self.bound or 'of the bytes alone'}"),
        ]


class GpuWorker(Process):
    """The GPU compiler's process, for one architecture."""

    name = "the GPU compiler"
    script = "gpu_worker.py"
    slugs = ("gpu-compiler-crash", "gpu-compiler-crash")

    def __init__(self, chip: GpuChip):
        super().__init__()
        self.chip = chip
        self.tools: gpu_tools.Tools | None = None

    def environment(self, folder: Path) -> dict[str, str]:
        """Its own folder of tools, first on the path."""
        assert self.tools is not None
        binaries = folder / "cuda" / "bin"
        binaries.mkdir(parents=True)
        for tool in (*(Path(self.tools.cuda) / "bin").iterdir(), Path(self.tools.disassembler or "nvdisasm")):
            if tool.is_file() and not (binaries / tool.name).exists():
                (binaries / tool.name).symlink_to(tool)
        self._cuda = str(folder / "cuda")
        return {
            "JAX_PLATFORMS": "cpu",
            "JAX_SKIP_CUDA_CONSTRAINTS_CHECK": "1",
            "TF_CPP_MIN_LOG_LEVEL": "3",
            "PATH": f"{binaries}{os.pathsep}{os.environ.get('PATH', '')}",
        }

    def arguments(self) -> list[str]:
        """Where the plugin and the tools are."""
        assert self.tools is not None
        return [self.tools.site, self._cuda]

    def compile(self, module: bytes, texts: bool, timeout: float) -> dict[str, Any]:
        """Compile one module.

        Raises:
            Diagnostic: ``missing-dependency`` or ``gpu-compiler-crash``.
        """
        self.tools = gpu_tools.find()
        with self._lock:
            request = {"module": module, "target_config": config(self.chip), "texts": texts}
            return self.ask(request, self.chip.name, timeout)


_workers: dict[str, GpuWorker] = {}


@atexit.register
def _stop() -> None:
    for worker in _workers.values():
        worker.stop()


def config(chip: GpuChip) -> str:
    """The device's description, as XLA wants it."""
    major, minor = chip.capability.split(".")
    return _CONFIG.format(
        sms=chip.multiprocessors,
        bandwidth=int(chip.hbm_bytes_per_s),
        l2=chip.l2_bytes,
        clock=chip.clock_ghz,
        memory=chip.memory_bytes,
        smem=chip.smem_bytes,
        major=major,
        minor=minor,
        board=chip.board,
    )


def lower(program: lowering.Program) -> lowering.Lowered:
    """Lower a traced program: Mosaic GPU's own checks happen here.

    Raises:
        Diagnostic: an operation, a layout or a dtype that has no form on the GPU.
    """
    chip = lowering.gpu_chip_of(program.target)
    try:
        with compat.x64(False), compat.abstract_gpu(chip.board, chip.capability):
            lowered = program.traced.lower(lowering_platforms=("cuda",))
            return lowering.Lowered(program, compat.bytecode(lowered), lowered)
    except Exception as exc:  # the lowering raises a dozen types, all of them a verdict on the kernel
        raise explain_gpu_failure(exc, str(program.target), _place(program), program.traced.jaxpr, "lower") from exc


def compile_lowered(lowered: lowering.Lowered, *, texts: bool, timeout: float) -> dict[str, Any]:
    """Send a lowered program to the compiler.

    Raises:
        Diagnostic: the compiler refuses it, or is not installed.
    """
    program = lowered.program
    chip = lowering.gpu_chip_of(program.target)
    worker = _workers.setdefault(chip.name, GpuWorker(chip))
    answer = worker.compile(lowered.module, texts, timeout)
    if not answer["ok"]:
        raise explain_gpu_failure(
            answer["message"], str(program.target), _place(program), program.traced.jaxpr, "compile"
        )
    return answer


def report(
    lowered: lowering.Lowered, *, flops: float | None = None, texts: bool = False, timeout: float = 600.0
) -> GpuReport:
    """Compile a lowered program and read what the compiler says.

    Args:
        lowered: of `lower`.
        flops: operations of one run, for the roofline.
        texts: whether to keep PTX and SASS.
        timeout: seconds.

    Raises:
        Diagnostic: as `compile_lowered`.
    """
    program = lowered.program
    chip = lowering.gpu_chip_of(program.target)
    answer = compile_lowered(lowered, texts=texts, timeout=timeout)
    log, memory = answer["log"], answer["memory"]
    numbers = lambda pattern: [int(n) for n in re.findall(pattern, log)]
    ptx, sass = _texts(log)
    counts = {name: n for name, pattern in COUNTED.items() if (n := len(re.findall(pattern, sass)))}
    matrix = bool(re.search(r"wgmma\.mma_async|tcgen05\.mma", ptx)) or "HGMMA" in counts or "UTCMMA" in counts
    io = memory["argument_size_in_bytes"] + memory["output_size_in_bytes"]
    moving, computing = io / chip.hbm_bytes_per_s, (flops or 0) / chip.peak_flops
    registers = numbers(r"Used (\d+) registers")
    if not registers:
        raise error(
            "bad-argument",
            f"`{program.name}` has no Mosaic GPU kernel",
            where=_place(program),
            why="only kernels of plgpu.kernel are reported on.",
            do="pass a function that calls one",
        )
    return GpuReport(
        name=program.name,
        target=str(program.target),
        registers=max(registers),
        spills=max(numbers(r"(\d+) bytes spill stores"), default=0),
        smem_bytes=max(answer["shared"], default=0),
        counts=counts,
        io_bytes=io,
        flops=flops,
        roofline_s=max(moving, computing),
        bound="" if flops is None and matrix else "mma" if computing > moving else "hbm",
        compile_s=answer["seconds"],
        ptx=ptx if texts else "",
        sass=sass if texts else "",
    )


def _texts(log: str) -> tuple[str, str]:
    """PTX and SASS in what the compiler printed."""
    ptx, sass = log.find("//\n// Generated by LLVM NVPTX"), log.find("//--------------------- .text.")
    end = log.find("ptxas info", ptx)
    return log[ptx:end] if ptx >= 0 else "", log[sass:] if sass >= 0 else ""


def _place(program: lowering.Program) -> Where | None:
    return next((c.where for c in program.calls), None)
