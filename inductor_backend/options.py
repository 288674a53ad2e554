"""What `torch.compile(..., backend="pallas", options=...)` accepts.

Input: the user's dict. Output: a frozen `Options`. Law: an unknown name or value is a diagnostic, never ignored.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from bridge.devices import Target
from bridge.diagnostics import error
from inductor_backend.buckets.sizes import Buckets

_KERNELS = ("profitable", "all", "none")


@dataclass(frozen=True)
class Options:
    """Validated options.

    Attributes:
        target: where the graph runs: "cpu", or a TPU such as "tpu:v5e", which need not be here to compile for it.
        kernels: which fused regions become Pallas kernels: "profitable", "all" or "none" (plain XLA).
        dump: a folder that the emitted source is written to, or None.
        max_autotune: whether sizes of blocks are tried out, by static schedule for a TPU. A kernel on the CPU is one
            block: there is nothing to try.
        buckets: what sizes that vary are padded to: None (nothing), True (powers of two) or the sizes themselves.
    """

    target: str = "cpu"
    kernels: str = "profitable"
    dump: Path | None = None
    max_autotune: bool = False
    buckets: Buckets = None

    @classmethod
    def read(cls, given: Mapping[str, Any] | None, **more: Any) -> Options:
        """Check the user's options.

        Raises:
            Diagnostic: backend-option for an unknown name or value or an unwritable folder, unknown-target for an
                unknown target.
        """
        if given is not None and not isinstance(given, Mapping):
            raise error(
                "backend-option",
                f"options is a {type(given).__name__}",
                why="options are given by name",
                do="torch.compile(model, backend='pallas', options={'kernels': 'all'})",
            )
        values = {**(given or {}), **more}
        known = [f.name for f in fields(cls)]
        for name in values:
            if name not in known:
                raise error(
                    "backend-option",
                    f"there is no option {name!r}",
                    why=f"the options are {', '.join(known)}",
                    do=_meant(name, known, "options={", f": {values[name]!r}}}"),
                )
        target = str(Target.parse(values.get("target", "cpu")))
        if target.startswith("gpu"):
            raise error(
                "unknown-target",
                f"torch.compile(backend='pallas') has no form of a graph for {target!r}",
                why="graphs become kernels for the CPU and for TPUs; a GPU takes kernels of the Triton front end only",
                do="leave target out, or name a TPU: 'tpu:v5e'",
            )
        kernels = values.get("kernels", "profitable")
        if kernels not in _KERNELS:
            raise error(
                "backend-option",
                f"kernels={kernels!r} is not one of {', '.join(_KERNELS)}",
                why="it says which fused regions become Pallas kernels: those that pay, all of them, or none",
                do=_meant(kernels, _KERNELS, "options={'kernels': ", "}"),
            )
        dump = values.get("dump")
        if dump is not None and not isinstance(dump, (str, Path)):
            raise error(
                "backend-option",
                f"dump={dump!r} is not a folder's path",
                why="the emitted source is written to files in a folder, which is a str or a pathlib.Path",
                do="options={'dump': 'generated'}, or leave it out",
            )
        tuned = values.get("max_autotune", False)
        if not isinstance(tuned, bool):
            raise error(
                "backend-option",
                f"max_autotune={tuned!r} is neither True nor False",
                why="sizes of blocks are tried out or they are not",
                do="options={'max_autotune': True}",
            )
        return cls(
            target, kernels, None if dump is None else _folder(Path(dump)), tuned, _buckets(values.get("buckets"))
        )


def _buckets(given: Any) -> Buckets:
    """The option `buckets`: None, True, or sizes in ascending order."""
    if given is None or isinstance(given, bool):
        return given or None
    listed = isinstance(given, (list, tuple)) and bool(given)
    whole = listed and all(isinstance(n, int) and not isinstance(n, bool) and n > 0 for n in given)
    if not whole or list(given) != sorted(set(given)):
        raise error(
            "backend-option",
            f"buckets={given!r} is not a list of sizes",
            why="it says what sizes are padded to: True for powers of two, or whole numbers in ascending order",
            do="options={'buckets': True}, or {'buckets': [16, 64, 256]}",
        )
    return tuple(given)


def nearest(given: Any, known: Sequence[str]) -> str | None:
    """The name that was most likely meant; None where nothing is like it."""
    found = difflib.get_close_matches(str(given).lower().replace("-", "_"), [k.replace("-", "_") for k in known], 1)
    return next((k for k in known if found and k.replace("-", "_") == found[0]), None)


def _meant(given: Any, known: Sequence[str], before: str, after: str) -> str:
    """What to write, if a known name was meant: the name between two pieces of source."""
    found = nearest(given, known)
    if found is None:
        return "leave it out, or name one of these"
    return f"{before}{found!r}{after}, if that is what was meant"


def _folder(path: Path) -> Path:
    """The folder, made if need be."""
    try:
        if path.exists() and not path.is_dir():
            why = "it is a file; the emitted source of every graph becomes a file of its own in a folder"
        else:
            path.mkdir(parents=True, exist_ok=True)
            why = "" if os.access(path, os.W_OK | os.X_OK) else "it is not writable"
    except OSError as failure:
        why = failure.strerror or str(failure)
    if why:
        raise error("backend-option", f"dump={str(path)!r} can't be written to", why=why, do="name another folder")
    return path
