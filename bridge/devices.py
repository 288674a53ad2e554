"""Targets and devices: what a kernel is for, and which torch device is which jax device.

Input: a target string (``"cpu"``, ``"tpu:v5e"``, ``"gpu:sm90a"``), or a device of either library. Output: a `Target`,
or the device of the other library. Law: a target names what to compile for and need not exist on this machine; a
device does exist. An unknown name is a diagnostic that lists the known ones.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass

from bridge.diagnostics import error

#: Kind of target -> the chips that can be compiled for, present or not.
CHIPS: dict[str, tuple[str, ...]] = {
    "cpu": (),
    "tpu": ("v4", "v5e", "v5p", "v6e", "7x"),
    "gpu": ("sm90a", "sm100a"),
}
_ALIASES = {"cuda": "gpu", "mosaic_gpu": "gpu"}
_CHIP_ALIASES = {"v7x": "7x", "tpu7x": "7x", "sm_90a": "sm90a", "sm_100a": "sm100a"}
_ROCM = ("rocm", "amd", "hip")


def known_targets() -> tuple[str, ...]:
    """Every target string: ``cpu``, ``tpu``, ``tpu:v4`` and so on."""
    return tuple(name for kind, chips in CHIPS.items() for name in (kind, *(f"{kind}:{chip}" for chip in chips)))


@dataclass(frozen=True)
class Target:
    """What a kernel is compiled for.

    Attributes:
        kind: ``"cpu"``, ``"tpu"`` or ``"gpu"``.
        chip: a chip of `CHIPS`, or None for the CPU and for "the one that is here".

    Raises:
        Diagnostic: ``unknown-target``.
    """

    kind: str
    chip: str | None = None

    def __post_init__(self) -> None:
        if self.kind not in CHIPS or (self.chip is not None and self.chip not in CHIPS[self.kind]):
            raise _unknown(str(self))

    def __str__(self) -> str:
        return self.kind if self.chip is None else f"{self.kind}:{self.chip}"

    @classmethod
    def parse(cls, target: str | Target) -> Target:
        """The target of a string such as ``"tpu:v5e"``; a `Target` is returned as it is.

        Case does not matter; ``"cuda"`` means ``"gpu"``, ``"sm_90a"`` means ``"sm90a"``.

        Raises:
            Diagnostic: ``unknown-target``, with the known ones and the nearest.
        """
        if isinstance(target, Target):
            return target
        if not isinstance(target, str):
            raise error(
                "bad-argument",
                f"a target is a string such as 'tpu:v5e', not {type(target).__name__}",
                do=f"name one of: {', '.join(known_targets())}",
            )
        kind, colon, chip = target.strip().lower().partition(":")
        kind, chip = _ALIASES.get(kind, kind), _CHIP_ALIASES.get(chip, chip)
        if kind not in CHIPS or (colon and chip not in CHIPS[kind]):
            raise _unknown(target)
        return cls(kind, chip or None)


def _unknown(target: str):
    known = known_targets()
    if target.strip().lower().partition(":")[0] in _ROCM:
        return error(
            "unknown-target",
            f"'{target}': Pallas has no backend for AMD GPUs",
            why="jax runs on ROCm, but Pallas lowers to Mosaic (TPU) and Mosaic GPU (NVIDIA) only.",
            do="run on the CPU with target='cpu', or compile for one of: " + ", ".join(known[1:]),
        )
    near = difflib.get_close_matches(target.lower(), known, n=1)
    return error(
        "unknown-target",
        f"there is no target '{target}'",
        why="the targets are " + ", ".join(known) + ".",
        do=f"did you mean '{near[0]}'?" if near else "name one of them",
    )
