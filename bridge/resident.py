"""Tensors and modules whose values live on a device of jax.

Input: a torch tensor or module, and a target. Output: a jax array on that device, or a `Resident` with one array a
parameter and buffer. Law: on the CPU nothing is copied that can be shared, so the arrays follow the optimiser; on any
other device they are copies, brought up to date by `Resident.refresh`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, overload

import jax
import torch

from bridge.devices import Target, jax_device
from bridge.diagnostics import Where, error
from bridge.dlpack import to_jax


class Resident(Mapping[str, Any]):
    """The parameters and buffers of a module as jax arrays on one device, by their names in ``state_dict``.

    Attributes:
        module: the torch module.
        target: where the arrays are.
    """

    def __init__(self, module: torch.nn.Module, target: Target):
        self.module, self.target = module, target
        self._device = jax_device(target)
        self._arrays: dict[str, jax.Array] = {}
        self.refresh()

    def refresh(self) -> None:
        """Take the module's values again: needed after training, on a device that is not the CPU."""
        self._arrays = {name: _place(t.detach(), self._device) for name, t in self.module.state_dict().items()}

    def __getitem__(self, name: str) -> Any:
        return self._arrays[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._arrays)

    def __len__(self) -> int:
        return len(self._arrays)

    def __repr__(self) -> str:
        return f"Resident({type(self.module).__name__} on {self._device}, {len(self)} arrays)"


@overload
def to_device(value: torch.Tensor, target: str | Target) -> Any: ...
@overload
def to_device(value: torch.nn.Module, target: str | Target) -> Resident: ...
def to_device(value: torch.Tensor | torch.nn.Module, target: str | Target) -> Any:
    """Put a tensor's or a module's values on a device of jax.

    Args:
        value: a tensor that does not require grad, or a module.
        target: ``"cpu"``, ``"tpu"``, ``"gpu"``, or one with its chip.

    Returns:
        A jax array, or a `Resident` for a module.

    Raises:
        Diagnostic: ``unknown-target``, ``no-such-device``, or whatever stops `to_jax`.
    """
    target = Target.parse(target)
    if isinstance(value, torch.nn.Module):
        return Resident(value, target)
    if not isinstance(value, torch.Tensor):
        raise error(
            "bad-argument",
            f"to_device takes a tensor or a module, not {type(value).__name__}",
            where=Where.caller(),
            why="it copies the memory of a tensor, or that of a module's parameters and buffers.",
            do="torch.as_tensor(value) first, if it holds numbers",
        )
    return _place(value, jax_device(target))


def _place(t: torch.Tensor, device: Any) -> jax.Array:
    a = to_jax(t)
    return a if device.platform == "cpu" else jax.device_put(a, device)
