"""The private part of Dynamo's backend registry: which names exist. Apart from `compat.py`, which imports Inductor.

Input: a name. Output: whether Dynamo knows it. Law: this and `compat.py` are the only files that touch private torch.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import entry_points
from typing import Any


def known(name: str) -> bool:
    """Whether Dynamo has this name, or will find it among the installed entry points.

    Registering a name that an entry point carries as well would make Dynamo's own look-up fail on a duplicate.
    """
    from torch._dynamo.backends import registry

    installed = entry_points(group="torch_dynamo_backends")
    return name in registry._COMPILER_FNS or any(e.name == name for e in installed)


def remember(name: str, backend: Callable[..., Any]) -> None:
    """Register a backend."""
    from torch._dynamo.backends import registry

    registry.register_backend(compiler_fn=backend, name=name)
