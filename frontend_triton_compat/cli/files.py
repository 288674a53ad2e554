"""What the commands share: bad usage, whole-or-not-at-all files, the targets of an option.

Input: paths and strings of the command line. Output: validated values. Law: bad usage is known before any long work.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from bridge.devices import Target, is_rocm
from bridge.diagnostics import Diagnostic


class Usage(Exception):
    """The command line can't be followed; exit code 2."""


def existing_file(name: str) -> Path:
    """A file that is there.

    Raises:
        Usage: it is not.
    """
    path = Path(name)
    if not path.is_file():
        raise Usage(f"there is no file {name}")
    return path


def writable(name: str) -> Path:
    """A path that a file can be written to.

    Raises:
        Usage: its folder is not there, or it is a folder itself.
    """
    path = Path(name)
    if path.is_dir():
        raise Usage(f"{name} is a folder, and a file is to be written")
    if not path.parent.is_dir():
        raise Usage(f"there is no folder {path.parent}")
    return path


def write_whole(path: Path, text: str) -> None:
    """Write a file so that it is there whole or as it was before.

    Raises:
        Usage: the file can't be written.
    """
    try:
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".part")
    except OSError as problem:
        raise Usage(f"{path} can't be written: {problem.strerror}") from problem
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        umask = os.umask(0)
        os.umask(umask)
        os.chmod(name, 0o666 & ~umask)  # as open() would have made it; mkstemp makes it private
        os.replace(name, path)
    except OSError as problem:
        Path(name).unlink(missing_ok=True)
        raise Usage(f"{path} can't be written: {problem.strerror}") from problem
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def targets_of(text: str) -> list[str]:
    """Target names from ``tpu:v5e,tpu:v6e``, each once, in order; AMD's stay, to get their diagnostic in a row.

    Raises:
        Usage: one of them is unknown, or there is none.
    """
    names = [name.strip() for name in text.split(",") if name.strip()]
    if not names:
        raise Usage("--target names no target")
    try:
        return list(dict.fromkeys(name if is_rocm(name) else str(Target.parse(name)) for name in names))
    except Diagnostic as unknown:
        near = any(remedy.startswith("did you mean") for remedy in unknown.do)
        raise Usage(f"{unknown.what}; {' '.join(unknown.do) if near else unknown.why}") from unknown
