"""Choices by static schedule: whether a kernel is worth having, and how large its blocks should be.

Input: a group as a kernel and as plain array code. Output: seconds of each on the chip, from the compiler's
schedule. Law: a time is asked for once and kept on disk, under all that decides it; what the compiler refuses has none.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Callable, Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import jax

from bridge import diskcache
from bridge.devices import Target
from bridge.diagnostics import Diagnostic
from inductor_backend.emit import namespace
from inductor_backend.kernels.write import Written, dtype_name, narrowed
from pallas_core import compat, offline, schedule

#: Shares of the bytes that a block aims at, of which max-autotune tries each.
FACTORS = (1.0, 0.25, 0.5, 2.0, 4.0)
_times: dict[str, float | None] = {}


class Alone:
    """A function by itself, as it is traced for a TPU.

    Attributes:
        name: for messages.
        on_jax: the function on jax values.
        specs: of its operands.
    """

    def __init__(self, name: str, call: Callable[..., Any], specs: Sequence[jax.ShapeDtypeStruct], precise: str):
        self.name, self.call, self.specs, self.precise = name, call, list(specs), precise

    def on_jax(self, *arrays: Any) -> Any:
        """The call as it is traced for a TPU."""
        with compat.narrowing(), jax.default_matmul_precision(self.precise):
            return self.call(*arrays)

    __call__ = on_jax


@functools.cache
def _versions() -> str:
    found = []
    for name in ("jax", "jaxlib", "libtpu"):
        try:
            found.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            found.append(f"no {name}")
    return ", ".join(found)


def seconds(
    text: str, operands: Sequence[tuple[tuple[int, ...], str]], target: Target, names: dict[str, Any]
) -> float | None:
    """The static time of the function `alone` of some source, or None: the compiler refuses it.

    Raises:
        Diagnostic: the compiler is not installed.
    """
    from inductor_backend.kernels.tile import precision_name
    from inductor_backend.runtime import our_code

    key = "\n".join([str(target), _versions(), our_code(), precision_name(), repr(list(operands)), text])
    if key in _times:
        return _times[key]
    kept = diskcache.get("static-time", key)
    if kept is None:
        scope = namespace() | names
        exec(compile(text, "<torch-pallas alone>", "exec"), scope)
        specs = [jax.ShapeDtypeStruct(shape, dtype) for shape, dtype in operands]
        alone = Alone("alone", scope["alone"], specs, precision_name())
        try:
            report: Any = schedule.report(offline.lower_for(alone, specs, target))
            time: float | None = report.time_s
        except Diagnostic as refusal:
            if refusal.slug == "missing-dependency":
                raise
            time = None
        diskcache.put("static-time", key, json.dumps(time).encode())
    else:
        time = json.loads(kept)
    _times[key] = time
    return time


def as_kernel(written: Written) -> str:
    """The source of `alone` that calls a kernel."""
    return _alone(written, written.statements, re.sub(rf"\b{written.name}", "kernel", written.text) + "\n\n\n").replace(
        f"{written.name}_call", "kernel_call"
    )


def as_plain(written: Written) -> str:
    """The source of `alone` that does the same in plain array code."""
    return _alone(written, [f"{line.name} = {line.text}" for line in written.group], "")


def _alone(written: Written, statements: list[str], head: str) -> str:
    inputs = [name for name, _, _ in outside_of(written)]
    body = "\n".join(f"    {s}" for s in statements)
    return narrowed(f"{head}def alone({', '.join(inputs)}):\n{body}\n    return [{', '.join(written.leaving)}]\n")


def outside_of(written: Written) -> list[tuple[str, tuple[int, ...], str]]:
    """(name, shape, dtype) of what a group reads, as the segment has it."""
    inside = {line.name for line in written.group}
    context = written.layout.shapes.context
    names = dict.fromkeys(r for line in written.group for r in sorted(line.reads) if r not in inside)
    return [(n, tuple(context.shapes[n]), dtype_name(context.dtypes[n])) for n in names]


def verdict(written: Written, target: Target, names: dict[str, Any]) -> tuple[float | None, float | None]:
    """Seconds as a kernel and as plain array code."""
    operands = [(shape, dtype) for _, shape, dtype in outside_of(written)]
    return (
        seconds(as_kernel(written), operands, target, names),
        seconds(as_plain(written), operands, target, names),
    )


def fastest(variants: list[Written], target: Target, names: dict[str, Any]) -> Written:
    """Of the same kernel with different blocks the one with the shortest schedule."""
    unique = list({v.text: v for v in variants}.values())
    if len(unique) == 1:
        return unique[0]
    timed = []
    for variant in unique:
        operands = [(shape, dtype) for _, shape, dtype in outside_of(variant)]
        time = seconds(as_kernel(variant), operands, target, names)
        if time is not None:
            timed.append((time, variant))
    return min(timed, key=lambda t: t[0])[1] if timed else unique[0]
