"""Targets and devices: what a kernel is for, and which torch device is which jax device.

Input: a target string (``"cpu"``, ``"tpu:v5e"``, ``"gpu:sm90a"``), or a device of either library. Output: a `Target`,
or the device of the other library. Law: a target names what to compile for and need not exist on this machine; a
device does exist. An unknown name is a diagnostic that lists the known ones.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from typing import Any

import jax
import torch

from bridge import compat
from bridge.diagnostics import Diagnostic, Where, error

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
                where=Where.caller(),
                why="a target has a kind and, after a colon, a chip.",
                do=f"name one of: {', '.join(known_targets())}",
            )
        kind, colon, chip = target.strip().lower().partition(":")
        kind, chip = _ALIASES.get(kind, kind), _CHIP_ALIASES.get(chip, chip)
        if kind not in CHIPS or (colon and chip not in CHIPS[kind]):
            raise _unknown(target)
        return cls(kind, chip or None)


def is_rocm(target: str) -> bool:
    """Whether a target string names an AMD GPU, for which there is no target."""
    return target.strip().lower().partition(":")[0] in _ROCM


def _unknown(target: str) -> Diagnostic:
    known = known_targets()
    if is_rocm(target):
        return error(
            "unknown-target",
            f"'{target}': Pallas has no ROCm backend",
            where=Where.caller(),
            why="jax runs on AMD GPUs, but Pallas lowers to Mosaic (TPU) and Mosaic GPU (NVIDIA) only.",
            do="run on the CPU with target='cpu', or compile for one of: " + ", ".join(known[1:]),
        )
    chip = _CHIP_ALIASES.get(target.strip().lower(), target.strip().lower())
    near = [name for name in known if name.endswith(f":{chip}")]  # a chip without its kind
    near = near or difflib.get_close_matches(target.lower(), known, n=1)
    return error(
        "unknown-target",
        f"there is no target '{target}'",
        where=Where.caller(),
        why="the targets are " + ", ".join(known) + ".",
        do=f"did you mean '{near[0]}'?" if near else "name one of them",
    )


def jax_device(target: str | Target | torch.device) -> Any:
    """The jax device of a target or a torch device: the device that computes here.

    Args:
        target: ``"cpu"``, ``"tpu"``, ``"gpu"``, one with a chip (the device must be that chip), or a torch device
            (``cuda:1`` is the second GPU).

    Raises:
        Diagnostic: ``unknown-target``, or ``no-such-device`` when this machine has none.
    """
    index = 0
    if isinstance(target, torch.device):
        index = target.index or 0
        target = target.type if target.type in CHIPS else _ALIASES.get(target.type, target.type)
    target = Target.parse(target)
    if target.kind == "cpu":
        return compat.cpu_device()
    compat.quiet_cpu_start()
    try:
        found = jax.local_devices(backend=target.kind)
    except RuntimeError as problem:
        raise _absent(target, str(problem)) from problem
    if target.chip is not None:
        found = [device for device in found if _is_chip(device, target.chip)]
    if index >= len(found):
        raise _absent(target, f"jax sees {len(found)} of them.")
    return found[index]


def torch_device(device: Any) -> torch.device:
    """The torch device that shares a jax device's memory.

    Raises:
        Diagnostic: ``no-such-device``: torch has no device for it (a TPU, or a GPU that torch was built without).
    """
    if device.platform == "cpu":
        return torch.device("cpu")
    if device.platform == "gpu" and torch.cuda.is_available():
        return torch.device("cuda", device.local_hardware_id or 0)
    raise error(
        "no-such-device",
        f"torch has no device for jax's {device}",
        where=Where.caller(),
        do="bring the data to the CPU: bridge.to_torch(a, copy=True)",
    )


def _is_chip(device: Any, chip: str) -> bool:
    kind = device.device_kind.lower()
    names = {"v5e": ("v5e", "v5 lite"), "v5p": ("v5p", "v5"), "v6e": ("v6e", "v6 lite"), "7x": ("7x",), "v4": ("v4",)}
    if chip in names:
        return kind.endswith(names[chip])
    capability = str(getattr(device, "compute_capability", "")).replace(".", "")
    return chip == f"sm{capability}a"


def _absent(target: Target, reason: str) -> Diagnostic:
    compile_for = str(target) if target.chip else f"{target}:{CHIPS[target.kind][0]}"
    return error(
        "no-such-device",
        f"this machine has no {target} device",
        where=Where.caller(),
        why=reason,
        do=(
            "stay on the CPU: bridge.to_device(x, 'cpu')",
            f"compile a kernel for it all the same: pallas_core.compile_for(f, args, '{compile_for}')",
        ),
    )
