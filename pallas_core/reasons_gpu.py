"""The GPU compiler's message in words a user can act on.

Input: an exception of Mosaic GPU's lowering, or the worker's message. Output: a diagnostic with a stable slug, the
user's line and a remedy. Law: an unknown message still yields ``gpu-compile-failed``, with its first lines.
"""

from __future__ import annotations

import re
from typing import Any

from bridge.diagnostics import Diagnostic, Where, error
from pallas_core import compat
from pallas_core.reasons import Reason, clean, where_in, where_raised
from pallas_core.targets.mosaic_gpu import SUBSTITUTES

_REASONS = (
    Reason(
        r"exceeds available shared memory|Ran out of shared memory",
        "smem-budget",
        "the kernel does not fit shared memory",
        ("use smaller tiles, or fewer steps in flight",),
    ),
    Reason(
        r"Pointwise operations on 8-bit types",
        "gpu-dtype",
        "arithmetic on 8-bit values",
        ("convert to float32, bfloat16 or int32 first",),
    ),
    Reason(
        r"unsupported TMA dtype|Unsupported integer bitwidth|complex<|converting from f8|Unsupported type",
        "gpu-dtype",
        "a dtype that Mosaic GPU does not copy or convert",
        ("hold the array in a 32- or 16-bit dtype, or convert outside the kernel",),
    ),
    Reason(
        r"Only f16 WGMMA supports transposes|WGMMA.*(dtype|type)|tcgen05.*(dtype|type)|MMA.*dtype",
        "gpu-dot-operands",
        "the matrix unit does not multiply these operands",
        ("hold both operands as bfloat16 or float16, with a float32 accumulator",),
    ),
    Reason(
        r"layout|Tiled strides|transfer|[Rr]elayout",
        "gpu-compile-failed",
        "no register layout fits every use of a value",
        ("keep reductions, broadcasts and transposes of one tile in separate kernels",),
    ),
)
_PRIMITIVE = re.compile(r"Unimplemented primitive in Pallas Mosaic GPU lowering: ([\w-]+)")


def explain_gpu_failure(
    problem: BaseException | str, target: str, where: Where | None, jaxpr: Any = None, stage: str = "compile"
) -> Diagnostic:
    """The diagnostic of a GPU compiler's message.

    Args:
        problem: the exception of the lowering, or the worker's message.
        target: what was compiled for.
        where: the user's place when nothing better is known.
        jaxpr: the traced program, to find the line of an operation that is only named.
        stage: ``"lower"`` or ``"compile"``, for the text.
    """
    message = str(problem)
    place = where_in(message) or (where_raised(problem) if isinstance(problem, BaseException) else None) or where
    if match := _PRIMITIVE.search(message):
        name = match.group(1)
        found = compat.find_primitive(jaxpr, name) if jaxpr is not None else None
        return unsupported(name, target, found or place)
    for reason in _REASONS:
        if re.search(reason.pattern, message):
            return error(reason.slug, f"{reason.what} on {target}", where=place, why=clean(message), do=reason.do)
    kind = f"{type(problem).__name__}: " if isinstance(problem, BaseException) else ""
    return error(
        "gpu-compile-failed",
        f"the GPU compiler refuses this program on {target} (stage: {stage})",
        where=place,
        why=kind + (clean(message) or "it gave no reason."),
        do="rewrite the marked operation, or do that step outside the kernel, where XLA runs it",
    )


def unsupported(name: str, target: str, where: Where | None) -> Diagnostic:
    """``gpu-unsupported-op`` for a jax primitive without a Mosaic GPU lowering."""
    return error(
        "gpu-unsupported-op",
        f"`{name}` is not available inside a kernel for {target}",
        where=where,
        why=f"Mosaic GPU has no lowering for the operation `{name}`.",
        do=[*([SUBSTITUTES[name]] if name in SUBSTITUTES else []), "or do this step outside the kernel"],
    )
