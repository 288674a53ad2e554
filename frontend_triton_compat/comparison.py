"""Forms of one launch, element by element: the first that differs, and the line that stores it.

Input: per form (the target's, the CPU's, a reference's) the stored tensors as it leaves them. Output: the largest
differences, or ``verify-mismatch``. Law: tensors are compared whole, and so is what lies beside them in their storage;
integers exactly, floats within the tolerance of their dtype.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch

from bridge.diagnostics import Diagnostic, Where, error
from frontend_triton_compat.compiled import Compiled
from pallas_core.verify import TOLERANCES

if TYPE_CHECKING:
    from frontend_triton_compat.launch import JITFunction

#: Relative and absolute tolerance of floats that `pallas_core` does not list: one unit of their last place.
_NARROW = {"float8_e4m3fn": (0.125, 2.0**-9), "float8_e5m2": (0.25, 2.0**-16)}


@dataclass(frozen=True)
class Comparison:
    """The forms of one launch, element by element."""

    kernel: JITFunction
    compiled: Compiled
    forms: Mapping[str, Mapping[str, torch.Tensor]]
    rtol: float | None
    atol: float | None

    def changed(self, name: str, start: torch.Tensor) -> int:
        """How many elements of an argument a launch gave another value."""
        a, b = _numbers(next(iter(self.forms.values()))[name]), _numbers(start)
        return int((~_equal(a, b)).sum())

    def all_forms(self, name: str) -> tuple[float, float | None]:
        """Compare every form with the last that has the argument; the largest differences to the CPU and reference.

        Raises:
            Diagnostic: ``verify-mismatch``.
        """
        first = next(iter(self.forms))
        known = self.forms.get("the reference", {})
        right = "the reference" if name in known else "the CPU form"
        for form in self.forms:
            if form != right and name in self.forms[form]:
                self._pair(name, form, right)
        self._outside(name, first)
        to_cpu = self._pair(name, first, "the CPU form")
        return to_cpu, self._pair(name, first, right) if name in known else None

    def _pair(self, name: str, form: str, right: str) -> float:
        mine, theirs = self.forms[form][name], self.forms[right][name]
        if mine.shape != theirs.shape:
            raise error(
                "verify-mismatch",
                f"{name!r} has the shape {tuple(mine.shape)}, {right} {tuple(theirs.shape)}",
                where=self._line(name, None),
                why="shapes differ, so there is nothing to compare",
                do=f"let the reference return all of {name!r} as the launch leaves it",
            )
        return self._close(name, form, right, mine, theirs, tuple(mine.shape))

    def _outside(self, name: str, form: str) -> None:
        """What lies in a tensor's storage beside the tensor is the same in both of our forms."""
        pair = [self.forms[f][name] for f in (form, "the CPU form")]
        self._close(name, form, "the CPU form", _all_of(pair[0]), _all_of(pair[1]), None)

    def _close(
        self,
        name: str,
        form: str,
        right: str,
        mine: torch.Tensor,
        theirs: torch.Tensor,
        shape: tuple[int, ...] | None,
    ) -> float:
        kind = str(mine.dtype).removeprefix("torch.")
        default = TOLERANCES.get(kind) or _NARROW.get(kind, (0.0, 0.0))
        a, b = _numbers(mine), _numbers(theirs)
        relative = default[0] if self.rtol is None else self.rtol
        absolute = default[1] * max(1.0, _size(b)) if self.atol is None else self.atol
        with np.errstate(invalid="ignore", over="ignore"):
            difference = np.abs(a.astype(np.float64) - b.astype(np.float64))
            near = difference <= absolute + relative * np.abs(b.astype(np.float64))
        exact = relative == absolute == 0 or (a.dtype.kind != "f" and b.dtype.kind != "f")
        same = _equal(a, b) if exact and self.rtol is None and self.atol is None else near | _equal(a, b)
        if not same.all():
            raise self._mismatch(name, form, right, a, b, same, difference, (relative, absolute), shape)
        finite = difference[np.isfinite(difference)]
        return float(finite.max()) if finite.size else 0.0

    def _mismatch(
        self,
        name: str,
        form: str,
        right: str,
        a: np.ndarray,
        b: np.ndarray,
        same: np.ndarray,
        difference: np.ndarray,
        tolerances: tuple[float, float],
        shape: tuple[int, ...] | None,
    ) -> Diagnostic:
        first = tuple(int(i) for i in np.argwhere(~same)[0])
        t = self.forms[form][name]
        place = f"{list(first)}" if shape is not None else f"element {first[0]} of its storage, outside the tensor"
        strides, start = t.stride(), int(t.storage_offset())
        offset = sum(i * int(s) for i, s in zip(first, strides)) if shape is not None else first[0] - start
        others = []
        for other, arrays in self.forms.items():
            if other not in (form, right) and name in arrays and shape is not None and arrays[name].shape == t.shape:
                value = _numbers(arrays[name])[first]
                others.append(f"{other} has {value:g} there")
        worst = difference[~same]
        largest = f", the largest difference is {np.nanmax(worst):.3g}" if np.isfinite(worst).any() else ""
        why = [
            f"{int((~same).sum())} of {a.size} elements differ (rtol {tolerances[0]:g}, "
            f"atol {tolerances[1]:g}){largest}"
        ]
        if a[first] != a[first] and b[first] == b[first]:
            why.append("NaN where there should be none: memory that nothing wrote?")
        why += others
        ours = right == "the CPU form"
        return error(
            "verify-mismatch",
            f"{name!r} differs at {place}: {a[first]:g} in {form}, {b[first]:g} in {right}",
            where=self._line(name, offset),
            why="; ".join(why),
            do=(
                "two forms of one kernel differ: report it with the kernel's source, or run the kernel on the CPU"
                if ours
                else f"look at what line {getattr(self._line(name, offset), 'line', '?')} stores, and at the reference",
                "if sums of another order explain it, say how close is close enough: verify(..., rtol=1e-4, atol=1e-4)",
            ),
        )

    def _line(self, name: str, offset: int | None) -> Where | None:
        """The line that stores an element, counted from the argument's pointer."""
        plan = self.compiled.plan
        stores = [a for a in plan.accesses.values() if a.param == name and a.op.kind != "load"]
        for access in stores if offset is not None else ():
            view, window = plan.views[name], plan.windows[access.op]
            place = offset - view.origin  # type: ignore[operator]
            if window is None or place < 0:
                continue
            reached = True
            for piece, stride in zip(window.slices, view.strides):
                at, place = divmod(place, stride)
                low, high = piece.bounds()
                reached &= bool(piece.opaques) or low <= at <= high
            if reached:
                return access.op.where
        return stores[0].op.where if stores else self.kernel.where


def _all_of(t: torch.Tensor) -> torch.Tensor:
    """All of a tensor's storage, as far as it is whole elements."""
    storage = t.untyped_storage()
    return torch.empty(0, dtype=t.dtype).set_(storage, 0, (storage.nbytes() // t.element_size(),), (1,))


def _numbers(t: torch.Tensor) -> np.ndarray:
    """A tensor's elements: floats as float64, the rest as they are."""
    t = t.detach()
    return (t.double() if t.is_floating_point() else t).cpu().contiguous().numpy()


def _size(a: np.ndarray) -> float:
    """The root mean square of the finite elements: sums in another order differ by parts of it, wherever they end."""
    finite = a[np.isfinite(a)] if a.dtype.kind == "f" else a[:0]
    return float(np.sqrt(np.mean(np.square(finite)))) if finite.size else 0.0


def _equal(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    if a.dtype.kind == b.dtype.kind == "f":
        return (a == b) | (np.isnan(a) & np.isnan(b))
    return a == b
