"""The real Triton interpreter in one long-lived process: kernels go in as text, tensors come back.

As a module: `Interpreter().run(source, grid, arguments)`. As a script, under TRITON_INTERPRET=1: the process, which
reads requests from its standard input until that ends.
"""

from __future__ import annotations

import importlib.util
import io
import os
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path
from typing import Any

import torch

HEADER = "import triton\nimport triton.language as tl\n\n\n"


class Interpreter:
    """Runs kernels in the real interpreter."""

    def __init__(self):
        self.process = subprocess.Popen(
            [sys.executable, __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=os.environ | {"TRITON_INTERPRET": "1"},
        )

    def run(self, source: str, grid: tuple[int, ...], arguments: dict[str, Any]) -> dict[str, torch.Tensor]:
        """The tensors among the arguments after `kernel` of `source` has run on them.

        Raises:
            RuntimeError: the interpreter refuses the kernel.
        """
        _send(self.process.stdin, (HEADER + source, grid, arguments))
        answer = _receive(self.process.stdout)
        if isinstance(answer, str):
            raise RuntimeError(answer)
        return answer

    def close(self) -> None:
        """End the process."""
        self.process.stdin.close()
        self.process.wait(timeout=60)


def _send(stream, value) -> None:
    data = io.BytesIO()
    torch.save(value, data)
    stream.write(len(data.getvalue()).to_bytes(8, "big") + data.getvalue())
    stream.flush()


def _receive(stream):
    size = int.from_bytes(stream.read(8), "big")
    return torch.load(io.BytesIO(stream.read(size)), weights_only=True) if size else None


def _serve(folder: str) -> None:
    answers, sys.stdout = sys.stdout.buffer, sys.stderr
    warnings.simplefilter("ignore")
    count = 0
    while (request := _receive(sys.stdin.buffer)) is not None:
        source, grid, arguments = request
        count += 1
        path = Path(folder) / f"kernel_{count}.py"
        path.write_text(source)
        try:
            spec = importlib.util.spec_from_file_location(path.stem, path)
            module = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(module)
            module.kernel[tuple(grid)](**arguments)
            answer = {n: v for n, v in arguments.items() if isinstance(v, torch.Tensor)}
        except Exception as problem:
            answer = f"{type(problem).__name__}: {problem}"
        _send(answers, answer)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        _serve(folder)
