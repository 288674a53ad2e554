"""Makes the name "pallas" known to torch.compile, and the package's public functions cheap to import.

An installed distribution registers the backend through the entry-point group ``torch_dynamo_backends``; importing the
package registers it as well, for a source tree that is only on the path. Law: registering twice is not an error; the
compiler itself (Inductor's front half, the ops table) is imported on first use.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from inductor_backend.compat import is_known_backend, register_backend


def pallas(gm: torch.fx.GraphModule, example_inputs: Sequence[Any], **kwargs: Any) -> Any:
    """The backend of ``torch.compile(model, backend="pallas", options={...})``.

    Args:
        gm: Dynamo's graph.
        example_inputs: its inputs, on the CPU.
        **kwargs: ``mode`` (None or "default") and ``options`` (see `inductor_backend.options.Options`).

    Returns:
        A callable with the graph's own signature. A bad option or device raises a diagnostic when it is called.
    """
    from inductor_backend.compile import backend

    return backend(gm, example_inputs, **kwargs)


def compile_count() -> int:
    """How many graphs this process has compiled. A graph with dynamic sizes counts once."""
    from inductor_backend.compile import compile_count as count

    return count()


def executable_count() -> int:
    """How many functions this process has built: one for every graph and set of sizes, or bucket of sizes."""
    from inductor_backend.compile import executable_count as count

    return count()


def explain(model: Any, *args: Any, **kwargs: Any) -> Any:
    """What compiling `model` for these arguments gives: regions, kernels, fallbacks, graph breaks, before running.

    Returns:
        A `inductor_backend.report.Report`; it prints as text.
    """
    from inductor_backend.report import explain as build

    return build(model, *args, **kwargs)


def register() -> None:
    """Register the backend under the name "pallas" unless it is there already."""
    if not is_known_backend("pallas"):
        register_backend("pallas", pallas)
