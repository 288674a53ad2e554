"""The TPU compiler's message in words a user can act on.

Input: an exception of the lowering, or the worker's message. Output: a diagnostic with a stable slug, the user's line
and a remedy. Law: an unknown message still yields a diagnostic (``tpu-compile-failed``) that carries its first lines.
"""

from __future__ import annotations

import re
import traceback
from dataclasses import dataclass
from typing import Any

from bridge.diagnostics import Diagnostic, Where, error
from pallas_core import compat
from pallas_core.targets.tpu import SUBSTITUTES, TpuChip


@dataclass(frozen=True)
class Reason:
    """One known message.

    Attributes:
        pattern: regular expression that finds it.
        slug: the diagnostic it means.
        what: one line; ``{0}`` is the pattern's first group.
        do: remedies.
    """

    pattern: str
    slug: str
    what: str
    do: tuple[str, ...]


_REASONS = (
    Reason(
        r"index in dimension \d+ is a multiple of \d+|index at dimension \d+ is divisible by the tile dimension \d+",
        "tpu-unaligned-slice",
        "the compiler can't prove that a slice starts at a tile boundary",
        (
            "if the start is a multiple of the tile, say so:\n"
            "    x_ref[pc.ds(pc.multiple_of(start, 8), size)]      # 128 along the last dimension",
            "else load the aligned tile and shift it with `pltpu.roll`, or let the index map pick the block",
        ),
    ),
    Reason(
        r"Could not determine that the dynamic offset|Couldn't prove that tiling \((\d+)\) divides index",
        "tpu-unaligned-slice",
        "the compiler can't prove that an offset is aligned",
        ("wrap the offset in pc.multiple_of(offset, 8) (128 along the last dimension), if that is true",),
    ),
    Reason(
        r"CompileTimeMosaicMisalignedBlockAndTiling|Failed to set window params",
        "tpu-block-shape",
        "a block does not fit the tiling that its array has in memory",
        ("make the block's last two dimensions multiples of (8, 128); (16, 128) for 16 bits, (32, 128) for 8",),
    ),
    Reason(
        r"last two dimensions of your block shape are divisible|rank 1 block shapes|only blocks of rank >= 1",
        "tpu-block-shape",
        "a block breaks the TPU's tiling rule",
        ("make the block's last two dimensions multiples of (8, 128), or equal to the array's",),
    ),
    Reason(
        r"ScopedVmemOom|[Rr]an out of memory in memory space vmem|would exceed memory.*vmem",
        "vmem-budget",
        "the kernel does not fit VMEM",
        (
            "use smaller blocks, or keep fewer intermediate arrays of a whole block alive",
            "raise the limit: compiler_params=pc.compiler_params(vmem_limit_bytes=64 * 2**20)",
        ),
    ),
    Reason(
        r"64-bit types are not supported|X\{64\|128\}|legalize.*\bi64\b|Only index_dtype=int32|index_dtype \(int64\)",
        "tpu-dtype",
        "a 64-bit value reaches the TPU compiler",
        ("use int32 or float32 inside the kernel",),
    ),
    Reason(
        r"(?<!b)f16|(?<!b)float16",
        "tpu-dtype",
        "the TPU compiler refuses float16",
        ("use bfloat16, or convert to float32 outside the kernel",),
    ),
    Reason(
        r"bf16|bfloat16",
        "tpu-dtype",
        "the TPU compiler has no form of an operation on packed bfloat16",
        ("convert to float32 for it, and back to bfloat16 afterwards: x.astype(jnp.float32)",),
    ),
    Reason(
        r"Loads are only allowed on VMEM and SMEM",
        "tpu-memory-space",
        "a Ref in ANY or HBM is read directly",
        ("copy it to VMEM first: pltpu.sync_copy(x_hbm, x_vmem), or give the operand a BlockSpec",),
    ),
    Reason(
        r"Cannot store scalars to VMEM|scalar.*VMEM",
        "tpu-memory-space",
        "a scalar is stored to VMEM",
        ("give that output memory_space=pc.SMEM, or store a (1, 1) tile",),
    ),
)

_LOCATION = re.compile(r'"([^"]*)"\("([^"]+)":(\d+):(\d+)(?: to (?:(\d+))?:(\d+))?')
_PRIMITIVE = re.compile(r"[Uu]nimplemented primitive in Pallas TPU lowering(?: for \w+)?: ([\w-]+)")


def where_in(message: str) -> Where | None:
    """The user's place named by an MLIR location in a message."""
    for function, file, line, col, end_line, end_col in _LOCATION.findall(message):
        if compat.is_library_frame(file):
            continue
        end = int(end_col) + 1 if end_col and (not end_line or end_line == line) else 0
        return Where(file, int(line), int(col) + 1, end, function)
    return None


def where_raised(exc: BaseException) -> Where | None:
    """The innermost user frame of an exception or of its causes."""
    seen: BaseException | None = exc
    while seen is not None:
        for frame in reversed(traceback.extract_tb(seen.__traceback__)):
            generated = frame.filename == "<string>" and frame.name == "__init__"  # of a dataclass of jax
            if not generated and not compat.is_library_frame(frame.filename) and not _ours(frame.filename):
                col = (frame.colno or 0) + 1 if frame.colno is not None else 0
                end = (frame.end_colno or 0) + 1 if col and frame.end_lineno == frame.lineno else 0
                return Where(frame.filename, frame.lineno or 0, col, end, frame.name)
        seen = seen.__cause__
    return None


def _ours(filename: str) -> bool:
    from bridge.diagnostics.where import is_ours

    return is_ours(filename)


def clean(message: str, lines: int = 3) -> str:
    """The informative first lines of a compiler message."""
    kept: list[str] = []
    for line in message.splitlines():
        line = line.strip()
        if not line or line.startswith(("Please report", "Please file", "See https", "at location", "For simplicity")):
            continue
        if line.startswith("The MLIR operation involved"):
            break
        line = re.sub(r"\s*Please file an issue at \S+", "", line)
        line = re.sub(r"^(?:INTERNAL|INVALID_ARGUMENT|UNIMPLEMENTED|RESOURCE_EXHAUSTED): ", "", line)
        line = re.sub(
            r"^Mosaic failed to compile TPU kernel(?: with MLIR module name '[^']*' HLO name '[^']*')?: ", "", line
        )
        kept.append(line[:400])
        if len(kept) == lines:
            break
    return "\n".join(kept)


def unsupported_primitive(name: str, where: Where | None) -> Diagnostic:
    """``tpu-unsupported-op`` for a jax primitive that Mosaic has no lowering for."""
    do = [SUBSTITUTES[name]] if name in SUBSTITUTES else []
    return error(
        "tpu-unsupported-op",
        f"`{name}` is not available inside a TPU kernel",
        where=where,
        why=f"Pallas has no TPU lowering for the operation `{name}`.",
        do=[*do, "or do this step outside the kernel, where XLA runs it"],
    )


def explain_failure(
    message: str, chip: TpuChip | None, where: Where | None, jaxpr: Any = None, stage: str = "compile"
) -> Diagnostic:
    """The diagnostic of a compiler message.

    Args:
        message: the message as it came.
        chip: what was compiled for.
        where: the user's place when the message names none.
        jaxpr: the traced program, to find the line of an operation that is only named.
        stage: ``"lower"`` or ``"compile"``, for the text.
    """
    place = where_in(message) or where
    on = f" on a TPU {chip.name}" if chip else ""
    if match := _PRIMITIVE.search(message):
        found = compat.find_primitive(jaxpr, match.group(1)) if jaxpr is not None else None
        return unsupported_primitive(match.group(1), found or place)
    for reason in _REASONS:
        if re.search(reason.pattern, message):
            return error(reason.slug, reason.what + on, where=place, why=clean(message), do=reason.do)
    return error(
        "tpu-compile-failed",
        f"the TPU compiler refuses this program{on} (stage: {stage})",
        where=place,
        why=clean(message) or "it gave no reason.",
        do="rewrite the marked operation, or do that step outside the kernel, where XLA runs it",
    )
