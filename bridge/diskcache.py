"""What outlives a process: compiled programs and choices, as files under one folder.

Input: a kind, a key (text that says all that decides the value) and bytes. Output: the bytes again, in this process or
another one. Law: the cache never changes a result and never fails a call: a file that is broken, foreign or gone is a
value that is not there; files appear whole or not at all; the folder stays within its bound.

The folder is ``TORCH_PALLAS_CACHE_DIR``, else ``torch-pallas`` in the user's cache directory; ``TORCH_PALLAS_CACHE=0``
turns it off; ``TORCH_PALLAS_CACHE_MB`` bounds it (1024). It holds native code: who can write there can run code here.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import platform
import struct
import tempfile
import threading
import time
import zlib
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from bridge.diagnostics import note

#: First bytes of every file; a change of the format changes them.
_MAGIC = b"torch-pallas 1\n"
_HEADER = struct.Struct("<32sQ")
_DEFAULT_MB = 1024
#: Seconds after which a file that is read counts as used again.
_FRESH = 3600.0
#: The folder is measured after so many new files, and with the first.
_EVERY = 64

_written = 0
_lock = threading.Lock()


def folder() -> Path | None:
    """Where the files are, or None when the cache is off."""
    if os.environ.get("TORCH_PALLAS_CACHE", "1").lower() in ("0", "off", "false", "no"):
        return None
    named = os.environ.get("TORCH_PALLAS_CACHE_DIR")
    if named:
        return Path(named).expanduser()
    base = os.environ.get("XDG_CACHE_HOME")
    try:
        return (Path(base) if base else Path.home() / ".cache") / "torch-pallas"
    except RuntimeError:  # no home directory
        return None


def get(kind: str, key: str) -> bytes | None:
    """The value kept for a key, or None."""
    path = _path(kind, key)
    if path is None:
        return None
    try:
        data = path.read_bytes()
        start = len(_MAGIC) + _HEADER.size
        digest, size = _HEADER.unpack_from(data, len(_MAGIC))
        packed = data[start:]
        if not data.startswith(_MAGIC) or len(packed) != size or hashlib.sha256(packed).digest() != digest:
            raise ValueError("broken")
        value = zlib.decompress(packed)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, struct.error, zlib.error):
        drop(kind, key)
        return None
    with contextlib.suppress(OSError):
        if time.time() - path.stat().st_mtime > _FRESH:
            os.utime(path)
    return value


def put(kind: str, key: str, value: bytes) -> None:
    """Keep a value; where that is not possible, don't."""
    path = _path(kind, key)
    if path is None:
        return
    packed = zlib.compress(value, 1)
    temporary = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=".new-")
        with os.fdopen(handle, "wb") as file:
            file.write(_MAGIC + _HEADER.pack(hashlib.sha256(packed).digest(), len(packed)) + packed)
        os.replace(temporary, path)
    except OSError as problem:
        if temporary is not None:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
        _say_once(problem)
        return
    _stay_within_bound()


def drop(kind: str, key: str) -> None:
    """Forget a value that turned out to be of no use."""
    path = _path(kind, key)
    if path is not None:
        with contextlib.suppress(OSError):
            path.unlink()


def _path(kind: str, key: str) -> Path | None:
    base = folder()
    return None if base is None else base / kind / hashlib.sha256(key.encode()).hexdigest()


def _say_once(problem: OSError) -> None:
    """A folder that the user named and that can't be written is worth a note; a home that can't is not."""
    named = os.environ.get("TORCH_PALLAS_CACHE_DIR")
    if named:
        note(
            "cache-not-written",
            f"nothing can be kept in {named}",
            why=f"{problem.strerror or problem}; programs are compiled anew by every process",
            do="name a folder that may be written: TORCH_PALLAS_CACHE_DIR=...; or turn it off: TORCH_PALLAS_CACHE=0",
        )


def _stay_within_bound() -> None:
    """Now and then, delete what was not used for longest."""
    global _written
    with _lock:
        due = _written % _EVERY == 0
        _written += 1
    base = folder()
    if not due or base is None:
        return
    try:
        bound = float(os.environ.get("TORCH_PALLAS_CACHE_MB", _DEFAULT_MB)) * 2**20
    except ValueError:
        bound = _DEFAULT_MB * 2**20
    files = []
    with contextlib.suppress(OSError):
        for path in base.glob("*/*"):
            with contextlib.suppress(OSError):
                state = path.stat()
                files.append((state.st_mtime, state.st_size, path))
    total = sum(size for _, size, _ in files)
    if total <= bound:
        return
    for _, size, path in sorted(files, key=lambda f: f[0]):
        with contextlib.suppress(OSError):
            path.unlink()
        total -= size
        if total <= 0.75 * bound:
            return


@functools.cache
def this_machine() -> str:
    """What native code depends on: the versions that made it, the processor's abilities, how many cores there are."""
    parts = [platform.system(), platform.machine(), platform.python_version()]
    for name in ("torch-pallas", "jax", "jaxlib"):
        with contextlib.suppress(PackageNotFoundError):
            parts.append(f"{name} {version(name)}")
    wanted = ("model name", "flags", "Features", "CPU implementer", "CPU part")
    with contextlib.suppress(OSError), open("/proc/cpuinfo") as lines:
        seen = set()
        for line in lines:
            name, _, value = line.partition(":")
            if name.strip() in wanted and name not in seen:
                seen.add(name)
                parts.append(value.strip())
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return "\n".join([*parts, f"{cores} cores"])
