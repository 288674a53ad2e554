"""Run the TPU form of a kernel on the TPU interpreter and hold it against a reference.

Input: a function, real arguments, a TPU target, a reference. Output: `Verified`, or a diagnostic: a broken law (blocks,
coverage, order), a race, or the first differing element. Law: the form that is checked is the one that `compile_for`
compiles; uninitialised memory reads as NaN. It simulates every grid step (milliseconds each): use small sizes.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import io
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

import bridge
from bridge.devices import Target
from bridge.diagnostics import Diagnostic, Where, error
from pallas_core import compat, handover, laws, lowering, offline

#: Narrow floats are rounded after every operation, as the CPU form and a chip round them.
_OPTIONS = {"xla_allow_excess_precision": False}
#: What the interpreter says of a block that an index map places outside its array.
_OUTSIDE = re.compile(r'Out-of-bounds block index \(([^)]*)\) for (\w+) ("[^"]*") in iteration \(([^)]*)\)')
#: Relative and absolute tolerance by dtype, for results that differ in rounding only.
TOLERANCES = {"float32": (1e-5, 1e-5), "bfloat16": (1.6e-2, 1e-2), "float16": (2e-3, 1e-3), "float64": (1e-12, 1e-12)}


@dataclass(frozen=True)
class Verified:
    """A kernel that agrees with its reference.

    Attributes:
        name: of the function.
        target: what it was checked for.
        max_error: largest absolute difference over all outputs.
        outputs: how many arrays were compared.
        races: False: none were found; None: this jax can't tell.
    """

    name: str
    target: str
    max_error: float
    outputs: int
    races: bool | None

    def __str__(self) -> str:
        return f"{self.name} on {self.target}: {self.outputs} outputs agree, largest difference {self.max_error:.3g}"


def verify(
    f: Callable[..., Any],
    args: Sequence[Any],
    target: str | Target,
    *,
    reference: Callable[..., Any],
    rtol: float | None = None,
    atol: float | None = None,
) -> Verified:
    """Check a kernel's TPU form on the CPU: laws, races, uninitialised reads, values.

    Args:
        f: a function of `pc.pallas_call`, or a jax function with Pallas kernels inside.
        args: torch tensors or jax arrays with data; small ones.
        target: ``"tpu:v5e"`` ...
        reference: called with the same arguments; its results are taken as right.
        rtol: relative tolerance; by the output's dtype when None.
        atol: absolute tolerance; by the output's dtype when None.

    Returns:
        A `Verified`.

    Raises:
        Diagnostic: ``verify-mismatch`` with the first differing element, ``kernel-race``, or a law that is broken.
    """
    where = Where.caller(2)
    tolerances = (rtol, atol)
    if not callable(reference) or any(
        t is not None and (isinstance(t, bool) or not isinstance(t, (int, float)) or t < 0) for t in tolerances
    ):
        raise error(
            "bad-argument",
            f"verify got reference={reference!r}, rtol={rtol!r}, atol={atol!r}"[:200],
            where=where,
            why="the reference is a function of the same arguments, and tolerances are numbers that are not negative.",
            do="pc.verify(f, args, 'tpu:v5e', reference=lambda x: x + 1)",
        )
    lowering.check_args(args)
    kind = handover.kind_of(args, where)
    found = interpret(f, [bridge.to_jax(a) for a in args] if kind == "torch" else list(args), target, where)
    expected = jax.tree.leaves(reference(*args), is_leaf=lambda x: hasattr(x, "shape"))
    got = jax.tree.leaves(found.results)
    if len(expected) != len(got):
        raise error(
            "verify-mismatch",
            f"`{found.name}` has {len(got)} outputs, the reference {len(expected)}",
            where=where,
            why="outputs are compared one by one.",
            do="let the reference return the same outputs",
        )
    largest = 0.0
    for i, (mine, right) in enumerate(zip(got, expected)):
        largest = max(largest, _compare(found.name, i, mine, right, rtol, atol, where))
    return Verified(found.name, found.target, largest, len(got), found.races)


@dataclass(frozen=True)
class Interpreted:
    """What a function gave on a target's interpreter.

    Attributes:
        name: of the function.
        target: whose form ran.
        results: as the function returns them, as jax arrays.
        races: False: none were found; None: this interpreter, or this jax, can't tell.
    """

    name: str
    target: str
    results: Any
    races: bool | None


def interpret(
    f: Callable[..., Any], arrays: Sequence[Any], target: str | Target, where: Where | None = None
) -> Interpreted:
    """Run a function's form for a target on the target's interpreter, its laws checked first.

    Args:
        f: as for `verify`.
        arrays: jax arrays with data.
        target: ``"tpu:v5e"`` ...
        where: what a race is blamed on where no kernel has a line.

    Raises:
        Diagnostic: a law that is broken, or ``kernel-race``.
    """
    if Target.parse(target).kind == "gpu":
        return _interpret_gpu(f, arrays, Target.parse(target), where)
    program = offline.trace_for(f, arrays, target)  # refuses a target that has no interpreter here
    laws.check_tpu(program, lowering.chip_of(program.target))
    results, races = _interpret(f, arrays, program)
    if races:
        raise error(
            "kernel-race",
            f"`{program.name}` has a race on {program.target}",
            where=next((c.where for c in program.calls), where),
            why="the interpreter saw two accesses to one place, at least one a write, with no order between them.",
            do="wait for a copy before its memory is used, and mark an axis whose programs share an output 'arbitrary'",
        )
    return Interpreted(program.name, str(program.target), results, races)


def _interpret(f: Callable[..., Any], arrays: Sequence[Any], program: lowering.Program) -> tuple[Any, bool | None]:
    chip = lowering.chip_of(program.target)
    fn = getattr(f, "on_jax", f)
    said = io.StringIO()
    try:
        with (
            lowering.force_target(program.target),
            compat.x64(False),
            compat.abstract_tpu(chip.device_kind),
            compat.interpreted_tpu(detect_races=True, uninitialized_memory="nan"),
            contextlib.redirect_stdout(said),  # the interpreter prints races; they are reported below
        ):
            results = jax.block_until_ready(
                jax.jit(compat.with_name(fn, program.name), compiler_options=_OPTIONS)(*arrays)
            )
            races = compat.races_found()
    except Diagnostic:
        raise
    except Exception as exc:  # the interpreter's own checks (bounds, semaphores) raise many types
        compat.reset_interpreter()
        outside = _OUTSIDE.search(str(exc))
        if outside is not None:
            raise error(
                "block-out-of-bounds",
                f"the index map of {outside[2]} {outside[3]} picks block ({outside[1]})",
                where=next((c.where for c in program.calls), None),
                why=f"at grid point ({outside[4]}) that block starts outside the array: the device would read or write "
                "foreign memory, and the CPU would silently take the nearest block inside.",
                do="check the prefetched values that the index map reads, or bound it with jnp.minimum",
            ) from exc
        raise lowering.trace_failure(exc, getattr(f, "kernel", f), program.target) from exc
    compat.reset_interpreter()
    return results, races


def _interpret_gpu(f: Callable[..., Any], arrays: Sequence[Any], target: Target, where: Where | None) -> Interpreted:
    """Run a function with kernels of `plgpu.kernel` on the GPU interpreter."""
    chip = lowering.gpu_chip_of(target)
    from pallas_core.gpu import compat as interpreter  # Mosaic GPU is imported when it is asked for

    name = getattr(f, "__name__", "kernel")
    takes = "interpret" in inspect.signature(f).parameters
    said = io.StringIO()
    try:
        with (
            lowering.force_target(target),
            compat.x64(False),
            compat.abstract_gpu(chip.board, chip.capability),
            interpreter.interpreted(detect_races=True, uninitialized_memory="nan") as params,
            contextlib.redirect_stdout(said),
        ):
            fn = functools.partial(f, interpret=params) if takes else f
            results = jax.block_until_ready(jax.jit(compat.with_name(fn, name), compiler_options=_OPTIONS)(*arrays))
            races = interpreter.races_found()
    except Diagnostic:
        raise
    except Exception as exc:  # the interpreter's own checks (bounds, barriers) raise many types
        interpreter.reset()
        if "TMEM" in str(exc) or "tcgen05" in str(exc) or "tmem" in str(exc):
            raise error(
                "not-interpreted",
                f"`{name}` uses the tensor memory of {target}",
                where=where,
                why="the GPU interpreter of this jax knows neither tensor memory nor the tcgen05 instructions.",
                do="verify the kernel for gpu:sm90a, which has the same tiles with wgmma; check() compiles it for both",
            ) from exc
        raise lowering.trace_failure(exc, f, target) from exc
    interpreter.reset()
    if races:
        raise error(
            "kernel-race",
            f"`{name}` has a race on {target}",
            where=where,
            why="the interpreter saw two accesses to one place, at least one a write, with no order between them.",
            do="wait on the barrier of a copy before its memory is used",
        )
    return Interpreted(name, str(target), results, races)


def _compare(
    name: str, index: int, mine: Any, right: Any, rtol: float | None, atol: float | None, where: Where | None
) -> float:
    dtype = str(mine.dtype)
    a, b = _as_numpy(mine), _as_numpy(right)
    default = TOLERANCES.get(dtype, (0.0, 0.0))
    relative = default[0] if rtol is None else rtol
    absolute = default[1] if atol is None else atol
    if a.shape != b.shape:
        raise error(
            "verify-mismatch",
            f"output {index} of `{name}` has the shape {a.shape}, the reference {b.shape}",
            where=where,
            why="shapes differ, so there is nothing to compare.",
            do="let out_shape and the reference agree",
        )
    with np.errstate(invalid="ignore"):
        difference = np.abs(a - b)
        same = (a == b) | (np.isnan(a) & np.isnan(b)) | (difference <= absolute + relative * np.abs(b))
    if not same.all():
        first = tuple(int(i) for i in np.argwhere(~same)[0])
        nan = " NaN where the reference has none: memory that nothing wrote?" if np.isnan(a[first]) else ""
        raise error(
            "verify-mismatch",
            f"output {index} of `{name}` differs from the reference at {first}",
            where=where,
            why=f"got {a[first]:g}, expected {b[first]:g}; {int((~same).sum())} of {a.size} elements differ "
            f"(rtol {relative:g}, atol {absolute:g}).{nan}",
            do=[
                "check the index maps and masks of the block that holds that element",
                "if sums of another order explain it (a long product in f32), say how close is close enough:\n"
                "    pc.verify(f, args, target, reference=fn, rtol=1e-4, atol=1e-4)",
            ],
        )
    finite = difference[np.isfinite(difference)]
    return float(finite.max()) if finite.size else 0.0


def _as_numpy(value: Any) -> np.ndarray:
    if not isinstance(value, jax.Array):
        with compat.x64(True):
            value = bridge.to_jax(value)
    return np.asarray(value).astype(np.float64)
