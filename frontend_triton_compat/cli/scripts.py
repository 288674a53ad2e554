"""`run` and `record`: a user's script, with ``import triton`` resolving to this package.

Input: a script and its arguments. Output: the script's exit code; for `record` also a JSON file of its launches. Law:
the script sees what it would see under ``python script.py``: its ``sys.argv``, its folder first on ``sys.path``, itself
as ``__main__``, and its own traceback when it fails.
"""

from __future__ import annotations

import json
import runpy
import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path

from frontend_triton_compat import record as records
from frontend_triton_compat import shim
from frontend_triton_compat.cli.files import existing_file, writable, write_whole


def run(script: str, args: Sequence[str]) -> int:
    """Run a script; see the module.

    Raises:
        Usage: there is no such file.
    """
    path = existing_file(script)
    with shim.installed(displace=True):
        return as_script(path, args[1:] if args[:1] == ["--"] else args)


def record(script: str, args: Sequence[str], output: str) -> int:
    """Run a script and write its launches, also when it fails; see the module.

    Raises:
        Usage: there is no such script, or the output can't be written.
    """
    path, out = existing_file(script), writable(output)
    with shim.installed(displace=True), records.recording() as seen:
        code = as_script(path, args[1:] if args[:1] == ["--"] else args)
    write_whole(out, json.dumps(seen, indent=1) + "\n")
    kernels = sorted({one["kernel"] for one in seen})
    names = f" of {', '.join(kernels)}" if kernels else ": the script launched no kernel of torch-pallas"
    print(f"{output}: {len(seen)} launch{'es' if len(seen) != 1 else ''}{names}", file=sys.stderr)
    return code


def as_script(path: Path, args: Sequence[str]) -> int:
    """Run a file as ``__main__`` and return the code that Python would exit with."""
    before, paths = sys.argv, list(sys.path)
    sys.argv = [str(path), *args]
    sys.path.insert(0, str(path.resolve().parent))
    try:
        return exit_code(lambda: runpy.run_path(str(path), run_name="__main__"), str(path))
    finally:
        sys.argv, sys.path[:] = before, paths


def exit_code(run_it: Callable[[], object], filename: str) -> int:
    """Call something and return the exit code that Python would give for how it ended."""
    try:
        run_it()
        return 0
    except SystemExit as stop:
        if stop.code is None or isinstance(stop.code, int):
            return int(stop.code or 0)
        print(stop.code, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    except BaseException as problem:  # the script's own: shown as Python shows it, from the script's first frame on
        frames = problem.__traceback__
        while frames is not None and frames.tb_frame.f_code.co_filename != filename:
            frames = frames.tb_next
        traceback.print_exception(type(problem), problem, frames or problem.__traceback__)
        return 1
