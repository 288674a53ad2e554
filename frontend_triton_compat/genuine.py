"""The genuine Triton interpreter as a reference, in a process of its own.

Input: a kernel of ours, arguments, a grid. Output: the arguments' memory as the genuine package's interpreter leaves
it. Law: this process never imports the genuine package, and the kernel's file is imported there with its imports of
this package resolved to the genuine one. As a script, under TRITON_INTERPRET=1, it is that process.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from frontend_triton_compat.launch import JITFunction

#: Seconds until it is given up.
TIMEOUT = 600


def run(kernel: JITFunction, named: Mapping[str, Any], grid: tuple[int, int, int]) -> None:
    """Launch a kernel on the genuine interpreter and write what it leaves into the arguments.

    Args:
        kernel: a kernel at the top of a module that has a file.
        named: every argument by name; tensors are written to.
        grid: the launch's grid.

    Raises:
        Diagnostic: the package is not installed, or its interpreter does not run the kernel.
    """
    where = kernel.where
    tensors = {name: value for name, value in named.items() if isinstance(value, torch.Tensor)}
    plain = {name: value for name, value in named.items() if name not in tensors}
    odd = [n for n, v in plain.items() if not isinstance(v, bool | int | float | str | None)]
    if importlib.util.find_spec("triton") is None or where is None or odd or "<locals>" in kernel.fn.__qualname__:
        raise _refused(
            kernel,
            "the genuine triton package is not installed"
            if importlib.util.find_spec("triton") is None
            else f"argument {odd[0]!r} is a {type(named[odd[0]]).__name__}, and numbers and tensors can be handed over"
            if odd
            else "the kernel is not at the top of a module, so that another process can't import it",
        )
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "launch.pt"
        request = {"file": where.file, "kernel": kernel.fn.__name__, "grid": grid, "plain": plain, "tensors": tensors}
        torch.save(request, path)  # views of one storage stay views of one storage
        done = subprocess.run(
            [sys.executable, __file__, str(path)],
            env={**os.environ, "TRITON_INTERPRET": "1"},
            capture_output=True,
            text=True,
            timeout=TIMEOUT,
        )
        if done.returncode:
            lines = done.stderr.strip().splitlines()
            raise _refused(kernel, lines[-1][:300] if lines else "it gave no reason")
        new = torch.load(path, weights_only=True)
    for name, value in new.items():
        _storage(tensors[name]).copy_(_storage(value))


def _storage(t: torch.Tensor) -> torch.Tensor:
    return torch.empty(0, dtype=torch.uint8).set_(t.untyped_storage())


def _refused(kernel: JITFunction, why: str) -> Exception:
    from bridge.diagnostics import error

    return error(
        "reference-not-run",
        f"the genuine interpreter does not run {kernel.fn.__name__}",
        where=kernel.where,
        why=why,
        do=(
            "pip install triton, and keep the kernel at the top of its module",
            "give a reference of your own: reference=lambda x, y: x + y",
        ),
    )


def _serve(path: Path) -> None:
    import triton
    import triton.language

    ours = "frontend_triton_compat"
    sys.modules[ours], sys.modules[f"{ours}.language"] = triton, triton.language
    request = torch.load(path, weights_only=True)
    file = Path(request["file"])
    sys.path.insert(0, str(file.parent))
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[file.stem] = module
    spec.loader.exec_module(module)
    kernel = getattr(module, request["kernel"])
    while not hasattr(kernel, "rewritten") and type(kernel).__name__ in ("Autotuner", "Heuristics"):
        kernel = kernel.fn
    kernel[tuple(request["grid"])](**request["plain"], **request["tensors"])
    torch.save(request["tensors"], path)


if __name__ == "__main__":
    _serve(Path(sys.argv[1]))
