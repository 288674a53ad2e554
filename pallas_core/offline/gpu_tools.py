"""Where the GPU compiler is: jax's CUDA plugin, ptxas and the disassembler.

Input: the environment. Output: `Tools`, or the diagnostic that says what is missing and how to get it. Law: nothing is
imported or loaded here. The plugin may live in a folder of its own, outside of the environment: where it is installed
beside jax on a machine without a GPU, every start of jax complains about missing CUDA libraries.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

from bridge.diagnostics import error

#: Name of the environment variable that says where the packages are.
VARIABLE = "TORCH_PALLAS_GPU_TOOLS"


@dataclass(frozen=True)
class Tools:
    """What the worker needs.

    Attributes:
        site: the folder with the plugin, "" when it is importable.
        cuda: CUDA's folder, with ``bin/ptxas``.
        disassembler: path of nvdisasm, "" when there is none: then SASS is not counted.
    """

    site: str
    cuda: str
    disassembler: str


def folder() -> Path:
    """Where the packages are looked for: the variable's value, else a folder in the user's cache."""
    named = os.environ.get(VARIABLE)
    if named:
        return Path(named)
    base = os.environ.get("XDG_CACHE_HOME")
    try:
        return (Path(base) if base else Path.home() / ".cache") / "torch-pallas" / "gpu"
    except RuntimeError:  # no home
        return Path("gpu")


def command() -> str:
    """The command that installs what is missing."""
    version = importlib.metadata.version("jax")
    where = f'"${VARIABLE}"' if os.environ.get(VARIABLE) else str(folder())
    return (
        f"pip install --no-deps --target {where} \\\n"
        f"        jax-cuda13-plugin=={version} jax-cuda13-pjrt=={version} 'nvidia-cuda-nvcc>=13'"
    )


def missing() -> list[str]:
    """The packages that are not there."""
    out = []
    if importlib.util.find_spec("absl") is None:
        out.append("absl-py")
    if not _sites():
        out.append("jax-cuda13-plugin and jax-cuda13-pjrt")
    if not _cuda():
        out.append("nvidia-cuda-nvcc")
    return out


def find() -> Tools:
    """The tools.

    Raises:
        Diagnostic: ``missing-dependency``.
    """
    lacking = missing()
    if lacking:
        remedy = ["install the extra:\n    pip install 'torch-pallas[gpu]'"] if "absl-py" in lacking else []
        if lacking != ["absl-py"]:
            remedy.append(f"put the compiler into a folder of its own, where jax does not find it:\n    {command()}")
        raise error(
            "missing-dependency",
            f"compiling for a GPU needs {', '.join(lacking)}",
            why="the compiler is the one in jax's CUDA plugin, with ptxas. It needs no GPU, but it is not installed.",
            do=remedy,
        )
    return Tools(_sites()[0], _cuda()[0], next(iter(_disassemblers()), ""))


def find_site() -> str:
    """Where the plugin is, in words."""
    found = _sites()
    return "not installed" if not found else found[0] or "installed beside jax"


def _sites() -> list[str]:
    if (folder() / "jax_plugins" / "xla_cuda13").is_dir():
        return [str(folder())]
    try:
        found = importlib.util.find_spec("jax_plugins.xla_cuda13") is not None
    except ModuleNotFoundError:
        found = False
    return [""] if found else []


def _nvidia() -> list[Path]:
    spec = importlib.util.find_spec("nvidia")
    places = [folder() / "nvidia", *(Path(p) for p in (spec.submodule_search_locations or () if spec else ()))]
    return [p / "cu13" for p in places if (p / "cu13").is_dir()]


def _cuda() -> list[str]:
    return [str(p) for p in _nvidia() if (p / "bin" / "ptxas").is_file()]


def _disassemblers() -> list[str]:
    found = [p / "bin" / "nvdisasm" for p in _nvidia()]
    # By the path: the name may stand for another package while kernels are checked.
    found += [Path(p) / "triton" / "backends" / "nvidia" / "bin" / "nvdisasm" for p in sys.path if p]
    on_path = shutil.which("nvdisasm")
    return [str(p) for p in found if p.is_file()] + ([on_path] if on_path else [])
