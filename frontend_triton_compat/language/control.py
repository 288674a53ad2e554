"""Loops, hints, assertions and prints: range, static_range, multiple_of, static_assert, device_print, ...

Input: handles and constants. Output: loop descriptions for the parser, or nothing. Law: hints change nothing; what is
asserted statically is checked while the kernel is translated.
"""

from __future__ import annotations

import builtins
import sys
from dataclasses import dataclass, field
from typing import Any

from frontend_triton_compat.language.constexpr import unwrap
from frontend_triton_compat.language.context import current, fail
from frontend_triton_compat.language.creation import static_int
from frontend_triton_compat.language.operators import logical_not, logical_or, truth
from frontend_triton_compat.language.semantic import emit, to_tensor
from frontend_triton_compat.language.tensor import tensor


class range:
    """A loop over run-time integers, with hints for the compiler that are kept but change nothing.

    Attributes:
        start: first value.
        end: bound, exclusive.
        step: increment.
        hints: ``num_stages``, ``loop_unroll_factor`` and the like.
    """

    def __init__(self, arg1: Any, arg2: Any = None, step: Any = None, num_stages: Any = None, **hints: Any):
        self.start, self.end = (0, arg1) if arg2 is None else (arg1, arg2)
        self.step = 1 if step is None else step
        self.hints = {k: unwrap(v) for k, v in {"num_stages": num_stages, **hints}.items() if v is not None}

    def __iter__(self) -> Any:
        raise fail(
            "not-translated",
            "tl.range outside a `for` statement",
            why="it describes a loop of the kernel",
            do="write `for i in tl.range(n):`, or tl.static_range for a loop that Python runs",
        )


class static_range:
    """A loop that is unrolled while the kernel is translated; its bounds are constexprs."""

    def __init__(self, arg1: Any, arg2: Any = None, step: Any = None):
        start, end = (0, arg1) if arg2 is None else (arg1, arg2)
        names = ("the start", "the end", "the step")
        parts = [
            static_int(v, f"{n} of static_range") for v, n in zip((start, end, 1 if step is None else step), names)
        ]
        self.values = builtins.range(*parts)

    def __iter__(self) -> Any:
        return iter(self.values)


@dataclass
class condition:
    """The condition of a `while` loop with a compiler hint."""

    condition: Any
    disable_licm: Any = field(default=False)


def _same(input: Any, *ignored: Any) -> Any:
    current("a hint of triton.language")
    return input


def multiple_of(input: Any, values: Any) -> Any:
    """Hint: the values are multiples of `values`. Changes nothing."""
    return _same(input, values)


def max_contiguous(input: Any, values: Any) -> Any:
    """Hint: runs of `values` elements are consecutive. Changes nothing."""
    return _same(input, values)


def max_constancy(input: Any, values: Any) -> Any:
    """Hint: runs of `values` elements are equal. Changes nothing."""
    return _same(input, values)


def expect_zero(x: Any, mask: Any) -> Any:
    """Hint: `x` is zero where `mask` holds. Changes nothing."""
    return _same(x, mask)


def assume(cond: Any) -> None:
    """Hint: `cond` holds. Changes nothing."""


def debug_barrier() -> None:
    """A barrier between the threads of a program; a program is one thread here, so nothing happens."""


def static_assert(cond: Any, msg: Any = "") -> None:
    """Check a condition while the kernel is translated.

    Raises:
        Diagnostic: it is false (``static-assert``), or it is known at run time only (``needs-constexpr``).
    """
    cond = unwrap(cond)
    if isinstance(cond, tensor) and cond.const is None:
        raise fail(
            "needs-constexpr",
            "static_assert of a run-time value",
            why="static_assert is checked when the kernel is translated",
            do="use tl.device_assert(cond, message)",
        )
    if not cond:
        raise fail(
            "static-assert",
            str(unwrap(msg)) or "a static_assert of the kernel is false",
            why="the kernel's author requires this of its constexpr arguments",
            do="launch the kernel with arguments that satisfy it",
        )


def static_print(*values: Any, sep: str = " ", end: str = "\n", file: Any = None, flush: bool = False) -> None:
    """Print while the kernel is translated."""
    print(*(unwrap(v) for v in values), sep=sep, end=end, file=file or sys.stdout, flush=flush)


def device_print(prefix: Any, *args: Any, hex: Any = False) -> None:
    """Print when the kernel runs."""
    current("tl.device_print")
    emit("print_", [to_tensor(a) for a in args], [], prefix=str(unwrap(prefix)), hex=bool(unwrap(hex)))


def device_assert(cond: Any, msg: Any = "", mask: Any = None) -> None:
    """Check a condition when the kernel runs with debug on (``debug=True``, ``TRITON_DEBUG=1``), else nothing.

    Args:
        cond: what has to hold, for every element.
        msg: what the diagnostic says.
        mask: the elements that are looked at; None for all.
    """
    ctx = current("tl.device_assert")
    value = truth(cond)
    if mask is not None and unwrap(mask) is not None:
        value = logical_or(value, logical_not(mask))
    if value.const is True or not ctx.assertions:
        return
    emit("assert_", [value], [], message=str(unwrap(msg)))
